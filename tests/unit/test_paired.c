/* Two arms on the same tokens against sums by hand; base files against bytes by the format's own
 * formulas; questions. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "eval/choices.h"
#include "eval/kld.h"
#include "eval/paired.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *scratch(void)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/tessera-paired-%ld.kld", (long)getpid());
    return path;
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance; /* false for NaN */
}

/* ---- differences --------------------------------------------------------------------- */

/* Three windows of 4 tokens, 2 of each scored. */
static void three_windows(struct tsr_eval_windows *w, uint64_t start[4], uint64_t from[3])
{
    for (uint64_t i = 0; i < 3; i++) {
        start[i + 1] = 4 * (i + 1);
        from[i] = 2;
    }
    start[0] = 0;
    *w = (struct tsr_eval_windows){ .n = 3, .start = start, .score_from = from, .scored = 6 };
}

static void test_by_hand(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_eval_windows w;
    uint64_t                start[4], from[3];
    float                   nll_a[6] = { 1.5f, 2.0f, 1.0f, 1.0f, 3.0f, 2.5f };
    float                   nll_b[6] = { 1.0f, 2.0f, 0.5f, 1.0f, 2.0f, 2.0f };
    float                   kl_a[6] = { 0.5f, 0.0f, 1e-9f, 0.1f, 0.2f, 0.4f }, kl_b[6] = { 0 };
    uint32_t                top_a[6] = { 1, 2, 3, 4, 5, 6 }, top_b[6] = { 1, 2, 3, 4, 5, 7 };
    struct tsr_eval_trace   a = { nll_a, kl_a, top_a, 6 }, b = { nll_b, kl_b, top_b, 6 };
    struct tsr_eval_paired  p;
    three_windows(&w, start, from);
    if (tsr_eval_paired_measure(&p, &w, &a, &b, 0.05, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    /* differences .5 0 | .5 0 | 1 .5: mean 2.5/6; sums by window less 2 means: -1/3 -1/3 2/3 */
    assert_true(near(p.delta.mean, 2.5 / 6, 1e-12));
    assert_true(near(p.delta.se, sqrt(6.0 / 9 * 3 / 2) / 6, 1e-12));
    assert_true(p.delta.clusters == 3 && p.delta.n == 6);
    /* t with 2 degrees of freedom: 4.302653 (tables) */
    assert_true(near(p.delta.high - p.delta.mean, 4.302653 * p.delta.se, 1e-6));
    assert_true(near(p.top1.mean, 5.0 / 6, 1e-12));
    double want = 0.0, squares = 0.0;
    for (int i = 0; i < 6; i++) {
        double d = exp(-(double)nll_a[i]) - exp(-(double)nll_b[i]);
        want += d / 6;
        squares += d * d / 6;
    }
    assert_true(near(p.delta_p.d.mean, want, 1e-12) && near(p.delta_p.rms, sqrt(squares), 1e-12));
    assert_true(near(p.kl.d.mean, 1.2 / 6, 1e-7)); /* 0.1f and so on are F32 */
    assert_true(near(p.kl_delta.mean, p.kl.d.mean, 1e-15));
    assert_true(p.kl.min == 0.0 && p.kl.max == 0.5);
    assert_true(p.kl.percentile[4] == (double)0.1f); /* median: three of six do not exceed it */
    assert_true(p.kl.percentile[7] == 0.0 && p.kl.percentile[0] == 0.5);
    assert_true(p.kl.histogram[0] == 2); /* 0 and 1e-9 */
    /* 0.1 is at 7 decades: 0.2 half a decade less than a bin of 0.32, 0.4 and 0.5 in the next */
    assert_true(p.kl.histogram[1 + 28] + p.kl.histogram[1 + 27] == 1);
    assert_true(p.kl.histogram[1 + 29] == 1 && p.kl.histogram[1 + 30] == 2);
}

static void test_without_kl(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_eval_windows w;
    uint64_t                start[4], from[3];
    float                   nll[6] = { 1, 2, 3, 4, 5, 6 };
    uint32_t                top[6] = { 0 };
    struct tsr_eval_trace   a = { nll, NULL, top, 6 }, shorter = { nll, NULL, top, 5 };
    struct tsr_eval_paired  p;
    three_windows(&w, start, from);
    assert_int_equal(tsr_eval_paired_measure(&p, &w, &a, &a, 0.05, &e.err), TSR_OK);
    assert_true(p.delta.mean == 0.0 && p.delta.p == 1.0 && p.top1.mean == 1.0);
    assert_true(isnan(p.kl.d.mean) && isnan(p.kl_delta.mean) && isnan(p.kl.percentile[0]));
    assert_int_equal(tsr_eval_paired_measure(&p, &w, &a, &shorter, 0.05, &e.err), TSR_E_BUG);
    w.n = 1; /* one window: a mean, and nothing about it */
    w.scored = 2;
    a.n = 2;
    assert_int_equal(tsr_eval_paired_measure(&p, &w, &a, &a, 0.05, &e.err), TSR_OK);
    assert_true(p.delta.mean == 0.0 && isnan(p.delta.low) && isnan(p.delta.p));
}

/* ---- base files ------------------------------------------------------------------------ */

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

/* One chunk of 4 tokens over a vocabulary of 3: one row. */
static void base_file(unsigned char f[52], float scale, float low)
{
    static const unsigned codes[3] = { 65535, 61439, 0 };
    memset(f, 0, 52);
    memcpy(f, "_logits_", 8);
    put32(f + 8, 4);
    put32(f + 12, 3);
    put32(f + 16, 1);
    for (uint32_t i = 0; i < 4; i++)
        put32(f + 20 + 4 * i, i % 3);
    put32(f + 36, tsr_f32_bits(scale));
    put32(f + 40, tsr_f32_bits(low));
    for (int i = 0; i < 3; i++) {
        f[44 + 2 * i] = (unsigned char)codes[i];
        f[45 + 2 * i] = (unsigned char)(codes[i] >> 8);
    }
}

static void write_file(const void *data, size_t n)
{
    FILE *f = fopen(scratch(), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void refused(const unsigned char *f, size_t n, const char *facts)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_eval_kld *k = NULL;
    float                row[3];
    write_file(f, n);
    tsr_status st = tsr_eval_kld_open(&k, scratch(), &e.err);
    if (st == TSR_OK)
        st = tsr_eval_kld_read(k, 0, 0, 1, row, &e.err);
    tsr_eval_kld_close(k);
    assert_int_equal(st, TSR_E_INPUT);
    assert_true(error_is(&e.err, scratch(), facts));
}

static void test_base_read(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_eval_kld     *k = NULL;
    struct tsr_eval_windows *w = NULL;
    unsigned char            f[52];
    float                    row[3];
    base_file(f, 0.25f, -16384.0f);
    write_file(f, sizeof f);
    if (tsr_eval_kld_open(&k, scratch(), &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(k->context == 4 && k->vocab == 3 && k->chunks == 1 && k->rows == 1);
    assert_int_equal(tsr_eval_kld_read(k, 0, 0, 1, row, &e.err), TSR_OK);
    /* log p = scale * code + floor, exact here */
    assert_true(row[0] == -0.25f && row[1] == 0.25f * 61439.0f - 16384.0f && row[2] == -16384.0f);
    assert_int_equal(tsr_eval_kld_windows(k, 2, 0, &w, &e.err), TSR_OK);
    assert_true(w->n == 1 && w->scored == 1 && w->score_from[0] == 3 && w->window == 4);
    assert_true(w->ids[0] == 2 && w->ids[1] == 1 && w->ids[3] == 0);
    tsr_eval_windows_destroy(w);
    tsr_eval_kld_close(k);
    refused(f, 51, "51");
    refused(f, 10, "llama-perplexity");
    put32(f + 24, 3);
    refused(f, 52, "24 3");
    base_file(f, NAN, 0);
    refused(f, 52, "36");
    base_file(f, -1, 0);
    refused(f, 52, "-1");
    put32(f + 8, 0x80000000u);
    refused(f, 52, "8 1 3");
    (void)unlink(scratch());
}

static void test_base_write(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    uint32_t                ids[4] = { 0, 1, 2, 0 };
    uint64_t                start[2] = { 0, 4 }, from[1] = { 3 };
    struct tsr_eval_windows w = { .ids = ids,
                                  .start = start,
                                  .score_from = from,
                                  .n = 1,
                                  .scored = 1,
                                  .window = 4,
                                  .opt.protocol = TSR_EVAL_PPL_LLAMACPP_512 };
    const float             logits[3] = { 1.0f, 0.0f, -20.0f };
    struct tsr_kld_out     *o = NULL;
    unsigned char           want[52];
    char                   *got = NULL;
    uint64_t                n = 0;
    if (tsr_eval_kld_create(&o, scratch(), &w, 3, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_eval_kld_put(o, logits);
    assert_int_equal(tsr_eval_kld_commit(o, &e.err), TSR_OK);
    /* the floor is 16 below the largest; codes 65535, round(65535 * 15 / 16) = 61439, 0 */
    base_file(want, 16.0f / 65535.0f, (float)(-16.0 - log(1.0 + exp(-1.0) + exp(-21.0))));
    assert_int_equal(tsr_file_slurp(scratch(), 1000, &got, &n, &e.err), TSR_OK);
    assert_int_equal(n, sizeof want);
    assert_memory_equal(got, want, sizeof want);
    free(got);
    (void)unlink(scratch());
    /* a row too few is not a file */
    assert_int_equal(tsr_eval_kld_create(&o, scratch(), &w, 3, &e.err), TSR_OK);
    assert_int_equal(tsr_eval_kld_commit(o, &e.err), TSR_E_BUG);
    assert_false(tsr_path_exists(scratch()));
    w.opt.protocol = TSR_EVAL_PPL_GPTQ_2048;
    assert_int_equal(tsr_eval_kld_create(&o, scratch(), &w, 3, &e.err), TSR_E_CONFIG);
}

/* By the sum of the format's owner: what is at e^-16 or below does not count, nothing is normalized. */
static void test_divergence(void **state)
{
    (void)state;
    const float log_p[3] = { logf(0.5f), logf(0.6f), -16.0f };
    const float q[3] = { 1.0f, 1.0f, 1.0f }; /* a third each */
    double      want = 0.5 * log(1.5) + 0.6 * log(1.8);
    assert_true(
        near(tsr_eval_kld_divergence(log_p, q, 1.0 + log(3.0), 3), want, 1e-7)); /* F32 logs */
    const float bad[3] = { NAN, 0.0f, 0.0f };
    assert_true(isnan(tsr_eval_kld_divergence(bad, q, 1.0, 3)));
}

/* ---- questions --------------------------------------------------------------------------- */

static void test_questions(void **state)
{
    (void)state;
    static const char text[] = "{\"context\": \"The sky is\", \"choices\": [\"blue\", \" red\"], "
                               "\"answer\": 1}\n\n{\"query\": \"Q: \", \"choices\": [\"a\", \"b\", "
                               "\"c\"], \"gold\": \"C\"}";
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"context\": \"a\", \"choices\": [\"b\", 3]}",
        "{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}",
        "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}",
        "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"A\\u0000\"}",
    };
    static const char nul[] =
        "{\"context\": \"a\\u0000b\", \"choices\": [\"c\\u0000d\", \"\\u0000\"], "
        "\"answer\": 0}\n"
        "{\"context\": \"\\u0000\\n\", \"choices\": [\"b\", \"c\"], \"answer\": 0}";
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_eval_choices *c = NULL;
    uint64_t                 only_a, only_b;
    if (tsr_eval_choices_parse(&c, "q", text, sizeof text - 1, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(c->n, 2);
    assert_string_equal(c->q[0].choice[0].v, " blue");
    assert_string_equal(c->q[0].choice[1].v, " red");
    assert_string_equal(c->q[1].choice[2].v, "c");
    assert_true(c->q[0].answer == 1 && c->q[1].answer == 2);
    tsr_eval_choices_destroy(c);
    if (tsr_eval_choices_parse(&c, "q", nul, sizeof nul - 1, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_true(c->q[0].context.n == 3 && memcmp(c->q[0].context.v, "a\0b", 3) == 0);
    assert_true(c->q[0].choice[0].n == 4 && memcmp(c->q[0].choice[0].v, " c\0d", 4) == 0);
    assert_true(c->q[0].choice[1].n == 2 && memcmp(c->q[0].choice[1].v, " \0", 2) == 0);
    assert_true(c->q[1].choice[0].n == 1 && memcmp(c->q[1].choice[0].v, "b", 1) == 0);
    tsr_eval_choices_destroy(c);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tsr_eval_choices_parse(&c, "q", bad[i], strlen(bad[i]), &e.err),
                         TSR_E_INPUT);
        assert_true(error_is(&e.err, "q:1", NULL));
    }
    tsr_eval_marks_discordant("110100", "010011", &only_a, &only_b);
    assert_true(only_a == 2 && only_b == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),    cmocka_unit_test(test_without_kl),
        cmocka_unit_test(test_base_read),  cmocka_unit_test(test_base_write),
        cmocka_unit_test(test_divergence), cmocka_unit_test(test_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
