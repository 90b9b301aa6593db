/* The names of an output: hidden ones next to it, and removing them. */
#include "base/output_internal.h"

#include "base/hash.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_STEM 200u
#define DEPTH    16 /* of the removed tree */

void tsr_output_stem(char stem[NAME_MAX + 1], const char *name, size_t n)
{
    char hash[TSR_HASH_TEXT];
    if (n <= MAX_STEM) {
        (void)snprintf(stem, NAME_MAX + 1, ".%.*s", (int)n, name);
        return;
    }
    tsr_hash_bytes(name, n, hash);
    (void)snprintf(stem, NAME_MAX + 1, ".%.100s~%s", name, strchr(hash, ':') + 1);
}

/* "STEM.<8 hex digits>.part" */
static void part_text(char text[TSR_OUTPUT_PART_NAME], const char *stem, uint32_t n)
{
    (void)snprintf(text, TSR_OUTPUT_PART_NAME, "%s.%08x.part", stem, n);
}

void tsr_output_part_new(const struct tsr_output_lock *l, char text[TSR_OUTPUT_PART_NAME])
{
    static _Atomic uint32_t next;
    uint32_t                n = 0;
    if (getrandom(&n, sizeof n, GRND_NONBLOCK) != (ssize_t)sizeof n)
        n = (uint32_t)getpid() * 0x9e3779b9u + next++; /* O_EXCL finds out */
    part_text(text, l->stem, n);
}

char *tsr_output_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t      n = slash ? (size_t)(slash - path) + 1 : 0;
    char       *p = tsr_new(n + strlen(name) + 1, 1);
    if (p) {
        memcpy(p, path, n);
        memcpy(p + n, name, strlen(name) + 1);
    }
    return p;
}

char *tsr_output_part_name(const char *path, uint32_t n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char        stem[NAME_MAX + 1], text[TSR_OUTPUT_PART_NAME];
    tsr_output_stem(stem, name, strlen(name));
    part_text(text, stem, n);
    return tsr_output_beside(path, text);
}

/* ---- removing ------------------------------------------------------------------------------ */

static bool wipe(int dir, const char *name, unsigned depth);

/* Lists the content; restarts after each round that removed something, because removing changes the listing. */
static void empty(int fd, unsigned depth)
{
    alignas(struct dirent64) char room[2048];
    for (int round = 0; round < 1000; round++) {
        bool some = false;
        (void)lseek(fd, 0, SEEK_SET);
        for (ssize_t n; (n = getdents64(fd, room, sizeof room)) > 0;)
            for (ssize_t at = 0; at < n;) {
                const struct dirent64 *e = (const void *)(room + at);
                at += e->d_reclen;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                    continue;
                some |= wipe(fd, e->d_name, depth);
            }
        if (!some)
            return;
    }
}

/* Whether it went. */
static bool wipe(int dir, const char *name, unsigned depth)
{
    if (unlinkat(dir, name, 0) == 0)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    int fd = depth < DEPTH
                 ? openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
                 : -1;
    if (fd >= 0) {
        empty(fd, depth + 1);
        (void)close(fd);
    }
    return unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

void tsr_output_wipe(int dir, const char *name)
{
    (void)wipe(dir, name, 0);
}

/* ---- what is in a folder -------------------------------------------------------------------- */

static bool is_part_of(const char *name, const char *stem)
{
    size_t n = strlen(stem);
    return strncmp(name, stem, n) == 0 && name[n] == '.' &&
           strspn(name + n + 1, "0123456789abcdef") == 8 && strcmp(name + n + 9, ".part") == 0;
}

void tsr_output_each_name(int         at, void (*f)(int at, const char *name, const void *arg),
                          const void *arg)
{
    int  fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));)
        f(at, e->d_name, arg);
    (void)closedir(dir);
}

static void wipe_part(int at, const char *name, const void *stem)
{
    if (is_part_of(name, stem))
        tsr_output_wipe(at, name);
}

void tsr_output_sweep(int at, const char *stem)
{
    tsr_output_each_name(at, wipe_part, stem);
}

int tsr_output_sync_dir(int dir)
{
    return fsync(dir) != 0 && errno != EINVAL ? errno : 0; /* EINVAL: it needs no sync */
}
