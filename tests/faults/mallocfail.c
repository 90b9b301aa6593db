/* faults/mallocfail.c - preloaded (LD_PRELOAD): makes allocations of one program fail, or takes one as the moment at
 * which another program changes a file.
 *
 *   TSR_MF_PROGRAM  name of the program that counts; others of the process tree are left alone
 *   TSR_MF_AT=N     the N-th allocation fails (from 1); 0 or absent: none
 *   TSR_MF_FROM=1   the N-th and every later one
 *   TSR_MF_COUNT=F  the number of allocations is written to the file F at exit
 *   TSR_MF_SHARED=1 processes that are forked count on together with the first
 *   TSR_MF_CHANGE=F instead of failing, the N-th allocation changes a byte of the file F
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* glibc's own, under names that nobody interposes */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

static atomic_ulong  own, *count = &own;
static unsigned long at;
static int           from, on;
static const char   *changes;

__attribute__((constructor)) static void start(void)
{
    const char *program = getenv("TSR_MF_PROGRAM");
    const char *n = getenv("TSR_MF_AT");
    if (!program || strcmp(program, program_invocation_short_name) != 0)
        return;
    at = n ? strtoul(n, NULL, 10) : 0;
    from = getenv("TSR_MF_FROM") != NULL;
    changes = getenv("TSR_MF_CHANGE");
    if (getenv("TSR_MF_SHARED")) {
        void *p =
            mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            abort();
        count = p;
    }
    on = 1;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("TSR_MF_COUNT");
    char        line[32];
    if (!on || !path)
        return;
    int n = snprintf(line, sizeof line, "%lu\n", atomic_load(count));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && n > 0 && write(fd, line, (size_t)n) == n)
        (void)close(fd);
}

/* One byte, two thirds into the file. */
static void change(void)
{
    int           fd = open(changes, O_RDWR | O_CLOEXEC);
    off_t         at_byte = fd < 0 ? 0 : lseek(fd, 0, SEEK_END) / 3 * 2;
    unsigned char byte;
    if (fd < 0 || pread(fd, &byte, 1, at_byte) != 1)
        abort();
    byte ^= 0x15;
    if (pwrite(fd, &byte, 1, at_byte) != 1 || close(fd) != 0)
        abort();
}

static int fails(void)
{
    if (!on)
        return 0;
    unsigned long i = atomic_fetch_add(count, 1) + 1;
    if (i != at && !(from && at && i > at))
        return 0;
    if (changes) {
        int kept = errno;
        change();
        errno = kept;
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails() ? NULL : __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
    if (fails())
        return ENOMEM;
    void *got = __libc_memalign(align, size);
    if (!got)
        return ENOMEM;
    *p = got;
    return 0;
}
