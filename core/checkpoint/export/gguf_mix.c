/* Which tensor gets which type in a mix: the rule of llama.cpp's llama_model_quantize(), by the tensor's name and layer. */
#include "checkpoint/export/gguf_out.h"

#include "checkpoint/gguf/gguf.h"

#include <string.h>

static bool is(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* The first eighth of the layers, the last one, and every third between them. */
static bool gets_more_bits(uint64_t layer, uint64_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static uint32_t value_type(const struct tsr_model_hparams *hp, enum tsr_export_gguf_choice mix,
                           uint64_t layer, uint32_t type)
{
    if (mix == TSR_EXPORT_GGUF_Q3_K_M)
        type = layer < 2 ? TSR_GGUF_T_Q5_K : TSR_GGUF_T_Q4_K;
    else if (mix != TSR_EXPORT_GGUF_Q6_K && gets_more_bits(layer, hp->layers))
        type = TSR_GGUF_T_Q6_K;
    /* models of 70B: many heads share these rows, which are few then */
    if (hp->layers == 80 && hp->heads != hp->kv_heads && type == TSR_GGUF_T_Q4_K)
        type = TSR_GGUF_T_Q5_K;
    return hp->experts == 8 ? TSR_GGUF_T_Q8_0 : type;
}

static uint32_t down_type(const struct tsr_model_hparams *hp, enum tsr_export_gguf_choice mix,
                          uint64_t layer, uint32_t type)
{
    if (mix == TSR_EXPORT_GGUF_Q3_K_M)
        return layer < hp->layers / 16 ? TSR_GGUF_T_Q5_K : TSR_GGUF_T_Q4_K;
    return mix != TSR_EXPORT_GGUF_Q6_K && gets_more_bits(layer, hp->layers) ? TSR_GGUF_T_Q6_K
                                                                            : type;
}

static uint32_t output_type(const struct tsr_model_hparams *hp, enum tsr_export_gguf_choice mix,
                            uint32_t type)
{
    if (hp->experts == 8)
        return mix == TSR_EXPORT_GGUF_Q3_K_M || mix == TSR_EXPORT_GGUF_Q4_K_M ? TSR_GGUF_T_Q5_K
                                                                              : type;
    return mix == TSR_EXPORT_GGUF_Q3_K_M ? TSR_GGUF_T_Q4_K : type;
}

static uint32_t rule(const struct tsr_export *x, enum tsr_export_gguf_choice mix, const char *name,
                     uint64_t layer, uint64_t cols, bool tied)
{
    static const uint32_t           types[] = { [TSR_EXPORT_GGUF_Q3_K_M] = TSR_GGUF_T_Q3_K,
                                                [TSR_EXPORT_GGUF_Q4_K_M] = TSR_GGUF_T_Q4_K,
                                                [TSR_EXPORT_GGUF_Q5_K_M] = TSR_GGUF_T_Q5_K,
                                                [TSR_EXPORT_GGUF_Q6_K] = TSR_GGUF_T_Q6_K,
                                                [TSR_EXPORT_GGUF_MXFP4_MOE] = TSR_GGUF_T_MXFP4 };
    const struct tsr_model_hparams *hp = &x->m->hp;
    if (mix == TSR_EXPORT_GGUF_MXFP4_MOE)
        return is(name, "_exps.") ? TSR_GGUF_T_MXFP4 : TSR_GGUF_T_Q8_0;
    if (strcmp(name, "output.weight") == 0 || (tied && is(name, "token_embd.")))
        return cols % TSR_GGUF_SUPER ? TSR_GGUF_T_Q8_0 : TSR_GGUF_T_Q6_K;
    if (is(name, "attn_v.") || is(name, "attn_qkv.") || is(name, "attn_kv_b."))
        return value_type(hp, mix, layer, types[mix]);
    if (is(name, "attn_k.") && hp->experts == 8)
        return TSR_GGUF_T_Q8_0;
    if (is(name, "ffn_down"))
        return down_type(hp, mix, layer, types[mix]);
    if (is(name, "attn_output."))
        return output_type(hp, mix, types[mix]);
    return types[mix];
}

uint32_t tsr_export_gguf_mix_type(const struct tsr_export *x, enum tsr_export_gguf_choice mix,
                                  const char *name, uint64_t layer, uint64_t cols, bool tied)
{
    uint32_t type = rule(x, mix, name, layer, cols, tied);
    if (cols % TSR_GGUF_SUPER) /* the type of blocks of 32 that comes next */
        type = type == TSR_GGUF_T_Q3_K   ? TSR_GGUF_T_Q4_0
               : type == TSR_GGUF_T_Q4_K ? TSR_GGUF_T_Q5_0
               : type == TSR_GGUF_T_Q5_K ? TSR_GGUF_T_Q5_1
               : type == TSR_GGUF_T_Q6_K ? TSR_GGUF_T_Q8_0
                                         : type;
    return cols % TSR_GGUF_OUT_BLOCK ? TSR_GGUF_T_F16 : type;
}
