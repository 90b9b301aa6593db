/* The lock of a final name, and the step to it. */
#include "base/output_internal.h"

#include "base/held.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- the lock holder ------------------------------------------------------------------------ */

/* The process that holds a lock of the file, 0 if the system does not report it. */
static long holder(int fd)
{
    struct stat   st;
    char          line[256];
    long          pid = 0;
    unsigned      major, minor;
    unsigned long ino;
    FILE         *f = fopen("/proc/locks", "re");
    if (!f)
        return 0;
    if (fstat(fd, &st) != 0)
        st.st_ino = 0;
    while (fgets(line, sizeof line, f)) { /* "1: FLOCK  ADVISORY  WRITE 123 08:01:4567 0 EOF" */
        char *at = strstr(line, " FLOCK "), *word, *end;
        if (!at || strstr(line, "->") || !(word = strstr(at, " WRITE ")))
            continue;
        long one = strtol(word + 7, &end, 10);
        if (*end != ' ')
            continue;
        major = (unsigned)strtoul(end + 1, &end, 16);
        minor = *end == ':' ? (unsigned)strtoul(end + 1, &end, 16) : 0;
        ino = *end == ':' ? strtoul(end + 1, NULL, 10) : 0;
        if (ino == st.st_ino && major == major(st.st_dev) && minor == minor(st.st_dev))
            pid = one;
    }
    (void)fclose(f);
    return pid > 0 ? pid : 0;
}

tsr_status tsr_output_refuse(int fd, const char *path, const char *what, struct tsr_err *err)
{
    char who[40] = "";
    long pid = holder(fd);
    if (pid)
        (void)snprintf(who, sizeof who, " (process %ld)", pid);
    return tsr_fail(err, TSR_E_INPUT, "%s: another tessera%s %s", path, who, what);
}

int tsr_output_try_lock(int fd, bool *have)
{
    *have = flock(fd, LOCK_EX | LOCK_NB) == 0;
    return !*have && errno == EWOULDBLOCK ? EWOULDBLOCK : 0;
}

/* ---- the lock of a name ------------------------------------------------------------------ */

/* The existing lock file or a new one; *old: it existed. */
static int open_lock(const struct tsr_output_lock *l, int *fd, bool *old)
{
    const int   flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat st;
    *old = false;
    *fd = openat(l->dir, l->lock_name, flags | O_RDWR | O_CREAT | O_EXCL, 0666);
    if (*fd >= 0)
        return 0;
    if (errno != EEXIST)
        return errno;
    *old = true;
    *fd = openat(l->dir, l->lock_name, flags | O_RDWR);
    if (*fd < 0 && errno == EACCES) /* another user's */
        *fd = openat(l->dir, l->lock_name, flags | O_RDONLY);
    if (*fd < 0)
        return errno;
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
        return 0;
    (void)close(*fd);
    return EINVAL;
}

/* Whether the name still refers to the open file: its last holder removes it. */
static bool is_current(const struct tsr_output_lock *l, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(l->dir, l->lock_name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static tsr_status take(struct tsr_output_lock *l, const char *path, struct tsr_err *err)
{
    for (int i = 0;;) {
        bool old, have;
        int  fd, e = open_lock(l, &fd, &old);
        if (e == ENOENT && old)
            continue; /* it went between the two looks */
        if (e == EINVAL || e == ELOOP || e == ENXIO)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: '%s' next to it is not a lock file of Tessera's; remove it", path,
                            l->lock_name);
        if (e)
            return tsr_fail_errno(err, e, path, "create");
        e = tsr_output_try_lock(fd, &have);
        if (!e && have && !is_current(l, fd)) {
            (void)close(fd);
            continue;
        }
        if (!e) {
            if (have && old)
                tsr_output_sweep(l->dir, l->stem);
            if (have) {
                l->fd = fd;
                tsr_held_add(fd, path);
                return TSR_OK;
            }
            (void)unlinkat(l->dir, l->lock_name, 0);
            (void)close(fd);
            return TSR_OK;
        }
        if (++i == TSR_OUTPUT_TRIES) {
            tsr_status st =
                tsr_output_refuse(fd, path, "is writing it; wait for it, or name another output",
                                  err);
            (void)close(fd);
            return st;
        }
        (void)close(fd);
        (void)poll(NULL, 0, 10);
    }
}

static tsr_status open_place(struct tsr_output_lock *l, const char *path, size_t n,
                             struct tsr_err *err)
{
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    const char *name = path + from;
    size_t      len = n - from;
    if (len == 0 || (len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a name for an output", path);
    if (len > NAME_MAX)
        return tsr_fail_errno(err, ENAMETOOLONG, path, "create");
    memcpy(l->name, name, len);
    l->name[len] = '\0';
    tsr_output_stem(l->stem, l->name, len);
    (void)snprintf(l->lock_name, sizeof l->lock_name, "%s.lock", l->stem);
    char *dir = from ? tsr_strndup(path, from) : tsr_strdup(".");
    if (!dir)
        return tsr_fail_nomem(err, from + 1, path);
    l->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int e = errno;
    free(dir);
    if (l->dir < 0)
        return tsr_fail_errno(err, e, path, "create");
    tsr_held_add(l->dir, path);
    return TSR_OK;
}

tsr_status tsr_output_lock(struct tsr_output_lock **out, const char *path, struct tsr_err *err)
{
    struct tsr_output_lock *l = tsr_new(1, sizeof *l);
    size_t                  n = strlen(path);
    *out = NULL;
    if (!l)
        return tsr_fail_nomem(err, sizeof *l, path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    l->dir = l->fd = -1;
    tsr_status st = open_place(l, path, n, err);
    if (st == TSR_OK)
        st = take(l, path, err);
    if (st != TSR_OK) {
        tsr_output_unlock(l);
        return st;
    }
    *out = l;
    return TSR_OK;
}

int tsr_output_check(const struct tsr_output_lock *l)
{
    int e = tsr_held_check(l->dir);
    return e || l->fd < 0 ? e : tsr_held_check(l->fd);
}

void tsr_output_unlock(struct tsr_output_lock *l)
{
    if (!l)
        return;
    if (l->fd >= 0) {
        if (!l->keep && tsr_output_check(l) == 0)
            (void)unlinkat(l->dir, l->lock_name, 0);
        (void)tsr_held_close(l->fd);
    }
    if (l->dir >= 0)
        (void)tsr_held_close(l->dir);
    free(l);
}

bool tsr_output_is_taken(const struct tsr_output_lock *l)
{
    struct stat st;
    return fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int tsr_output_take_name(const struct tsr_output_lock *l, const char *from, bool fresh)
{
    int e = tsr_output_check(l);
    if (e)
        return e;
    if (!fresh)
        return renameat(l->dir, from, l->dir, l->name) == 0 ? 0 : errno;
    if (renameat2(l->dir, from, l->dir, l->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* a file system without that flag */
    if (tsr_output_is_taken(l))
        return EEXIST;
    return renameat(l->dir, from, l->dir, l->name) == 0 ? 0 : errno;
}

/* ---- what killed runs left in a folder ------------------------------------------------------ */

static void settle_one(int at, const char *name, const void *unused)
{
    const size_t n = strlen(name), end = strlen(".lock");
    char         stem[NAME_MAX + 1];
    struct stat  a, b;
    bool         have;
    (void)unused;
    if (name[0] != '.' || n <= end + 1 || strcmp(name + n - end, ".lock") != 0)
        return;
    int fd = openat(at, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return;
    if (fstat(fd, &a) == 0 && S_ISREG(a.st_mode) && a.st_size == 0 &&
        !tsr_output_try_lock(fd, &have) && have &&
        fstatat(at, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino) {
        (void)snprintf(stem, sizeof stem, "%.*s", (int)(n - end), name);
        tsr_output_sweep(at, stem);
        (void)unlinkat(at, name, 0);
    }
    (void)close(fd);
}

void tsr_output_settle(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    tsr_output_each_name(fd, settle_one, NULL);
    (void)close(fd);
}
