/* Groups, and what becomes of a message (ranks.h). */
#include "ranks.h"
#include "../fixtures/error_is.h"

struct tsr_registry           *registry;
static struct tsr_plugin_found found;

void make(struct group *g, const char *spec, uint32_t ranks)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *g = (struct group){ .spec = spec, .ranks = ranks };
    if (tsr_comm_world_create(&g->world, registry, spec, ranks, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

tsr_status join(struct group *g, uint32_t rank, uint64_t epoch, struct tsr_errbuf *e)
{
    struct tsr_comm_place p = { g->spec,        rank,  g->ranks, g->world.shared,
                                g->world.bytes, epoch, NULL };
    return tsr_comm_port_open(&g->port[rank], registry, &p, &e->err);
}

void join_all(struct group *g)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (uint32_t r = g->ranks; r-- > 0;)
        if (join(g, r, 7, &e) != TSR_OK)
            fail_msg("%s", e.text);
}

void end(struct group *g)
{
    for (uint32_t r = 0; r < g->ranks; r++)
        tsr_comm_port_close(&g->port[r]);
    tsr_comm_world_close(&g->world);
}

const struct tsr_transport_v1 *table(void)
{
    return found.iface;
}

void *self_of(struct group *g, uint32_t rank)
{
    return g->port[rank].self;
}

void all_given_back(void)
{
    struct standin_live   l = standin_live();
    struct standin_counts c = standin_counts();
    uint64_t              now, peak;
    tsr_plugin_registry_memory(registry, &now, &peak);
    assert_int_equal(now, 0);
    standin_move(); /* streams that were destroyed with work on them */
    assert_int_equal(l.contexts + l.blocks + l.events, 0);
    assert_int_equal(standin_live().streams, 0);
    assert_int_equal(c.communicators, 0);
    assert_int_equal(c.misused, 0);
}

unsigned char pattern(uint32_t from, uint32_t to, uint64_t n, uint64_t i)
{
    return (unsigned char)(from * 37u + to * 11u + n * 101u + i * 7u + i / 251u);
}

/* ---- messages ---------------------------------------------------------------------- */

void *start(struct group *g, uint32_t rank, enum kind kind, uint32_t peer, void *buf,
            uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL, *self = self_of(g, rank);
    tsr_status        st = kind == SEND   ? table()->send(self, NULL, peer, buf, bytes, &q, &e.err)
                           : kind == RECV ? table()->recv(self, NULL, peer, buf, bytes, &q, &e.err)
                                          : table()->all_gather(self, NULL, (char *)buf + 8192, buf, bytes,
                                                                &q, &e.err);
    if (st != TSR_OK || !q)
        fail_msg("rank %u: %s", rank, e.text);
    return q;
}

void ends(struct group *g, uint32_t rank, void *q, uint64_t us, tsr_status want, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = table()->wait(self_of(g, rank), q, us, &e.err);
    if (st != want || (st != TSR_OK && !error_is(&e.err, "", facts)))
        fail_msg("rank %u: status %d, wanted %d: '%s'", rank, st, want, e.text);
}

void refused(struct group *g, uint32_t rank, uint32_t peer, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    char              b[1] = "";
    tsr_status        st = table()->send(self_of(g, rank), NULL, peer, b, 1, &q, &e.err);
    if (st != TSR_E_DEVICE || q || !error_is(&e.err, "", facts))
        fail_msg("rank %u: status %d: '%s'", rank, st, e.text);
}

char room[3][16384];

void works(struct group *g, uint32_t from, uint32_t to)
{
    void *s = start(g, from, SEND, to, "xyz", 3), *r = start(g, to, RECV, from, room[to], 3);
    ends(g, to, r, LONG_US, TSR_OK, NULL);
    ends(g, from, s, LONG_US, TSR_OK, NULL);
    assert_memory_equal(room[to], "xyz", 3);
}

int open_all(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_TRANSPORT, "nccl", &found);
    return 0;
}

int close_all(void **state)
{
    (void)state;
    tsr_plugin_registry_destroy(registry);
    return 0;
}
