/* Where ranks meet before NCCL knows them: ids of communicators go through memory that the ranks of a
 * host share, or as letters over another transport, which reaches other hosts. */
#include "nccl.h"

#define LETTER_MAGIC 0x4e525354u /* "TSRN" */

enum { LETTER_ID = 1, LETTER_GAVE_UP = 2 };
enum { LINK_OUT, LINK_IN, LINK_GROUP };

/* ---- memory -------------------------------------------------------------------- */

/* Zeroed memory is a valid start. */
struct nc_slot {
    _Atomic uint32_t there;   /* 1: being written, 2: all of it */
    _Atomic uint32_t gave_up; /* 1 + a rank */
    uint64_t         epoch;
    nc_id            id;
    _Atomic uint64_t sizes[2][NC_SIZES]; /* the sender's, the receiver's */
};

struct nc_board_rank {
    _Atomic uint64_t       sizes[NC_SIZES]; /* of collectives */
    _Atomic uint64_t       collectives;
    _Atomic uint32_t       left;
    uint32_t               zero;
    struct nc_board_window window;
};

struct nc_board {
    _Atomic uint32_t     aborted; /* 1 + the rank that did it */
    uint32_t             zero;
    struct nc_board_rank rank[];
    /* then [ranks][ranks] slots of pairs, and the group's */
};

uint64_t nc_board_bytes(uint32_t ranks)
{
    return sizeof(struct nc_board) + ranks * sizeof(struct nc_board_rank) +
           ((uint64_t)ranks * ranks + 1) * sizeof(struct nc_slot);
}

struct nc_board_window *nc_board_window(const struct nccl *s, uint32_t rank)
{
    return &s->board->rank[rank].window;
}

static struct nc_slot *slot_of(const struct nccl *s, const struct nc_link *l)
{
    struct nc_slot *first = (struct nc_slot *)(s->board->rank + s->ranks);
    return first +
           (l->group ? (uint64_t)s->ranks * s->ranks : (uint64_t)l->from * s->ranks + l->to);
}

/* ---- letters ------------------------------------------------------------------- */

static uint16_t link_kind(const struct nccl *s, const struct nc_link *l)
{
    return l->group ? LINK_GROUP : l->from == s->rank ? LINK_OUT : LINK_IN;
}

static tsr_status post(struct nccl *s, uint32_t to, uint16_t kind, uint16_t link, const nc_id *id,
                       struct tsr_err *err)
{
    struct nc_post *p = s->host->alloc(s->host->ctx, sizeof *p, _Alignof(struct nc_post));
    if (!p)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for transport nccl", sizeof *p);
    memset(p, 0, sizeof *p);
    p->to = to;
    p->letter = (struct nc_letter){
        .magic = LETTER_MAGIC, .kind = kind, .link = link, .from = s->rank, .epoch = s->epoch
    };
    if (id)
        p->letter.id = *id;
    struct nc_post **last = &s->posts; /* letters to one rank stay in order */
    while (*last)
        last = &(*last)->next;
    *last = p;
    return TSR_OK;
}

static tsr_status post_link(struct nccl *s, const struct nc_link *l, uint16_t kind, const nc_id *id,
                            struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    if (!l->group)
        return post(s, l->from == s->rank ? l->to : l->from, kind, link_kind(s, l), id, err);
    for (uint32_t r = 0; st == TSR_OK && r < s->ranks; r++)
        if (r != s->rank && !s->peer[r].gone)
            st = post(s, r, kind, LINK_GROUP, id, err);
    return st;
}

/* What came from rank `from`. */
static void read_letter(struct nccl *s, uint32_t from)
{
    struct nc_peer         *p = &s->peer[from];
    const struct nc_letter *m = &p->letter;
    if (m->magic != LETTER_MAGIC || m->from != from || m->epoch != s->epoch ||
        m->link > LINK_GROUP || (m->kind != LETTER_ID && m->kind != LETTER_GAVE_UP)) {
        s->refused++;
        return;
    }
    if (m->kind == LETTER_ID && m->link == LINK_OUT) {
        p->id = m->id;
        p->has_id = true;
    } else if (m->kind == LETTER_ID && m->link == LINK_GROUP && from == 0) {
        s->id = m->id;
        s->has_id = true;
    } else if (m->kind == LETTER_GAVE_UP && m->link == LINK_GROUP) {
        s->gave_up = true;
    } else if (m->kind == LETTER_GAVE_UP) { /* its way out is our way in */
        *(m->link == LINK_OUT ? &p->gave_up_in : &p->gave_up_out) = true;
    }
}

static void heard(struct nccl *s, uint32_t from, tsr_status st)
{
    uint32_t none = 0;
    if (st == TSR_E_CANCELLED)
        (void)atomic_compare_exchange_strong(&s->aborted, &none, UINT32_MAX);
    else
        s->peer[from].gone = true;
}

static void poll_incoming(struct nccl *s, uint32_t from)
{
    struct nc_peer *p = &s->peer[from];
    for (int32_t done = 1; done && !p->gone && !atomic_load(&s->aborted);) {
        tsr_status st = TSR_OK;
        if (!p->request)
            st = s->via->recv(s->via_self, NULL, from, &p->letter, sizeof p->letter, &p->request,
                              NULL);
        if (st == TSR_OK && !p->request)
            return;
        done = 0;
        if (st == TSR_OK)
            st = s->via->test(s->via_self, p->request, &done, NULL);
        if (st != TSR_OK || done)
            p->request = NULL; /* released */
        if (st != TSR_OK)
            heard(s, from, st);
        else if (done)
            read_letter(s, from);
    }
}

static void poll_outgoing(struct nccl *s)
{
    for (struct nc_post **at = &s->posts; *at;) {
        struct nc_post *p = *at;
        int32_t         done = 0;
        tsr_status      st = TSR_OK;
        if (!p->request)
            st = s->via->send(s->via_self, NULL, p->to, &p->letter, sizeof p->letter, &p->request,
                              NULL);
        if (st == TSR_OK && !p->request)
            return; /* no room; and the order is kept */
        if (st == TSR_OK)
            st = s->via->test(s->via_self, p->request, &done, NULL);
        if (st != TSR_OK)
            heard(s, p->to, st);
        if (st == TSR_OK && !done) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        s->host->release(s->host->ctx, p, sizeof *p);
    }
}

void nc_meet_poll(struct nccl *s)
{
    if (!s->via)
        return;
    for (uint32_t r = 0; r < s->ranks; r++)
        if (r != s->rank)
            poll_incoming(s, r);
    poll_outgoing(s);
}

/* ---- both ---------------------------------------------------------------------- */

tsr_status nc_meet_open(struct nccl *s, const struct tsr_transport_world *w, struct tsr_err *err)
{
    if (TSR_HAS(struct tsr_transport_world, w, via)) {
        s->via = w->via;
        s->via_self = w->via_self;
        return TSR_OK;
    }
    if (!w->shared || (uintptr_t)w->shared % 8 != 0 || w->shared_bytes < nc_board_bytes(s->ranks))
        return tsr_fail(err, TSR_E_INVAL,
                        "nccl: %llu shared bytes at %p, %llu aligned to 8 are needed",
                        U(w->shared_bytes), w->shared, U(nc_board_bytes(s->ranks)));
    s->board = w->shared;
    return TSR_OK;
}

void nc_meet_close(struct nccl *s)
{
    if (s->board)
        atomic_store(&s->board->rank[s->rank].left, 1);
    while (s->posts) {
        struct nc_post *p = s->posts;
        s->posts = p->next;
        if (p->request) /* a wait without time releases it */
            (void)s->via->wait(s->via_self, p->request, 0, NULL);
        s->host->release(s->host->ctx, p, sizeof *p);
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (s->peer[r].request)
            (void)s->via->wait(s->via_self, s->peer[r].request, 0, NULL);
        s->peer[r].request = NULL;
    }
}

bool nc_meet_is_host(const struct nccl *s, const struct nc_link *l)
{
    return s->rank == (l->group ? 0 : l->from);
}

tsr_status nc_meet_give(struct nccl *s, const struct nc_link *l, const nc_id *id,
                        struct tsr_err *err)
{
    if (!s->board)
        return post_link(s, l, LETTER_ID, id, err);
    struct nc_slot *slot = slot_of(s, l);
    uint32_t        none = 0;
    if (!atomic_compare_exchange_strong(&slot->there, &none, 1))
        return tsr_fail(err, TSR_E_DEVICE,
                        "nccl: rank %u was in this group before; a group that is started again "
                        "needs its own world",
                        s->rank);
    slot->epoch = s->epoch;
    slot->id = *id;
    atomic_store(&slot->there, 2);
    return TSR_OK;
}

tsr_status nc_meet_take(struct nccl *s, const struct nc_link *l, nc_id *id, bool *there,
                        struct tsr_err *err)
{
    *there = false;
    if (!s->board) {
        const struct nc_peer *p = l->group ? NULL : &s->peer[l->from];
        *there = p ? p->has_id : s->has_id;
        if (*there)
            *id = p ? p->id : s->id;
        return TSR_OK;
    }
    const struct nc_slot *slot = slot_of(s, l);
    if (atomic_load(&slot->there) != 2)
        return TSR_OK;
    if (slot->epoch != s->epoch) {
        s->refused++;
        return tsr_fail(err, TSR_E_DEVICE,
                        "nccl: rank %u was called by a rank of epoch %llu, this group is in epoch "
                        "%llu; a process of an earlier run is still there",
                        s->rank, U(slot->epoch), U(s->epoch));
    }
    *id = slot->id;
    *there = true;
    return TSR_OK;
}

void nc_meet_give_up(struct nccl *s, const struct nc_link *l)
{
    uint32_t none = 0;
    if (s->board) {
        (void)atomic_compare_exchange_strong(&slot_of(s, l)->gave_up, &none, s->rank + 1);
    } else { /* without memory for it the others have their deadlines */
        (void)post_link(s, l, LETTER_GAVE_UP, NULL, NULL);
        poll_outgoing(s); /* this may have been the last call for long */
    }
}

bool nc_meet_given_up(const struct nccl *s, const struct nc_link *l)
{
    if (s->board) {
        uint32_t by = atomic_load(&slot_of(s, l)->gave_up);
        return by && by != s->rank + 1;
    }
    if (l->group)
        return s->gave_up;
    return l->from == s->rank ? s->peer[l->to].gave_up_out : s->peer[l->from].gave_up_in;
}

bool nc_meet_left(const struct nccl *s, uint32_t rank)
{
    return s->board ? atomic_load(&s->board->rank[rank].left) != 0 : s->peer[rank].gone;
}

void nc_meet_count(struct nccl *s)
{
    s->collectives++;
    if (s->board)
        atomic_store(&s->board->rank[s->rank].collectives, s->collectives);
}

uint64_t nc_meet_counted(const struct nccl *s, uint32_t rank)
{
    return s->board ? atomic_load(&s->board->rank[rank].collectives) : UINT64_MAX;
}

/* ---- sizes --------------------------------------------------------------------- */

#define BYTES_OF(entry)  ((entry) & ((UINT64_C(1) << 47) - 1))
#define NUMBER_OF(entry) ((entry) >> 48)

/* 16 bits of its number, never 0; whether it is an all-gather; its bytes.  A block has fewer than 2^47. */
static uint64_t entry_of(const struct nc_request *r)
{
    return (r->number % 65535 + 1) << 48 | (uint64_t)(r->kind == NC_GATHER) << 47 | r->bytes;
}

/* Where rank `rank` of the request's link publishes. */
static _Atomic uint64_t *place_of(const struct nccl *s, const struct nc_request *r, uint32_t rank)
{
    uint64_t i = r->number % NC_SIZES;
    return r->link->group ? &s->board->rank[rank].sizes[i]
                          : &slot_of(s, r->link)->sizes[rank == r->link->to][i];
}

static const char *what(uint64_t entry, bool group, bool sender)
{
    return group ? (entry >> 47 & 1 ? "an all-gather" : "an all-to-all")
                 : (sender ? "a message" : "a receive");
}

/* Of two ranks that do this at the same time one sees the other. */
bool nc_meet_agree(struct nccl *s, const struct nc_request *r, struct tsr_err *err)
{
    bool     group = r->link->group, sender = r->kind == NC_SEND;
    uint64_t mine = entry_of(r);
    if (s->board)
        atomic_store(place_of(s, r, s->rank), mine);
    for (uint32_t o = 0; s->board && o < s->ranks; o++) {
        if (o == s->rank || (!group && o != r->link->from && o != r->link->to))
            continue;
        uint64_t theirs = atomic_load(place_of(s, r, o));
        if (theirs == mine || NUMBER_OF(theirs) != NUMBER_OF(mine)) /* not published yet, or
                                                                     * already past */
            continue;
        (void)tsr_fail(err, TSR_E_DEVICE,
                       "nccl: rank %u started %s of %llu bytes where rank %u started %s of %llu; "
                       "all ranks must start the same operations in the same order",
                       s->rank, what(mine, group, sender), U(BYTES_OF(mine)), o,
                       what(theirs, group, !sender), U(BYTES_OF(theirs)));
        return false;
    }
    return true;
}

/* ---- aborts -------------------------------------------------------------------- */

void nc_meet_abort(struct nccl *s)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&s->aborted, &none, s->rank + 1);
    none = 0;
    if (s->board)
        (void)atomic_compare_exchange_strong(&s->board->aborted, &none, s->rank + 1);
    else
        s->via->abort(s->via_self);
}

uint32_t nc_meet_aborted(struct nccl *s)
{
    uint32_t by = s->board ? atomic_load(&s->board->aborted) : 0;
    return by ? by : atomic_load(&s->aborted);
}
