/* Messages in pieces. */
#include "comm/flow.h"

#include "base/clock.h"
#include "plugin/registry.h"

#include <sched.h>
#include <time.h>

#define SPIN_ROUNDS 200u
#define NAP_NS      50000

static uint64_t piece_of(uint64_t left)
{
    return left < TSR_COMM_PIECE ? left : TSR_COMM_PIECE;
}

/* ---- pieces ------------------------------------------------------------ */

/* The oldest piece of f has been released by the transport. */
static void pop(struct tsr_comm_flow *f)
{
    f->first = (f->first + 1) % TSR_COMM_AHEAD;
    f->n--;
}

static void moved(const struct tsr_comm_flows *s, struct tsr_comm_flow *f)
{
    if (s->pieces)
        atomic_fetch_add_explicit(s->pieces, 1, memory_order_relaxed);
    f->moved += piece_of(f->bytes - f->moved);
    pop(f);
}

static void leave(struct tsr_comm_flows *s, const struct tsr_comm_flow *f)
{
    struct tsr_comm_flow **at = &s->under_way;
    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
}

/* Makes the transport release its parts of f. */
static void give_up(struct tsr_comm_flows *s, struct tsr_comm_flow *f)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    for (; f->n > 0; pop(f))
        (void)s->port->iface->wait(s->port->self, f->piece[f->first], 0, &ignored.err);
    f->failed = true;
    leave(s, f);
}

/* Whether an earlier message of the same way has pieces that are not started. */
static bool behind(const struct tsr_comm_flows *s, const struct tsr_comm_flow *f)
{
    for (const struct tsr_comm_flow *q = s->under_way; q && q != f; q = q->next)
        if (q->started < q->bytes && q->out == f->out && q->peer == f->peer)
            return true;
    return false;
}

/* Starts pieces of f while there is room for them. */
static tsr_status start_pieces(struct tsr_comm_flows *s, struct tsr_comm_flow *f,
                               struct tsr_err *err)
{
    const struct tsr_transport_v1 *t = s->port->iface;
    while (f->started < f->bytes && f->n < TSR_COMM_AHEAD) {
        uint64_t       bytes = piece_of(f->bytes - f->started);
        unsigned char *at = f->buf + f->started;
        void          *handle = NULL;
        TSR_TRY(f->out ? t->send(s->port->self, NULL, f->peer, at, bytes, &handle, err)
                       : t->recv(s->port->self, NULL, f->peer, at, bytes, &handle, err));
        if (!handle)
            break;
        f->piece[(f->first + f->n++) % TSR_COMM_AHEAD] = handle;
        f->started += bytes;
        if (f->out && f->peer != s->rank)
            s->sent += bytes;
    }
    return TSR_OK;
}

static tsr_status start_more(struct tsr_comm_flows *s, struct tsr_err *err)
{
    for (struct tsr_comm_flow *f = s->under_way; f; f = f->next)
        if (f->started < f->bytes && !behind(s, f))
            TSR_TRY(start_pieces(s, f, err));
    return TSR_OK;
}

/* ---- messages ---------------------------------------------------------- */

tsr_status tsr_comm_flow_start(struct tsr_comm_flows *s, struct tsr_comm_flow *f,
                               struct tsr_err *err)
{
    struct tsr_comm_flow **last = &s->under_way;
    while (*last)
        last = &(*last)->next;
    *last = f;
    f->next = NULL;
    tsr_status st = behind(s, f) ? TSR_OK : start_pieces(s, f, err);
    if (st != TSR_OK)
        give_up(s, f);
    return st;
}

/* Pieces of f that are over. */
static tsr_status look(struct tsr_comm_flows *s, struct tsr_comm_flow *f, struct tsr_err *err)
{
    while (f->n > 0) {
        int32_t    done = 0;
        tsr_status st = s->port->iface->test(s->port->self, f->piece[f->first], &done, err);
        if (st != TSR_OK) {
            pop(f);
            give_up(s, f);
            return st;
        }
        if (!done)
            break;
        moved(s, f);
    }
    return TSR_OK;
}

static tsr_status gave_up(const struct tsr_comm_flows *s, const struct tsr_comm_flow *f,
                          struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_DEVICE, "a message between rank %u and rank %u has failed before",
                    s->rank, f->peer);
}

/* Other flows have unstarted pieces, which would not advance during a wait for one of f. */
static bool others(const struct tsr_comm_flows *s, const struct tsr_comm_flow *f)
{
    for (const struct tsr_comm_flow *q = s->under_way; q; q = q->next)
        if (q != f && q->started < q->bytes)
            return true;
    return false;
}

/* What has got through of f and of those before it on its way. */
static uint64_t progress(const struct tsr_comm_flows *s, const struct tsr_comm_flow *f)
{
    uint64_t sum = f->moved;
    for (const struct tsr_comm_flow *q = s->under_way; q && q != f; q = q->next)
        sum += q->out == f->out && q->peer == f->peer ? q->moved : 0;
    return sum;
}

/* A wait that timed out; the transport's message names the late rank. */
static tsr_status be_late(struct tsr_comm_flows *s, struct tsr_comm_flow *f, uint64_t us,
                          struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    s->late_us = us;
    if (f->n > 0) {
        st = s->port->iface->wait(s->port->self, f->piece[f->first], 0, err);
        if (st == TSR_OK) {
            moved(s, f); /* at the last moment */
            s->late_us = 0;
            return st;
        }
        pop(f);
        return tsr_err_prefix(err, st, "%llu us have passed", (unsigned long long)us);
    }
    return tsr_fail(err, TSR_E_DEVICE,
                    "rank %u waited %llu us for room in its transport; rank %u is late or has died",
                    s->rank, (unsigned long long)us, f->peer);
}

/* A piece of f, and of no other one. */
static tsr_status wait_piece(struct tsr_comm_flows *s, struct tsr_comm_flow *f,
                             uint64_t deadline_us, struct tsr_err *err)
{
    uint64_t   since = tsr_now_us();
    tsr_status st = s->port->iface->wait(s->port->self, f->piece[f->first], deadline_us, err);
    if (st == TSR_OK) {
        moved(s, f);
        return st;
    }
    uint64_t passed = tsr_now_us() - since;
    s->late_us = st == TSR_E_DEVICE && passed >= deadline_us ? passed : 0;
    pop(f);
    return st;
}

/* All that is under way, until f gets on. */
static tsr_status turn(struct tsr_comm_flows *s, struct tsr_comm_flow *f, uint64_t deadline_us,
                       struct tsr_err *err)
{
    uint64_t   since = tsr_now_us(), before = progress(s, f);
    tsr_status st = TSR_OK;
    for (unsigned round = 0; progress(s, f) == before; round++) {
        for (struct tsr_comm_flow *q = s->under_way, *next; st == TSR_OK && q; q = next) {
            next = q->next;
            st = look(s, q, err);
        }
        if (st == TSR_OK)
            st = start_more(s, err);
        if (st != TSR_OK)
            return st;
        uint64_t passed = tsr_now_us() - since;
        if (passed >= deadline_us)
            return be_late(s, f, passed, err);
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        if (round < SPIN_ROUNDS)
            (void)sched_yield();
        else
            (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
    return TSR_OK;
}

tsr_status tsr_comm_flow_wait(struct tsr_comm_flows *s, struct tsr_comm_flow *f,
                              uint64_t deadline_us, struct tsr_err *err)
{
    tsr_status st = f->failed ? gave_up(s, f, err) : TSR_OK;
    s->late_us = 0;
    while (st == TSR_OK && f->moved < f->bytes) {
        if (f->started < f->bytes)
            st = start_more(s, err);
        if (st == TSR_OK)
            st = f->n > 0 && !others(s, f) ? wait_piece(s, f, deadline_us, err)
                                           : turn(s, f, deadline_us, err);
    }
    if (st == TSR_OK)
        leave(s, f);
    else if (!f->failed)
        give_up(s, f);
    return st;
}
