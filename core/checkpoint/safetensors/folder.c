#include "checkpoint/safetensors/folder.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE_BYTES 4096 /* PATH_MAX, which a path of /proc cannot exceed */
#define HUB_PREFIX  "models--"

/* Where an open descriptor leads.  Asked of the descriptor and not of the path, so that nothing can
 * be exchanged between the question and the read. */
static bool place_of(int fd, char place[PLACE_BYTES])
{
    char    self[40];
    ssize_t n;
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    n = readlink(self, place, PLACE_BYTES - 1);
    place[n > 0 ? n : 0] = '\0';
    return place[0] == '/';
}

/* Whether path is below folder, at any depth. */
static bool is_below(const char *path, const char *folder, size_t folder_bytes)
{
    while (folder_bytes > 0 && folder[folder_bytes - 1] == '/')
        folder_bytes--;
    return strncmp(path, folder, folder_bytes) == 0 && path[folder_bytes] == '/';
}

/* .../models--ORG--NAME/snapshots/REVISION to .../models--ORG--NAME/blobs/HASH. */
static bool is_hub_blob(const char *path, const char *folder)
{
    static const char snapshots[] = "/snapshots", blobs[] = "blobs/";
    const char       *revision = strrchr(folder, '/');
    size_t            n = (size_t)(revision - folder), s = sizeof snapshots - 1;
    if (n < s || strncmp(folder + n - s, snapshots, s) != 0)
        return false;
    n -= s; /* of models--ORG--NAME */
    const char *slash = n ? memrchr(folder, '/', n) : NULL;
    if (!slash || strncmp(slash + 1, HUB_PREFIX, sizeof HUB_PREFIX - 1) != 0)
        return false;
    return strncmp(path, folder, n) == 0 && path[n] == '/' &&
           strncmp(path + n + 1, blobs, sizeof blobs - 1) == 0 &&
           !strchr(path + n + sizeof blobs, '/');
}

/* May a link of the folder at `dir` end at `to`? */
static tsr_status check_link(int dir, int to, const char *path, const char *folder,
                             struct tsr_err *err)
{
    char base[PLACE_BYTES], end[PLACE_BYTES];
    if (!place_of(dir, base) || !place_of(to, end))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is a symbolic link, and its target cannot be found without /proc; "
                        "put the file itself there",
                        path);
    if (is_below(end, base, strlen(base)) || is_hub_blob(end, base))
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: is a symbolic link out of its folder, to %.300s; put the file itself into "
                    "%s, or name the folder that holds the model's files",
                    path, end, folder);
}

/* A link, followed without a side effect (O_PATH) before it is read. */
static tsr_status open_link(struct tsr_file *f, int dir, const char *folder, const char *name,
                            const char *path, struct tsr_err *err)
{
    int to = openat(dir, name, O_PATH | O_CLOEXEC);
    if (to < 0)
        return errno == ENOENT
                   ? tsr_fail(err, TSR_E_INPUT,
                              "%s: is a symbolic link to a file that does not exist", path)
               : errno == ELOOP ? tsr_fail(err, TSR_E_INPUT,
                                           "%s: is a symbolic link that leads back to itself", path)
                                : tsr_fail_errno(err, errno, path, "open");
    tsr_status st = check_link(dir, to, path, folder, err);
    if (st == TSR_OK) {
        char self[40];
        (void)snprintf(self, sizeof self, "/proc/self/fd/%d", to);
        st = tsr_file_open_as(f, AT_FDCWD, self, path, true, err);
    }
    (void)close(to);
    return st;
}

static tsr_status open_in(struct tsr_file *f, const char *folder, const char *name,
                          const char *path, struct tsr_err *err)
{
    struct stat st;
    int         dir = open(*folder ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return tsr_fail_errno(err, errno, folder, "open");
    tsr_status s;
    /* below it the folder may be the link, so that only the end of the way counts */
    if (strchr(name, '/') ||
        (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)))
        s = open_link(f, dir, folder, name, path, err);
    else /* one that becomes a link now is refused by O_NOFOLLOW */
        s = tsr_file_open_as(f, dir, name, path, false, err);
    (void)close(dir);
    return s;
}

tsr_status tsr_checkpoint_folder_open(struct tsr_file *f, const char *folder, const char *name,
                                      struct tsr_err *err)
{
    memset(f, 0, sizeof *f);
    f->fd = -1;
    size_t      below = sizeof TSR_CHECKPOINT_BELOW - 1;
    const char *own = strncmp(name, TSR_CHECKPOINT_BELOW, below) == 0 ? name + below : name;
    if (*own == '\0' || strchr(own, '/') || strcmp(own, "..") == 0 || strcmp(own, ".") == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: file name \"%.200s\" leads out of the folder",
                        folder, name);
    char *path = tsr_path_join(folder, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(name), name);
    tsr_status st = open_in(f, folder, name, path, err);
    free(path);
    return st;
}

tsr_status tsr_checkpoint_folder_slurp(const char *folder, const char *name, uint64_t cap,
                                       char **text, uint64_t *len, char **path, struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_checkpoint_folder_open(&f, folder, name, err));
    tsr_status st = tsr_file_all(&f, cap, text, len, err);
    if (st == TSR_OK) {
        *path = f.path;
        f.path = NULL;
    }
    tsr_file_close(&f);
    return st;
}

tsr_status tsr_checkpoint_folder_slurp_if(const char *folder, const char *name, uint64_t cap,
                                          char **text, uint64_t *len, char **path,
                                          struct tsr_err *err)
{
    bool yes = false;
    *text = *path = NULL;
    *len = 0;
    TSR_TRY(tsr_checkpoint_folder_has(folder, name, &yes, err));
    return yes ? tsr_checkpoint_folder_slurp(folder, name, cap, text, len, path, err) : TSR_OK;
}

tsr_status tsr_checkpoint_folder_has(const char *folder, const char *name, bool *yes,
                                     struct tsr_err *err)
{
    char       *p = tsr_path_join(folder, name);
    struct stat st;
    if (!p)
        return tsr_fail_nomem(err, strlen(folder), folder);
    *yes = lstat(p, &st) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
    free(p);
    return TSR_OK;
}
