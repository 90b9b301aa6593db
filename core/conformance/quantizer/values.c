/* What becomes of weights of every kind. */
#include "conformance/quantizer/quantizer.h"

#include "base/mem.h"
#include "base/rng.h"
#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 16u
#define COLS 160u

static struct tsr_conformance_quant_try usual(struct tsr_conformance_case *c, uint64_t cols)
{
    void                            *self = tsr_conformance_quant_make(c);
    struct tsr_conformance_quant_try t = {
        .w = tsr_conformance_quant_matrix(c, tsr_conformance_quant_rows(c, self, ROWS, cols), cols,
                                          c->seed)
    };
    tsr_conformance_quant_destroy(c, self);
    return t;
}

/* ---- not a number ------------------------------------------------------------------------------ */

static bool names(const char *text, uint64_t n)
{
    char   digits[24];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    for (const char *p = strstr(text, digits); p; p = strstr(p + 1, digits))
        if ((p == text || p[-1] < '0' || p[-1] > '9') && (p[len] < '0' || p[len] > '9'))
            return true;
    return false;
}

/* An MX block has its own NaN, which a plugin may return. */
static bool became_nan(const struct tsr_conformance_quant_try *t, uint64_t row, uint64_t col)
{
    return t->plan.format.id && strcmp(t->plan.format.id, TSR_FORMAT_MX) == 0 && t->decoded &&
           isnan(t->dense[row * t->w.cols + col]);
}

static void one_non_finite(struct tsr_conformance_case *c, float bad, uint64_t first)
{
    const uint64_t                   row = 11, col = 137, whole = first + row;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t = usual(c, COLS);
    void                            *self = tsr_conformance_quant_make(c);
    t.first_row = first;
    tsr_conformance_quant_row(&t.w, row)[col] = bad;
    tsr_status st = tsr_conformance_quant_run(c, self, &t, &e.err);
    if (st == TSR_OK && became_nan(&t, row, col))
        return;
    if (st != TSR_E_NUMERIC)
        tsr_conformance_rule_fail(c, "w[%llu][%llu] = %g is answered with %s",
                                  (unsigned long long)whole, (unsigned long long)col, (double)bad,
                                  tsr_conformance_status_name(st));
    if (*e.text && (!names(e.text, whole) || !names(e.text, col)))
        tsr_conformance_rule_fail(
            c, "w[%llu][%llu] = %g, but its text does not name row and column: %s",
            (unsigned long long)whole, (unsigned long long)col, (double)bad, e.text);
    tsr_conformance_quant_destroy(c, self);
}

void tsr_conformance_quant_non_finite(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try t = usual(c, COLS);
    (void)tsr_conformance_quant_must(c, &t);
    /* in the middle of a tensor, where its parts may come alone */
    uint64_t first = t.plan.rows_per_unit ? 4096 / t.plan.rows_per_unit * t.plan.rows_per_unit : 0;
    one_non_finite(c, NAN, first);
    one_non_finite(c, INFINITY, first);
    one_non_finite(c, -INFINITY, first);
}

/* ---- rows of one kind ---------------------------------------------------------------------------- */

/* Every other row becomes f(row, column): the rest is as usual, so that it cannot be refused for
 * its own sake.  The status; *self is left alive. */
static tsr_status with_rows(struct tsr_conformance_case *c, struct tsr_conformance_quant_try *t,
                            float (*f)(uint64_t row, uint64_t col), struct tsr_errbuf        *e)
{
    *t = usual(c, COLS);
    (void)tsr_conformance_quant_must(c, t); /* a plugin that refuses all weights proves nothing
                                             * about these */
    for (uint64_t r = 1; r < t->w.rows; r += 2)
        for (uint64_t k = 0; k < t->w.cols; k++)
            tsr_conformance_quant_row(&t->w, r)[k] = f(r, k);
    return tsr_conformance_quant_run(c, tsr_conformance_quant_make(c), t, &e->err);
}

/* Decoded values of the odd rows: finite, and no further off than `within` times the largest
 * weight of the row. */
static void check_rows(struct tsr_conformance_case *c, const struct tsr_conformance_quant_try *t,
                       double within)
{
    for (uint64_t r = 1; r < t->w.rows; r += 2) {
        const float *w = tsr_conformance_quant_row(&t->w, r), *d = t->dense + r * t->w.cols;
        double       limit = within * tsr_conformance_quant_largest(w, t->w.cols);
        for (uint64_t k = 0; k < t->w.cols; k++)
            if (!(fabs((double)d[k] - (double)w[k]) <= limit) || !isfinite(d[k]))
                tsr_conformance_rule_fail(c, "w[%llu][%llu] = %g decodes to %g",
                                          (unsigned long long)r, (unsigned long long)k,
                                          (double)w[k], (double)d[k]);
    }
}

/* A status with the reason for refusing these rows is a valid answer. */
static void check_refusal(struct tsr_conformance_case *c, tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_E_NUMERIC)
        tsr_conformance_rule_fail(c, "the answer is %s: %s", tsr_conformance_status_name(st),
                                  e->text);
}

static float zero(uint64_t row, uint64_t col)
{
    return (row + col) % 3 ? 0.0f : -0.0f;
}

void tsr_conformance_quant_zero_rows(struct tsr_conformance_case *c)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t;
    tsr_status                       st = with_rows(c, &t, zero, &e);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "rows of zeros are answered with %s: %s",
                                  tsr_conformance_status_name(st), e.text);
    check_rows(c, &t, 0.0);
}

static float constant(uint64_t row, uint64_t col)
{
    static const float values[] = { 0.5f, -0.25f, 1.0f, 0.013f };
    (void)col;
    return values[row / 2 % 4];
}

void tsr_conformance_quant_constant_rows(struct tsr_conformance_case *c)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t;
    tsr_status                       st = with_rows(c, &t, constant, &e);
    if (st != TSR_OK)
        check_refusal(c, st, &e);
    else
        check_rows(c, &t, 1.0);
}

static float denormal(uint64_t row, uint64_t col)
{
    return (float)((double)FLT_MIN / 8.0 * (tsr_uniform(5, row, col) - 0.5));
}

void tsr_conformance_quant_denormal_rows(struct tsr_conformance_case *c)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t;
    tsr_status                       st = with_rows(c, &t, denormal, &e);
    if (st != TSR_OK)
        check_refusal(c, st, &e);
    else
        check_rows(c, &t, 2.0);
}

static float wide(uint64_t row, uint64_t col)
{
    double size = col % 20 == 3 ? 1e30 : 1e-30;
    return (float)(size * tsr_normal(5, row, col));
}

void tsr_conformance_quant_wide_range(struct tsr_conformance_case *c)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t;
    tsr_status                       st = with_rows(c, &t, wide, &e);
    if (st != TSR_OK)
        check_refusal(c, st, &e);
    else
        check_rows(c, &t, 1.0);
}

/* ---- shapes -------------------------------------------------------------------------------------- */

double tsr_conformance_quant_loss(const struct tsr_conformance_quant_try *t)
{
    double error = 0.0, all = 0.0;
    for (uint64_t r = 0; r < t->w.rows; r++)
        for (uint64_t k = 0; k < t->w.cols; k++) {
            double w = tsr_conformance_quant_row(&t->w, r)[k],
                   d = (double)t->dense[r * t->w.cols + k] - w;
            error += d * d;
            all += w * w;
        }
    return error / all;
}

static void one_width(struct tsr_conformance_case *c, uint64_t cols)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t = usual(c, cols);
    struct tsr_quant_plan            p;
    void                            *self = tsr_conformance_quant_make(c);
    if (tsr_quant_plan(c, self, &t.w, &p, NULL) != TSR_OK)
        return; /* plan() may refuse */
    tsr_status st = tsr_conformance_quant_run(c, self, &t, &e.err);
    if (st == TSR_E_NUMERIC)
        return; /* a group of one weight may have a range that no scale holds */
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "plan() accepts %llu columns, then the answer is %s: %s",
                                  (unsigned long long)cols, tsr_conformance_status_name(st),
                                  e.text);
    double loss = tsr_conformance_quant_loss(&t);
    if (!(loss < 1.0) && cols >= 8)
        tsr_conformance_rule_fail(
            c, "with %llu columns the decoded weights are %g times as far off as zeros",
            (unsigned long long)cols, sqrt(loss));
    if (!isfinite(loss))
        tsr_conformance_rule_fail(c, "with %llu columns decoded weights are not finite",
                                  (unsigned long long)cols);
    tsr_conformance_quant_destroy(c, self);
}

void tsr_conformance_quant_odd_columns(struct tsr_conformance_case *c)
{
    static const uint64_t widths[] = { 1, 2, 3, 5, 7, 9, 31, 33, 63, 65, 127, 129, 255, 257 };
    struct tsr_conformance_quant_try even = usual(c, COLS);
    (void)tsr_conformance_quant_must(c, &even);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        one_width(c, widths[i]);
    for (uint64_t i = 0; i < 6; i++)
        one_width(c, 1 + (uint64_t)(tsr_uniform(c->seed, 12, i) * 400.0));
}

void tsr_conformance_quant_fidelity(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try t = usual(c, 256);
    (void)tsr_conformance_quant_must(c, &t);
    double loss = tsr_conformance_quant_loss(&t);
    tsr_conformance_rule_figure(c, "root mean square error of the decoded weights", sqrt(loss),
                                "of that of zeros");
    if (!(loss < 1.0))
        tsr_conformance_rule_fail(
            c, "over %llu x %llu weights the decoded ones are %g times as far off as zeros",
            (unsigned long long)t.w.rows, (unsigned long long)t.w.cols, sqrt(loss));
}

void tsr_conformance_quant_decodes_as_format(struct tsr_conformance_case *c)
{
    struct tsr_conformance_quant_try t = usual(c, COLS);
    (void)tsr_conformance_quant_must(c, &t);
    if (!tsr_model_format_known(&t.plan.format) || !tsr_model_format_fits(&t.plan.format, COLS))
        tsr_conformance_rule_skip(c, "its layout is its own");
    uint64_t code = tsr_model_format_code_bytes(&t.plan.format, COLS);
    uint64_t meta = tsr_model_format_meta_bytes(&t.plan.format, COLS);
    if (t.code_bytes != t.w.rows * code || t.meta_bytes != t.w.rows * meta)
        tsr_conformance_rule_skip(c, "its bytes are not those of the layout; format-size says it");
    float ours[COLS];
    for (uint64_t r = 0; r < t.w.rows; r++) {
        const char *wrong = tsr_model_format_row_check(&t.plan.format, COLS, t.meta + r * meta);
        if (wrong)
            tsr_conformance_rule_fail(c, "row %llu as %s: %s", (unsigned long long)r,
                                      t.plan.format.id, wrong);
        tsr_model_format_decode_row(&t.plan.format, COLS, t.codes + r * code, t.meta + r * meta,
                                    ours);
        for (uint64_t k = 0; k < COLS; k++) {
            float theirs = t.dense[r * COLS + k];
            if (!(ours[k] == theirs) && !(isnan(ours[k]) && isnan(theirs)))
                tsr_conformance_rule_fail(c,
                                          "w[%llu][%llu] decodes to %.9g, by %s its bytes are %.9g",
                                          (unsigned long long)r, (unsigned long long)k,
                                          (double)theirs, t.plan.format.id, (double)ours[k]);
        }
    }
}

void tsr_conformance_quant_needs_optional(struct tsr_conformance_case *c)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_conformance_quant_try t = usual(c, COLS);
    t.refuse_extra = true;
    tsr_status st = tsr_conformance_quant_run(c, tsr_conformance_quant_make(c), &t, &e.err);
    if (t.plan.need >> 32 == 0)
        tsr_conformance_rule_skip(c, "it asks for no statistics that may be missing");
    if (st != TSR_OK && st != TSR_E_NUMERIC && st != TSR_E_CONFIG)
        tsr_conformance_rule_fail(c, "without them it answers %s: %s",
                                  tsr_conformance_status_name(st), e.text);
}
