#include "base/arena.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE       UINT64_C(4096) /* blocks begin on one */
#define LARGE_PAGE (UINT64_C(2) << 20)
#define PER_LARGE  (LARGE_PAGE / PAGE)
#define LEAST      (UINT64_C(128) << 10)
#define MOST       (UINT64_C(32) << 20)
#define LEAST_AREA MOST
#define MOST_AREA  (UINT64_C(1) << 30)

#if defined(__SANITIZE_ADDRESS__)
#define CHECKED 1 /* AddressSanitizer watches the ends of blocks that are malloc()'s */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECKED 1
#endif
#endif
#ifndef CHECKED
#define CHECKED 0
#endif

/* Reserved address space. */
struct area {
    struct area *next;
    uint8_t     *at; /* on a large page */
    uint64_t     pages, used;
    uint64_t     from;    /* no page before it is free */
    uint8_t      taken[]; /* of each page: 1 if a block has it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static struct area    *areas;
static uint64_t        reserved; /* bytes of all areas */

/* A child may fork while another thread is in here. */
static void before_fork(void)
{
    (void)pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE;
}

static bool is_ours(uint64_t bytes)
{
    return !CHECKED && bytes >= LEAST && bytes <= MOST;
}

/* Address space of `bytes` on a large page, or NULL. */
static uint8_t *reserve(uint64_t bytes)
{
    uint8_t *p = mmap(NULL, bytes + LARGE_PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint64_t before = (LARGE_PAGE - (uintptr_t)p % LARGE_PAGE) % LARGE_PAGE;
    if (before)
        (void)munmap(p, before);
    (void)munmap(p + before + bytes, LARGE_PAGE - before);
    (void)madvise(p + before, bytes, MADV_HUGEPAGE); /* a hint */
    return p + before;
}

/* As large as all others together, so that there are few. */
static struct area *add_area(void)
{
    uint64_t     bytes = reserved < LEAST_AREA  ? LEAST_AREA
                         : reserved < MOST_AREA ? reserved
                                                : MOST_AREA;
    struct area *a = tsr_new(1, sizeof *a + bytes / PAGE);
    if (!a)
        return NULL;
    a->at = reserve(bytes);
    if (!a->at) {
        free(a);
        return NULL;
    }
    a->pages = bytes / PAGE;
    a->next = areas;
    areas = a;
    reserved += bytes;
    return a;
}

/* The lowest n free pages, or NULL. */
static uint8_t *take_pages(struct area *a, uint64_t n)
{
    const uint8_t *free_page;
    for (uint64_t i = a->from; n <= a->pages - i; i = (uint64_t)(free_page - a->taken)) {
        const uint8_t *other = memchr(a->taken + i, 1, n);
        if (!other) {
            memset(a->taken + i, 1, n);
            a->used += n;
            a->from = i == a->from ? i + n : a->from;
            return a->at + i * PAGE;
        }
        free_page = memchr(other, 0, a->pages - (uint64_t)(other - a->taken));
        if (!free_page)
            break;
    }
    return NULL;
}

/* Gives back the large pages of pages [first,end) that no block has. */
static void give_back(const struct area *a, uint64_t first, uint64_t end)
{
    for (uint64_t i = first / PER_LARGE; i * PER_LARGE < end; i++)
        if (!memchr(a->taken + i * PER_LARGE, 1, PER_LARGE))
            (void)madvise(a->at + i * LARGE_PAGE, LARGE_PAGE, MADV_DONTNEED);
}

static void drop_area(struct area **link)
{
    struct area *a = *link;
    *link = a->next;
    reserved -= a->pages * PAGE;
    (void)munmap(a->at, a->pages * PAGE);
    free(a);
}

void *tsr_arena_get(uint64_t bytes, uint64_t align)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t              n = pages_of(bytes);
    uint8_t              *p = NULL;
    if (!is_ours(bytes) || align > PAGE)
        return NULL;
    (void)pthread_once(&once, watch_forks);
    (void)pthread_mutex_lock(&lock);
    for (struct area *a = areas; a && !p; a = a->next)
        p = a->pages - a->used >= n ? take_pages(a, n) : NULL;
    if (!p) {
        struct area *a = add_area();
        p = a ? take_pages(a, n) : NULL;
    }
    (void)pthread_mutex_unlock(&lock);
    return p;
}

bool tsr_arena_put(void *p, uint64_t bytes)
{
    bool found = false;
    if (!is_ours(bytes))
        return false;
    (void)pthread_mutex_lock(&lock);
    for (struct area **link = &areas; *link && !found; link = &(*link)->next) {
        struct area *a = *link;
        uint64_t     at = (uintptr_t)p - (uintptr_t)a->at, n = pages_of(bytes), first = at / PAGE;
        if (at >= a->pages * PAGE)
            continue;
        found = true;
        memset(a->taken + first, 0, n);
        a->used -= n;
        a->from = first < a->from ? first : a->from;
        if (a->used == 0) {
            drop_area(link);
            break;
        }
        give_back(a, first, first + n);
    }
    (void)pthread_mutex_unlock(&lock);
    return found;
}
