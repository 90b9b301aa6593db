#include "exact.h"

/* One table of a pass: where its pointer goes, entries, bytes of one. */
struct table {
    void    *to;
    uint64_t n, size;
};

#define ROUND_UP(n) (((n) + 63u) & ~UINT64_C(63))

/* All in one block, zeroed: small problems are solved in less than thirty allocations take. */
static bool carve(struct ex *x, const struct table *t, uint64_t n)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < n; i++)
        bytes += ROUND_UP(t[i].n * t[i].size); /* exact.c's limits keep this below 2^50 */
    char *at = x->block = ex_new(x, bytes, 1);
    for (uint64_t i = 0; at && i < n; i++) {
        memcpy(t[i].to, &at, sizeof at);
        at += ROUND_UP(t[i].n * t[i].size);
    }
    return at;
}

bool ex_tables_init(struct ex *x)
{
    uint64_t L = x->L, K = x->K, seg = K * L * (L + 1), groups = 1;
    for (uint64_t i = 0; i < x->n_models; i++)
        groups = x->models[i].groups > groups ? x->models[i].groups : groups;
    uint64_t at = x->n_states * groups * (L + 1), pairs = L * x->Q * (x->Q - 1) / 2;
    x->n_slopes = pairs + L > EX_SLOPES ? EX_SLOPES : pairs;
    uint64_t           near = x->small || x->aim != EX_OBJECTIVE ? 0 : L; /* polish.c's */
    const struct table tables[] = {
        { &x->cost, seg, sizeof(double) },
        { &x->around, seg, sizeof(double) },
        { &x->reach, K * L, sizeof *x->reach },
        { &x->last, K * L, sizeof *x->last },
        { &x->fwd, at, sizeof(double) },
        { &x->bwd, at, sizeof(double) },
        { &x->bwd0, at, sizeof(double) },
        { &x->bwdw, at, sizeof(double) },
        { &x->bwdf, x->f_limit < INFINITY ? at : 0, sizeof(double) },
        { &x->head, at, sizeof *x->head },
        { &x->into, x->n_states * K * L, sizeof(double) },
        { &x->way, groups * K + (groups > K ? groups : K), sizeof(double) },
        { &x->price, K * EX_PRICES, sizeof *x->price },
        { &x->n_price, K, sizeof *x->n_price },
        { &x->finer, x->many ? K * EX_FINER : 0, sizeof *x->finer },
        { &x->n_finer, K, sizeof *x->n_finer },
        { &x->prefix, K * EX_PRICES * (L + 1), sizeof(double) },
        { &x->priced, x->C * x->Q * EX_PRICES, sizeof(double) },
        { &x->pair, 3 * K * x->n_slopes, sizeof *x->pair },
        { &x->pairs, 3 * K, sizeof *x->pairs },
        { &x->slopes, 3 * x->n_slopes, sizeof(double) },
        { &x->most, 3 * (L + 1), sizeof(double) },
        { &x->least, 3 * K * L, sizeof(double) },
        { &x->bundle, ex_bundle_size(x->G), sizeof(double) },
        { &x->w.a, K, sizeof(double) },
        { &x->w.b, K, sizeof(double) },
        { &x->stages, L, sizeof *x->stages },
        { &x->trial, L + 1, sizeof *x->trial },
        { &x->bits, L, sizeof *x->bits },
        { &x->fit, L, sizeof *x->fit },
        { &x->near[0].st, near, sizeof *x->near[0].st },
        { &x->near[1].st, near, sizeof *x->near[1].st },
        { &x->near[0].mem, near, sizeof *x->near[0].mem },
        { &x->near[1].mem, near, sizeof *x->near[1].mem },
        { &x->near[0].host, near, sizeof *x->near[0].host },
        { &x->near[1].host, near, sizeof *x->near[1].host },
        { &x->near[0].item, near, sizeof *x->near[0].item },
        { &x->near[1].item, near, sizeof *x->near[1].item },
        { &x->near[0].stage, near, sizeof *x->near[0].stage },
        { &x->near[1].stage, near, sizeof *x->near[1].stage },
        { &x->near[0].list, near * EX_NEAR, sizeof *x->near[0].list },
        { &x->near[1].list, near * EX_NEAR, sizeof *x->near[1].list },
        { &x->near_move, near * EX_NEAR, sizeof *x->near_move },
        { &x->seg_of, K * (L + 1) + 1, sizeof *x->seg_of },
    };
    return carve(x, tables, sizeof tables / sizeof tables[0]) &&
           ex_grow(x, (void **)&x->lab[0], &x->lab_room[0], 64, sizeof **x->lab);
}

void ex_tables_free(struct ex *x)
{
    void *all[] = { x->block, x->lab[0], x->lab[1], x->cols.pre, x->cols.seg, x->paths, x->heap };
    while (x->n_heap)
        ex_free(x, x->heap[--x->n_heap]);
    for (uint64_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ex_free(x, all[i]);
}

void ex_search_free(struct ex *x)
{
    for (uint64_t i = 0; i < x->n_models; i++)
        ex_model_free(x, &x->models[i]);
    ex_free(x, x->models);
    ex_tables_free(x);
}
