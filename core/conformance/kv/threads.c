/* One KV-cache codec, several threads. */
#include "conformance/kv/kv.h"

#include <pthread.h>
#include <string.h>

#define THREADS 4u
#define TURNS   8u

/* What a thread does, and what that gives alone. */
struct share {
    struct tsr_kv_trial k; /* x, units and back of the thread */
    pthread_barrier_t  *start;
    unsigned char      *units;          /* that encode() gives alone */
    float              *back;           /* that decode() gives alone */
    float              *in, *out, *sum; /* of score() or mix(); sum alone */
    uint64_t            n_in, n_out;
    uint64_t            wrong; /* turns that gave something else */
};

/* Of the units in k, which a faulty one changes. */
static tsr_status other_way(const struct share *s, float *out)
{
    const struct tsr_kv_trial *k = &s->k;
    memset(out, 0, s->n_out * sizeof *out);
    if (k->side == TSR_KV_KEYS)
        return k->t->score ? k->t->score(k->self, k->dim, s->in, TSR_KV_UNITS, k->units, out, NULL)
                           : TSR_OK;
    return k->t->mix ? k->t->mix(k->self, k->dim, s->in, TSR_KV_UNITS, k->units, out, NULL)
                     : TSR_OK;
}

static bool same(const void *a, const void *b, uint64_t bytes)
{
    return tsr_conformance_rule_differ(a, b, bytes) == bytes;
}

static void *take_turns(void *arg)
{
    struct share              *s = arg;
    const struct tsr_kv_trial *k = &s->k;
    const uint64_t             n = TSR_KV_UNITS * k->each * sizeof(float);
    for (uint64_t i = 0; i < TURNS; i++) {
        (void)pthread_barrier_wait(s->start);
        bool right =
            k->t->encode(k->self, k->side, k->dim, TSR_KV_UNITS, k->x, k->units, NULL) == TSR_OK &&
            same(k->units, s->units, k->bytes);
        right &= k->t->decode(k->self, k->side, k->dim, TSR_KV_UNITS, s->units, k->back, NULL) ==
                     TSR_OK &&
                 same(k->back, s->back, n);
        right &= other_way(s, s->out) == TSR_OK && same(s->out, s->sum, s->n_out * sizeof(float));
        s->wrong += !right;
    }
    return NULL;
}

/* The buffers of a thread, and in them what its calls give alone. */
static void make(struct tsr_conformance_case *c, struct share *s, const struct tsr_kv_trial *k,
                 uint64_t i, pthread_barrier_t *start)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const uint64_t    elements = TSR_KV_UNITS * k->each,
                   rows = (uint64_t)TSR_KV_UNITS * k->l.positions;
    bool keys = k->side == TSR_KV_KEYS;
    *s = (struct share){
        .k = *k, .start = start, .n_in = keys ? k->dim : rows, .n_out = keys ? rows : k->dim
    };
    s->k.x = tsr_conformance_rule_room(elements * sizeof(float));
    s->k.back = tsr_conformance_rule_room(elements * sizeof(float));
    s->back = tsr_conformance_rule_room(elements * sizeof(float));
    s->k.units = tsr_conformance_rule_room(k->bytes);
    s->units = tsr_conformance_rule_room(k->bytes);
    s->in = tsr_conformance_rule_room(s->n_in * sizeof(float));
    s->out = tsr_conformance_rule_room(s->n_out * sizeof(float));
    s->sum = tsr_conformance_rule_room(s->n_out * sizeof(float));
    tsr_conformance_rule_normal(c, 50 + 2 * i, s->k.x, elements);
    tsr_conformance_rule_normal(c, 51 + 2 * i, s->in, s->n_in);
    tsr_kv_encode(c, &s->k, TSR_KV_UNITS, s->k.x, s->units);
    tsr_kv_decode(c, &s->k, TSR_KV_UNITS, s->units, s->back);
    memcpy(s->k.units, s->units, k->bytes);
    tsr_conformance_rule_ok(c, other_way(s, s->sum), &e, "%s() of %s", keys ? "score" : "mix",
                            tsr_kv_text(k));
}

static void unmake(struct share *s)
{
    void *all[] = { s->k.x, s->k.back, s->k.units, s->back, s->units, s->in, s->out, s->sum };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_conformance_guarded_free(all[i]);
}

static void threads(struct tsr_conformance_case *c, struct tsr_kv_trial *k)
{
    struct share      share[THREADS];
    pthread_t         id[THREADS];
    pthread_barrier_t start;
    if (pthread_barrier_init(&start, NULL, THREADS) != 0)
        tsr_conformance_rule_skip(c, "no barrier could be made");
    for (uint64_t i = 0; i < THREADS; i++)
        make(c, &share[i], k, i, &start);
    for (uint64_t i = 0; i < THREADS; i++)
        if (pthread_create(&id[i], NULL, take_turns, &share[i]) != 0)
            tsr_conformance_rule_skip(c, "no thread could be started");
    for (uint64_t i = 0; i < THREADS; i++)
        (void)pthread_join(id[i], NULL);
    (void)pthread_barrier_destroy(&start);
    for (uint64_t i = 0; i < THREADS; i++) {
        if (share[i].wrong)
            tsr_conformance_rule_fail(c,
                                      "%llu of %u turns with %s differ from those of a thread "
                                      "alone when %u threads use the instance",
                                      (unsigned long long)share[i].wrong, TURNS, tsr_kv_text(k),
                                      THREADS);
        unmake(&share[i]);
    }
}

void tsr_kv_rule_threads(struct tsr_conformance_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), threads);
}
