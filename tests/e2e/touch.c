/* touch BYTES - takes as much memory, in large pages where there are some, writes to all of it and gives it
 * back: what runs next does not wait for a virtual machine's host to find these pages. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
    uint64_t bytes = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (bytes == 0 || bytes > PTRDIFF_MAX) {
        (void)fprintf(stderr, "touch BYTES\n");
        return 2;
    }
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        (void)fprintf(stderr, "touch: no memory of %s bytes\n", argv[1]);
        return 1;
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
    memset(p, 1, bytes);
    __asm__ volatile("" : : "r"(p) : "memory"); /* else nobody reads it, and it is not written */
    return munmap(p, bytes) == 0 ? 0 : 1;
}
