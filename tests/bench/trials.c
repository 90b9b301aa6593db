/* trials.c - several trials of a decoder layer (tessera/quantizer_tune.h), with gradients: one after the other, each on all
 * threads, as run() computes them, against one trial on each thread at the same time.  Wall-clock time; the two take turns,
 * and the ratio is the median of ratios of a round.  Both give the same bytes, which is checked first.
 *   trials MODEL PLUGINS THREADS SEQUENCES TOKENS */
#include "gradient/gradient.h"
#include "plugin/registry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 15
#define MOST   64u
#define LEAST  0.4 /* seconds of a timing */

/* A candidate: weights and gradients. */
struct trial {
    struct tsr_gradient_job job;
    double                  mse;
};
struct trials {
    struct trial *t;
    uint64_t      n;
};

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st == TSR_OK)
        return;
    (void)fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static void *room(uint64_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        exit(4);
    return p;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tsr_status run(void *arg, uint64_t begin, uint64_t end)
{
    struct trials    *a = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint64_t i = begin; i < end; i++)
        must(tsr_gradient_run(&a->t[i].job, &a->t[i].mse, &e.err), &e);
    return TSR_OK;
}

/* Seconds of all trials. */
static double in_turn(struct trials *a)
{
    double start = now();
    for (uint64_t i = 0; i < a->n; i++)
        (void)run(a, i, i + 1);
    return now() - start;
}

static double together(struct trials *a)
{
    const struct tsr_host *h = a->t[0].job.host;
    double                 start = now();
    (void)h->parallel_for(h->ctx, a->n, 1, run, a);
    return now() - start;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* F32 weights that differ from trial to trial. */
static float *weights(const struct tsr_model_linear *l, unsigned i)
{
    uint64_t n = l->w.rows * l->w.cols;
    float   *w = room(n * sizeof *w);
    for (uint64_t k = 0; k < n; k++)
        w[k] = 0.02f * sinf((float)(k % 100003) * (0.7f + 0.01f * (float)i));
    return w;
}

int main(int argc, char **argv)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_model    *m;
    static struct trial  all[MOST], one[MOST];
    struct tsr_pool     *pool;
    struct tsr_registry *r;
    unsigned             n = argc == 6 ? (unsigned)atoi(argv[3]) : 0;
    if (n < 1 || n > MOST) {
        (void)fprintf(stderr, "trials MODEL PLUGINS THREADS SEQUENCES TOKENS\n");
        return 2;
    }
    must(tsr_model_load(&m, argv[1], false, &e.err), &e);
    struct tsr_gradient_job g = { .model = m,
                                  .sequences = (uint64_t)atoll(argv[4]),
                                  .tokens = (uint64_t)atoll(argv[5]) };
    uint64_t                numbers = g.sequences * g.tokens * m->hp.hidden;
    float                  *in = room(numbers * sizeof *in), *target = room(numbers * sizeof *in);
    for (uint64_t i = 0; i < numbers; i++) {
        in[i] = sinf((float)(i % 9973));
        target[i] = cosf((float)(i % 9967));
    }
    g.in = in;
    g.target = target;
    must(tsr_pool_create(&pool, n, &e.err), &e);
    must(tsr_plugin_registry_create(&r, pool, &e.err), &e);
    must(tsr_plugin_registry_add_path(r, argv[2], &e.err), &e);
    must(tsr_plugin_registry_scan(r, &e.err), &e);
    g.host = tsr_plugin_registry_host(r);
    g.linalg = g.host->service(g.host->ctx, TSR_LINALG);
    if (!g.linalg)
        return 1;
    for (unsigned i = 0; i < n; i++) {
        all[i].job = one[i].job = g;
        for (uint64_t k = 0; k < m->hp.linears; k++) {
            const struct tsr_model_linear *l = &m->layers[0].lin[k];
            uint64_t                       bytes = l->w.rows * l->w.cols * sizeof(float);
            if (!bytes)
                continue;
            all[i].job.w[k] = one[i].job.w[k] = weights(l, i);
            all[i].job.dw[k] = room(bytes);
            one[i].job.dw[k] = room(bytes);
        }
    }
    struct trials a = { all, n }, b = { one, n };
    (void)in_turn(&a);
    (void)together(&b);
    for (unsigned i = 0; i < n; i++)
        for (uint64_t k = 0; k < m->hp.linears; k++) {
            const struct tsr_matrix *w = &m->layers[0].lin[k].w;
            if (w->rows && memcmp(all[i].job.dw[k], one[i].job.dw[k],
                                  w->rows * w->cols * sizeof(float)) != 0) {
                (void)fprintf(stderr, "trial %u: the gradients of '%s' differ\n", i, w->name);
                return 1;
            }
        }
    double ratio[ROUNDS], turn[ROUNDS];
    for (int k = 0; k < ROUNDS; k++) {
        double x = 0, y = 0;
        int    times = 0;
        for (; x < LEAST; times++) {
            x += in_turn(&a);
            y += together(&b);
        }
        turn[k] = x / times / n;
        ratio[k] = x / y;
    }
    qsort(ratio, ROUNDS, sizeof *ratio, ascending);
    qsort(turn, ROUNDS, sizeof *turn, ascending);
    (void)
        printf("%u threads, %llu x %llu tokens: a trial %.2f ms; one after the other takes %.3f of "
               "the time at once (%.3f to %.3f)\n",
               n, (unsigned long long)g.sequences, (unsigned long long)g.tokens,
               1e3 * turn[ROUNDS / 2], ratio[ROUNDS / 2], ratio[ROUNDS / 4], ratio[ROUNDS * 3 / 4]);
    return 0;
}
