/* conformance/guard.h - buffers that detect overruns, and the memory of them and of the test host's
 * alloc(). */
#ifndef TSR_CONFORMANCE_GUARD_H
#define TSR_CONFORMANCE_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tsr_conformance_region {
    struct tsr_conformance_region *next;
    const char                    *name;
    const void                    *owner; /* the test host, or NULL */
    char                          *map, *user, *pages;
    uint64_t                       map_bytes, bytes, page_bytes;
    bool                           guard;
};

/* NULL when out of memory. A pattern fills the rest of the pages around the bytes. */
struct tsr_conformance_region *tsr_conformance_region_new(const char *name, uint64_t bytes,
                                                          uint64_t align, bool guard,
                                                          unsigned char fill);
struct tsr_conformance_region *tsr_conformance_region_find(const void *user);
void                           tsr_conformance_region_free(struct tsr_conformance_region *r);
bool tsr_conformance_region_intact(const struct tsr_conformance_region *r);
/* PROT_* of the pages with the bytes, of all regions of one owner. */
void tsr_conformance_regions_protect(const void *owner, int protection);

/* A buffer of exactly `bytes` bytes, aligned to 64, filled with `fill`, with an inaccessible page before
 * and after it. Up to 63 bytes of padding before the second page hold a pattern that
 * tsr_conformance_guarded_intact() checks; there is none if bytes is a multiple of 64. name ("codes") is
 * static and appears in crash messages. Ends the process when out of memory. */
void *tsr_conformance_guarded(const char *name, uint64_t bytes, unsigned char fill);
/* The same with a page of ordinary memory before and after, for the rules that do not test overruns;
 * tsr_conformance_guarded_intact() checks these too. */
void *tsr_conformance_roomy(const char *name, uint64_t bytes, unsigned char fill);
bool  tsr_conformance_guarded_intact(const void *p);
/* From now on the buffer (and the rest of its pages) can only be read, or not even that. */
void tsr_conformance_guarded_protect(void *p, bool readable);
/* Only needed where a rule makes many. */
void tsr_conformance_guarded_free(void *p);

/* For the crash handler: "14 bytes before codes (512 bytes)", or false if no buffer is near. */
bool tsr_conformance_guarded_describe(const void *address, char *buf, size_t cap);

#endif
