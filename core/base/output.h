/* base/output.h - everything that the program writes to disk.
 *
 * A file or folder is built under a hidden name of its own next to its place, ".NAME.<8 hex digits>.part",
 * and gets its name when it is whole and synced.  Whoever builds it holds the lock of the final name,
 * ".NAME.lock", from the first byte until then: a second command on the same output is refused by one
 * sentence.  A run that was killed leaves both files and no lock; the next one on that output removes them.
 * Nothing else in the program opens for writing, creates, renames or removes (tests/unit/writes.sh).
 *
 * A final name that is a symbolic link is replaced, and what it leads to stays as it is; but a link to a
 * device or pipe is written through.  Functions are [any], an object is used by one thread at a time.
 */
#ifndef TSR_BASE_OUTPUT_H
#define TSR_BASE_OUTPUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* ---- one lock for one output ---------------------------------------------------------- */

/* The folder of an output, held open, and the lock of its name in it. */
struct tsr_output_lock;
/* Waits up to a second, since the processes of a killed run end a little later.  TSR_E_INPUT names the
 * output and, where the system tells, the process that holds it.  A file system without locks is no
 * reason to refuse: names are unique there as well. */
tsr_status tsr_output_lock(struct tsr_output_lock **l, const char *path, struct tsr_err *err);
void       tsr_output_unlock(struct tsr_output_lock *l); /* NULL is fine */
/* The same for what a folder holds, as long as *fd is open.  The folder is made if it is not there. */
tsr_status tsr_output_lock_folder(int *fd, const char *path, struct tsr_err *err);

/* ---- files ---------------------------------------------------------------------------- */

/* A file that is written from its beginning to its end.  A device or a pipe, such as /dev/null, is
 * written as it is and stays what it is; a FIFO that nobody reads is refused.  Errors are sticky; commit
 * reports the first.
 *   tsr_writer_open(&w, path, err);  tsr_writer_put(&w, p, n); ... tsr_writer_commit(&w, err);
 * tsr_writer_abort() removes the part file; it is a no-op after commit and on a zeroed writer. */
struct tsr_writer {
    FILE                   *file;
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
/* A file that is no longer needed; that it is not there is fine. */
tsr_status tsr_output_remove(const char *path, struct tsr_err *err);

/* For files with an order of writes of their own (batch/io.h): 0 or an errno.  Opens a regular file and
 * nothing else, follows no link and never blocks; `flags` are open()'s. */
int tsr_output_open(const char *path, int flags, int *fd);
int tsr_output_rename(const char *from, const char *to);
int tsr_output_cut(int fd, uint64_t bytes);
/* The name of such a file while it is written: hidden, next to `path`, and told from others by `n`; one
 * that is left over is removed by the next tsr_output_lock() of `path`.  Fresh memory. */
char *tsr_output_part_name(const char *path, uint32_t n);
/* Syncs the folder that holds `path`. */
int tsr_output_sync_folder(const char *path);

/* ---- folders -------------------------------------------------------------------------- */

/* mkdir -p.  What it made is remembered until the command ends.  Hidden files that killed runs left in
 * the folder go: who resumes does not write again what is whole, and its lock would stay for ever. */
tsr_status tsr_make_dirs(const char *path, struct tsr_err *err);
/* A command failed: the folders that were made for it go again where nothing is in them. */
void tsr_output_unmake(void);

/* A folder that appears when it is whole. */
struct tsr_output_folder {
    char                   *path, *part; /* part: where its files go until commit */
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
/* Removes it with all that is in it, and frees the path; NULL is fine. */
void tsr_temp_folder_remove(char *path);

#endif
