/* The codecs of a plan file's links and sums, for its price. */
#include "comm/coder.h"
#include "plan/file/check.h"

#include <string.h>

/* Rows that codecs are compared at: with one, a header would decide. */
#define ROWS 1024u

/* "" for what travels as F32: no codec, `plain`, what older files wrote for none, and `auto`, which is not
 * known before ranks have measured it and is `plain` at worst. */
static const char *named(const char *codec)
{
    bool none = strcmp(codec, "plain") == 0 || strcmp(codec, "f16") == 0 || tsr_comm_is_auto(codec);
    return none ? "" : codec;
}

/* Of the ways of all stages in a phase the one with the most bytes: tables have one for all. */
static tsr_status widest(const struct tsr_plan_problem *p, const struct tsr_plan_file *f, int phase,
                         bool inside, const char **codec, struct tsr_err *err)
{
    uint64_t most = 0;
    *codec = "";
    for (uint64_t i = 0; i < f->n_stages; i++) {
        const struct tsr_plan_stage *s = &f->stages[i];
        const char                  *text = named((inside ? s->collective : s->send)[phase].codec);
        struct tsr_plan_wire         w;
        uint64_t                     bytes;
        if (inside ? s->tp < 2 : i + 1 == f->n_stages)
            continue;
        TSR_TRY(tsr_plan_wire_open(&w, p->registry, text, err));
        if (!*text)
            w.element = p->wire[phase].element; /* of the accounting */
        tsr_status st = tsr_plan_wire_bytes(&w, ROWS, p->shape->hidden, &bytes, err);
        tsr_plan_wire_close(&w);
        TSR_TRY(st);
        if (bytes > most) {
            most = bytes;
            *codec = text;
        }
    }
    return TSR_OK;
}

tsr_status tsr_plan_take_codecs(struct tsr_plan_problem *p, const struct tsr_plan_file *f,
                                struct tsr_err *err)
{
    const char *send[TSR_PLAN_PHASES], *collective[TSR_PLAN_PHASES];
    for (int k = 0; k < TSR_PLAN_PHASES; k++) {
        TSR_TRY(widest(p, f, k, false, &send[k], err));
        TSR_TRY(widest(p, f, k, true, &collective[k], err));
    }
    TSR_TRY(tsr_plan_problem_put_codecs(p, send, collective, err));
    for (int k = 0; k < TSR_PLAN_PHASES && f->head == TSR_PLAN_HEAD_FIRST && f->n_stages > 1; k++) {
        tsr_plan_wire_close(&p->back[k]);
        TSR_TRY(tsr_plan_wire_open(&p->back[k], p->registry,
                                   named(f->stages[f->n_stages - 1].send[k].codec), err));
    }
    return TSR_OK;
}
