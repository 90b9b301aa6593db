/* Transports: groups of ranks, operations of a group, and the table of all rules. */
#include "conformance/transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define U(x) ((unsigned long long)(x))

static const struct tsr_transport_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

void tsr_conformance_group_make(struct tsr_conformance_group *g, struct tsr_conformance_case *c,
                                uint32_t ranks)
{
    *g = (struct tsr_conformance_group){ .c = c, .t = table(c), .ranks = ranks };
    g->bytes = g->t->world_bytes(c->options, ranks);
    if (g->bytes == 0)
        return;
    /* rings of 64 KiB for 8 ranks are 4 MiB; a TiB is a mistake */
    if (g->bytes > UINT64_C(1) << 40)
        tsr_conformance_rule_fail(c, "world_bytes() of %u ranks is %llu", ranks, U(g->bytes));
    g->shared = mmap(NULL, g->bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g->shared == MAP_FAILED)
        tsr_conformance_rule_fail(
            c, "world_bytes() of %u ranks is %llu, which the machine does not have", ranks,
            U(g->bytes));
}

static tsr_status join(const struct tsr_conformance_group *g, uint32_t rank, void **self,
                       struct tsr_err *err)
{
    struct tsr_transport_world w = { .struct_size = sizeof w,
                                     .rank = rank,
                                     .ranks = g->ranks,
                                     .shared = g->shared,
                                     .shared_bytes = g->bytes };
    return g->t->create(g->c->host->give, g->c->options, &w, self, err);
}

void tsr_conformance_group_free(struct tsr_conformance_group *g)
{
    if (g->shared)
        (void)munmap(g->shared, g->bytes);
    g->shared = NULL;
}

/* A rank that fails the rule ends the process that it runs in, so there must be one. */
void tsr_conformance_group_forked(struct tsr_conformance_case *c)
{
    if (c->o && c->o->in_process)
        tsr_conformance_rule_skip(
            c, "ranks on threads and separate processes need a process per rule");
}

void *tsr_conformance_group_join(const struct tsr_conformance_group *g, uint32_t rank)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = NULL;
    tsr_status        st = join(g, rank, &self, &e.err);
    /* ranks without shared memory need a launcher, which is missing here */
    if (st == TSR_E_CONFIG && g->bytes == 0)
        tsr_conformance_rule_skip(g->c, "create() answers TSR_E_CONFIG: %s", e.text);
    tsr_conformance_rule_ok(g->c, st, &e, "create() of rank %u of %u", rank, g->ranks);
    return self;
}

struct seat {
    const struct tsr_conformance_group *g;
    uint32_t                            rank;
    void (*work)(const struct tsr_conformance_group *g, uint32_t rank, void *self);
};

static void *sit(void *arg)
{
    const struct seat *s = arg;
    void              *self = tsr_conformance_group_join(s->g, s->rank);
    s->work(s->g, s->rank, self);
    s->g->t->destroy(self);
    return NULL;
}

void tsr_conformance_group_run(const struct tsr_conformance_group *g,
                               void (*work)(const struct tsr_conformance_group *g, uint32_t rank,
                                            void *self))
{
    struct seat seats[TSR_GROUP_MAX];
    pthread_t   id[TSR_GROUP_MAX];
    tsr_conformance_group_forked(g->c);
    for (uint32_t r = 0; r < g->ranks; r++) {
        seats[r] = (struct seat){ g, r, work };
        if (pthread_create(&id[r], NULL, sit, &seats[r]) != 0)
            tsr_conformance_rule_skip(g->c, "no thread could be started");
    }
    for (uint32_t r = 0; r < g->ranks; r++)
        (void)pthread_join(id[r], NULL);
}

/* ---- operations ------------------------------------------------------------- */

/* What follows the answer of a start: NULL with TSR_OK means "ask again". */
static void *started(const struct tsr_conformance_group *g, tsr_status st,
                     const struct tsr_errbuf *e, void *request, uint32_t rank, const char *what,
                     uint64_t bytes)
{
    tsr_conformance_rule_ok(g->c, st, e, "%s of %llu bytes on rank %u of %u", what, U(bytes), rank,
                            g->ranks);
    if (!request)
        (void)usleep(200);
    return request;
}

void *tsr_conformance_group_send(const struct tsr_conformance_group *g, void *self, uint32_t rank,
                                 uint32_t to, const void *buf, uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    while (!q) {
        tsr_status st = g->t->send(self, NULL, to, buf, bytes, &q, &e.err);
        q = started(g, st, &e, q, rank, "send()", bytes);
    }
    return q;
}

void *tsr_conformance_group_recv(const struct tsr_conformance_group *g, void *self, uint32_t rank,
                                 uint32_t from, void *buf, uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    while (!q) {
        tsr_status st = g->t->recv(self, NULL, from, buf, bytes, &q, &e.err);
        q = started(g, st, &e, q, rank, "recv()", bytes);
    }
    return q;
}

void *tsr_conformance_group_collect(const struct tsr_conformance_group *g, void *self,
                                    uint32_t rank, bool to_all, const void *send, void *recv,
                                    uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    while (!q) {
        tsr_status st = to_all ? g->t->all_to_all(self, NULL, send, recv, bytes, &q, &e.err)
                               : g->t->all_gather(self, NULL, send, recv, bytes, &q, &e.err);
        q = started(g, st, &e, q, rank, to_all ? "all_to_all()" : "all_gather()", bytes);
    }
    return q;
}

void tsr_conformance_group_wait(const struct tsr_conformance_group *g, void *self, uint32_t rank,
                                void *request)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(g->c, g->t->wait(self, request, TSR_GROUP_LONG_US, &e.err), &e,
                            "wait() on rank %u of %u", rank, g->ranks);
}

unsigned char tsr_conformance_group_byte(uint32_t from, uint32_t to, uint64_t n, uint64_t i)
{
    return (unsigned char)(from * 37u + to * 11u + n * 101u + i * 7u + i / 251u);
}

void tsr_conformance_group_fill(void *buf, uint32_t from, uint32_t to, uint64_t n, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        ((unsigned char *)buf)[i] = tsr_conformance_group_byte(from, to, n, i);
}

void tsr_conformance_group_check(const struct tsr_conformance_group *g, uint32_t rank,
                                 const void *buf, uint32_t from, uint32_t to, uint64_t n,
                                 uint64_t bytes, const char *what)
{
    const unsigned char *p = buf;
    for (uint64_t i = 0; i < bytes; i++)
        if (p[i] != tsr_conformance_group_byte(from, to, n, i))
            tsr_conformance_rule_fail(
                g->c,
                "%s of %llu bytes with %u ranks: on rank %u byte %llu from rank %u "
                "is 0x%02x, wanted 0x%02x",
                what, U(bytes), g->ranks, rank, U(i), from, p[i],
                tsr_conformance_group_byte(from, to, n, i));
}

/* ---- the kind -------------------------------------------------------------------- */

/* Instances of make() with their worlds, which go with them. */
static struct {
    void                        *self;
    struct tsr_conformance_group g;
} lone[16];

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    uint64_t i = 0;
    while (i < sizeof lone / sizeof lone[0] && lone[i].self)
        i++;
    if (i == sizeof lone / sizeof lone[0])
        tsr_conformance_rule_skip(c, "more than %llu instances at once", U(i));
    tsr_conformance_group_make(&lone[i].g, c, 2);
    tsr_status st = join(&lone[i].g, 0, self, err);
    if (st == TSR_OK)
        lone[i].self = *self;
    else
        tsr_conformance_group_free(&lone[i].g);
    return st;
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
    for (uint64_t i = 0; self && i < sizeof lone / sizeof lone[0]; i++)
        if (lone[i].self == self) {
            lone[i].self = NULL;
            tsr_conformance_group_free(&lone[i].g);
        }
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

/* The clock of the test host is processor time, and a rank that waits well uses none. */
static void *burn(void *arg)
{
    atomic_bool *over = arg;
    while (!atomic_load(over)) {
    }
    return NULL;
}

/* Waits for a second and a half for a message that never comes. */
static tsr_status wait_in_vain(struct tsr_conformance_case        *c,
                               const struct tsr_conformance_group *g, void *self, void *request,
                               struct tsr_err *err)
{
    atomic_bool over;
    pthread_t   id;
    atomic_init(&over, false);
    if (pthread_create(&id, NULL, burn, &over) != 0)
        tsr_conformance_rule_skip(c, "no thread could be started");
    tsr_conformance_test_host_start(c->host);
    tsr_status st = g->t->wait(self, request, UINT64_C(1500000), err);
    atomic_store(&over, true);
    (void)pthread_join(id, NULL);
    return st;
}

/* Two ranks on one thread: the first waits for a message that the second has already sent, or (long) for
 * one that never comes. */
static tsr_status traffic(struct tsr_conformance_case *c, const struct tsr_conformance_group *g,
                          void *const *self, bool long_run, struct tsr_err *err)
{
    const struct tsr_transport_v1 *t = g->t;
    unsigned char *out = tsr_conformance_rule_room(100), *in = tsr_conformance_rule_room(100);
    void          *s = NULL, *r = NULL;
    tsr_status     st = TSR_OK;
    if (!long_run)
        st = t->send(self[1], NULL, 0, out, 100, &s, err);
    if (st == TSR_OK)
        st = t->recv(self[0], NULL, 1, in, 100, &r, err);
    if (st == TSR_OK && r)
        st = long_run ? wait_in_vain(c, g, self[0], r, err)
                      : t->wait(self[0], r, TSR_GROUP_LONG_US, err);
    if (st == TSR_OK && s)
        st = t->wait(self[1], s, TSR_GROUP_LONG_US, err);
    tsr_conformance_guarded_free(out);
    tsr_conformance_guarded_free(in);
    return st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    struct tsr_conformance_group g;
    void                        *self[2] = { NULL, NULL };
    tsr_conformance_group_make(&g, c, 2);
    tsr_status st = join(&g, 0, &self[0], err);
    if (st == TSR_OK) {
        st = join(&g, 1, &self[1], err);
        if (st == TSR_OK) {
            st = traffic(c, &g, self, long_run, err);
            g.t->destroy(self[1]);
        }
        g.t->destroy(self[0]);
    }
    tsr_conformance_group_free(&g);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "transport-create",
      .text = "create() joins without waiting for the other ranks, in any order.",
      .run = tsr_transport_rule_create },
    { .name = "transport-sums",
      .text = "all_gather() gives every rank the same bytes in rank order, so that sums are the "
              "same over 1 to 8 ranks.",
      .limit_s = 60,
      .run = tsr_transport_rule_sums },
    { .name = "transport-all-to-all",
      .text = "all_to_all() takes block i of every rank to rank i, for 2 to 8 ranks.",
      .limit_s = 60,
      .run = tsr_transport_rule_all_to_all },
    { .name = "transport-messages",
      .text = "send() and recv() carry bytes between every pair of ranks, whole and unchanged.",
      .limit_s = 60,
      .run = tsr_transport_rule_messages },
    { .name = "transport-sizes",
      .text = "Messages of 0, 1 and a prime number of bytes arrive as they are, nothing is written "
              "outside them, and what is sent stays as it was.",
      .limit_s = 60,
      .run = tsr_transport_rule_sizes },
    { .name = "transport-order",
      .text = "Operations between the same pair of ranks complete in the order in which they were "
              "started.",
      .run = tsr_transport_rule_order },
    { .name = "transport-two-groups",
      .text = "Two groups of the same ranks do not mix.",
      .run = tsr_transport_rule_two_groups },
    { .name = "transport-processes",
      .text = "Ranks may be processes that share nothing but the world's memory.",
      .limit_s = 60,
      .run = tsr_transport_rule_processes },
    { .name = "transport-start-returns",
      .text = "Starting an operation does not wait for the peer: it gives a request, or NULL for "
              "\"ask again\".",
      .run = tsr_transport_rule_starts },
    { .name = "transport-test",
      .text = "test() returns at once and sets done when the operation has ended, not before.",
      .run = tsr_transport_rule_test },
    { .name = "transport-deadline",
      .text = "wait() gives TSR_E_DEVICE naming the rank that is late once its deadline has "
              "passed, never earlier, and does not hang.",
      .run = tsr_transport_rule_deadline },
    { .name = "transport-peer-leaves",
      .text = "An operation with a rank that has left the group is TSR_E_DEVICE, never done.",
      .run = tsr_transport_rule_peer_leaves },
    { .name = "transport-peer-dies",
      .text = "An operation with a rank whose process was killed is TSR_E_DEVICE by its deadline, "
              "unless all bytes had been taken.",
      .run = tsr_transport_rule_peer_dies },
    { .name = "transport-abort",
      .text = "abort() makes every operation of every rank fail soon with TSR_E_CANCELLED.",
      .run = tsr_transport_rule_abort },
    { .name = "transport-threads",
      .text =
          "A transport that does not state TSR_TRANSPORT_THREADS starts no thread; those of one "
          "that does end after destroy().",
      .run = tsr_transport_rule_threads },
    { .name = "transport-statics",
      .text = "Static memory changes only in a transport that states TSR_TRANSPORT_STATICS, and is "
              "as it was when its last instance has gone.",
      .run = tsr_transport_rule_statics },
};

const struct tsr_conformance_kind_rules tsr_transport_rules = {
    .kind = TSR_KIND_TRANSPORT,
    .noun = "transport",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
