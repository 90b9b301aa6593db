/* codec: auto, algorithm: auto. */
#include "comm/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES 16u
#define TRIES      3u   /* of a message on the link, of a coder, and at least of a whole sum */
#define NEAR       2.0  /* times the best prediction: whole sums are tried */
#define MOST_TRIES 101u /* of a whole sum; the median counts */
#define ENOUGH_S   0.15 /* of tries; no further try after that */
#define BEATEN     0.98 /* times an earlier candidate's time: below this, the later one is better */
#define CODECS     "plain:dtype=bf16;mx" /* auto without a list */

static tsr_status broken(struct tsr_comm_group *g, tsr_status st)
{
    if (st != TSR_OK) { /* the peers wait for messages that will not come */
        g->failed = true;
        tsr_comm_group_abort(g);
    }
    return st;
}

/* Every rank's n numbers to every rank: all [ranks][n]. */
static tsr_status share(struct tsr_comm_group *g, const double *mine, uint64_t n, double *all,
                        struct tsr_err *err)
{
    struct tsr_comm_block out[TSR_COMM_MAX_RANKS], in[TSR_COMM_MAX_RANKS];
    uint64_t              bytes = n * sizeof *mine;
    for (uint32_t i = 0; i < g->ranks; i++) {
        out[i] = (struct tsr_comm_block){ 0, bytes };
        in[i] = (struct tsr_comm_block){ i * bytes, bytes };
    }
    g->counters.declared += bytes * (g->ranks - 1);
    TSR_TRY(tsr_comm_exchange_start(&g->traffic, &g->exchange[0], true, (const unsigned char *)mine,
                                    out, (unsigned char *)all, in, err));
    return tsr_comm_exchange_end(&g->traffic, &g->exchange[0], err);
}

/* ---- the link ---------------------------------------------------------- */

/* Larger sizes are probed while one all-gather takes at most this. */
#define PROBE_S    0.05
#define PROBE_MOST (UINT64_C(4) << 20)

/* Ranks begin at different times, by up to the latency of the link: the first rank waits that much longer,
 * and the next time finds its message already there. Their mean cancels both. The same number on every
 * rank. */
static double mean(const double *all, uint32_t ranks)
{
    double sum = 0;
    for (uint32_t r = 0; r < ranks; r++)
        sum += all[r];
    return sum / ranks;
}

static tsr_status gather_time(struct tsr_comm_group *g, const unsigned char *send,
                              unsigned char *recv, uint64_t bytes, double *seconds,
                              struct tsr_err *err)
{
    struct tsr_comm_block out[TSR_COMM_MAX_RANKS], in[TSR_COMM_MAX_RANKS];
    double                best = INFINITY, all[TSR_COMM_MAX_RANKS], mine = 0;
    for (uint32_t i = 0; i < g->ranks; i++) {
        out[i] = (struct tsr_comm_block){ 0, bytes };
        in[i] = (struct tsr_comm_block){ i * bytes, bytes };
    }
    for (uint32_t k = 0; k < TRIES; k++) {
        TSR_TRY(share(g, &mine, 1, all, err)); /* all begin */
        double start = tsr_now_s();
        g->counters.declared += bytes * (g->ranks - 1);
        TSR_TRY(
            tsr_comm_exchange_start(&g->traffic, &g->exchange[0], true, send, out, recv, in, err));
        TSR_TRY(tsr_comm_exchange_end(&g->traffic, &g->exchange[0], err));
        mine = tsr_now_s() - start;
        TSR_TRY(share(g, &mine, 1, all, err));
        best = fmin(best, mean(all, g->ranks));
    }
    *seconds = best;
    return TSR_OK;
}

static tsr_status probe(struct tsr_comm_group *g, unsigned char *send, unsigned char *recv,
                        struct tsr_comm_path *path, struct tsr_err *err)
{
    double   x[12], y[12];
    uint64_t n = 0;
    for (uint64_t bytes = 1; bytes <= PROBE_MOST && n < 12; bytes *= 8) {
        TSR_TRY(gather_time(g, send, recv, bytes, &y[n], err));
        x[n] = (double)(g->ranks - 1) * (double)bytes;
        n++;
        if (y[n - 1] > PROBE_S && n > 2)
            break;
    }
    if (!tsr_comm_fit(x, y, n, path)) /* mostly noise: the time of the largest */
        *path = (struct tsr_comm_path){ y[0], x[n - 1] / y[n - 1] };
    return TSR_OK;
}

tsr_status tsr_comm_group_probe(struct tsr_comm_group *g, struct tsr_comm_path *path,
                                struct tsr_err *err)
{
    *path = (struct tsr_comm_path){ 0, INFINITY };
    if (g->ranks == 1)
        return TSR_OK;
    uint64_t       all = PROBE_MOST * g->ranks;
    unsigned char *send = tsr_new(PROBE_MOST, 1), *recv = tsr_new(all, 1);
    tsr_status     st =
        send && recv ? TSR_OK : tsr_fail_nomem(err, all + PROBE_MOST, "the measure of a link");
    if (st == TSR_OK)
        st = probe(g, send, recv, path, err);
    free(send);
    free(recv);
    return broken(g, st);
}

/* ---- the choice -------------------------------------------------------- */

struct candidate {
    struct tsr_comm_way   way;
    struct tsr_comm_coder coder;
    double                predicted;
};

struct tuning {
    struct candidate c[CANDIDATES];
    uint32_t         n;
    char            *list; /* codecs point into it */
};

static void close_tuning(struct tuning *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        tsr_comm_coder_close(&t->c[i].coder);
    free(t->list);
    free(t);
}

/* States are of the codec that is calibrated; others of the list have none. */
static bool calibrated(struct tsr_comm_group *g, const char *codec)
{
    struct tsr_errbuf      ignored = TSR_ERRBUF(ignored);
    struct tsr_plugin_spec s = { 0 };
    bool                   yes = tsr_plugin_spec_open(&s, g->registry, TSR_KIND_CODEC,
                                    codec && *codec ? codec : "plain", &ignored.err) != TSR_OK ||
               ((const struct tsr_codec_v1 *)s.found.iface)->load;
    tsr_plugin_spec_close(&s);
    return yes;
}

static tsr_status add_candidates(struct tsr_comm_group *g, struct tuning *t, const char *codec,
                                 const struct tsr_comm_way *way, struct tsr_err *err)
{
    for (int a = TSR_COMM_ALL_GATHER; a <= TSR_COMM_TWO_STEP; a++) {
        struct tsr_comm_way w = *way;
        if (way->algorithm != TSR_COMM_AUTO && way->algorithm != (enum tsr_comm_algorithm)a)
            continue;
        w.codec = codec;
        w.algorithm = (enum tsr_comm_algorithm)a;
        if (w.states && !calibrated(g, codec)) {
            w.states = NULL;
            w.n_states = 0;
        }
        /* a calibration is of one algorithm */
        if (w.states && way->algorithm == TSR_COMM_AUTO &&
            w.n_states != tsr_comm_instances(w.algorithm, g->ranks))
            continue;
        if (t->n == CANDIDATES)
            return tsr_fail(err, TSR_E_INPUT, "codec auto: more than %u ways to choose from",
                            CANDIDATES);
        t->c[t->n] = (struct candidate){ .way = w };
        TSR_TRY(tsr_comm_coder_open(&t->c[t->n].coder, g->registry, &w, g->ranks, err));
        t->n++;
    }
    return TSR_OK;
}

static tsr_status list_candidates(struct tsr_comm_group *g, struct tuning *t,
                                  const struct tsr_comm_way *way, struct tsr_err *err)
{
    const char *codec = way->codec;
    if (!tsr_comm_is_auto(codec))
        return add_candidates(g, t, codec, way, err);
    t->list = tsr_strdup(codec[4] == ':' && codec[5] ? codec + 5 : CODECS);
    if (!t->list)
        return tsr_fail_nomem(err, strlen(codec), "a list of codecs");
    for (char *at = t->list, *next; at; at = next) {
        next = strchr(at, ';');
        if (next)
            *next++ = '\0';
        TSR_TRY(add_candidates(g, t, at, way, err));
    }
    return TSR_OK;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The same prediction on every rank: from the mean speed over the ranks. */
static tsr_status predict_all(struct tsr_comm_group *g, struct tuning *t, uint64_t rows,
                              uint64_t cols, struct tsr_err *err)
{
    struct tsr_comm_path path;
    TSR_TRY(tsr_comm_group_probe(g, &path, err));
    for (uint32_t i = 0; i < t->n; i++) {
        struct tsr_comm_speed v;
        double                all[2 * TSR_COMM_MAX_RANKS], sum[2] = { 0, 0 };
        TSR_TRY(tsr_comm_measure(&t->c[i].coder, rows, cols, TRIES, &v, err));
        double mine[2] = { v.encode, v.decode };
        TSR_TRY(share(g, mine, 2, all, err));
        for (size_t r = 0; r < g->ranks; r++) {
            sum[0] += all[2 * r];
            sum[1] += all[2 * r + 1];
        }
        v = (struct tsr_comm_speed){ sum[0] / g->ranks, sum[1] / g->ranks };
        TSR_TRY(tsr_comm_predict(&t->c[i].coder, &v, &path, rows, cols, &t->c[i].predicted, err));
    }
    return TSR_OK;
}

static tsr_status time_sum(struct tsr_comm_group *g, const struct tsr_comm_coder *c, float *x,
                           uint64_t rows, uint64_t cols, double *seconds, struct tsr_err *err)
{
    double mine = 0, all[TSR_COMM_MAX_RANKS];
    for (uint64_t i = 0; i < rows * cols; i++)
        x[i] = (float)((int64_t)((i * 7919) % 2001) - 1000) * 1e-3f;
    TSR_TRY(share(g, &mine, 1, all, err)); /* all begin */
    double start = tsr_now_s();
    TSR_TRY(tsr_comm_group_run(g, c, 0, x, rows, cols, err));
    mine = tsr_now_s() - start;
    TSR_TRY(share(g, &mine, 1, all, err));
    *seconds = mean(all, g->ranks);
    return TSR_OK;
}

/* Tries those near the best prediction, one after the other in every round; the best median, but an
 * earlier one of the list unless it is beaten clearly.  All ranks see the same times, so that all stop after the
 * same round. */
static tsr_status try_all(struct tsr_comm_group *g, struct tuning *t, float *x, uint64_t rows,
                          uint64_t cols, uint32_t *best, struct tsr_err *err)
{
    double   took[CANDIDATES][MOST_TRIES], first, all = 0, least = INFINITY, shortest = INFINITY;
    uint32_t near[CANDIDATES] = { 0 }, n = 0, rounds = 0;
    for (uint32_t i = 0; i < t->n; i++)
        least = fmin(least, t->c[i].predicted);
    for (uint32_t i = 0; i < t->n; i++)
        if (t->c[i].predicted <= NEAR * least)
            near[n++] = i;
    *best = near[0];
    if (n <= 1)
        return TSR_OK;
    for (uint32_t i = 0; i < n; i++) /* makes buffers */
        TSR_TRY(time_sum(g, &t->c[near[i]].coder, x, rows, cols, &first, err));
    for (; rounds < TRIES || (rounds < MOST_TRIES && all < ENOUGH_S); rounds++)
        for (uint32_t i = 0; i < n; i++) {
            TSR_TRY(time_sum(g, &t->c[near[i]].coder, x, rows, cols, &took[i][rounds], err));
            all += took[i][rounds];
        }
    for (uint32_t i = 0; i < n; i++) {
        qsort(took[i], rounds, sizeof **took, ascending);
        double median = (took[i][(rounds - 1) / 2] + took[i][rounds / 2]) / 2;
        if (median < BEATEN * shortest) {
            shortest = median;
            *best = near[i];
        }
    }
    return TSR_OK;
}

static tsr_status choose(struct tsr_comm_group *g, struct tuning *t, const struct tsr_comm_way *way,
                         uint64_t rows, uint64_t cols, uint32_t *best, struct tsr_err *err)
{
    uint64_t n;
    TSR_TRY(list_candidates(g, t, way, err));
    if (t->n == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%llu states are given, which is right for no algorithm over %u ranks",
                        (unsigned long long)way->n_states, g->ranks);
    *best = 0;
    if (g->ranks == 1 || t->n == 1 || rows == 0 || cols == 0)
        return TSR_OK;
    if (!tsr_mul(rows, cols, &n))
        return tsr_fail(err, TSR_E_INVAL, "a message of %llu x %llu is too large",
                        (unsigned long long)rows, (unsigned long long)cols);
    TSR_TRY(predict_all(g, t, rows, cols, err));
    float *x = tsr_new_aligned(n, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, n * sizeof *x, "the choice of a codec");
    tsr_status st = try_all(g, t, x, rows, cols, best, err);
    free(x);
    return st;
}

tsr_status tsr_comm_group_tune(struct tsr_comm_group *g, uint32_t phase, uint64_t rows,
                               uint64_t cols, struct tsr_err *err)
{
    uint32_t best;
    if (phase >= TSR_COMM_PHASES)
        return tsr_fail(err, TSR_E_INVAL, "phase %u of a sum; 0 is prefill, 1 decode", phase);
    if (g->open[phase])
        return TSR_OK;
    struct tuning *t = tsr_new(1, sizeof *t);
    if (!t)
        return broken(g, tsr_fail_nomem(err, sizeof *t, "the choice of a codec"));
    tsr_status st = choose(g, t, &g->way[phase], rows, cols, &best, err);
    if (st == TSR_OK) {
        const char *codec = t->c[best].way.codec;
        char       *text = tsr_strdup(codec ? codec : "plain");
        if (text) {
            g->coder[phase] = t->c[best].coder;
            t->c[best].coder = (struct tsr_comm_coder){ .self = NULL };
            free(g->codec[phase]);
            g->codec[phase] = text;
            g->way[phase].codec = text;
            g->way[phase].algorithm = t->c[best].way.algorithm;
            g->open[phase] = true;
        } else {
            st = tsr_fail_nomem(err, 64, "a codec's name");
        }
    }
    close_tuning(t);
    return broken(g, st);
}

const char *tsr_comm_group_codec(const struct tsr_comm_group *g, uint32_t phase)
{
    return phase < TSR_COMM_PHASES && g->codec[phase] ? g->codec[phase] : "plain";
}

enum tsr_comm_algorithm tsr_comm_group_algorithm(const struct tsr_comm_group *g, uint32_t phase)
{
    return phase < TSR_COMM_PHASES ? g->way[phase].algorithm : TSR_COMM_AUTO;
}
