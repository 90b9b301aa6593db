/* Which channels of an input are compensated, by docs/formats/compensation.md. */
#include "forward.h"

#define BUCKETS 32
#define CHUNK   1024

/* An input in F32 is off by less than this share of the largest (rounding of sums of some hundred products), so what is
 * nearer to a border may lie on its other side. */
#define NEAR 1e-5

double uniform(uint64_t seed, uint64_t record, uint64_t token)
{
    uint32_t c[4] = { (uint32_t)token, (uint32_t)(token >> 32), (uint32_t)record,
                      (uint32_t)(record >> 32) };
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(3528531795) * c[0], b = UINT64_C(3449720151) * c[2];
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                             (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a };
        memcpy(c, next, sizeof c);
        key[0] += 2654435769u; /* of the golden ratio */
        key[1] += 3144134277u; /* of the square root of 3 */
    }
    return (double)(((uint64_t)c[0] << 21) + (c[1] >> 11)) / 9007199254740992.0; /* 53 bits */
}

/* Whether channel a comes before b: larger, or as large and lower. */
static bool before(const double *x, uint32_t a, uint32_t b)
{
    double p = fabs(x[a]), q = fabs(x[b]);
    return p > q || (!(p < q) && a < b);
}

void largest_channels(const double *x, uint64_t cols, uint64_t count, uint32_t *list)
{
    uint64_t n = 0;
    for (uint32_t c = 0; c < cols; c++) {
        uint64_t larger = 0;
        for (uint32_t i = 0; i < cols; i++)
            larger += i != c && before(x, i, c);
        if (larger < count)
            list[n++] = c;
    }
}

static uint64_t largest_numbers(const float *v, uint64_t cols, uint64_t count, uint32_t *list)
{
    double *x = grow(NULL, cols, sizeof *x);
    for (uint64_t i = 0; i < cols; i++)
        x[i] = (double)v[i];
    largest_channels(x, cols, count, list);
    free(x);
    return count;
}

/* Selection sampling (Knuth 3.4.2, algorithm S): each time as likely as what is still wanted of what is left. */
static uint64_t draw(uint64_t seed, uint64_t record, uint64_t cols, uint64_t count, uint32_t *list)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < cols && n < count; i++)
        if (uniform(seed, record, i) * (double)(cols - i) < (double)(count - n))
            list[n++] = (uint32_t)i;
    return n;
}

static bool is_near(double a, double b, double most)
{
    return !(fabs(a - b) > NEAR * most);
}

static double largest_of(const double *x, uint64_t cols)
{
    double most = 0;
    for (uint64_t i = 0; i < cols; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* Buckets from the first on, of the last one the lowest channels; then in order. */
static uint64_t take_buckets(const float *top, uint32_t k, const double *x, uint64_t cols,
                             uint64_t count, uint32_t *list, uint64_t *close)
{
    double   floors[BUCKETS], high = (double)top[0], low = (double)top[count - 1];
    double   most = largest_of(x, cols);
    uint64_t n = 0;
    for (int i = 0; i < BUCKETS; i++) /* rounded once */
        floors[i] = (double)(float)(i < 15 ? high + (low - high) * i / 15 : low * (31 - i) / 16);
    for (uint64_t from = 0; from < cols; from += CHUNK) {
        uint64_t end = from + CHUNK < cols ? from + CHUNK : cols, want = k * (end - from) / CHUNK;
        bool     taken[CHUNK] = { false };
        int      b = 0;
        for (uint64_t left = want; b < BUCKETS && left > 0; b++)
            for (uint64_t c = from; c < end && left > 0; c++)
                if (fabs(x[c]) >= floors[b] && (b == 0 || fabs(x[c]) < floors[b - 1])) {
                    taken[c - from] = true;
                    left--;
                }
        for (uint64_t c = from; c < end; c++) {
            *close += is_near(fabs(x[c]), floors[b - 1], most) ||
                      (b > 1 && is_near(fabs(x[c]), floors[b - 2], most));
            if (taken[c - from])
                list[n++] = (uint32_t)c;
        }
    }
    return n;
}

/* How many of the exactly largest are in a list. */
static void compare(struct selection *s, const double *x, uint64_t cols, const uint32_t *list,
                    uint64_t n)
{
    uint32_t *exact = grow(NULL, cols, sizeof *exact);
    double    least = HUGE_VAL, next = 0, most = largest_of(x, cols);
    uint64_t  at = 0;
    largest_channels(x, cols, n, exact);
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t j = 0; j < n; j++)
            s->common += list[i] == exact[j];
        least = fabs(x[exact[i]]) < least ? fabs(x[exact[i]]) : least;
    }
    for (uint64_t c = 0; c < cols; c++) {
        if (at < n && exact[at] == c)
            at++;
        else
            next = fabs(x[c]) > next ? fabs(x[c]) : next;
    }
    s->close += n < cols && is_near(least, next, most);
    s->exact += n;
    free(exact);
}

uint64_t choose(const struct model *m, struct selection *s, uint64_t layer, int site,
                uint64_t position, const double *x, uint32_t *list)
{
    const struct layer *l = &m->layer[layer];
    uint64_t            cols = site_cols(m, site), count = s->k[site] * cols / CHUNK, n = 0;
    if (!l->top[site] || !l->meansq[site] || !l->lost[site])
        die("no numbers of the calibration", "residuals");
    if (count == 0)
        return 0;
    if (s->way == 'd')
        n = take_buckets(l->top[site], s->k[site], x, cols, count, list, &s->close);
    else if (s->way == 'm' || s->way == 'h')
        n = largest_numbers(s->way == 'm' ? l->meansq[site] : l->lost[site], cols, count, list);
    else if (s->way == 'r')
        n = draw(s->seed, (layer * SITES + (uint64_t)site) << 32 | position, cols, count, list);
    else if (s->way == 'e')
        largest_channels(x, cols, n = count, list);
    else
        die("unknown selection", "way");
    compare(s, x, cols, list, n);
    return n;
}
