#include "plan/search/kept.h"

#include "base/mem.h"
#include "plan/instance/objective.h"
#include "plan/search/lines.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (UINT64_C(256) << 20) /* of the instances of all settings */

tsr_status tsr_plan_kept_open(struct tsr_plan_bounds *b, const struct tsr_plan_problem *p,
                              struct tsr_err *err)
{
    *b = (struct tsr_plan_bounds){ .list = tsr_new(TSR_PLAN_SETTINGS, sizeof *b->list) };
    if (!b->list)
        return tsr_fail_nomem(err, TSR_PLAN_SETTINGS * sizeof *b->list, "settings of a plan");
    uint64_t n = b->n = tsr_plan_settings_of(p, b->list);
    b->used = tsr_new(n, sizeof *b->used);
    b->lines = tsr_new(n * TSR_PLAN_BOUND_LINES, sizeof *b->lines);
    b->options = tsr_new(n * TSR_PLAN_LINES_OF, sizeof *b->options);
    b->solver = tsr_new(1, sizeof *b->solver);
    if (!b->used || !b->lines || !b->options || !b->solver)
        return tsr_fail_nomem(err, n * TSR_PLAN_BOUND_LINES * sizeof *b->lines,
                              "bounds of settings");
    uint64_t k = p->o.n_k ? p->o.n_k : 1;
    for (uint64_t i = 0; i < n * TSR_PLAN_LINES_OF; i++) {
        bool group = i % TSR_PLAN_LINES_OF >= TSR_PLAN_LINES_GROUP; /* one for k settings */
        b->options[i].most = MOST_BYTES / n / (k == 1 ? 2 : 4) * (group ? k : 1);
        b->options[i].solver = b->solver;
    }
    return TSR_OK;
}

void tsr_plan_kept_close(struct tsr_plan_bounds *b)
{
    for (uint64_t i = 0; b->options && i < b->n * TSR_PLAN_LINES_OF; i++)
        tsr_plan_lines_free(&b->options[i]);
    if (b->solver)
        tsr_plan_solver_end(b->solver);
    free(b->solver);
    free(b->options);
    free(b->lines);
    free(b->used);
    free(b->list);
    *b = (struct tsr_plan_bounds){ 0 };
}

static bool is_same(const struct tsr_plan_setting *s, const struct tsr_plan_setting *t)
{
    return s->concurrency == t->concurrency && s->chunk == t->chunk && s->kv == t->kv &&
           s->end == t->end && s->types == t->types && s->most_k == t->most_k;
}

void tsr_plan_kept_take(struct tsr_plan_bounds *b, struct tsr_plan_bounds *from)
{
    for (uint64_t i = 0; i < b->n; i++)
        for (uint64_t j = 0; j < from->n; j++) {
            if (!is_same(&b->list[i], &from->list[j]))
                continue;
            b->used[i] = from->used[j];
            memcpy(b->lines + i * TSR_PLAN_BOUND_LINES, from->lines + j * TSR_PLAN_BOUND_LINES,
                   from->used[j] * sizeof *b->lines);
            for (uint64_t k = 0; k < TSR_PLAN_LINES_OF; k++) {
                struct tsr_plan_lines *to = &b->options[i * TSR_PLAN_LINES_OF + k];
                *to = from->options[j * TSR_PLAN_LINES_OF + k];
                to->solver = b->solver;
                from->options[j * TSR_PLAN_LINES_OF + k] = (struct tsr_plan_lines){ 0 };
            }
            break;
        }
}
