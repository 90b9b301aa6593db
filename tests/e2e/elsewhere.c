/* e2e/elsewhere.c - preloaded (LD_PRELOAD): the program finds itself on another host.
 *
 *   TSR_ELSEWHERE_HOST=NAME  what gethostname() says to the program itself; libraries hear the truth
 *   TSR_ELSEWHERE_CLOCK=S    how far the wall clock is ahead, in seconds
 *   TSR_ELSEWHERE_KIB=N      memory that /proc/meminfo says is available
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int gethostname(char *name, size_t len)
{
    int (*real)(char *, size_t);
    const char *host = getenv("TSR_ELSEWHERE_HOST");
    Dl_info     from;
    if (host && dladdr(__builtin_return_address(0), &from) && !strstr(from.dli_fname, ".so")) {
        (void)snprintf(name, len, "%s", host);
        return 0;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "gethostname");
    return real(name, len);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    const char *ahead = getenv("TSR_ELSEWHERE_CLOCK");
    int         rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && id == CLOCK_REALTIME && ahead)
        t->tv_sec += atol(ahead);
    return rc;
}

/* Built with _FILE_OFFSET_BITS=64 like the program, so that this is fopen64 as there. */
FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);
    const char *kib = getenv("TSR_ELSEWHERE_KIB");
    if (kib && strcmp(path, "/proc/meminfo") == 0) {
        int fd = memfd_create("meminfo", 0);
        if (fd < 0 || dprintf(fd, "MemTotal: %s kB\nMemAvailable: %s kB\n", kib, kib) < 0 ||
            lseek(fd, 0, SEEK_SET) != 0)
            return NULL;
        return fdopen(fd, mode);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "fopen64");
    return real(path, mode);
}
