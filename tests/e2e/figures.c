/* figures - figures that the program prints, computed again from what it wrote elsewhere: files of logits and
 * token ids, in long double, by formulas of its own.  No code of the program is in it.
 *
 *   figures eval WINDOW IDS A [B]   perplexity of windows of WINDOW ids; A.0, A.1, ... hold the logits of each;
 *                                   with B, the reference's, also KL, top-1, label probabilities and paired
 *                                   differences
 *   figures trend WINDOW IDS A...   of the means of logits A0.0, A0.1, ... to A1.0, ...: the slope over A0, A1, ... and each
 *                                   step, with intervals
 *   figures squared A AT TYPE B AT TYPE N   squared error of N numbers at byte AT of two files, F32, F16 or
 *                                   BF16, the sum of squares of the first, and how many of them differ
 *   figures agree FROM IDS A        which of ids[FROM ..] are the likeliest behind those before, 1 or 0, one a line
 *   figures paired EACH A B         mean of the numbers of A less those of B, with its interval by groups of EACH
 *   figures likelihood FROM IDS A   log-likelihood of ids[FROM ..] behind those before
 *   figures bootstrap SEED ALPHA DRAWS ARM ORIGINAL   median of the ratios of two files of numbers, resampled
 *   figures fits DEVICE FITS        least squares over a device's points, beside coefficients that were printed
 *   figures predict DEVICE FITS WORKLOADS   [fit, table] in ms of each workload
 *   figures fleet A B UNITS COSTS   least time of UNITS shares on A and B nodes of two types, by trying all
 *
 * IDS: ids with white space between them.  Results are JSON. */
#include "figures.h"

static uint32_t *read_ids(const char *path, uint64_t *n)
{
    FILE     *f = fopen(path, "r");
    uint32_t *ids = NULL;
    char      word[32];
    *n = 0;
    if (!f)
        die("cannot open", path);
    while (fscanf(f, "%31s", word) == 1) {
        if (*n % 1024 == 0)
            ids = grow(ids, *n + 1024, sizeof *ids);
        ids[(*n)++] = (uint32_t)number(word);
    }
    (void)fclose(f);
    return ids;
}

/* The F32 tensor of a safetensors file with one tensor; its rows are asked for, its columns follow. */
static float *read_logits(const char *path, uint64_t rows, uint64_t *cols)
{
    FILE         *f = fopen(path, "rb");
    unsigned char head[8];
    uint64_t      at = 8;
    if (!f || fread(head, 1, 8, f) != 8)
        die("cannot read", path);
    for (unsigned i = 0; i < 8; i++)
        at += (uint64_t)head[i] << (8 * i);
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (size < 0 || (uint64_t)size < at || fseek(f, (long)at, SEEK_SET) != 0)
        die("not a file of logits", path);
    uint64_t n = ((uint64_t)size - at) / sizeof(float);
    float   *v = grow(NULL, n, sizeof *v);
    if (n % rows || fread(v, sizeof *v, n, f) != n)
        die("not as many rows as ids", path);
    (void)fclose(f);
    *cols = n / rows;
    return v;
}

/* Log of the sum of exponentials. */
static real total(const float *x, uint64_t n)
{
    real most = -HUGE_VALL, sum = 0;
    for (uint64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (uint64_t i = 0; i < n; i++)
        sum += expl((real)x[i] - most);
    return most + logl(sum);
}

static uint64_t largest(const float *x, uint64_t n)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* ---- Student's t, by integrating its density ---------------------------------------- */

/* Under x = sqrt(df) * tan(u) the density is cos(u)^(df - 1), which is smooth and ends. */
static real integrate(real df, real to)
{
    const int n = 1000; /* Simpson's rule */
    real      sum = 0, h = to / n;
    for (int i = 0; i <= n; i++)
        sum += powl(cosl(h * i), df - 1) * (i == 0 || i == n ? 1 : i % 2 ? 4 : 2);
    return sum * h / 3;
}

static real two_sided(real x, real df)
{
    real half = integrate(df, acosl(-1) / 2);
    return 1 - integrate(df, atanl(fabsl(x) / sqrtl(df))) / half;
}

static real quantile(real p, real df)
{
    real low = 0, high = 1e4L;
    for (int i = 0; i < 60; i++) {
        real mid = (low + high) / 2;
        if (1 - two_sided(mid, df) / 2 < p)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* ---- statistics ----------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    real x = *(const real *)a, y = *(const real *)b;
    return x < y ? -1 : x > y;
}

static real mean_of(const real *v, uint64_t n)
{
    real sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i];
    return sum / (real)n;
}

/* Mean of v with a standard error by groups of `each`, its interval and p; confidence 1 - alpha. */
static void print_interval(const real *v, uint64_t n, uint64_t each, real alpha)
{
    uint64_t groups = n / each;
    real     mean = mean_of(v, n), squares = 0, between = 0, df = (real)groups - 1;
    for (uint64_t g = 0; g < groups; g++) {
        real inside = 0;
        for (uint64_t i = g * each; i < (g + 1) * each; i++) {
            inside += v[i] - mean;
            squares += (v[i] - mean) * (v[i] - mean);
        }
        between += inside * inside;
    }
    real se = sqrtl(between * (real)groups / df) / (real)n, t = quantile(1 - alpha / 2, df);
    (void)printf("\"mean\": %.17Lg, \"naive_se\": %.17Lg, \"se\": %.17Lg, \"low\": %.17Lg, "
                 "\"high\": %.17Lg, \"p\": %.17Lg, \"detectable\": %.17Lg, \"n\": %llu, "
                 "\"windows\": %llu",
                 mean, sqrtl(squares / (real)(n - 1) / (real)n), se, mean - t * se, mean + t * se,
                 se > 0 ? two_sided(mean / se, df) : (real) !(mean < 0 || mean > 0),
                 (t + quantile(0.8L, df)) * se, (unsigned long long)n, (unsigned long long)groups);
}

static void print_difference(const real *v, uint64_t n, uint64_t each)
{
    print_interval(v, n, each, 0.05L);
}

/* Smallest value that at least `per_mille` in a thousand do not exceed; v ascends. */
static real percentile(const real *v, uint64_t n, uint64_t per_mille)
{
    return v[(per_mille * n + 999) / 1000 - 1];
}

/* What is said of the values of all tokens beside their difference; sorts v. */
static void print_spread(real *v, uint64_t n, uint64_t each)
{
    static const struct {
        const char *name;
        uint64_t    per_mille;
    } at[] = { { "99.9", 999 }, { "99", 990 }, { "95", 950 }, { "90", 900 },
               { "50", 500 },   { "10", 100 }, { "5", 50 },   { "1", 10 } };
    real squares = 0;
    print_difference(v, n, each);
    for (uint64_t i = 0; i < n; i++)
        squares += v[i] * v[i];
    qsort(v, n, sizeof *v, by_value);
    (void)printf(
        ", \"rms\": %.17Lg, \"min\": %.17Lg, \"max\": %.17Lg, \"median\": %.17Lg, \"p99\": %.17Lg, "
        "\"percentiles\": {",
        sqrtl(squares / (real)n), v[0], v[n - 1], percentile(v, n, 500), percentile(v, n, 990));
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
        (void)printf("%s\"%s\": %.17Lg", i ? ", " : "", at[i].name,
                     percentile(v, n, at[i].per_mille));
    (void)printf("}");
}

/* ---- what is asked ---------------------------------------------------------------------- */

static int eval(uint64_t window, const char *ids_path, const char *a, const char *b)
{
    uint64_t  n_ids, n = 0, same = 0, cols;
    uint32_t *ids = read_ids(ids_path, &n_ids);
    uint64_t  windows = n_ids / window, each = window - 1;
    real     *nll = grow(NULL, windows * each, sizeof *nll), sum = 0;
    real     *kl = grow(NULL, windows * each, sizeof *kl);
    real     *d = grow(NULL, windows * each, sizeof *d);
    real     *dp = grow(NULL, windows * each, sizeof *dp);
    real     *hit = grow(NULL, windows * each, sizeof *hit);
    for (uint64_t w = 0; w < windows; w++) {
        char path[2][4096];
        (void)snprintf(path[0], sizeof path[0], "%s.%llu", a, (unsigned long long)w);
        (void)snprintf(path[1], sizeof path[1], "%s.%llu", b ? b : a, (unsigned long long)w);
        float *x = read_logits(path[0], window, &cols), *y = read_logits(path[1], window, &cols);
        for (uint64_t i = 0; i < each; i++, n++) {
            const float *p = y + i * cols, *q = x + i * cols; /* KL is from the reference */
            uint32_t     next = ids[w * window + i + 1];
            real         zp = total(p, cols), zq = total(q, cols);
            nll[n] = zq - (real)q[next];
            d[n] = nll[n] - (zp - (real)p[next]);
            dp[n] = expl(-nll[n]) - expl((real)p[next] - zp);
            hit[n] = largest(p, cols) == largest(q, cols);
            kl[n] = 0;
            for (uint64_t k = 0; k < cols; k++)
                kl[n] += expl((real)p[k] - zp) * ((real)p[k] - zp - ((real)q[k] - zq));
            same += hit[n] > 0;
            sum += nll[n];
        }
        free(x);
        free(y);
    }
    (void)printf("{\"perplexity\": %.17Lg, \"mean_nll\": %.17Lg, \"tokens\": %llu, "
                 "\"scored\": %llu, \"windows\": %llu",
                 expl(sum / (real)n), sum / (real)n, (unsigned long long)(windows * window),
                 (unsigned long long)n, (unsigned long long)windows);
    if (b) {
        (void)printf(", \"top1\": %.17Lg, \"kl\": {", (real)same / (real)n);
        print_spread(kl, n, each);
        (void)printf("}, \"delta_p\": {");
        print_spread(dp, n, each);
        (void)printf("}, \"delta\": {");
        print_difference(d, n, each);
        (void)printf("}, \"hit\": {");
        print_difference(hit, n, each);
        (void)printf("}");
    }
    (void)printf("}\n");
    free(ids);
    free(nll);
    free(kl);
    free(d);
    free(dp);
    free(hit);
    return 0;
}

/* -log p of every id behind the first of each window, into nll. */
static void score(uint64_t window, const uint32_t *ids, uint64_t windows, const char *a, real *nll)
{
    for (uint64_t w = 0; w < windows; w++) {
        char     path[4096];
        uint64_t cols;
        (void)snprintf(path, sizeof path, "%s.%llu", a, (unsigned long long)w);
        float *x = read_logits(path, window, &cols);
        for (uint64_t i = 0; i + 1 < window; i++)
            *nll++ = total(x + i * cols, cols) - (real)x[i * cols + ids[w * window + i + 1]];
        free(x);
    }
}

static int trend(uint64_t window, const char *ids_path, char **a, uint64_t points)
{
    uint64_t  n_ids;
    uint32_t *ids = read_ids(ids_path, &n_ids);
    uint64_t  windows = n_ids / window, each = window - 1, n = windows * each;
    real     *nll = grow(NULL, points * n, sizeof *nll);
    real     *d = grow(NULL, n, sizeof *d);
    for (uint64_t p = 0; p < points; p++)
        score(window, ids, windows, a[p], nll + p * n);
    (void)printf("{\"steps\": [");
    for (uint64_t p = 1; p < points; p++) { /* all intervals hold together */
        for (uint64_t i = 0; i < n; i++)
            d[i] = nll[p * n + i] - nll[(p - 1) * n + i];
        (void)printf("%s{", p > 1 ? ", " : "");
        print_interval(d, n, each, 0.05L / (real)(points - 1));
        (void)printf("}");
    }
    for (uint64_t i = 0; i < n;
         i++) { /* least squares: (n sum xy - sum x sum y) / (n sum xx - (sum x)^2) */
        real x = 0, xx = 0, y = 0, xy = 0, m = (real)points;
        for (uint64_t p = 0; p < points; p++) {
            x += (real)p;
            xx += (real)(p * p);
            y += nll[p * n + i];
            xy += (real)p * nll[p * n + i];
        }
        d[i] = (m * xy - x * y) / (m * xx - x * x);
    }
    (void)printf("], \"slope\": {");
    print_difference(d, n, each);
    (void)printf("}}\n");
    free(ids);
    free(nll);
    free(d);
    return 0;
}

static int likelihood(uint64_t from, const char *ids_path, const char *path)
{
    uint64_t  n, cols;
    uint32_t *ids = read_ids(ids_path, &n);
    float    *x = read_logits(path, n, &cols);
    real      sum = 0;
    for (uint64_t i = from; i < n; i++)
        sum += (real)x[(i - 1) * cols + ids[i]] - total(x + (i - 1) * cols, cols);
    (void)printf("%.17Lg\n", sum);
    free(ids);
    free(x);
    return 0;
}

static int agree(uint64_t from, const char *ids_path, const char *path)
{
    uint64_t  n, cols;
    uint32_t *ids = read_ids(ids_path, &n);
    float    *x = read_logits(path, n, &cols);
    for (uint64_t i = from; i < n; i++)
        (void)printf("%d\n", largest(x + (i - 1) * cols, cols) == ids[i]);
    free(ids);
    free(x);
    return 0;
}

static int paired(uint64_t each, const char *a, const char *b)
{
    uint64_t  n, m;
    uint32_t *x = read_ids(a, &n), *y = read_ids(b, &m);
    real     *d = grow(NULL, n, sizeof *d);
    if (n != m || n % each)
        die("not as many numbers, or no whole groups", b);
    for (uint64_t i = 0; i < n; i++)
        d[i] = (real)x[i] - (real)y[i];
    (void)printf("{");
    print_difference(d, n, each);
    (void)printf("}\n");
    free(x);
    free(y);
    free(d);
    return 0;
}

static int squared(char **argv)
{
    uint64_t n = number(argv[8]);
    float   *a = read_numbers(argv[2], number(argv[3]), argv[4], n);
    float   *b = read_numbers(argv[5], number(argv[6]), argv[7], n);
    real     error = 0, all = 0;
    uint64_t differ = 0;
    for (uint64_t i = 0; i < n; i++) {
        error += ((real)a[i] - (real)b[i]) * ((real)a[i] - (real)b[i]);
        all += (real)a[i] * (real)a[i];
        differ += a[i] < b[i] || a[i] > b[i];
    }
    (void)printf("{\"squared_error\": %.17Lg, \"squares\": %.17Lg, \"differ\": %llu}\n", error, all,
                 (unsigned long long)differ);
    free(a);
    free(b);
    return 0;
}

int main(int argc, char **argv)
{
    if ((argc == 5 || argc == 6) && strcmp(argv[1], "eval") == 0)
        return eval(number(argv[2]), argv[3], argv[4], argc == 6 ? argv[5] : NULL);
    if (argc >= 6 && strcmp(argv[1], "trend") == 0)
        return trend(number(argv[2]), argv[3], argv + 4, (uint64_t)argc - 4);
    if (argc == 5 && strcmp(argv[1], "agree") == 0)
        return agree(number(argv[2]), argv[3], argv[4]);
    if (argc == 5 && strcmp(argv[1], "paired") == 0)
        return paired(number(argv[2]), argv[3], argv[4]);
    if (argc == 5 && strcmp(argv[1], "likelihood") == 0)
        return likelihood(number(argv[2]), argv[3], argv[4]);
    if (argc == 9 && strcmp(argv[1], "squared") == 0)
        return squared(argv);
    if (argc == 7 && strcmp(argv[1], "bootstrap") == 0)
        return figures_bootstrap(number(argv[2]), argv[3], number(argv[4]), argv[5], argv[6]);
    if (argc == 4 && strcmp(argv[1], "fits") == 0)
        return figures_fits(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "predict") == 0)
        return figures_predict(argv[2], argv[3], argv[4]);
    if (argc == 6 && strcmp(argv[1], "fleet") == 0)
        return figures_fleet(number(argv[2]), number(argv[3]), number(argv[4]), argv[5]);
    die("usage", "figures eval WINDOW IDS A [B] | figures trend WINDOW IDS A... | figures "
                 "likelihood FROM IDS A | figures agree FROM IDS A | figures paired EACH A B | "
                 "figures squared A AT TYPE B AT TYPE N | figures bootstrap SEED ALPHA DRAWS ARM "
                 "ORIGINAL | figures fits DEVICE FITS | figures predict DEVICE FITS WORKLOADS | "
                 "figures fleet A B UNITS COSTS");
    return 2;
}
