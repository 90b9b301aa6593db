#include "authors_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plan/instance/objective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIGS TSR_SOURCE_ROOT "/configs"

/* In the order of authors.h.  Their 3 and 4 bits are GPTQ with a scale for each row, their 8 bits
 * LLM.int8 of bitsandbytes. */
static const char *const candidates[AUTHORS_BITS] = { "gptq:bits=3,group=-1",
                                                      "gptq:bits=4,group=-1", "int8:mode=llm",
                                                      "original" };

/* A node for each run of equal devices, in the plan's order, which is fixed. */
static struct tsr_plan_cluster *cluster_of(const struct authors_plan *p)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_diag         *d = NULL;
    struct tsr_plan_cluster *c = NULL;
    char                     text[2048];
    size_t                   n = (size_t)snprintf(text, sizeof text, "version: 1\nnodes:\n");
    for (uint64_t i = 0, k; i < p->stages; i += k) {
        for (k = 1; i + k < p->stages && strcmp(p->device[i], p->device[i + k]) == 0; k++) {
        }
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "  - name: n%llu\n    devices: [{profile: %s, count: %llu}]\n"
                              "    link: {bandwidth: 100 GB/s, latency: 10 us}\n",
                              (unsigned long long)i, p->device[i], (unsigned long long)k);
    }
    (void)snprintf(text + n, sizeof text - n,
                   "network: {bandwidth: 100 Gbit/s, latency: 20 us}\norder: fixed\n");
    if (tsr_config_diag_create(&d, &e.err) != TSR_OK ||
        tsr_plan_cluster_parse(&c, CONFIGS "/clusters/authors.yaml", text, strlen(text), d,
                               &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (!c)
        tsr_config_diag_print(d, stderr, false);
    assert_non_null(c);
    tsr_config_diag_destroy(d);
    return c;
}

void authors_job_open(struct authors_job *j, struct tsr_registry *registry,
                      const struct authors_plan *p, uint64_t generate, int64_t objective,
                      int64_t accounting, int64_t head)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    memset(j, 0, sizeof *j);
    (void)snprintf(j->model, sizeof j->model, CONFIGS "/papers/models/%s/config.json", p->model);
    j->cluster = cluster_of(p);
    if (tsr_plan_workload_fixed(&j->work, p->prompt, generate, p->batch, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    j->options = (struct tsr_plan_problem_options){ .model = j->model,
                                                    .candidates = candidates,
                                                    .n_candidates = AUTHORS_BITS,
                                                    .indicators = "",
                                                    .table = "",
                                                    .at_least = "",
                                                    .codec = "plain:dtype=bf16", /* FP16 was sent */
                                                    .tp_codec = "plain:dtype=bf16",
                                                    .max_omega = -1,
                                                    .objective = objective,
                                                    .accounting = accounting,
                                                    .head = head,
                                                    .latency = TSR_PLAN_LATENCY_FIT,
                                                    .together = 1,
                                                    .prefill_mb = p->prefill_mb,
                                                    .decode_mb = p->decode_mb,
                                                    .max_tp = 1,
                                                    .gap = 1e-6 };
    if (tsr_plan_problem_open(&j->problem, registry, &j->options, j->cluster, &j->work, &e.err) !=
        TSR_OK)
        fail_msg("%s: %s", p->id, e.text);
    assert_int_equal(j->problem.shape->layers, p->layers);
}

void authors_job_close(struct authors_job *j)
{
    tsr_plan_problem_close(&j->problem);
    tsr_plan_workload_free(&j->work);
    tsr_plan_cluster_destroy(j->cluster);
}

/* Their plan in the words of one part of the build; false where it is not possible there. */
bool authors_job_value(const struct tsr_plan_built *b, uint64_t part, const struct authors_plan *p,
                       double *objective, char *why, size_t cap)
{
    const struct tsr_instance  *inst = &b->parts[part].inst;
    struct tsr_solver_solution *s = NULL;
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_instance         sized = *inst;
    sized.devices = AUTHORS_STAGES;
    assert_int_equal(tsr_plan_solution_create(&s, &sized, &e.err), TSR_OK);
    s->option = 0;
    s->stages = p->stages;
    uint64_t first = 0;
    bool     known = true;
    for (uint64_t i = 0; i < p->stages; i++) {
        uint64_t k = 0;
        while (k < inst->in.n_kinds && strcmp(inst->in.kinds[k]->name, p->device[i]) != 0)
            k++;
        known = known && k < inst->in.n_kinds;
        s->stage_kind[i] = (uint32_t)k;
        s->stage_first[i] = first;
        s->stage_count[i] = p->count[i];
        first += p->count[i];
    }
    memcpy(s->layer_bits, p->bits, p->layers * sizeof *p->bits);
    tsr_status st = known ? tsr_plan_evaluate(&inst->in, s, objective, &e.err) : TSR_E_INFEASIBLE;
    /* a part for plans of one stage has fewer devices: that is no reason */
    if (st == TSR_E_INFEASIBLE && !*why)
        (void)snprintf(why, cap, "%.400s", known ? e.text : "a device that cannot be used at all");
    free(s);
    return st == TSR_OK;
}
