/* Every golden folder loads, its numbers are those of config.json, and every view points at the
 * stored values, read here a second time by themselves. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/config.h"
#include "model/model.h"
#include "tessera/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN TSR_SOURCE_ROOT "/tests/golden/models/"

static struct tsr_model *load(const char *name, bool headers_only)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    char             *path = tsr_path_join(GOLDEN, name);
    assert_non_null(path);
    if (tsr_model_load(&m, path, headers_only, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    free(path);
    return m;
}

/* A stored tensor of a folder as floats, whatever shard it is in. */
static float *stored(const char *model, const char *name, uint64_t *n)
{
    static const char *const files[] = {
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tsr_errbuf      e = TSR_ERRBUF(e);
        struct tsr_safetensors st;
        char                   path[512];
        (void)snprintf(path, sizeof path, GOLDEN "%s/%s", model, files[i]);
        if (!tsr_path_exists(path))
            continue;
        if (tsr_safetensors_open(&st, path, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&st, name);
        if (!t) {
            tsr_safetensors_close(&st);
            continue;
        }
        *n = (t->end - t->begin) / tsr_dtype_size(t->dtype);
        void  *raw = malloc(t->end - t->begin);
        float *f = malloc(*n * sizeof *f);
        assert_non_null(raw);
        assert_non_null(f);
        assert_int_equal(tsr_safetensors_read(&st, t, raw, &e.err), TSR_OK);
        tsr_widen(f, raw, t->dtype, *n);
        free(raw);
        tsr_safetensors_close(&st);
        return f;
    }
    fail_msg("%s: no tensor %s", model, name);
    return NULL;
}

/* Rows of a view as floats, compared by bits with rows [first..) of what is stored; step is the
 * distance, in rows, between blocks of `block` rows. */
static void check_rows(const struct tsr_matrix *m, const float *want, uint64_t first,
                       uint64_t block, uint64_t step)
{
    float *row = malloc(m->cols * sizeof *row);
    assert_non_null(row);
    assert_non_null(m->data);
    for (uint64_t r = 0; r < m->rows; r++) {
        uint64_t from = first + r / block * step + r % block;
        tsr_widen(row, (const char *)m->data + r * m->row_stride, m->dtype, m->cols);
        assert_memory_equal(row, want + from * m->cols, m->cols * sizeof *row);
    }
    free(row);
}

static void check_whole(const char *model, const struct tsr_matrix *m, const char *name)
{
    uint64_t n;
    float   *want = stored(model, name, &n);
    assert_int_equal(n, m->rows * m->cols);
    check_rows(m, want, 0, m->rows, m->rows);
    free(want);
}

static void check_vector(const char *model, const float *v, const char *name, uint64_t expect)
{
    uint64_t n;
    float   *want = stored(model, name, &n);
    assert_int_equal(n, expect);
    assert_non_null(v);
    assert_memory_equal(v, want, n * sizeof *v);
    free(want);
}

static void test_all_load(void **state)
{
    (void)state;
    static const struct {
        const char *name, *family;
        uint64_t    layers, hidden, ffn, max;
        uint32_t    heads, kv, dim;
        bool        tied;
        uint32_t    windows[4];
    } want[] = {
        { "bloom", "bloom", 3, 64, 256, 2048, 4, 4, 16, true, { 0 } },
        { "bloom-6heads", "bloom", 2, 96, 384, 2048, 6, 6, 16, true, { 0 } },
        { "gemma2", "gemma2", 4, 64, 128, 256, 4, 2, 32, true, { 16, 0, 16, 0 } },
        { "llama-linear-rope-bias", "llama", 2, 48, 96, 256, 3, 1, 32, false, { 0 } },
        { "llama2", "llama", 3, 64, 176, 256, 4, 4, 16, false, { 0 } },
        { "llama3", "llama", 3, 64, 192, 512, 8, 2, 8, true, { 0 } },
        { "mistral", "mistral", 3, 64, 160, 512, 4, 2, 32, false, { 16, 16, 16 } },
        { "mistral-nowindow", "mistral", 2, 64, 160, 512, 4, 4, 16, false, { 0 } },
        { "opt", "opt", 3, 64, 192, 128, 4, 4, 16, true, { 0 } },
        { "opt-350m-style", "opt", 3, 64, 128, 128, 4, 4, 16, true, { 0 } },
        { "phi3", "phi3", 3, 64, 160, 256, 4, 4, 16, false, { 20, 20, 20 } },
        { "phi3-longrope", "phi3", 2, 64, 160, 256, 4, 2, 16, false, { 0 } },
        { "qwen2", "qwen2", 3, 64, 144, 512, 4, 2, 16, true, { 0 } },
        { "qwen2-untied", "qwen2", 4, 64, 144, 512, 8, 4, 8, false, { 0, 0, 12, 12 } },
        { "stories260k", "llama", 5, 64, 172, 512, 8, 4, 8, true, { 0 } },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct tsr_model               *m = load(want[i].name, false);
        const struct tsr_model_hparams *hp = &m->hp;
        assert_string_equal(m->family, want[i].family);
        assert_int_equal(hp->vocab, strcmp(want[i].name, "stories260k") == 0 ? 512 : 320);
        assert_int_equal(hp->layers, want[i].layers);
        assert_int_equal(hp->hidden, want[i].hidden);
        assert_int_equal(hp->ffn, want[i].ffn);
        assert_int_equal(hp->max_positions, want[i].max);
        assert_int_equal(hp->heads, want[i].heads);
        assert_int_equal(hp->kv_heads, want[i].kv);
        assert_int_equal(hp->head_dim, want[i].dim);
        assert_int_equal(hp->tied, want[i].tied);
        assert_int_equal(hp->bos, 1);
        bool list = strcmp(want[i].name, "stories260k") == 0; /* its generation_config.json wins */
        assert_int_equal(hp->n_eos, list ? 2 : 1);
        assert_int_equal(hp->eos[0], 2);
        if (list)
            assert_int_equal(hp->eos[1], 1);
        for (uint64_t l = 0; l < hp->layers && l < 4; l++)
            assert_int_equal(hp->window[l], want[i].windows[l]);
        for (uint64_t l = 0; l < hp->layers; l++) {
            for (unsigned k = 0; k < TSR_MODEL_LINEARS; k++) {
                const struct tsr_matrix *w = &m->layers[l].lin[k].w;
                assert_int_equal(w->data != NULL, k != TSR_MODEL_GATE || hp->gated);
                char name[64];
                (void)snprintf(name, sizeof name, "model.layers.%d.%s.%s", (int)l,
                               k <= TSR_MODEL_O ? "self_attn" : "mlp", tsr_model_linear_name(k));
                assert_string_equal(w->name, name);
            }
        }
        assert_int_equal(m->hash[strlen("xxh3:") + 32], '\0');
        struct tsr_model *headers = load(want[i].name, true);
        assert_int_equal(headers->parameters, m->parameters);
        assert_int_equal(headers->bytes, m->bytes);
        assert_null(headers->layers[0].lin[TSR_MODEL_Q].w.data);
        assert_int_equal(headers->layers[0].lin[TSR_MODEL_Q].w.rows, hp->heads * hp->head_dim);
        tsr_model_destroy(headers);
        struct tsr_model *again = load(want[i].name, false);
        assert_string_equal(again->hash, m->hash);
        tsr_model_destroy(again);
        tsr_model_destroy(m);
    }
}

static void test_llama(void **state)
{
    (void)state;
    struct tsr_model *m = load("llama2", false);
    check_whole("llama2", &m->embed, "model.embed_tokens.weight");
    check_whole("llama2", &m->head.w, "lm_head.weight");
    check_whole("llama2", &m->layers[2].lin[TSR_MODEL_DOWN].w,
                "model.layers.2.mlp.down_proj.weight");
    check_vector("llama2", m->layers[1].ffn_in.gain,
                 "model.layers.1.post_attention_layernorm.weight", 64);
    assert_null(m->layers[0].lin[TSR_MODEL_Q].bias);
    assert_null(m->final_norm.bias);
    assert_int_equal(m->hp.rope.scaling, TSR_MODEL_ROPE_NONE);
    assert_int_equal(m->hp.rope.dim, 16);
    assert_true(m->hp.attn_scale == 0.25f);
    assert_int_equal(m->hp.norm, TSR_NORM_RMS);
    assert_int_equal(m->hp.func, TSR_FUNC_SILU);
    assert_true(m->hp.norm_eps == 1e-5f);
    tsr_model_destroy(m);

    m = load("llama3", false);
    const struct tsr_model_rope *r = &m->hp.rope;
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_LLAMA3);
    assert_true(r->theta == 500000.0 && r->factor == 8.0 && r->low_freq_factor == 1.0);
    assert_true(r->high_freq_factor == 4.0 && r->original_positions == 64);
    assert_ptr_equal(m->head.w.data, m->embed.data);
    check_whole("llama3", &m->layers[1].lin[TSR_MODEL_K].w,
                "model.layers.1.self_attn.k_proj.weight");
    tsr_model_destroy(m);

    m = load("llama-linear-rope-bias", false);
    assert_int_equal(m->hp.rope.scaling, TSR_MODEL_ROPE_LINEAR);
    assert_true(m->hp.rope.factor == 4.0);
    check_vector("llama-linear-rope-bias", m->layers[1].lin[TSR_MODEL_O].bias,
                 "model.layers.1.self_attn.o_proj.bias", 48);
    check_vector("llama-linear-rope-bias", m->layers[1].lin[TSR_MODEL_GATE].bias,
                 "model.layers.1.mlp.gate_proj.bias", 96);
    tsr_model_destroy(m);
}

static void test_qwen2(void **state)
{
    (void)state;
    struct tsr_model *m = load("qwen2-untied", false);
    check_vector("qwen2-untied", m->layers[3].lin[TSR_MODEL_V].bias,
                 "model.layers.3.self_attn.v_proj.bias", 32);
    assert_null(m->layers[3].lin[TSR_MODEL_O].bias);
    assert_true(m->hp.rope.theta == 1000000.0);
    tsr_model_destroy(m);
}

static void test_gemma2(void **state)
{
    (void)state;
    struct tsr_model *m = load("gemma2", false);
    assert_int_equal(m->hp.norm_place, TSR_MODEL_NORM_AROUND);
    assert_true(m->hp.norm_gain_offset == 1.0f && m->hp.embed_scale == 8.0f);
    assert_true(fabs((double)m->hp.attn_scale - 1.0 / sqrt(24.0)) < 1e-8);
    assert_true(m->hp.attn_softcap == 50.0f && m->hp.logit_softcap == 30.0f);
    assert_int_equal(m->hp.func, TSR_FUNC_GELU_TANH);
    check_vector("gemma2", m->layers[1].attn_out.gain,
                 "model.layers.1.post_attention_layernorm.weight", 64);
    check_vector("gemma2", m->layers[1].ffn_in.gain,
                 "model.layers.1.pre_feedforward_layernorm.weight", 64);
    check_vector("gemma2", m->layers[1].ffn_out.gain,
                 "model.layers.1.post_feedforward_layernorm.weight", 64);
    tsr_model_destroy(m);
}

static void test_opt(void **state)
{
    (void)state;
    struct tsr_model *m = load("opt", false);
    assert_int_equal(m->hp.position_offset, 2);
    assert_int_equal(m->hp.positions, TSR_MODEL_POSITIONS_LEARNED);
    assert_int_equal(m->positions.rows, 130);
    assert_int_equal(m->hp.func, TSR_FUNC_RELU);
    assert_int_equal(m->hp.norm, TSR_NORM_LAYER);
    assert_false(m->hp.gated);
    check_vector("opt", m->final_norm.bias, "model.decoder.final_layer_norm.bias", 64);
    check_vector("opt", m->layers[2].ffn_in.bias, "model.decoder.layers.2.final_layer_norm.bias",
                 64);
    check_vector("opt", m->layers[2].lin[TSR_MODEL_UP].bias, "model.decoder.layers.2.fc1.bias",
                 192);
    assert_null(m->project_in.w.data);
    tsr_model_destroy(m);

    m = load("opt-350m-style", false);
    assert_int_equal(m->hp.norm_place, TSR_MODEL_NORM_AFTER);
    assert_int_equal(m->hp.embed_dim, 32);
    assert_null(m->final_norm.gain);
    check_whole("opt-350m-style", &m->project_in.w, "model.decoder.project_in.weight");
    check_whole("opt-350m-style", &m->project_out.w, "model.decoder.project_out.weight");
    assert_int_equal(m->head.w.cols, 32);
    tsr_model_destroy(m);
}

/* query_key_value is [head][q,k,v][head_dim]. */
static void check_bloom(const char *name, const char *prefix, uint64_t heads)
{
    struct tsr_model *m = load(name, false);
    assert_int_equal(m->hp.positions, TSR_MODEL_POSITIONS_ALIBI);
    assert_int_equal(m->hp.func, TSR_FUNC_GELU_TANH);
    assert_non_null(m->embed_norm.gain);
    for (unsigned l = 0; l < m->hp.layers; l++) {
        char     key[128];
        uint64_t n;
        (void)snprintf(key, sizeof key, "%sh.%u.self_attention.query_key_value.weight", prefix, l);
        float *w = stored(name, key, &n);
        (void)snprintf(key, sizeof key, "%sh.%u.self_attention.query_key_value.bias", prefix, l);
        float *bias = stored(name, key, &n);
        assert_int_equal(n, 3 * heads * 16);
        for (unsigned part = TSR_MODEL_Q; part <= TSR_MODEL_V; part++) {
            const struct tsr_model_linear *lin = &m->layers[l].lin[part];
            check_rows(&lin->w, w, part * 16, 16, 48);
            for (uint64_t i = 0; i < heads * 16; i++)
                assert_memory_equal(&lin->bias[i], &bias[i / 16 * 48 + part * 16 + i % 16],
                                    sizeof *bias);
        }
        free(w);
        free(bias);
    }
    tsr_model_destroy(m);
}

static void test_bloom(void **state)
{
    (void)state;
    check_bloom("bloom", "", 4);
    check_bloom("bloom-6heads", "transformer.", 6);
}

static void test_phi3(void **state)
{
    (void)state;
    struct tsr_model *m = load("phi3-longrope", false);
    for (unsigned l = 0; l < m->hp.layers; l++) {
        const struct tsr_model_layer *layer = &m->layers[l];
        char                          key[96];
        uint64_t                      n;
        (void)snprintf(key, sizeof key, "model.layers.%u.self_attn.qkv_proj.weight", l);
        float *w = stored("phi3-longrope", key, &n);
        check_rows(&layer->lin[TSR_MODEL_Q].w, w, 0, 64, 64);
        check_rows(&layer->lin[TSR_MODEL_K].w, w, 64, 32, 32);
        check_rows(&layer->lin[TSR_MODEL_V].w, w, 96, 32, 32);
        free(w);
        (void)snprintf(key, sizeof key, "model.layers.%u.mlp.gate_up_proj.weight", l);
        w = stored("phi3-longrope", key, &n);
        check_rows(&layer->lin[TSR_MODEL_GATE].w, w, 0, 160, 160);
        check_rows(&layer->lin[TSR_MODEL_UP].w, w, 160, 160, 160);
        free(w);
    }
    const struct tsr_model_rope *r = &m->hp.rope;
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_LONG);
    assert_int_equal(r->original_positions, 32);
    assert_true(r->short_factor[7] == 1.6f && r->long_factor[6] == 8.0f);
    /* sqrt(1 + ln(256/32) / ln 32) = sqrt(1.6) */
    assert_true(fabs(r->attention_factor - sqrt(1.6)) < 1e-12);
    tsr_model_destroy(m);
}

/* A Llama config with more members. */
static void parse(struct tsr_model_config *c, const char *architecture, const char *more)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              text[1024];
    int               n = snprintf(text, sizeof text,
                                   "{\"architectures\":[\"%s\"],\"vocab_size\":8,\"hidden_size\":64,"
                                                 "\"intermediate_size\":8,\"num_hidden_layers\":2,"
                                                 "\"num_attention_heads\":4,\"num_key_value_heads\":2%s}",
                                   architecture, more);
    if (tsr_model_config_parse(c, "config.json", text, (uint64_t)n, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static void test_rope(void **state)
{
    (void)state;
    struct tsr_model_config      c;
    const struct tsr_model_rope *r = &c.hp.rope;
    static const char            llama[] = "LlamaForCausalLM";
    parse(&c, llama,
          ",\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"yarn\","
          "\"factor\":4.0,\"original_max_position_embeddings\":1024}");
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_YARN);
    assert_true(r->beta_fast == 32.0 && r->beta_slow == 1.0 && r->factor == 4.0);
    assert_true(fabs(r->attention_factor - (0.1 * log(4.0) + 1.0)) < 1e-12);
    assert_int_equal(r->original_positions, 1024);
    tsr_model_config_free(&c);
    parse(&c, llama,
          ",\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2,"
          "\"rope_theta\":5e5},\"max_position_embeddings\":99");
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_DYNAMIC_NTK);
    assert_true(r->theta == 5e5);
    assert_int_equal(r->original_positions, 99);
    tsr_model_config_free(&c);
    /* where both styles stand, the older wins, as in the reference */
    parse(&c, llama,
          ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":3},\"rope_theta\":7e4,"
          "\"rope_parameters\":{\"rope_type\":\"default\"}");
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_LINEAR);
    assert_true(r->factor == 3.0 && r->theta == 7e4);
    tsr_model_config_free(&c);
    /* Phi-3: "su" is long rope, a part of the head rotates, the top level's length wins */
    parse(&c, "Phi3ForCausalLM",
          ",\"partial_rotary_factor\":0.75,\"max_position_embeddings\":128,"
          "\"original_max_position_embeddings\":16,\"rope_scaling\":{\"type\":\"su\","
          "\"short_factor\":[1,1,1,1,1,1],\"long_factor\":[2,2,2,2,2,2.5],"
          "\"original_max_position_embeddings\":32}");
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_LONG);
    assert_int_equal(r->dim, 12);
    assert_int_equal(r->original_positions, 16);
    assert_true(fabs(r->attention_factor - sqrt(1.75)) < 1e-12); /* 1 + ln 8 / ln 16 */
    assert_true(r->long_factor[5] == 2.5f && r->long_ratio == 1);
    tsr_model_config_free(&c);
    /* Phi-3.5-MoE: numbers in place of the computed factor */
    parse(&c, "PhimoeForCausalLM",
          ",\"max_position_embeddings\":128,\"rope_scaling\":{\"type\":\"longrope\","
          "\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[2,2,2,2,2,2,2,2],"
          "\"short_mscale\":1.25,\"long_mscale\":1.5,\"original_max_position_embeddings\":32}");
    assert_true(r->attention_factor == 1.25 && r->long_ratio == 1.2f);
    tsr_model_config_free(&c);
    /* yarn: 0 and null are the default */
    parse(&c, llama,
          ",\"rope_scaling\":{\"type\":\"yarn\",\"beta_fast\":0,\"beta_slow\":null,"
          "\"factor\":4.0,\"original_max_position_embeddings\":1024}");
    assert_true(r->beta_fast == 32.0 && r->beta_slow == 1.0);
    tsr_model_config_free(&c);
    /* gpt-oss: a config without an object means yarn, one that states a law means that */
    parse(&c, "GptOssForCausalLM", ",\"rope_theta\":5000");
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_YARN);
    assert_true(r->theta == 5000 && r->factor == 32.0 && !r->whole_ramp);
    assert_int_equal(r->original_positions, 4096);
    tsr_model_config_free(&c);
    parse(&c, "GptOssForCausalLM", ",\"rope_parameters\":{\"rope_type\":\"default\"}");
    assert_int_equal(r->scaling, TSR_MODEL_ROPE_NONE);
    tsr_model_config_free(&c);
}

/* What the reference assumes for keys that a config leaves out or sets to null. */
static void test_defaults(void **state)
{
    (void)state;
    struct tsr_model_config c;
    parse(&c, "MistralForCausalLM", "");
    assert_int_equal(c.hp.window[1], 4096);
    assert_int_equal(c.hp.max_positions, 131072);
    assert_false(c.hp.tied);
    tsr_model_config_free(&c);
    parse(&c, "MistralForCausalLM", ",\"sliding_window\":null,\"eos_token_id\":null");
    assert_int_equal(c.hp.window[1], 0);
    assert_int_equal(c.hp.n_eos, 0);
    tsr_model_config_free(&c);
    parse(&c, "Gemma2ForCausalLM", ",\"attn_logit_softcapping\":null");
    assert_int_equal(c.hp.head_dim, 256);
    assert_true(c.hp.tied && c.hp.attn_softcap == 0.0f && c.hp.logit_softcap == 30.0f);
    assert_true(c.hp.attn_scale == 0.0625f);
    assert_int_equal(c.hp.window[0], 4096);
    assert_int_equal(c.hp.window[1], 0);
    tsr_model_config_free(&c);
    parse(&c, "Qwen2ForCausalLM", ",\"use_sliding_window\":true,\"max_window_layers\":1");
    assert_int_equal(c.hp.window[0], 0);
    assert_int_equal(c.hp.window[1], 4096);
    assert_int_equal(c.hp.bos, -1);
    tsr_model_config_free(&c);
    parse(&c, "Qwen2ForCausalLM", ",\"sliding_window\":7,\"max_window_layers\":0");
    assert_int_equal(c.hp.window[1], 0); /* not in use */
    tsr_model_config_free(&c);
}

static void test_demo(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    if (tsr_model_load(&m, "@demo", true, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_string_equal(m->path, "@demo");
    assert_int_equal(m->hp.vocab, 4096);
    assert_int_equal(m->hp.bos, 4094);
    tsr_model_destroy(m);
    assert_int_equal(tsr_model_load(&m, "@other", true, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "@other", NULL));
    assert_int_equal(tsr_model_load(&m, "/no/such/folder", true, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "/no/such/folder", NULL));
}

static void test_families(void **state)
{
    (void)state;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_model_family *f, *same;
    uint64_t                       n = 0;
    for (;; n++) {
        assert_int_equal(tsr_model_family_at(n, &f, &e.err), TSR_OK);
        if (!f)
            break;
        assert_true(*f->summary && f->n_roles > 0);
        assert_int_equal(tsr_model_family_find(&same, f->architectures[0], NULL, &e.err), TSR_OK);
        assert_ptr_equal(f, same);
    }
    assert_true(n >= 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_load), cmocka_unit_test(test_llama),
        cmocka_unit_test(test_qwen2),    cmocka_unit_test(test_gemma2),
        cmocka_unit_test(test_opt),      cmocka_unit_test(test_bloom),
        cmocka_unit_test(test_phi3),     cmocka_unit_test(test_rope),
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_demo),
        cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
