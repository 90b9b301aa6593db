/* serve_best.c - batches whose next tokens come from the best ones of each row, not from logits. */
#include "base/mem.h"
#include "engine/serve_internal.h"

#include <stdlib.h>

tsr_status tsr_engine_serve_best_make(const struct tsr_engine_pass *p,
                                      struct tsr_engine_slot_set *l, struct tsr_err *err)
{
    if (p->best_rows == 0)
        return TSR_OK;
    l->best.best = tsr_new(l->rows * TSR_CANDIDATES_MOST, sizeof *l->best.best);
    l->best.row = tsr_new(l->rows, sizeof *l->best.row);
    l->inverse = tsr_new(l->rows, sizeof *l->inverse);
    l->best.inverse = l->inverse;
    return l->best.best && l->best.row && l->inverse
               ? TSR_OK
               : tsr_fail_nomem(err, l->rows * TSR_CANDIDATES_MOST * sizeof *l->best.best,
                                "candidates");
}

void tsr_engine_serve_best_free(struct tsr_engine_slot_set *l)
{
    free(l->best.best);
    free(l->best.row);
    free(l->inverse);
    l->best = (struct tsr_engine_best){ 0 };
    l->inverse = NULL;
}

bool tsr_engine_serve_best_takes(const struct tsr_engine_pass       *p,
                                 const struct tsr_engine_serve_slot *slots,
                                 struct tsr_engine_slot_set         *l)
{
    uint64_t row = 0;
    if (l->wanted > p->best_rows || l->wanted > l->rows || l->n > p->best_tokens)
        return false;
    l->best.most = 1;
    for (uint64_t i = 0; i < l->n; i++) {
        const struct tsr_engine_serve_slot *q = &slots[l->batch[i].slot];
        if (!l->batch[i].logits)
            continue;
        const uint32_t n = tsr_engine_slot_candidates(q, p->vocab, &l->inverse[row++]);
        if (n == 0)
            return false;
        l->best.most = n > l->best.most ? n : l->best.most;
    }
    return true;
}
