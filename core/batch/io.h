/* batch/io.h - the few file operations of a batch job, as a function table, so that a simulated
 * disk can fail or crash at each of them.
 *
 * Every function returns 0 or an errno.  Files are small numbers from open().
 */
#ifndef TSR_BATCH_IO_H
#define TSR_BATCH_IO_H

#include "base/err.h"

#include <stdbool.h>

enum tsr_io_how {
    TSR_BATCH_IO_READ,   /* an existing regular file */
    TSR_BATCH_IO_APPEND, /* read, and write at the end; made if missing */
    TSR_BATCH_IO_UPDATE, /* read, and write at any place; made if missing */
    TSR_BATCH_IO_NEW,    /* written from the start; old content is discarded */
};

struct tsr_batch_io {
    void *ctx;
    int (*open)(void *ctx, const char *path, enum tsr_io_how how, int *file);
    int (*size)(void *ctx, int file, uint64_t *bytes);
    /* *got < bytes only at the end of the file */
    int (*read)(void *ctx, int file, uint64_t at, void *dst, uint64_t bytes, uint64_t *got);
    /* At `at`, or at the end for APPEND.  May write less than asked, but at least one byte. */
    int (*write)(void *ctx, int file, uint64_t at, const void *src, uint64_t bytes, uint64_t *put);
    int (*truncate)(void *ctx, int file, uint64_t bytes);
    int (*sync)(void *ctx, int file); /* bytes and size are on the disk when it returns */
    /* Asynchronous sync: sync_begin() returns immediately; sync_end() returns the result, or EAGAIN
     * if the sync is still running and `wait` is false.  At most one at a time. */
    int (*sync_begin)(void *ctx, int file);
    int (*sync_end)(void *ctx, int file, bool wait);
    int (*close)(void *ctx, int file);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*sync_folder)(void *ctx, const char *path); /* that holds `path` */
    /* An exclusive lock until close; EWOULDBLOCK: another process holds it. */
    int (*lock)(void *ctx, int file);
};

/* The system's own.  Journal files are not followed through a link. */
extern const struct tsr_batch_io tsr_io_system;

/* All bytes, or an errno. */
int tsr_batch_io_put(const struct tsr_batch_io *io, int file, uint64_t at, const void *src,
                     uint64_t bytes);

#endif
