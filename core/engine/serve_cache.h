/* engine/serve_cache.h - what the slots of a server keep in the cache of keys and values when their requests are over.
 *
 *   choose a slot for a prompt -> take what it has of the prompt -> the request runs -> keep its ids
 *
 * Only a pass with rewind() has such a cache, and only bits that a prompt without it would have are taken.  Its size is
 * that of the slots.
 */
#ifndef TSR_ENGINE_SERVE_CACHE_H
#define TSR_ENGINE_SERVE_CACHE_H

#include "engine/serve_internal.h"

struct tsr_engine_serve_held {
    struct tsr_tokenizer_ids
             ids;  /* in the slot's cache while no request has it; none: it is empty */
    uint64_t last; /* when a request left it */
};
struct tsr_engine_serve_cache {
    struct tsr_engine_serve_held *held; /* [pass.slots]; NULL: a pass without rewind() */
    uint64_t                      now, reused;
};

/* A free slot: the one with the most of the prompt; where that is less than half of what it has, rather an empty one;
 * else the one that was left first.  There is one. */
uint32_t tsr_engine_serve_cache_choose(const struct tsr_engine_serve_cache   *c,
                                       const struct tsr_engine_pass          *p,
                                       const struct tsr_engine_serve_slot    *slots,
                                       const struct tsr_engine_serve_request *q);
/* Leaves in the slot what it has of the prompt; how many ids that are. */
uint64_t tsr_engine_serve_cache_take(struct tsr_engine_serve_cache *c,
                                     const struct tsr_engine_pass *p, uint32_t slot,
                                     const struct tsr_engine_serve_request *q);
/* The request of the slot is over.  Takes its ids up to what the slot has. */
void tsr_engine_serve_cache_keep(struct tsr_engine_serve_cache *c, const struct tsr_engine_pass *p,
                                 uint32_t slot, struct tsr_engine_serve_slot *s);
void tsr_engine_serve_cache_free(struct tsr_engine_serve_cache *c, uint32_t slots);

#endif
