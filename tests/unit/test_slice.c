/* Parts of a linear: cut between columns they add up to the whole, cut between rows they are its rows,
 * to the bit, in every format, under every kind of activation, on every instruction set. */
#include "table_fixture.h"

#include "model/packed_slice.h"

#include <math.h>
#include <stdio.h>

static const uint32_t acts[] = { TSR_ACT_F32, TSR_ACT_A16, TSR_ACT_A8 };

static struct tsr_weight_desc desc_of(const struct tsr_model_packed *p)
{
    return (struct tsr_weight_desc){ .struct_size = sizeof(struct tsr_weight_desc),
                                     .name = "part",
                                     .format = &p->format,
                                     .rows = p->rows,
                                     .cols = p->cols,
                                     .codes = p->codes,
                                     .meta = p->meta,
                                     .code_stride = p->code_stride,
                                     .meta_stride = p->meta_stride,
                                     .segment = p->segment };
}

/* x [T, K], columns [col, col + d->cols) of ldx, through the weight d. */
static float *linear(struct tsr_cpu *c, const struct tsr_weight_desc *d, uint32_t act,
                     const float *x, uint64_t ldx, uint64_t col, uint64_t T)
{
    float *part = malloc(T * d->cols * 4);
    void  *h = NULL;
    assert_non_null(part);
    for (uint64_t t = 0; t < T; t++)
        memcpy(part + t * d->cols, x + t * ldx + col, d->cols * 4);
    assert_int_equal(tsr_cpu_weight_load(c, d, &h, NULL), TSR_OK);
    struct tsr_tensor in = dev(c, part, TSR_F32, T, d->cols, 8);
    struct tsr_tensor out = dev(c, NULL, TSR_F32, T, d->rows, 4);
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
    tsr_cpu_weight_free(c, h);
    free(part);
    return y;
}

/* The tree over n sums of `size` numbers each, into part[0]. */
static void add_tree(float **part, uint32_t n, uint64_t size)
{
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t r = 0; r + step < n; r += 2 * step)
            for (uint64_t i = 0; i < size; i++)
                part[r][i] = part[r][i] + part[r + step][i];
}

struct whole {
    struct tsr_model_packed packed;
    struct wt               w;
};

static void whole_of(struct whole *h)
{
    h->packed = (struct tsr_model_packed){ .format = h->w.format,
                                           .rows = h->w.desc.rows,
                                           .cols = h->w.desc.cols,
                                           .codes = h->w.codes,
                                           .meta = h->w.meta,
                                           .code_stride = h->w.desc.code_stride,
                                           .meta_stride = h->w.desc.meta_stride };
}

static void same(const float *got, const float *want, uint64_t n, const char *isa, uint32_t act,
                 uint32_t ranks, const struct tsr_model_packed *p)
{
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s %s bits %u group %llu, %llu x %llu, act %u, %u ranks: number %llu is %a, "
                     "wanted %a",
                     isa, p->format.id, p->format.bits, (unsigned long long)p->format.group,
                     (unsigned long long)p->rows, (unsigned long long)p->cols, act, ranks,
                     (unsigned long long)i, (double)got[i], (double)want[i]);
}

/* Returns how many widths above one rank were possible. */
static int check_columns(const struct whole *h, uint64_t T, const float *x)
{
    const struct tsr_model_packed *p = &h->packed;
    struct tsr_model_cut           c = {
                  .name = "w", .rows = p->rows, .cols = p->cols, .format = &p->format
    };
    uint64_t n = T * p->rows;
    int      widths = 0;
    for (uint32_t ranks = 2; ranks <= 8; ranks *= 2) {
        struct tsr_model_packed *part[8];
        struct tsr_model_slice   s[8];
        uint64_t                 bytes = 0;
        if (!tsr_model_slice_allowed(&c, ranks))
            continue;
        widths++;
        for (uint32_t r = 0; r < ranks; r++) {
            assert_int_equal(tsr_model_slice_columns(&c, r, ranks, &s[r], NULL), TSR_OK);
            assert_int_equal(s[r].col, r ? s[r - 1].col + s[r - 1].cols : 0);
            assert_int_equal(tsr_model_packed_slice(p, &s[r], &part[r], NULL), TSR_OK);
            bytes += tsr_model_packed_bytes(part[r]);
        }
        assert_int_equal(s[ranks - 1].col + s[ranks - 1].cols, p->cols);
        if (strcmp(p->format.id, TSR_FORMAT_FLOAT) == 0)
            assert_int_equal(bytes, tsr_model_packed_bytes(p));
        for (int isa = 0; isa < ISAS; isa++) {
            struct tsr_cpu *cpu = cpu_new(test_isas[isa]);
            for (int a = 0; cpu && a < 3; a++) {
                float *sum[8];
                float *want = linear(cpu, &h->w.desc, acts[a], x, p->cols, 0, T);
                for (uint32_t r = 0; r < ranks; r++) {
                    struct tsr_weight_desc d = desc_of(part[r]);
                    sum[r] = linear(cpu, &d, acts[a], x, p->cols, s[r].col, T);
                }
                add_tree(sum, ranks, n);
                same(sum[0], want, n, test_isas[isa], acts[a], ranks, p);
                for (uint32_t r = 0; r < ranks; r++)
                    free(sum[r]);
                free(want);
            }
            if (cpu)
                tsr_cpu_destroy(cpu);
        }
        for (uint32_t r = 0; r < ranks; r++)
            tsr_model_packed_destroy(part[r]);
    }
    return widths;
}

static void check_rows(const struct whole *h, uint64_t T, const float *x)
{
    const struct tsr_model_packed *p = &h->packed;
    struct tsr_model_cut           c = { .rows = p->rows, .cols = p->cols, .format = &p->format };
    uint64_t                       first = rnd() % p->rows, rows = 1 + rnd() % (p->rows - first);
    struct tsr_model_slice         s = tsr_model_slice_rows(&c, first, rows);
    struct tsr_model_packed       *part;
    assert_int_equal(tsr_model_packed_slice(p, &s, &part, NULL), TSR_OK);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *cpu = cpu_new(test_isas[isa]);
        for (int a = 0; cpu && a < 3; a++) {
            struct tsr_weight_desc d = desc_of(part);
            float                 *want = linear(cpu, &h->w.desc, acts[a], x, p->cols, 0, T);
            float                 *got = linear(cpu, &d, acts[a], x, p->cols, 0, T);
            for (uint64_t t = 0; t < T; t++)
                same(got + t * rows, want + t * p->rows + first, rows, test_isas[isa], acts[a], 1,
                     p);
            free(want);
            free(got);
        }
        if (cpu)
            tsr_cpu_destroy(cpu);
    }
    tsr_model_packed_destroy(part);
}

/* The i-th of a list that has every format. */
static void make(struct wt *w, int i, uint64_t rows, uint64_t cols)
{
    static const uint32_t dtypes[] = { TSR_F32, TSR_F16, TSR_BF16 };
    static const uint32_t elements[] = { TSR_MX_FP8_E4M3, TSR_MX_FP6_E3M2, TSR_MX_FP6_E2M3,
                                         TSR_MX_FP5_E2M2, TSR_MX_FP4_E2M1, TSR_MX_FP3_E1M1,
                                         TSR_MX_INT(5),   TSR_MX_INT(8) };
    static const uint64_t groups[] = { 0, 16, 32, 64, 128 };
    uint32_t              scale = rnd() & 1 ? TSR_F32 : TSR_F16;
    if (i < 3)
        wt_float(w, rows, cols, dtypes[i]);
    else if (i < 17)
        wt_int(w, rows, cols, 2 + (uint32_t)(i - 3) % 7, groups[rnd() % 5], scale,
               i < 10 ? TSR_ZERO_MID : TSR_ZERO_STORED);
    else if (i < 25)
        wt_mx(w, rows, cols, elements[i - 17], groups[rnd() % 4], 4 + (uint32_t)(rnd() % 5));
    else if (i < 32)
        wt_lut(w, rows, cols, 2 + (uint32_t)(i - 25), 0, scale);
    else if (i < 60)
        wt_affine_any(w, rows, cols, (uint32_t)(i - 32));
    else
        wt_table_any(w, rows, cols, (uint32_t)(i - 60));
}
#define FORMATS 95

static void parts_make_the_whole(void **state)
{
    (void)state;
    /* 3 segments; 5; a last one of one column; 8 even ones, of 32, 64 and 256; a ragged end */
    static const uint64_t K[] = { 96, 160, 225, 256, 512, 2048, 1100 };
    static const uint64_t N[] = { 1, 16, 33 }, T[] = { 1, 3, 8, 17 };
    int                   widths = 0;
    for (int i = 0; i < 2 * FORMATS; i++) {
        struct whole h;
        uint64_t     k = K[rnd() % 7], n = N[rnd() % 3], t = T[rnd() % 4];
        make(&h.w, i % FORMATS, n, k);
        whole_of(&h);
        float *x = rnd_new(t * k, 2.0f);
        widths += check_columns(&h, t, x);
        check_rows(&h, t, x);
        free(x);
        wt_free(&h.w);
    }
    assert_true(widths > FORMATS);
    assert_int_equal(host_bytes, 0);
}

/* Sums that underflow are zeros of either sign, segment by segment; the whole's is +0 and so is that of
 * the parts. */
static void no_sum_is_negative_zero(void **state)
{
    (void)state;
    struct whole h;
    float        x[2 * 256];
    make(&h.w, 0, 16, 256);
    whole_of(&h);
    for (uint64_t i = 0; i < 16 * 256; i++)
        ((float *)h.w.codes)[i] = i / 256 % 3 ? 1e-30f : -1e-30f;
    for (int i = 0; i < 512; i++)
        x[i] = i < 256 ? -1e-30f : 1e-30f;
    assert_int_equal(check_columns(&h, 2, x), 3);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *cpu = cpu_new(test_isas[isa]);
        if (!cpu)
            continue;
        float *y = linear(cpu, &h.w.desc, TSR_ACT_F32, x, 256, 0, 2), zero = 0;
        for (int i = 0; i < 32; i++)
            assert_memory_equal(&y[i], &zero, 4);
        free(y);
        tsr_cpu_destroy(cpu);
    }
    wt_free(&h.w);
}

static void refused(struct tsr_model_cut c, uint32_t ranks, const char *text)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_model_slice s;
    assert_false(tsr_model_slice_allowed(&c, ranks));
    assert_int_equal(tsr_model_slice_columns(&c, 0, ranks, &s, &e.err), TSR_E_CONFIG);
    assert_string_equal(e.text, text);
}

static void what_cannot_be_cut_says_why(void **state)
{
    (void)state;
    struct tsr_format    i4 = { .struct_size = sizeof i4,
                                .id = TSR_FORMAT_INT,
                                .bits = 4,
                                .group = 128,
                                .scale_dtype = TSR_F16 };
    struct tsr_model_cut c = { .name = "d", .rows = 8, .cols = 11008, .format = &i4 };
    refused(c, 3,
            "tensor 'd': cannot be cut for 3 ranks: a group has 1, 2, 4 or 8 ranks; 1 and 2 "
            "would do");
    refused(c, 4,
            "tensor 'd': cannot be cut for 4 ranks: column 2752 lies inside a group of 128 "
            "that shares a scale; 1 and 2 would do");
    i4.group = 32;
    assert_true(tsr_model_slice_allowed(&c, 8));
    c.unit = 2752;
    refused(c, 8,
            "tensor 'd': cannot be cut for 8 ranks: column 1376 lies inside heads of 2752 "
            "columns that stay together; 1, 2 and 4 would do");
    c.unit = 0;
    c.ordered = true;
    refused(c, 2,
            "tensor 'd': cannot be cut for 2 ranks: its columns are in a permuted order "
            "(act-order); 1 would do");
    c.ordered = false;
    i4.bits = 8;
    i4.group = 0;
    i4.act8 = TSR_ACT8_LLM;
    refused(c, 2,
            "tensor 'd': cannot be cut for 2 ranks: LLM.int8 has one activation scale for "
            "all columns; 1 would do");
    struct tsr_format k4 = {
        .struct_size = sizeof k4, .id = TSR_FORMAT_AFFINE, .bits = 4, .group = 32, .scale_bits = 6
    };
    c = (struct tsr_model_cut){ .name = "d", .rows = 8, .cols = 1536, .format = &k4 };
    assert_true(tsr_model_slice_allowed(&c, 2));
    refused(c, 4,
            "tensor 'd': cannot be cut for 4 ranks: column 384 lies inside a group of 256 that "
            "shares a scale; 1 and 2 would do");
    struct tsr_format xs = {
        .struct_size = sizeof xs, .id = TSR_FORMAT_TABLE, .bits = 4, .group = 32, .scale_bits = 6
    };
    c.format = &xs;
    assert_true(tsr_model_slice_allowed(&c, 2));
    refused(c, 4,
            "tensor 'd': cannot be cut for 4 ranks: column 384 lies inside a group of 256 that "
            "shares a scale; 1 and 2 would do");
    struct tsr_format lut = { .struct_size = sizeof lut,
                              .id = TSR_FORMAT_LUT,
                              .bits = 4,
                              .scale_dtype = TSR_F16,
                              .outliers = 1 };
    c.format = &lut;
    refused(c, 2,
            "tensor 'd': cannot be cut for 2 ranks: its rows keep outliers next to the codes; "
            "1 would do");
    c = (struct tsr_model_cut){ .name = "d", .rows = 8, .cols = 96 };
    refused(c, 4,
            "tensor 'd': cannot be cut for 4 ranks: its 96 columns are 3 segments of 32, "
            "rank 2 has none; 1 would do");
}

/* A plugin's own format is cut as the numbers that it stands for; an order goes along with rows. */
static void other_parts(void **state)
{
    (void)state;
    float                  *v = rnd_new(4 * 64, 1.0f);
    uint32_t                order[64];
    struct tsr_model_packed p = { .format = { .struct_size = sizeof p.format, .id = "org.x/1" },
                                  .rows = 4,
                                  .cols = 64,
                                  .dense = v },
                            *part;
    struct tsr_model_slice s;
    struct tsr_matrix      m = { .struct_size = sizeof m,
                                 .dtype = TSR_F32,
                                 .name = "d",
                                 .data = v,
                                 .rows = 4,
                                 .cols = 64,
                                 .row_stride = 256 };
    struct tsr_model_cut   c = tsr_model_cut_of(&m, &p);
    assert_int_equal(tsr_model_slice_columns(&c, 1, 2, &s, NULL),
                     TSR_E_CONFIG); /* 2 segments: 1 rank */
    s = (struct tsr_model_slice){ .row = 1, .rows = 2, .col = 32, .cols = 32, .segment = 32 };
    assert_int_equal(tsr_model_packed_slice(&p, &s, &part, NULL), TSR_OK);
    assert_memory_equal(part->dense, v + 64 + 32, 32 * 4);
    assert_memory_equal(part->dense + 32, v + 128 + 32, 32 * 4);
    tsr_model_packed_destroy(part);
    struct tsr_matrix view = tsr_model_matrix_slice(&m, &s);
    assert_ptr_equal(view.data, v + 64 + 32);
    assert_int_equal(view.rows, 2);
    assert_int_equal(view.cols, 32);
    assert_int_equal(view.row_stride, 256);

    struct wt w;
    wt_int(&w, 4, 64, 4, 32, TSR_F16, TSR_ZERO_MID);
    for (uint32_t i = 0; i < 64; i++)
        order[i] = 63 - i;
    p = (struct tsr_model_packed){ .format = w.format,
                                   .rows = 4,
                                   .cols = 64,
                                   .codes = w.codes,
                                   .meta = w.meta,
                                   .code_stride = w.desc.code_stride,
                                   .meta_stride = w.desc.meta_stride,
                                   .ordered = true,
                                   .order = order };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_model_packed_slice(&p, &s, &part, &e.err), TSR_E_BUG);
    s = tsr_model_slice_rows(&c, 2, 2);
    assert_int_equal(tsr_model_packed_slice(&p, &s, &part, NULL), TSR_OK);
    assert_memory_equal(part->order, order, sizeof order);
    float all[4 * 64], some[2 * 64];
    assert_int_equal(tsr_model_packed_dequantize(&p, 0, 4, all, NULL), TSR_OK);
    assert_int_equal(tsr_model_packed_dequantize(part, 0, 2, some, NULL), TSR_OK);
    assert_memory_equal(some, all + 128, sizeof some);
    tsr_model_packed_destroy(part);
    wt_free(&w);
    free(v);
}

/* The backend refuses widths of segments that are none. */
static void segments_are_checked(void **state)
{
    (void)state;
    struct wt       w;
    struct tsr_cpu *c = cpu_new("scalar");
    void           *h = NULL;
    wt_int(&w, 2, 512, 4, 32, TSR_F16, TSR_ZERO_MID);
    w.desc.segment = 48;
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_E_INVAL);
    w.desc.segment = 32;
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_E_INVAL);
    w.desc.segment = 64;
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
    tsr_cpu_weight_free(c, h);
    /* a host of minor 0 has no such member */
    w.desc.segment = 48;
    w.desc.struct_size = offsetof(struct tsr_weight_desc, segment);
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, NULL), TSR_OK);
    tsr_cpu_weight_free(c, h);
    tsr_cpu_destroy(c);
    wt_free(&w);
}

int main(void)
{
    const char *seed = getenv("TSR_TEST_SEED");
    if (seed)
        seed_state ^= strtoull(seed, NULL, 10) * UINT64_C(0x9e3779b97f4a7c15);
    const struct CMUnitTest tests[] = { cmocka_unit_test(parts_make_the_whole),
                                        cmocka_unit_test(no_sum_is_negative_zero),
                                        cmocka_unit_test(what_cannot_be_cut_says_why),
                                        cmocka_unit_test(other_parts),
                                        cmocka_unit_test(segments_are_checked) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
