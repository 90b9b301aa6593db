#include "plan/cost/draft.h"

#include <stdio.h>

tsr_status tsr_plan_draft_open(struct tsr_plan_draft *d, struct tsr_registry *r,
                               const struct tsr_plan_draft_options *o,
                               const struct tsr_plan_shape *planned, struct tsr_err *err)
{
    char        text[32];
    const char *texts[1] = { "original" };
    *d = (struct tsr_plan_draft){ .o = *o };
    if (o->model) {
        tsr_status st = tsr_plan_shape_load(&d->own, o->model, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "draft");
    } else {
        if (*planned->packed)
            return tsr_fail(err, TSR_E_INPUT,
                            "draft: self: %s is packed (%s); name a model of fewer bits, packed "
                            "from its original",
                            planned->name, planned->packed);
        (void)snprintf(text, sizeof text, "rtn:bits=%u", o->bits);
        texts[0] = text;
    }
    tsr_status st =
        tsr_plan_candidates_open(&d->candidates, r, d->own ? d->own : planned, texts, 1, err);
    if (st != TSR_OK)
        tsr_plan_draft_close(d);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "draft");
}

void tsr_plan_draft_close(struct tsr_plan_draft *d)
{
    tsr_plan_candidates_close(&d->candidates);
    tsr_plan_shape_destroy(d->own);
    *d = (struct tsr_plan_draft){ 0 };
}
