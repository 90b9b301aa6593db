/* mpirun as the supervisor's child: how it is started, and the page that its rank 0 finds. */
#include "cli/supervise_internal.h"

#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WATCH_NAME                                                                                 \
    "TSR_WATCH" /* "/proc/4711/fd/5:<nonce>" for rank 0, where it is on this machine */

#define MOST_WORDS 256u

void tsr_cli_become_mpirun(const struct tsr_cli *c, const struct tsr_batch_watch *w, int fd)
{
    char   *argv[MOST_WORDS + 1], self[4096], place[80], *words = tsr_strdup(c->mpirun), *at;
    size_t  n = 0;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    (void)snprintf(place, sizeof place, "/proc/%d/fd/%d:%llu", (int)getppid(), fd,
                   (unsigned long long)w->nonce);
    if (!words || len <= 0 || setenv(WATCH_NAME, place, 1) != 0)
        return;
    argv[n++] = (char[]){ "mpirun" };
    for (at = strtok_r(words, " ", &words); at && n < MOST_WORDS; at = strtok_r(NULL, " ", &words))
        argv[n++] = at;
    argv[n++] = self;
    for (int i = 1; i < c->argc && n < MOST_WORDS; i++)
        argv[n++] = c->argv[i];
    if (n == MOST_WORDS)
        return;
    argv[n] = NULL;
    (void)execvp(argv[0], argv);
}

void tsr_cli_watched(void)
{
    const char             *text = getenv(WATCH_NAME), *colon = text ? strrchr(text, ':') : NULL;
    char                    path[80];
    struct stat             s;
    struct tsr_batch_watch *w = MAP_FAILED;
    if (!colon || (size_t)(colon - text) >= sizeof path)
        return;
    (void)snprintf(path, sizeof path, "%.*s", (int)(colon - text), text);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) /* the supervisor is on another machine */
        return;
    if (fstat(fd, &s) == 0 && (uint64_t)s.st_size == sizeof *w)
        w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (w == MAP_FAILED)
        return;
    if (w->nonce == 0 || w->nonce != strtoull(colon + 1, NULL, 10)) { /* somebody else's file */
        (void)munmap(w, sizeof *w);
        return;
    }
    tsr_cli_take_page(w);
    atomic_store(&w->joined, 1);
}
