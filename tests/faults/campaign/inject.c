/* faults/campaign/inject.c - preloaded (LD_PRELOAD): counts the calls of the program and of the processes that it
 * starts, and lets one of them fail, or kills the process that makes it.
 *
 *   TSR_INJECT_PROGRAM  name of the program that counts; others of the process tree are left alone
 *   TSR_INJECT_STATE    file with a struct inject_state, mapped
 */
#include "inject.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct inject_state *state;

__attribute__((constructor)) static void start(void)
{
    const char *program = getenv("TSR_INJECT_PROGRAM"), *path = getenv("TSR_INJECT_STATE");
    if (!program || !path || strcmp(program, program_invocation_short_name) != 0)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        abort();
    /* syscall() reads whole words: an int leaves the upper half of the offset open */
    long p = syscall(SYS_mmap, NULL, sizeof *state, (long)(PROT_READ | PROT_WRITE),
                     (long)MAP_SHARED, (long)fd, 0L);
    if (p < 0)
        abort();
    (void)syscall(SYS_close, fd);
    state = (struct inject_state *)p; /* NOLINT(performance-no-int-to-ptr) */
}

/* The errno that this call of the class fails with, or 0. */
static int fails(enum inject_class c)
{
    if (!state)
        return 0;
    uint64_t i = atomic_fetch_add(&state->count[c], 1) + 1;
    if (c != state->which || state->at == 0 || i < state->at || (i > state->at && !state->from))
        return 0;
    atomic_fetch_add(&state->hits, 1);
    if (state->error == INJECT_KILL) {
        (void)syscall(SYS_kill, getpid(), SIGKILL);
        for (;;)
            (void)pause();
    }
    errno = state->error;
    return state->error;
}

/* The C library's own function of this name. */
static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f)
        abort();
    return f;
}
#define NEXT(NAME)                                                                                 \
    (((union {                                                                                     \
         void               *found;                                                                \
         __typeof__(&(NAME)) call;                                                                 \
     }){ next(#NAME) })                                                                            \
         .call)

ssize_t write(int fd, const void *from, size_t n)
{
    return fd != 2 && fails(INJECT_WRITE) ? -1 : (ssize_t)syscall(SYS_write, fd, from, n);
}
ssize_t pwrite64(int fd, const void *from, size_t n, off_t at)
{
    return fails(INJECT_WRITE) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, from, n, at);
}
ssize_t read(int fd, void *to, size_t n)
{
    return fails(INJECT_READ) ? -1 : (ssize_t)syscall(SYS_read, fd, to, n);
}
ssize_t pread64(int fd, void *to, size_t n, off_t at)
{
    return fails(INJECT_READ) ? -1 : (ssize_t)syscall(SYS_pread64, fd, to, n, at);
}
int fsync(int fd)
{
    return fails(INJECT_SYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}
int fdatasync(int fd)
{
    return fails(INJECT_SYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}
int open64(const char *path, int flags, ...)
{
    va_list a;
    va_start(a, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(a, int) : 0;
    va_end(a);
    return fails(INJECT_OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...)
{
    va_list a;
    va_start(a, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(a, int) : 0;
    va_end(a);
    return fails(INJECT_OPEN) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}
/* Streams write inside the C library: their calls count as writes. */
size_t fwrite(const void *from, size_t size, size_t n, FILE *to)
{
    if (to == stderr || !fails(INJECT_WRITE))
        return NEXT(fwrite)(from, size, n, to);
    to->_flags |= 0x20; /* glibc's mark of an error, which a failing write leaves: ferror() */
    return 0;
}
int fflush(FILE *f)
{
    return f != stderr && fails(INJECT_WRITE) ? EOF : NEXT(fflush)(f);
}
int fclose(FILE *f)
{
    int e = fails(INJECT_WRITE), rc = NEXT(fclose)(f);
    errno = e ? e : errno;
    return e ? EOF : rc;
}
int rename(const char *from, const char *to)
{
    return fails(INJECT_RENAME) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int a, const char *from, int b, const char *to)
{
    return fails(INJECT_RENAME) ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, 0);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    return fails(INJECT_RENAME) ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, flags);
}
int linkat(int a, const char *from, int b, const char *to, int flags)
{
    return fails(INJECT_RENAME) ? -1 : (int)syscall(SYS_linkat, a, from, b, to, flags);
}
void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return fails(INJECT_MAP) ? MAP_FAILED : NEXT(mmap64)(at, n, protection, flags, fd, offset);
}
int mkdir(const char *path, mode_t mode)
{
    return fails(INJECT_MAKE) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int ftruncate64(int fd, off_t n)
{
    return fails(INJECT_MAKE) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}
int posix_fallocate64(int fd, off_t at, off_t n)
{
    int e = fails(INJECT_MAKE);
    return e ? e : NEXT(posix_fallocate64)(fd, at, n);
}
int unlink(const char *path)
{
    return fails(INJECT_UNLINK) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
int unlinkat(int folder, const char *path, int flags)
{
    return fails(INJECT_UNLINK) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
pid_t fork(void)
{
    return fails(INJECT_SPAWN) ? -1 : NEXT(fork)();
}
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const *argv, char *const *env)
{
    int e = fails(INJECT_SPAWN);
    return e ? e : NEXT(posix_spawn)(pid, path, actions, attributes, argv, env);
}
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    int e = fails(INJECT_SPAWN);
    return e ? e : NEXT(pthread_create)(t, a, run, arg);
}
int pipe2(int fd[2], int flags)
{
    return fails(INJECT_SPAWN) ? -1 : (int)syscall(SYS_pipe2, fd, flags);
}
int pipe(int fd[2])
{
    return pipe2(fd, 0);
}
int memfd_create(const char *name, unsigned flags)
{
    return fails(INJECT_SPAWN) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

#ifndef INJECT_NO_ALLOC /* sanitizers have an allocator of their own */

/* glibc's own, under names that nobody interposes */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size)
{
    return fails(INJECT_ALLOC) ? NULL : __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    return fails(INJECT_ALLOC) ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    return fails(INJECT_ALLOC) ? NULL : __libc_realloc(p, size);
}
void *memalign(size_t align, size_t size)
{
    return fails(INJECT_ALLOC) ? NULL : __libc_memalign(align, size);
}
void *aligned_alloc(size_t align, size_t size)
{
    return fails(INJECT_ALLOC) ? NULL : __libc_memalign(align, size);
}
int posix_memalign(void **p, size_t align, size_t size)
{
    int   e = fails(INJECT_ALLOC);
    void *got = e ? NULL : __libc_memalign(align, size);
    if (!got)
        return ENOMEM;
    *p = got;
    return 0;
}

#endif
