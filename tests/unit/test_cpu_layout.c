/* Panels out of the CPU backend and back in (tessera/backend_layout.h): the same results to the bit,
 * over memory that cannot be written, on every instruction set; and what is refused. */
#include "../fixtures/error_is.h"
#include "codes.h"
#include "table_fixture.h"

#include <stdio.h>
#include <sys/mman.h>

static const struct tsr_backend_layout_v1 *table(struct tsr_cpu *c)
{
    const struct tsr_backend_layout_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_LAYOUT);
    assert_non_null(t);
    assert_true(t->struct_size >= sizeof *t);
    return t;
}

/* A weight's description as a host that has its panels only gives it. */
static struct tsr_weight_desc bare(const struct wt *w)
{
    return (struct tsr_weight_desc){ .struct_size = sizeof(struct tsr_weight_desc),
                                     .name = "w",
                                     .format = &w->format,
                                     .rows = w->desc.rows,
                                     .cols = w->desc.cols };
}

/* Pages of their own that cannot be written, with the bytes at their end: what is read behind them
 * faults, but for the alignment to 64. */
struct pages {
    uint8_t *map, *data;
    uint64_t bytes;
};

static struct pages pages_of(const uint8_t *bytes, uint64_t n)
{
    struct pages p = { .bytes = (n + 4095) / 4096 * 4096 + 4096 };
    p.map = mmap(NULL, p.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p.map != MAP_FAILED);
    p.data = p.map + p.bytes - 4096 - (n + 63) / 64 * 64;
    memcpy(p.data, bytes, n);
    assert_int_equal(mprotect(p.map, p.bytes - 4096, PROT_READ), 0);
    assert_int_equal(mprotect(p.map + p.bytes - 4096, 4096, PROT_NONE), 0);
    return p;
}

static uint8_t *panels_of(struct tsr_cpu *c, const struct wt *w, void *weight, uint64_t *bytes)
{
    struct tsr_weight_desc   d = bare(w);
    struct tsr_weight_layout l = { .struct_size = sizeof l };
    assert_int_equal(table(c)->weight_layout(c, &d, &l, NULL), TSR_OK);
    assert_string_equal(l.id, "tessera.cpu.panels");
    assert_null(l.target);
    assert_int_equal(l.align, 64);
    assert_int_equal(l.bytes, tsr_cpu_weight_bytes(c, weight));
    uint8_t *p = malloc(l.bytes);
    assert_non_null(p);
    /* in two reads */
    uint64_t half = l.bytes / 2;
    assert_int_equal(table(c)->weight_read(c, weight, half, p + half, l.bytes - half, NULL),
                     TSR_OK);
    assert_int_equal(table(c)->weight_read(c, weight, 0, p, half, NULL), TSR_OK);
    *bytes = l.bytes;
    return p;
}

static float *linear(struct tsr_cpu *c, void *h, const struct wt *w, uint64_t T, const float *x,
                     uint32_t act)
{
    struct tsr_tensor in = dev(c, x, TSR_F32, T, w->desc.cols, 0);
    struct tsr_tensor out = dev(c, NULL, TSR_F32, T, w->desc.rows, 0);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_LINEAR,
                             .out = &out,
                             .in = { &in },
                             .weight = h,
                             .act = act };
    run_ok(c, &op);
    float *y = host_of(c, &out);
    undev(c, &in);
    undev(c, &out);
    return y;
}

static float *embed(struct tsr_cpu *c, void *h, const struct wt *w)
{
    uint32_t          ids[3] = { 0, (uint32_t)(w->desc.rows - 1), (uint32_t)(w->desc.rows / 2) };
    struct tsr_tensor in = dev(c, ids, TSR_U32, 1, 3, 0);
    struct tsr_tensor out = dev(c, NULL, TSR_F32, 3, w->desc.cols, 0);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_EMBED,
                             .out = &out,
                             .in = { &in },
                             .weight = h,
                             .scale = 1.0f };
    run_ok(c, &op);
    float *y = host_of(c, &out);
    undev(c, &in);
    undev(c, &out);
    return y;
}

/* One weight on one instruction set: its panels, which are `want` if that is not NULL. */
static uint8_t *check_isa(struct tsr_cpu *c, const struct wt *w, const uint8_t *want)
{
    void                  *first = NULL, *second = NULL;
    uint64_t               bytes = 0, again_bytes = 0, N = w->desc.rows, K = w->desc.cols;
    float                 *x = rnd_new(6 * K, 1.0f);
    struct tsr_weight_desc d = bare(w);
    assert_int_equal(tsr_cpu_weight_load(c, &w->desc, &first, NULL), TSR_OK);
    uint8_t *panels = panels_of(c, w, first, &bytes);
    if (want)
        assert_memory_equal(panels, want, bytes); /* whatever the instruction set */
    struct pages p = pages_of(panels, bytes);
    assert_int_equal(table(c)->weight_borrow(c, &d, p.data, bytes, &second, NULL), TSR_OK);
    assert_int_equal(tsr_cpu_weight_bytes(c, second), bytes);
    static const uint32_t acts[] = { TSR_ACT_F32, TSR_ACT_A16, TSR_ACT_A8 };
    int                   packed = strcmp(w->format.id, TSR_FORMAT_FLOAT) != 0;
    for (int a = 0; a < (packed ? 3 : 1); a++)
        for (uint64_t T = 1; T <= 6; T += 5) {
            float *y = linear(c, first, w, T, x, acts[a]), *z = linear(c, second, w, T, x, acts[a]);
            assert_memory_equal(y, z, T * N * sizeof *y);
            free(y);
            free(z);
        }
    float *y = embed(c, first, w), *z = embed(c, second, w);
    assert_memory_equal(y, z, 3 * K * sizeof *y);
    free(y);
    free(z);
    uint8_t *again = panels_of(c, w, second, &again_bytes);
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, panels, bytes);
    free(again);
    tsr_cpu_weight_free(c, second);
    tsr_cpu_weight_free(c, first);
    (void)munmap(p.map, p.bytes);
    free(x);
    return panels;
}

static void check(struct wt *w)
{
    uint8_t *want = NULL;
    for (size_t i = 0; i < ISAS; i++) {
        struct tsr_cpu *c = cpu_new(test_isas[i]);
        if (!c)
            continue;
        uint8_t *got = check_isa(c, w, want);
        if (want)
            free(got);
        else
            want = got;
        tsr_cpu_destroy(c);
        assert_int_equal(host_bytes, 0);
    }
    assert_non_null(want);
    free(want);
    wt_free(w);
}

static const struct {
    uint64_t rows, cols;
} shapes[] = { { 1, 1 }, { 33, 70 }, { 64, 300 }, { 20, 1100 } };
#define SHAPES (sizeof shapes / sizeof *shapes)

static void floats_come_back(void **state)
{
    static const uint32_t dtypes[] = { TSR_F32, TSR_F16, TSR_BF16 };
    struct wt             w;
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t i = 0; i < 3; i++) {
            wt_float(&w, shapes[s].rows, shapes[s].cols, dtypes[i]);
            check(&w);
        }
}

static void integers_come_back(void **state)
{
    struct wt w;
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t bits = 2; bits <= 8; bits++) {
            wt_int(&w, shapes[s].rows, shapes[s].cols, bits, bits % 2 ? 32 : 0,
                   bits % 3 ? TSR_F16 : TSR_F32, bits % 2 ? TSR_ZERO_STORED : TSR_ZERO_MID);
            check(&w);
        }
    wt_int(&w, 20, 200, 8, 0, TSR_F16, TSR_ZERO_MID);
    w.format.act8 = TSR_ACT8_LLM;
    w.format.act8_threshold = 0.9;
    check(&w);
}

static void affine_and_tables_come_back(void **state)
{
    struct wt w;
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t i = 0; i < 28; i++) {
            wt_affine_any(&w, shapes[s].rows, shapes[s].cols, i);
            check(&w);
            wt_table_any(&w, shapes[s].rows, shapes[s].cols, i);
            check(&w);
        }
}

static void looked_up_come_back(void **state)
{
    struct wt w;
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t bits = 2; bits <= 8; bits++) {
            uint64_t outliers = shapes[s].cols < 40 ? 0 : bits % 3 * 7;
            wt_lut(&w, shapes[s].rows, shapes[s].cols, bits, outliers,
                   bits % 2 ? TSR_F16 : TSR_F32);
            check(&w);
        }
}

static void blocks_come_back(void **state)
{
    static const uint32_t elements[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                         TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                         TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2, TSR_MX_FP3_E1M1,
                                         TSR_MX_INT(2),   TSR_MX_INT(5),   TSR_MX_INT(8) };
    struct wt             w;
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
            wt_mx(&w, shapes[s].rows, shapes[s].cols, elements[i], i % 2 ? 32 : 6, 8);
            check(&w);
        }
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                    uint64_t bytes, const char *facts)
{
    char           text[256] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    void          *weight = NULL;
    assert_int_equal(table(c)->weight_borrow(c, d, data, bytes, &weight, &err), TSR_E_INVAL);
    assert_true(error_is(&err, "w", facts));
}

static void refusals(void **state)
{
    struct tsr_cpu *c = cpu_new("scalar");
    struct wt       w;
    void           *weight = NULL;
    uint64_t        bytes = 0;
    uint8_t         byte;
    (void)state;
    assert_non_null(c);
    wt_int(&w, 40, 100, 4, 32, TSR_F16, TSR_ZERO_MID);
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &weight, NULL), TSR_OK);
    uint8_t               *panels = panels_of(c, &w, weight, &bytes), *room = NULL;
    struct tsr_weight_desc d = bare(&w);
    assert_int_equal(posix_memalign((void **)&room, 64, bytes + 64), 0);
    assert_non_null(room);
    memcpy(room, panels, bytes);
    refuses(c, &d, room, bytes - 1, "3839 3840");
    refuses(c, &d, room, bytes + 64, "3904 3840");
    refuses(c, &d, NULL, bytes, "64");
    refuses(c, &d, room + 32, bytes, "64");
    d.cols = 0;
    refuses(c, &d, room, bytes, "rows columns");
    d.cols = UINT64_MAX;
    refuses(c, &d, room, bytes, "rows columns");
    d = bare(&w);
    d.rows = UINT32_MAX;
    d.cols = UINT32_MAX / 2;
    refuses(c, &d, room, bytes, "3840 5188146770730811392");
    /* beside the bytes of a weight */
    assert_int_equal(table(c)->weight_read(c, weight, bytes, &byte, 1, NULL), TSR_E_INVAL);
    assert_int_equal(table(c)->weight_read(c, weight, 1, &byte, UINT64_MAX, NULL), TSR_E_INVAL);
    assert_int_equal(table(c)->weight_read(c, weight, 0, NULL, 1, NULL), TSR_E_INVAL);
    /* a format that weight_load() declines */
    struct tsr_format        other = { .struct_size = sizeof other, .id = "org.example.other/1" };
    struct tsr_weight_layout l = { .struct_size = sizeof l };
    d = bare(&w);
    d.format = &other;
    assert_int_equal(table(c)->weight_layout(c, &d, &l, NULL), TSR_E_UNSUPPORTED);
    tsr_cpu_weight_free(c, weight);
    free(room);
    free(panels);
    wt_free(&w);
    tsr_cpu_destroy(c);
    assert_int_equal(host_bytes, 0);
}

/* Any bytes: numbers may be wrong, memory is left alone (the pages of pages_of(), sanitizers); what
 * would lead outside is refused. */
static void damaged_panels(void **state)
{
    struct tsr_cpu *c = cpu_new("avx512");
    unsigned        taken = 0, refused = 0;
    (void)state;
    c = c ? c : cpu_new("scalar");
    assert_non_null(c);
    for (unsigned round = 0; round < 60; round++) {
        struct wt w;
        void     *weight = NULL;
        uint64_t  bytes = 0;
        if (round % 3 == 0)
            wt_lut(&w, 40, 300, 2 + round % 7, 5, TSR_F32);
        else if (round % 3 == 1)
            wt_mx(&w, 40, 300, round % 2 ? TSR_MX_FP4_E2M1 : TSR_MX_FP8_E4M3, 32, 8);
        else
            wt_int(&w, 40, 300, 2 + round % 7, 32, TSR_F16, TSR_ZERO_STORED);
        assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &weight, NULL), TSR_OK);
        uint8_t *panels = panels_of(c, &w, weight, &bytes);
        tsr_cpu_weight_free(c, weight);
        for (uint64_t i = 0; i < (round < 30 ? 1 : bytes); i++)
            panels[rnd() % bytes] = (uint8_t)rnd();
        struct pages           p = pages_of(panels, bytes);
        struct tsr_weight_desc d = bare(&w);
        tsr_status             st = table(c)->weight_borrow(c, &d, p.data, bytes, &weight, NULL);
        if (st == TSR_OK) {
            float *x = rnd_new(6 * 300, 1.0f);
            for (uint32_t act = 0; act <= TSR_ACT_A8; act++)
                free(linear(c, weight, &w, 6, x, act));
            free(embed(c, weight, &w));
            tsr_cpu_weight_free(c, weight);
            free(x);
            taken++;
        } else {
            assert_int_equal(st, TSR_E_INVAL);
            assert_int_equal(round % 3, 0); /* outliers alone can lead outside */
            refused++;
        }
        (void)munmap(p.map, p.bytes);
        free(panels);
        wt_free(&w);
    }
    assert_true(taken >= 40 && refused >= 5);
    tsr_cpu_destroy(c);
    assert_int_equal(host_bytes, 0);
}

/* The rows past the last have room for outliers, which the kernels read as well. */
static void damaged_padding(void **state)
{
    (void)state;
    struct tsr_cpu *c = cpu_new("scalar");
    struct wt       w;
    void           *weight = NULL, *other = NULL;
    uint64_t        bytes = 0;
    assert_non_null(c);
    wt_lut(&w, 40, 300, 4, 5, TSR_F32);
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &weight, NULL), TSR_OK);
    const struct tsr_cpu_weight *have = weight;
    uint64_t column = (uint64_t)((const uint8_t *)(have->extra.column + 41 * 5 + 4) - have->data);
    uint64_t where = (uint64_t)(have->extra.where + 41 * 5 + 4 - have->data);
    uint8_t *panels = panels_of(c, &w, weight, &bytes);
    for (unsigned i = 0; i < 3; i++) {
        struct tsr_weight_desc d = bare(&w);
        panels[column + 2] = i == 1 ? 1 : 0; /* column 65,536 of 300 */
        panels[where] = i == 2 ? 200 : 0;
        struct pages p = pages_of(panels, bytes);
        assert_int_equal(table(c)->weight_borrow(c, &d, p.data, bytes, &other, NULL),
                         i ? TSR_E_INVAL : TSR_OK);
        if (i == 0)
            tsr_cpu_weight_free(c, other);
        (void)munmap(p.map, p.bytes);
    }
    free(panels);
    tsr_cpu_weight_free(c, weight);
    wt_free(&w);
    tsr_cpu_destroy(c);
    assert_int_equal(host_bytes, 0);
}

/* ---- placing codes ------------------------------------------------------------------ */

static uint32_t bits_at(const uint8_t *row, uint64_t k, uint32_t bits)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < bits; i++)
        v |= (uint32_t)(row[(k * bits + i) / 8] >> (k * bits + i) % 8 & 1) << i;
    return v;
}

/* Each code is where EMBED looks for it, and all else of the panel is zeros: what was there before
 * is written over, what a row's last byte holds beyond its last code does not come along.  The rows
 * end with their page. */
static void check_place(const struct tsr_cpu_kernels *k, enum tsr_cpu_layout l, uint32_t bits,
                        uint64_t rows, uint64_t cols)
{
    uint64_t     step = cpu_step(l), steps = cpu_ceil(cols, step), stride = (cols * bits + 7) / 8;
    uint64_t     bytes = steps * 2 * cpu_unit(l);
    struct pages p = { .bytes = cpu_ceil(rows * stride, 4096) * 4096 + 4096 };
    uint8_t     *panel = malloc(bytes), *codes;
    assert_non_null(panel);
    memset(panel, 0xa5, bytes);
    p.map = mmap(NULL, p.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p.map != MAP_FAILED);
    assert_int_equal(mprotect(p.map + p.bytes - 4096, 4096, PROT_NONE), 0);
    codes = p.map + p.bytes - 4096 - rows * stride;
    for (uint64_t i = 0; i < rows * stride; i++)
        codes[i] = (uint8_t)rnd();
    k->place(l, panel, codes, stride, rows, cols, bits);
    for (uint64_t r = 0; r < PANEL; r++)
        for (uint64_t c = 0; c < steps * step; c++) {
            uint32_t want = r < rows && c < cols ? bits_at(codes + r * stride, c, bits) : 0;
            uint32_t got = cpu_code_get(l, panel, r, c);
            if (got != want)
                fail_msg("%s, layout %d, %u bits, %llux%llu: row %llu column %llu is %u, wanted %u",
                         k->name, (int)l, bits, (unsigned long long)rows, (unsigned long long)cols,
                         (unsigned long long)r, (unsigned long long)c, got, want);
        }
    (void)munmap(p.map, p.bytes);
    free(panel);
}

static void codes_are_placed(void **state)
{
    (void)state;
    static const struct {
        enum tsr_cpu_layout l;
        uint32_t            bits;
    } all[] = { { W_I2, 2 }, { W_I3, 3 }, { W_I4, 2 }, { W_I4, 3 }, { W_I4, 4 }, { W_I6, 5 },
                { W_I5, 5 }, { W_I6, 6 }, { W_I8, 5 }, { W_I8, 6 }, { W_I8, 7 }, { W_I8, 8 } };
    static const uint64_t rows[] = { 1, 15, 16, 17, 31, 32 };
    static const uint64_t cols[] = { 1,  3,  4,  7,  8,  15,  16,  17,  31,  32, 33,
                                     40, 63, 64, 65, 96, 100, 127, 128, 129, 200 };
    for (unsigned isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
            for (unsigned r = 0; r < sizeof rows / sizeof *rows; r++)
                for (unsigned k = 0; k < sizeof cols / sizeof *cols; k++)
                    check_place(c->k, all[i].l, all[i].bits, rows[r], cols[k]);
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_placed),
        cmocka_unit_test(floats_come_back),
        cmocka_unit_test(integers_come_back),
        cmocka_unit_test(affine_and_tables_come_back),
        cmocka_unit_test(looked_up_come_back),
        cmocka_unit_test(blocks_come_back),
        cmocka_unit_test(refusals),
        cmocka_unit_test(damaged_panels),
        cmocka_unit_test(damaged_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
