/* The metadata of a GGUF file as the config.json of a Hugging Face folder, so that one reader
 * checks both. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct out {
    const struct tsr_gguf *g;
    const char            *arch; /* "llama" */
    json_t                *j;
    struct tsr_err        *err;
};

static tsr_status put(struct out *o, const char *key, json_t *v)
{
    return v && json_object_set_new(o->j, key, v) == 0 ? TSR_OK : tsr_fail_nomem(o->err, 64, key);
}

/* "llama.rope.freq_base": a key of the architecture. */
static const char *full(const struct out *o, const char *key, char buf[128])
{
    (void)snprintf(buf, 128, "%s.%s", o->arch, key);
    return buf;
}

static tsr_status get_int(struct out *o, const char *key, bool required, int64_t *v)
{
    char name[128];
    return tsr_gguf_int(o->g, full(o, key, name), required, 0, INT64_C(1) << 40, v, o->err);
}

static tsr_status get_real(struct out *o, const char *key, bool required, double *v)
{
    char name[128];
    return tsr_gguf_real(o->g, full(o, key, name), required, -1e30, 1e30, v, o->err);
}

static tsr_status copy_int(struct out *o, const char *from, const char *to)
{
    int64_t v = 0;
    TSR_TRY(get_int(o, from, true, &v));
    return put(o, to, json_integer(v));
}

/* Stored as F32, meant as the decimal number that it came from: 1e-05, not 9.99999974e-06.  Engines
 * compute with the F32 value, which this text restores. */
static json_t *shortest(double v)
{
    char buf[40];
    for (int digits = 1; digits < 9; digits++) {
        (void)snprintf(buf, sizeof buf, "%.*g", digits, v);
        if ((float)strtod(buf, NULL) == (float)v)
            return json_real(strtod(buf, NULL));
    }
    return json_real(v);
}

static tsr_status copy_real(struct out *o, const char *from, const char *to)
{
    double v = 0;
    TSR_TRY(get_real(o, from, true, &v));
    return put(o, to, shortest(v));
}

static bool has(const struct out *o, const char *tensor)
{
    return tsr_gguf_find(o->g, tensor) != NULL;
}

/* Keys that change the computation in a way that these families do not support. */
static tsr_status refuse_strange(struct out *o, bool scales)
{
    static const struct {
        const char *key;
        double      harmless;
        bool        scale; /* read by a family that has them */
    } strange[] = {
        { "expert_count", 0.0, false },         { "logit_scale", 1.0, true },
        { "residual_scale", 1.0, true },        { "embedding_scale", 1.0, true },
        { "attention.scale", 0.0, true },       { "attention.max_alibi_bias", 8.0, false },
        { "attention.clamp_kqv", 0.0, false },  { "attention.causal", 1.0, false },
        { "use_parallel_residual", 0.0, false }
    };
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        if (strange[i].scale && scales)
            continue;
        char                       name[128];
        const struct tsr_gguf_key *k = tsr_gguf_key(o->g, full(o, strange[i].key, name));
        double                     v = strange[i].harmless;
        if (k && k->type == TSR_GGUF_BOOL)
            v = o->g->header[k->at];
        else
            TSR_TRY(get_real(o, strange[i].key, false, &v));
        if (v != strange[i].harmless)
            return tsr_fail(o->err, TSR_E_INPUT,
                            "%s: \"%s\" is %g, which is not supported for this architecture",
                            o->g->path, name, v);
    }
    return TSR_OK;
}

/* ---- rope -------------------------------------------------------------------------- */

/* One factor per rotated pair, from a tensor of F32. */
static tsr_status factors(struct out *o, const char *name, json_t *to, const char *key)
{
    const struct tsr_gguf_tensor *t = tsr_gguf_find(o->g, name);
    if (!t || t->rank != 1 || t->type != TSR_GGUF_T_F32 || t->dims[0] > 65536)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: tensor \"%s\" is not a list of F32 rope factors",
                        o->g->path, name);
    if (o->g->file.fd < 0)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: tensor \"%s\" is not there", o->g->path, name);
    float     *v = tsr_new(t->dims[0], sizeof *v);
    json_t    *list = json_array();
    tsr_status st = v && list ? TSR_OK : tsr_fail_nomem(o->err, t->bytes, name);
    if (st == TSR_OK)
        st = tsr_file_read(&o->g->file, t->at, v, t->bytes, o->err);
    for (uint64_t i = 0; st == TSR_OK && i < t->dims[0]; i++)
        if (!isfinite(v[i]) || json_array_append_new(list, json_real((double)v[i])) != 0)
            st = isfinite(v[i]) ? tsr_fail_nomem(o->err, 64, name)
                                : tsr_fail(o->err, TSR_E_INPUT,
                                           "%s: tensor \"%s\": factor %llu is not a number",
                                           o->g->path, name, (unsigned long long)i);
    if (st == TSR_OK && json_object_set(to, key, list) != 0)
        st = tsr_fail_nomem(o->err, 64, name);
    json_decref(list);
    free(v);
    return st;
}

/* Llama 3's scaling comes as finished factors (rope_freqs), which is long rope whose two lists are
 * the same; Phi-3's as two lists. */
static tsr_status factor_rope(struct out *o, json_t *r, const char *shorter, const char *longer)
{
    double  attention = 1.0;
    int64_t original = 0;
    TSR_TRY(get_real(o, "rope.scaling.attn_factor", false, &attention));
    TSR_TRY(get_int(o, "context_length", true, &original));
    TSR_TRY(get_int(o, "rope.scaling.original_context_length", false, &original));
    TSR_TRY(factors(o, shorter, r, "short_factor"));
    TSR_TRY(factors(o, longer, r, "long_factor"));
    bool ok = json_object_set_new(r, "rope_type", json_string("longrope")) == 0 &&
              json_object_set_new(r, "attention_factor", shortest(attention)) == 0;
    TSR_TRY(put(o, "original_max_position_embeddings", json_integer(original)));
    return ok ? TSR_OK : tsr_fail_nomem(o->err, 64, "rope_scaling");
}

static tsr_status yarn_rope(struct out *o, json_t *r, double factor)
{
    double  fast = 32.0, slow = 1.0, attention = 1.0;
    int64_t original = 0;
    TSR_TRY(get_real(o, "rope.scaling.yarn_beta_fast", false, &fast));
    TSR_TRY(get_real(o, "rope.scaling.yarn_beta_slow", false, &slow));
    TSR_TRY(get_real(o, "rope.scaling.attn_factor", false, &attention));
    TSR_TRY(get_int(o, "rope.scaling.original_context_length", true, &original));
    /* ggml multiplies the factor of the method by the one that is stored */
    double whole = attention * (factor <= 1.0 ? 1.0 : 0.1 * log(factor) + 1.0);
    bool   ok =
        json_object_set_new(r, "beta_fast", json_real(fast)) == 0 &&
        json_object_set_new(r, "beta_slow", json_real(slow)) == 0 &&
        json_object_set_new(r, "attention_factor", json_real(whole)) == 0 &&
        json_object_set_new(r, "original_max_position_embeddings", json_integer(original)) == 0;
    return ok ? TSR_OK : tsr_fail_nomem(o->err, 64, "rope_scaling");
}

static tsr_status named_rope(struct out *o, json_t *r, const char *type)
{
    double factor = 0.0;
    TSR_TRY(get_real(o, "rope.scaling.factor", false, &factor));
    if (factor == 0.0) /* as ggml: no factor, no scaling */
        factor = 1.0;
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0) {
        bool ok = json_object_set_new(r, "rope_type", json_string(type)) == 0 &&
                  json_object_set_new(r, "factor", shortest(factor)) == 0;
        if (!ok)
            return tsr_fail_nomem(o->err, 64, "rope_scaling");
        return *type == 'y' ? yarn_rope(o, r, factor) : TSR_OK;
    }
    return tsr_fail(
        o->err, TSR_E_INPUT,
        "%s: \"%s.rope.scaling.type\" is \"%.40s\"; none, linear, yarn and longrope with "
        "its factors are read",
        o->g->path, o->arch, type);
}

static tsr_status put_rope(struct out *o, json_t *r)
{
    char   name[128], *type = NULL;
    bool   lists = has(o, "rope_factors_long.weight");
    double linear = 0.0;
    TSR_TRY(tsr_gguf_str(o->g, full(o, "rope.scaling.type", name), false, &type, o->err));
    TSR_TRY(get_real(o, "rope.scale_linear", false, &linear));
    tsr_status st = TSR_OK;
    if (lists)
        st = factor_rope(o, r, "rope_factors_short.weight", "rope_factors_long.weight");
    else if (has(o, "rope_freqs.weight"))
        st = factor_rope(o, r, "rope_freqs.weight", "rope_freqs.weight");
    else if (type && strcmp(type, "none") != 0)
        st = named_rope(o, r, type);
    else if (linear != 0.0 && linear != 1.0) /* the older key */
        st = json_object_set_new(r, "rope_type", json_string("linear")) == 0 &&
                     json_object_set_new(r, "factor", shortest(linear)) == 0
                 ? TSR_OK
                 : tsr_fail_nomem(o->err, 64, "rope_scaling");
    free(type);
    return st;
}

static tsr_status rope(struct out *o, int64_t head_dim)
{
    double  theta = 10000.0;
    int64_t rotated = head_dim;
    TSR_TRY(get_real(o, "rope.freq_base", false, &theta));
    TSR_TRY(get_int(o, "rope.dimension_count", false, &rotated));
    if (rotated > head_dim || rotated <= 0)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: \"%s.rope.dimension_count\" is %lld for heads of %lld", o->g->path,
                        o->arch, (long long)rotated, (long long)head_dim);
    TSR_TRY(put(o, "rope_theta", shortest(theta)));
    if (rotated != head_dim)
        TSR_TRY(put(o, "partial_rotary_factor", json_real((double)rotated / (double)head_dim)));
    json_t    *r = json_object();
    tsr_status st = r ? put_rope(o, r) : tsr_fail_nomem(o->err, 64, "rope_scaling");
    if (st == TSR_OK && json_object_size(r) > 0 && json_object_set(o->j, "rope_scaling", r) != 0)
        st = tsr_fail_nomem(o->err, 64, "rope_scaling");
    json_decref(r);
    return st;
}

/* ---- families -------------------------------------------------------------------------- */

/* What Llama and its relatives have in common. */
static tsr_status common(struct out *o, int64_t *heads, int64_t *head_dim)
{
    int64_t kv, value, hidden = 0;
    TSR_TRY(copy_int(o, "embedding_length", "hidden_size"));
    TSR_TRY(copy_int(o, "block_count", "num_hidden_layers"));
    TSR_TRY(copy_int(o, "feed_forward_length", "intermediate_size"));
    TSR_TRY(copy_int(o, "context_length", "max_position_embeddings"));
    TSR_TRY(copy_real(o, "attention.layer_norm_rms_epsilon", "rms_norm_eps"));
    TSR_TRY(get_int(o, "embedding_length", true, &hidden));
    TSR_TRY(get_int(o, "attention.head_count", true, heads));
    kv = *heads;
    TSR_TRY(get_int(o, "attention.head_count_kv", false, &kv));
    if (*heads <= 0)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: \"%s.attention.head_count\" is 0", o->g->path,
                        o->arch);
    *head_dim = hidden / *heads;
    TSR_TRY(get_int(o, "attention.key_length", false, head_dim));
    value = *head_dim;
    TSR_TRY(get_int(o, "attention.value_length", false, &value));
    if (value != *head_dim || *head_dim <= 0)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: keys of %lld and values of %lld; only equal lengths are supported",
                        o->g->path, (long long)*head_dim, (long long)value);
    TSR_TRY(put(o, "num_attention_heads", json_integer(*heads)));
    TSR_TRY(put(o, "num_key_value_heads", json_integer(kv)));
    TSR_TRY(put(o, "head_dim", json_integer(*head_dim)));
    return rope(o, *head_dim);
}

/* Some writers store a window that llama.cpp does not look at for these architectures: a model with
 * it would not be the one that runs there. */
static tsr_status leave_window(struct out *o)
{
    int64_t window = 0;
    TSR_TRY(get_int(o, "attention.sliding_window", false, &window));
    if (window > 0)
        tsr_logf(TSR_LOG_WARN,
                 "%s: \"%s.attention.sliding_window\" is %lld; llama.cpp has no window for this "
                 "architecture, and here too attention is over the whole context: texts of more "
                 "than %lld tokens run unlike the original model",
                 o->g->path, o->arch, (long long)window, (long long)window);
    return TSR_OK;
}

static tsr_status llama(struct out *o)
{
    int64_t heads, dim;
    TSR_TRY(leave_window(o));
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(put(o, "attention_bias", json_boolean(has(o, "blk.0.attn_q.bias"))));
    return put(o, "mlp_bias", json_boolean(has(o, "blk.0.ffn_gate.bias")));
}

static tsr_status qwen2(struct out *o)
{
    int64_t heads, dim;
    TSR_TRY(leave_window(o));
    TSR_TRY(common(o, &heads, &dim));
    return put(o, "use_sliding_window", json_false());
}

static tsr_status gemma2(struct out *o)
{
    int64_t heads = 1, dim = 1, layers = 0, hidden = 0, window = 4096;
    double  attn = 50.0, last = 30.0;
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(get_int(o, "block_count", true, &layers));
    TSR_TRY(get_int(o, "embedding_length", true, &hidden));
    TSR_TRY(get_int(o, "attention.sliding_window", false, &window));
    TSR_TRY(get_real(o, "attn_logit_softcapping", false, &attn));
    TSR_TRY(get_real(o, "final_logit_softcapping", false, &last));
    TSR_TRY(put(o, "hidden_activation", json_string("gelu_pytorch_tanh")));
    TSR_TRY(put(o, "sliding_window", json_integer(window)));
    TSR_TRY(put(o, "attn_logit_softcapping", shortest(attn)));
    TSR_TRY(put(o, "final_logit_softcapping", shortest(last)));
    /* not in the metadata: of the three sizes that exist, only that of 46 layers differs */
    return put(o, "query_pre_attn_scalar", json_integer(layers == 46 ? hidden / heads : dim));
}

static tsr_status qwen3(struct out *o)
{
    TSR_TRY(qwen2(o));
    return put(o, "attention_bias", json_boolean(has(o, "blk.0.attn_q.bias")));
}

static tsr_status olmo2(struct out *o)
{
    int64_t heads, dim;
    TSR_TRY(common(o, &heads, &dim));
    return put(o, "attention_bias", json_false());
}

static tsr_status granite(struct out *o)
{
    double attention = 0.0, embedding = 1.0, residual = 1.0, logits = 1.0;
    TSR_TRY(llama(o));
    TSR_TRY(get_real(o, "attention.scale", true, &attention));
    TSR_TRY(get_real(o, "embedding_scale", false, &embedding));
    TSR_TRY(get_real(o, "residual_scale", false, &residual));
    TSR_TRY(get_real(o, "logit_scale", false, &logits));
    TSR_TRY(put(o, "attention_multiplier", shortest(attention)));
    TSR_TRY(put(o, "embedding_multiplier", shortest(embedding)));
    TSR_TRY(put(o, "residual_multiplier", shortest(residual)));
    return put(o, "logits_scaling", shortest(logits));
}

/* Neither the pattern of windows nor the scale of scores is in the metadata: of the sizes that exist, only that
 * of 62 layers has a scale by hidden / heads. */
static tsr_status gemma3(struct out *o)
{
    int64_t heads = 1, dim = 1, layers = 0, hidden = 0, window = 4096;
    double  local = 10000.0, last = 0.0;
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(get_int(o, "block_count", true, &layers));
    TSR_TRY(get_int(o, "embedding_length", true, &hidden));
    TSR_TRY(get_int(o, "attention.sliding_window", false, &window));
    TSR_TRY(get_real(o, "rope.freq_base_swa", false, &local));
    TSR_TRY(get_real(o, "final_logit_softcapping", false, &last));
    TSR_TRY(put(o, "hidden_activation", json_string("gelu_pytorch_tanh")));
    TSR_TRY(put(o, "sliding_window", json_integer(window)));
    TSR_TRY(put(o, "sliding_window_pattern", json_integer(6)));
    TSR_TRY(put(o, "rope_local_base_freq", shortest(local)));
    TSR_TRY(put(o, "final_logit_softcapping", last > 0.0 ? shortest(last) : json_null()));
    return put(o, "query_pre_attn_scalar", json_integer(layers == 62 ? hidden / heads : dim));
}

static tsr_status phi3(struct out *o)
{
    int64_t heads, dim, window = 0;
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(get_int(o, "attention.sliding_window", false, &window));
    return put(o, "sliding_window", window ? json_integer(window) : json_null());
}

static tsr_status bloom(struct out *o)
{
    int64_t hidden = 0, ffn = 0;
    TSR_TRY(copy_int(o, "embedding_length", "hidden_size"));
    TSR_TRY(copy_int(o, "block_count", "n_layer"));
    TSR_TRY(copy_int(o, "attention.head_count", "n_head"));
    TSR_TRY(copy_int(o, "context_length", "seq_length"));
    TSR_TRY(copy_real(o, "attention.layer_norm_epsilon", "layer_norm_epsilon"));
    TSR_TRY(get_int(o, "embedding_length", true, &hidden));
    TSR_TRY(get_int(o, "feed_forward_length", true, &ffn));
    if (ffn != 4 * hidden)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: \"bloom.feed_forward_length\" is %lld; BLOOM has 4 times its %lld",
                        o->g->path, (long long)ffn, (long long)hidden);
    return put(o, "apply_residual_connection_post_layernorm", json_false());
}

static const struct {
    const char *arch, *architecture;
    tsr_status (*config)(struct out *o);
} families[] = {
    { "llama", "LlamaForCausalLM", llama },       { "qwen2", "Qwen2ForCausalLM", qwen2 },
    { "gemma2", "Gemma2ForCausalLM", gemma2 },    { "phi3", "Phi3ForCausalLM", phi3 },
    { "bloom", "BloomForCausalLM", bloom },       { "qwen3", "Qwen3ForCausalLM", qwen3 },
    { "gemma3", "Gemma3ForCausalLM", gemma3 },    { "olmo2", "Olmo2ForCausalLM", olmo2 },
    { "granite", "GraniteForCausalLM", granite },
};

/* ---- the whole ---------------------------------------------------------------------- */

static tsr_status token_ids(struct out *o)
{
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    int64_t                  bos = -1, id, seen[3];
    size_t                   n = 0;
    TSR_TRY(tsr_gguf_int(o->g, "tokenizer.ggml.bos_token_id", false, 0, UINT32_MAX, &bos, o->err));
    TSR_TRY(put(o, "bos_token_id", bos >= 0 ? json_integer(bos) : json_null()));
    json_t *eos = json_array();
    if (!eos)
        return tsr_fail_nomem(o->err, 64, "eos_token_id");
    tsr_status st = TSR_OK;
    for (size_t i = 0; i < 3 && st == TSR_OK; i++) {
        id = -1;
        st = tsr_gguf_int(o->g, ends[i], false, 0, UINT32_MAX, &id, o->err);
        for (size_t k = 0; k < n; k++)
            id = seen[k] == id ? -1 : id;
        if (st == TSR_OK && id >= 0) {
            seen[n++] = id;
            st = json_array_append_new(eos, json_integer(id)) == 0
                     ? TSR_OK
                     : tsr_fail_nomem(o->err, 64, "eos_token_id");
        }
    }
    if (st == TSR_OK && json_object_set_new(o->j, "eos_token_id",
                                            n == 0   ? json_null()
                                            : n == 1 ? json_integer(seen[0])
                                                     : json_incref(eos)) != 0)
        st = tsr_fail_nomem(o->err, 64, "eos_token_id");
    json_decref(eos);
    return st;
}

static tsr_status fill(struct out *o)
{
    const struct tsr_gguf_tensor *embed = tsr_gguf_find(o->g, "token_embd.weight");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(o->arch, families[i].arch) != 0)
            continue;
        if (!embed || embed->rank != 2)
            return tsr_fail(o->err, TSR_E_INPUT, "%s: the matrix \"token_embd.weight\" is missing",
                            o->g->path);
        TSR_TRY(refuse_strange(o, families[i].config == granite));
        TSR_TRY(put(o, "architectures", json_pack("[s]", families[i].architecture)));
        TSR_TRY(put(o, "model_type", json_string(o->arch)));
        TSR_TRY(put(o, "vocab_size", json_integer((json_int_t)embed->dims[1])));
        TSR_TRY(put(o, "tie_word_embeddings", json_boolean(!has(o, "output.weight"))));
        TSR_TRY(token_ids(o));
        return families[i].config(o);
    }
    return tsr_fail(o->err, TSR_E_INPUT,
                    "%s: the architecture \"%.40s\" is not supported; of GGUF files llama, qwen2, "
                    "qwen3, gemma2, gemma3, phi3, olmo2, granite and bloom are",
                    o->g->path, o->arch);
}

tsr_status tsr_gguf_config(const struct tsr_gguf *g, char **text, uint64_t *len,
                           struct tsr_err *err)
{
    char *arch = NULL;
    TSR_TRY(tsr_gguf_str(g, "general.architecture", true, &arch, err));
    struct out o = { .g = g, .arch = arch, .j = json_object(), .err = err };
    tsr_status st = o.j ? fill(&o) : tsr_fail_nomem(err, 64, g->path);
    if (st == TSR_OK)
        st = tsr_json_text(o.j, JSON_INDENT(2), text, len, err);
    json_decref(o.j);
    free(arch);
    return st;
}
