/* GGUF files that are wrong in one way each: refused as bad input, in a sentence that says what.
 * Each is made here from a tiny Llama that loads. */
#include "../fixtures/error_is.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/tokenizer.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CAP 8192

static bool has_tokenizer(const char *path)
{
    bool there = false;
    assert_int_equal(tsr_checkpoint_tokenizer_there(path, &there, NULL), TSR_OK);
    return there;
}

static char path[64] = "/tmp/test_gguf_bad.XXXXXX";

/* A file while it is written.  What a case changes is set before make(). */
struct file {
    unsigned char b[CAP];
    size_t        n;
};

struct key {
    const char *name;
    uint32_t    type;
    uint64_t    value; /* bits */
    const char *text;  /* of a string */
};
struct tensor {
    const char *name;
    uint32_t    rank, type;
    uint64_t    dims[4], offset;
};

static struct {
    uint32_t      version;
    uint64_t      n_keys, n_tensors; /* as the header says; 0: as there are */
    struct key    keys[24];
    struct tensor tensors[24];
    unsigned      have_keys, have_tensors;
    size_t        cut;  /* bytes less at the end */
    size_t        more; /* bytes behind it */
    bool          keep_offsets;
} m;

static void put(struct file *f, uint64_t v, unsigned n)
{
    assert_true(f->n + n <= CAP);
    for (unsigned i = 0; i < n; i++)
        f->b[f->n++] = (unsigned char)(v >> 8 * i);
}

static void put_text(struct file *f, const char *s)
{
    put(f, strlen(s), 8);
    assert_true(f->n + strlen(s) <= CAP);
    memcpy(f->b + f->n, s, strlen(s));
    f->n += strlen(s);
}

static uint64_t f32(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static void add_key(const char *name, uint32_t type, uint64_t value, const char *text)
{
    m.keys[m.have_keys++] = (struct key){ name, type, value, text };
}

static void add_tensor(const char *name, uint32_t type, uint64_t rows, uint64_t cols)
{
    struct tensor *t = &m.tensors[m.have_tensors++];
    *t =
        (struct tensor){ .name = name, .rank = rows ? 2 : 1, .type = type, .dims = { cols, rows } };
}

/* A Llama of one layer, 32 wide, one head; every test starts from it. */
static void good(void)
{
    memset(&m, 0, sizeof m);
    m.version = 3;
    add_key("general.architecture", TSR_GGUF_STRING, 0, "llama");
    add_key("llama.block_count", TSR_GGUF_U32, 1, NULL);
    add_key("llama.context_length", TSR_GGUF_U32, 64, NULL);
    add_key("llama.embedding_length", TSR_GGUF_U32, 32, NULL);
    add_key("llama.feed_forward_length", TSR_GGUF_U32, 32, NULL);
    add_key("llama.attention.head_count", TSR_GGUF_U32, 1, NULL);
    add_key("llama.attention.layer_norm_rms_epsilon", TSR_GGUF_F32, f32(1e-5f), NULL);
    add_tensor("token_embd.weight", TSR_GGUF_T_F32, 8, 32);
    add_tensor("output_norm.weight", TSR_GGUF_T_F32, 0, 32);
    add_tensor("blk.0.attn_norm.weight", TSR_GGUF_T_F32, 0, 32);
    add_tensor("blk.0.attn_q.weight", TSR_GGUF_T_Q4_0, 32, 32);
    add_tensor("blk.0.attn_k.weight", TSR_GGUF_T_Q8_0, 32, 32);
    add_tensor("blk.0.attn_v.weight", TSR_GGUF_T_Q4_1, 32, 32);
    add_tensor("blk.0.attn_output.weight", TSR_GGUF_T_MXFP4, 32, 32);
    add_tensor("blk.0.ffn_norm.weight", TSR_GGUF_T_F32, 0, 32);
    add_tensor("blk.0.ffn_gate.weight", TSR_GGUF_T_F16, 32, 32);
    add_tensor("blk.0.ffn_up.weight", TSR_GGUF_T_BF16, 32, 32);
    add_tensor("blk.0.ffn_down.weight", TSR_GGUF_T_IQ4_NL, 32, 32);
}

static struct key *key(const char *name)
{
    for (unsigned i = 0; i < m.have_keys; i++)
        if (strcmp(m.keys[i].name, name) == 0)
            return &m.keys[i];
    fail_msg("no key %s", name);
    return NULL;
}

static struct tensor *tensor(const char *name)
{
    for (unsigned i = 0; i < m.have_tensors; i++)
        if (strcmp(m.tensors[i].name, name) == 0)
            return &m.tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static uint64_t size_of(const struct tensor *t)
{
    uint32_t n, bytes;
    uint64_t all = t->dims[0];
    for (uint32_t d = 1; d < t->rank && d < 4; d++)
        all *= t->dims[d];
    return tsr_gguf_block(t->type, &n, &bytes) ? all / n * bytes : 32;
}

/* Fills in the offsets, returns the data's bytes. */
static uint64_t place(void)
{
    uint64_t at = 0;
    for (unsigned i = 0; i < m.have_tensors; i++) {
        if (!m.keep_offsets)
            m.tensors[i].offset = at;
        at += (size_of(&m.tensors[i]) + 31) / 32 * 32;
    }
    return at;
}

static void header(struct file *f)
{
    f->n = 0;
    put(f, 0x46554747, 4);
    put(f, m.version, 4);
    put(f, m.n_tensors ? m.n_tensors : m.have_tensors, 8);
    put(f, m.n_keys ? m.n_keys : m.have_keys, 8);
    for (unsigned i = 0; i < m.have_keys; i++) {
        const struct key *k = &m.keys[i];
        put_text(f, k->name);
        put(f, k->type, 4);
        if (k->type == TSR_GGUF_STRING)
            put_text(f, k->text);
        else
            put(f, k->value,
                k->type == TSR_GGUF_BOOL || k->type == TSR_GGUF_U8 ? 1
                : k->type == TSR_GGUF_U16                          ? 2
                : k->type >= TSR_GGUF_U64                          ? 8
                                                                   : 4);
    }
    for (unsigned i = 0; i < m.have_tensors; i++) {
        const struct tensor *t = &m.tensors[i];
        put_text(f, t->name);
        put(f, t->rank, 4);
        for (uint32_t d = 0; d < t->rank && d < 4; d++)
            put(f, t->dims[d], 8);
        put(f, t->type, 4);
        put(f, t->offset, 8);
    }
    while (f->n % 32)
        put(f, 0, 1);
}

/* Writes the file; byte `at` of the data (if below its size) becomes `value`. */
static void make(uint64_t at, unsigned char value)
{
    static struct file f;
    uint64_t           bytes = place();
    header(&f);
    unsigned char *data = calloc(bytes + m.more + 1, 1);
    assert_non_null(data);
    if (at < bytes)
        data[at] = value;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    uint64_t all = f.n + bytes + m.more - m.cut;
    assert_int_equal(fwrite(f.b, 1, f.n < all ? f.n : all, out), f.n < all ? f.n : all);
    if (all > f.n)
        assert_int_equal(fwrite(data, 1, all - f.n, out), all - f.n);
    assert_int_equal(fclose(out), 0);
    free(data);
}

static void refused(const char *file, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *model = NULL;
    tsr_status        st = tsr_model_load(&model, file, false, &e.err);
    tsr_model_destroy(model);
    if (st != TSR_E_INPUT)
        fail_msg("status %d, not bad input: %s", st, e.text);
    assert_true(error_is(&e.err, file, facts));
}

static void bad(const char *facts)
{
    make(UINT64_MAX, 0);
    refused(path, facts);
}

static void the_good_one_loads(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *model = NULL;
    (void)state;
    good();
    make(UINT64_MAX, 0);
    if (tsr_model_load(&model, path, false, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(model->hp.tied);
    assert_non_null(model->packed);
    assert_non_null(model->packed->lin[0][TSR_MODEL_DOWN]);
    assert_int_equal(model->packed->lin[0][TSR_MODEL_DOWN]->format.bits, 4);
    assert_string_equal(model->packed->lin[0][TSR_MODEL_DOWN]->format.id, TSR_FORMAT_TABLE);
    assert_string_equal(model->packed->lin[0][TSR_MODEL_V]->format.id, TSR_FORMAT_AFFINE);
    tsr_model_destroy(model);
}

/* What tsr_model_load() of the headers says on stderr. */
static void said(char *text, size_t cap)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *model = NULL;
    char              log[] = "/tmp/test_gguf_bad.log.XXXXXX";
    int               fd = mkstemp(log), was = dup(STDERR_FILENO);
    assert_true(fd >= 0 && was >= 0);
    make(UINT64_MAX, 0);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    tsr_status st = tsr_model_load(&model, path, true, &e.err);
    assert_true(dup2(was, STDERR_FILENO) >= 0);
    if (st != TSR_OK)
        fail_msg("%s", e.text);
    tsr_model_destroy(model);
    ssize_t n = pread(fd, text, cap - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    (void)close(fd);
    (void)close(was);
    (void)unlink(log);
}

/* llama.cpp leaves the key alone for this architecture, so it is said and not obeyed. */
static void a_window_is_said(void **state)
{
    char text[2000];
    (void)state;
    good();
    said(text, sizeof text);
    assert_string_equal(text, "");
    add_key("llama.attention.sliding_window", TSR_GGUF_U32, 0, NULL);
    said(text, sizeof text);
    assert_string_equal(text, "");
    good();
    add_key("llama.attention.sliding_window", TSR_GGUF_U32, 48, NULL);
    said(text, sizeof text);
    assert_true(text_has(text, "llama.attention.sliding_window 48"));
}

/* Of a file that is large enough for what its header says, no memory is taken for too much. */
static void too_much(void **state)
{
    (void)state;
    static const uint64_t many[][2] = { { TSR_GGUF_MAX_TENSORS + 1, 0 },
                                        { 0, TSR_GGUF_MAX_KEYS + 1 } };
    for (size_t i = 0; i < 2; i++) {
        unsigned char     head[24] = { 'G', 'G', 'U', 'F', 3 };
        struct tsr_gguf   g;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        bool              more;
        memcpy(head + 8, many[i], sizeof many[i]);
        tsr_status st =
            tsr_gguf_parse(&g, "a.gguf", head, sizeof head, UINT64_C(1) << 30, &more, &e.err);
        tsr_gguf_close(&g);
        if (st != TSR_E_NOMEM || !error_is(&e.err, "a.gguf", "262144 65536"))
            fail_msg("status %d: %s", st, e.text);
    }
}

static void headers(void **state)
{
    (void)state;
    good();
    m.version = 1;
    bad("version 1");
    good();
    m.version = 2;
    bad("version 2");
    good();
    m.version = 0x03000000;
    bad("big-endian");
    good();
    m.version = 0;
    bad("version 0");
    good();
    m.n_keys = UINT64_MAX;
    bad("tensors keys");
    good();
    m.n_tensors = UINT64_MAX / 33 + 2;
    bad("tensors keys");
    good();
    m.n_tensors = 900000;
    bad("tensors keys");
    good();
    m.n_tensors = m.have_tensors + 1; /* then the data are read as a tensor */
    bad("949 0");
    good();
    add_key("split.count", TSR_GGUF_U16, 3, NULL);
    bad("3");
    good();
    add_key("general.alignment", TSR_GGUF_U32, 24, NULL);
    bad("general.alignment 24");
    good();
    add_key("general.alignment", TSR_GGUF_U32, 0, NULL);
    bad("general.alignment");
    good();
    add_key("general.alignment", TSR_GGUF_U32, 64, NULL);
    bad("blk.0.ffn_norm.weight 4128 4160"); /* offsets that are multiples of 32 */
    good();
    add_key("llama.block_count", TSR_GGUF_U32, 1, NULL);
    bad("llama.block_count");
    good();
    add_key("", TSR_GGUF_U32, 1, NULL);
    bad("0");
    good();
    add_key("a\x80", TSR_GGUF_U32, 1, NULL);
    bad("322 0x80");
    good();
    add_key("x", 77, 0, NULL);
    bad("77");
    good();
    key("llama.block_count")->type = TSR_GGUF_F32;
    bad("llama.block_count 0 1099511627776");
    good();
    key("llama.attention.layer_norm_rms_epsilon")->value = 0x7fc00000; /* NaN */
    bad("llama.attention.layer_norm_rms_epsilon");
    good();
    key("llama.embedding_length")->name = "llama.embedding_width";
    bad("llama.embedding_length");
    good();
    key("general.architecture")->text = "falcon";
    bad("falcon");
    good();
    key("general.architecture")->text = "\xff";
    bad("general.architecture");
    good();
    add_key("llama.expert_count", TSR_GGUF_U32, 8, NULL); /* then it is a model with experts */
    bad("llama.expert_used_count");
    good();
    add_key("llama.expert_shared_count", TSR_GGUF_U32, 1, NULL);
    bad("llama.expert_shared_count 1");
    good();
    key("general.architecture")->text = "qwen2"; /* no family has experts there */
    add_key("qwen2.expert_count", TSR_GGUF_U32, 8, NULL);
    bad("qwen2.expert_count 8");
    good();
    add_key("llama.rope.scaling.type", TSR_GGUF_STRING, 0, "longrope");
    bad("rope.scaling.type");
    good();
    add_key("llama.rope.dimension_count", TSR_GGUF_U32, 64, NULL);
    bad("rope.dimension_count");
    good();
    add_key("llama.attention.value_length", TSR_GGUF_U32, 64, NULL);
    bad("32 64");
}

static void drop_tensor(const char *name)
{
    struct tensor *t = tensor(name);
    *t = m.tensors[--m.have_tensors];
}

/* The same with two experts, of which a token takes one: one tensor of a kind. */
static void good_experts(void)
{
    static const char *const kinds[] = { "gate", "up", "down" };
    static char              names[3][40];
    good();
    add_key("llama.expert_count", TSR_GGUF_U32, 2, NULL);
    add_key("llama.expert_used_count", TSR_GGUF_U32, 1, NULL);
    add_tensor("blk.0.ffn_gate_inp.weight", TSR_GGUF_T_F32, 2, 32);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(names[i], sizeof names[i], "blk.0.ffn_%s.weight", kinds[i]);
        drop_tensor(names[i]);
        (void)snprintf(names[i], sizeof names[i], "blk.0.ffn_%s_exps.weight", kinds[i]);
        add_tensor(names[i], TSR_GGUF_T_Q4_0, 32, 32);
        tensor(names[i])->rank = 3;
        tensor(names[i])->dims[2] = 2;
    }
}

/* The same as files had it at first: a tensor for each expert. */
static void good_separate(void)
{
    static char names[6][40];
    good_experts();
    for (int i = 0; i < 6; i++) {
        const char *kind = i % 3 == 0 ? "gate" : i % 3 == 1 ? "up" : "down";
        (void)snprintf(names[i], sizeof names[i], "blk.0.ffn_%s_exps.weight", kind);
        if (i < 3)
            drop_tensor(names[i]);
        (void)snprintf(names[i], sizeof names[i], "blk.0.ffn_%s.%d.weight", kind, i / 3);
        add_tensor(names[i], TSR_GGUF_T_Q4_0, 32, 32);
    }
}

static void experts_load(void (*good_one)(void))
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_model *model = NULL;
    good_one();
    make(UINT64_MAX, 0);
    if (tsr_model_load(&model, path, false, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(model->hp.experts, 2);
    for (uint64_t i = TSR_MODEL_EXPERTS; i < model->hp.linears; i++)
        assert_non_null(model->packed->lin[0][i]);
    tsr_model_destroy(model);
}

static void experts(void **state)
{
    (void)state;
    experts_load(good_experts);
    experts_load(good_separate);
    good_experts();
    tensor("blk.0.ffn_up_exps.weight")->dims[2] = 3;
    bad("experts.up 3");
    good_experts();
    tensor("blk.0.ffn_up_exps.weight")->dims[1] = 64;
    bad("experts.up 64");
    good_experts();
    tensor("blk.0.ffn_up_exps.weight")->rank = 2;
    bad("experts.up");
    good_experts();
    tensor("blk.0.attn_output.weight")->rank = 3;
    tensor("blk.0.attn_output.weight")->dims[2] = 1;
    bad("attn_output 3");
    good_experts();
    tensor("blk.0.ffn_gate_inp.weight")->dims[1] = 3;
    bad("gate.weight 3");
    good_experts();
    drop_tensor("blk.0.ffn_down_exps.weight");
    bad("experts.0.w2");
    good_experts();
    add_tensor("blk.0.ffn_up.0.weight", TSR_GGUF_T_Q4_0, 32, 32); /* both forms */
    bad("experts.0.w3");
    good_experts();
    add_key("llama.expert_feed_forward_length", TSR_GGUF_U32, 16, NULL);
    bad("16 32");
    good_experts();
    key("llama.expert_used_count")->value = 3;
    bad("3 2");
    good_experts();
    key("llama.expert_count")->value = UINT32_MAX;
    bad("num_local_experts");
    good_separate();
    drop_tensor("blk.0.ffn_up.1.weight");
    bad("experts.1.w3");
    good_separate();
    tensor("blk.0.ffn_up.1.weight")->name = "blk.0.ffn_up.2.weight";
    bad("experts.1.w3");
    good_separate();
    tensor("blk.0.ffn_up.1.weight")->name = "blk.0.ffn_up.01.weight";
    bad("ffn_up.01");
    good_experts(); /* the scale of a block of the last expert */
    uint64_t at = 0;
    (void)place();
    at = tensor("blk.0.ffn_down_exps.weight")->offset + (uint64_t)(32 + 5) * 18 + 1;
    make(at, 0x7c);
    refused(path, "ffn_down_exps 37");
}

static void lists(void **state)
{
    (void)state;
    good();
    tensor("blk.0.attn_q.weight")->name = "blk.0.attn_k.weight";
    bad("blk.0.attn_k.weight");
    good();
    tensor("blk.0.attn_q.weight")->name = "blk.0.attn_w.weight";
    bad("blk.0.attn_w.weight");
    good();
    tensor("blk.0.attn_q.weight")->name = "blk.00.attn_q.weight";
    bad("blk.00.attn_q.weight");
    good();
    tensor("blk.0.ffn_up.weight")->name = "blk.1.ffn_up.weight";
    bad("up_proj");
    good();
    tensor("blk.0.attn_q.weight")->type = 40;
    bad("NVFP4");
    good();
    tensor("blk.0.attn_q.weight")->type = 4000000000u;
    bad("blk.0.attn_q.weight 0");
    good();
    tensor("blk.0.attn_q.weight")->dims[0] = 48;
    bad("32");
    good();
    tensor("blk.0.ffn_gate.weight")->dims[0] = 48;
    bad("gate_proj");
    good();
    tensor("blk.0.attn_q.weight")->dims[1] = 64;
    bad("q_proj");
    good();
    tensor("blk.0.attn_q.weight")->dims[1] = 31;
    bad("blk.0.attn_q.weight 31 1");
    good();
    tensor("token_embd.weight")->rank = 0;
    bad("0");
    good();
    tensor("token_embd.weight")->rank = 5;
    bad("5");
    good();
    tensor("blk.0.attn_norm.weight")->type = TSR_GGUF_T_Q8_0;
    bad("blk.0.attn_norm.weight");
    good();
    (void)place();
    m.keep_offsets = true;
    tensor("blk.0.attn_k.weight")->offset += 32;
    bad("blk.0.attn_k.weight 1888 1856");
    good();
    (void)place();
    m.keep_offsets = true;
    tensor("blk.0.attn_k.weight")->offset = UINT64_MAX - 31;
    bad("blk.0.attn_k.weight 18446744073709551584 1856");
    good();
    m.cut = 33;
    bad("blk.0.ffn_down.weight 9855");
    good();
    m.more = 1;
    bad("1");
}

/* Sizes that overflow: the file is made by hand, since its data cannot be. */
static void huge(void **state)
{
    static struct file f;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct tsr_gguf    g;
    bool               more;
    (void)state;
    static const uint64_t dims[][2] = {
        { UINT64_C(1) << 62, 4 }, { UINT64_C(1) << 40, UINT64_C(1) << 40 }, { 0, 4 }, { 4, 0 }
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        good();
        (void)place();
        m.tensors[0].dims[0] = dims[i][0];
        m.tensors[0].dims[1] = dims[i][1];
        header(&f);
        assert_int_equal(tsr_gguf_parse(&g, "f", f.b, f.n, UINT64_C(1) << 40, &more, &e.err),
                         TSR_E_INPUT);
        assert_true(error_is(&e.err, "f", "token_embd.weight"));
        tsr_gguf_close(&g);
    }
}

/* Scales that are no numbers, and a block scale that stands for none. */
static void values(void **state)
{
    static const struct {
        const char *tensor;
        uint64_t    byte; /* of it */
        uint8_t     value;
    } cases[] = {
        { "blk.0.attn_q.weight", 1, 0x7c },      /* F16 infinity */
        { "blk.0.attn_k.weight", 34 + 1, 0x7c }, /* in the second row */
        { "blk.0.attn_v.weight", 3, 0xfc },      /* a minimum */
        { "blk.0.attn_output.weight", 17, 255 }, { "blk.0.ffn_down.weight", 1, 0x7e },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        good();
        (void)place();
        make(tensor(cases[i].tensor)->offset + cases[i].byte, cases[i].value);
        refused(path, cases[i].tensor);
    }
}

/* Every length and every changed byte of a header is read or refused, and nothing else. */
static void any_header(void **state)
{
    static struct file f;
    (void)state;
    good();
    uint64_t data = place();
    header(&f);
    for (size_t n = 0; n < f.n + 8; n++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_gguf   g;
        bool              more;
        size_t            bytes = n < f.n ? n : f.n;
        tsr_status        st = tsr_gguf_parse(&g, "f", f.b, bytes, bytes, &more, &e.err);
        assert_int_equal(st, TSR_E_INPUT);
        assert_false(more);
        tsr_gguf_close(&g);
    }
    for (size_t i = 0; i < f.n * 8; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_gguf   g;
        bool              more;
        char             *text = NULL;
        uint64_t          len;
        f.b[i / 8] ^= (unsigned char)(1u << i % 8);
        tsr_status st = tsr_gguf_parse(&g, "f", f.b, f.n, f.n + data, &more, &e.err);
        assert_true(st == TSR_OK || st == TSR_E_INPUT);
        if (st == TSR_OK && !more) {
            st = tsr_gguf_config(&g, &text, &len, &e.err);
            assert_true(st == TSR_OK || st == TSR_E_INPUT);
            free(text);
        }
        tsr_gguf_close(&g);
        f.b[i / 8] ^= (unsigned char)(1u << i % 8);
    }
}

static void tokenizers(void **state)
{
    static const struct {
        const char *model, *pre, *facts;
    } cases[] = { { NULL, NULL, "tokenizer.ggml.model tokenizer.json" },
                  { "bert", NULL, "bert" },
                  { "llama", NULL, "tokenizer.ggml.tokens" },
                  { "gpt2", NULL, "tokenizer.ggml.pre" },
                  { "gpt2", "kimi-k2", "kimi-k2" },
                  { "gpt2", "qwen2", "tokenizer.ggml.tokens" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_tokenizer *t = NULL;
        good();
        if (cases[i].model)
            add_key("tokenizer.ggml.model", TSR_GGUF_STRING, 0, cases[i].model);
        if (cases[i].pre)
            add_key("tokenizer.ggml.pre", TSR_GGUF_STRING, 0, cases[i].pre);
        make(UINT64_MAX, 0);
        assert_int_equal(has_tokenizer(path), cases[i].model != NULL);
        assert_int_equal(tsr_checkpoint_tokenizer_load(&t, path, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, path, cases[i].facts));
    }
}

static void no_file(void **state)
{
    (void)state;
    refused("/dev/null", NULL);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fputs("GGML", f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
    refused(path, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_one_loads),
        cmocka_unit_test(a_window_is_said),
        cmocka_unit_test(headers),
        cmocka_unit_test(too_much),
        cmocka_unit_test(experts),
        cmocka_unit_test(lists),
        cmocka_unit_test(huge),
        cmocka_unit_test(values),
        cmocka_unit_test(any_header),
        cmocka_unit_test(tokenizers),
        cmocka_unit_test(no_file),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    (void)close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
