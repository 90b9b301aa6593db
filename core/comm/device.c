/* A sum on a device. */
#include "comm/device.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

/* ---- the device ---------------------------------------------------------- */

static const char *name_of(const struct tsr_plugin_spec *s)
{
    return s->found.component->name;
}

/* Tables of both sides, and whether they are on one device. If neither has any, all memory is the host's
 * and nothing is logged. */
static tsr_status meet(const struct tsr_comm_group *g, struct tsr_comm_device *d, bool *said,
                       struct tsr_err *err)
{
    const struct tsr_transport_v1        *t = g->port.iface;
    const struct tsr_transport_device_v1 *carrier =
        t->extension ? t->extension(g->port.self, TSR_TRANSPORT_DEVICE) : NULL;
    if (d->backend->extension)
        d->codec = d->backend->extension(d->self, TSR_BACKEND_CODEC);
    *said = carrier || d->codec;
    if (!carrier || !TSR_HAS(struct tsr_transport_device_v1, carrier, place) || !carrier->place)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "transport %s carries memory of the host alone",
                        name_of(&g->port.spec));
    if (!d->codec)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "the backend codes no messages itself");
    if (carrier->place(g->port.self) != d->codec->place(d->self))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "transport %s is on another device than the backend: give both the same, "
                        "with device=",
                        name_of(&g->port.spec));
    return TSR_OK;
}

/* The reason that keeps sums off the device is logged once, and is not an error. */
static tsr_status go_without(tsr_status st, bool said, bool *off, const char *text,
                             struct tsr_err *err)
{
    if (st != TSR_E_UNSUPPORTED)
        return st == TSR_OK ? st : tsr_fail(err, st, "%s", text);
    if (said && !*off)
        tsr_logf(TSR_LOG_INFO, "sums over ranks go through the host: %s", text);
    *off = true;
    return TSR_OK;
}

static tsr_status bind(struct tsr_comm_group *g, const struct tsr_backend_v1 *backend, void *self,
                       struct tsr_err *err)
{
    struct tsr_errbuf       why = TSR_ERRBUF(why);
    struct tsr_comm_device *d = tsr_new(1, sizeof *d);
    bool                    said;
    if (!d)
        return tsr_fail_nomem(err, sizeof *d, "a device's sums");
    g->device = d;
    d->backend = backend;
    d->self = self;
    tsr_status st = meet(g, d, &said, &why.err);
    if (st == TSR_OK)
        return d->codec->stream_open(self, &d->stream, err);
    return go_without(st, said, &d->unusable, why.text, err);
}

void tsr_comm_device_close(struct tsr_comm_device *d)
{
    if (!d)
        return;
    if (d->stream)
        d->codec->stream_close(d->self, d->stream);
    tsr_comm_wires_free(d);
    d->backend->buffer_free(d->self, d->room);
    d->backend->buffer_free(d->self, d->floats);
    free(d);
}

/* ---- memory -------------------------------------------------------------- */

/* Nothing of an earlier sum is under way but additions on the stream. */
static tsr_status renew(struct tsr_comm_device *d, void **buffer, uint64_t *has, uint64_t want,
                        uint64_t size, struct tsr_err *err)
{
    uint64_t bytes;
    if (want <= *has)
        return TSR_OK;
    if (!tsr_mul(want, size, &bytes))
        return tsr_fail(err, TSR_E_INVAL, "a sum of %llu numbers is too large",
                        (unsigned long long)want);
    TSR_TRY(d->backend->sync(d->self, d->stream, err));
    d->backend->buffer_free(d->self, *buffer);
    *buffer = NULL;
    *has = 0;
    TSR_TRY(d->backend->buffer_alloc(d->self, bytes, buffer, err));
    *has = want;
    return TSR_OK;
}

static tsr_status make_room(struct tsr_comm_group *g, struct tsr_err *err)
{
    struct tsr_comm_device *d = g->device;
    struct tsr_comm_room    room;
    TSR_TRY(tsr_comm_sum_room(g, &room, err));
    TSR_TRY(renew(d, &d->room, &d->room_bytes, room.all, 1, err));
    TSR_TRY(renew(d, &d->floats, &d->n_floats, room.floats, sizeof(float), err));
    for (uint32_t i = 0; i < TSR_COMM_SLOTS; i++) {
        uint64_t at = i * room.one;
        for (size_t h = 0; h < 2; h++) {
            d->send[i][h] = at;
            at += room.part[2 * h];
            d->recv[i][h] = at;
            at += room.part[2 * h + 1];
        }
    }
    return TSR_OK;
}

/* Columns [first, first + cols) of a piece of x. */
static struct tsr_tensor part_of(const struct tsr_comm_sum *s, uint64_t piece, uint64_t first,
                                 uint64_t cols)
{
    struct tsr_tensor t = *s->tensor;
    t.offset += piece * s->each * t.row_stride + first * sizeof(float);
    t.rows = tsr_comm_sum_piece(s, piece)->rows;
    t.cols = cols;
    return t;
}

/* The k-th of the dense matrices in d->floats. */
static struct tsr_tensor floats_of(const struct tsr_comm_device  *d,
                                   const struct tsr_comm_message *m, uint64_t k)
{
    return (struct tsr_tensor){ .struct_size = sizeof(struct tsr_tensor),
                                .dtype = TSR_F32,
                                .buffer = d->floats,
                                .offset = k * m->rows * m->cols * sizeof(float),
                                .rows = m->rows,
                                .cols = m->cols,
                                .row_stride = m->cols * sizeof(float) };
}

/* ---- coding -------------------------------------------------------------- */

static bool is_empty(const struct tsr_comm_message *m)
{
    return m->rows == 0 || m->cols == 0;
}

static tsr_status encode(const struct tsr_comm_sum *s, const struct tsr_comm_message *m,
                         const struct tsr_tensor *x, uint64_t at, struct tsr_err *err)
{
    struct tsr_comm_device *d = s->g->device;
    void                   *wire;
    if (is_empty(m))
        return TSR_OK;
    TSR_TRY(tsr_comm_wire_find(d, s->c, m, s->g->rank, &wire, err));
    return d->codec->encode(d->self, d->stream, wire, x, d->room, at, err);
}

static tsr_status decode(const struct tsr_comm_sum *s, const struct tsr_comm_message *m,
                         uint32_t source, uint64_t at, const struct tsr_tensor *x, bool add,
                         struct tsr_err *err)
{
    struct tsr_comm_device *d = s->g->device;
    void                   *wire;
    if (is_empty(m))
        return TSR_OK;
    TSR_TRY(tsr_comm_wire_find(d, s->c, m, source, &wire, err));
    return d->codec->decode(d->self, d->stream, wire, d->room, at, x, add, err);
}

/* to = a + b */
static tsr_status add(const struct tsr_comm_device *d, const struct tsr_tensor *to,
                      const struct tsr_tensor *a, const struct tsr_tensor *b, struct tsr_err *err)
{
    struct tsr_op op = { .struct_size = sizeof op, .kind = TSR_OP_ADD, .out = to, .in = { a, b } };
    return d->backend->run(d->self, d->stream, &op, err);
}

/* The tree of tsr_comm_tree(): messages are m->wire_bytes apart from `at` on; own (or NULL) replaces this
 * rank's. The stack of partial sums uses dst, then d->floats from its `level`-th matrix on. */
static tsr_status tree(const struct tsr_comm_sum *s, const struct tsr_comm_message *m, uint64_t at,
                       const struct tsr_tensor *own, const struct tsr_tensor *dst, uint64_t level,
                       struct tsr_err *err)
{
    const struct tsr_comm_device *d = s->g->device;
    struct tsr_tensor             stack[TSR_COMM_LEVELS + 1];
    uint32_t                      depth = 0, ranks = s->g->ranks, self = s->g->rank;
    if (is_empty(m))
        return TSR_OK;
    for (uint32_t r = 0; r < ranks; r += 2) {
        struct tsr_tensor *to = &stack[depth];
        bool     pair = r + 1 < ranks, left = own && r == self, right = own && r + 1 == self;
        uint32_t first = left ? r + 1 : r; /* decoded into the buffer */
        *to = depth ? floats_of(d, m, level + depth - 1) : *dst;
        if (!pair && left)
            *to = *own; /* the last one: read only */
        else
            TSR_TRY(decode(s, m, first, at + first * m->wire_bytes, to, false, err));
        if (pair && left)
            TSR_TRY(add(d, to, own, to, err));
        else if (pair && right)
            TSR_TRY(add(d, to, to, own, err));
        else if (pair)
            TSR_TRY(decode(s, m, r + 1, at + (r + 1) * m->wire_bytes, to, true, err));
        depth++;
        for (uint32_t k = r / 2; pair && (k & 1); k >>= 1, depth--)
            TSR_TRY(add(d, &stack[depth - 2], &stack[depth - 2], &stack[depth - 1], err));
    }
    for (; depth > 1; depth--)
        TSR_TRY(add(d, &stack[depth - 2], &stack[depth - 2], &stack[depth - 1], err));
    return TSR_OK;
}

/* ---- steps --------------------------------------------------------------- */

static bool two_step(const struct tsr_comm_sum *s)
{
    return s->c->algorithm == TSR_COMM_TWO_STEP;
}

static tsr_status start(const struct tsr_comm_sum *s, uint64_t piece, uint32_t hop, bool to_all,
                        struct tsr_err *err)
{
    const struct tsr_comm_device *d = s->g->device;
    unsigned char                *room = d->codec->address(d->self, d->room);
    uint32_t                      slot = (uint32_t)(piece % TSR_COMM_SLOTS);
    return tsr_comm_sum_start(s, piece, hop, to_all, room + d->send[slot][hop],
                              room + d->recv[slot][hop], err);
}

static tsr_status end_both(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    uint64_t since = tsr_now_us();
    for (uint32_t h = 0; h < 2; h++)
        TSR_TRY(tsr_comm_exchange_end(&s->g->traffic, tsr_comm_sum_hop(s, piece, h), err));
    s->g->counters.wait_ns += (tsr_now_us() - since) * 1000;
    return TSR_OK;
}

static tsr_status begin(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    const struct tsr_comm_group  *g = s->g;
    const struct tsr_comm_piece  *p = tsr_comm_sum_piece(s, piece);
    const struct tsr_comm_device *d = g->device;
    uint64_t                      to = d->send[piece % TSR_COMM_SLOTS][0];
    bool                          two = two_step(s);
    TSR_TRY(end_both(s, piece, err)); /* of the piece that used this slot before */
    for (uint32_t i = 0; i < (two ? g->ranks : 1); i++) {
        struct tsr_comm_message m = tsr_comm_sum_message(s, p, 0, i, p->mine[0][i].bytes);
        uint64_t                first = 0, end;
        if (two && i == g->rank) /* its own slice stays unchanged */
            continue;
        if (two)
            tsr_comm_slice(s->cols, g->ranks, i, &first, &end);
        struct tsr_tensor x = part_of(s, piece, first, m.cols);
        TSR_TRY(encode(s, &m, &x, to + p->mine[0][i].at, err));
    }
    return start(s, piece, 0, !two, err);
}

/* The first hop is on the stream: work queued from now on runs after it. */
static tsr_status middle(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    const struct tsr_comm_group  *g = s->g;
    const struct tsr_comm_piece  *p = tsr_comm_sum_piece(s, piece);
    const struct tsr_comm_device *d = g->device;
    uint32_t                      slot = (uint32_t)(piece % TSR_COMM_SLOTS);
    struct tsr_comm_message       m = tsr_comm_sum_message(s, p, 0, g->rank, p->theirs[0][0].bytes);
    uint64_t                      first, end;
    tsr_comm_slice(s->cols, g->ranks, g->rank, &first, &end);
    struct tsr_tensor own = part_of(s, piece, first, m.cols), sum = floats_of(d, &m, 0);
    TSR_TRY(tree(s, &m, d->recv[slot][0], &own, &sum, 1, err));
    m = tsr_comm_sum_message(s, p, 1, g->rank, p->mine[1][0].bytes);
    TSR_TRY(encode(s, &m, &sum, d->send[slot][1], err));
    return start(s, piece, 1, true, err);
}

static tsr_status finish(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    const struct tsr_comm_group  *g = s->g;
    const struct tsr_comm_piece  *p = tsr_comm_sum_piece(s, piece);
    const struct tsr_comm_device *d = g->device;
    uint32_t                      slot = (uint32_t)(piece % TSR_COMM_SLOTS);
    bool                          two = two_step(s);
    if (!two) {
        struct tsr_comm_message m = tsr_comm_sum_message(s, p, 0, 0, p->theirs[0][0].bytes);
        struct tsr_tensor       x = part_of(s, piece, 0, s->cols);
        return tree(s, &m, d->recv[slot][0], NULL, &x, 0, err);
    }
    for (uint32_t i = 0; i < g->ranks; i++) {
        struct tsr_comm_message m = tsr_comm_sum_message(s, p, 1, i, p->theirs[1][i].bytes);
        uint64_t                first, end;
        tsr_comm_slice(s->cols, g->ranks, i, &first, &end);
        struct tsr_tensor x = part_of(s, piece, first, m.cols);
        /* messages are not copied to itself on a device */
        uint64_t at = i == g->rank ? d->send[slot][1] : d->recv[slot][1] + p->theirs[1][i].at;
        TSR_TRY(decode(s, &m, i, at, &x, false, err));
    }
    return TSR_OK;
}

static const struct tsr_comm_steps on_device = { .begin = begin,
                                                 .middle = middle,
                                                 .finish = finish };

/* ---- a sum --------------------------------------------------------------- */

/* All wires that the sum takes, before anything is sent.  Pieces of one width share them. */
static tsr_status load_wires(const struct tsr_comm_sum *s, struct tsr_err *err)
{
    const struct tsr_comm_piece *p = &s->g->whole;
    uint32_t                     ranks = s->g->ranks, rank = s->g->rank;
    bool                         two = two_step(s);
    for (uint32_t slice = 0; slice < (two ? ranks : 1); slice++)
        for (uint32_t source = 0; source < ranks; source++) {
            bool                    mine = source == rank, own = slice == rank;
            uint64_t                bytes = !two   ? p->theirs[0][source].bytes
                                            : own  ? p->theirs[0][source].bytes
                                            : mine ? p->mine[0][slice].bytes
                                                   : 0;
            struct tsr_comm_message m = tsr_comm_sum_message(s, p, 0, slice, bytes);
            void                   *wire;
            if (two ? mine != own && !is_empty(&m) : !is_empty(&m))
                TSR_TRY(tsr_comm_wire_find(s->g->device, s->c, &m, source, &wire, err));
            m = tsr_comm_sum_message(s, p, 1, slice, two ? p->theirs[1][slice].bytes : 0);
            if (two && source == slice && !is_empty(&m))
                TSR_TRY(tsr_comm_wire_find(s->g->device, s->c, &m, source, &wire, err));
        }
    return TSR_OK;
}

static tsr_status run(const struct tsr_comm_sum *s, struct tsr_err *err)
{
    struct tsr_comm_device  *d = s->g->device;
    struct tsr_comm_traffic *t = &s->g->traffic;
    TSR_TRY(make_room(s->g, err));
    TSR_TRY(d->codec->stream_behind(d->self, d->stream, NULL, err));
    t->stream = d->stream;
    t->device = s->g->port.iface->extension(s->g->port.self, TSR_TRANSPORT_DEVICE);
    tsr_status st = tsr_comm_sum_run(s, &on_device, err);
    /* every operation under way needs a waiter with a deadline */
    for (uint64_t i = 0; st == TSR_OK && i < TSR_COMM_SLOTS; i++)
        st = end_both(s, i, err);
    t->stream = NULL;
    if (st == TSR_OK)
        return d->codec->stream_behind(d->self, NULL, d->stream, err);
    /* a device that is lost fails its messages, too: the backend knows the kernels */
    struct tsr_errbuf why = TSR_ERRBUF(why);
    tsr_status lost = st == TSR_E_DEVICE ? d->backend->sync(d->self, NULL, &why.err) : TSR_OK;
    return lost == TSR_OK ? st : tsr_err_copy(err, lost, &why.err);
}

/* Plans the sum and loads its wires, if the device can compute it. */
static tsr_status prepare(struct tsr_comm_sum *s, uint32_t phase,
                          const struct tsr_backend_v1 *backend, void *self, bool *can,
                          struct tsr_err *err)
{
    struct tsr_comm_group *g = s->g;
    struct tsr_errbuf      why = TSR_ERRBUF(why);
    *can = false;
    if (!g->device)
        TSR_TRY(bind(g, backend, self, err));
    const struct tsr_comm_device *d = g->device;
    if (!d || d->unusable || d->no_wire[phase] || d->backend != backend || d->self != self)
        return TSR_OK;
    TSR_TRY(tsr_comm_sum_plan(s, err));
    TSR_TRY(go_without(load_wires(s, &why.err), true, &g->device->no_wire[phase], why.text, err));
    *can = !d->no_wire[phase];
    return TSR_OK;
}

tsr_status tsr_comm_device_reserve(struct tsr_comm_group *g, uint32_t phase,
                                   const struct tsr_backend_v1 *backend, void *self, uint64_t rows,
                                   uint64_t cols, uint32_t first, uint32_t end, struct tsr_err *err)
{
    struct tsr_comm_sum s = { .g = g, .c = &g->coder[phase], .rows = rows, .cols = cols };
    bool                can = false;
    for (s.site = first; s.site < end; s.site++)
        TSR_TRY(prepare(&s, phase, backend, self, &can, err));
    return can ? make_room(g, err) : TSR_OK;
}

tsr_status tsr_comm_device_run(struct tsr_comm_group *g, uint32_t phase, uint32_t site,
                               const struct tsr_backend_v1 *backend, void *self,
                               const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct tsr_comm_sum s = {
        .g = g, .c = &g->coder[phase], .site = site, .tensor = x, .rows = x->rows, .cols = x->cols
    };
    bool there = false;
    TSR_TRY(prepare(&s, phase, backend, self, done, err));
    if (*done)
        TSR_TRY(tsr_comm_window_sum(g, s.c, site, backend, self, x, &there, err));
    return *done && !there ? run(&s, err) : TSR_OK;
}
