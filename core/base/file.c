#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t mtime_ns(const struct stat *st)
{
    return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

tsr_status tsr_file_open(struct tsr_file *f, const char *path, struct tsr_err *err)
{
    memset(f, 0, sizeof *f);
    f->fd = -1;
    /* O_NONBLOCK: a FIFO must not hang the open; it means nothing for files */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
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
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    f->dev = (uint64_t)st.st_dev;
    f->ino = (uint64_t)st.st_ino;
    f->mtime_ns = mtime_ns(&st);
    return TSR_OK;
}

tsr_status tsr_file_open_in(struct tsr_file *f, const char *dir, const char *name, bool follow,
                            struct tsr_err *err)
{
    f->fd = -1;
    f->path = NULL;
    if (*name == '\0' || strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: file name \"%s\" leads out of the folder", dir,
                        name);
    char *path = tsr_path_join(dir, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(name), name);
    struct stat st;
    if (!follow && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        char *real = realpath(path, NULL), *base = realpath(dir, NULL);
        bool  inside =
            real && base && strncmp(real, base, strlen(base)) == 0 && real[strlen(base)] == '/';
        free(real);
        free(base);
        if (!inside) {
            tsr_status s =
                tsr_fail(err, TSR_E_INPUT, "%s: is a symbolic link out of its folder", path);
            free(path);
            return s;
        }
    }
    tsr_status s = tsr_file_open(f, path, err);
    free(path);
    return s;
}

tsr_status tsr_file_read(const struct tsr_file *f, uint64_t offset, void *dst, uint64_t bytes,
                         struct tsr_err *err)
{
    unsigned char *p = dst;
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
    if (fstat(f->fd, &st) != 0)
        return tsr_fail_errno(err, errno, f->path, "stat");
    if ((uint64_t)st.st_size != f->size || mtime_ns(&st) != f->mtime_ns ||
        (uint64_t)st.st_ino != f->ino)
        return tsr_fail(err, TSR_E_INPUT, "%s: changed while it was read; run again", f->path);
    return TSR_OK;
}

void tsr_file_close(struct tsr_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    f->fd = -1;
    f->path = NULL;
}

tsr_status tsr_file_slurp(const char *path, uint64_t cap, char **data, uint64_t *len,
                          struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, path, err));
    tsr_status st = TSR_OK;
    char      *p = NULL;
    if (f.size > cap) {
        st = tsr_fail(err, TSR_E_INPUT, "%s: %llu bytes, more than the limit of %llu", path,
                      (unsigned long long)f.size, (unsigned long long)cap);
    } else if (!(p = tsr_new(f.size + 1, 1))) {
        st = tsr_fail_nomem(err, f.size + 1, path);
    } else {
        st = tsr_file_read(&f, 0, p, f.size, err);
        if (st == TSR_OK)
            st = tsr_file_unchanged(&f, err);
    }
    if (st == TSR_OK) {
        *data = p;
        *len = f.size;
    } else {
        free(p);
    }
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

bool tsr_file_begins(const char *path, const char *magic, uint64_t bytes)
{
    struct stat st;
    char        have[16];
    if (!tsr_path_exists(path) || bytes > sizeof have)
        return false;
    if (stat(path, &st) != 0)
        return true;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < bytes)
        return false;
    int     fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t got = fd >= 0 ? pread(fd, have, bytes, 0) : -1;
    if (fd >= 0)
        (void)close(fd);
    return got < 0 || ((uint64_t)got == bytes && memcmp(have, magic, bytes) == 0);
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

tsr_status tsr_make_dirs(const char *path, struct tsr_err *err)
{
    char *p = tsr_strdup(path);
    if (!p)
        return tsr_fail_nomem(err, strlen(path), path);
    tsr_status st = TSR_OK;
    for (char *s = p + 1; st == TSR_OK; s++) {
        char c = *s;
        if (c != '/' && c != '\0')
            continue;
        *s = '\0';
        if (mkdir(p, 0777) != 0 && errno != EEXIST)
            st = tsr_fail_errno(err, errno, p, "create folder");
        *s = c;
        if (c == '\0')
            break;
    }
    if (st == TSR_OK && !tsr_path_is_dir(path))
        st = tsr_fail(err, TSR_E_INPUT, "%s: exists and is not a folder", path);
    free(p);
    return st;
}

tsr_status tsr_writer_open(struct tsr_writer *w, const char *path, struct tsr_err *err)
{
    struct stat s;
    bool        in_place = stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
    memset(w, 0, sizeof *w);
    w->path = tsr_strdup(path);
    if (w->path && !in_place)
        w->part = tsr_new(strlen(path) + 6, 1);
    if (!w->path || (!w->part && !in_place)) {
        tsr_writer_abort(w);
        return tsr_fail_nomem(err, strlen(path), path);
    }
    if (w->part)
        (void)sprintf(w->part, "%s.part", path);
    int fd = in_place ? open(path, O_WRONLY | O_CLOEXEC)
                      : open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0)
        w->file = fdopen(fd, "w");
    if (!w->file) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        tsr_status st = in_place ? tsr_fail_errno(err, e, path, "open")
                                 : tsr_fail_errno(err, e, w->part, "create");
        if (fd < 0) { /* what stands there is not ours to remove */
            free(w->part);
            w->part = NULL;
        }
        tsr_writer_abort(w);
        return st;
    }
    return TSR_OK;
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

static int sync_dir(const char *path)
{
    char *dir = tsr_path_dir(path);
    if (!dir)
        return ENOMEM;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), e = 0;
    free(dir);
    if (fd < 0)
        return errno;
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: a file system that needs no sync */
        e = errno;
    if (close(fd) != 0 && !e)
        e = errno;
    return e;
}

tsr_status tsr_writer_commit(struct tsr_writer *w, struct tsr_err *err)
{
    int e = w->error;
    if (fflush(w->file) != 0 && !e)
        e = errno;
    if (!e && fsync(fileno(w->file)) != 0 && errno != EINVAL)
        e = errno;
    if (fclose(w->file) != 0 && !e)
        e = errno;
    w->file = NULL;
    if (!e && w->part && rename(w->part, w->path) != 0)
        e = errno;
    if (!e && w->part)
        e = sync_dir(w->path);
    tsr_status st = e ? tsr_fail_errno(err, e, w->path, "write") : TSR_OK;
    if (!e) {
        free(w->part);
        w->part = NULL;
    }
    tsr_writer_abort(w);
    return st;
}

void tsr_writer_abort(struct tsr_writer *w)
{
    if (w->file)
        (void)fclose(w->file);
    if (w->part && w->path)
        (void)unlink(w->part);
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
        (void)close(s->fd);
    s->data = NULL;
    s->fd = -1;
    s->bytes = 0;
}
