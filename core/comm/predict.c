#include "comm/predict.h"

#include "base/clock.h"
#include "base/mem.h"
#include "comm/internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- codecs ------------------------------------------------------------ */

tsr_status tsr_comm_measure(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols,
                            uint32_t rounds, struct tsr_comm_speed *v, struct tsr_err *err)
{
    uint64_t first = 0, end = cols;
    if (c->algorithm == TSR_COMM_TWO_STEP)
        tsr_comm_slice(cols, c->ranks, c->ranks - 1, &first, &end); /* the last is never empty */
    struct tsr_comm_message m = { .slice = c->algorithm == TSR_COMM_TWO_STEP ? c->ranks - 1 : 0,
                                  .rows = tsr_comm_piece_rows(c, rows, cols),
                                  .cols = end - first };
    uint64_t                n;
    *v = (struct tsr_comm_speed){ INFINITY, INFINITY };
    TSR_TRY(tsr_comm_wire_bytes(c, false, m.slice, m.rows, m.cols, &m.wire_bytes, err));
    if (!tsr_mul(m.rows, m.cols, &n) || n == 0)
        return tsr_fail(err, TSR_E_INVAL, "no speed of a codec for %llu x %llu",
                        (unsigned long long)rows, (unsigned long long)cols);
    float         *x = tsr_new_aligned(n, sizeof *x), *y = tsr_new_aligned(n, sizeof *y);
    unsigned char *wire = tsr_new_aligned(m.wire_bytes, 1);
    tsr_status     st = x && y && wire ? TSR_OK : tsr_fail_nomem(err, n * 8, "a codec's speed");
    for (uint64_t i = 0; st == TSR_OK && i < n; i++)
        x[i] = (float)((int64_t)((i * 7919) % 2001) - 1000) * 1e-3f;
    for (uint32_t k = 0; st == TSR_OK && k <= rounds; k++) { /* the first touches the pages */
        double start = tsr_now_s();
        st = tsr_comm_encode(c, &m, 0, x, wire, err);
        double half = tsr_now_s();
        if (st == TSR_OK)
            st = tsr_comm_decode(c, &m, 0, wire, y, err);
        double over = tsr_now_s();
        if (k == 0)
            continue;
        v->encode = fmin(v->encode, (half - start) / (double)n);
        v->decode = fmin(v->decode, (over - half) / (double)n);
    }
    free(x);
    free(y);
    free(wire);
    return st;
}

/* ---- sums -------------------------------------------------------------- */

/* One piece: numbers coded and decoded in each step, and bytes sent in each hop. */
struct step {
    double code[2], decode[2], bytes[2];
};

static tsr_status step_of(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols,
                          struct step *s, struct tsr_err *err)
{
    double   n = c->ranks, all = (double)rows * (double)cols;
    uint64_t bytes;
    *s = (struct step){ .code = { all } };
    if (c->algorithm == TSR_COMM_ALL_GATHER) {
        TSR_TRY(tsr_comm_wire_bytes(c, false, 0, rows, cols, &bytes, err));
        s->bytes[0] = (n - 1) * (double)bytes;
        s->decode[1] = n * all;
        return TSR_OK;
    }
    for (uint32_t i = 0; i < c->ranks; i++) { /* of a rank in the middle: slices differ by 64 */
        uint64_t first, end;
        tsr_comm_slice(cols, c->ranks, i, &first, &end);
        TSR_TRY(tsr_comm_wire_bytes(c, false, i, rows, end - first, &bytes, err));
        s->bytes[0] += (n - 1) / n * (double)bytes;
        TSR_TRY(tsr_comm_wire_bytes(c, true, i, rows, end - first, &bytes, err));
        s->bytes[1] += (n - 1) / n * (double)bytes;
    }
    s->code[0] = s->decode[0] = (n - 1) / n * all; /* its own slice stays unchanged */
    s->code[1] = all / n;
    s->decode[1] = all;
    return TSR_OK;
}

tsr_status tsr_comm_predict(const struct tsr_comm_coder *c, const struct tsr_comm_speed *v,
                            const struct tsr_comm_path *p, uint64_t rows, uint64_t cols,
                            double *seconds, struct tsr_err *err)
{
    uint64_t    each = tsr_comm_piece_rows(c, rows, cols);
    bool        two = c->algorithm == TSR_COMM_TWO_STEP;
    struct step whole, last;
    double      now = 0, wire = 0, come[2][TSR_COMM_SLOTS] = { { 0 } };
    *seconds = 0;
    if (rows == 0 || cols == 0 || c->ranks == 1)
        return TSR_OK;
    uint64_t pieces = rows / each + (rows % each != 0);
    TSR_TRY(step_of(c, each, cols, &whole, err));
    TSR_TRY(step_of(c, rows % each ? rows % each : each, cols, &last, err));
    for (uint64_t i = 0; i < pieces + TSR_COMM_FINISH; i++) {
        if (i < pieces) {
            const struct step *s = i + 1 == pieces ? &last : &whole;
            now += s->code[0] * v->encode;
            wire = fmax(wire, now) + s->bytes[0] / p->rate;
            come[0][i % TSR_COMM_SLOTS] = wire + p->alpha;
        }
        if (two && i >= TSR_COMM_MIDDLE && i - TSR_COMM_MIDDLE < pieces) {
            uint64_t           k = i - TSR_COMM_MIDDLE;
            const struct step *s = k + 1 == pieces ? &last : &whole;
            now = fmax(now, come[0][k % TSR_COMM_SLOTS]) + s->decode[0] * v->decode +
                  s->code[1] * v->encode;
            wire = fmax(wire, now) + s->bytes[1] / p->rate;
            come[1][k % TSR_COMM_SLOTS] = wire + p->alpha;
        }
        if (i >= TSR_COMM_FINISH && i - TSR_COMM_FINISH < pieces) {
            uint64_t           k = i - TSR_COMM_FINISH;
            const struct step *s = k + 1 == pieces ? &last : &whole;
            now = fmax(now, come[two ? 1 : 0][k % TSR_COMM_SLOTS]) + s->decode[1] * v->decode;
        }
    }
    *seconds = now;
    return TSR_OK;
}

/* ---- links ------------------------------------------------------------- */

bool tsr_comm_fit(const double *x, const double *y, uint64_t n, struct tsr_comm_path *p)
{
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (uint64_t i = 0; i < n; i++) {
        double q = 1 / (y[i] * y[i]);
        w += q;
        wx += q * x[i];
        wy += q * y[i];
        wxx += q * x[i] * x[i];
        wxy += q * x[i] * y[i];
    }
    double det = w * wxx - wx * wx, slope = (w * wxy - wx * wy) / det;
    double alpha = (wy - slope * wx) / w;
    if (alpha < 0) { /* through the origin */
        alpha = 0;
        slope = wxy / wxx;
    }
    if (n < 2 || !(det > 0) || !(slope > 0) || !isfinite(slope) || !isfinite(alpha))
        return false;
    *p = (struct tsr_comm_path){ alpha, 1 / slope };
    return true;
}
