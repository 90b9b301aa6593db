/* conformance/guard.h - the memory behind tsr_guarded() and the test host's alloc(). */
#ifndef TSR_CONFORMANCE_GUARD_H
#define TSR_CONFORMANCE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct tsr_region {
    struct tsr_region *next;
    const char        *name;
    const void        *owner; /* the test host, or NULL */
    char              *map, *user, *pages;
    uint64_t           map_bytes, bytes, page_bytes;
    bool               guard;
};

/* NULL when there is no memory.  What lies around the bytes on their pages holds a pattern. */
struct tsr_region *tsr_region_new(const char *name, uint64_t bytes, uint64_t align, bool guard,
                                  unsigned char fill);
struct tsr_region *tsr_region_find(const void *user);
void               tsr_region_free(struct tsr_region *r);
bool               tsr_region_intact(const struct tsr_region *r);
/* PROT_* of the pages with the bytes; of all regions of one owner. */
void tsr_region_protect(struct tsr_region *r, int protection);
void tsr_regions_protect(const void *owner, int protection);

#endif
