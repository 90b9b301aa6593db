/* bench comm: threads as ranks over any transport that threads can share. */
#include "cli/bench/comm.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cli/bench/bench.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_US UINT64_C(60000000)
#define SPINS       10000u

/* ---- ways --------------------------------------------------------------- */

/* Codecs with calibration see made-up numbers first. */
static tsr_status calibrate(struct bench_comm *b, struct bench_comm_way *w, struct tsr_err *err)
{
    enum { ROWS = 8 };
    const struct tsr_codec_v1 *t = w->coder.iface;
    const float               *partial[TSR_COMM_MAX_RANKS];
    uint64_t                   n = ROWS * b->cols;
    if (!t->observe || !t->freeze)
        return TSR_OK;
    float *x = tsr_new(n, sizeof *x);
    if (!x)
        return tsr_fail_nomem(err, n * sizeof *x, "a codec's calibration");
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((int64_t)((i * 7919) % 2001) - 1000) * 1e-3f;
    for (uint32_t r = 0; r < b->ranks; r++)
        partial[r] = x;
    tsr_status st = tsr_comm_sum_observe(&w->coder, 0, partial, ROWS, b->cols, err);
    uint64_t   all = tsr_comm_instances(w->coder.algorithm, b->ranks);
    for (uint64_t i = 0; st == TSR_OK && i < all; i++)
        st = t->freeze(w->coder.self[i], err);
    free(x);
    w->calibrated = true;
    return st;
}

static tsr_status add_way(struct bench_comm *b, const char *codec, enum tsr_comm_algorithm a,
                          bool ring, struct tsr_err *err)
{
    struct tsr_comm_way way = { .codec = codec, .algorithm = a };
    if (b->n_ways == BENCH_COMM_WAYS)
        return tsr_fail(err, TSR_E_INPUT, "--codecs: more than %u codecs", BENCH_COMM_WAYS / 2 - 1);
    struct bench_comm_way *w = &b->way[b->n_ways];
    *w = (struct bench_comm_way){ .codec = codec,
                                  .algorithm = ring ? "ring" : tsr_comm_algorithm_name(a),
                                  .ring = ring };
    TSR_TRY(tsr_comm_coder_open(&w->coder, b->registry, &way, b->ranks, err));
    b->n_ways++;
    return ring ? TSR_OK : calibrate(b, w, err);
}

static tsr_status make_ways(struct bench_comm *b, struct tsr_err *err)
{
    TSR_TRY(add_way(b, "plain:dtype=bf16", TSR_COMM_ALL_GATHER, true, err));
    for (char *at = b->codecs, *next; at; at = next) {
        next = strchr(at, ';');
        if (next)
            *next++ = '\0';
        TSR_TRY(add_way(b, at, TSR_COMM_ALL_GATHER, false, err));
        TSR_TRY(add_way(b, at, TSR_COMM_TWO_STEP, false, err));
    }
    return TSR_OK;
}

/* The codecs that `auto` may choose: those that need no calibration of a model. */
static tsr_status auto_list(const struct bench_comm *b, char **text, struct tsr_err *err)
{
    size_t n = 6;
    for (uint32_t i = 1; i < b->n_ways; i += 2)
        n += strlen(b->way[i].codec) + 1;
    char *at = *text = tsr_new(n, 1);
    if (!at)
        return tsr_fail_nomem(err, n, "a list of codecs");
    at += snprintf(at, n, "auto");
    for (uint32_t i = 1; i < b->n_ways; i += 2)
        if (!b->way[i].calibrated)
            at += snprintf(at, n - (size_t)(at - *text), "%c%s", strchr(*text, ':') ? ';' : ':',
                           b->way[i].codec);
    return TSR_OK;
}

/* ---- one size ------------------------------------------------------------ */

static void fail(struct bench_comm *b, const char *text)
{
    (void)pthread_mutex_lock(&b->lock);
    if (!atomic_exchange(&b->failed, true))
        (void)snprintf(b->why.text, sizeof b->why.text, "%s", text);
    (void)pthread_mutex_unlock(&b->lock);
}

struct member {
    struct bench_comm *b;
    uint32_t           rank;
};

static tsr_status one(struct bench_comm *b, uint32_t rank, const struct bench_comm_way *w, float *x,
                      unsigned char *scratch, struct tsr_err *err)
{
    struct tsr_comm_group *g = b->group[rank];
    uint64_t               n = b->at->rows * b->cols;
    return w->ring ? bench_comm_ring(g, &w->coder, x, n, scratch, err)
                   : tsr_comm_group_run(g, &w->coder, 0, x, b->at->rows, b->cols, err);
}

/* All ranks are awake: the time in which the barrier wakes the last one does not count for the sum. turn:
 * 1, 2, ... */
static void begin(struct bench_comm *b, uint64_t turn)
{
    (void)pthread_barrier_wait(&b->barrier);
    (void)atomic_fetch_add(&b->awake, 1);
    for (uint32_t i = 0; atomic_load(&b->awake) < turn * b->ranks; i++)
        if (i >= SPINS) /* more ranks than CPUs, perhaps */
            (void)sched_yield();
}

/* The slowest rank's time of every round; rank 0 keeps them. */
static void measure(struct bench_comm *b, uint32_t rank, float *x, unsigned char *scratch,
                    double *rounds)
{
    uint64_t          n = (uint64_t)b->o->repeats, turn = 0;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint64_t k = 0; k <= n; k++) /* the first makes buffers */
        for (uint32_t i = 0; i < b->n_ways; i++) {
            for (uint64_t j = 0; j < b->at->rows * b->cols; j++)
                x[j] = (float)((int64_t)((j * 7919) % 2001) - 1000) * 1e-3f;
            begin(b, ++turn);
            double start = tsr_now_s();
            if (!atomic_load(&b->failed) &&
                one(b, rank, &b->way[i], x, scratch, &e.err) != TSR_OK) {
                tsr_comm_group_abort(b->group[rank]);
                fail(b, e.text);
            }
            b->took[rank] = tsr_now_s() - start;
            (void)pthread_barrier_wait(&b->barrier);
            if (rank > 0 || k == 0)
                continue;
            double most = 0;
            for (uint32_t r = 0; r < b->ranks; r++)
                most = fmax(most, b->took[r]);
            rounds[i * n + k - 1] = most;
        }
    for (uint32_t i = 0; rank == 0 && i < b->n_ways; i++)
        b->at->result[i].us = bench_median(rounds + i * n, n) * 1e6;
}

/* Speeds of codecs on all ranks at once, as they run in a sum; rank 0 predicts. */
static tsr_status predict(struct bench_comm *b, uint32_t rank, struct tsr_err *err)
{
    for (uint32_t i = 1; i < b->n_ways; i++) {
        struct tsr_comm_speed v;
        double                seconds;
        TSR_TRY(tsr_comm_measure(&b->way[i].coder, b->at->rows, b->cols, 3, &v, err));
        if (rank > 0)
            continue;
        TSR_TRY(tsr_comm_predict(&b->way[i].coder, &v, &b->at->path, b->at->rows, b->cols, &seconds,
                                 err));
        b->at->result[i].predicted_us = seconds * 1e6;
        if (b->there.rate > 0)
            TSR_TRY(tsr_comm_predict(&b->way[i].coder, &v, &b->there, b->at->rows, b->cols,
                                     &seconds, err));
        b->at->result[i].there_us = seconds * 1e6;
    }
    return TSR_OK;
}

static void *work(void *arg)
{
    struct member         *m = arg;
    struct bench_comm     *b = m->b;
    struct tsr_comm_group *g = b->group[m->rank];
    struct tsr_comm_path   path;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    uint64_t               n = b->at->rows * b->cols, rounds = (uint64_t)b->o->repeats;
    float                 *x = tsr_new_aligned(n, sizeof *x);
    unsigned char         *scratch = tsr_new_aligned(n, 4);
    double                *times = tsr_new(rounds * b->n_ways, sizeof *times);
    (void)pthread_mutex_lock(&b->lock);
    bool all_here = !atomic_load(&b->failed);
    (void)pthread_mutex_unlock(&b->lock);
    if (!all_here)
        goto end;
    tsr_status st = x && scratch && times ? TSR_OK : tsr_fail_nomem(&e.err, n * 8, "a message");
    if (st == TSR_OK)
        st = tsr_comm_group_probe(g, &path, &e.err);
    if (st == TSR_OK && m->rank == 0)
        b->at->path = path;
    if (st == TSR_OK)
        st = tsr_comm_group_tune(g, 0, b->at->rows, b->cols, &e.err);
    (void)pthread_barrier_wait(&b->barrier);
    if (st == TSR_OK)
        st = predict(b, m->rank, &e.err);
    if (st != TSR_OK)
        fail(b, e.text);
    (void)pthread_barrier_wait(&b->barrier);
    if (x && scratch && times &&
        !atomic_load(&b->failed)) /* the same answer for all: it was settled before the barrier */
        measure(b, m->rank, x, scratch, times);
end:
    free(x);
    free(scratch);
    free(times);
    return NULL;
}

static tsr_status open_groups(struct bench_comm *b, const char *list, struct tsr_err *err)
{
    TSR_TRY(tsr_comm_world_create(&b->world, b->registry, b->o->transport, b->ranks, err));
    for (uint32_t r = 0; r < b->ranks; r++) {
        struct tsr_comm_options o = { .place = { .transport = b->o->transport,
                                                 .rank = r,
                                                 .ranks = b->ranks,
                                                 .shared = b->world.shared,
                                                 .shared_bytes = b->world.bytes },
                                      .deadline_us = DEADLINE_US };
        o.way[0] = (struct tsr_comm_way){ .codec = list, .algorithm = TSR_COMM_AUTO };
        TSR_TRY(tsr_comm_group_create(&b->group[r], b->registry, &o, err));
    }
    return TSR_OK;
}

static void close_groups(struct bench_comm *b)
{
    for (uint32_t r = 0; r < b->ranks; r++) {
        tsr_comm_group_destroy(b->group[r]);
        b->group[r] = NULL;
    }
    tsr_comm_world_close(&b->world);
}

static tsr_status run_threads(struct bench_comm *b, struct tsr_err *err)
{
    pthread_t     id[TSR_COMM_MAX_RANKS];
    struct member m[TSR_COMM_MAX_RANKS];
    uint32_t      n = 0;
    atomic_store(&b->awake, 0);
    if (pthread_barrier_init(&b->barrier, NULL, b->ranks) != 0)
        return tsr_fail(err, TSR_E_NOMEM, "cannot make a barrier");
    (void)pthread_mutex_lock(&b->lock); /* no rank begins before all are ready */
    for (; n < b->ranks; n++) {
        m[n] = (struct member){ b, n };
        if (pthread_create(&id[n], NULL, work, &m[n]) != 0) {
            (void)snprintf(b->why.text, sizeof b->why.text, "cannot start %u threads", b->ranks);
            atomic_store(&b->failed, true);
            break;
        }
    }
    (void)pthread_mutex_unlock(&b->lock);
    for (uint32_t r = 0; r < n; r++)
        (void)pthread_join(id[r], NULL);
    (void)pthread_barrier_destroy(&b->barrier);
    return atomic_load(&b->failed) ? tsr_err_copy(err, TSR_E_DEVICE, &b->why.err) : TSR_OK;
}

static tsr_status one_size(struct bench_comm *b, const char *list, struct tsr_err *err)
{
    struct bench_comm_size *s = b->at;
    tsr_status              st = open_groups(b, list, err);
    if (st == TSR_OK)
        st = run_threads(b, err);
    for (uint32_t i = 0; st == TSR_OK && i < b->n_ways; i++) {
        const struct bench_comm_way *w = &b->way[i];
        uint64_t                     n = s->rows * b->cols;
        if (w->ring)
            s->result[i].bytes = 4 * (n - n / b->ranks); /* two hops of BF16, all but one part */
        else
            st = tsr_comm_sent_bytes(&w->coder, 0, s->rows, b->cols, &s->result[i].bytes, err);
        if (!w->ring && strcmp(w->codec, tsr_comm_group_codec(b->group[0], 0)) == 0 &&
            w->coder.algorithm == tsr_comm_group_algorithm(b->group[0], 0))
            s->chosen = i;
    }
    close_groups(b);
    return st;
}

static tsr_status parse_sizes(struct bench_comm *b, struct tsr_err *err)
{
    for (const char *at = b->o->rows; *at;) {
        char              *end;
        unsigned long long n = strtoull(at, &end, 10);
        if (end == at || *at == '-' || n == 0 || n > 1u << 20 || (*end && *end != ',') ||
            b->n_sizes == BENCH_COMM_SIZES)
            return tsr_fail(err, TSR_E_INPUT,
                            "--sizes: '%s' is not a list of up to %u numbers of tokens from 1 to "
                            "1048576",
                            b->o->rows, BENCH_COMM_SIZES);
        b->size[b->n_sizes++].rows = n;
        at = *end ? end + 1 : end;
    }
    return b->n_sizes ? TSR_OK : tsr_fail(err, TSR_E_INPUT, "--sizes: no number of tokens");
}

static tsr_status parse_link(struct bench_comm *b, struct tsr_err *err)
{
    const char *text = b->o->link;
    char       *end = NULL;
    if (!*text)
        return TSR_OK;
    double us = strtod(text, &end);
    double rate = end != text && *end == ',' ? strtod(end + 1, &end) : NAN;
    if (!(us >= 0 && us <= 1e9 && rate > 0 && rate <= 1e12) || *end)
        return tsr_fail(err, TSR_E_INPUT,
                        "--link: '%.60s' is not a link; give latency in us and rate in MB/s, as in "
                        "4,370000",
                        text);
    b->there = (struct tsr_comm_path){ us * 1e-6, rate * 1e6 };
    return TSR_OK;
}

static tsr_status run_sizes(struct bench_comm *b, struct tsr_err *err)
{
    char *list = NULL;
    TSR_TRY(parse_sizes(b, err));
    TSR_TRY(parse_link(b, err));
    TSR_TRY(make_ways(b, err));
    TSR_TRY(auto_list(b, &list, err));
    tsr_status st = TSR_OK;
    for (uint32_t i = 0; st == TSR_OK && i < b->n_sizes; i++) {
        b->at = &b->size[i];
        st = tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                                    : one_size(b, list, err);
    }
    free(list);
    return st;
}

tsr_status bench_comm(struct tsr_cli *c, const struct bench_comm_options *o, struct tsr_err *err)
{
    struct bench_comm *b = tsr_new(1, sizeof *b);
    if (!b)
        return tsr_fail_nomem(err, sizeof *b, "a benchmark");
    *b = (struct bench_comm){ .cli = c,
                              .o = o,
                              .ranks = (uint32_t)o->ranks,
                              .cols = (uint64_t)o->cols,
                              .world = { .fd = -1 },
                              .lock = PTHREAD_MUTEX_INITIALIZER };
    b->codecs = tsr_strdup(o->codecs);
    tsr_status st = b->codecs ? tsr_cli_registry(c, &b->registry, err)
                              : tsr_fail_nomem(err, strlen(o->codecs), "a list of codecs");
    if (st == TSR_OK)
        st = run_sizes(b, err);
    if (st == TSR_OK)
        st = bench_comm_print(b, err);
    for (uint32_t i = 0; i < b->n_ways; i++)
        tsr_comm_coder_close(&b->way[i].coder);
    free(b->codecs);
    free(b);
    return st;
}
