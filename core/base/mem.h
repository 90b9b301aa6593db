/* base/mem.h - checked sizes and allocation.  Sizes that come from outside are
 * multiplied and added only through these. */
#ifndef TSR_BASE_MEM_H
#define TSR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a op b; false on overflow, *out untouched by contract. */
static inline bool tsr_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool tsr_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Memory for n elements of `size` bytes, zeroed; NULL if memory runs out or the product overflows.
 * n*size == 0 returns a pointer that free() accepts. */
void *tsr_new(uint64_t n, uint64_t size);

/* n pointers to `each` elements of `size` bytes, zeroed: v[i][j].  One block; free() releases it all. */
void *tsr_new_rows(uint64_t n, uint64_t each, uint64_t size);

/* As realloc for n elements; the old block survives a failure. */
void *tsr_renew(void *p, uint64_t n, uint64_t size);

/* Uninitialised, aligned to 64 bytes; free() releases it. */
void *tsr_new_aligned(uint64_t n, uint64_t size);

/* The same; from 32 MiB on in pages of 2 MiB if the system supports them. */
void *tsr_new_large(uint64_t bytes);

/* strdup/strndup that return NULL only when out of memory. */
char *tsr_strdup(const char *s);
char *tsr_strndup(const char *s, size_t n);

/* "4.5 GiB", "17 B": human-readable.  Returns buf. */
char *tsr_format_bytes(char *buf, size_t cap, uint64_t bytes);

#define TSR_BYTES_TEXT 24

#endif
