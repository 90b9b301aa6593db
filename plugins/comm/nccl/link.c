/* Communicators: created on first use, polled for their state, ended. */
#include "nccl.h"

#include <sched.h>
#include <stdarg.h>
#include <time.h>

uint64_t nc_now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint32_t other(const struct nccl *s, const struct nc_link *l)
{
    return l->from == s->rank ? l->to : l->from;
}

const char *nc_link_name(const struct nccl *s, const struct nc_link *l, char text[64])
{
    if (l->group)
        (void)snprintf(text, 64, "the other %u ranks", s->ranks - 1);
    else
        (void)snprintf(text, 64, "rank %u", other(s, l));
    return text;
}

/* ---- ending -------------------------------------------------------------------- */

void nc_link_break(struct nccl *s, struct nc_link *l, tsr_status st, const char *fmt, ...)
{
    va_list ap;
    if (l->stage == NC_BROKEN)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(l->why, sizeof l->why, fmt, ap);
    va_end(ap);
    nc_link_end(s, l, s->l.ncclCommAbort);
    l->stage = NC_BROKEN;
    l->calling = false;
    nc_meet_give_up(s, l);
    for (struct nc_request *r = l->first, *next; r; r = next) {
        next = r->next;
        nc_request_fail(r, st, "%s", l->why);
        r->link = NULL;
        r->broken = l;
    }
    l->first = l->last = NULL;
}

/* True when the communicator's last call has ended well; a failure breaks the link. */
static bool ready(struct nccl *s, struct nc_link *l)
{
    char      name[64];
    nc_result state = NC_IN_PROGRESS, e = s->l.ncclCommGetAsyncError(l->comm, &state);
    if (e == NC_OK)
        e = state;
    if (e != NC_OK && e != NC_IN_PROGRESS)
        nc_link_break(s, l, TSR_E_DEVICE, "nccl: rank %u lost %s: %s (%s)", s->rank,
                      nc_link_name(s, l, name), s->l.ncclGetErrorString(e),
                      s->l.ncclGetLastError(l->comm));
    return e == NC_OK;
}

/* ---- beginning ----------------------------------------------------------------- */

static void join(struct nccl *s, struct nc_link *l, nc_id id)
{
    char             name[64];
    struct nc_config c = { .size = sizeof c,
                           .magic = NC_MAGIC,
                           .version = NC_VERSION,
                           .blocking = 0,
                           .cga_cluster_size = NC_UNDEFINED,
                           .min_ctas = NC_UNDEFINED,
                           .max_ctas = l->group ? NC_UNDEFINED : NC_PAIR_CTAS,
                           .split_share = NC_UNDEFINED };
    int              ranks = l->group ? (int)s->ranks : 2;
    int              rank = l->group ? (int)s->rank : l->to == s->rank;
    cu_result        cu = s->l.cuStreamCreate(&l->stream, CU_STREAM_ALONE);
    if (cu != CU_OK) {
        l->stream = NULL;
        nc_link_break(s, l, TSR_E_DEVICE, "nccl: rank %u: making a stream: CUDA error %d", s->rank,
                      cu);
        return;
    }
    if (!nc_link_reserve_ending(l)) {
        nc_link_break(s, l, TSR_E_NOMEM, "out of memory: a communicator of transport nccl");
        return;
    }
    nc_result e = s->l.ncclCommInitRankConfig(&l->comm, ranks, id, rank, &c);
    l->stage = NC_JOINS;
    if (e != NC_OK && e != NC_IN_PROGRESS) {
        const char *why = s->l.ncclGetLastError(NULL);
        nc_link_break(s, l, TSR_E_DEVICE, "nccl: rank %u cannot join %s: %s (%s)", s->rank,
                      nc_link_name(s, l, name), s->l.ncclGetErrorString(e), why);
    }
}

static void open_link(struct nccl *s, struct nc_link *l)
{
    NC_TEXT(e);
    nc_id      id;
    bool       there = false;
    tsr_status st = TSR_OK;
    if (nc_meet_is_host(s, l)) {
        nc_result n = s->l.ncclGetUniqueId(&id);
        st = n == NC_OK
                 ? nc_meet_give(s, l, &id, &e.err)
                 : tsr_fail(&e.err, TSR_E_DEVICE, "nccl: rank %u: ncclGetUniqueId: %s (%s)",
                            s->rank, s->l.ncclGetErrorString(n), s->l.ncclGetLastError(NULL));
        there = st == TSR_OK;
    } else {
        l->stage = NC_MEETS;
        st = nc_meet_take(s, l, &id, &there, &e.err);
    }
    if (st != TSR_OK)
        nc_link_break(s, l, st, "%s", e.text);
    else if (there)
        join(s, l, id);
}

/* The other rank has left before the communicator stood: it never will. */
static void look_for_leavers(struct nccl *s, struct nc_link *l)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (r == s->rank || (!l->group && r != other(s, l)) || !nc_meet_left(s, r))
            continue;
        uint64_t now = nc_now_us();
        l->left_us = l->left_us ? l->left_us : now;
        /* wait for one that is still joining */
        if (l->stage != NC_JOINS || now - l->left_us > NC_LEFT_US)
            nc_link_break(s, l, TSR_E_DEVICE, "nccl: rank %u has left the group", r);
        return;
    }
}

/* ---- moving on ----------------------------------------------------------------- */

/* Operations between the same ranks end in the order of their start: those of a pair after earlier
 * collectives, and collectives after earlier pair operations. */
static bool is_next(const struct nccl *s, const struct nc_link *l, const struct nc_request *r)
{
    if (!l->group)
        return !s->all.first || s->all.first->sequence > r->sequence;
    for (uint32_t i = 0; i < s->ranks; i++) {
        const struct nc_request *o = s->peer[i].out.first, *n = s->peer[i].in.first;
        if ((o && o->sequence < r->sequence) || (n && n->sequence < r->sequence))
            return false;
    }
    return true;
}

static void take_ended(struct nccl *s, struct nc_link *l)
{
    while (l->first && l->first->stage == NC_ENDED && is_next(s, l, l->first)) {
        struct nc_request *r = l->first;
        l->first = r->next;
        if (!l->first)
            l->last = NULL;
        r->link = NULL;
    }
}

static void move_requests(struct nccl *s, struct nc_link *l)
{
    bool free = ready(s, l); /* poll a link with work for errors every time */
    for (struct nc_request *r = l->first; r && l->stage == NC_UP; r = r->next) {
        if (r->stage == NC_WAITS && free) {
            nc_request_call(s, r);
            if (l->stage != NC_UP)
                return;
            free = ready(s, l);
            if (l->stage != NC_UP)
                return;
        }
        if (r->stage == NC_CALLS && free) {
            l->calling = false;
            nc_request_record(s, r);
            if (l->stage != NC_UP)
                return;
        }
        if (r->stage == NC_RUNS)
            nc_request_look(s, r);
        else if (r->stage != NC_ENDED)
            break;
        if (l->stage != NC_UP)
            return;
    }
}

static void move_link(struct nccl *s, struct nc_link *l)
{
    if (!l->first || l->stage == NC_BROKEN)
        return;
    if (nc_meet_given_up(s, l)) {
        char name[64];
        nc_link_break(s, l, TSR_E_DEVICE, "nccl: %s gave up the communicator with rank %u",
                      nc_link_name(s, l, name), s->rank);
        return;
    }
    if (l->stage == NC_IDLE || l->stage == NC_MEETS)
        open_link(s, l);
    if (l->stage == NC_JOINS && ready(s, l))
        l->stage = NC_UP;
    if (l->stage == NC_MEETS || l->stage == NC_JOINS)
        look_for_leavers(s, l);
    if (l->stage == NC_UP)
        move_requests(s, l);
}

void nc_links_move(struct nccl *s)
{
    nc_meet_poll(s);
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct nc_peer *p = &s->peer[r];
        if (r == s->rank) {
            nc_requests_to_self(s, &p->out, &p->in);
            for (struct nc_request *q = p->out.first; q; q = q->next)
                if (q->stage == NC_RUNS)
                    nc_request_look(s, q);
            for (struct nc_request *q = p->in.first; q; q = q->next)
                if (q->stage == NC_RUNS)
                    nc_request_look(s, q);
            continue;
        }
        move_link(s, &p->out);
        move_link(s, &p->in);
    }
    move_link(s, &s->all);
    for (uint64_t before = UINT64_MAX;
         s->n_requests && before;) { /* one release may allow others */
        const struct nc_request *head = s->all.first;
        for (uint32_t r = 0; r < s->ranks; r++) {
            take_ended(s, &s->peer[r].out);
            take_ended(s, &s->peer[r].in);
        }
        take_ended(s, &s->all);
        before = s->all.first != head;
    }
}

/* ---- the end of all ------------------------------------------------------------ */

/* All communicators are finalized together, so that ranks that end at the same time meet. */
static bool finalize(struct nccl *s, struct nc_link *l)
{
    nc_result state = NC_IN_PROGRESS;
    if (!l->comm)
        return true;
    if (!l->calling) {
        nc_result e = l->stage == NC_UP ? s->l.ncclCommFinalize(l->comm) : NC_UNDEFINED;
        l->calling = e == NC_OK || e == NC_IN_PROGRESS;
    }
    nc_result e = l->calling ? s->l.ncclCommGetAsyncError(l->comm, &state) : NC_UNDEFINED;
    if (e == NC_OK && state == NC_IN_PROGRESS)
        return false;
    if (e == NC_OK && state == NC_OK) {
        nc_link_end(s, l, s->l.ncclCommDestroy);
    } else {
        nc_link_end(s, l, s->l.ncclCommAbort);
    }
    return true;
}

/* What is left is aborted. */
static bool close_link(struct nccl *s, struct nc_link *l)
{
    if (l->comm)
        nc_link_end(s, l, s->l.ncclCommAbort);
    return nc_link_is_settled(s, l);
}

static bool each_link(struct nccl *s, bool (*step)(struct nccl *, struct nc_link *))
{
    bool ended = step(s, &s->all);
    for (uint32_t r = 0; r < s->ranks; r++) {
        ended = step(s, &s->peer[r].out) && ended;
        ended = step(s, &s->peer[r].in) && ended;
    }
    return ended;
}

static bool end_stream(struct nccl *s, struct nc_link *l)
{
    if (l->stream)
        (void)s->l.cuStreamDestroy_v2(l->stream);
    l->stream = NULL;
    return true;
}

void nc_links_close(struct nccl *s)
{
    uint64_t start = nc_now_us();
    while (!each_link(s, finalize) && nc_now_us() - start < NC_FAREWELL_US)
        (void)sched_yield();
    while (!each_link(s, close_link)) /* each has its own limit */
        (void)sched_yield();
    (void)each_link(s, end_stream);
}
