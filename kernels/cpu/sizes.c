/* sizes.c - sizes of weights and operations for a planner (tessera/draft/sizes.h). */
#include "backend.h"

static tsr_status weight(const void *self, const struct tsr_weight_desc *d, uint64_t *bytes,
                         struct tsr_err *err)
{
    struct tsr_cpu_weight w;
    (void)self;
    tsr_status st = tsr_cpu_weight_outline(d, &w, err);
    if (st == TSR_OK)
        *bytes = tsr_cpu_weight_taken(&w);
    return st;
}

static tsr_status linear(const void *self, const struct tsr_weight_desc *d, uint32_t act,
                         uint64_t tokens, uint64_t *bytes, struct tsr_err *err)
{
    struct tsr_cpu_loaded l = { .c = self };
    tsr_status            st = tsr_cpu_weight_outline(d, &l.w, err);
    if (st == TSR_OK)
        *bytes = tsr_cpu_linear_scratch(&l.w, act, tokens);
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
    *bytes = tsr_cpu_attention_scratch(tokens, positions, heads, kv_heads, head_dim);
    return TSR_OK;
}

const struct tsr_sizes_v1 *tsr_cpu_sizes(void)
{
    static const struct tsr_sizes_v1 table = {
        .struct_size = sizeof table, .weight = weight, .linear = linear, .attention = attention
    };
    return &table;
}
