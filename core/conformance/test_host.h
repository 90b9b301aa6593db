/* conformance/test_host.h - a host table that counts, fails on demand and watches. */
#ifndef TSR_CONFORMANCE_TEST_HOST_H
#define TSR_CONFORMANCE_TEST_HOST_H

#include "conformance/guard.h"
#include "tessera/plugin.h"

#include <stdbool.h>

/* What a plugin can get wrong with its host; misuse[] keeps the first of each. */
enum tsr_host_misuse {
    TSR_CONFORMANCE_MISUSE_ALLOC,   /* alignment is not a power of two */
    TSR_CONFORMANCE_MISUSE_OVERRUN, /* bytes outside the memory were written; detected on release */
    TSR_CONFORMANCE_MISUSE_RELEASE, /* wrong size, foreign pointer or double release */
    TSR_CONFORMANCE_MISUSE_LOG, /* NULL, empty, control characters, a level that does not exist */
    TSR_CONFORMANCE_MISUSES
};

struct tsr_conformance_test_host {
    struct tsr_host        table; /* complete; table.ctx is this struct */
    const struct tsr_host *give;  /* argument of create(): &table, or a rule's own table */
    /* set by a rule before the call */
    uint64_t      fail_alloc; /* the alloc() that makes `allocs` this number gives NULL; 0: none */
    unsigned char fill;       /* content of fresh memory; 0xA5 */
    bool          guard;      /* memory ends at an inaccessible page; else there is room around */
    uint32_t      workers;    /* parallel_for: 1 (in the caller), or so many threads */
    /* cancelled() turns true when the process has used this much processor time since
     * tsr_conformance_test_host_start() (so a loaded machine changes nothing), 0: never; or at once by
     * cancel. */
    uint64_t    cancel_after_ms;
    _Atomic int cancel;
    bool        no_services; /* service() returns nothing; else "tessera.linalg/1" */
    /* counted */
    _Atomic uint64_t allocs, live, live_bytes, logged, asked; /* asked: calls of cancelled() */
    char             misuse[TSR_CONFORMANCE_MISUSES][256];    /* sentences; "" : none */
    uint64_t         started_ns, stopped_ns;                  /* its own */
};

void tsr_conformance_test_host_init(struct tsr_conformance_test_host *h, uint32_t workers);
/* The clock of cancel_after_ms starts. */
void tsr_conformance_test_host_start(struct tsr_conformance_test_host *h);
/* It stops: what follows, such as destroy(), is not the call that was to return. */
void tsr_conformance_test_host_stop(struct tsr_conformance_test_host *h);
/* Milliseconds of processor time since cancelled() first became true; 0 before. */
double tsr_conformance_test_host_late_ms(const struct tsr_conformance_test_host *h);
/* What the plugin holds through alloc() can only be read (and written again). */
void tsr_conformance_test_host_protect(struct tsr_conformance_test_host *h, bool read_only);

#endif
