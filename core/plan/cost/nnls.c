/* Non-negative least squares after Lawson and Hanson (Solving Least Squares Problems, 1974, 23.3),
 * on the normal equations: few columns, and rows that were scaled to relative errors. */
#include "base/mem.h"
#include "plan/cost/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STEPS 200u

struct normal {
    uint64_t n;
    double   ata[TSR_NNLS][TSR_NNLS], atb[TSR_NNLS];
    double   scale[TSR_NNLS]; /* columns have length 1; 0: a column of zeros */
};

static void normal_equations(struct normal *q, const double *a, const double *b, uint64_t rows,
                             uint64_t cols)
{
    *q = (struct normal){ .n = cols };
    for (uint64_t i = 0; i < cols; i++) {
        double sum = 0;
        for (uint64_t r = 0; r < rows; r++)
            sum += a[r * cols + i] * a[r * cols + i];
        q->scale[i] = sum > 0 ? 1 / sqrt(sum) : 0;
    }
    for (uint64_t i = 0; i < cols; i++) {
        for (uint64_t k = 0; k <= i; k++) {
            double sum = 0;
            for (uint64_t r = 0; r < rows; r++)
                sum += a[r * cols + i] * a[r * cols + k];
            q->ata[i][k] = q->ata[k][i] = sum * q->scale[i] * q->scale[k];
        }
        for (uint64_t r = 0; r < rows; r++)
            q->atb[i] += a[r * cols + i] * b[r] * q->scale[i];
    }
}

/* The unconstrained solution over the columns in `in`, by elimination with pivots; columns that
 * depend on others get 0.  z: [n], 0 outside. */
static void solve(const struct normal *q, const bool *in, double *z)
{
    double   m[TSR_NNLS][TSR_NNLS + 1];
    uint64_t at[TSR_NNLS], n = 0;
    bool     done[TSR_NNLS] = { false };
    uint64_t pivot_row[TSR_NNLS];
    memset(z, 0, q->n * sizeof *z);
    for (uint64_t i = 0; i < q->n; i++)
        if (in[i])
            at[n++] = i;
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < n; k++)
            m[i][k] = q->ata[at[i]][at[k]];
        m[i][n] = q->atb[at[i]];
        pivot_row[i] = n;
    }
    for (uint64_t k = 0; k < n; k++) {
        uint64_t best = n;
        for (uint64_t i = 0; i < n; i++)
            if (!done[i] && (best == n || fabs(m[i][k]) > fabs(m[best][k])))
                best = i;
        if (best == n || !(fabs(m[best][k]) > 1e-11)) /* columns have length 1 */
            continue;
        done[best] = true;
        pivot_row[k] = best;
        for (uint64_t i = 0; i < n; i++) {
            double f = i == best ? 0 : m[i][k] / m[best][k];
            for (uint64_t c = k; f != 0 && c <= n; c++)
                m[i][c] -= f * m[best][c];
        }
    }
    for (uint64_t k = 0; k < n; k++)
        if (pivot_row[k] < n)
            z[at[k]] = m[pivot_row[k]][n] / m[pivot_row[k]][k];
}

/* The gradient's largest component outside of `in`, or n. */
static uint64_t steepest(const struct normal *q, const bool *in, const double *x)
{
    uint64_t best = q->n;
    double   most = 1e-10;
    for (uint64_t i = 0; i < q->n; i++) {
        double g = q->atb[i];
        for (uint64_t k = 0; k < q->n; k++)
            g -= q->ata[i][k] * x[k];
        if (!in[i] && q->scale[i] > 0 && g > most * fmax(1, fabs(q->atb[i]))) {
            most = g;
            best = i;
        }
    }
    return best;
}

/* Moves x towards z as far as it stays at 0 or more; false when z was reached. */
static bool step_back(const struct normal *q, bool *in, double *x, const double *z)
{
    double alpha = 1;
    for (uint64_t i = 0; i < q->n; i++)
        if (in[i] && !(z[i] > 0) && x[i] - z[i] > 0)
            alpha = fmin(alpha, x[i] / (x[i] - z[i]));
    bool left = false;
    for (uint64_t i = 0; i < q->n; i++) {
        if (!in[i])
            continue;
        x[i] += alpha * (z[i] - x[i]);
        if (!(z[i] > 0) && !(x[i] > 1e-14)) {
            x[i] = 0;
            in[i] = false;
            left = true;
        }
    }
    return left;
}

tsr_status tsr_plan_nnls(const double *a, const double *b, uint64_t rows, uint64_t cols, double *x,
                         double *residual, struct tsr_err *err)
{
    struct normal q;
    bool          in[TSR_NNLS] = { false };
    double        z[TSR_NNLS], sum = 0;
    if (rows == 0 || cols == 0 || cols > TSR_NNLS)
        return tsr_fail(err, TSR_E_INVAL, "least squares of %llu rows and %llu columns",
                        (unsigned long long)rows, (unsigned long long)cols);
    for (uint64_t i = 0; i < rows * cols; i++)
        if (!isfinite(a[i]) || !isfinite(b[i / cols]))
            return tsr_fail(err, TSR_E_NUMERIC, "least squares: row %llu is not finite",
                            (unsigned long long)(i / cols));
    normal_equations(&q, a, b, rows, cols);
    memset(x, 0, cols * sizeof *x);
    for (unsigned s = 0; s < MOST_STEPS; s++) {
        uint64_t enter = steepest(&q, in, x);
        if (enter == q.n)
            break;
        in[enter] = true;
        solve(&q, in, z);
        if (!(z[enter] > 0)) { /* it depends on the others: rounding made its gradient */
            in[enter] = false;
            q.scale[enter] = 0;
            continue;
        }
        while (step_back(&q, in, x, z))
            solve(&q, in, z);
    }
    for (uint64_t i = 0; i < cols; i++)
        x[i] *= q.scale[i];
    for (uint64_t r = 0; r < rows; r++) {
        double e = -b[r];
        for (uint64_t i = 0; i < cols; i++)
            e += a[r * cols + i] * x[i];
        sum += e * e;
    }
    *residual = sqrt(sum);
    return TSR_OK;
}
