/* sizes.c - sizes of weights and operations for a planner, and scratch for an engine (tessera/draft/sizes.h). */
#include "backend.h"

static tsr_status weight(const void *self, const struct tsr_weight_desc *d, uint64_t *bytes,
                         struct tsr_err *err)
{
    struct tsr_cuda_weight w;
    tsr_status             st = tsr_cuda_outline(d, 0, &w, err);
    (void)self;
    if (st == TSR_OK)
        *bytes = w.at.total;
    return st;
}

static tsr_status linear(const void *self, const struct tsr_weight_desc *d, uint32_t act,
                         uint64_t tokens, uint64_t *bytes, struct tsr_err *err)
{
    struct tsr_cuda_weight w;
    tsr_status             st = tsr_cuda_outline(d, 0, &w, err);
    if (st != TSR_OK)
        return st;
    *bytes = tsr_cuda_linear_work(&w, act, tokens);
    if (tsr_cuda_is_fast(self, &w, act,
                         tokens)) { /* the exact kernels run what the library refuses */
        uint64_t fast = tsr_cuda_fast_work(self, &w, tokens);
        *bytes = fast > *bytes ? fast : *bytes;
    }
    return st;
}

static tsr_status attention(const void *self, uint64_t tokens, uint64_t positions, uint32_t heads,
                            uint32_t kv_heads, uint32_t head_dim, uint64_t *bytes,
                            struct tsr_err *err)
{
    (void)self;
    if (heads == 0 || kv_heads == 0 || heads % kv_heads)
        return tsr_fail(err, TSR_E_INVAL, "ATTENTION: %u heads are not a multiple of %u KV heads",
                        heads, kv_heads);
    *bytes = tsr_cuda_attention_work(tokens, positions, heads, head_dim);
    return TSR_OK;
}

static tsr_status reserve(void *self, uint64_t bytes, struct tsr_err *err)
{
    uint64_t none;
    TSR_CUDA_ALONE(self);
    return tsr_cuda_work(self, bytes, &none, err);
}

const struct tsr_sizes_v1 *tsr_cuda_sizes(void)
{
    static const struct tsr_sizes_v1 table = { .struct_size = sizeof table,
                                               .weight = weight,
                                               .linear = linear,
                                               .attention = attention,
                                               .reserve = reserve };
    return &table;
}
