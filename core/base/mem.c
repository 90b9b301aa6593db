#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE (UINT64_C(2) << 20)
#define LARGE                                                                                      \
    (UINT64_C(32) << 20) /* below it malloc() may cut the block out of a heap that stays */

void *tsr_new(uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!tsr_mul(n, size, &bytes) || bytes > PTRDIFF_MAX)
        return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *tsr_new_rows(uint64_t n, uint64_t each, uint64_t size)
{
    uint64_t row, bytes;
    if (!tsr_mul(each, size, &row) || !tsr_add(row, sizeof(void *), &bytes))
        return NULL;
    void **v = tsr_new(n, bytes);
    for (uint64_t i = 0; v && i < n; i++)
        v[i] = (char *)(v + n) + i * row;
    return v;
}

void *tsr_renew(void *p, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!tsr_mul(n, size, &bytes) || bytes > PTRDIFF_MAX)
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void *tsr_new_aligned(uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!tsr_mul(n, size, &bytes) || bytes > PTRDIFF_MAX - 64)
        return NULL;
    return aligned_alloc(64, (bytes / 64 + 1) * 64);
}

void *tsr_new_large(uint64_t bytes)
{
    if (bytes < LARGE || bytes > PTRDIFF_MAX - LARGE_PAGE)
        return tsr_new_aligned(bytes, 1);
    void *p = aligned_alloc(LARGE_PAGE, (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);
    if (p) /* a hint: without it the first touch takes longer */
        (void)madvise(p, bytes / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
    return p;
}

char *tsr_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char  *d = malloc(len + 1);
    if (d) {
        memcpy(d, s, len);
        d[len] = '\0';
    }
    return d;
}

char *tsr_strdup(const char *s)
{
    return tsr_strndup(s, strlen(s));
}

char *tsr_format_bytes(char *buf, size_t cap, uint64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double                   v = (double)bytes;
    size_t                   u = 0;
    while (v >= 1024.0 && u + 1 < sizeof unit / sizeof *unit) {
        v /= 1024.0;
        u++;
    }
    (void)snprintf(buf, cap, u == 0 || v >= 100.0 ? "%.0f %s" : "%.3g %s", v, unit[u]);
    return buf;
}
