/* faults/halt.c - preloaded (LD_PRELOAD) into a batch: who writes the journal stops processes of the job at one
 * place, so that a test meets them at work whatever else the machine does.
 *
 *   TSR_HALT=BYTES,WHO   after the write by which the journal has BYTES, WHO get SIGSTOP: `self`; `siblings`, the
 *                        other children of the parent (of mpirun: the other ranks); or `all`: these, the parent,
 *                        the children and the process itself
 *   TSR_HALT_ONCE=FILE   gets the numbers of the processes first; where it is, nothing happens
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 32 };

struct pids {
    pid_t p[MOST];
    int   n;
};

static void add(struct pids *all, pid_t p)
{
    if (all->n < MOST)
        all->p[all->n++] = p;
}

/* The children of a process but for this one: each of its threads may have some. */
static void add_children(struct pids *all, pid_t of)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/proc/%d/task", of);
    DIR *tasks = opendir(name);
    for (struct dirent *t; tasks && (t = readdir(tasks));) {
        if (t->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof name, "/proc/%d/task/%.10s/children", of, t->d_name);
        FILE *f = fopen(name, "re");
        for (pid_t p; f && fscanf(f, "%d", &p) == 1;)
            if (p != getpid())
                add(all, p);
        if (f)
            (void)fclose(f);
    }
    if (tasks)
        (void)closedir(tasks);
}

static bool is_journal(int fd)
{
    char              link[64], path[4096];
    static const char end[] = "/journal";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path);
    return n >= (ssize_t)sizeof end &&
           memcmp(path + n - (sizeof end - 1), end, sizeof end - 1) == 0;
}

static void halt_at(int fd)
{
    const char   *at = getenv("TSR_HALT"), *once = getenv("TSR_HALT_ONCE");
    unsigned long bytes;
    char          who[16], line[12 * MOST];
    struct stat   st;
    struct pids   all = { .n = 0 };
    int           n = 0;
    if (!at || !once || sscanf(at, "%lu,%15s", &bytes, who) != 2 || !is_journal(fd) ||
        fstat(fd, &st) != 0 || (unsigned long)st.st_size < bytes)
        return;
    int to = open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0)
        return;
    const bool every = strcmp(who, "all") == 0, self = strcmp(who, "self") == 0;
    if (every)
        add(&all, getppid());
    if (!self)
        add_children(&all, getppid());
    if (every)
        add_children(&all, getpid());
    if (every || self)
        add(&all, getpid()); /* the last one: it stops the others */
    for (int i = 0; i < all.n; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%d%c", all.p[i],
                      i + 1 < all.n ? ' ' : '\n');
    if (write(to, line, (size_t)n) != n)
        abort();
    (void)close(to);
    for (int i = 0; i < all.n; i++)
        (void)kill(all.p[i], SIGSTOP);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    ssize_t done = syscall(SYS_pwrite64, fd, from, n, at);
    halt_at(fd);
    return done;
}
