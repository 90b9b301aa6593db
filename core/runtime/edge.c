/* Heads and rows over two links. */
#include "runtime/edge.h"

#include "runtime/progress.h"

#include <string.h>
#include <time.h>

#define WAIT_US    UINT64_C(10000000)
#define FOREVER_US (UINT64_C(86400) * 1000000u)

tsr_status tsr_runtime_edge_create(struct tsr_runtime_edge *e, struct tsr_registry *r,
                                   struct tsr_err *err)
{
    TSR_TRY(tsr_comm_world_create(&e->heads, r, e->heads_over, 2, err));
    return e->kind == TSR_RUNTIME_EDGE_TOKENS
               ? TSR_OK
               : tsr_comm_world_create(&e->rows, r, e->rows_over, 2, err);
}

void tsr_runtime_edge_free(struct tsr_runtime_edge *e)
{
    if (e->heads.bytes)
        tsr_comm_world_close(&e->heads);
    if (e->rows.bytes)
        tsr_comm_world_close(&e->rows);
}

static struct tsr_comm_link_options options(const struct tsr_comm_world *w, const char *over,
                                            uint64_t epoch, bool sender)
{
    return (struct tsr_comm_link_options){ .place = { .transport = over,
                                                      .rank = sender ? 0 : 1,
                                                      .ranks = 2,
                                                      .shared = w->shared,
                                                      .shared_bytes = w->bytes,
                                                      .epoch = epoch },
                                           .rows_alone = true };
}

tsr_status tsr_runtime_edge_open(struct tsr_runtime_edge_end *n, const struct tsr_runtime_edge *e,
                                 bool sender, uint64_t deadline_us, _Atomic uint64_t *pieces,
                                 struct tsr_registry *r, struct tsr_err *err)
{
    *n = (struct tsr_runtime_edge_end){ .edge = e,
                                        .deadline_us = deadline_us ? deadline_us : WAIT_US };
    struct tsr_comm_link_options o = options(&e->heads, e->heads_over, e->epoch, sender);
    o.pieces = pieces;
    TSR_TRY(tsr_comm_link_create(&n->heads, r, &o, err));
    if (e->kind == TSR_RUNTIME_EDGE_TOKENS)
        return TSR_OK;
    o = options(&e->rows, e->rows_over, e->epoch, sender);
    o.pieces = pieces;
    o.codec[0] = e->codec[0];
    o.codec[1] = e->codec[1];
    return tsr_comm_link_create(&n->rows, r, &o, err);
}

void tsr_runtime_edge_close(struct tsr_runtime_edge_end *n)
{
    tsr_comm_link_destroy(n->heads);
    tsr_comm_link_destroy(n->rows);
    n->heads = n->rows = NULL;
}

void tsr_runtime_edge_abort(struct tsr_runtime_edge_end *n)
{
    if (n->heads)
        tsr_comm_link_abort(n->heads);
    if (n->rows)
        tsr_comm_link_abort(n->rows);
}

/* Rows that follow a head, and how wide they are. */
static uint64_t rows_of(const struct tsr_runtime_edge_end *n, const struct tsr_runtime_frame *f)
{
    if (n->edge->kind == TSR_RUNTIME_EDGE_ROWS && f->kind == TSR_RUNTIME_FRAME_WORK)
        return f->tokens;
    bool answers =
        n->edge->kind == TSR_RUNTIME_EDGE_RESULT || n->edge->kind == TSR_RUNTIME_EDGE_BACK;
    return answers && f->status == TSR_OK ? f->wanted : 0;
}

static uint64_t cols_of(const struct tsr_runtime_edge_end     *n,
                        const struct tsr_runtime_frame_limits *l)
{
    return n->edge->kind == TSR_RUNTIME_EDGE_RESULT ? l->vocab : l->hidden;
}

/* The error of its link, with the ranks of the job. */
static tsr_status failed(const struct tsr_runtime_edge_end *n, const struct tsr_comm_link *l,
                         bool out, tsr_status st, struct tsr_err *err)
{
    struct tsr_comm_late late = tsr_comm_link_late(l);
    uint32_t             own = out ? n->edge->from : n->edge->to;
    uint32_t             other = out ? n->edge->to : n->edge->from;
    if (st == TSR_E_DEVICE && late.us > 0)
        return tsr_fail(
            err, st,
            "rank %u is late or has died, or the link to it is down or too slow: of a "
            "message of %llu bytes %llu have %s, and nothing more for %.1f s (`stall` of "
            "the step `run` sets how long that may take)",
            other, (unsigned long long)late.bytes, (unsigned long long)late.moved,
            out ? "gone" : "come", (double)late.us / 1e6);
    return st == TSR_E_DEVICE ? tsr_err_prefix(err, st, "between ranks %u and %u", own, other) : st;
}

/* Until a message is through, with its own deadline for each of its pieces. */
static tsr_status end(const struct tsr_runtime_edge_end *n, struct tsr_comm_link *l,
                      struct tsr_comm_transfer *t, bool out, struct tsr_err *err)
{
    tsr_status st = tsr_comm_link_wait_for(l, t, n->deadline_us, err);
    return st == TSR_OK ? st : failed(n, l, out, st, err);
}

void tsr_runtime_edge_pause(double ms)
{
    uint64_t ns = ms > 0 ? (uint64_t)(ms * 1e6) : 0;
    if (ns)
        (void)nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000u),
                                            .tv_nsec = (long)(ns % 1000000000u) },
                        NULL);
}

tsr_status tsr_runtime_edge_send(struct tsr_runtime_edge_end *n, struct tsr_runtime_micro_batch *b,
                                 struct tsr_err *err)
{
    struct tsr_comm_transfer *head = NULL, *body = NULL, *rows = NULL;
    uint64_t                  bytes = tsr_runtime_frame_body(&b->head), m = rows_of(n, &b->head);
    TSR_TRY(tsr_runtime_micro_batch_pack(b, err));
    b->head.sent_ns = tsr_runtime_now_ns();
    TSR_TRY(tsr_comm_link_send_bytes(n->heads, 1, &b->head, sizeof b->head, &head, err));
    if (bytes)
        TSR_TRY(tsr_comm_link_send_bytes(n->heads, 1, b->body, bytes, &body, err));
    if (m)
        tsr_runtime_edge_pause(n->encode_ms);
    if (m)
        TSR_TRY(tsr_comm_link_send(n->rows, b->head.phase, b->head.site, 1, b->rows, m, b->cols,
                                   &rows, err));
    TSR_TRY(end(n, n->heads, head, true, err));
    if (body)
        TSR_TRY(end(n, n->heads, body, true, err));
    return rows ? end(n, n->rows, rows, true, err) : TSR_OK;
}

tsr_status tsr_runtime_edge_recv(struct tsr_runtime_edge_end *n, struct tsr_runtime_micro_batch *b,
                                 const struct tsr_runtime_frame_limits *l, struct tsr_err *err)
{
    struct tsr_comm_transfer *t = NULL;
    TSR_TRY(tsr_comm_link_recv_bytes(n->heads, 0, &b->head, sizeof b->head, &t, err));
    TSR_TRY(tsr_comm_link_wait_for(n->heads, t, FOREVER_US, err));
    TSR_TRY(tsr_runtime_frame_check(&b->head, l, err));
    uint64_t bytes = tsr_runtime_frame_body(&b->head), m = rows_of(n, &b->head);
    b->cols = cols_of(n, l);
    TSR_TRY(tsr_runtime_micro_batch_reserve(b, l, m > 0, false, err));
    if (bytes) {
        TSR_TRY(tsr_comm_link_recv_bytes(n->heads, 0, b->body, bytes, &t, err));
        TSR_TRY(end(n, n->heads, t, false, err));
    }
    TSR_TRY(tsr_runtime_micro_batch_unpack(b, l, err));
    if (!m)
        return TSR_OK;
    TSR_TRY(
        tsr_comm_link_recv(n->rows, b->head.phase, b->head.site, 0, b->rows, m, b->cols, &t, err));
    return end(n, n->rows, t, false, err);
}
