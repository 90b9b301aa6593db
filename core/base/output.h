/* base/output.h - everything that the program writes to disk.
 *
 * A file or folder is built next to its destination under a hidden name, ".NAME.<8 hex digits>.part".  It
 * is renamed to the final name when it is complete and synced.  The writer holds the lock of the final
 * name, ".NAME.lock", from the first byte until then; a second command on the same output fails with an
 * error.  A killed run leaves both files but no lock; the next run on that output removes them.  Nothing
 * else in the program opens for writing, creates, renames or removes files (tests/unit/writes.sh).
 *
 * If the final name is a symbolic link, the link is replaced and its target stays unchanged; a link to a
 * device or pipe is written through.  Functions are [any]; an object is used by one thread at a time.
 */
#ifndef TSR_BASE_OUTPUT_H
#define TSR_BASE_OUTPUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* ---- one lock for one output ---------------------------------------------------------- */

/* The folder of an output, held open, and the lock of its name in it. */
struct tsr_output_lock;
/* Waits up to a second, because the processes of a killed run end a little later.  TSR_E_INPUT names
 * the output and, if the system reports it, the process that holds the lock.  A file system without
 * locks is accepted: part names are unique there too. */
tsr_status tsr_output_lock(struct tsr_output_lock **l, const char *path, struct tsr_err *err);
void       tsr_output_unlock(struct tsr_output_lock *l); /* NULL is allowed */
/* Locks the content of a folder as long as *fd is open; tsr_held_close() closes it.  Creates the folder if it
 * does not exist. */
tsr_status tsr_output_lock_folder(int *fd, const char *path, struct tsr_err *err);

/* ---- files ---------------------------------------------------------------------------- */

/* A file written sequentially.  A device or a pipe, such as /dev/null, is written in place; a FIFO
 * without a reader is an error.  Errors are sticky; commit reports the first.
 *   tsr_writer_open(&w, path, err);  tsr_writer_put(&w, p, n); ... tsr_writer_commit(&w, err);
 * tsr_writer_abort() removes the part file; it is a no-op after commit and on a zeroed writer. */
struct tsr_writer {
    FILE                   *file;        /* that has no fileno() */
    int                     fd;          /* under it */
    char                   *path, *part; /* part NULL: written in place */
    int                     error;       /* first errno, 0 if none */
    bool                    fresh;       /* PATH must not be there, now and at the end */
    struct tsr_output_lock *lock;
};
tsr_status tsr_writer_open(struct tsr_writer *w, const char *path, struct tsr_err *err);
/* Never in the place of something that is there: TSR_E_INPUT. */
tsr_status tsr_writer_open_fresh(struct tsr_writer *w, const char *path, struct tsr_err *err);
void       tsr_writer_put(struct tsr_writer *w, const void *data, uint64_t bytes);
void       tsr_writer_printf(struct tsr_writer *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
tsr_status tsr_writer_commit(struct tsr_writer *w, struct tsr_err *err);
void       tsr_writer_abort(struct tsr_writer *w);

/* A whole file by one call, of a path or of a name in a folder. */
tsr_status tsr_file_store(const char *path, const void *data, uint64_t bytes, struct tsr_err *err);
tsr_status tsr_file_store_in(const char *folder, const char *name, const void *data, uint64_t bytes,
                             struct tsr_err *err);
/* Removes a file that is no longer needed; a missing file is not an error. */
tsr_status tsr_output_remove(const char *path, struct tsr_err *err);

/* For files that control their own write order (batch/io.h): 0 or an errno.  Opens regular files only,
 * follows no link and never blocks; `flags` are open()'s.  tsr_held_close() closes it. */
int tsr_output_open(const char *path, int flags, int *fd);
int tsr_output_rename(const char *from, const char *to);
int tsr_output_cut(int fd, uint64_t bytes);
/* The temporary name of this kind of file: hidden, next to `path`, made unique by `n`.  The next
 * tsr_output_lock() of `path` removes a leftover one.  Fresh memory. */
char *tsr_output_part_name(const char *path, uint32_t n);
/* Syncs the folder that holds `path`. */
int tsr_output_sync_folder(const char *path);

/* ---- folders -------------------------------------------------------------------------- */

/* mkdir -p.  Created folders are recorded until the command ends.  Removes the hidden files that
 * killed runs left in the folder: a resumed run does not rewrite complete files, so their locks would
 * stay forever. */
tsr_status tsr_make_dirs(const char *path, struct tsr_err *err);
/* After a failed command: removes the folders created for it if they are empty. */
void tsr_output_unmake(void);

/* A folder that appears when it is whole. */
struct tsr_output_folder {
    char                   *path, *part; /* part: folder of its files until commit */
    bool                    replace;
    struct tsr_output_lock *lock;
};
/* With `replace` a folder of files that has the name already is removed at the end; else the name must
 * be free. */
tsr_status tsr_output_folder_begin(struct tsr_output_folder *f, const char *path, bool replace,
                                   struct tsr_err *err);
tsr_status tsr_output_folder_commit(struct tsr_output_folder *f, struct tsr_err *err);
void       tsr_output_folder_abort(struct tsr_output_folder *f); /* no-op after commit */

/* A new folder for files that end with the command, /tmp/tessera-WHAT-XXXXXX; *path is fresh memory. */
tsr_status tsr_temp_folder(char **path, const char *what, struct tsr_err *err);
/* Removes the folder recursively, and frees the path; NULL is allowed. */
void tsr_temp_folder_remove(char *path);

#endif
