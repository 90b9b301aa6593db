/* forward - what sweep and outliers print, computed again from inputs of linears of a forward pass of its own (forward.c),
 * in double.
 *
 *   forward sweep MODEL WINDOW IDS WAY QKV OUT GATE_UP DOWN SEED
 *       mean of -log p of every id behind the first of each window, where each linear is compensated for so many of 1024
 *       channels; how many channels that are exactly the largest there are, are among those selected, and lie so near a
 *       border that rounding may change it
 *   forward outliers MODEL IDS FIRST LAYER AT SITE COUNT SEED
 *       of the layer's four inputs at the AT-th token from FIRST on: magnitudes at 65 points of their descending order, mean
 *       squares of what outputs lack when the channels before a point are added back, in that order and at random; of all
 *       tokens from FIRST on, the COUNT largest channels of SITE: those that must be among them, and those that may
 *
 * MODEL: forward.c says what is in it.  IDS: ids with white space between them. */
#include "forward.h"

#define POINTS 64

static uint32_t *read_ids(const char *path, uint64_t *n)
{
    FILE         *f = fopen(path, "r");
    uint32_t     *ids = NULL;
    unsigned long id;
    *n = 0;
    if (!f)
        die("cannot open", path);
    while (fscanf(f, "%lu", &id) == 1) {
        ids = grow(ids, *n + 1, sizeof *ids);
        ids[(*n)++] = (uint32_t)id;
    }
    (void)fclose(f);
    return ids;
}

/* ---- sweep -------------------------------------------------------------------------------- */

static int sweep(char **a)
{
    struct model    *m = read_model(a[0]);
    struct selection s = { .way = strcmp(a[3], "none") == 0             ? 0
                                  : strcmp(a[3], "static-meansq") == 0  ? 'm'
                                  : strcmp(a[3], "static-hessian") == 0 ? 'h'
                                                                        : a[3][0] };
    uint64_t         window = number(a[1]), n, scored = 0;
    uint32_t        *ids = read_ids(a[2], &n);
    double          *logits = grow(NULL, window * m->vocab, sizeof *logits), nll = 0;
    for (int i = 0; i < SITES; i++)
        s.k[i] = (uint32_t)number(a[4 + i]);
    s.seed = number(a[8]);
    for (uint64_t w = 0; w + window <= n; w += window) {
        /* nothing is asked behind the last */
        forward(m, ids + w, window - 1, &s, logits, NULL, NULL);
        for (uint64_t t = 0; t + 1 < window; t++, scored++) {
            double all = 0;
            for (uint64_t v = 0; v < m->vocab; v++)
                all += exp(logits[t * m->vocab + v]);
            nll += log(all) - logits[t * m->vocab + ids[w + t + 1]];
        }
    }
    (void)printf("{\"mean_nll\": %.17g, \"exact\": %llu, \"common\": %llu, \"close\": %llu}\n",
                 nll / (double)scored, (unsigned long long)s.exact, (unsigned long long)s.common,
                 (unsigned long long)s.close);
    free(logits);
    free(ids);
    return 0;
}

/* ---- outliers ----------------------------------------------------------------------------- */

struct watch {
    uint64_t first, layer, at, count;
    int      site;
    double  *x[SITES]; /* at `at` */
    bool     any;
};

/* An input in F32 is off by less than this share of the largest. */
#define NEAR 1e-5

static void print_large(struct watch *w, const double *x, uint64_t cols)
{
    uint32_t *list = grow(NULL, cols, sizeof *list);
    double    least = HUGE_VAL, most = 0;
    largest_channels(x, cols, w->count, list);
    for (uint64_t i = 0; i < w->count; i++) {
        least = fabs(x[list[i]]) < least ? fabs(x[list[i]]) : least;
        most = fabs(x[list[i]]) > most ? fabs(x[list[i]]) : most;
    }
    for (int may = 0; may < 2; may++) {
        double border = least + (may ? -NEAR : NEAR) * most;
        bool   any = false;
        (void)printf(may ? "], \"may\": [" : "%s{\"must\": [", w->any ? ", " : "");
        for (uint64_t c = 0; c < cols; c++) {
            if (fabs(x[c]) < border)
                continue;
            (void)printf("%s%llu", any ? ", " : "", (unsigned long long)c);
            any = true;
        }
    }
    (void)printf("]}");
    w->any = true;
    free(list);
}

static void watch_input(void *ctx, uint64_t layer, int site, uint64_t position, const double *x,
                        uint64_t cols)
{
    struct watch *w = ctx;
    if (layer != w->layer || position < w->first)
        return;
    if (position - w->first + 1 == w->at) {
        w->x[site] = grow(NULL, cols, sizeof **w->x);
        memcpy(w->x[site], x, cols * sizeof **w->x);
    }
    if (site == w->site)
        print_large(w, x, cols);
}

struct rank {
    double   by;
    uint64_t channel;
};

static int descending(const void *a, const void *b)
{
    const struct rank *p = a, *q = b;
    if (p->by < q->by || p->by > q->by)
        return p->by < q->by ? 1 : -1;
    return p->channel < q->channel ? -1 : 1;
}

/* Mean square over all outputs of what the channels from `from` on make of them. */
static double lacking(const struct layer *l, int site, const double *x, const struct rank *order,
                      uint64_t from, uint64_t cols)
{
    double   squares = 0;
    uint64_t outputs = 0;
    for (int i = 0; i < LINEARS; i++) {
        if (site_of(i) != site)
            continue;
        if (!l->lin[i].part.codes)
            die("no residuals", "of a linear");
        for (uint64_t o = 0; o < l->lin[i].rows; o++) {
            double sum = 0;
            for (uint64_t c = from; c < cols; c++)
                sum += x[order[c].channel] * value(&l->lin[i].part, order[c].channel, o);
            squares += sum * sum;
        }
        outputs += l->lin[i].rows;
    }
    return squares / (double)outputs;
}

static void print_site(const struct model *m, const struct watch *w, int site, uint64_t seed)
{
    uint64_t     cols = site_cols(m, site);
    struct rank *order = grow(NULL, cols, sizeof *order);
    if (!w->x[site])
        die("no such token", "outliers");
    (void)printf("%s{\"inputs\": %llu", site ? ", " : "", (unsigned long long)cols);
    for (int random = 0; random < 2; random++) {
        for (uint64_t c = 0; c < cols; c++)
            order[c] =
                (struct rank){ random ? uniform(seed, (uint64_t)site, c) : fabs(w->x[site][c]), c };
        qsort(order, cols, sizeof *order, descending);
        for (uint64_t p = 0; p <= POINTS && !random; p++)
            (void)printf("%s%.17g", p ? ", " : ", \"magnitude\": [",
                         order[p < POINTS ? p * cols / POINTS : cols - 1].by);
        (void)printf(random ? "], \"random\": [" : "], \"sorted\": [");
        for (uint64_t p = 0; p <= POINTS; p++)
            (void)printf("%s%.17g", p ? ", " : "",
                         lacking(&m->layer[w->layer], site, w->x[site], order, p * cols / POINTS,
                                 cols));
    }
    (void)printf("]}");
    free(order);
}

static int outliers(char **a)
{
    struct model *m = read_model(a[0]);
    struct watch  w = { .first = number(a[2]),
                        .layer = number(a[3]),
                        .at = number(a[4]),
                        .site = (int)number(a[5]),
                        .count = number(a[6]) };
    uint64_t      n;
    uint32_t     *ids = read_ids(a[1], &n);
    if (w.layer >= m->layers || w.site >= SITES || w.count > site_cols(m, w.site))
        die("no such layer, input or number of channels", "outliers");
    (void)printf("{\"large\": [");
    forward(m, ids, n, NULL, NULL, watch_input, &w);
    (void)printf("], \"sites\": [");
    for (int s = 0; s < SITES; s++)
        print_site(m, &w, s, number(a[7]));
    (void)printf("]}\n");
    for (int s = 0; s < SITES; s++)
        free(w.x[s]);
    free(ids);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 11 && strcmp(argv[1], "sweep") == 0)
        return sweep(argv + 2);
    if (argc == 10 && strcmp(argv[1], "outliers") == 0)
        return outliers(argv + 2);
    die("usage", "forward sweep MODEL WINDOW IDS WAY QKV OUT GATE_UP DOWN SEED | forward outliers "
                 "MODEL IDS FIRST LAYER AT SITE COUNT SEED");
    return 2;
}
