/* ring.h - the memory that the ranks of a local group share: one ring of bytes for each
 * ordered pair of ranks, one writer and one reader each, no locks.
 *
 * Zeroed memory is a valid start.  Each side keeps its own position privately and believes the
 * other's only within the ring's size, so a broken peer can spoil a message but not memory. */
#ifndef TSR_COMM_LOCAL_RING_H
#define TSR_COMM_LOCAL_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LOCAL_MAX_RANKS 1024u

struct local_world {
    _Atomic uint32_t aborted; /* 1 + the rank that aborted the group */
    uint32_t         pad0;
    _Atomic uint64_t capacity; /* bytes of a ring, set by the first rank */
    unsigned char    pad[48];
};

/* Where a rank sleeps. */
struct local_bell {
    _Atomic uint32_t count; /* futex: grows with every event for this rank */
    _Atomic uint32_t sleeping;
    _Atomic uint32_t left; /* the rank has left; its rings hold its last bytes */
    _Atomic uint32_t cpu;  /* 1 + where the rank ran when it last waited; 0: unknown */
    unsigned char    pad[48];
};

struct local_ring {
    _Atomic uint64_t written; /* all bytes written so far */
    unsigned char    pad0[56];
    _Atomic uint64_t taken; /* all bytes read so far */
    unsigned char    pad1[56];
    /* capacity bytes follow */
};

static inline uint64_t local_world_bytes(uint32_t ranks, uint64_t capacity)
{
    return sizeof(struct local_world) + ranks * sizeof(struct local_bell) +
           (uint64_t)ranks * ranks * (sizeof(struct local_ring) + capacity);
}

static inline struct local_bell *local_bell_of(struct local_world *w, uint32_t rank)
{
    return (struct local_bell *)(w + 1) + rank;
}

static inline struct local_ring *local_ring_of(struct local_world *w, uint32_t ranks,
                                               uint64_t capacity, uint32_t from, uint32_t to)
{
    unsigned char *base = (unsigned char *)local_bell_of(w, ranks);
    return (void *)(base + ((uint64_t)from * ranks + to) * (sizeof(struct local_ring) + capacity));
}

/* Copies up to n bytes in; at is the writer's own position.  False: the reader's position is
 * impossible. */
static inline bool local_ring_put(struct local_ring *r, uint64_t capacity, uint64_t *at,
                                  const void *src, uint64_t n, uint64_t *moved)
{
    uint64_t used = *at - atomic_load_explicit(&r->taken, memory_order_acquire);
    *moved = 0;
    if (used > capacity)
        return false;
    if (n > capacity - used)
        n = capacity - used;
    if (n == 0)
        return true;
    unsigned char *data = (unsigned char *)(r + 1);
    uint64_t       i = *at % capacity, first = n < capacity - i ? n : capacity - i;
    memcpy(data + i, src, first);
    memcpy(data, (const unsigned char *)src + first, n - first);
    *at += n;
    *moved = n;
    atomic_store_explicit(&r->written, *at, memory_order_release);
    return true;
}

/* Copies up to n bytes out; at is the reader's own position. */
static inline bool local_ring_take(struct local_ring *r, uint64_t capacity, uint64_t *at, void *dst,
                                   uint64_t n, uint64_t *moved)
{
    uint64_t there = atomic_load_explicit(&r->written, memory_order_acquire) - *at;
    *moved = 0;
    if (there > capacity)
        return false;
    if (n > there)
        n = there;
    if (n == 0)
        return true;
    const unsigned char *data = (const unsigned char *)(r + 1);
    uint64_t             i = *at % capacity, first = n < capacity - i ? n : capacity - i;
    memcpy(dst, data + i, first);
    memcpy((unsigned char *)dst + first, data, n - first);
    *at += n;
    *moved = n;
    atomic_store_explicit(&r->taken, *at, memory_order_release);
    return true;
}

#endif
