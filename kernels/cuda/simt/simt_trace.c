/* simt_trace.c - requests of warps from the accesses of their lanes (simt_trace.h). */
#include "simt_trace.h"

#include <stdlib.h>
#include <string.h>

#include "simt_block.h"

#define ROOM  (UINT64_C(3) << 20) /* accesses of a block */
#define SPLIT 256u                /* bytes of code between the parts of one access, at most */
/* Twice the places in the code that all threads of a block come to. */
#define COUNTS     (UINT64_C(1) << 20)
#define NONE       UINT32_MAX
#define WORD       4u
#define SECTOR     32u
#define MOST_LANES 32u

/* One access of a lane. */
struct access {
    const uint8_t *p;
    const void    *place;
    uint32_t       thread, turn; /* turn: it is the thread's turn-th from that place */
    uint8_t        bytes;
    bool           write, shared;
};

static struct {
    struct simt_trace *to;
    struct access     *all;
    uint64_t           n;
    uint32_t           last[SIMT_THREADS_MAX]; /* of each thread: its latest access, or NONE */
    bool               on, cut;
} trace;

bool simt_trace(struct simt_trace *t)
{
    free(trace.all);
    trace.all = t ? malloc(ROOM * sizeof *trace.all) : NULL;
    trace.to = trace.all ? t : NULL;
    trace.on = false;
    return !t || trace.all;
}

void simt_trace_block_begin(void)
{
    trace.on = trace.to && simt_now->block_number < trace.to->blocks;
    trace.cut = false;
    trace.n = 0;
    for (uint32_t i = 0; trace.on && i < SIMT_THREADS_MAX; i++)
        trace.last[i] = NONE;
}

/* A compiler splits an aligned access of 8 or 16 bytes into straight code; a loop would come to the same place. */
static bool joins(const struct access *a, const uint8_t *p, uint64_t bytes, bool write,
                  const void *place)
{
    const uintptr_t from = (uintptr_t)a->place, to = (uintptr_t)place;
    const uint64_t  whole = a->bytes + bytes, size = whole <= 8 ? 8 : 16;
    return a->write == write && a->p + a->bytes == p && to > from && to - from <= SPLIT &&
           bytes >= WORD && whole <= 16 && (uintptr_t)a->p % size == 0;
}

void simt_trace_access(const void *p, uint64_t bytes, bool write, const void *place)
{
    struct simt_region *r;
    if (!trace.on || simt_own_memory(p) || !(r = simt_region_of(p)))
        return;
    const uint32_t thread = simt_now->current, last = trace.last[thread];
    if (last != NONE && bytes <= 16 && joins(&trace.all[last], p, bytes, write, place)) {
        trace.all[last].bytes = (uint8_t)(trace.all[last].bytes + bytes);
        return;
    }
    for (uint64_t done = 0; done < bytes; done += 16) { /* memcpy(): by 16 bytes */
        if (trace.n == ROOM) {
            trace.cut = true;
            return;
        }
        trace.last[thread] = (uint32_t)trace.n;
        trace.all[trace.n++] =
            (struct access){ .p = (const uint8_t *)p + done,
                             .place = place,
                             .thread = thread,
                             .bytes = (uint8_t)(bytes - done < 16 ? bytes - done : 16),
                             .write = write,
                             .shared = r->shared };
    }
}

/* ---- requests ----------------------------------------------------------------------------- */

/* Numbers the accesses of each thread from each place.  False: no memory, or more places than there is room for. */
static bool number_turns(void)
{
    struct count {
        const void *place;
        uint32_t    thread, n;
    } *counts = calloc(COUNTS, sizeof *counts);
    uint64_t used = 0;
    for (uint64_t i = 0; counts && i < trace.n && used < COUNTS / 2; i++) {
        struct access *a = &trace.all[i];
        uint64_t       at = ((uintptr_t)a->place * UINT64_C(0x9e3779b97f4a7c15) ^ a->thread) *
                          UINT64_C(0xd6e8feb86659fd93) >>
                      32;
        while (counts[at % COUNTS].place &&
               (counts[at % COUNTS].place != a->place || counts[at % COUNTS].thread != a->thread))
            at++;
        struct count *c = &counts[at % COUNTS];
        used += !c->place;
        c->place = a->place;
        c->thread = a->thread;
        a->turn = c->n++;
    }
    free(counts);
    return counts && used < COUNTS / 2;
}

static int in_order(const void *x, const void *y)
{
    const struct access *a = x, *b = y;
    const uint32_t       u = a->thread / 32, v = b->thread / 32;
    if (u != v)
        return u < v ? -1 : 1;
    if (a->place != b->place)
        return (uintptr_t)a->place < (uintptr_t)b->place ? -1 : 1;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->thread < b->thread ? -1 : a->thread > b->thread;
}

/* The most different words in a bank among lanes [from, to) of a request of n lanes; 0: none of these takes part. */
static uint32_t group_wavefronts(const struct access *a, uint32_t n, uint32_t from, uint32_t to)
{
    uintptr_t words[32][4 * MOST_LANES];
    uint32_t  count[32] = { 0 }, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t lane = a[i].thread % 32;
        if (lane < from || lane >= to)
            continue;
        const uintptr_t end = ((uintptr_t)a[i].p + a[i].bytes - 1) / WORD;
        for (uintptr_t w = (uintptr_t)a[i].p / WORD; w <= end; w++) {
            const uint32_t bank = (uint32_t)(w % 32);
            uint32_t       j = 0;
            while (j < count[bank] && words[bank][j] != w)
                j++;
            if (j == count[bank] && count[bank] < 4 * MOST_LANES)
                words[bank][count[bank]++] = w;
            most = count[bank] > most ? count[bank] : most;
        }
    }
    return most;
}

static void shared_request(struct simt_traffic *t, const struct access *a, uint32_t n)
{
    const uint32_t lanes = a->bytes > 8 ? 8 : a->bytes > 4 ? 16 : 32;
    t->requests++;
    for (uint32_t from = 0; from < 32; from += lanes) {
        const uint32_t w = group_wavefronts(a, n, from, from + lanes);
        t->wavefronts += w;
        t->least_wavefronts += w > 0;
    }
}

static int by_number(const void *x, const void *y)
{
    const uintptr_t a = *(const uintptr_t *)x, b = *(const uintptr_t *)y;
    return a < b ? -1 : a > b;
}

static void global_request(struct simt_traffic *t, const struct access *a, uint32_t n)
{
    uintptr_t bytes[16 * MOST_LANES];
    uint32_t  count = 0, different = 0, sectors = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < a[i].bytes; j++)
            bytes[count++] = (uintptr_t)a[i].p + j;
    qsort(bytes, count, sizeof *bytes, by_number);
    for (uint32_t i = 0; i < count; i++) {
        different += i == 0 || bytes[i] != bytes[i - 1];
        sectors += i == 0 || bytes[i] / SECTOR != bytes[i - 1] / SECTOR;
    }
    t->global++;
    t->sectors += sectors;
    t->least_sectors += (different + SECTOR - 1) / SECTOR;
}

static struct simt_traffic *traffic_of(const char *kernel)
{
    for (uint32_t i = 0; i < trace.to->n; i++)
        if (strcmp(trace.to->of[i].kernel, kernel) == 0)
            return &trace.to->of[i];
    if (trace.to->n == SIMT_TRACE_KERNELS)
        return NULL;
    struct simt_traffic *t = &trace.to->of[trace.to->n++];
    *t = (struct simt_traffic){ .kernel = kernel };
    return t;
}

void simt_trace_block_end(void)
{
    struct simt_traffic *t;
    if (!trace.on || simt_now->resident->failed ||
        !(t = traffic_of(simt_now->launch->kernel->name)))
        return;
    trace.on = false;
    const bool numbered = number_turns();
    t->cut = t->cut || trace.cut || !numbered;
    if (!numbered)
        return;
    qsort(trace.all, trace.n, sizeof *trace.all, in_order);
    for (uint64_t i = 0, n; i < trace.n; i += n) {
        const struct access *a = &trace.all[i];
        for (n = 1; i + n < trace.n && n < MOST_LANES && a[n].thread / 32 == a->thread / 32 &&
                    a[n].place == a->place && a[n].turn == a->turn && a[n].shared == a->shared;
             n++) {
        }
        (a->shared ? shared_request : global_request)(t, a, (uint32_t)n);
    }
}
