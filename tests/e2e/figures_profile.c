/* figures fits, predict: the regressions of a device profile made again from its points, and what they and the table say
 * about a workload, as docs/formats/device.md has it.  Least squares without negative coefficients are found by trying
 * every subset of the five features, each solved by orthogonal columns in long double. */
#include "figures_device.h"

/* The roofline's coefficients, for the shape of the first of the points: what pulls where points are few. */
static bool datasheet(const struct fit *f, const struct layer *w, real c[FEATURES])
{
    const struct kernel *best = NULL;
    for (int i = 0; i < kernels; i++) { /* the largest `above` that is exceeded, else the least */
        const struct kernel *k = &kernel[i];
        bool                 under = f->more + 1 > k->above;
        if (strcmp(k->name, f->kernel) != 0)
            continue;
        if (!best || (under && (!(f->more + 1 > best->above) || k->above > best->above)) ||
            (!under && !(f->more + 1 > best->above) && k->above < best->above))
            best = k;
    }
    if (!best)
        return false;
    real byte = 1000 / (peak * best->read[f->phase]);
    real product = 2000 / (best->ops * best->compute[f->phase]);
    memset(c, 0, FEATURES * sizeof *c);
    /* bytes that no entry gives are those of F16 */
    c[0] = ((best->bytes > 0 ? best->bytes : 2) + best->convert) * byte +
           overhead[f->phase] / w->weights;
    c[f->phase == PREFILL ? 3 : 1] = product;
    c[f->phase == PREFILL ? 4 : 2] = f->phase == PREFILL ? product : 2 * byte;
    return true;
}

/* ---- least squares ---------------------------------------------------------------------------- */

static real row[MOST][FEATURES], right[MOST];
static int  rows, pulls; /* the last are pulls */

static real squares(const real c[FEATURES], int n)
{
    real sum = 0;
    for (int r = 0; r < n; r++) {
        real e = -right[r];
        for (int i = 0; i < FEATURES; i++)
            e += row[r][i] * c[i];
        sum += e * e;
    }
    return sum;
}

/* Over the features of a subset, by Gram and Schmidt, each column made orthogonal twice; false: they depend on each other,
 * so that a smaller subset does as well. */
static bool solve(unsigned subset, real c[FEATURES])
{
    static real q[FEATURES][MOST];
    real        r[FEATURES][FEATURES] = { { 0 } }, y[FEATURES];
    int         at[FEATURES], n = 0;
    for (int i = 0; i < FEATURES; i++)
        if (subset >> i & 1)
            at[n++] = i;
    for (int k = 0; k < n; k++) {
        real before = 0, after = 0;
        for (int m = 0; m < rows; m++) {
            q[k][m] = row[m][at[k]];
            before += q[k][m] * q[k][m];
        }
        for (int i = 0; i < 2 * k; i++) {
            real dot = 0;
            for (int m = 0; m < rows; m++)
                dot += q[i % k][m] * q[k][m];
            r[i % k][k] += dot;
            for (int m = 0; m < rows; m++)
                q[k][m] -= dot * q[i % k][m];
        }
        for (int m = 0; m < rows; m++)
            after += q[k][m] * q[k][m];
        if (!(after >
              1e-24L * before)) /* long double leaves 1e-38 of a column that depends on others */
            return false;
        r[k][k] = sqrtl(after);
        y[k] = 0;
        for (int m = 0; m < rows; m++) {
            q[k][m] /= r[k][k];
            y[k] += q[k][m] * right[m];
        }
    }
    memset(c, 0, FEATURES * sizeof *c);
    for (int k = n - 1; k >= 0; k--) {
        for (int i = k + 1; i < n; i++)
            y[k] -= r[k][i] * c[at[i]];
        c[at[k]] = y[k] / r[k][k];
    }
    return true;
}

/* The least sum of squares that coefficients of 0 and more reach. */
static real least(void)
{
    real best = HUGE_VALL;
    for (unsigned subset = 0; subset < 1u << FEATURES; subset++) {
        real c[FEATURES];
        bool fine = solve(subset, c);
        for (int i = 0; i < FEATURES && fine; i++)
            fine = c[i] >= 0;
        real sum = fine ? squares(c, rows) : HUGE_VALL;
        best = sum < best ? sum : best;
    }
    return best;
}

/* Rows of relative errors: features over the time that was measured, against 1. */
static void collect(const struct fit *f)
{
    const struct point *first = NULL;
    real                c[FEATURES];
    rows = pulls = 0;
    for (int i = 0; i < points; i++) {
        if (!belongs(f, &point[i]))
            continue;
        first = first ? first : &point[i];
        features(&point[i], row[rows]);
        for (int k = 0; k < FEATURES; k++)
            row[rows][k] /= point[i].ms;
        right[rows++] = 1;
    }
    if (!first || rows >= 7 || !datasheet(f, &first->w, c))
        return;
    for (int k = 0; k < FEATURES; k++)
        if (c[k] > 0) {
            memset(row[rows], 0, sizeof row[rows]);
            row[rows][k] = 0.1L / c[k];
            right[rows++] = 0.1L;
            pulls++;
        }
}

/* Every point is in one regression of its own shape and in one over all shapes; the ends of a range are knots. */
static bool is_complete(void)
{
    for (int i = 0; i < points; i++) {
        int in[2] = { 0 };
        for (int k = 0; k < fits; k++)
            in[fit[k].pooled] += belongs(&fit[k], &point[i]);
        if (in[0] != 1 || in[1] != 1)
            return false;
    }
    for (int k = 0; k < fits; k++) {
        real more = 0, up_to = HUGE_VALL, inside = fit[k].more + 1;
        for (int i = 0; i < knots[fit[k].phase]; i++) {
            real at = knot[fit[k].phase][i];
            more = at < inside && at > more ? at : more;
            up_to = at >= inside && at < up_to ? at : up_to;
        }
        if (!is_same(more, fit[k].more) || !is_same(up_to, fit[k].up_to))
            return false;
    }
    return true;
}

int figures_fits(const char *device, const char *regressions)
{
    read_device(device);
    read_regressions(regressions);
    (void)printf("{\"complete\": %s, \"fits\": [", is_complete() ? "true" : "false");
    for (int i = 0; i < fits; i++) {
        const struct fit *f = &fit[i];
        bool              negative = false;
        collect(f);
        for (int k = 0; k < FEATURES; k++)
            negative = negative || !(f->c[k] >= 0);
        (void)printf("%s\n{\"points\": %d, \"pulls\": %d, \"negative\": %s, \"sum\": %.17Lg, "
                     "\"least\": %.17Lg, \"error\": %.17Lg}",
                     i ? "," : "", rows - pulls, pulls, negative ? "true" : "false",
                     squares(f->c, rows), least(),
                     sqrtl(squares(f->c, rows - pulls) / (real)(rows - pulls)));
    }
    (void)printf("]}\n");
    return 0;
}

/* ---- predictions -------------------------------------------------------------------------------- */

/* A regression of the own range of tokens before others, of those the nearest; then one of the own shape with seven points
 * before one over all shapes. */
static const struct fit *choose(const struct point *p)
{
    const struct fit *best = NULL;
    real              least_far = HUGE_VALL;
    for (int i = 0; i < fits; i++) {
        const struct fit *f = &fit[i];
        real              n = tokens_of(p);
        if (strcmp(f->kernel, p->kernel) != 0 || f->phase != p->phase ||
            (!f->pooled && !same_shape(&f->w, &p->w)))
            continue;
        real far = n > f->up_to ? n / f->up_to : n > f->more ? 1 : f->more / n * (1 + 1e-9L);
        far = 2 * far + (f->pooled ? 1e-3L : f->points < 7 ? 2e-3L : 0);
        if (far < least_far) {
            least_far = far;
            best = f;
        }
    }
    return best;
}

/* Measured over fitted at the four nearest points, weighted by one over the squared distance, times the fitted time. */
static real table(const struct fit *f, const struct point *p)
{
    real far[MOST], ratio[MOST], sum = 0, weight = 0;
    int  n = 0;
    for (int i = 0; i < points; i++) {
        const struct point *o = &point[i];
        if (strcmp(o->kernel, p->kernel) != 0 || o->phase != p->phase || !same_shape(&o->w, &p->w))
            continue;
        far[n] = powl(logl(o->v / p->v), 2) + powl(logl(o->s / p->s), 2) +
                 powl(logl((o->t + 16) / (p->t + 16)), 2);
        ratio[n++] = o->ms / evaluate(f, o);
    }
    for (int k = 0; k < 4 && k < n; k++) {
        int near = k;
        for (int i = k; i < n; i++)
            near = far[i] < far[near] ? i : near;
        real d = far[near], r = ratio[near];
        far[near] = far[k];
        ratio[near] = ratio[k];
        far[k] = d;
        ratio[k] = r;
        sum += r / d;
        weight += 1 / d;
    }
    return (n ? sum / weight : 1) * evaluate(f, p);
}

static void predict(const char *line)
{
    struct point      p;
    int               used;
    const struct fit *f = parse_layer(line, &p, &used) ? choose(&p) : NULL;
    if (!f)
        die("no regression for", line);
    (void)printf("[%.17Lg, %.17Lg]\n", evaluate(f, &p), table(f, &p));
}

int figures_predict(const char *device, const char *regressions, const char *workloads)
{
    read_device(device);
    read_regressions(regressions);
    read_lines(workloads, predict);
    return 0;
}
