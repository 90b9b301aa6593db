/* link.c - moves the parts of this rank's requests through the rings, checks incoming frames. */
#include "link.h"

#include "tessera/crc32c.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RUN_BYTES 32768u /* copied and summed at once, so that both find it in the first cache */

void local_ring_bell(struct local *s, uint32_t rank)
{
    struct local_bell *b = local_bell_of(s->world, rank);
    atomic_fetch_add(&b->count, 1);
    if (atomic_load(&b->sleeping))
        (void)syscall(SYS_futex, (void *)&b->count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void local_add_part(struct local *s, struct request *r, bool out, uint32_t peer, uint16_t kind,
                    const void *buf, uint64_t bytes)
{
    struct part *p = &r->part[r->n++];
    p->owner = r;
    p->out = out;
    p->peer = peer;
    p->kind = kind;
    p->buf = (unsigned char *)(uintptr_t)buf; /* sending parts are only read */
    p->bytes = bytes;
    struct link *l = local_link_of(s, p);
    if (l->last)
        l->last->next = p;
    else
        l->first = p;
    l->last = p;
    r->open++;
}

__attribute__((format(printf, 3, 4))) static void fail_request(struct request *r, tsr_status st,
                                                               const char *fmt, ...)
{
    if (r->status != TSR_OK)
        return;
    r->status = st;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
}

struct link *local_link_of(struct local *s, const struct part *p)
{
    return p->out ? &s->out[p->peer] : &s->in[p->peer];
}

/* Checks the head of an incoming frame against the request. */
static bool check_head(struct local *s, struct part *p)
{
    struct frame f;
    memcpy(&f, p->head, sizeof f);
    if (f.magic != FRAME_MAGIC ||
        f.crc != tsr_crc32c_by(s->crc_level, 0, p->head, offsetof(struct frame, crc)) ||
        f.from != p->peer || f.to != s->rank || f.sequence != s->in[p->peer].sequence) {
        s->refused++;
        fail_request(p->owner, TSR_E_DEVICE,
                     "local: rank %u received a damaged frame from rank %u (message %llu)", s->rank,
                     p->peer, (unsigned long long)s->in[p->peer].sequence);
        return false;
    }
    if (f.epoch != s->epoch) {
        s->refused++;
        fail_request(p->owner, TSR_E_DEVICE,
                     "local: rank %u received a frame of epoch %llu from rank %u, this group is "
                     "in epoch %llu; a process of an earlier run is still there",
                     s->rank, (unsigned long long)f.epoch, p->peer, (unsigned long long)s->epoch);
        return false;
    }
    if (f.kind != p->kind || f.bytes != p->bytes) {
        static const char *const names[] = { "nothing", "a message", "all_gather", "all_to_all" };
        fail_request(
            p->owner, TSR_E_DEVICE,
            "local: rank %u started %s of %llu bytes where rank %u sent %s of %llu; all ranks "
            "must start the same operations in the same order",
            s->rank, names[p->kind], (unsigned long long)p->bytes, p->peer,
            names[f.kind <= KIND_ALL_TO_ALL ? f.kind : 0], (unsigned long long)f.bytes);
        return false;
    }
    p->start = f.start;
    return true;
}

/* The piece of a frame at position p->at: its address and its remaining length. */
static unsigned char *piece(struct part *p, uint64_t *left)
{
    uint64_t at = p->at, head = sizeof p->head;
    if (at < head) {
        *left = head - at;
        return p->head + at;
    }
    at -= head;
    if (at < p->bytes) {
        *left = p->bytes - at < RUN_BYTES ? p->bytes - at : RUN_BYTES;
        return p->buf + at;
    }
    at -= p->bytes;
    *left = sizeof p->tail - at;
    return p->tail + at;
}

static void start_out(struct local *s, struct link *l, struct part *p)
{
    struct frame f = { .magic = FRAME_MAGIC,
                       .kind = p->kind,
                       .from = (uint16_t)s->rank,
                       .sequence = l->sequence,
                       .bytes = p->bytes,
                       .epoch = s->epoch,
                       .to = p->peer };
    if (s->pace.on && p->peer != s->rank)
        f.start =
            local_pace_start(&s->pace, s->pace.pair ? &l->wire_free : &s->wire_free, p->bytes);
    memcpy(p->head, &f, sizeof f);
    f.crc = tsr_crc32c_by(s->crc_level, 0, p->head, offsetof(struct frame, crc));
    memcpy(p->head, &f, sizeof f);
    p->begun = true;
}

/* Less of a paced message if less of it has arrived; the head's size is trusted for p->owner only. */
static uint64_t paced(const struct local *s, const struct part *p, uint64_t left)
{
    uint64_t head = sizeof p->head;
    if (!s->pace.on || p->out || p->peer == s->rank || p->at < head)
        return left;
    uint64_t now = local_now_ns(), at = p->at - head;
    if (at >= p->bytes) /* the tail: with the last byte, or after the latency of an empty message */
        return local_pace_left(&s->pace, p->start, p->bytes, now) ? 0 : left;
    uint64_t there = local_pace_there(&s->pace, p->start, p->bytes, now);
    return there - at < left ? there - at : left;
}

/* Bookkeeping after `moved` bytes of payload or a complete head. False: the part has failed. */
static bool moved_on(struct local *s, struct part *p, const unsigned char *from, uint64_t moved)
{
    uint64_t before = p->at, head = sizeof p->head;
    p->at += moved;
    if (before >= head && before < head + p->bytes) {
        if (!p->summed)
            p->crc = tsr_crc32c_by(s->crc_level, p->crc, from, moved);
        if (p->peer != s->rank)
            *(p->out ? &s->sent : &s->received) += moved;
    }
    if (!p->out && before < head && p->at == head && !check_head(s, p))
        return false;
    if (p->out && p->at == head + p->bytes)
        memcpy(p->tail, &p->crc, sizeof p->crc);
    if (!p->out && p->at == head + p->bytes + sizeof p->tail &&
        memcmp(p->tail, &p->crc, sizeof p->crc) != 0) {
        s->refused++;
        fail_request(
            p->owner, TSR_E_DEVICE,
            "local: rank %u received damaged bytes from rank %u (message %llu, CRC differs)",
            s->rank, p->peer, (unsigned long long)s->in[p->peer].sequence);
        return false;
    }
    return true;
}

/* Moves the available bytes of the first part of a link. True: it has finished (or failed). */
static bool pump_part(struct local *s, struct link *l, struct part *p)
{
    bool     gone = atomic_load(&local_bell_of(s->world, p->peer)->left) != 0, any = false;
    bool     held = false;
    uint64_t end = sizeof p->head + p->bytes + sizeof p->tail;
    if (p->out && !p->begun) /* once: the ring may have no room for its first byte */
        start_out(s, l, p);
    while (p->at < end) {
        uint64_t       left, moved;
        unsigned char *at = piece(p, &left);
        uint64_t       whole = left;
        left = paced(s, p, left);
        held = left < whole;
        bool ok = p->out ? local_ring_put(l->ring, s->capacity, &l->at, at, left, &moved)
                         : local_ring_take(l->ring, s->capacity, &l->at, at, left, &moved);
        if (!ok) {
            fail_request(p->owner, TSR_E_DEVICE,
                         "local: the ring between rank %u and rank %u is damaged", s->rank,
                         p->peer);
            l->broken = true;
            return true;
        }
        if (moved == 0)
            break;
        any = true;
        if (!moved_on(s, p, at, moved)) {
            l->broken = true;
            local_ring_bell(s, p->peer);
            return true;
        }
    }
    if (any)
        local_ring_bell(s, p->peer);
    if (p->at == end) {
        l->sequence++;
        return true;
    }
    if (gone && !held) { /* read before the last poll of the ring, so nothing more will arrive */
        fail_request(p->owner, TSR_E_DEVICE,
                     "local: rank %u has left the group with %llu of %llu bytes %s", p->peer,
                     (unsigned long long)p->at, (unsigned long long)end, p->out ? "taken" : "sent");
        l->broken = true;
        return true;
    }
    return false;
}

void local_pump_link(struct local *s, struct link *l)
{
    while (l->first) {
        struct part *p = l->first;
        if (l->broken)
            fail_request(p->owner, TSR_E_DEVICE,
                         "local: an earlier message between rank %u and rank %u has failed",
                         s->rank, p->peer);
        else if (!pump_part(s, l, p))
            return;
        l->first = p->next;
        if (!l->first)
            l->last = NULL;
        p->done = true;
        p->owner->open--;
    }
}

void local_pump(struct local *s)
{
    for (uint32_t i = 0; i < s->ranks; i++) {
        local_pump_link(s, &s->out[i]);
        local_pump_link(s, &s->in[i]);
    }
}

/* Removes an unfinished part from its link; a started one leaves half a frame on the link. */
static void withdraw(struct local *s, struct part *p)
{
    struct link  *l = local_link_of(s, p);
    struct part **link = &l->first, *before = NULL;
    while (*link != p) {
        before = *link;
        link = &before->next;
    }
    *link = p->next;
    if (l->last == p)
        l->last = before;
    if (p->at > 0)
        l->broken = true;
}

void local_release_request(struct local *s, struct request *r)
{
    bool begun = false;
    for (uint32_t i = 0; i < r->n; i++)
        begun = begun || r->part[i].at > 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->part[i].done)
            continue;
        withdraw(s, &r->part[i]);
        /* half a collective cannot be repeated: the peers would disagree about the next message */
        if (begun)
            local_link_of(s, &r->part[i])->broken = true;
    }
    if (r->prev)
        r->prev->next = r->next;
    else
        s->requests = r->next;
    if (r->next)
        r->next->prev = r->prev;
    s->n_requests--;
    s->host->release(s->host->ctx, r, r->bytes);
}
