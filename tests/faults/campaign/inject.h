/* What the campaign and its preloaded library share: a file that both map. */
#ifndef FAULTS_INJECT_H
#define FAULTS_INJECT_H

#include <stdatomic.h>
#include <stdint.h>

/* Classes of calls that are counted together. */
enum inject_class {
    INJECT_WRITE, /* write, pwrite, fwrite, fflush, fclose; but for stderr */
    INJECT_SYNC,
    INJECT_OPEN,
    INJECT_RENAME,
    INJECT_MAP,
    INJECT_READ,
    INJECT_MAKE, /* mkdir, ftruncate, posix_fallocate */
    INJECT_UNLINK,
    INJECT_SPAWN, /* fork, posix_spawn, pthread_create, pipe, memfd_create */
    INJECT_ALLOC, /* malloc and its family */
    INJECT_CLASSES
};

#define INJECT_KILL (-1) /* instead of an errno: SIGKILL to the process that calls */

struct inject_state {
    atomic_ulong count[INJECT_CLASSES]; /* calls of all processes of the run so far */
    atomic_ulong hits;                  /* faults that happened */
    uint32_t     which;                 /* class that fails */
    uint32_t     from;                  /* every later call fails, too */
    uint64_t     at;                    /* the call that fails, from 1; 0: none */
    int32_t      error;                 /* errno or INJECT_KILL */
};

#endif
