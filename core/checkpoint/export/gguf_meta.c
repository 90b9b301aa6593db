/* Metadata of a GGUF file. */
#include "checkpoint/export/gguf_out.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/bind.h"
#include "tessera/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model ------------------------------------------------------------------------------ */

struct meta {
    struct tsr_export_gguf_bytes *b;
    const char                   *arch;
};

static const char *in_arch(const struct meta *m, const char *name, char text[96])
{
    (void)snprintf(text, 96, "%s.%s", m->arch, name);
    return text;
}

static void put_u32(const struct meta *m, const char *name, uint64_t v)
{
    char text[96];
    tsr_export_gguf_key_u32(m->b, in_arch(m, name, text), v);
}

static void put_f32(const struct meta *m, const char *name, double v)
{
    char text[96];
    tsr_export_gguf_key_f32(m->b, in_arch(m, name, text), v);
}

/* The factor of the method is not stored: what is beyond it is.  Where the scores carry a scale, a tenth of its
 * mscale_all_dim is, and cosine and sine have the factor 1. */
static void put_yarn(const struct meta *m, const struct tsr_model_rope *r)
{
    double method = r->factor <= 1 ? 1 : 0.1 * log(r->factor) + 1, more;
    char   text[96];
    more = r->attention_factor / method;
    tsr_export_gguf_key_text(m->b, in_arch(m, "rope.scaling.type", text), "yarn");
    put_f32(m, "rope.scaling.factor", r->factor);
    put_u32(m, "rope.scaling.original_context_length", r->original_positions);
    put_f32(m, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_f32(m, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (r->all_dim > 0)
        put_f32(m, "rope.scaling.yarn_log_multiplier", 0.1 * r->all_dim);
    else if ((float)more != 1)
        put_f32(m, "rope.scaling.attn_factor", more);
}

/* Long rope: its two lists are tensors, the factor of cosine and sine is a number. */
static void put_long(const struct meta *m, const struct tsr_model_rope *r)
{
    put_u32(m, "rope.scaling.original_context_length", r->original_positions);
    put_f32(m, "rope.scaling.attn_factor", r->attention_factor);
}

/* What llama.cpp computes otherwise, whatever the file says. */
static void warn_of_yarn(const struct tsr_export *x, const struct tsr_model_rope *r)
{
    if (!r->whole_ramp)
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp rounds the ends of yarn's ramp, which %s does not: its logits "
                 "differ there",
                 x->path, x->m->path);
    if (r->beta_fast != 32 || r->beta_slow != 1)
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp has 32 and 1 as ends of yarn's ramp, where %s has beta_fast %g and "
                 "beta_slow %g: its logits differ",
                 x->path, x->m->path, r->beta_fast, r->beta_slow);
    if (x->m->hp.latent.rank && r->all_dim == 0)
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp scales all columns of latent attention with yarn, where %s, "
                 "without mscale_all_dim, scales those that rotate: its logits differ",
                 x->path, x->m->path);
}

static tsr_status put_rope(struct tsr_export *x, const struct meta *m)
{
    const struct tsr_model_rope *r = &x->m->hp.rope;
    char                         text[96];
    if (x->m->hp.positions != TSR_MODEL_POSITIONS_ROPE)
        return TSR_OK;
    put_u32(m, "rope.dimension_count", r->dim);
    put_f32(m, "rope.freq_base", r->theta);
    switch (r->scaling) {
    case TSR_MODEL_ROPE_NONE:
    case TSR_MODEL_ROPE_LLAMA3:
        return TSR_OK;
    case TSR_MODEL_ROPE_LONG:
        if (r->long_ratio != 1.0F)
            return tsr_fail(x->err, TSR_E_INPUT,
                            "%s: long rope of %s scales cosine and sine by %g in short texts and "
                            "%g in long ones, and gguf has one number; export to hf",
                            x->path, x->m->path, r->attention_factor,
                            r->attention_factor * (double)r->long_ratio);
        if (tsr_export_gguf_rope_tensors(r, NULL) == 2)
            put_long(m, r);
        return TSR_OK;
    case TSR_MODEL_ROPE_LINEAR:
        tsr_export_gguf_key_text(m->b, in_arch(m, "rope.scaling.type", text), "linear");
        put_f32(m, "rope.scaling.factor", r->factor);
        return TSR_OK;
    case TSR_MODEL_ROPE_YARN:
        warn_of_yarn(x, r);
        put_yarn(m, r);
        return TSR_OK;
    default:
        return tsr_fail(
            x->err, TSR_E_INPUT,
            "%s: rope scaling of %s is not written as gguf (linear, yarn, long and llama3 are); "
            "export to hf and use llama.cpp's own converter",
            x->path, x->m->path);
    }
}

unsigned tsr_export_gguf_rope_tensors(const struct tsr_model_rope *r, const char *const **names)
{
    static const char *const one[] = { "rope_freqs.weight" };
    static const char *const two[] = { "rope_factors_short.weight", "rope_factors_long.weight" };
    bool                     same =
        r->scaling == TSR_MODEL_ROPE_LONG && r->attention_factor == 1 && r->long_ratio == 1.0F;
    for (uint32_t i = 0; same && i < r->dim / 2; i++)
        same = r->short_factor[i] == r->long_factor[i];
    bool single = same || r->scaling == TSR_MODEL_ROPE_LLAMA3;
    if (names)
        *names = single ? one : two;
    return single ? 1 : r->scaling == TSR_MODEL_ROPE_LONG ? 2 : 0;
}

void tsr_export_gguf_rope_factors(const struct tsr_model_rope *r, unsigned tensor, float *v)
{
    if (r->scaling == TSR_MODEL_ROPE_LONG) {
        memcpy(v, tensor ? r->long_factor : r->short_factor, r->dim / 2 * sizeof *v);
        return;
    }
    const double pi = 3.14159265358979323846;
    double       old = (double)r->original_positions;
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        double wave = 2 * pi * pow(r->theta, 2.0 * i / r->dim);
        double smooth =
            (old / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        double by = wave < old / r->high_freq_factor  ? 1
                    : wave > old / r->low_freq_factor ? r->factor
                                                      : 1 / ((1 - smooth) / r->factor + smooth);
        v[i] = (float)by;
    }
}

/* Whether llama.cpp divides the weights of the chosen experts by their sum if the file does not say it: the family
 * does what a file without the key means. */
static bool is_normalized_without_key(const struct tsr_model_family *f)
{
    for (unsigned i = 0; i < f->gguf.n_values; i++) {
        const struct tsr_model_gguf_value *v = &f->gguf.value[i];
        if (v->key && strcmp(v->key, "expert_weights_norm") == 0)
            return !v->def || v->def->kind != TSR_CONFIG_NODE_SCALAR ||
                   strcmp(v->def->text, "false") != 0;
    }
    return f->experts.normalize;
}

/* What llama.cpp takes for granted of experts.  What else the metadata have no word for shows when they are read back
 * (gguf_check.c). */
static tsr_status check_experts(struct tsr_export *x)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    bool normal = !hp->experts || hp->router == TSR_MODEL_ROUTER_CHOSEN || hp->router_normalize ||
                  !is_normalized_without_key(x->m->storage->family);
    if (hp->router == TSR_MODEL_ROUTER_THRESHOLD) {
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp computes RMS norms and a softmax over the chosen experts where %s "
                 "has layer norms and a choice of one expert after the other: its logits differ",
                 x->path, x->m->path);
        return TSR_OK;
    }
    if (normal)
        return TSR_OK;
    return tsr_fail(x->err, TSR_E_INPUT,
                    "%s: the weights of the experts that a token of %s takes are not a softmax "
                    "over them, which llama.cpp takes for granted; export to hf",
                    x->path, x->m->path);
}

/* Where llama.cpp has no sliding window for the family, up to the window nothing is different. */
static uint64_t context_of(const struct tsr_export *x)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    uint64_t                        n = hp->max_positions;
    const struct tsr_model_family  *f = x->m->storage->family;
    if (tsr_export_gguf_takes(f, "attention.sliding_window") && !f->gguf.ignored_windows)
        return n;
    for (uint64_t l = 0; hp->window && l < hp->layers; l++)
        if (hp->window[l] && hp->window[l] < n)
            n = hp->window[l];
    if (n < hp->max_positions)
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp has no sliding window for this family; context_length is the "
                 "window, %llu tokens",
                 x->path, (unsigned long long)n);
    return n;
}

/* The name of the model's folder. */
static tsr_status put_name(struct tsr_export *x, struct tsr_export_gguf_bytes *b)
{
    const char *path = x->m->path, *end = path + strlen(path);
    while (end > path && end[-1] == '/')
        end--;
    const char *s = end;
    while (s > path && s[-1] != '/')
        s--;
    char *name = tsr_strndup(s, (size_t)(end - s));
    if (!name)
        return tsr_fail_nomem(x->err, 64, "a name");
    tsr_export_gguf_key_text(b, "general.name", *name == '@' ? name + 1 : name);
    free(name);
    return TSR_OK;
}

/* Latent attention as llama.cpp runs it: a token has one key, its row and its rope key, and the row is its value. */
static void put_attention(const struct tsr_export *x, const struct meta *m)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    const struct tsr_model_latent  *l = &hp->latent;
    put_u32(m, "attention.head_count", hp->heads);
    put_u32(m, "attention.head_count_kv", l->rank ? 1 : hp->kv_heads);
    put_u32(m, "attention.key_length", l->rank ? l->rank + l->rope : hp->head_dim);
    put_u32(m, "attention.value_length", l->rank ? l->rank : hp->head_dim);
    put_f32(m,
            hp->norm == TSR_NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                     : "attention.layer_norm_epsilon",
            (double)hp->norm_eps);
    if (!l->rank)
        return;
    put_u32(m, "attention.q_lora_rank", l->q_rank); /* 0: llama.cpp takes attn_q */
    put_u32(m, "attention.kv_lora_rank", l->rank);
    put_u32(m, "attention.key_length_mla", (uint64_t)l->nope + l->rope);
    put_u32(m, "attention.value_length_mla", l->v);
    if (hp->norm_eps != l->eps)
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp has one epsilon for all norms, %g, where those of the rows of "
                 "latent attention have %g: its logits differ",
                 x->path, (double)hp->norm_eps, (double)l->eps);
}

static void put_experts(const struct tsr_export *x, const struct meta *m)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    const struct tsr_model_family  *f = x->m->storage->family;
    uint64_t                        dense = 0;
    put_u32(m, "expert_count", hp->experts);
    put_u32(m, "expert_used_count", hp->experts_used);
    put_u32(m, "expert_feed_forward_length", hp->expert_ffn);
    while (dense < hp->layers && !hp->sparse[dense])
        dense++;
    if (f->experts.layers.kind == TSR_MODEL_LAYERS_FROM)
        put_u32(m, "leading_dense_block_count", dense);
    if (f->experts.shared && f->experts.shared_count.n_keys)
        put_u32(m, "expert_shared_count", hp->shared_ffn / hp->expert_ffn);
    if (f->experts.scale.n_keys)
        put_f32(m, "expert_weights_scale", (double)hp->router_scale);
    if (hp->router == TSR_MODEL_ROUTER_SIGMOID)
        put_u32(m, "expert_gating_func", 2);
    if (!hp->router_groups)
        return;
    put_u32(m, "expert_group_count", hp->router_groups);
    put_u32(m, "expert_group_used_count", hp->router_groups_used);
    if (hp->router_group_score != TSR_MODEL_GROUP_TWO_LARGEST)
        tsr_logf(TSR_LOG_WARN,
                 "%s: llama.cpp scores a group of experts by the two largest, %s by the largest: "
                 "its logits differ",
                 x->path, x->m->path);
}

tsr_status tsr_export_gguf_put_model(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                                     const char *arch)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    struct meta                     m = { b, arch };
    TSR_TRY(check_experts(x));
    tsr_export_gguf_key_text(b, "general.architecture", arch);
    tsr_export_gguf_key_text(b, "general.type", "model");
    TSR_TRY(put_name(x, b));
    put_u32(&m, "block_count", hp->layers);
    put_u32(&m, "context_length", context_of(x));
    put_u32(&m, "embedding_length", hp->hidden);
    put_u32(&m, "feed_forward_length", hp->ffn);
    put_attention(x, &m);
    put_u32(&m, "vocab_size", hp->vocab);
    if (hp->experts)
        put_experts(x, &m);
    TSR_TRY(tsr_export_gguf_put_delta(x, b, arch));
    TSR_TRY(tsr_export_gguf_put_family(x, b, arch));
    return put_rope(x, &m);
}
