/* Folders out: made as needed, locked, built next to their place, or for the time of a command. */
#include "base/output_internal.h"

#include "base/file.h"
#include "base/held.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders on the way ------------------------------------------------------------------ */

/* Folders created by this process; a failed command removes the empty ones. */
static struct {
    pthread_mutex_t lock;
    char          **paths;
    uint64_t        n;
} made = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* If there is no memory for a path, it is left in place. */
static void remember(const char *path)
{
    char *p = realpath(path, NULL);
    (void)pthread_mutex_lock(&made.lock);
    char **v = p ? tsr_renew(made.paths, made.n + 1, sizeof *v) : NULL;
    if (v) {
        made.paths = v;
        v[made.n++] = p;
    } else {
        free(p);
    }
    (void)pthread_mutex_unlock(&made.lock);
}

/* Those with something in them stay in the list: it may go yet. */
void tsr_output_unmake(void)
{
    uint64_t kept = 0;
    (void)pthread_mutex_lock(&made.lock);
    for (uint64_t i = made.n; i-- > 0;) /* inner ones first */
        if (rmdir(made.paths[i]) == 0 || (errno != ENOTEMPTY && errno != EEXIST)) {
            free(made.paths[i]);
            made.paths[i] = NULL;
        }
    for (uint64_t i = 0; i < made.n; i++)
        if (made.paths[i])
            made.paths[kept++] = made.paths[i];
    made.n = kept;
    (void)pthread_mutex_unlock(&made.lock);
}

/* Another command works in the folder: it is not this one's to take back. */
static void leave_alone(const char *path)
{
    char *p = realpath(path, NULL);
    (void)pthread_mutex_lock(&made.lock);
    for (uint64_t i = 0; i < made.n; i++)
        if (!p || strcmp(made.paths[i], p) == 0) {
            free(made.paths[i]);
            made.paths[i--] = made.paths[--made.n];
        }
    (void)pthread_mutex_unlock(&made.lock);
    free(p);
}

/* 0 or an errno with the end of the path that it is about. */
static int make_each(char *path, size_t *at)
{
    for (char *s = path + 1;; s++) {
        char c = *s;
        if (c != '/' && c != '\0')
            continue;
        *s = '\0';
        int e = mkdir(path, 0777) == 0 ? 0 : errno;
        if (!e)
            remember(path);
        *s = c;
        *at = (size_t)(s - path);
        if (e && e != EEXIST)
            return e;
        if (c == '\0')
            return 0;
    }
}

tsr_status tsr_make_dirs(const char *path, struct tsr_err *err)
{
    char  *p = tsr_strdup(path);
    size_t at = 0;
    if (!p)
        return tsr_fail_nomem(err, strlen(path), path);
    /* an empty parent folder may belong to another command, which may remove it meanwhile */
    int e = ENOENT;
    for (int i = 0; i < 4 && e == ENOENT && *p; i++)
        e = make_each(p, &at);
    p[at] = '\0';
    tsr_status st = e ? tsr_fail_errno(err, e, p, "create folder") : TSR_OK;
    if (st == TSR_OK && !tsr_path_is_dir(path))
        st = tsr_fail(err, TSR_E_INPUT, "%s: exists and is not a folder", path);
    if (st == TSR_OK)
        tsr_output_settle(path);
    free(p);
    return st;
}

/* ---- the lock of a folder ------------------------------------------------------------------ */

/* Whether `path` still leads to the folder that is open. */
static bool is_there(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* 0 or an errno; EAGAIN: it was removed meanwhile. */
static int lock_once(int *out, const char *path)
{
    bool have;
    int  fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? EAGAIN : errno;
    int e = tsr_output_try_lock(fd, &have);
    for (int i = 1; i < TSR_OUTPUT_TRIES && e; i++) {
        (void)poll(NULL, 0, 10);
        e = tsr_output_try_lock(fd, &have);
    }
    *out = fd;
    if (!e && !is_there(fd, path))
        e = EAGAIN;
    return e;
}

tsr_status tsr_output_lock_folder(int *fd, const char *path, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    int        e = EAGAIN;
    *fd = -1;
    for (int i = 0; i < 4 && e == EAGAIN; i++) { /* a command that failed takes its folder back */
        if (*fd >= 0)
            (void)close(*fd);
        *fd = -1;
        TSR_TRY(tsr_make_dirs(path, err));
        e = lock_once(fd, path);
    }
    if (!e) {
        tsr_held_add(*fd, path);
        return TSR_OK;
    }
    if (e == EWOULDBLOCK && *fd >= 0) {
        leave_alone(path);
        st =
            tsr_output_refuse(*fd, path, "works in this folder; wait for it, or name another", err);
    } else {
        st = tsr_fail_errno(err, e, path, "open");
    }
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
    return st;
}

/* ---- a folder that appears when it is whole -------------------------------------------------- */

static tsr_status in_the_way(const char *path, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: exists already; remove it, or name another place for the output", path);
}

/* Only a folder of files is taken for one that an earlier run left. */
static tsr_status check_old(const struct tsr_output_folder *f, struct tsr_err *err)
{
    struct stat st;
    int fd = openat(f->lock->dir, f->lock->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return TSR_OK;
    if (fd < 0)
        return in_the_way(f->path, err);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int e = errno;
        (void)close(fd);
        return tsr_fail_errno(err, e, f->path, "open");
    }
    tsr_status s = TSR_OK;
    for (struct dirent *e; s == TSR_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode)))
            s = tsr_fail(err, TSR_E_INPUT,
                         "%s: holds '%s', which no export left there; move the folder away",
                         f->path, e->d_name);
    (void)closedir(dir);
    return s;
}

static tsr_status make_part(struct tsr_output_folder *f, struct tsr_err *err)
{
    char        name[TSR_OUTPUT_PART_NAME];
    struct stat st;
    int         e = EEXIST;
    if (f->replace)
        TSR_TRY(check_old(f, err));
    else if (fstatat(f->lock->dir, f->lock->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return in_the_way(f->path, err);
    for (int i = 0; i < 100 && e == EEXIST; i++) {
        tsr_output_part_new(f->lock, name);
        e = mkdirat(f->lock->dir, name, 0777) == 0 ? 0 : errno;
    }
    if (e)
        return tsr_fail_errno(err, e, f->path, "create folder");
    f->part = tsr_output_beside(f->path, name);
    if (f->part)
        return TSR_OK;
    (void)unlinkat(f->lock->dir, name, AT_REMOVEDIR);
    return tsr_fail_nomem(err, strlen(f->path), f->path);
}

tsr_status tsr_output_folder_begin(struct tsr_output_folder *f, const char *path, bool replace,
                                   struct tsr_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    *f = (struct tsr_output_folder){ .path = tsr_strndup(path, n), .replace = replace };
    char      *dir = f->path ? tsr_path_dir(f->path) : NULL;
    tsr_status st = dir ? tsr_make_dirs(dir, err) : tsr_fail_nomem(err, n + 1, path);
    free(dir);
    if (st == TSR_OK)
        st = tsr_output_lock(&f->lock, f->path, err);
    if (st == TSR_OK)
        st = make_part(f, err);
    if (st != TSR_OK)
        tsr_output_folder_abort(f);
    return st;
}

static const char *part_name(const struct tsr_output_folder *f)
{
    const char *slash = strrchr(f->part, '/');
    return slash ? slash + 1 : f->part;
}

/* 0 or an errno.  After an exchange the part is the old folder. */
static int give_name(const struct tsr_output_folder *f, bool *moved)
{
    const struct tsr_output_lock *l = f->lock;
    const char                   *part = part_name(f);
    struct stat                   st;
    *moved = false;
    int e = tsr_output_take_name(l, part, true);
    if (e != EEXIST || !f->replace || fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return e;
    *moved = true;
    if (renameat2(l->dir, part, l->dir, l->name, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    *moved = false; /* a file system without that flag */
    tsr_output_wipe(l->dir, l->name);
    return tsr_output_take_name(l, part, true);
}

static int sync_part(const struct tsr_output_folder *f)
{
    int e = tsr_output_check(f->lock);
    if (e)
        return e;
    int fd = openat(f->lock->dir, part_name(f), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    e = tsr_output_sync_dir(fd);
    if (close(fd) != 0 && !e)
        e = errno;
    return e;
}

tsr_status tsr_output_folder_commit(struct tsr_output_folder *f, struct tsr_err *err)
{
    bool moved = false;
    int  e = sync_part(f);
    if (!e)
        e = give_name(f, &moved);
    if (!e && moved)
        tsr_output_wipe(f->lock->dir, part_name(f));
    if (!e) {
        free(f->part);
        f->part = NULL;
        e = tsr_output_sync_dir(f->lock->dir);
    }
    tsr_status st = e == EEXIST ? in_the_way(f->path, err)
                    : e         ? tsr_fail_errno(err, e, f->path, "create folder")
                                : TSR_OK;
    tsr_output_folder_abort(f);
    return st;
}

void tsr_output_folder_abort(struct tsr_output_folder *f)
{
    if (f->part) {
        struct stat st;
        if (tsr_output_check(f->lock) == 0)
            tsr_output_wipe(f->lock->dir, part_name(f));
        f->lock->keep = fstatat(f->lock->dir, part_name(f), &st, AT_SYMLINK_NOFOLLOW) == 0;
    }
    tsr_output_unlock(f->lock);
    free(f->part);
    free(f->path);
    memset(f, 0, sizeof *f);
}

/* ---- for the time of a command --------------------------------------------------------------- */

tsr_status tsr_temp_folder(char **path, const char *what, struct tsr_err *err)
{
    char text[128];
    (void)snprintf(text, sizeof text, P_tmpdir "/tessera-%.60s-XXXXXX", what);
    *path = tsr_strdup(text);
    if (!*path)
        return tsr_fail_nomem(err, sizeof text, "a temporary folder");
    if (mkdtemp(*path))
        return TSR_OK;
    tsr_status st = tsr_fail_errno(err, errno, *path, "make the folder");
    free(*path);
    *path = NULL;
    return st;
}

void tsr_temp_folder_remove(char *path)
{
    if (path)
        tsr_output_wipe(AT_FDCWD, path);
    free(path);
}
