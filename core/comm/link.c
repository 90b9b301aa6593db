#include "comm/link.h"

#include "base/mem.h"
#include "comm/flow.h"
#include "comm/streams.h"

#include <stdlib.h>
#include <string.h>

struct tsr_comm_transfer {
    struct tsr_comm_flow flow;
    bool                 used, coded;
    uint32_t             phase, site;
    float               *x; /* coded, to be received */
    uint64_t             rows, cols;
    unsigned char       *wire; /* the sent bytes, if not in the caller's memory */
    uint64_t             room;
};

struct tsr_comm_link {
    struct tsr_comm_port      port;
    struct tsr_plugin_spec    spec[2];
    void                     *codec[2];
    struct tsr_comm_flows     flows;
    struct tsr_comm_late      late;
    uint32_t                  ranks;
    struct tsr_comm_transfer *transfer; /* [TSR_COMM_LINK_MAX]; buffers are kept */
};

/* ---- life -------------------------------------------------------------- */

static tsr_status open_codec(struct tsr_comm_link *l, struct tsr_registry *r, uint32_t phase,
                             const char *text, bool rows_alone, struct tsr_err *err)
{
    text = text && *text ? text : "plain";
    tsr_status st = tsr_plugin_spec_open(&l->spec[phase], r, TSR_KIND_CODEC, text, err);
    if (st == TSR_OK) {
        const struct tsr_codec_v1 *c = l->spec[phase].found.iface;
        st = c->create(l->spec[phase].found.host, l->spec[phase].options, &l->codec[phase], err);
        if (st == TSR_OK && rows_alone && c->extension &&
            c->extension(l->codec[phase], TSR_CODEC_COUPLED) &&
            c->exactness(l->codec[phase]) != TSR_CODEC_EXACT)
            st = tsr_fail(err, TSR_E_INPUT,
                          "what it makes of a row depends on the rows that are sent with it, and "
                          "so would the answers of a batch; take a codec whose rows are "
                          "independent");
        if (st == TSR_OK)
            st = tsr_comm_codec_stateless(c, l->codec[phase], "a link between stages", err);
    }
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, st == TSR_E_CONFIG ? TSR_E_INPUT : st, "codec '%s'", text);
}

tsr_status tsr_comm_link_create(struct tsr_comm_link **out, struct tsr_registry *r,
                                const struct tsr_comm_link_options *o, struct tsr_err *err)
{
    struct tsr_comm_link *l = tsr_new(1, sizeof *l);
    tsr_status            st = TSR_OK;
    *out = NULL;
    if (!l)
        return tsr_fail_nomem(err, sizeof *l, "a link");
    l->flows =
        (struct tsr_comm_flows){ .port = &l->port, .rank = o->place.rank, .pieces = o->pieces };
    l->ranks = o->place.ranks;
    l->transfer = tsr_new(TSR_COMM_LINK_MAX, sizeof *l->transfer);
    if (!l->transfer)
        st = tsr_fail_nomem(err, TSR_COMM_LINK_MAX * sizeof *l->transfer, "a link");
    for (uint32_t p = 0; st == TSR_OK && p < 2; p++)
        st = open_codec(l, r, p, o->codec[p], o->rows_alone, err);
    if (st == TSR_OK)
        st = tsr_comm_port_open(&l->port, r, &o->place, err);
    if (st != TSR_OK)
        tsr_comm_link_destroy(l);
    else
        *out = l;
    return st;
}

void tsr_comm_link_destroy(struct tsr_comm_link *l)
{
    if (!l)
        return;
    tsr_comm_port_close(&l->port); /* before the buffers that it may still write */
    for (uint32_t p = 0; p < 2; p++) {
        if (l->codec[p])
            ((const struct tsr_codec_v1 *)l->spec[p].found.iface)->destroy(l->codec[p]);
        tsr_plugin_spec_close(&l->spec[p]);
    }
    for (uint32_t i = 0; l->transfer && i < TSR_COMM_LINK_MAX; i++)
        free(l->transfer[i].wire);
    free(l->transfer);
    free(l);
}

void tsr_comm_link_abort(struct tsr_comm_link *l)
{
    l->port.iface->abort(l->port.self);
}

uint64_t tsr_comm_link_sent(const struct tsr_comm_link *l)
{
    return l->flows.sent;
}

/* ---- starting ---------------------------------------------------------- */

static tsr_status take(struct tsr_comm_link *l, uint32_t peer, struct tsr_comm_transfer **t,
                       struct tsr_err *err)
{
    *t = NULL;
    if (peer >= l->ranks)
        return tsr_fail(err, TSR_E_INVAL, "a transfer between rank %u and rank %u of %u ranks",
                        l->flows.rank, peer, l->ranks);
    for (uint32_t i = 0; i < TSR_COMM_LINK_MAX; i++) {
        struct tsr_comm_transfer *f = &l->transfer[i];
        if (f->used)
            continue;
        unsigned char *wire = f->wire;
        uint64_t       room = f->room;
        *f = (struct tsr_comm_transfer){ .used = true, .wire = wire, .room = room };
        f->flow.peer = peer;
        *t = f;
        return TSR_OK;
    }
    return tsr_fail(err, TSR_E_INVAL, "rank %u has %u transfers under way; wait for some first",
                    l->flows.rank, TSR_COMM_LINK_MAX);
}

static tsr_status give_room(struct tsr_comm_transfer *t, struct tsr_err *err)
{
    uint64_t bytes = t->flow.bytes;
    if (bytes <= t->room)
        return TSR_OK;
    free(t->wire);
    t->room = 0;
    t->wire = tsr_new_aligned(bytes, 1);
    if (!t->wire)
        return tsr_fail_nomem(err, bytes, "a message between stages");
    t->room = bytes;
    return TSR_OK;
}

static struct tsr_codec_job job_of(const struct tsr_comm_link *l, const struct tsr_comm_transfer *t)
{
    return (struct tsr_codec_job){ .struct_size = sizeof(struct tsr_codec_job),
                                   .source = t->flow.out ? l->flows.rank : t->flow.peer,
                                   .site = t->site,
                                   .rows = t->rows,
                                   .cols = t->cols,
                                   .wire = t->wire,
                                   .wire_bytes = t->flow.bytes };
}

static tsr_status rows_start(struct tsr_comm_link *l, struct tsr_comm_transfer *t, const float *x,
                             struct tsr_err *err)
{
    const struct tsr_codec_v1 *c = l->spec[t->phase].found.iface;
    if (t->rows == 0 || t->cols == 0)
        return TSR_OK;
    TSR_TRY(c->wire_bytes(l->codec[t->phase], t->rows, t->cols, &t->flow.bytes, err));
    TSR_TRY(give_room(t, err));
    if (t->flow.out) {
        struct tsr_codec_job j = job_of(l, t);
        j.src = x;
        TSR_TRY(c->encode(l->codec[t->phase], &j, err));
    }
    t->flow.buf = t->wire;
    return tsr_comm_flow_start(&l->flows, &t->flow, err);
}

static tsr_status rows_of(struct tsr_comm_link *l, bool out, uint32_t phase, uint32_t site,
                          uint32_t peer, const float *src, float *dst, uint64_t rows, uint64_t cols,
                          struct tsr_comm_transfer **t, struct tsr_err *err)
{
    *t = NULL;
    if (phase > 1)
        return tsr_fail(err, TSR_E_INVAL, "phase %u of a transfer; 0 is prefill, 1 decode", phase);
    TSR_TRY(take(l, peer, t, err));
    struct tsr_comm_transfer *f = *t;
    f->flow.out = out;
    f->coded = true;
    f->phase = phase;
    f->site = site;
    f->x = dst;
    f->rows = rows;
    f->cols = cols;
    tsr_status st = rows_start(l, f, src, err);
    if (st != TSR_OK) {
        f->used = false;
        *t = NULL;
    }
    return st;
}

tsr_status tsr_comm_link_send(struct tsr_comm_link *l, uint32_t phase, uint32_t site, uint32_t to,
                              const float *x, uint64_t rows, uint64_t cols,
                              struct tsr_comm_transfer **t, struct tsr_err *err)
{
    return rows_of(l, true, phase, site, to, x, NULL, rows, cols, t, err);
}

tsr_status tsr_comm_link_recv(struct tsr_comm_link *l, uint32_t phase, uint32_t site, uint32_t from,
                              float *x, uint64_t rows, uint64_t cols, struct tsr_comm_transfer **t,
                              struct tsr_err *err)
{
    return rows_of(l, false, phase, site, from, NULL, x, rows, cols, t, err);
}

static tsr_status bytes_of(struct tsr_comm_link *l, bool out, uint32_t peer, const void *src,
                           void *dst, uint64_t bytes, struct tsr_comm_transfer **t,
                           struct tsr_err *err)
{
    TSR_TRY(take(l, peer, t, err));
    struct tsr_comm_transfer *f = *t;
    f->flow.out = out;
    f->flow.bytes = bytes;
    tsr_status st = out ? give_room(f, err) : TSR_OK;
    if (st == TSR_OK && out && bytes)
        memcpy(f->wire, src, bytes);
    f->flow.buf = out ? f->wire : dst;
    if (st == TSR_OK)
        st = tsr_comm_flow_start(&l->flows, &f->flow, err);
    if (st != TSR_OK) {
        f->used = false;
        *t = NULL;
    }
    return st;
}

tsr_status tsr_comm_link_send_bytes(struct tsr_comm_link *l, uint32_t to, const void *data,
                                    uint64_t bytes, struct tsr_comm_transfer **t,
                                    struct tsr_err *err)
{
    return bytes_of(l, true, to, data, NULL, bytes, t, err);
}

tsr_status tsr_comm_link_recv_bytes(struct tsr_comm_link *l, uint32_t from, void *data,
                                    uint64_t bytes, struct tsr_comm_transfer **t,
                                    struct tsr_err *err)
{
    return bytes_of(l, false, from, NULL, data, bytes, t, err);
}

/* ---- finishing --------------------------------------------------------- */

/* st: of its flow.  Takes it back where that has failed. */
static tsr_status settle(struct tsr_comm_link *l, struct tsr_comm_transfer *t, tsr_status st)
{
    if (st == TSR_OK)
        return st;
    l->late = (struct tsr_comm_late){ .us = l->flows.late_us,
                                      .moved = t->flow.moved,
                                      .bytes = t->flow.bytes };
    t->used = false;
    return st;
}

static tsr_status finish(struct tsr_comm_link *l, struct tsr_comm_transfer *t, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    if (!t->flow.out && t->coded && t->flow.bytes) {
        const struct tsr_codec_v1 *c = l->spec[t->phase].found.iface;
        struct tsr_codec_job       j = job_of(l, t);
        j.dst = t->x;
        st = c->decode(l->codec[t->phase], &j, err);
    }
    l->late = (struct tsr_comm_late){ 0 };
    t->used = false;
    return st;
}

tsr_status tsr_comm_link_wait_for(struct tsr_comm_link *l, struct tsr_comm_transfer *t,
                                  uint64_t deadline_us, struct tsr_err *err)
{
    TSR_TRY(settle(l, t, tsr_comm_flow_wait(&l->flows, &t->flow, deadline_us, err)));
    return finish(l, t, err);
}

struct tsr_comm_late tsr_comm_link_late(const struct tsr_comm_link *l)
{
    return l->late;
}
