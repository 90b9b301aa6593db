/* What is exported, read back by decoders that follow the formats' definitions and share nothing
 * with the writers: golden words, random matrices of every width, and blocks that llama.cpp wrote. */
#include "checkpoint/export/gguf_out.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/mem.h"
#include "base/rng.h"
#include "checkpoint/gguf/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

/* ---- a packed matrix to export --------------------------------------------------------- */

struct fixture {
    struct tsr_model_stored_view   v;
    struct tsr_model_packed        packed[3];
    struct tsr_matrix              w[3];
    uint64_t                       piece_rows[3]; /* the arrays of v */
    const struct tsr_matrix       *ws[3];
    const struct tsr_model_packed *packs[3];
    const float                   *values[3];
    struct tsr_model               model;
    struct tsr_export              x;
    struct tsr_errbuf              err;
};

static struct tsr_format int_format(uint32_t bits, uint64_t group, uint32_t zero)
{
    return (struct tsr_format){ .struct_size = sizeof(struct tsr_format),
                                .id = TSR_FORMAT_INT,
                                .bits = bits,
                                .zero = zero,
                                .group = group,
                                .scale_dtype = TSR_F16 };
}

static void pack_init(struct tsr_model_packed *p, const struct tsr_format *f, uint64_t rows,
                      uint64_t cols)
{
    *p = (struct tsr_model_packed){ .format = *f, .rows = rows, .cols = cols };
    p->code_stride = tsr_model_format_code_bytes(f, cols);
    p->meta_stride = tsr_model_format_meta_bytes(f, cols);
    p->codes = tsr_new(rows, p->code_stride);
    p->meta = tsr_new(rows, p->meta_stride);
    assert_non_null(p->codes);
    assert_non_null(p->meta);
}

static unsigned char *codes_of(struct tsr_model_packed *p, uint64_t r)
{
    return (unsigned char *)p->codes + r * p->code_stride;
}

static unsigned char *meta_of(struct tsr_model_packed *p, uint64_t r)
{
    return (unsigned char *)p->meta + r * p->meta_stride;
}

static void set_scale(struct tsr_model_packed *p, uint64_t r, uint64_t g, float v)
{
    uint16_t h = tsr_f32_f16(v);
    memcpy(meta_of(p, r) + 2 * g, &h, 2);
}

/* n pieces of `rows` rows each. */
static void set_up(struct fixture *f, const struct tsr_format *format, unsigned n, uint64_t rows,
                   uint64_t cols, const struct tsr_export_kind *kind)
{
    memset(f, 0, sizeof *f);
    f->err.err = (struct tsr_err){ .struct_size = sizeof(struct tsr_err),
                                   .cap = sizeof f->err.text,
                                   .text = f->err.text };
    f->v = (struct tsr_model_stored_view){ .module = "m",
                                           .suffix = ".weight",
                                           .n = n,
                                           .kind = TSR_MODEL_STORED_LINEAR,
                                           .cols = cols,
                                           .piece_rows = f->piece_rows,
                                           .w = f->ws,
                                           .packed = f->packs,
                                           .values = f->values };
    for (unsigned i = 0; i < n; i++) {
        pack_init(&f->packed[i], format, rows, cols);
        f->v.packed[i] = &f->packed[i];
        f->w[i] = (struct tsr_matrix){ .rows = rows, .cols = cols };
        f->v.w[i] = &f->w[i];
        f->v.piece_rows[i] = rows;
        f->v.rows += rows;
    }
    f->x = (struct tsr_export){ .m = &f->model, .kind = kind, .path = "out", .err = &f->err.err };
    if (kind)
        assert_int_equal(tsr_export_kind_open(&f->x), TSR_OK);
}

static void tear_down(struct fixture *f)
{
    for (unsigned i = 0; i < f->v.n; i++) {
        free(f->packed[i].codes);
        free(f->packed[i].meta);
    }
    if (f->x.kind)
        tsr_export_kind_close(&f->x);
}

/* One exported tensor, fresh memory; its shape in out. */
static unsigned char *tensor(struct fixture *f, const char *suffix, struct tsr_export_out *out)
{
    struct tsr_errbuf       *e = &f->err;
    struct tsr_export_module m;
    struct tsr_export_out    outs[TSR_EXPORT_OUTS];
    unsigned                 n = 0;
    tsr_export_module_of(&m, &f->v);
    if (f->x.kind->plan(&f->x, &m, outs, &n) != TSR_OK)
        fail_msg("plan: %s", e->text);
    for (unsigned i = 0; i < n; i++) {
        if (strcmp(outs[i].suffix, suffix) != 0)
            continue;
        uint64_t       items = outs[i].shape[0] * (outs[i].rank == 2 ? outs[i].shape[1] : 1);
        unsigned char *dst = tsr_new(items, outs[i].size);
        assert_non_null(dst);
        if (f->x.kind->fill(&f->x, &m, &outs[i], dst) != TSR_OK)
            fail_msg("%s: %s", suffix, e->text);
        *out = outs[i];
        return dst;
    }
    fail_msg("no tensor %s", suffix);
    return NULL;
}

static void look(struct fixture *f)
{
    if (f->x.kind->look(&f->x, &f->v) != TSR_OK)
        fail_msg("%s", f->err.text);
}

static uint32_t word(const unsigned char *p, uint64_t i)
{
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    return w;
}

/* ---- golden words (verified against the formats' own packers) ---------------------------- */

static void ramp(struct tsr_model_packed *p)
{
    for (uint64_t r = 0; r < p->rows; r++)
        for (uint64_t k = 0; k < p->cols; k++)
            tsr_export_bits_put(codes_of(p, r), k * p->format.bits, p->format.bits,
                                (unsigned)(k & ((1u << p->format.bits) - 1)));
}

static void gptq_golden_words(void **state)
{
    static const struct {
        uint32_t bits, n, code[3], v1[3], v2[3], zeros;
    } cases[] = {
        { 4, 2, { 0x76543210, 0xfedcba98 }, { 0x77777777 }, { 0x88888888 }, 1 },
        { 3,
          3,
          { 0x88fac688, 0xc688fac6, 0xfac688fa },
          { 0xdb6db6db, 0xb6db6db6, 0x6db6db6d },
          { 0x24924924, 0x49249249, 0x92492492 },
          3 },
        { 2, 1, { 0xe4e4e4e4 }, { 0x55555555 }, { 0xaaaaaaaa }, 1 },
        { 8, 1, { 0x03020100 }, { 0x7f7f7f7f }, { 0x80808080 }, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t zero = TSR_ZERO_MID; zero <= TSR_ZERO_STORED; zero++) {
            struct tsr_format     format = int_format(cases[i].bits, 0, zero);
            struct fixture        f;
            struct tsr_export_out o;
            set_up(&f, &format, 1, 32, 32, &tsr_export_gptq);
            ramp(&f.packed[0]);
            for (uint64_t r = 0; r < 32; r++) {
                set_scale(&f.packed[0], r, 0, 1);
                if (zero == TSR_ZERO_STORED)
                    meta_of(&f.packed[0], r)[2] = (unsigned char)(1u << (cases[i].bits - 1));
            }
            look(&f);
            unsigned char *q = tensor(&f, ".qweight", &o), *z = tensor(&f, ".qzeros", &o);
            for (uint32_t k = 0; k < cases[i].n; k++)
                for (uint64_t r = 0; r < 32; r++) /* one column of words a row */
                    assert_int_equal(word(q, k * 32 + r), cases[i].code[k]);
            for (uint32_t k = 0; k < cases[i].zeros; k++)
                assert_int_equal(word(z, k),
                                 zero == TSR_ZERO_STORED ? cases[i].v2[k] : cases[i].v1[k]);
            free(q);
            free(z);
            tear_down(&f);
        }
    }
}

static void ct_golden_words(void **state)
{
    struct tsr_format     format = int_format(4, 0, TSR_ZERO_MID);
    struct fixture        f;
    struct tsr_export_out o;
    (void)state;
    set_up(&f, &format, 1, 2, 16, &tsr_export_ct);
    ramp(&f.packed[0]); /* -8 to 7 */
    look(&f);
    unsigned char *q = tensor(&f, ".weight_packed", &o);
    assert_int_equal(word(q, 0), 0x76543210);
    assert_int_equal(word(q, 1), 0xfedcba98);
    free(q);
    tear_down(&f);
}

static void mx_golden_bytes(void **state)
{
    static const unsigned char ocp[8] = { 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe };
    struct tsr_format          format = { .struct_size = sizeof format,
                                          .id = TSR_FORMAT_MX,
                                          .bits = 4,
                                          .group = 32,
                                          .element = TSR_MX_FP4_E2M1,
                                          .scale_bits = 8 };
    struct fixture             f;
    struct tsr_export_out      o;
    struct tsr_export_module   m;
    unsigned char              block[17];
    (void)state;
    set_up(&f, &format, 1, 1, 32, &tsr_export_ct);
    ramp(&f.packed[0]);
    meta_of(&f.packed[0], 0)[0] = 130;
    look(&f);
    unsigned char *q = tensor(&f, ".weight_packed", &o);
    assert_memory_equal(q, ocp, 8);
    assert_memory_equal(q + 8, ocp, 8);
    free(q);
    tsr_export_module_of(&m, &f.v);
    assert_true(tsr_export_gguf_holds(TSR_GGUF_OUT_MXFP4, &m));
    tsr_export_gguf_repack_row(TSR_GGUF_OUT_MXFP4, &m, 0, block);
    assert_int_equal(block[0], 130);
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(block[1 + i], i | i << 4);
    meta_of(&f.packed[0], 0)[0] = 255; /* a NaN scale */
    assert_false(tsr_export_gguf_holds(TSR_GGUF_OUT_MXFP4, &m));
    tear_down(&f);
}

/* ---- random matrices, decoded by the definition -------------------------------------------- */

/* A number below n, another one every time. */
static uint32_t below(uint64_t *counter, uint32_t n)
{
    uint32_t r[4];
    tsr_philox(r, (*counter)++, 0, 1);
    return r[0] % n;
}

static void randomize(struct fixture *f, uint64_t *rng, bool stored)
{
    for (unsigned i = 0; i < f->v.n; i++) {
        struct tsr_model_packed *p = &f->packed[i];
        uint64_t                 groups = tsr_format_groups(&p->format, p->cols);
        for (uint64_t r = 0; r < p->rows; r++) {
            for (uint64_t k = 0; k < p->cols; k++)
                tsr_export_bits_put(codes_of(p, r), k * p->format.bits, p->format.bits,
                                    below(rng, 1u << p->format.bits));
            for (uint64_t g = 0; g < groups; g++) {
                set_scale(p, r, g, 0.001f * (float)(1 + below(rng, 999)));
                if (stored)
                    meta_of(p, r)[2 * groups + g] = (unsigned char)below(rng, 1u << p->format.bits);
            }
        }
    }
}

/* Bits [at, at+n) of a column of 32-bit words, `step` words apart; read bit by bit. */
static unsigned field(const unsigned char *words, uint64_t first, uint64_t step, uint64_t at,
                      unsigned n)
{
    unsigned v = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t bit = at + i;
        v |= (word(words, first + bit / 32 * step) >> bit % 32 & 1u) << i;
    }
    return v;
}

static float f16_at(const unsigned char *p, uint64_t i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return tsr_f16_f32(h);
}

static void expect_row(struct fixture *f, uint64_t r, const float *got)
{
    struct tsr_export_module m;
    float                    want[256];
    tsr_export_module_of(&m, &f->v);
    tsr_export_module_row(&m, r, want);
    for (uint64_t k = 0; k < f->v.cols; k++)
        if (!(got[k] == want[k]))
            fail_msg("%u bits: row %llu column %llu: %g, not %g", m.f.bits, (unsigned long long)r,
                     (unsigned long long)k, (double)got[k], (double)want[k]);
}

static void decode_gptq(struct fixture *f, bool v1)
{
    struct tsr_export_out o;
    unsigned char        *q = tensor(f, ".qweight", &o), *z = tensor(f, ".qzeros", &o),
                  *idx = tensor(f, ".g_idx", &o), *s = tensor(f, ".scales", &o);
    uint64_t rows = f->v.rows, cols = f->v.cols;
    unsigned bits = f->packed[0].format.bits;
    float    row[256];
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t k = 0; k < cols; k++) {
            uint64_t g = word(idx, k);
            unsigned zero = field(z, g * (rows * bits / 32), 1, r * bits, bits) + (v1 ? 1 : 0);
            unsigned code = field(q, r, rows, k * bits, bits);
            row[k] = f16_at(s, g * rows + r) * (float)((int)code - (int)zero);
        }
        expect_row(f, r, row);
    }
    free(q);
    free(z);
    free(idx);
    free(s);
}

static void decode_ct(struct fixture *f, bool stored)
{
    struct tsr_export_out o, oz = { 0 };
    unsigned char        *q = tensor(f, ".weight_packed", &o), *s = tensor(f, ".weight_scale", &oz),
                  *z = stored ? tensor(f, ".weight_zero_point", &oz) : NULL;
    uint64_t groups = tsr_format_groups(&f->packed[0].format, f->v.cols), line = o.shape[1];
    unsigned bits = f->packed[0].format.bits;
    int      half = 1 << (bits - 1);
    float    row[256];
    for (uint64_t r = 0; r < f->v.rows; r++) {
        for (uint64_t k = 0; k < f->v.cols; k++) {
            uint64_t g = groups > 1 ? k / f->packed[0].format.group : 0;
            int      v = (int)field(q, r * line, 1, k * bits, bits) - half;
            int      zero = z ? (int)field(z, g, groups, r * bits, bits) - half : 0;
            row[k] = f16_at(s, r * groups + g) * (float)(v - zero);
        }
        expect_row(f, r, row);
    }
    free(q);
    free(s);
    free(z);
}

static void decode_gguf(struct fixture *f, uint32_t type)
{
    struct tsr_export_module m;
    unsigned char            line[34 * 8];
    float                    row[256];
    tsr_export_module_of(&m, &f->v);
    if (!tsr_export_gguf_holds(type, &m))
        return;
    for (uint64_t r = 0; r < f->v.rows; r++) {
        tsr_export_gguf_repack_row(type, &m, r, line);
        for (uint64_t k = 0; k < f->v.cols; k++) {
            const unsigned       bytes = type == TSR_GGUF_OUT_Q8_0 ? 34
                                         : type == TSR_GGUF_T_Q5_0 ? 22
                                                                   : 18;
            const unsigned char *b = line + k / 32 * bytes;
            unsigned             i = (unsigned)(k % 32);
            unsigned             nibble = (unsigned)b[bytes - 16 + i % 16] >> (i < 16 ? 0 : 4) & 15;
            int                  v = type == TSR_GGUF_OUT_Q8_0 ? (int)(int8_t)b[2 + i]
                                     : type == TSR_GGUF_T_Q5_0
                                         ? (int)(nibble | (b[2 + i / 8] >> i % 8 & 1u) << 4) - 16
                                         : (int)nibble - 8;
            row[k] = f16_at(b, 0) * (float)v;
        }
        expect_row(f, r, row);
    }
}

static void random_matrices(void **state)
{
    static const uint64_t groups[] = { 0, 32, 64, 128 };
    uint64_t              rng = 0;
    (void)state;
    for (uint32_t bits = 2; bits <= 8; bits++) {
        for (unsigned i = 0; i < 16; i++) {
            bool              stored = i & 1, fused = (i & 2) != 0;
            struct tsr_format format =
                int_format(bits, groups[i / 4], stored ? TSR_ZERO_STORED : TSR_ZERO_MID);
            bool           gptq = bits <= 4 || bits == 8;
            struct fixture f;
            set_up(&f, &format, fused ? 3 : 1, 32, 128, &tsr_export_ct);
            f.v.groups = fused ? 2 : 0; /* of 16 rows of each piece */
            randomize(&f, &rng, stored);
            look(&f);
            if (!(bits == 8 && !stored && (format.group == 0 || format.group == 128)))
                decode_ct(&f, stored);
            decode_gguf(&f, TSR_GGUF_OUT_Q4_0);
            decode_gguf(&f, TSR_GGUF_T_Q5_0);
            decode_gguf(&f, TSR_GGUF_OUT_Q8_0);
            tsr_export_kind_close(&f.x);
            f.x.kind = &tsr_export_gptq;
            assert_int_equal(tsr_export_kind_open(&f.x), TSR_OK);
            if (gptq) {
                look(&f);
                decode_gptq(&f, !stored);
            } else {
                assert_int_equal(f.x.kind->look(&f.x, &f.v), TSR_E_INPUT);
                assert_true(error_is(&f.err.err, "out", "2 3 4 8"));
            }
            tear_down(&f);
        }
    }
}

/* ---- blocks that llama.cpp wrote from the same numbers -------------------------------------- */

static void open_golden(struct tsr_gguf *g, const char *name)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    char              path[512];
    (void)snprintf(path, sizeof path, "%s/%s.gguf", TEST_GOLDEN, name);
    OK(tsr_gguf_open(g, path, &err.err));
}

static void *bytes_of(const struct tsr_gguf *g, const struct tsr_gguf_tensor *t)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    void             *p = tsr_new(t->bytes, 1);
    assert_non_null(p);
    OK(tsr_file_read(&g->file, t->at, p, t->bytes, &err.err));
    return p;
}

static void blocks_of_llama_cpp(void **state)
{
    static const char *const folders[] = { "export/q4_0", "export/q8_0", "export/mxfp4" };
    static const uint32_t    types[] = { TSR_GGUF_OUT_Q4_0, TSR_GGUF_OUT_Q8_0, TSR_GGUF_OUT_MXFP4 };
    static const char *const names[] = { "blk.0.attn_q.weight", "blk.0.ffn_down.weight",
                                         "blk.0.attn_v.weight", "blk.0.ffn_up.weight" };
    struct tsr_gguf          wide, f;
    (void)state;
    open_golden(&wide, "checkpoints/gguf-f32/model");
    for (unsigned i = 0; i < 3; i++) {
        open_golden(&f, folders[i]);
        for (unsigned k = 0; k < 4; k++) {
            const struct tsr_gguf_tensor *x = tsr_gguf_find(&wide, names[k]),
                                         *t = tsr_gguf_find(&f, names[k]);
            assert_int_equal(x->type, TSR_GGUF_OUT_F32);
            assert_int_equal(t->type, types[i]);
            float         *v = bytes_of(&wide, x);
            unsigned char *want = bytes_of(&f, t), *got = tsr_new(t->bytes, 1);
            assert_non_null(got);
            assert_true(tsr_export_gguf_quantize_row(t->type, v, x->bytes / 4, got));
            assert_memory_equal(got, want, t->bytes);
            free(v);
            free(want);
            free(got);
        }
        tsr_gguf_close(&f);
    }
    tsr_gguf_close(&wide);
}

static void what_blocks_do_not_hold(void **state)
{
    float         x[32] = { 1e30f };
    unsigned char block[34];
    (void)state;
    assert_false(tsr_export_gguf_quantize_row(TSR_GGUF_OUT_Q8_0, x, 32, block));
    assert_false(tsr_export_gguf_quantize_row(TSR_GGUF_OUT_Q4_0, x, 32, block));
    x[0] = NAN;
    assert_false(tsr_export_gguf_quantize_row(TSR_GGUF_OUT_MXFP4, x, 32, block));
    x[0] = 1e-42f; /* its scale has no inverse */
    assert_true(tsr_export_gguf_quantize_row(TSR_GGUF_OUT_Q8_0, x, 32, block));
    assert_true(tsr_export_gguf_quantize_row(TSR_GGUF_OUT_Q4_0, x, 32, block));
    assert_true(tsr_export_gguf_quantize_row(TSR_GGUF_OUT_MXFP4, x, 32, block));
}

/* ---- whole files ------------------------------------------------------------------------------ */

static void remove_temporary(const char *folder, const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(folder), 0);
}

/* A file of llama.cpp, read and written: every tensor is the same. */
static void same_file(const char *name, const char *path)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_gguf   a, b;
    char              golden[64];
    (void)snprintf(golden, sizeof golden, "checkpoints/%s/model", name);
    open_golden(&a, golden);
    OK(tsr_gguf_open(&b, path, &err.err));
    assert_int_equal(a.n, b.n);
    for (uint64_t i = 0; i < a.n; i++) {
        const struct tsr_gguf_tensor *x = &a.tensors[i], *y = tsr_gguf_find(&b, x->name);
        if (!y || y->type != x->type)
            fail_msg("%s: %s is missing or of another type", name, x->name);
        assert_int_equal(x->bytes, y->bytes);
        void *p = bytes_of(&a, x), *q = bytes_of(&b, y);
        if (memcmp(p, q, x->bytes) != 0)
            fail_msg("%s: %s differs", name, x->name);
        free(p);
        free(q);
    }
    for (uint64_t i = 0; i < a.n_keys; i++) {
        const struct tsr_gguf_key *x = &a.keys[i], *y = tsr_gguf_key(&b, x->name);
        if (strncmp(x->name, "general.", 8) == 0)
            continue;
        if (!y || x->bytes != y->bytes || memcmp(a.header + x->at, b.header + y->at, x->bytes) != 0)
            fail_msg("%s: key %s differs", name, x->name);
    }
    tsr_gguf_close(&a);
    tsr_gguf_close(&b);
}

static void files_of_llama_cpp(void **state)
{
    /* of the last one embedding and head are one tensor */
    static const char *const names[] = { "gguf-f32",  "gguf-f16",   "gguf-bf16",  "gguf-q8_0",
                                         "gguf-q4_0", "gguf-mxfp4", "gguf-iq4_nl" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tsr_errbuf         err = TSR_ERRBUF(err);
        struct tsr_model         *m = NULL;
        struct tsr_export_options o = { .format = TSR_EXPORT_GGUF, .type = "auto" };
        struct tsr_export_report  r;
        char                      folder[] = "/tmp/tessera-export-XXXXXX", path[300], golden[512];
        assert_non_null(mkdtemp(folder));
        (void)snprintf(path, sizeof path, "%s/model.gguf", folder);
        (void)snprintf(golden, sizeof golden, "%s/checkpoints/%s/model.gguf", TEST_GOLDEN,
                       names[i]);
        OK(tsr_model_load_streamed(&m, golden, &err.err));
        OK(tsr_export(m, NULL, path, &o, &r, &err.err));
        assert_int_equal(r.packed, i < 3 ? 0 : i < 6 ? 16 : 15); /* with embedding and head */
        assert_int_equal(r.rounded + r.requantized + r.widened + r.quantized, 0);
        tsr_model_destroy(m);
        same_file(names[i], path);
        remove_temporary(folder, "model.gguf");
    }
}

/* Rotary halves: row 2j+s of a head is row s*dim/2+j.  Six heads of two rows after four others: those of two key heads
 * are in turns in the file. */
static void rows_of_heads(void **state)
{
    static const uint64_t     turned[] = { 0, 2, 4, 1, 3, 5 };
    const struct tsr_gguf_map pairs = { .order = TSR_GGUF_PAIRS, .heads = 2 }, plain = { 0 };
    const struct tsr_gguf_map tiled = {
        .order = TSR_GGUF_TILED, .heads = 6, .keys = 2, .first = 4
    };
    static const uint64_t want[] = { 0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15 };
    (void)state;
    for (uint64_t r = 0; r < 16; r++) {
        assert_int_equal(tsr_gguf_row_back(&pairs, 16, r), want[r]);
        assert_int_equal(tsr_gguf_row(&pairs, 16, want[r]), r);
        assert_int_equal(tsr_gguf_row_back(&plain, 16, r), r);
        assert_int_equal(tsr_gguf_row(&tiled, 16, r),
                         r < 4 ? r : 4 + turned[(r - 4) / 2] * 2 + r % 2);
        assert_int_equal(tsr_gguf_row_back(&tiled, 16, tsr_gguf_row(&tiled, 16, r)), r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq_golden_words),   cmocka_unit_test(ct_golden_words),
        cmocka_unit_test(mx_golden_bytes),     cmocka_unit_test(random_matrices),
        cmocka_unit_test(blocks_of_llama_cpp), cmocka_unit_test(rows_of_heads),
        cmocka_unit_test(files_of_llama_cpp),  cmocka_unit_test(what_blocks_do_not_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
