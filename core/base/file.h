/* base/file.h - reads files; output.h writes them.
 *
 * Only regular files: a FIFO, device or directory is rejected before it can block.  Foreign data is
 * copied into memory and never mapped, so that a file that shrinks causes an error and not a
 * SIGBUS.
 */
#ifndef TSR_BASE_FILE_H
#define TSR_BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* A file open for reading, with its fstat data. */
struct tsr_file {
    int      fd;
    uint64_t size;
    uint64_t dev, ino, mtime_ns;
    uint64_t ctime_ns; /* when content, times or name changed last: no program sets it back */
    char    *path;     /* for messages; owned */
};

/* Opens a regular file.  [any] */
tsr_status tsr_file_open(struct tsr_file *f, const char *path, struct tsr_err *err);
/* The same for `name` from the open folder `dir`; path is for messages.  Without follow, a name that is
 * a symbolic link is TSR_E_INPUT.  Files of a model folder: checkpoint/safetensors/folder.h. */
tsr_status tsr_file_open_as(struct tsr_file *f, int dir, const char *name, const char *path,
                            bool follow, struct tsr_err *err);
/* Exactly [offset, offset+bytes), or an error; short files are "ends at byte N". */
tsr_status tsr_file_read(const struct tsr_file *f, uint64_t offset, void *dst, uint64_t bytes,
                         struct tsr_err *err);
/* TSR_E_INPUT "changed while it was read" when size, device, inode, mtime or ctime differ from open.
 * Linux sets ctime with every change, also through a map and before a `touch -r`. */
tsr_status tsr_file_unchanged(const struct tsr_file *f, struct tsr_err *err);
void       tsr_file_close(struct tsr_file *f);

/* The whole of a small file as a NUL-terminated block of *len bytes, freed by the
 * caller; larger than cap is TSR_E_INPUT naming the cap. */
tsr_status tsr_file_slurp(const char *path, uint64_t cap, char **data, uint64_t *len,
                          struct tsr_err *err);

/* The same for a file that is open. */
tsr_status tsr_file_all(const struct tsr_file *f, uint64_t cap, char **data, uint64_t *len,
                        struct tsr_err *err);

/* False if the file certainly does not exist.  A name that cannot be examined (EACCES, EIO, no memory) counts
 * as existing: opening it then reports the reason, and nothing is skipped silently. */
bool tsr_path_exists(const char *path);
/* The first bytes of a regular file; zeros after its end and for a missing file.  An unreadable file is
 * TSR_E_IO or TSR_E_NOMEM.  [any] */
#define TSR_FILE_FIRST 16
tsr_status tsr_file_first(const char *path, char first[TSR_FILE_FIRST], struct tsr_err *err);
/* Whether a regular file begins with these bytes, 16 at most.  One that cannot be read does, for the same reason. */
bool tsr_file_begins(const char *path, const char *magic, uint64_t bytes);
bool tsr_path_is_dir(const char *path);
/* dir + "/" + name in fresh memory; name alone if it is absolute or dir is NULL or "". */
char *tsr_path_join(const char *dir, const char *name);
/* Folder of a path ("." if none), fresh memory. */
char *tsr_path_dir(const char *path);

/* Read-only memory of `bytes` bytes in a sealed memfd: filled once, then immutable for every
 * holder, also for other processes that get the fd. */
struct tsr_sealed {
    int      fd;
    void    *data; /* writable until tsr_sealed_seal() */
    uint64_t bytes;
};
tsr_status tsr_sealed_create(struct tsr_sealed *s, uint64_t bytes, const char *what,
                             struct tsr_err *err);
tsr_status tsr_sealed_seal(struct tsr_sealed *s, struct tsr_err *err);
void       tsr_sealed_destroy(struct tsr_sealed *s);

#endif
