/* tasks/paired.h - the same task by two models, question by question.
 *
 * A metric that is a share of right answers is tested by McNemar's exact test, since its questions are pairs of 0 and
 * 1.  Where the rows have groups, as MMLU's have subjects, questions of one group depend on each other: then, and for
 * other metrics, a bootstrap decides, over groups or documents (eval/statistics.h).
 */
#ifndef TSR_TASKS_PAIRED_H
#define TSR_TASKS_PAIRED_H

#include "tasks/metrics.h"

#include <jansson.h>

#define TSR_TASKS_DIFFERENCE 0.01 /* whose cost in questions is given */

struct tsr_tasks_paired {
    double   value;              /* a's metric less b's */
    double   low, high;          /* of the bootstrap */
    double   p;                  /* two-sided, of the test that decides */
    double   mcnemar, bootstrap; /* both; mcnemar NaN where marks are not 0 or 1 */
    bool     is_mcnemar;         /* p is McNemar's */
    uint64_t only_a, only_b;     /* questions that only one has right */
    uint64_t documents, units;   /* units: what the bootstrap draws */
    double
        needed; /* documents to find a difference of 1 %: of the share in points, of the others relative; as if
                    * documents were independent */
};
/* Of the k-th metric.  a and b are of the same rows.  seed, draws: of the bootstrap.  Fewer than two units: low, high
 * and bootstrap are NaN.  [any] */
tsr_status tsr_tasks_paired_measure(struct tsr_tasks_paired *out, const struct tsr_tasks_marks *a,
                                    const struct tsr_tasks_marks *b, uint64_t k, double alpha,
                                    uint64_t seed, uint64_t draws, struct tsr_err *err);

/* Marks as JSON, to be kept; NULL: out of memory.  A share is text of 0 and 1, another metric a list. */
json_t *tsr_tasks_marks_json(const struct tsr_tasks_marks *m);
/* And back.  name: for messages.  TSR_E_INPUT: something is missing or has another length. */
tsr_status tsr_tasks_marks_load(struct tsr_tasks_marks **m, const struct tsr_tasks_task *t,
                                const json_t *j, const char *name, struct tsr_err *err);

#endif
