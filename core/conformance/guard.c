/* Buffers between two inaccessible pages, or between two accessible ones. */
#include "conformance/guard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE    4096u
#define PATTERN 0xC3
#define EDGE    PAGE /* of ordinary memory, for buffers without a guard */

static struct tsr_conformance_region *regions;
static pthread_mutex_t                lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* [this struct's page][edge][pages of the user, the bytes at their end][edge] */
struct tsr_conformance_region *tsr_conformance_region_new(const char *name, uint64_t bytes,
                                                          uint64_t align, bool guard,
                                                          unsigned char fill)
{
    if (align < 16)
        align = 16;
    if (bytes > UINT64_MAX / 4 || align > UINT64_MAX / 4)
        return NULL;
    uint64_t taken = up(bytes, align); /* including the padding after it */
    uint64_t pages = up(taken + (align > PAGE ? align : 0), PAGE);
    if (pages == 0)
        pages = PAGE;
    uint64_t whole = PAGE + EDGE + pages + EDGE;
    char    *map = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    struct tsr_conformance_region *r = (struct tsr_conformance_region *)(void *)map;
    char                          *first = map + PAGE + EDGE, *end = first + pages;
    char                          *user = end - taken;
    user -= (uintptr_t)user % align; /* no effect except for alignments above a page */
    *r = (struct tsr_conformance_region){ .name = name,
                                          .map = map,
                                          .map_bytes = whole,
                                          .user = user,
                                          .bytes = bytes,
                                          .pages = first,
                                          .page_bytes = pages,
                                          .guard = guard };
    memset(first, PATTERN, pages);
    memset(user, fill, bytes);
    if (guard &&
        (mprotect(first - EDGE, EDGE, PROT_NONE) != 0 || mprotect(end, EDGE, PROT_NONE) != 0)) {
        (void)munmap(map, whole);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    r->next = regions;
    regions = r;
    pthread_mutex_unlock(&lock);
    return r;
}

struct tsr_conformance_region *tsr_conformance_region_find(const void *user)
{
    pthread_mutex_lock(&lock);
    struct tsr_conformance_region *r = regions;
    while (r && r->user != user)
        r = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

void tsr_conformance_region_free(struct tsr_conformance_region *r)
{
    pthread_mutex_lock(&lock);
    for (struct tsr_conformance_region **p = &regions; *p; p = &(*p)->next)
        if (*p == r) {
            *p = r->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    (void)munmap(r->map, r->map_bytes);
}

bool tsr_conformance_region_intact(const struct tsr_conformance_region *r)
{
    const unsigned char *p = (const unsigned char *)r->pages;
    const unsigned char *end = p + r->page_bytes, *user = (const unsigned char *)r->user;
    for (; p < user; p++)
        if (*p != PATTERN)
            return false;
    for (p = user + r->bytes; p < end; p++)
        if (*p != PATTERN)
            return false;
    return true;
}

static void protect(struct tsr_conformance_region *r, int protection)
{
    (void)mprotect(r->pages, r->page_bytes, protection);
}

void tsr_conformance_regions_protect(const void *owner, int protection)
{
    pthread_mutex_lock(&lock);
    for (struct tsr_conformance_region *r = regions; r; r = r->next)
        if (r->owner == owner)
            protect(r, protection);
    pthread_mutex_unlock(&lock);
}

static void *make(const char *name, uint64_t bytes, unsigned char fill, bool guard)
{
    struct tsr_conformance_region *r = tsr_conformance_region_new(name, bytes, 64, guard, fill);
    if (!r) {
        (void)fprintf(stderr, "out of memory: %llu bytes for %s\n", (unsigned long long)bytes,
                      name);
        abort();
    }
    return r->user;
}

void *tsr_conformance_guarded(const char *name, uint64_t bytes, unsigned char fill)
{
    return make(name, bytes, fill, true);
}

void *tsr_conformance_roomy(const char *name, uint64_t bytes, unsigned char fill)
{
    return make(name, bytes, fill, false);
}

bool tsr_conformance_guarded_intact(const void *p)
{
    const struct tsr_conformance_region *r = tsr_conformance_region_find(p);
    return r && tsr_conformance_region_intact(r);
}

void tsr_conformance_guarded_protect(void *p, bool readable)
{
    struct tsr_conformance_region *r = tsr_conformance_region_find(p);
    if (r)
        protect(r, readable ? PROT_READ : PROT_NONE);
}

void tsr_conformance_guarded_free(void *p)
{
    struct tsr_conformance_region *r = tsr_conformance_region_find(p);
    if (r)
        tsr_conformance_region_free(r);
}

/* Runs in a signal handler, so without the lock: another thread may have stopped half way. */
bool tsr_conformance_guarded_describe(const void *address, char *buf, size_t cap)
{
    uintptr_t a = (uintptr_t)address;
    for (const struct tsr_conformance_region *r = regions; r; r = r->next) {
        uintptr_t map = (uintptr_t)r->map, user = (uintptr_t)r->user, end = user + r->bytes;
        if (a < map || a >= map + r->map_bytes)
            continue;
        unsigned long long size = (unsigned long long)r->bytes;
        if (a < user)
            (void)snprintf(buf, cap, "%llu bytes before %s (%llu bytes)",
                           (unsigned long long)(user - a), r->name, size);
        else if (a >= end)
            (void)snprintf(buf, cap, "byte %llu of %s, which has %llu",
                           (unsigned long long)(a - user + 1), r->name, size);
        else
            (void)snprintf(buf, cap, "byte %llu of %s, which must not be touched that way",
                           (unsigned long long)(a - user + 1), r->name);
        return true;
    }
    return false;
}
