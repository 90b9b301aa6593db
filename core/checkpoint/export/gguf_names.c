/* What llama.cpp calls families and tensors. */
#include "checkpoint/export/gguf_out.h"

#include <string.h>

struct name {
    const char *hf, *gguf; /* of a layer: after "model.layers.N." and "blk.N." */
};

static const struct name llama[] = {
    { "model.embed_tokens", "token_embd" },
    { "model.norm", "output_norm" },
    { "lm_head", "output" },
    { "input_layernorm", "attn_norm" },
    { "self_attn.q_proj", "attn_q" },
    { "self_attn.k_proj", "attn_k" },
    { "self_attn.v_proj", "attn_v" },
    { "self_attn.o_proj", "attn_output" },
    { "post_attention_layernorm", "ffn_norm" },
    { "mlp.gate_proj", "ffn_gate" },
    { "mlp.up_proj", "ffn_up" },
    { "mlp.down_proj", "ffn_down" },
    { NULL, NULL },
};

/* pairs: the rotary halves of a head's q and k rows are interleaved. */
static const struct family {
    const char        *family, *arch;
    const struct name *names;
    bool               pairs;
} families[] = {
    { "llama", "llama", llama, true },
    { "mistral", "llama", llama, true },
    { "qwen2", "qwen2", llama, false },
};

static const struct family *find(const struct tsr_export *x)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, x->m->family) == 0)
            return &families[i];
    return NULL;
}

tsr_status tsr_export_gguf_arch(struct tsr_export *x, const char **arch)
{
    const struct family *f = find(x);
    if (!f)
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: %s models are not written as gguf; llama, mistral and qwen2 are; "
                        "export to hf and use llama.cpp's own converter",
                        x->path, x->m->family);
    *arch = f->arch;
    return TSR_OK;
}

tsr_status tsr_export_gguf_name(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                char name[64], uint32_t *heads)
{
    const struct family *f = find(x);
    const char          *module = v->module;
    char                 prefix[32] = "";
    *heads = 0;
    if (v->layer < x->m->hp.layers) {
        static const char *const before = "model.layers.";
        (void)snprintf(prefix, sizeof prefix, "blk.%llu.", (unsigned long long)v->layer);
        if (strncmp(module, before, strlen(before)) == 0)
            module += strlen(before);
        const char *dot = strchr(module, '.');
        module = dot ? dot + 1 : module;
    }
    for (const struct name *n = f->names; n->hf; n++) {
        if (strcmp(n->hf, module) != 0)
            continue;
        int len = snprintf(name, 64, "%s%s.%s", prefix, n->gguf, v->suffix);
        if (f->pairs && !v->norm && strcmp(n->gguf, "attn_q") == 0)
            *heads = x->m->hp.heads;
        if (f->pairs && !v->norm && strcmp(n->gguf, "attn_k") == 0)
            *heads = x->m->hp.kv_heads;
        if (len > 0 && len < 64)
            return TSR_OK;
    }
    return tsr_fail(x->err, TSR_E_BUG, "tensor %s has no name in GGUF", v->module);
}

uint64_t tsr_export_gguf_row_of(uint64_t r, uint64_t rows, uint32_t heads)
{
    if (heads == 0)
        return r;
    uint64_t dim = rows / heads, head = r / dim, in = r % dim;
    return head * dim + in % 2 * (dim / 2) + in / 2;
}
