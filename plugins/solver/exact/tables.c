#include "exact.h"

bool ex_tables_init(struct ex *x)
{
    uint64_t L = x->L, K = x->K, seg = K * L * (L + 1), groups = 1;
    for (uint64_t i = 0; i < x->n_models; i++)
        groups = x->models[i].groups > groups ? x->models[i].groups : groups;
    uint64_t at = x->n_states * groups * (L + 1);
    x->cost = ex_new(x, seg, sizeof(double));
    x->around = ex_new(x, seg, sizeof(double));
    x->reach = ex_new(x, K * L, sizeof *x->reach);
    x->last = ex_new(x, K * L, sizeof *x->last);
    x->fwd = ex_new(x, at, sizeof(double));
    x->bwd = ex_new(x, at, sizeof(double));
    x->bwd0 = ex_new(x, at, sizeof(double));
    x->bwdw = ex_new(x, at, sizeof(double));
    x->head = ex_new(x, at, sizeof *x->head);
    x->into = ex_new(x, x->n_states * K * L, sizeof(double));
    x->price = ex_new(x, K * EX_PRICES, sizeof *x->price);
    x->n_price = ex_new(x, K, sizeof *x->n_price);
    x->prefix = ex_new(x, K * EX_PRICES * (L + 1), sizeof(double));
    x->slopes = ex_new(x, UINT64_C(3) * EX_SLOPES, sizeof(double));
    x->most = ex_new(x, 3 * (L + 1), sizeof(double));
    x->least = ex_new(x, 3 * K * L, sizeof(double));
    x->bundle = ex_new(x, ex_bundle_size(K), sizeof(double));
    x->w.a = ex_new(x, 2 * K, sizeof(double));
    x->w.b = x->w.a ? x->w.a + K : NULL;
    x->stages = ex_new(x, L, sizeof *x->stages);
    x->trial = ex_new(x, L + 1, sizeof *x->trial);
    x->seg_of = ex_new(x, K * (L + 1) + 1, sizeof *x->seg_of);
    return x->status == TSR_OK &&
           ex_grow(x, (void **)&x->lab[0], &x->lab_room[0], 1024, sizeof **x->lab);
}

void ex_tables_free(struct ex *x)
{
    void *all[] = { x->cost,     x->around, x->reach,  x->last,   x->fwd,    x->bwd,
                    x->bwd0,     x->bwdw,   x->head,   x->into,   x->price,  x->n_price,
                    x->prefix,   x->slopes, x->most,   x->least,  x->bundle, x->w.a,
                    x->stages,   x->trial,  x->seg_of, x->lab[0], x->lab[1], x->cols.pre,
                    x->cols.seg, x->paths,  x->heap };
    while (x->n_heap)
        ex_free(x, x->heap[--x->n_heap]);
    for (uint64_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ex_free(x, all[i]);
}
