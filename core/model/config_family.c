/* What each family reads from config.json.  Absent keys get the reference's defaults; sizes
 * must be there. */
#include "base/mem.h"
#include "model/arch.h"
#include "tessera/backend.h"

#include <math.h>
#include <string.h>

/* Far above any model that exists; products of two stay within 64 bits. */
#define MAX_VOCAB     (INT64_C(1) << 24)
#define MAX_WIDTH     (INT64_C(1) << 22)
#define MAX_LAYERS    (INT64_C(1) << 14)
#define MAX_HEADS     (INT64_C(1) << 14)
#define MAX_POSITIONS (INT64_C(1) << 31)

static tsr_status get_size(const struct tsr_model_config_source *s, const char *key, bool required,
                           int64_t max, uint64_t *v)
{
    int64_t i = (int64_t)*v;
    TSR_TRY(tsr_json_int(s->json, s->name, key, required, 1, max, &i, s->err));
    *v = (uint64_t)i;
    return TSR_OK;
}

/* The older name of a key is used if the newer one is absent. */
static tsr_status get_size_of(const struct tsr_model_config_source *s, const char *key,
                              const char *older, int64_t max, uint64_t *v)
{
    const json_t *o = json_object_get(s->json, key);
    const json_t *p = json_object_get(s->json, older);
    bool          use_older = (!o || json_is_null(o)) && p && !json_is_null(p);
    return get_size(s, use_older ? older : key, true, max, v);
}

static tsr_status get_flag(const struct tsr_model_config_source *s, const char *key, bool *v)
{
    return tsr_json_bool(s->json, s->name, key, false, v, s->err);
}

static tsr_status get_float(const struct tsr_model_config_source *s, const char *key, double lo,
                            double hi, double def, float *v)
{
    TSR_TRY(tsr_json_real(s->json, s->name, key, false, lo, hi, &def, s->err));
    *v = (float)def;
    return TSR_OK;
}

static tsr_status get_func(const struct tsr_model_config_source *s, const char *key,
                           const char *def, uint32_t *func)
{
    static const struct {
        const char *name;
        uint32_t    func;
    } known[] = {
        { "silu", TSR_FUNC_SILU },           { "swish", TSR_FUNC_SILU },
        { "gelu", TSR_FUNC_GELU_ERF },       { "gelu_python", TSR_FUNC_GELU_ERF },
        { "gelu_new", TSR_FUNC_GELU_TANH },  { "gelu_pytorch_tanh", TSR_FUNC_GELU_TANH },
        { "gelu_fast", TSR_FUNC_GELU_TANH }, { "relu", TSR_FUNC_RELU },
    };
    TSR_TRY(tsr_json_str(s->json, s->name, key, false, &def, s->err));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(def, known[i].name) == 0) {
            *func = known[i].func;
            return TSR_OK;
        }
    }
    return tsr_fail(s->err, TSR_E_INPUT,
                    "%s: \"%s\": activation \"%.40s\" is not supported; silu, gelu, "
                    "gelu_pytorch_tanh and relu are",
                    s->name, key, def);
}

/* heads, kv_heads and head_dim fit together, and hidden is set. */
static tsr_status check_heads(const struct tsr_model_config_source *s, struct tsr_model_hparams *hp,
                              uint64_t heads, uint64_t kv, uint64_t dim)
{
    if (heads % kv != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu attention heads are not a multiple of %llu key-value heads",
                        s->name, (unsigned long long)heads, (unsigned long long)kv);
    if (dim == 0 && hp->hidden % heads != 0)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: hidden size %llu is not a multiple of %llu attention heads", s->name,
                        (unsigned long long)hp->hidden, (unsigned long long)heads);
    if (dim == 0)
        dim = hp->hidden / heads;
    if (heads * dim > (uint64_t)MAX_WIDTH)
        return tsr_fail(s->err, TSR_E_INPUT,
                        "%s: %llu heads of %llu are wider than the limit of %lld", s->name,
                        (unsigned long long)heads, (unsigned long long)dim, (long long)MAX_WIDTH);
    hp->heads = (uint32_t)heads;
    hp->kv_heads = (uint32_t)kv;
    hp->head_dim = (uint32_t)dim;
    hp->attn_scale = (float)(1.0 / sqrt((double)dim));
    return TSR_OK;
}

static tsr_status new_windows(const struct tsr_model_config_source *s, struct tsr_model_hparams *hp)
{
    hp->window = tsr_new(hp->layers, sizeof *hp->window);
    return hp->window ? TSR_OK : tsr_fail_nomem(s->err, hp->layers * sizeof *hp->window, "windows");
}

/* `sliding_window`: absent gives the default, null none (0). */
static tsr_status get_window(const struct tsr_model_config_source *s, int64_t def, uint32_t *window)
{
    const json_t *v = json_object_get(s->json, "sliding_window");
    if (v && json_is_null(v))
        def = 0;
    TSR_TRY(
        tsr_json_int(s->json, s->name, "sliding_window", false, 1, MAX_POSITIONS, &def, s->err));
    *window = (uint32_t)def;
    return TSR_OK;
}

/* What Llama and its relatives have in common. */
static tsr_status config_common(const struct tsr_model_config_source *s, struct tsr_model_config *c,
                                const char *func_key, const char *func, bool phi3)
{
    struct tsr_model_hparams *hp = &c->hp;
    uint64_t                  heads = 0, kv, dim = (uint64_t)c->arch->def.head_dim;
    TSR_TRY(get_size(s, "vocab_size", true, MAX_VOCAB, &hp->vocab));
    TSR_TRY(get_size(s, "hidden_size", true, MAX_WIDTH, &hp->hidden));
    TSR_TRY(get_size(s, "num_hidden_layers", true, MAX_LAYERS, &hp->layers));
    TSR_TRY(get_size(s, "intermediate_size", true, MAX_WIDTH, &hp->ffn));
    TSR_TRY(get_size(s, "num_attention_heads", true, MAX_HEADS, &heads));
    const json_t *kv_json = json_object_get(s->json, "num_key_value_heads");
    kv = kv_json && json_is_null(kv_json) ? 0 : (uint64_t)c->arch->def.kv_heads;
    if (kv == 0)
        kv = heads;
    TSR_TRY(get_size(s, "num_key_value_heads", false, MAX_HEADS, &kv));
    TSR_TRY(get_size(s, "head_dim", false, MAX_WIDTH, &dim));
    TSR_TRY(check_heads(s, hp, heads, kv, dim));
    hp->embed_dim = hp->hidden;
    hp->max_positions = (uint64_t)c->arch->def.positions;
    TSR_TRY(get_size(s, "max_position_embeddings", false, MAX_POSITIONS, &hp->max_positions));
    hp->norm = TSR_NORM_RMS;
    hp->norm_place = TSR_NORM_BEFORE;
    TSR_TRY(get_float(s, "rms_norm_eps", 0.0, 1.0, c->arch->def.eps, &hp->norm_eps));
    hp->gated = true;
    TSR_TRY(get_func(s, func_key, func, &hp->func));
    TSR_TRY(new_windows(s, hp));
    return tsr_model_config_rope(s, hp, phi3);
}

tsr_status tsr_model_config_llama(const struct tsr_model_config_source *s,
                                  struct tsr_model_config              *c)
{
    bool attention = false, mlp = false;
    TSR_TRY(config_common(s, c, "hidden_act", "silu", false));
    TSR_TRY(get_flag(s, "attention_bias", &attention));
    TSR_TRY(get_flag(s, "mlp_bias", &mlp));
    c->has |= (attention ? TSR_HAS_QKV_BIAS | TSR_HAS_O_BIAS : 0) | (mlp ? TSR_HAS_MLP_BIAS : 0);
    return TSR_OK;
}

static tsr_status same_window(const struct tsr_model_config_source *s, struct tsr_model_config *c)
{
    uint32_t w;
    TSR_TRY(get_window(s, c->arch->def.window, &w));
    for (uint64_t i = 0; i < c->hp.layers; i++)
        c->hp.window[i] = w;
    return TSR_OK;
}

tsr_status tsr_model_config_mistral(const struct tsr_model_config_source *s,
                                    struct tsr_model_config              *c)
{
    TSR_TRY(config_common(s, c, "hidden_act", "silu", false));
    return same_window(s, c);
}

tsr_status tsr_model_config_phi3(const struct tsr_model_config_source *s,
                                 struct tsr_model_config              *c)
{
    TSR_TRY(config_common(s, c, "hidden_act", "silu", true));
    return same_window(s, c);
}

/* `layer_types` if given, else the value of `sliding` for each layer. */
static tsr_status layer_windows(const struct tsr_model_config_source *s,
                                struct tsr_model_hparams *hp, uint32_t window,
                                uint64_t (*is_sliding)(uint64_t layer, uint64_t arg), uint64_t arg)
{
    json_t *types;
    TSR_TRY(tsr_json_sub(s->json, s->name, "layer_types", false, JSON_ARRAY, &types, s->err));
    if (types && json_array_size(types) != hp->layers)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"layer_types\" has %zu entries for %llu layers",
                        s->name, json_array_size(types), (unsigned long long)hp->layers);
    for (uint64_t i = 0; i < hp->layers; i++) {
        bool sliding = window != 0 && is_sliding(i, arg);
        if (types) {
            const char *t = tsr_json_word(json_array_get(types, i));
            sliding = t && strcmp(t, "sliding_attention") == 0;
            if (!sliding && !(t && strcmp(t, "full_attention") == 0))
                return tsr_fail(s->err, TSR_E_INPUT,
                                "%s: \"layer_types\"[%llu] is neither full_attention nor "
                                "sliding_attention",
                                s->name, (unsigned long long)i);
            if (sliding && window == 0)
                return tsr_fail(
                    s->err, TSR_E_INPUT,
                    "%s: \"layer_types\"[%llu] slides, but no \"sliding_window\" is in use",
                    s->name, (unsigned long long)i);
        }
        hp->window[i] = sliding ? window : 0;
    }
    return TSR_OK;
}

static uint64_t from_layer(uint64_t layer, uint64_t first)
{
    return layer >= first;
}

static uint64_t even_layer(uint64_t layer, uint64_t unused)
{
    (void)unused;
    return layer % 2 == 0;
}

tsr_status tsr_model_config_qwen2(const struct tsr_model_config_source *s,
                                  struct tsr_model_config              *c)
{
    bool     use = false, mrope = false;
    uint32_t window = 0;
    int64_t  first = 28;
    TSR_TRY(config_common(s, c, "hidden_act", "silu", false));
    c->has |= TSR_HAS_QKV_BIAS;
    TSR_TRY(get_flag(s, "use_mrope", &mrope));
    if (mrope)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"use_mrope\" is not supported", s->name);
    TSR_TRY(get_flag(s, "use_sliding_window", &use));
    if (use)
        TSR_TRY(get_window(s, c->arch->def.window, &window));
    TSR_TRY(
        tsr_json_int(s->json, s->name, "max_window_layers", false, 0, MAX_LAYERS, &first, s->err));
    return layer_windows(s, &c->hp, window, from_layer, (uint64_t)first);
}

tsr_status tsr_model_config_gemma2(const struct tsr_model_config_source *s,
                                   struct tsr_model_config              *c)
{
    struct tsr_model_hparams *hp = &c->hp;
    bool                      bias = false, both_ways = false;
    uint32_t                  window;
    double                    scalar = 256.0;
    TSR_TRY(config_common(s, c, "hidden_activation", "gelu_pytorch_tanh", false));
    hp->norm_place = TSR_NORM_AROUND;
    hp->norm_gain_offset = 1.0f;
    hp->embed_scale = (float)sqrt((double)hp->hidden);
    TSR_TRY(get_flag(s, "attention_bias", &bias));
    c->has |= bias ? TSR_HAS_QKV_BIAS | TSR_HAS_O_BIAS : 0;
    TSR_TRY(get_flag(s, "use_bidirectional_attention", &both_ways));
    if (both_ways)
        return tsr_fail(s->err, TSR_E_INPUT, "%s: \"use_bidirectional_attention\" is not supported",
                        s->name);
    TSR_TRY(tsr_json_real(s->json, s->name, "query_pre_attn_scalar", false, 1e-6, 1e9, &scalar,
                          s->err));
    hp->attn_scale = (float)(1.0 / sqrt(scalar));
    const json_t *attn = json_object_get(s->json, "attn_logit_softcapping");
    const json_t *last = json_object_get(s->json, "final_logit_softcapping");
    TSR_TRY(get_float(s, "attn_logit_softcapping", 1e-3, 1e9,
                      attn && json_is_null(attn) ? 0.0 : 50.0, &hp->attn_softcap));
    TSR_TRY(get_float(s, "final_logit_softcapping", 1e-3, 1e9,
                      last && json_is_null(last) ? 0.0 : 30.0, &hp->logit_softcap));
    TSR_TRY(get_window(s, c->arch->def.window, &window));
    return layer_windows(s, hp, window, even_layer, 0);
}

tsr_status tsr_model_config_opt(const struct tsr_model_config_source *s, struct tsr_model_config *c)
{
    struct tsr_model_hparams *hp = &c->hp;
    uint64_t                  heads = 0;
    bool                      before = true, no_final = false, bias = true, affine = true;
    TSR_TRY(get_size(s, "vocab_size", true, MAX_VOCAB, &hp->vocab));
    TSR_TRY(get_size(s, "hidden_size", true, MAX_WIDTH, &hp->hidden));
    TSR_TRY(get_size(s, "num_hidden_layers", true, MAX_LAYERS, &hp->layers));
    TSR_TRY(get_size(s, "ffn_dim", true, MAX_WIDTH, &hp->ffn));
    TSR_TRY(get_size(s, "num_attention_heads", true, MAX_HEADS, &heads));
    TSR_TRY(check_heads(s, hp, heads, heads, 0));
    hp->embed_dim = hp->hidden;
    TSR_TRY(get_size(s, "word_embed_proj_dim", false, MAX_WIDTH, &hp->embed_dim));
    hp->max_positions = (uint64_t)c->arch->def.positions;
    TSR_TRY(get_size(s, "max_position_embeddings", false, MAX_POSITIONS, &hp->max_positions));
    TSR_TRY(get_flag(s, "do_layer_norm_before", &before));
    TSR_TRY(get_flag(s, "_remove_final_layer_norm", &no_final));
    TSR_TRY(get_flag(s, "enable_bias", &bias));
    TSR_TRY(get_flag(s, "layer_norm_elementwise_affine", &affine));
    TSR_TRY(get_func(s, "activation_function", "relu", &hp->func));
    hp->norm = TSR_NORM_LAYER;
    hp->norm_eps = (float)c->arch->def.eps;
    hp->norm_place = before ? TSR_NORM_BEFORE : TSR_NORM_AFTER;
    hp->positions = TSR_MODEL_POSITIONS_LEARNED;
    hp->position_offset = 2;
    c->has |= bias ? TSR_HAS_QKV_BIAS | TSR_HAS_O_BIAS | TSR_HAS_MLP_BIAS : 0;
    c->has |= affine ? TSR_HAS_AFFINE : 0;
    c->has |= before && !no_final ? TSR_HAS_FINAL_NORM : 0;
    c->has |= hp->embed_dim != hp->hidden ? TSR_HAS_PROJECTION : 0;
    return new_windows(s, hp);
}

tsr_status tsr_model_config_bloom(const struct tsr_model_config_source *s,
                                  struct tsr_model_config              *c)
{
    struct tsr_model_hparams *hp = &c->hp;
    uint64_t                  heads = 0;
    TSR_TRY(get_size(s, "vocab_size", true, MAX_VOCAB, &hp->vocab));
    TSR_TRY(get_size_of(s, "hidden_size", "n_embed", MAX_WIDTH / 4, &hp->hidden));
    TSR_TRY(get_size_of(s, "n_layer", "num_hidden_layers", MAX_LAYERS, &hp->layers));
    TSR_TRY(get_size_of(s, "n_head", "num_attention_heads", MAX_HEADS, &heads));
    TSR_TRY(check_heads(s, hp, heads, heads, 0));
    hp->embed_dim = hp->hidden;
    hp->ffn = 4 * hp->hidden;
    hp->max_positions = (uint64_t)c->arch->def.positions;
    TSR_TRY(get_size(s, "seq_length", false, MAX_POSITIONS, &hp->max_positions));
    hp->norm = TSR_NORM_LAYER;
    hp->norm_place = TSR_NORM_BEFORE;
    TSR_TRY(get_float(s, "layer_norm_epsilon", 0.0, 1.0, c->arch->def.eps, &hp->norm_eps));
    TSR_TRY(get_flag(s, "apply_residual_connection_post_layernorm", &hp->residual_from_norm));
    hp->positions = TSR_MODEL_POSITIONS_ALIBI;
    hp->func = TSR_FUNC_GELU_TANH;
    return new_windows(s, hp);
}
