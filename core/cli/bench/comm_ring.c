/* The baseline of `bench comm`. */
#include "cli/bench/comm.h"

struct part {
    uint64_t first, n;
};

static struct part part_of(uint64_t n, uint32_t ranks, uint32_t i)
{
    uint64_t a = n / ranks * i + n % ranks * i / ranks;
    uint64_t b = n / ranks * (i + 1) + n % ranks * (i + 1) / ranks;
    return (struct part){ a, b - a };
}

static struct tsr_comm_message message(uint64_t n)
{
    return (struct tsr_comm_message){ .rows = 1, .cols = n, .wire_bytes = 2 * n };
}

/* To the right neighbour, from the left one. */
static tsr_status shift(struct tsr_comm_group *g, const void *out, uint64_t out_bytes, void *in,
                        uint64_t in_bytes, struct tsr_err *err)
{
    const struct tsr_transport_v1 *t = g->port.iface;
    void                          *send = NULL, *recv = NULL;
    uint32_t to = (g->rank + 1) % g->ranks, from = (g->rank + g->ranks - 1) % g->ranks;
    TSR_TRY(t->recv(g->port.self, NULL, from, in, in_bytes, &recv, err));
    TSR_TRY(t->send(g->port.self, NULL, to, out, out_bytes, &send, err));
    if (!send || !recv)
        return tsr_fail(err, TSR_E_DEVICE, "the transport takes no two operations at once");
    TSR_TRY(t->wait(g->port.self, recv, g->traffic.deadline_us, err));
    return t->wait(g->port.self, send, g->traffic.deadline_us, err);
}

tsr_status bench_comm_ring(struct tsr_comm_group *g, const struct tsr_comm_coder *c, float *x,
                           uint64_t n, unsigned char *scratch, struct tsr_err *err)
{
    uint32_t       ranks = g->ranks, rank = g->rank;
    unsigned char *out = scratch, *in = scratch + 2 * n;
    for (uint32_t step = 0; step + 1 < ranks; step++) {
        struct part             s = part_of(n, ranks, (rank + ranks - step) % ranks);
        struct part             r = part_of(n, ranks, (rank + 2 * ranks - step - 1) % ranks);
        struct tsr_comm_message m = message(s.n), k = message(r.n);
        TSR_TRY(tsr_comm_encode(c, &m, rank, x + s.first, out, err));
        TSR_TRY(shift(g, out, m.wire_bytes, in, k.wire_bytes, err));
        struct tsr_codec_job j = { .struct_size = sizeof j,
                                   .rows = 1,
                                   .cols = r.n,
                                   .dst = x + r.first,
                                   .wire = in,
                                   .wire_bytes = k.wire_bytes };
        if (r.n)
            TSR_TRY(c->iface->decode_add(tsr_comm_instance(c, false, 0), &j, err));
    }
    for (uint32_t step = 0; step + 1 < ranks; step++) {
        struct part             s = part_of(n, ranks, (rank + 1 + ranks - step) % ranks);
        struct part             r = part_of(n, ranks, (rank + 2 * ranks - step) % ranks);
        struct tsr_comm_message m = message(s.n), k = message(r.n);
        if (step == 0) { /* the own sum as the others will have it */
            TSR_TRY(tsr_comm_encode(c, &m, rank, x + s.first, out, err));
            TSR_TRY(tsr_comm_decode(c, &m, rank, out, x + s.first, err));
        }
        TSR_TRY(shift(g, out, m.wire_bytes, in, k.wire_bytes, err));
        TSR_TRY(tsr_comm_decode(c, &k, rank, in, x + r.first, err));
        unsigned char *swap = out;
        out = in;
        in = swap;
    }
    return TSR_OK;
}
