/* simt_memory.c - device memory and shared memory of simt.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "simt.h"

static struct simt_region *regions;
static pthread_mutex_t     lock = PTHREAD_MUTEX_INITIALIZER;

/* Of the section that simt_kernel.h names; absent where no kernel has shared memory. */
extern uint8_t            __start_simt_shared[] __attribute__((weak, visibility("hidden")));
extern uint8_t            __stop_simt_shared[] __attribute__((weak, visibility("hidden")));
static struct simt_region shared = { .shared = true };

static uint64_t add(void *p, uint64_t bytes, bool adopted)
{
    struct simt_region *r = calloc(1, sizeof *r);
    if (!r)
        return 0;
    r->base = p;
    r->bytes = bytes;
    r->adopted = adopted;
    (void)pthread_mutex_lock(&lock);
    r->next = regions;
    regions = r;
    (void)pthread_mutex_unlock(&lock);
    return (uint64_t)(uintptr_t)p ^ SIMT_KEY;
}

uint64_t simt_alloc(uint64_t bytes)
{
    /* whole lines would hide an access past the end from the sanitizers */
    const uint64_t all = bytes ? bytes : 1;
    void          *p = NULL;
    if (bytes > PTRDIFF_MAX || posix_memalign(&p, 256, all) != 0)
        return 0;
    memset(p, 0, all);
    const uint64_t address = add(p, all, false);
    if (!address)
        free(p);
    return address;
}

uint64_t simt_adopt(void *p, uint64_t bytes)
{
    return add(p, bytes, true);
}

void simt_free(uint64_t address)
{
    if (!address)
        return;
    struct simt_region *found = NULL;
    (void)pthread_mutex_lock(&lock);
    for (struct simt_region **r = &regions; *r; r = &(*r)->next)
        if ((uint64_t)(uintptr_t)(*r)->base == (address ^ SIMT_KEY)) {
            found = *r;
            *r = found->next;
            break;
        }
    (void)pthread_mutex_unlock(&lock);
    if (found) {
        if (!found->adopted)
            free(found->base);
        free(found->cells);
        free(found);
    }
}

static bool holds(const struct simt_region *r, const uint8_t *p)
{
    return p >= r->base && p < r->base + r->bytes;
}

static void find_shared(void)
{
    shared.base = __start_simt_shared;
    shared.bytes = (uint64_t)(__stop_simt_shared - __start_simt_shared);
}

struct simt_region *simt_region_of(const void *p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find_shared);
    if (holds(&shared, p))
        return &shared;
    (void)pthread_mutex_lock(&lock);
    struct simt_region *r = regions;
    while (r && !holds(r, p))
        r = r->next;
    (void)pthread_mutex_unlock(&lock);
    return r;
}

void *simt_place(uint64_t address, uint64_t bytes)
{
    uint8_t            *p = (uint8_t *)(uintptr_t)(address ^ SIMT_KEY);
    struct simt_region *r = simt_region_of(p);
    return r && r != &shared && bytes <= r->bytes - (uint64_t)(p - r->base) ? p : NULL;
}

void simt_shared_spoil(void)
{
    size_t bytes = (size_t)(__stop_simt_shared - __start_simt_shared);
    if (bytes) /* a NaN in F32, large as an integer */
        memset(__start_simt_shared, 0xff, bytes);
}

bool simt_shared_keep(uint8_t **kept)
{
    size_t bytes = (size_t)(__stop_simt_shared - __start_simt_shared);
    if (bytes && !*kept)
        *kept = malloc(bytes);
    if (bytes && *kept)
        memcpy(*kept, __start_simt_shared, bytes);
    return !bytes || *kept;
}

void simt_shared_return(const uint8_t *kept)
{
    if (kept)
        memcpy(__start_simt_shared, kept, (size_t)(__stop_simt_shared - __start_simt_shared));
}
