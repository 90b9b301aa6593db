/* faults/storm.c - preloaded (LD_PRELOAD): signals interrupt the program every millisecond, and reads and
 * writes are short, of its children too.
 *
 *   TSR_STORM_PROGRAM  name of the program that is meant; others of the process tree are left alone
 *   TSR_STORM_COUNT=F  signals, interrupted and short calls of each process are added to the file F at exit
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define MOST 7u /* bytes of a call that is cut: 1 to 7 */

static atomic_ulong signals, interrupted, cut, calls;
static int          on;

static void on_alarm(int sig)
{
    (void)sig;
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
}

static void set_timer(void)
{
    const struct itimerval t = { { 0, 1000 }, { 0, 1000 } };
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

static void in_child(void)
{
    atomic_store(&signals, 0);
    atomic_store(&interrupted, 0);
    atomic_store(&cut, 0);
    if (on) /* timers are not inherited */
        set_timer();
}

__attribute__((constructor)) static void start(void)
{
    const char      *name = getenv("TSR_STORM_PROGRAM");
    struct sigaction a;
    if (!name || strcmp(name, program_invocation_short_name) != 0)
        return;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_alarm; /* without SA_RESTART */
    (void)sigaction(SIGALRM, &a, NULL);
    on = 1;
    (void)pthread_atfork(NULL, NULL, in_child);
    set_timer();
}

static void report(void)
{
    const struct itimerval none = { { 0, 0 }, { 0, 0 } };
    const char            *file = getenv("TSR_STORM_COUNT");
    char                   line[120];
    if (!on || !file)
        return;
    on = 0;
    (void)setitimer(ITIMER_REAL, &none, NULL);
    int n = snprintf(line, sizeof line, "%lu %lu %lu\n", atomic_load(&signals),
                     atomic_load(&interrupted), atomic_load(&cut));
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!syscall(SYS_write, fd, line, (size_t)n);
        (void)close(fd);
    }
}

__attribute__((destructor)) static void stop(void)
{
    report();
}

/* Ranks and workers end by this one. */
void _exit(int code)
{
    report();
    (void)syscall(SYS_exit_group, code);
    __builtin_unreachable();
}

/* Every third call moves a few bytes; every fifth is interrupted before it has moved any. */
static int disturb(size_t *n)
{
    unsigned long k = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (!on)
        return 0;
    if (k % 5 == 4) {
        atomic_fetch_add_explicit(&interrupted, 1, memory_order_relaxed);
        errno = EINTR;
        return 1;
    }
    if (k % 3 == 0 && *n > 1 + k % MOST) {
        atomic_fetch_add_explicit(&cut, 1, memory_order_relaxed);
        *n = 1 + k % MOST;
    }
    return 0;
}

ssize_t read(int fd, void *to, size_t n)
{
    return disturb(&n) ? -1 : (ssize_t)syscall(SYS_read, fd, to, n);
}
ssize_t write(int fd, const void *from, size_t n)
{
    return disturb(&n) ? -1 : (ssize_t)syscall(SYS_write, fd, from, n);
}
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    return disturb(&n) ? -1 : (ssize_t)syscall(SYS_pread64, fd, to, n, at);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    return disturb(&n) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, from, n, at);
}
