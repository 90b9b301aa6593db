/* What each architecture of a GGUF file says, as keys of config.json. */
#include "checkpoint/gguf/config_internal.h"

#include "base/log.h"

#include <string.h>

/* What Llama and its relatives have in common. */
static tsr_status common(struct tsr_gguf_config_out *o, int64_t *heads, int64_t *head_dim)
{
    int64_t kv, value, hidden = 0;
    TSR_TRY(tsr_gguf_config_copy_int(o, "embedding_length", "hidden_size"));
    TSR_TRY(tsr_gguf_config_copy_int(o, "block_count", "num_hidden_layers"));
    TSR_TRY(tsr_gguf_config_copy_int(o, "feed_forward_length", "intermediate_size"));
    TSR_TRY(tsr_gguf_config_copy_int(o, "context_length", "max_position_embeddings"));
    TSR_TRY(tsr_gguf_config_copy_real(o, "attention.layer_norm_rms_epsilon", "rms_norm_eps"));
    TSR_TRY(tsr_gguf_config_int(o, "embedding_length", true, &hidden));
    TSR_TRY(tsr_gguf_config_int(o, "attention.head_count", true, heads));
    kv = *heads;
    TSR_TRY(tsr_gguf_config_int(o, "attention.head_count_kv", false, &kv));
    if (*heads <= 0)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: \"%s.attention.head_count\" is 0", o->g->path,
                        o->arch);
    *head_dim = hidden / *heads;
    TSR_TRY(tsr_gguf_config_int(o, "attention.key_length", false, head_dim));
    value = *head_dim;
    TSR_TRY(tsr_gguf_config_int(o, "attention.value_length", false, &value));
    if (value != *head_dim || *head_dim <= 0)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: keys of %lld and values of %lld; only equal lengths are supported",
                        o->g->path, (long long)*head_dim, (long long)value);
    TSR_TRY(tsr_gguf_config_put(o, "num_attention_heads", json_integer(*heads)));
    TSR_TRY(tsr_gguf_config_put(o, "num_key_value_heads", json_integer(kv)));
    TSR_TRY(tsr_gguf_config_put(o, "head_dim", json_integer(*head_dim)));
    return tsr_gguf_config_rope(o, *head_dim);
}

/* Some writers store a window that llama.cpp does not look at for these architectures: a model with
 * it would not be the one that runs there. */
static tsr_status leave_window(struct tsr_gguf_config_out *o)
{
    int64_t window = 0;
    TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window", false, &window));
    if (window > 0)
        tsr_logf(TSR_LOG_WARN,
                 "%s: \"%s.attention.sliding_window\" is %lld; llama.cpp has no window for this "
                 "architecture, and here too attention is over the whole context: texts of more "
                 "than %lld tokens run unlike the original model",
                 o->g->path, o->arch, (long long)window, (long long)window);
    return TSR_OK;
}

static tsr_status llama(struct tsr_gguf_config_out *o)
{
    int64_t heads, dim;
    TSR_TRY(leave_window(o));
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(tsr_gguf_config_put(o, "attention_bias",
                                json_boolean(tsr_gguf_config_has(o, "blk.0.attn_q.bias"))));
    return tsr_gguf_config_put(o, "mlp_bias",
                               json_boolean(tsr_gguf_config_has(o, "blk.0.ffn_gate.bias")));
}

static tsr_status qwen2(struct tsr_gguf_config_out *o)
{
    int64_t heads, dim;
    TSR_TRY(leave_window(o));
    TSR_TRY(common(o, &heads, &dim));
    return tsr_gguf_config_put(o, "use_sliding_window", json_false());
}

static tsr_status gemma2(struct tsr_gguf_config_out *o)
{
    int64_t heads = 1, dim = 1, layers = 0, hidden = 0, window = 4096;
    double  attn = 50.0, last = 30.0;
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(tsr_gguf_config_int(o, "block_count", true, &layers));
    TSR_TRY(tsr_gguf_config_int(o, "embedding_length", true, &hidden));
    TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window", false, &window));
    TSR_TRY(tsr_gguf_config_real(o, "attn_logit_softcapping", false, &attn));
    TSR_TRY(tsr_gguf_config_real(o, "final_logit_softcapping", false, &last));
    TSR_TRY(tsr_gguf_config_put(o, "hidden_activation", json_string("gelu_pytorch_tanh")));
    TSR_TRY(tsr_gguf_config_put(o, "sliding_window", json_integer(window)));
    TSR_TRY(tsr_gguf_config_put(o, "attn_logit_softcapping", tsr_gguf_config_shortest(attn)));
    TSR_TRY(tsr_gguf_config_put(o, "final_logit_softcapping", tsr_gguf_config_shortest(last)));
    /* not in the metadata: of the three sizes that exist, only that of 46 layers differs */
    return tsr_gguf_config_put(o, "query_pre_attn_scalar",
                               json_integer(layers == 46 ? hidden / heads : dim));
}

static tsr_status qwen3(struct tsr_gguf_config_out *o)
{
    TSR_TRY(qwen2(o));
    return tsr_gguf_config_put(o, "attention_bias",
                               json_boolean(tsr_gguf_config_has(o, "blk.0.attn_q.bias")));
}

static tsr_status olmo2(struct tsr_gguf_config_out *o)
{
    int64_t heads, dim;
    TSR_TRY(common(o, &heads, &dim));
    return tsr_gguf_config_put(o, "attention_bias", json_false());
}

static tsr_status granite(struct tsr_gguf_config_out *o)
{
    double attention = 0.0, embedding = 1.0, residual = 1.0, logits = 1.0;
    TSR_TRY(llama(o));
    TSR_TRY(tsr_gguf_config_real(o, "attention.scale", true, &attention));
    TSR_TRY(tsr_gguf_config_real(o, "embedding_scale", false, &embedding));
    TSR_TRY(tsr_gguf_config_real(o, "residual_scale", false, &residual));
    TSR_TRY(tsr_gguf_config_real(o, "logit_scale", false, &logits));
    TSR_TRY(tsr_gguf_config_put(o, "attention_multiplier", tsr_gguf_config_shortest(attention)));
    TSR_TRY(tsr_gguf_config_put(o, "embedding_multiplier", tsr_gguf_config_shortest(embedding)));
    TSR_TRY(tsr_gguf_config_put(o, "residual_multiplier", tsr_gguf_config_shortest(residual)));
    return tsr_gguf_config_put(o, "logits_scaling", tsr_gguf_config_shortest(logits));
}

/* Neither the pattern of windows nor the scale of scores is in the metadata: of the sizes that exist, only that
 * of 62 layers has a scale by hidden / heads. */
static tsr_status gemma3(struct tsr_gguf_config_out *o)
{
    int64_t heads = 1, dim = 1, layers = 0, hidden = 0, window = 4096;
    double  local = 10000.0, last = 0.0;
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(tsr_gguf_config_int(o, "block_count", true, &layers));
    TSR_TRY(tsr_gguf_config_int(o, "embedding_length", true, &hidden));
    TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window", false, &window));
    TSR_TRY(tsr_gguf_config_real(o, "rope.freq_base_swa", false, &local));
    TSR_TRY(tsr_gguf_config_real(o, "final_logit_softcapping", false, &last));
    TSR_TRY(tsr_gguf_config_put(o, "hidden_activation", json_string("gelu_pytorch_tanh")));
    TSR_TRY(tsr_gguf_config_put(o, "sliding_window", json_integer(window)));
    TSR_TRY(tsr_gguf_config_put(o, "sliding_window_pattern", json_integer(6)));
    TSR_TRY(tsr_gguf_config_put(o, "rope_local_base_freq", tsr_gguf_config_shortest(local)));
    TSR_TRY(tsr_gguf_config_put(o, "final_logit_softcapping",
                                last > 0.0 ? tsr_gguf_config_shortest(last) : json_null()));
    return tsr_gguf_config_put(o, "query_pre_attn_scalar",
                               json_integer(layers == 62 ? hidden / heads : dim));
}

static tsr_status phi3(struct tsr_gguf_config_out *o)
{
    int64_t heads, dim, window = 0;
    TSR_TRY(common(o, &heads, &dim));
    TSR_TRY(tsr_gguf_config_int(o, "attention.sliding_window", false, &window));
    return tsr_gguf_config_put(o, "sliding_window", window ? json_integer(window) : json_null());
}

static tsr_status bloom(struct tsr_gguf_config_out *o)
{
    int64_t hidden = 0, ffn = 0;
    TSR_TRY(tsr_gguf_config_copy_int(o, "embedding_length", "hidden_size"));
    TSR_TRY(tsr_gguf_config_copy_int(o, "block_count", "n_layer"));
    TSR_TRY(tsr_gguf_config_copy_int(o, "attention.head_count", "n_head"));
    TSR_TRY(tsr_gguf_config_copy_int(o, "context_length", "seq_length"));
    TSR_TRY(tsr_gguf_config_copy_real(o, "attention.layer_norm_epsilon", "layer_norm_epsilon"));
    TSR_TRY(tsr_gguf_config_int(o, "embedding_length", true, &hidden));
    TSR_TRY(tsr_gguf_config_int(o, "feed_forward_length", true, &ffn));
    if (ffn != 4 * hidden)
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: \"bloom.feed_forward_length\" is %lld; BLOOM has 4 times its %lld",
                        o->g->path, (long long)ffn, (long long)hidden);
    return tsr_gguf_config_put(o, "apply_residual_connection_post_layernorm", json_false());
}

static const struct tsr_gguf_config_family families[] = {
    { "llama", "LlamaForCausalLM", llama, false },
    { "qwen2", "Qwen2ForCausalLM", qwen2, false },
    { "gemma2", "Gemma2ForCausalLM", gemma2, false },
    { "phi3", "Phi3ForCausalLM", phi3, false },
    { "bloom", "BloomForCausalLM", bloom, false },
    { "qwen3", "Qwen3ForCausalLM", qwen3, false },
    { "gemma3", "Gemma3ForCausalLM", gemma3, false },
    { "olmo2", "Olmo2ForCausalLM", olmo2, false },
    { "granite", "GraniteForCausalLM", granite, true },
};

const struct tsr_gguf_config_family *tsr_gguf_config_family(const char *arch)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(arch, families[i].arch) == 0)
            return &families[i];
    return NULL;
}
