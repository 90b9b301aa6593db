#include "wide.h"

#include "base/rng.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/bind.h"
#include "model/config.h"
#include "quant/quantize.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZES                                                                                      \
    "\"vocab_size\":96,\"hidden_size\":256,\"num_hidden_layers\":3,\"num_attention_heads\":8,"     \
    "\"max_position_embeddings\":64,\"bos_token_id\":1,\"eos_token_id\":2,"
#define LLAMA                                                                                      \
    SIZES "\"intermediate_size\":704,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"         \
          "\"num_key_value_heads\":4,"

#define LATENT(dense)                                                                              \
    "\"intermediate_size\":512,\"moe_intermediate_size\":256,\"n_routed_experts\":8,"              \
    "\"num_experts_per_tok\":3,\"first_k_dense_replace\":" dense                                   \
    ",\"kv_lora_rank\":40,\"v_head_dim\":32,"                                                      \
    "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false,\"hidden_act\":\"silu\","

#define DELTA                                                                                      \
    "\"intermediate_size\":512,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false,"               \
    "\"num_key_value_heads\":4,\"head_dim\":32,\"full_attention_interval\":2,"                     \
    "\"linear_num_key_heads\":8,\"linear_num_value_heads\":16,\"linear_key_head_dim\":32,"         \
    "\"linear_value_head_dim\":32,\"linear_conv_kernel_dim\":4,\"hidden_act\":\"silu\","

static const struct {
    const char *name, *config;
} models[] = {
    { "llama", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," LLAMA
               "\"hidden_act\":\"silu\",\"attention_bias\":true,\"mlp_bias\":true}" },
    { "qwen2", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"," LLAMA
               "\"hidden_act\":\"silu\"}" },
    { "gemma2", "{\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\"," SIZES
                "\"intermediate_size\":512,\"rms_norm_eps\":1e-6,\"num_key_value_heads\":4,"
                "\"head_dim\":32,\"query_pre_attn_scalar\":32,\"sliding_window\":8,"
                "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,"
                "\"hidden_activation\":\"gelu_pytorch_tanh\",\"tie_word_embeddings\":true}" },
    { "opt", "{\"architectures\":[\"OPTForCausalLM\"],\"model_type\":\"opt\"," SIZES
             "\"ffn_dim\":512,\"word_embed_proj_dim\":256,\"do_layer_norm_before\":true,"
             "\"activation_function\":\"relu\",\"tie_word_embeddings\":true}" },
    { "bloom", "{\"architectures\":[\"BloomForCausalLM\"],\"model_type\":\"bloom\","
               "\"vocab_size\":96,\"hidden_size\":256,\"n_layer\":3,\"n_head\":8,"
               "\"bos_token_id\":1,\"eos_token_id\":2,\"tie_word_embeddings\":true,"
               "\"layer_norm_epsilon\":1e-5}" },
    { "phi3", "{\"architectures\":[\"Phi3ForCausalLM\"],\"model_type\":\"phi3\"," LLAMA
              "\"hidden_act\":\"silu\",\"sliding_window\":16,\"pad_token_id\":2,"
              "\"original_max_position_embeddings\":64}" },
    /* latent attention, with and without latent queries; values wider than keys; dense layers, since a sum over ranks
     * of experts is rounded otherwise than that of one */
    { "latent",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\"," SIZES LATENT(
          "3") "\"q_lora_rank\":48,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,"
               "\"n_group\":4,\"topk_group\":2,\"n_shared_experts\":1}" },
    { "latent-values",
      "{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"model_type\":\"deepseek_v2\"," SIZES LATENT(
          "3") "\"q_lora_rank\":null,\"qk_nope_head_dim\":12,\"qk_rope_head_dim\":8,"
               "\"topk_method\":\"group_limited_greedy\",\"n_group\":2,\"topk_group\":1,"
               "\"n_shared_experts\":2,\"routed_scaling_factor\":4.0}" },
    /* two layers of experts, one of them shared, each 256 wide */
    { WIDE_SHARED_EXPERT,
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\"," SIZES LATENT(
          "1") "\"q_lora_rank\":48,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,"
               "\"n_group\":4,\"topk_group\":2,\"n_shared_experts\":1}" },
    /* the gated delta rule in two layers of three, its linears one by one, and in two tensors with rows in turns */
    { "delta",
      "{\"architectures\":[\"Qwen3_5ForCausalLM\"],\"model_type\":\"qwen3_5_text\"," SIZES DELTA
      "\"partial_rotary_factor\":0.25}" },
    { "delta-fused",
      "{\"architectures\":[\"Qwen3NextForCausalLM\"],\"model_type\":\"qwen3_next\"," SIZES DELTA
      "\"mlp_only_layers\":[0,1,2],\"num_experts\":4,\"num_experts_per_tok\":2}" },
    { WIDE_EXPERTS,
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\"," LLAMA
      "\"hidden_act\":\"silu\",\"head_dim\":32,\"num_experts\":6,\"num_experts_per_tok\":2,"
      "\"moe_intermediate_size\":512,\"norm_topk_prob\":true,\"mlp_only_layers\":[1],"
      "\"decoder_sparse_step\":1}" },
    { "olmo2",
      "{\"architectures\":[\"Olmo2ForCausalLM\"],\"model_type\":\"olmo2\",\"vocab_size\":96,"
      "\"hidden_size\":256,\"num_hidden_layers\":3,\"num_attention_heads\":8,"
      "\"num_key_value_heads\":4,\"intermediate_size\":512,\"max_position_embeddings\":64,"
      "\"bos_token_id\":1,\"eos_token_id\":2,\"rms_norm_eps\":1e-6,"
      "\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}" },
    { "olmo3",
      "{\"architectures\":[\"Olmo3ForCausalLM\"],\"model_type\":\"olmo3\",\"vocab_size\":96,"
      "\"hidden_size\":256,\"num_hidden_layers\":3,\"num_attention_heads\":8,"
      "\"num_key_value_heads\":4,\"intermediate_size\":512,\"max_position_embeddings\":64,"
      "\"bos_token_id\":1,\"eos_token_id\":2,\"rms_norm_eps\":1e-6,\"sliding_window\":8,"
      "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"],"
      "\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}" },
    /* one layer with wide inputs of o and down */
    { "wide",
      "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":96,"
      "\"hidden_size\":40,\"num_hidden_layers\":1,\"num_attention_heads\":8,\"head_dim\":640,"
      "\"num_key_value_heads\":4,\"intermediate_size\":5120,\"max_position_embeddings\":64,"
      "\"bos_token_id\":1,\"eos_token_id\":2,\"rms_norm_eps\":1e-5,"
      "\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}" },
};
const char *const wide_norm_names[] = { "olmo2", "olmo3", NULL };
const char *const wide_names[] = { "llama", "qwen2", "gemma2", "opt", "bloom", "phi3", NULL };
const char *const wide_latent_names[] = { "latent", "latent-values", NULL };
const char *const wide_delta_names[] = { "delta", "delta-fused", NULL };

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static const char *config_of(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0)
            return models[i].config;
    fail_msg("no model %s", name);
    return NULL;
}

/* One of the two walks: tensors are declared, then written. */
struct maker {
    struct tsr_st_out             *out;
    const struct tsr_model_config *c;
    bool                           writing;
    uint64_t                       n;
};

static void shaped(struct maker *m, const char *name, uint32_t dims, const uint64_t *shape,
                   double mean, double spread)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n = 1;
    m->n++;
    for (uint32_t i = 0; i < dims; i++)
        n *= shape[i];
    if (!m->writing) {
        must(tsr_safetensors_declare(m->out, name, TSR_F32, dims, shape, &e.err), &e);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        float v = (float)(mean + spread * tsr_normal(5, m->n, i));
        tsr_safetensors_put(m->out, &v, sizeof v);
    }
}

/* Matrices have a spread that keeps sums near 1, gains are near it, the rest is small. */
static void tensor(struct maker *m, const char *name, uint64_t rows, uint64_t cols, double mean,
                   double spread)
{
    uint64_t shape[2] = { rows, cols };
    shaped(m, name, rows ? 2 : 1, rows ? shape : shape + 1, mean, spread);
}

/* A vector of the delta rule, or the weights of its convolution. */
static void put_delta(struct maker *m, const struct tsr_model_role *r, const char *base)
{
    struct tsr_model_layer none;
    char                   name[192];
    uint64_t               n = 0, row;
    bool                   gain = r->part == TSR_MODEL_PART_DELTA_NORM;
    (void)tsr_model_delta_vector(&m->c->hp, r->part, &none, &n, &row);
    uint64_t shape[3] = { row ? n / row : n, 1, row };
    (void)snprintf(name, sizeof name, "%s%s", base,
                   tsr_model_part_is_unsuffixed(r->part) ? "" : ".weight");
    shaped(m, name, row ? 3 : 1, shape, gain ? 1 : 0, gain ? 0.1 : 0.5);
}

static void put_role(struct maker *m, const struct tsr_model_role *r, uint64_t layer);

static void put_experts(struct maker *m, const struct tsr_model_role *r, uint64_t layer)
{
    for (uint64_t e = 0; e < m->c->hp.experts; e++) {
        struct tsr_model_role one;
        char                  name[TSR_FAMILY_NAME + 24];
        assert_true(tsr_model_role_of_expert(r, e, name, &one));
        put_role(m, &one, layer);
    }
}

static void put_role(struct maker *m, const struct tsr_model_role *r, uint64_t layer)
{
    const struct tsr_model_hparams *hp = &m->c->hp;
    uint64_t                        rows = 0, cols = hp->hidden, one;
    enum tsr_linear_id              ids[TSR_MODEL_FUSED];
    uint32_t                        groups;
    unsigned                        fused = tsr_model_fused(hp, r->part, ids, &groups);
    char                            base[160], name[192];
    uint64_t                        row, width = tsr_model_norm_width(hp, r->part, &row);
    bool                            norm = false;
    const char *at = strchr(r->name, '#'), *prefix = r->bare ? "" : m->c->family->prefixes[0];
    if (at && !tsr_model_role_in_layer(hp, r, layer))
        return;
    if (at)
        (void)snprintf(base, sizeof base, "%s%.*s%llu%s", prefix, (int)(at - r->name), r->name,
                       (unsigned long long)layer, at + 1);
    else
        (void)snprintf(base, sizeof base, "%s%s", prefix, r->name);
    for (unsigned i = 0; i < fused; i++, rows += one)
        tsr_model_bind_shape(hp, layer, ids[i], &one, &cols);
    switch (r->part) {
    case TSR_MODEL_PART_EMBED:
    case TSR_MODEL_PART_HEAD:
        rows = hp->vocab;
        cols = hp->embed_dim;
        break;
    case TSR_MODEL_PART_POSITIONS:
        rows = hp->max_positions + hp->position_offset;
        break;
    case TSR_MODEL_PART_LINEAR:
        tsr_model_bind_shape(hp, layer, r->lin, &rows, &cols);
        break;
    case TSR_MODEL_PART_QKV_ROWS:
    case TSR_MODEL_PART_QKV_HEADS:
    case TSR_MODEL_PART_GATE_UP_ROWS:
    case TSR_MODEL_PART_QZ_HEADS:
    case TSR_MODEL_PART_QKVZ_HEADS:
    case TSR_MODEL_PART_BA_HEADS:
        break;
    case TSR_MODEL_PART_EXPERT:
        put_experts(m, r, layer);
        return;
    case TSR_MODEL_PART_CONV:
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
    case TSR_MODEL_PART_DELTA_NORM:
        put_delta(m, r, base);
        return;
    case TSR_MODEL_PART_ROUTER_CORRECTION:
        (void)snprintf(name, sizeof name, "%s%s", base, r->suffixes[0]);
        tensor(m, name, 0, hp->experts, 0, 0.1);
        return;
    case TSR_MODEL_PART_SINKS:
    case TSR_MODEL_PART_EXPERTS: /* no model here has sinks or experts in one tensor */
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return;
    case TSR_MODEL_PART_PROJECT_IN: /* no model here has projections */
    case TSR_MODEL_PART_PROJECT_OUT:
        return;
    case TSR_MODEL_PART_EMBED_NORM:
    case TSR_MODEL_PART_FINAL_NORM:
    case TSR_MODEL_PART_ATTN_IN:
    case TSR_MODEL_PART_ATTN_OUT:
    case TSR_MODEL_PART_FFN_IN:
    case TSR_MODEL_PART_FFN_OUT:
    case TSR_MODEL_PART_Q_A_NORM:
    case TSR_MODEL_PART_KV_A_NORM:
    case TSR_MODEL_PART_Q_NORM:
    case TSR_MODEL_PART_K_NORM:
        norm = true;
        break;
    }
    if ((m->c->has & r->weight) == r->weight) {
        (void)snprintf(name, sizeof name, "%s.weight", base);
        if (norm)
            tensor(m, name, 0, width, hp->norm_gain_offset > 0 ? 0 : 1, 0.1);
        else
            tensor(m, name, rows, cols, 0, cols > 1024 ? 1.5 / sqrt((double)cols) : 1.5 / 16);
    }
    if ((m->c->has & r->bias) == r->bias) {
        (void)snprintf(name, sizeof name, "%s.bias", base);
        tensor(m, name, 0, norm ? width : rows, 0, 0.2);
    }
}

void wide_write(const char *name, const char *folder)
{
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_model_config c = { 0 };
    struct maker            m = { .c = &c };
    const char             *text = config_of(name);
    char                    path[512];
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    must(tsr_model_config_parse(&c, name, text, strlen(text), &e.err), &e);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    must(tsr_safetensors_create(&m.out, path, &e.err), &e);
    for (int pass = 0; pass < 2; pass++) {
        m.writing = pass == 1;
        m.n = 0;
        for (uint32_t i = 0; i < c.family->n_roles; i++) {
            const struct tsr_model_role *r = &c.family->roles[i];
            bool                         layered = strchr(r->name, '#') != NULL;
            for (uint64_t l = 0; l < (layered ? c.hp.layers : 1); l++)
                put_role(&m, r, l);
        }
        if (pass == 0)
            must(tsr_safetensors_begin(m.out, &e.err), &e);
    }
    must(tsr_safetensors_commit(m.out, &e.err), &e);
    tsr_model_config_free(&c);
}

struct tsr_model *wide_load(const char *name, bool streamed, char folder[64])
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    (void)snprintf(folder, 64, "/tmp/tessera-wide-XXXXXX");
    assert_non_null(mkdtemp(folder));
    wide_write(name, folder);
    must(streamed ? tsr_model_load_streamed(&m, folder, &e.err)
                  : tsr_model_load(&m, folder, false, &e.err),
         &e);
    return m;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st;
    (void)flag;
    (void)w;
    return remove(path);
}

void wide_free(struct tsr_model *m, const char *folder)
{
    tsr_model_destroy(m);
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct tsr_model_overlay *wide_pack(struct tsr_registry *r, const struct tsr_model *m,
                                    const char *scheme)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    char                      folder[] = "/tmp/tessera-wide-pack-XXXXXX";
    struct tsr_config_doc    *doc = NULL;
    struct tsr_diag          *d = NULL;
    struct tsr_quant_scheme  *s = NULL;
    struct tsr_model_overlay *o = NULL;
    uint64_t                  done = 0;
    assert_non_null(mkdtemp(folder));
    must(tsr_config_diag_create(&d, &e.err), &e);
    must(tsr_config_doc_parse(&doc, "scheme", scheme, strlen(scheme), d, &e.err), &e);
    must(tsr_quant_scheme_create(&s, r, tsr_config_doc_root(doc), NULL, "the scheme", d, &e.err),
         &e);
    must(tsr_config_diag_status(d, &e.err), &e);
    struct tsr_quantize_options qo = { .folder = folder, .options = tsr_config_doc_root(doc) };
    must(tsr_quantize_model(s, r, m, &qo, &o, &done, &e.err), &e);
    tsr_quant_scheme_destroy(s);
    tsr_config_diag_destroy(d);
    tsr_config_doc_destroy(doc);
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return o;
}
