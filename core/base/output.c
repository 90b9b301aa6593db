/* Output files: they have a temporary name until they are complete. */
#include "base/output_internal.h"

#include "base/file.h"
#include "base/held.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREATE (O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)

/* ---- files written in place ---------------------------------------------------------- */

/* The number of this process's descriptor that the path refers to, such as /dev/stdout; -1: none.
 * For a redirected file only the descriptor has the file offset. */
static int descriptor_of(const char *path)
{
    char own[64], *real = NULL, *dir = tsr_path_dir(path), *end;
    long n = -1;
    if (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0)
        n = strcmp(path, "/dev/stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO;
    else if (dir && (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0))
        real = realpath(dir, NULL);
    (void)snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    const char *name = strrchr(path, '/');
    if (real && name && strcmp(real, own) == 0) {
        n = strtol(name + 1, &end, 10);
        n = *end || end == name + 1 || n > 1 << 20 ? -1 : n;
    }
    free(real);
    free(dir);
    return (int)n;
}

static const char *kind_of(mode_t mode)
{
    return S_ISFIFO(mode) ? "FIFO" : S_ISSOCK(mode) ? "socket" : "device";
}

/* The device or pipe, without waiting for its other end. */
static tsr_status open_special(int *fd, const char *path, mode_t mode, struct tsr_err *err)
{
    struct stat st;
    *fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (*fd < 0 && errno == ENXIO)
        return tsr_fail(err, TSR_E_INPUT, "%s: is a %s that nobody reads; start its reader first",
                        path, kind_of(mode));
    if (*fd < 0)
        return tsr_fail_errno(err, errno, path, "open");
    int  flags = fcntl(*fd, F_GETFL);
    bool same = fstat(*fd, &st) == 0 && !S_ISREG(st.st_mode);
    /* from here on a write may wait for the reader */
    if (same && flags >= 0 && fcntl(*fd, F_SETFL, flags & ~O_NONBLOCK) == 0)
        return TSR_OK;
    int e = errno;
    (void)close(*fd);
    return same ? tsr_fail_errno(err, e, path, "open")
                : tsr_fail(err, TSR_E_INPUT, "%s: changed while it was opened; run again", path);
}

/* *fd >= 0: there is nothing to publish. */
static tsr_status open_in_place(int *fd, const char *path, struct tsr_err *err)
{
    struct stat st;
    int         own = descriptor_of(path);
    *fd = -1;
    if (own >= 0) {
        *fd = fcntl(own, F_DUPFD_CLOEXEC, 3);
        return *fd < 0 ? tsr_fail_errno(err, errno, path, "open") : TSR_OK;
    }
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        return TSR_OK;
    if (S_ISDIR(st.st_mode))
        return tsr_fail(err, TSR_E_INPUT, "%s: is a folder; name a file", path);
    return open_special(fd, path, st.st_mode, err);
}

/* ---- the part file ---------------------------------------------------------------------- */

static tsr_status taken(const char *path, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: exists already; remove it, or name another place for the output", path);
}

static tsr_status open_part(struct tsr_writer *w, int *fd, struct tsr_err *err)
{
    char name[TSR_OUTPUT_PART_NAME];
    TSR_TRY(tsr_output_lock(&w->lock, w->path, err));
    if (w->fresh && tsr_output_is_taken(w->lock))
        return taken(w->path, err);
    for (int i = 0; i < 100; i++) {
        tsr_output_part_new(w->lock, name);
        *fd = openat(w->lock->dir, name, CREATE, 0666);
        if (*fd >= 0 || errno != EEXIST)
            break;
    }
    if (*fd < 0)
        return tsr_fail_errno(err, errno, w->path, "create");
    w->part = tsr_output_beside(w->path, name);
    if (w->part)
        return TSR_OK;
    (void)unlinkat(w->lock->dir, name, 0);
    return tsr_fail_nomem(err, strlen(w->path), w->path);
}

static const char *part_name(const struct tsr_writer *w)
{
    const char *slash = strrchr(w->part, '/');
    return slash ? slash + 1 : w->part;
}

/* ---- the stream ------------------------------------------------------------------------- */

/* Stream functions over a descriptor that tsr_held_check() checks before every use: buffered data never
 * goes to a file that has reused the number. */
static int fd_of(void *cookie)
{
    return (int)(intptr_t)cookie;
}

/* 0: failed, with errno set. */
static ssize_t stream_write(void *cookie, const char *data, size_t bytes)
{
    size_t done = 0;
    errno = tsr_held_check(fd_of(cookie));
    while (!errno && done < bytes) {
        ssize_t n = write(fd_of(cookie), data + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            errno = EIO;
        if (n > 0 || errno == EINTR)
            errno = 0;
    }
    return errno ? 0 : (ssize_t)bytes;
}

static int stream_seek(void *cookie, off64_t *at, int whence)
{
    int e = tsr_held_check(fd_of(cookie));
    if (e) {
        errno = e;
        return -1;
    }
    *at = lseek(fd_of(cookie), *at, whence);
    return *at < 0 ? -1 : 0;
}

static int stream_close(void *cookie)
{
    int e = tsr_held_close(fd_of(cookie));
    if (e)
        errno = e;
    return e ? EOF : 0;
}

/* The stream owns the descriptor. */
static FILE *open_stream(int fd, const char *name)
{
    static const cookie_io_functions_t functions = { .write = stream_write,
                                                     .seek = stream_seek,
                                                     .close = stream_close };
    FILE                              *f = fopencookie((void *)(intptr_t)fd, "w", functions);
    if (f) {
        tsr_held_add(fd, name);
        if (isatty(fd))
            (void)setvbuf(f, NULL, _IOLBF, 0);
    }
    return f;
}

static tsr_status open_any(struct tsr_writer *w, const char *path, bool fresh, struct tsr_err *err)
{
    int fd = -1;
    memset(w, 0, sizeof *w);
    w->fresh = fresh;
    w->path = tsr_strdup(path);
    tsr_status st =
        w->path ? open_in_place(&fd, path, err) : tsr_fail_nomem(err, strlen(path), path);
    if (st == TSR_OK && fd < 0)
        st = open_part(w, &fd, err);
    if (st == TSR_OK) {
        w->file = open_stream(fd, path);
        w->fd = fd;
        if (!w->file)
            st = tsr_fail_errno(err, errno, path, "create");
    }
    if (st != TSR_OK) {
        if (fd >= 0)
            (void)close(fd);
        tsr_writer_abort(w);
    }
    return st;
}

tsr_status tsr_writer_open(struct tsr_writer *w, const char *path, struct tsr_err *err)
{
    return open_any(w, path, false, err);
}

tsr_status tsr_writer_open_fresh(struct tsr_writer *w, const char *path, struct tsr_err *err)
{
    return open_any(w, path, true, err);
}

void tsr_writer_put(struct tsr_writer *w, const void *data, uint64_t bytes)
{
    if (w->error || bytes == 0)
        return;
    if (fwrite(data, 1, bytes, w->file) != bytes)
        w->error = errno ? errno : EIO;
}

void tsr_writer_printf(struct tsr_writer *w, const char *fmt, ...)
{
    if (w->error)
        return;
    va_list ap;
    va_start(ap, fmt);
    if (vfprintf(w->file, fmt, ap) < 0)
        w->error = errno ? errno : EIO;
    va_end(ap);
}

tsr_status tsr_writer_commit(struct tsr_writer *w, struct tsr_err *err)
{
    int e = w->error;
    if (fflush(w->file) != 0 && !e)
        e = errno;
    if (!e)
        e = tsr_held_check(w->fd);
    if (!e && fsync(w->fd) != 0 && errno != EINVAL)
        e = errno;
    /* compares once more: the part file contains everything that was written and nothing else */
    if (fclose(w->file) != 0 && !e)
        e = errno;
    w->file = NULL;
    if (!e && w->part)
        e = tsr_output_take_name(w->lock, part_name(w), w->fresh);
    if (!e && w->part) {
        free(w->part); /* it has its name now */
        w->part = NULL;
        e = tsr_output_sync_dir(w->lock->dir);
    }
    tsr_status st = e == EEXIST ? taken(w->path, err)
                    : e         ? tsr_fail_errno(err, e, w->path, "write")
                                : TSR_OK;
    tsr_writer_abort(w);
    return st;
}

void tsr_writer_abort(struct tsr_writer *w)
{
    if (w->file)
        (void)fclose(w->file);
    if (w->part)
        w->lock->keep = tsr_output_check(w->lock) || unlinkat(w->lock->dir, part_name(w), 0) != 0;
    tsr_output_unlock(w->lock);
    free(w->part);
    free(w->path);
    memset(w, 0, sizeof *w);
}

tsr_status tsr_file_store(const char *path, const void *data, uint64_t bytes, struct tsr_err *err)
{
    struct tsr_writer w;
    TSR_TRY(tsr_writer_open(&w, path, err));
    tsr_writer_put(&w, data, bytes);
    return tsr_writer_commit(&w, err);
}

tsr_status tsr_file_store_in(const char *folder, const char *name, const void *data, uint64_t bytes,
                             struct tsr_err *err)
{
    char *path = tsr_path_join(folder, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(folder), folder);
    tsr_status st = tsr_file_store(path, data, bytes, err);
    free(path);
    return st;
}

tsr_status tsr_output_remove(const char *path, struct tsr_err *err)
{
    return unlink(path) != 0 && errno != ENOENT ? tsr_fail_errno(err, errno, path, "remove")
                                                : TSR_OK;
}

/* ---- files that control their own write order ------------------------------------------ */

int tsr_output_open(const char *path, int flags, int *out)
{
    struct stat st;
    int         fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0)
        return errno;
    int e = fstat(fd, &st) != 0 ? errno : !S_ISREG(st.st_mode) ? EINVAL : 0;
    if (e) {
        (void)close(fd);
        return e;
    }
    tsr_held_add(fd, path);
    *out = fd;
    return 0;
}

int tsr_output_rename(const char *from, const char *to)
{
    return rename(from, to) == 0 ? 0 : errno;
}

int tsr_output_cut(int fd, uint64_t bytes)
{
    int e = tsr_held_check(fd);
    if (e)
        return e;
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
}

int tsr_output_sync_folder(const char *path)
{
    char *dir = tsr_path_dir(path);
    if (!dir)
        return ENOMEM;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), e = fd < 0 ? errno : 0;
    free(dir);
    if (fd < 0)
        return e;
    e = tsr_output_sync_dir(fd);
    if (close(fd) != 0 && !e)
        e = errno;
    return e;
}
