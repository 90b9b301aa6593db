/* Model folders that are wrong in one way each: every one is refused as bad input, in a sentence
 * that names the file or tensor, and leaves no descriptor open.  Each folder is made here from a
 * tiny Llama that loads. */
#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/model.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static char folder[64];

#define SIZES "\"vocab_size\":8,\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,"
#define HEADS "\"num_attention_heads\":2,\"num_key_value_heads\":1"
#define ARCH  "\"architectures\":[\"LlamaForCausalLM\"],"
#define GOOD  "{" ARCH SIZES HEADS "}"

struct shape {
    const char *name;
    uint32_t    dtype, rank;
    uint64_t    shape[2];
};
static const struct shape tiny[] = {
    { "lm_head.weight", TSR_F32, 2, { 8, 4 } },
    { "model.embed_tokens.weight", TSR_F32, 2, { 8, 4 } },
    { "model.layers.0.input_layernorm.weight", TSR_F16, 1, { 4, 0 } },
    { "model.layers.0.mlp.down_proj.weight", TSR_BF16, 2, { 4, 6 } },
    { "model.layers.0.mlp.gate_proj.weight", TSR_F32, 2, { 6, 4 } },
    { "model.layers.0.mlp.up_proj.weight", TSR_F32, 2, { 6, 4 } },
    { "model.layers.0.post_attention_layernorm.weight", TSR_F32, 1, { 4, 0 } },
    { "model.layers.0.self_attn.k_proj.weight", TSR_F32, 2, { 2, 4 } },
    { "model.layers.0.self_attn.o_proj.weight", TSR_F32, 2, { 4, 4 } },
    { "model.layers.0.self_attn.q_proj.weight", TSR_F32, 2, { 4, 4 } },
    { "model.layers.0.self_attn.v_proj.weight", TSR_F32, 2, { 2, 4 } },
    { "model.norm.weight", TSR_F32, 1, { 4, 0 } },
};

static char *at(const char *name)
{
    static char path[3][400];
    static int  next;
    char       *p = path[next++ % 3];
    (void)snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void put_bytes(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void put_tensors(const char *file, const struct shape *t, size_t n)
{
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct tsr_st_out *o;
    uint64_t           bytes = 0;
    static const char  zero[1024];
    assert_int_equal(tsr_safetensors_create(&o, at(file), &e.err), TSR_OK);
    for (size_t i = 0; i < n; i++) {
        uint64_t b = t[i].dtype == TSR_F32 ? 4 : t[i].dtype == TSR_I8 ? 1 : 2;
        for (uint32_t d = 0; d < t[i].rank; d++)
            b *= t[i].shape[d];
        bytes += b;
        assert_int_equal(tsr_safetensors_declare(o, t[i].name, t[i].dtype, t[i].rank, t[i].shape,
                                                 &e.err),
                         TSR_OK);
    }
    assert_int_equal(tsr_safetensors_begin(o, &e.err), TSR_OK);
    assert_in_range(bytes, 0, sizeof zero);
    tsr_safetensors_put(o, zero, bytes);
    if (tsr_safetensors_commit(o, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static void empty_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            unlink(at(e->d_name)) != 0)
            (void)rmdir(at(e->d_name));
    closedir(d);
}

/* The folder as it should be. */
static void make_good(void)
{
    empty_folder();
    put("config.json", GOOD);
    put_tensors("model.safetensors", tiny, COUNT(tiny));
}

static int open_descriptors(void)
{
    int  n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static tsr_status load(struct tsr_errbuf *e)
{
    struct tsr_model *m = NULL;
    int               before = open_descriptors();
    tsr_status        st = tsr_model_load(&m, folder, false, &e->err);
    tsr_model_destroy(m);
    assert_int_equal(open_descriptors(), before);
    return st;
}

static void expect_good(void)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (load(&e) != TSR_OK)
        fail_msg("%s", e.text);
}

/* Refused with an error about this. */
static void expect_bad(const char *about, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = load(&e);
    if (st != TSR_E_INPUT)
        fail_msg("status %d instead of a refusal of \"%s\"", st, about);
    assert_true(error_is(&e.err, about, facts));
}

static void test_good(void **state)
{
    (void)state;
    make_good();
    expect_good();
    /* older files hold buffers that follow from config.json */
    struct shape t[COUNT(tiny) + 1];
    memcpy(t, tiny, sizeof tiny);
    t[COUNT(tiny)] =
        (struct shape){ "model.layers.0.self_attn.rotary_emb.inv_freq", TSR_F32, 1, { 1, 0 } };
    put_tensors("model.safetensors", t, COUNT(t));
    expect_good();
}

/* A text model in a wrapper: a stored copy of the embedding as head has the wrapper's prefix. */
static void test_wrapped_copy(void **state)
{
    (void)state;
    struct shape t[COUNT(tiny)];
    char         name[COUNT(tiny)][80];
    make_good();
    memcpy(t, tiny, sizeof tiny);
    for (size_t i = 0; i < COUNT(tiny); i++) {
        (void)snprintf(name[i], sizeof name[i], "language_model.%s", tiny[i].name);
        t[i].name = name[i];
    }
    put_tensors("model.safetensors", t, COUNT(t));
    put("config.json", "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],"
                       "\"text_config\":{" SIZES HEADS ",\"tie_word_embeddings\":true},"
                       "\"tie_word_embeddings\":true}");
    expect_good();
    /* no head and no flag: the wrapper ties by default; a flag of the text model does not untie it */
    put_tensors("model.safetensors", t + 1, COUNT(t) - 1);
    put("config.json", "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],"
                       "\"text_config\":{" SIZES HEADS "}}");
    expect_good();
    put("config.json", "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],"
                       "\"text_config\":{" SIZES HEADS ",\"tie_word_embeddings\":false}}");
    expect_good();
    put("config.json", "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],"
                       "\"text_config\":{" SIZES HEADS ",\"tie_word_embeddings\":true},"
                       "\"tie_word_embeddings\":false}");
    expect_bad(folder, "language_model.lm_head.weight");
}

/* Spellings that are right too: tied without a head, names without prefix. */
static void test_variants(void **state)
{
    (void)state;
    static const struct shape opt[] = {
        { "decoder.embed_positions.weight", TSR_F32, 2, { 10, 4 } },
        { "decoder.embed_tokens.weight", TSR_F32, 2, { 8, 4 } },
        { "decoder.layers.0.fc1.weight", TSR_F32, 2, { 6, 4 } },
        { "decoder.layers.0.fc2.weight", TSR_F32, 2, { 4, 6 } },
        { "decoder.layers.0.self_attn.k_proj.weight", TSR_F32, 2, { 4, 4 } },
        { "decoder.layers.0.self_attn.out_proj.weight", TSR_F32, 2, { 4, 4 } },
        { "decoder.layers.0.self_attn.q_proj.weight", TSR_F32, 2, { 4, 4 } },
        { "decoder.layers.0.self_attn.v_proj.weight", TSR_F32, 2, { 4, 4 } },
        { "decoder.version", TSR_F32, 1, { 1, 0 } },
    };
    struct shape      t[COUNT(tiny)];
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *m = NULL;
    make_good();
    memcpy(t, tiny, sizeof tiny);
    for (size_t i = 1; i < COUNT(tiny); i++)
        t[i].name += strlen("model.");
    put_tensors("model.safetensors", t + 1, COUNT(tiny) - 1);
    put("config.json", "{" ARCH SIZES HEADS ",\"tie_word_embeddings\":true}");
    expect_good();
    /* OPT without biases and without gains: norms are gain 1 and bias 0, the final one too */
    put_tensors("model.safetensors", opt, COUNT(opt));
    put("config.json", "{\"model_type\":\"opt\"," SIZES "\"num_attention_heads\":2,\"ffn_dim\":6,"
                       "\"max_position_embeddings\":8,\"enable_bias\":false,"
                       "\"layer_norm_elementwise_affine\":false,\"activation_function\":\"gelu\"}");
    if (tsr_model_load(&m, folder, false, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    const struct tsr_model_norm *norms[] = { &m->layers[0].attn_in, &m->layers[0].ffn_in,
                                             &m->final_norm };
    for (size_t i = 0; i < COUNT(norms); i++)
        for (int k = 0; k < 4; k++)
            assert_true(norms[i]->gain[k] == 1.0f && norms[i]->bias[k] == 0.0f);
    assert_null(m->layers[0].lin[TSR_MODEL_Q].bias);
    tsr_model_destroy(m);
}

static void test_config(void **state)
{
    (void)state;
    static const struct {
        const char *config, *about, *facts;
    } cases[] = {
        { "", "config.json:1", NULL },
        { "[]", "config.json", NULL },
        { "{", "config.json:1:1", NULL },
        { "{}", "config.json", "architectures model_type" },
        { "{\"architectures\":[\"XForCausalLM\"]}", "config.json", "XForCausalLM" },
        { "{\"architectures\":[\"XForCausalLM\"],\"model_type\":\"llama\"}", "config.json",
          "inspect models" },
        { "{\"model_type\":\"bert\"}", "config.json", "model_type bert" },
        { "{\"model_type\":\"be\\nrt\"}", "config.json", "model_type be?rt" },
        { "{\"architectures\":[7]}", "config.json", "architectures" },
        { "{\"architectures\":\"LlamaForCausalLM\"}", "config.json", "architectures" },
        { "{" ARCH SIZES "\"a\":0}", "config.json", "num_attention_heads" },
        { "{" ARCH HEADS "}", "config.json", "vocab_size" },
        { "{" ARCH SIZES HEADS ",\"vocab_size\":9}", "config.json:1:173", NULL },
        { "{" ARCH SIZES "\"num_attention_heads\":0}", "config.json", "num_attention_heads" },
        { "{" ARCH SIZES "\"num_attention_heads\":-1}", "config.json", "num_attention_heads" },
        { "{" ARCH SIZES "\"num_attention_heads\":1.5}", "config.json", "num_attention_heads" },
        { "{" ARCH SIZES "\"num_attention_heads\":\"2\"}", "config.json", "num_attention_heads" },
        { "{" ARCH SIZES "\"num_attention_heads\":1e400}", "config.json:1:140", NULL },
        { "{" ARCH SIZES "\"num_attention_heads\":99999999999999999999}", "config.json:1:155",
          NULL },
        { "{" ARCH SIZES "\"num_attention_heads\":3}", "config.json", "3" },
        { "{" ARCH SIZES "\"num_attention_heads\":2,\"num_key_value_heads\":3}", "config.json",
          "2 3" },
        { "{" ARCH SIZES "\"num_attention_heads\":16384,\"head_dim\":4194304}", "config.json",
          "16384 4194304" },
        { "{" ARCH SIZES HEADS ",\"head_dim\":0}", "config.json", "head_dim" },
        { "{" ARCH SIZES HEADS ",\"head_dim\":3}", "config.json", "3" },
        { "{" ARCH SIZES HEADS ",\"rms_norm_eps\":-1}", "config.json", "rms_norm_eps" },
        { "{" ARCH SIZES HEADS ",\"rms_norm_eps\":\"x\"}", "config.json", "rms_norm_eps" },
        { "{" ARCH SIZES HEADS ",\"hidden_act\":\"quick_gelu\"}", "config.json", "quick_gelu" },
        { "{" ARCH SIZES HEADS ",\"hidden_act\":1}", "config.json", "hidden_act" },
        { "{" ARCH SIZES HEADS ",\"attention_bias\":1}", "config.json", "attention_bias" },
        { "{" ARCH SIZES HEADS ",\"tie_word_embeddings\":\"no\"}", "config.json",
          "tie_word_embeddings" },
        { "{" ARCH SIZES HEADS ",\"rope_theta\":0}", "config.json", "rope_theta" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":3}", "config.json", "rope_scaling" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"type\":\"mrope\"}}", "config.json", "mrope" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"type\":\"linear\"}}", "config.json",
          "factor" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2,"
          "\"low_freq_factor\":4,\"high_freq_factor\":1,\"original_max_position_embeddings\":8}}",
          "config.json", "high_freq_factor" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2,"
          "\"low_freq_factor\":1,\"high_freq_factor\":4}}",
          "config.json", "original_max_position_embeddings" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2],"
          "\"long_factor\":[1],\"original_max_position_embeddings\":8}}",
          "config.json", "short_factor 2" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],"
          "\"long_factor\":[0],\"original_max_position_embeddings\":8}}",
          "config.json", "long_factor\"[0]" },
        { "{\"architectures\":[\"Qwen3NextForCausalLM\"]," SIZES HEADS ",\"hidden_act\":\"gelu\"}",
          "config.json", "hidden_act" },
        { "{" ARCH SIZES HEADS ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":-1,"
          "\"original_max_position_embeddings\":8}}",
          "config.json", "beta_fast -1" },
        { "{" ARCH SIZES HEADS ",\"rope_parameters\":{\"full_attention\":{}}}", "config.json",
          "rope_parameters" },
        { "{" ARCH SIZES HEADS ",\"partial_rotary_factor\":0.5}", "config.json",
          "partial_rotary_factor" },
        { "{" ARCH SIZES HEADS ",\"quantization_config\":{\"quant_method\":\"gptq\"}}",
          "config.json: \"quantization_config\" (gptq)", "bits" },
        { "{" ARCH SIZES HEADS ",\"eos_token_id\":\"</s>\"}", "config.json", "eos_token_id" },
        { "{" ARCH SIZES HEADS ",\"eos_token_id\":[1,-2]}", "config.json", "eos_token_id" },
        { "{" ARCH SIZES HEADS ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
          "config.json", "17" },
        { "{" ARCH SIZES HEADS ",\"bos_token_id\":-5}", "config.json", "bos_token_id" },
        { "{\"architectures\":[\"Qwen2ForCausalLM\"]," SIZES HEADS ",\"layer_types\":[]}",
          "config.json", "0 1" },
        { "{\"architectures\":[\"Qwen2ForCausalLM\"]," SIZES HEADS ",\"layer_types\":[\"linear\"]}",
          "config.json", "layer_types" },
        { "{\"architectures\":[\"Qwen2ForCausalLM\"]," SIZES HEADS
          ",\"layer_types\":[\"sliding_attention\"]}",
          "config.json", "sliding_window" },
        { "{\"architectures\":[\"Phi3ForCausalLM\"]," SIZES HEADS
          ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
          "config.json", "linear" },
        { "{\"architectures\":[\"OPTForCausalLM\"]," SIZES HEADS "}", "config.json", "ffn_dim" },
        { "{\"architectures\":[\"BloomForCausalLM\"]," SIZES HEADS "}", "",
          "transformer.word_embeddings.weight" },
    };
    make_good();
    for (size_t i = 0; i < COUNT(cases); i++) {
        put("config.json", cases[i].config);
        expect_bad(*cases[i].about ? cases[i].about : folder, cases[i].facts);
    }
    char deep[300];
    memset(deep, '[', sizeof deep);
    put_bytes("config.json", deep, sizeof deep);
    expect_bad("config.json", "64");
    put("config.json", GOOD);
    put("generation_config.json", "{\"eos_token_id\":{}}");
    expect_bad("generation_config.json", "eos_token_id");
    put("generation_config.json", "[");
    expect_bad("generation_config.json:1:1", NULL);
    put("generation_config.json", "[]");
    expect_bad("generation_config.json", NULL);
    make_good();
    assert_int_equal(unlink(at("config.json")), 0);
    expect_bad("config.json", NULL);
    assert_int_equal(mkdir(at("config.json"), 0700), 0);
    expect_bad("config.json", "folder");
}

static void test_tensors(void **state)
{
    (void)state;
    struct shape t[COUNT(tiny) + 1];
    make_good();
    for (size_t i = 0; i < COUNT(tiny); i++) { /* each one missing */
        memcpy(t, tiny, sizeof tiny);
        memmove(t + i, t + i + 1, (COUNT(tiny) - i - 1) * sizeof *t);
        put_tensors("model.safetensors", t, COUNT(tiny) - 1);
        expect_bad(folder, tiny[i].name);
    }
    for (size_t i = 0; i < COUNT(tiny); i++) { /* each one of another shape, rank or dtype */
        memcpy(t, tiny, sizeof tiny);
        t[i].shape[t[i].rank - 1]++;
        put_tensors("model.safetensors", t, COUNT(tiny));
        expect_bad("model.safetensors", tiny[i].name);
        t[i] = tiny[i];
        t[i].rank = 3 - t[i].rank;
        t[i].shape[1] = 1;
        put_tensors("model.safetensors", t, COUNT(tiny));
        expect_bad("model.safetensors", tiny[i].name);
        t[i] = tiny[i];
        t[i].dtype = TSR_I8;
        put_tensors("model.safetensors", t, COUNT(tiny));
        expect_bad("model.safetensors", tiny[i].name);
    }
    static const char *const strangers[] = {
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.q_proj.qweight",
        "visual.patch.weight",
        "model.layers.x.self_attn.rotary_emb.inv_freq",
    };
    memcpy(t, tiny, sizeof tiny);
    for (size_t i = 0; i < COUNT(strangers); i++) {
        t[COUNT(tiny)] = (struct shape){ strangers[i], TSR_F32, 1, { 4, 0 } };
        put_tensors("model.safetensors", t, COUNT(t));
        expect_bad("model.safetensors", strangers[i]);
    }
    /* tied: a stored head that is not the embedding is the model's own; one of another shape is none */
    put_tensors("model.safetensors", tiny, COUNT(tiny));
    put("config.json", "{" ARCH SIZES HEADS ",\"tie_word_embeddings\":true}");
    expect_good();
    char                  *text;
    uint64_t               n;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    assert_int_equal(tsr_safetensors_open(&st, at("model.safetensors"), &e.err), TSR_OK);
    uint64_t head = st.data_offset + tsr_safetensors_find(&st, "lm_head.weight")->end - 1;
    tsr_safetensors_close(&st);
    assert_int_equal(tsr_file_slurp(at("model.safetensors"), 1 << 20, &text, &n, &e.err), TSR_OK);
    text[head] ^= 1;
    put_bytes("model.safetensors", text, n);
    free(text);
    struct tsr_model *m = NULL;
    for (int headers = 0; headers < 2; headers++) {
        assert_int_equal(tsr_model_load(&m, at("."), headers, &e.err), TSR_OK);
        assert_false(m->hp.tied);
        if (!headers)
            assert_int_equal(memcmp(m->head.w.data, m->embed.data, 8 * 4 * sizeof(float) - 1), 0);
        tsr_model_destroy(m);
    }
    memcpy(t, tiny, sizeof tiny);
    for (size_t i = 0; i < COUNT(tiny); i++)
        if (strcmp(t[i].name, "lm_head.weight") == 0)
            t[i].shape[0] = 7;
    put_tensors("model.safetensors", t, COUNT(tiny));
    expect_bad("model.safetensors", "lm_head.weight");
}

/* A header of our own with `section` zero bytes behind it. */
static void put_header(const char *json, size_t n, size_t section)
{
    unsigned char *b = calloc(1, 8 + n + section);
    assert_non_null(b);
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(b + 8, json, n);
    put_bytes("model.safetensors", b, 8 + n + section);
    free(b);
}

static void test_headers(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t      section;
        const char *facts;
    } cases[] = {
        { "[]", 0, "{" },
        { "{\"w\":{\"dtype\":\"F32\",\"shape\":[4194305,4194305,211106198978564],"
          "\"data_offsets\":[0,16]}}",
          16, "2^64" },
        { "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "w 8 4" },
        { "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}", 9, "w 1 0" },
        { "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "1" },
        { "{\"w\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "w 0 29" },
        { "{\"w\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "w Q4" },
        { "{\"__metadata__\":{\"format\":1}}", 0, "__metadata__" },
    };
    make_good();
    for (size_t i = 0; i < COUNT(cases); i++) {
        put_header(cases[i].json, strlen(cases[i].json), cases[i].section);
        expect_bad("model.safetensors", cases[i].facts);
    }
    char *deep = malloc(1 << 20);
    assert_non_null(deep);
    memset(deep, '{', 1 << 20);
    put_header(deep, 1 << 20, 0);
    expect_bad("model.safetensors", "1");
    memcpy(deep, "{\"w\":", 5);
    memset(deep + 5, '[', (1 << 20) - 5);
    put_header(deep, 1 << 20, 0);
    expect_bad("model.safetensors", "5");
    free(deep);
    /* appended zip, ELF or text: one byte is as bad as many */
    make_good();
    FILE *f = fopen(at("model.safetensors"), "ab");
    assert_non_null(f);
    assert_int_equal(fputs("PK\3\4", f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
    expect_bad("model.safetensors", "4");
}

/* Every length but the right one. */
static void test_truncation(void **state)
{
    (void)state;
    make_good();
    struct stat st;
    assert_int_equal(stat(at("model.safetensors"), &st), 0);
    off_t size = st.st_size;
    for (off_t n = size - 1; n >= 0; n -= n > 64 && n < size - 64 ? 13 : 1) {
        assert_int_equal(truncate(at("model.safetensors"), n), 0);
        expect_bad("model.safetensors", NULL);
    }
    make_good();
    assert_int_equal(truncate(at("model.safetensors"), size + 1), 0);
    expect_bad("model.safetensors", "1");
}

static void test_places(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    make_good();
    assert_int_equal(unlink(at("model.safetensors")), 0);
    expect_bad(folder, "model.safetensors model.safetensors.index.json");
    put("pytorch_model.bin", "x");
    expect_bad(folder, "PyTorch");
    assert_int_equal(unlink(at("pytorch_model.bin")), 0);
    put("model.gguf", "GGUF");
    expect_bad(folder, "GGUF");
    put_tensors("model-00001-of-00002.safetensors", tiny, 1);
    expect_bad(folder, "model.safetensors model.safetensors.index.json");
    /* what is no file */
    assert_int_equal(mkfifo(at("model.safetensors"), 0600), 0);
    expect_bad("model.safetensors", "FIFO");
    assert_int_equal(unlink(at("model.safetensors")), 0);
    assert_int_equal(mkdir(at("model.safetensors"), 0700), 0);
    expect_bad("model.safetensors", "folder");
    assert_int_equal(rmdir(at("model.safetensors")), 0);
    assert_int_equal(symlink("/dev/zero", at("model.safetensors")), 0);
    expect_bad("model.safetensors", "/dev/zero");
    assert_int_equal(unlink(at("model.safetensors")), 0);
    assert_int_equal(symlink("/etc/passwd", at("model.safetensors")), 0);
    expect_bad("model.safetensors", "/etc/passwd");
    assert_int_equal(unlink(at("model.safetensors")), 0);
    assert_int_equal(symlink("nowhere", at("model.safetensors")), 0);
    expect_bad("model.safetensors", NULL);
    assert_int_equal(unlink(at("model.safetensors")), 0);
    put_tensors("weights", tiny, COUNT(tiny)); /* a link that stays inside is fine */
    assert_int_equal(symlink("weights", at("model.safetensors")), 0);
    expect_good();
    struct tsr_model *m = NULL;
    assert_int_equal(tsr_model_load(&m, at("config.json"), false, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "config.json", "config.json"));
}

#define A "model-00001-of-00002.safetensors"
#define B "model-00002-of-00002.safetensors"

/* The index with one line replaced; the first `cut` tensors are in A. */
static void put_index(size_t cut, size_t line, const char *name, const char *file)
{
    FILE *f = fopen(at("model.safetensors.index.json"), "w");
    assert_non_null(f);
    (void)fprintf(f, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (size_t i = 0; i < COUNT(tiny); i++)
        (void)fprintf(f, "%s\"%s\":\"%s\"", i ? "," : "", i == line && name ? name : tiny[i].name,
                      i == line && file ? file
                      : i < cut         ? A
                                        : B);
    (void)fprintf(f, "}}");
    assert_int_equal(fclose(f), 0);
}

static void test_shards(void **state)
{
    (void)state;
    static const char index[] = "model.safetensors.index.json";
    make_good();
    assert_int_equal(unlink(at("model.safetensors")), 0);
    put_tensors(A, tiny, 5);
    put_tensors(B, tiny + 5, COUNT(tiny) - 5);
    put_index(5, 99, NULL, NULL);
    expect_good();
    static const char *const outside[] = {
        "../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b.safetensors", "\\u0000",
    };
    for (size_t i = 0; i < COUNT(outside); i++) {
        put_index(5, 2, NULL, outside[i]);
        if (i == 6)
            expect_bad(index, tiny[2].name);
        else
            expect_bad(folder, *outside[i] ? outside[i] : NULL);
    }
    put_index(5, 2, NULL, "model-3.safetensors");
    expect_bad("model-3.safetensors", "model.safetensors.index.json");
    put_index(5, 2, NULL, "config.json");
    expect_bad("config.json", "header");
    put_index(5, 2, NULL, B);
    expect_bad(index, tiny[2].name);
    put_index(5, 2, "other", NULL);
    expect_bad(index, "other");
    put_index(5, 2, tiny[1].name, NULL);
    expect_bad("model.safetensors.index.json:1:185", NULL); /* a key that stands twice */
    put(index, "{}");
    expect_bad(index, "weight_map");
    put(index, "{\"weight_map\":{}}");
    expect_bad(index, "empty");
    put(index, "{\"weight_map\":{\"a\":1}}");
    expect_bad(index, "weight_map a");
    put(index, "{\"weight_map\":[]}");
    expect_bad(index, "weight_map");
    put(index, "[]");
    expect_bad(index, NULL);
    put(index, "{\"weight_map\":{\"a\":[[[[1]]]]}}");
    expect_bad(index, "4");
    put(index, "{\"weight_map\":{\"lm_head.weight\":\"" A "\"}}");
    expect_bad(index, "model.embed_tokens.weight");
    put_index(5, 99, NULL, NULL);
    put_tensors(B, tiny + 4, COUNT(tiny) - 4);
    expect_bad(B, tiny[4].name);
    assert_int_equal(unlink(at(B)), 0);
    expect_bad(B, "model.safetensors.index.json");
}

/* Bit flips anywhere in the header: refused or harmless, never a crash. */
static void test_flips(void **state)
{
    (void)state;
    char             *text;
    uint64_t          n, refused = 0;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    make_good();
    assert_int_equal(tsr_file_slurp(at("model.safetensors"), 1 << 20, &text, &n, &e.err), TSR_OK);
    uint64_t end = 8 + (unsigned char)text[0] + 256u * (unsigned char)text[1];
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t bit = i * 7919 % (end * 8);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        put_bytes("model.safetensors", text, n);
        tsr_status st = load(&e);
        assert_true(st == TSR_OK || st == TSR_E_INPUT);
        refused += st != TSR_OK;
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    free(text);
    /* only padding and __metadata__ may change unseen; this file has little of them */
    assert_in_range(refused, 350, 400);
}

/* A file that is cut and rewritten all the while: refused or whole, never a signal. */
static void test_changing(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct stat       st;
    make_good();
    assert_int_equal(stat(at("model.safetensors"), &st), 0);
    pid_t child = fork();
    if (child == 0) {
        char path[400];
        (void)snprintf(path, sizeof path, "%s", at("model.safetensors"));
        for (unsigned i = 0;; i++) {
            if (truncate(path, (off_t)(i * 97 % (unsigned)st.st_size)) != 0 ||
                truncate(path, st.st_size) != 0)
                _exit(1);
        }
    }
    assert_true(child > 0);
    for (int i = 0; i < 200; i++) {
        tsr_status r = load(&e);
        if (r != TSR_OK && r != TSR_E_INPUT)
            fail_msg("status %d: %s", r, e.text);
    }
    int how;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how)); /* it was at work to the end */
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/tessera-bad-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),     cmocka_unit_test(test_wrapped_copy),
        cmocka_unit_test(test_variants), cmocka_unit_test(test_changing),
        cmocka_unit_test(test_config),   cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_headers),  cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_places),   cmocka_unit_test(test_shards),
        cmocka_unit_test(test_flips),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
