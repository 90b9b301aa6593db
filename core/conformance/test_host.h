/* conformance/test_host.h - a host table that counts, fails on demand and watches; and buffers
 * with an end that can be felt. */
#ifndef TSR_CONFORMANCE_TEST_HOST_H
#define TSR_CONFORMANCE_TEST_HOST_H

#include "tessera/plugin.h"

#include <stdbool.h>

/* What a plugin can get wrong with its host; misuse[] keeps the first of each. */
enum tsr_host_misuse {
    TSR_MISUSE_ALLOC,   /* alignment that is no power of two */
    TSR_MISUSE_OVERRUN, /* bytes beside the memory were written; seen when it is released */
    TSR_MISUSE_RELEASE, /* another size than was asked for, a foreign pointer, or twice */
    TSR_MISUSE_LOG,     /* NULL, empty, control characters, a level that does not exist */
    TSR_MISUSES
};

struct tsr_test_host {
    struct tsr_host        table; /* complete; table.ctx is this struct */
    const struct tsr_host *give;  /* what create() gets: &table, or one that a rule made */
    /* set by a rule before the call */
    uint64_t      fail_alloc; /* the alloc() that makes `allocs` this number gives NULL; 0: none */
    unsigned char fill;       /* what fresh memory holds; 0xA5 */
    bool          guard;      /* memory ends at an inaccessible page; else there is room around */
    uint32_t      workers;    /* parallel_for: 1 (in the caller), or so many threads */
    /* cancelled() turns true when the process has used so much processor time since
     * tsr_test_host_start() (a loaded machine changes nothing), 0: never; or at once by cancel. */
    uint64_t    cancel_after_ms;
    _Atomic int cancel;
    bool        no_services; /* service() knows nothing; else "tessera.linalg/1" */
    /* counted */
    _Atomic uint64_t allocs, live, live_bytes, logged, asked; /* asked: calls of cancelled() */
    char             misuse[TSR_MISUSES][256];                /* sentences; "" : none */
    uint64_t         started_ns;                              /* its own */
};

void tsr_test_host_init(struct tsr_test_host *h, uint32_t workers);
/* The clock of cancel_after_ms starts. */
void tsr_test_host_start(struct tsr_test_host *h);
/* Milliseconds of processor time since cancelled() could first have said so; 0 before. */
double tsr_test_host_late_ms(const struct tsr_test_host *h);
/* What the plugin holds through alloc() can only be read (and written again). */
void tsr_test_host_protect(struct tsr_test_host *h, bool read_only);

/* A buffer of exactly `bytes` bytes, aligned to 64, filled with `fill`, with an inaccessible page
 * in front and one behind: up to 63 bytes of padding before the latter hold a pattern that
 * tsr_guarded_intact() checks, none where bytes is a multiple of 64.  name ("codes") is static
 * and appears in what is said about a crash.  Ends the process when there is no memory. */
void *tsr_guarded(const char *name, uint64_t bytes, unsigned char fill);
/* The same with a page of ordinary memory in front and behind, for the rules that are not about
 * overruns; tsr_guarded_intact() knows these too. */
void *tsr_roomy(const char *name, uint64_t bytes, unsigned char fill);
bool  tsr_guarded_intact(const void *p);
/* From now on the buffer (and the rest of its pages) can only be read, or not even that. */
void tsr_guarded_protect(void *p, bool readable);
/* Only needed where a rule makes many. */
void tsr_guarded_free(void *p);

/* For the crash handler: "14 bytes behind codes (512 bytes)", or false if no buffer is near. */
bool tsr_guarded_describe(const void *address, char *buf, size_t cap);

#endif
