/* instance_copy.h - a copy of a planning problem whose tables a test may change, with room for one
 * more bit candidate and one more option. */
#ifndef TSR_INSTANCE_COPY_H
#define TSR_INSTANCE_COPY_H

#include "base/mem.h"
#include "plan/instance/instance.h"

#include <stdlib.h>
#include <string.h>

struct copy_option {
    struct tsr_solver_option o;
    double   *pre, *dec, *embed_pre, *embed_dec, *head_pre, *head_dec, *comm_pre, *comm_dec;
    uint64_t *workspace;
};

struct instance_copy {
    struct tsr_instance              inst;
    struct tsr_solver_kind          *kind;
    const struct tsr_solver_kind   **kinds;
    struct copy_option              *option; /* [n_options + 1] */
    const struct tsr_solver_option **options;
    const char                     **names;
    double                          *omega;       /* [L][Q] */
    uint64_t                        *layer_bytes; /* [C][Q] */
    uint32_t                        *order;
    void                            *block[256];
    unsigned                         n_blocks;
};

static inline void *copy_take(struct instance_copy *c, uint64_t n, uint64_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p || c->n_blocks == sizeof c->block / sizeof *c->block)
        abort();
    c->block[c->n_blocks++] = p;
    return p;
}

/* Rows of `from` entries in rows of `to`, the last entry of a longer row twice. */
static inline void *copy_rows(struct instance_copy *c, const void *v, uint64_t rows, uint64_t from,
                              uint64_t to, uint64_t size)
{
    char *p = copy_take(c, rows * to, size);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t q = 0; q < to; q++)
            memcpy(p + (r * to + q) * size,
                   (const char *)v + (r * from + (q < from ? q : from - 1)) * size, size);
    return p;
}

static inline void copy_option_of(struct instance_copy *c, struct copy_option *to,
                                  const struct tsr_solver_option *o, uint64_t kinds,
                                  uint64_t classes, uint64_t from, uint64_t bits)
{
    to->o = *o;
    to->o.pre_ms = to->pre = copy_rows(c, o->pre_ms, kinds * classes, from, bits, 8);
    to->o.dec_ms = to->dec = copy_rows(c, o->dec_ms, kinds * classes, from, bits, 8);
    to->o.embed_pre_ms = to->embed_pre = copy_rows(c, o->embed_pre_ms, 1, kinds, kinds, 8);
    to->o.embed_dec_ms = to->embed_dec = copy_rows(c, o->embed_dec_ms, 1, kinds, kinds, 8);
    to->o.head_pre_ms = to->head_pre = copy_rows(c, o->head_pre_ms, 1, kinds, kinds, 8);
    to->o.head_dec_ms = to->head_dec = copy_rows(c, o->head_dec_ms, 1, kinds, kinds, 8);
    to->o.comm_pre_ms = to->comm_pre = copy_rows(c, o->comm_pre_ms, kinds, kinds, kinds, 8);
    to->o.comm_dec_ms = to->comm_dec = copy_rows(c, o->comm_dec_ms, kinds, kinds, kinds, 8);
    to->o.workspace_bytes = to->workspace = copy_rows(c, o->workspace_bytes, 1, kinds, kinds, 8);
}

/* more_bits, more_options: 0 or 1; the new one is like the last. */
static inline struct instance_copy *copy_make(const struct tsr_instance *from, uint64_t more_bits,
                                              uint64_t more_options)
{
    const struct tsr_solver_instance *in = &from->in;
    struct instance_copy             *c = calloc(1, sizeof *c);
    uint64_t                          K = in->n_kinds, C = in->classes, Q = in->bits + more_bits,
             n = in->n_options + more_options;
    if (!c)
        abort();
    c->inst = *from;
    c->inst.blocks = NULL;
    c->inst.name = NULL;
    c->kind = copy_take(c, K, sizeof *c->kind);
    c->inst.in.kinds = c->kinds = copy_take(c, K, sizeof(void *));
    for (uint64_t k = 0; k < K; k++) {
        c->kind[k] = *in->kinds[k];
        c->kinds[k] = &c->kind[k];
    }
    c->inst.in.bits = Q;
    c->inst.in.bit_names = c->names = copy_rows(c, in->bit_names, 1, in->bits, Q, sizeof(void *));
    c->inst.in.omega = c->omega = copy_rows(c, in->omega, in->layers, in->bits, Q, 8);
    c->inst.in.layer_bytes = c->layer_bytes = copy_rows(c, in->layer_bytes, C, in->bits, Q, 8);
    c->option = copy_take(c, n, sizeof *c->option);
    c->inst.in.options = c->options = copy_take(c, n, sizeof(void *));
    c->inst.in.n_options = n;
    for (uint64_t o = 0; o < n; o++) {
        copy_option_of(c, &c->option[o], in->options[o < in->n_options ? o : in->n_options - 1], K,
                       C, in->bits, Q);
        c->options[o] = &c->option[o].o;
    }
    c->order = copy_take(c, in->order_len + 1, sizeof *c->order);
    if (in->order) {
        memcpy(c->order, in->order, in->order_len * sizeof *c->order);
        c->inst.in.order = c->order;
    }
    return c;
}

static inline void copy_free(struct instance_copy *c)
{
    while (c->n_blocks)
        free(c->block[--c->n_blocks]);
    free(c);
}

#endif
