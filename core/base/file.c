#include "base/file.h"

#include "base/held.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

tsr_status tsr_file_open_as(struct tsr_file *f, int dir, const char *name, const char *path,
                            bool follow, struct tsr_err *err)
{
    memset(f, 0, sizeof *f);
    f->fd = -1;
    /* O_NONBLOCK: a FIFO must not hang the open; it means nothing for files */
    int fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0)
        return tsr_fail_errno(err, errno, path, "open");
    struct stat st;
    if (fstat(fd, &st) != 0) {
        int e = errno;
        close(fd);
        return tsr_fail_errno(err, e, path, "stat");
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return tsr_fail(err, TSR_E_INPUT, "%s: is a %s, not a regular file", path,
                        S_ISDIR(st.st_mode)    ? "folder"
                        : S_ISFIFO(st.st_mode) ? "FIFO"
                                               : "device or socket");
    }
    f->path = tsr_strdup(path);
    if (!f->path) {
        close(fd);
        return tsr_fail_nomem(err, strlen(path) + 1, path);
    }
    tsr_held_add(fd, path);
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    f->dev = (uint64_t)st.st_dev;
    f->ino = (uint64_t)st.st_ino;
    f->mtime_ns = ns(&st.st_mtim);
    f->ctime_ns = ns(&st.st_ctim);
    return TSR_OK;
}

tsr_status tsr_file_open(struct tsr_file *f, const char *path, struct tsr_err *err)
{
    return tsr_file_open_as(f, AT_FDCWD, path, path, true, err);
}

tsr_status tsr_file_read(const struct tsr_file *f, uint64_t offset, void *dst, uint64_t bytes,
                         struct tsr_err *err)
{
    unsigned char *p = dst;
    int            e = bytes > 0 ? tsr_held_check(f->fd) : 0;
    if (e)
        return tsr_fail_errno(err, e, f->path, "read");
    while (bytes > 0) {
        size_t  want = bytes > (64u << 20) ? (64u << 20) : (size_t)bytes;
        ssize_t n = pread(f->fd, p, want, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tsr_fail_errno(err, errno, f->path, "read");
        if (n == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: ends at byte %llu, %llu more were expected",
                            f->path, (unsigned long long)offset, (unsigned long long)bytes);
        p += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return TSR_OK;
}

tsr_status tsr_file_unchanged(const struct tsr_file *f, struct tsr_err *err)
{
    struct stat st;
    int         e = tsr_held_check(f->fd);
    if (e)
        return tsr_fail_errno(err, e, f->path, "read");
    if (fstat(f->fd, &st) != 0)
        return tsr_fail_errno(err, errno, f->path, "stat");
    if ((uint64_t)st.st_size != f->size || ns(&st.st_mtim) != f->mtime_ns ||
        ns(&st.st_ctim) != f->ctime_ns || (uint64_t)st.st_ino != f->ino ||
        (uint64_t)st.st_dev != f->dev)
        return tsr_fail(err, TSR_E_INPUT, "%s: changed while it was read; run again", f->path);
    return TSR_OK;
}

void tsr_file_close(struct tsr_file *f)
{
    if (f->fd >= 0)
        (void)tsr_held_close(f->fd);
    free(f->path);
    f->fd = -1;
    f->path = NULL;
}

tsr_status tsr_file_all(const struct tsr_file *f, uint64_t cap, char **data, uint64_t *len,
                        struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    char      *p = NULL;
    if (f->size > cap) {
        st = tsr_fail(err, TSR_E_INPUT, "%s: %llu bytes, more than the limit of %llu", f->path,
                      (unsigned long long)f->size, (unsigned long long)cap);
    } else if (!(p = tsr_new(f->size + 1, 1))) {
        st = tsr_fail_nomem(err, f->size + 1, f->path);
    } else {
        st = tsr_file_read(f, 0, p, f->size, err);
        if (st == TSR_OK)
            st = tsr_file_unchanged(f, err);
    }
    if (st != TSR_OK) {
        free(p);
        return st;
    }
    *data = p;
    *len = f->size;
    return TSR_OK;
}

tsr_status tsr_file_slurp(const char *path, uint64_t cap, char **data, uint64_t *len,
                          struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, path, err));
    tsr_status st = tsr_file_all(&f, cap, data, len, err);
    tsr_file_close(&f);
    return st;
}

bool tsr_path_exists(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        return true;
    switch (errno) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
        return false;
    default:
        return true;
    }
}

tsr_status tsr_file_first(const char *path, char first[TSR_FILE_FIRST], struct tsr_err *err)
{
    struct stat st;
    memset(first, 0, TSR_FILE_FIRST);
    if (stat(path, &st) != 0)
        return tsr_path_exists(path) ? tsr_fail_errno(err, errno, path, "stat") : TSR_OK;
    if (!S_ISREG(st.st_mode))
        return TSR_OK;
    int     fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t got = fd >= 0 ? pread(fd, first, TSR_FILE_FIRST, 0) : -1;
    int     why = errno;
    if (fd >= 0)
        (void)close(fd);
    return got < 0 ? tsr_fail_errno(err, why, path, fd < 0 ? "open" : "read") : TSR_OK;
}

bool tsr_file_begins(const char *path, const char *magic, uint64_t bytes)
{
    char first[TSR_FILE_FIRST];
    return tsr_file_first(path, first, NULL) != TSR_OK || memcmp(first, magic, bytes) == 0;
}

bool tsr_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *tsr_path_join(const char *dir, const char *name)
{
    if (!dir || !*dir || *name == '/')
        return tsr_strdup(name);
    size_t a = strlen(dir), b = strlen(name);
    char  *p = malloc(a + b + 2);
    if (!p)
        return NULL;
    memcpy(p, dir, a);
    if (dir[a - 1] != '/')
        p[a++] = '/';
    memcpy(p + a, name, b + 1);
    return p;
}

char *tsr_path_dir(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return tsr_strdup(".");
    return tsr_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

tsr_status tsr_sealed_create(struct tsr_sealed *s, uint64_t bytes, const char *what,
                             struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->bytes = bytes;
    if (bytes == 0)
        return TSR_OK;
    if (bytes > INT64_MAX)
        return tsr_fail_nomem(err, bytes, what);
    s->fd = memfd_create("tessera", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0)
        return tsr_fail_errno(err, errno, what, "create shared memory");
    tsr_held_add(s->fd, what);
    /* fallocate, so that running out of memory is an error here and not a SIGBUS later */
    int e = ftruncate(s->fd, (off_t)bytes) != 0 ? errno : posix_fallocate(s->fd, 0, (off_t)bytes);
    if (e == 0) {
        s->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
        if (s->data == MAP_FAILED) {
            e = errno;
            s->data = NULL;
        }
    }
    if (e != 0) {
        tsr_sealed_destroy(s);
        return tsr_fail_nomem(err, bytes, what);
    }
    return TSR_OK;
}

tsr_status tsr_sealed_seal(struct tsr_sealed *s, struct tsr_err *err)
{
    if (s->bytes == 0)
        return TSR_OK;
    (void)munmap(s->data, s->bytes);
    s->data = NULL;
    int e = tsr_held_check(s->fd);
    if (e)
        return tsr_fail_errno(err, e, "shared memory", "seal");
    if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
        return tsr_fail(err, TSR_E_IO, "cannot seal shared memory: %s", strerror(errno));
    s->data = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, s->fd, 0);
    if (s->data == MAP_FAILED) {
        s->data = NULL;
        return tsr_fail_nomem(err, s->bytes, "a view on sealed memory");
    }
    return TSR_OK;
}

void tsr_sealed_destroy(struct tsr_sealed *s)
{
    if (s->data)
        (void)munmap(s->data, s->bytes);
    if (s->fd >= 0 && s->bytes)
        (void)tsr_held_close(s->fd);
    s->data = NULL;
    s->fd = -1;
    s->bytes = 0;
}
