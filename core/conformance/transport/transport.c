/* Transports: groups of ranks, and operations of a group. */
#include "conformance/transport/transport.h"

#include <pthread.h>
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

tsr_status tsr_conformance_group_enter(const struct tsr_conformance_group *g, uint32_t rank,
                                       void **self, struct tsr_err *err)
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
    tsr_status        st = tsr_conformance_group_enter(g, rank, &self, &e.err);
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

/* Byte i of message n from rank `from` to rank `to`. */
static unsigned char byte_of(uint32_t from, uint32_t to, uint64_t n, uint64_t i)
{
    return (unsigned char)(from * 37u + to * 11u + n * 101u + i * 7u + i / 251u);
}

void tsr_conformance_group_fill(void *buf, uint32_t from, uint32_t to, uint64_t n, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        ((unsigned char *)buf)[i] = byte_of(from, to, n, i);
}

void tsr_conformance_group_check(const struct tsr_conformance_group *g, uint32_t rank,
                                 const void *buf, uint32_t from, uint32_t to, uint64_t n,
                                 uint64_t bytes, const char *what)
{
    const unsigned char *p = buf;
    for (uint64_t i = 0; i < bytes; i++)
        if (p[i] != byte_of(from, to, n, i))
            tsr_conformance_rule_fail(
                g->c,
                "%s of %llu bytes with %u ranks: on rank %u byte %llu from rank %u "
                "is 0x%02x, wanted 0x%02x",
                what, U(bytes), g->ranks, rank, U(i), from, p[i], byte_of(from, to, n, i));
}
