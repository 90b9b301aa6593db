/* authors_job.h - a plan of LLM-PQ's authors as a planning problem: the same devices in the same order,
 * workload and micro-batches. */
#ifndef TSR_TEST_AUTHORS_JOB_H
#define TSR_TEST_AUTHORS_JOB_H

#include "authors.h"
#include "plan/search/build.h"
#include "plan/search/problem.h"

struct authors_job {
    struct tsr_plan_cluster        *cluster;
    struct tsr_plan_workload        work;
    struct tsr_plan_problem_options options;
    struct tsr_plan_problem         problem;
    char                            model[512];
};

/* Fails the test where the problem cannot be opened.  generate: tokens per request, the first from the
 * prompt; head: TSR_HEAD_*.  The registry outlives the job, which authors_job_close() frees. */
void authors_job_open(struct authors_job *j, struct tsr_registry *registry,
                      const struct authors_plan *p, uint64_t generate, int64_t objective,
                      int64_t accounting, int64_t head);
void authors_job_close(struct authors_job *j);

/* The authors' plan in one part of the build: true where it is possible there, with its objective in ms;
 * else the first reason is kept in why, "" at first. */
bool authors_job_value(const struct tsr_plan_built *b, uint64_t part, const struct authors_plan *p,
                       double *objective, char *why, size_t cap);

#endif
