/* libcuda.c - libcuda.so.1 of the tests (standin.h): devices, memory, copies, events. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

/* ---- the process --------------------------------------------------------------------------- */

static struct {
    struct pinned        *pinned;
    struct CUstream_st   *streams;
    struct standin_counts count;
    uint64_t              allocated, kernels, events;
    uint64_t              freed;   /* blocks, since the last launch */
    int                   begun;   /* something was launched */
    CUresult              broken;  /* of all contexts, once a kernel has failed */
    unsigned              used;    /* a bit for each device that had a context */
    pid_t                 started; /* the process that it works in: none that is forked later */
    int                   retained[DEVICES_MAX];
    int                   sees[DEVICES_MAX][DEVICES_MAX]; /* the other one's memory */
} g;
static pthread_mutex_t   mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Thread_local int stack[16]; /* devices of the thread's contexts */
static _Thread_local int current;   /* how many */

/* A driver's memory is not the heap's: what is freed goes back at once, and whoever looks whether the
 * process has grown does not see the last of it. */
static void __attribute__((constructor)) apart(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

EXPORT int standin_lock(void)
{
    return pthread_mutex_lock(&mutex);
}

EXPORT void standin_unlock(const int *locked)
{
    (void)locked;
    (void)pthread_mutex_unlock(&mutex);
}

static int started(void)
{
    return g.started == getpid();
}
static int devices(void)
{
    int64_t n = standin_option("devices", 1);
    return n < DEVICES_MAX ? (int)n : DEVICES_MAX;
}
static int is_device(CUdevice d)
{
    return started() && d >= 0 && d < devices();
}
static CUcontext context_of(int device)
{
    return (CUcontext)(void *)&g.retained[device];
}

EXPORT struct standin_counts *standin_count(void)
{
    return &g.count;
}

EXPORT int64_t standin_option(const char *name, int64_t otherwise)
{
    const char *s = getenv("TSR_STANDIN");
    size_t      n = strlen(name);
    for (; s && *s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (strncmp(s, name, n) == 0 && (s[n] == '=' || s[n] == ',' || !s[n]))
            return s[n] == '=' ? strtoll(s + n + 1, NULL, 10) : 0;
    return otherwise;
}

EXPORT int standin_in_context(void)
{
    return current > 0;
}

static void __attribute__((destructor)) tell(void)
{
    const char *path = getenv("TSR_STANDIN_LOG"), *each = path ? strstr(path, "%p") : NULL;
    char        own[512];
    if (each) { /* a file for each process */
        (void)snprintf(own, sizeof own, "%.*s%d%s", (int)(each - path), path, (int)getpid(),
                       each + 2);
        path = own;
    }
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f)
        return;
#define COUNT(name) (void)fprintf(f, #name " %llu\n", (unsigned long long)g.count.name)
    COUNT(launches);
    COUNT(captured);
    COUNT(instantiated);
    COUNT(graphs);
#if CUDA_VERSION >= 12030 /* else there are no declarations for it */
    COUNT(early);
#endif
    COUNT(products);
    COUNT(heuristics);
    COUNT(waits);
    COUNT(linalg);
    COUNT(late);
    COUNT(fetched);
    COUNT(torn);
    standin_tell_kernels(f);
    for (int d = 0; d < DEVICES_MAX; d++)
        if (g.used >> d & 1)
            (void)fprintf(f, "device %d\n", d);
    (void)fprintf(f, "allocated %llu\n", (unsigned long long)g.allocated);
    (void)fclose(f);
}

int standin_device(void)
{
    return current ? stack[current - 1] : -1;
}

int standin_device_of(CUcontext c)
{
    for (int d = 0; d < devices(); d++)
        if (c == context_of(d) && g.retained[d])
            return d;
    return -1;
}

int standin_see(int device, int other)
{
    const int before = g.sees[device][other];
    g.sees[device][other] = 1;
    return !before;
}

/* What a call answers that works in a context. */
CUresult standin_enter(void)
{
    return !started() ? CUDA_ERROR_NOT_INITIALIZED
           : !current ? CUDA_ERROR_INVALID_CONTEXT
                      : g.broken;
}

void standin_break(void)
{
    g.broken = CUDA_ERROR_ILLEGAL_ADDRESS;
}

void standin_begin(void)
{
    g.count.late += g.freed;
    g.freed = 0;
    g.begun = 1;
}

uint64_t standin_kernels(void)
{
    return ++g.kernels;
}

/* ---- devices ---------------------------------------------------------------------------------- */

EXPORT CUresult cuInit(unsigned flags)
{
    ONE_AT_A_TIME;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (g.started && !started())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (standin_option("init", 0) != 0)
        return (CUresult)standin_option("init", 0);
    g.started = getpid();
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = (int)standin_option("driver", CUDA_VERSION);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetCount(int *n)
{
    ONE_AT_A_TIME;
    *n = devices();
    return started() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
EXPORT CUresult cuDeviceGet(CUdevice *d, int index)
{
    ONE_AT_A_TIME;
    *d = index;
    return is_device(index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetName(char *name, int cap, CUdevice d)
{
    ONE_AT_A_TIME;
    (void)snprintf(name, (size_t)cap, d == 0 ? "Stand-in" : "Stand-in %d", d);
    return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    ONE_AT_A_TIME;
    int arch = (int)standin_option("arch", 90);
    if (a == CU_DEVICE_ATTRIBUTE_CLOCK_RATE) { /* of an H100 */
        *v = 1980000;
        return CUDA_SUCCESS;
    }
    if (a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
        *v = 4;
        return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    if (a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) {
        *v = standin_shared();
        return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    if (a != CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
        a != CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        return CUDA_ERROR_INVALID_VALUE;
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? arch / 10 : arch % 10;
    return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    ONE_AT_A_TIME;
    if (!is_device(d))
        return CUDA_ERROR_INVALID_DEVICE;
    g.retained[d]++;
    g.used |= 1u << d;
    *c = context_of(d);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice d)
{
    ONE_AT_A_TIME;
    if (!is_device(d) || g.retained[d] == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--g.retained[d] == 0) {
        g.broken = CUDA_SUCCESS;
        memset(g.sees[d], 0, sizeof g.sees[d]);
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent(CUcontext c)
{
    ONE_AT_A_TIME;
    for (int d = 0; d < devices(); d++)
        if (c == context_of(d) && g.retained[d] && current < (int)(sizeof stack / sizeof *stack)) {
            stack[current++] = d;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_CONTEXT;
}
EXPORT CUresult cuCtxPopCurrent(CUcontext *c)
{
    ONE_AT_A_TIME;
    if (current == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *c = context_of(stack[--current]);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorName(CUresult r, const char **name)
{
    ONE_AT_A_TIME;
    *name = r == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_STANDIN";
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult r, const char **text)
{
    ONE_AT_A_TIME;
    static char other[40];
    (void)snprintf(other, sizeof other, "error %d of the stand-in", (int)r);
    *text = r == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : other;
    return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------ */

#define SHARED_LEAST (UINT64_C(1) << 20)

static uint64_t memory(void)
{
    return (uint64_t)standin_option("memory", 4096) << 20;
}

EXPORT CUresult cuMemGetInfo(size_t *available, size_t *total)
{
    ONE_AT_A_TIME;
    *total = memory();
    *available = memory() - g.allocated;
    return standin_enter();
}

/* Who else works on the driver goes on meanwhile. */
static void let_others(void)
{
    (void)pthread_mutex_unlock(&mutex);
    (void)usleep(50);
    (void)pthread_mutex_lock(&mutex);
}

/* A device works although nobody waits for it: what this stream waits for may come from any other one. */
static CUresult wait_for(CUstream s, const struct record *until)
{
    CUresult r;
    while ((r = standin_run_until(s, until)) == CUDA_ERROR_NOT_READY) {
        for (struct CUstream_st *o = g.streams; o; o = o->next)
            if (o != s)
                (void)standin_run(o);
        let_others();
    }
    return r;
}

static int is_through(int device)
{
    int all = 1;
    for (struct CUstream_st *s = g.streams; s; s = s->next)
        all &= s->device != device || standin_run(s) != CUDA_ERROR_NOT_READY;
    return all;
}

void standin_settle(void)
{
    while (!is_through(standin_device()))
        let_others();
}

const struct pinned *standin_block(uint64_t device)
{
    const struct pinned *b = g.pinned;
    while (b && b->device != device)
        b = b->next;
    return b;
}

/* As a driver may, it waits for all work that the device has.  In one call of the library: who else works on it goes
 * on meanwhile. */
static CUresult new_block(CUdeviceptr *p, size_t bytes, int pinned)
{
    CUresult r = standin_enter();
    if (r != CUDA_SUCCESS)
        return r;
    standin_settle();
    g.count.taken++;
    g.count.late += (uint64_t)(g.begun != 0);
    struct pinned *b = malloc(sizeof *b);
    const int      shared = !pinned && devices() > 1 && bytes >= SHARED_LEAST;
    int            fd = -1;
    uint64_t       at = !bytes || bytes > memory() - g.allocated ? 0
                        : shared                                 ? standin_shared_alloc(bytes, &fd)
                                                                 : simt_alloc(bytes);
    if (!b || !at) {
        free(b);
        simt_free(at);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(simt_place(at, bytes), 0xa5, bytes);
    *b = (struct pinned){ .next = g.pinned, .device = at, .bytes = bytes, .fd = fd };
    g.pinned = b;
    g.allocated += bytes;
    *p = at;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
    ONE_AT_A_TIME;
    return new_block(p, bytes, 0);
}

/* host: pinned memory, on which a device address is memory of the emulation as well. */
EXPORT CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    ONE_AT_A_TIME;
    CUdeviceptr at = 0;
    CUresult    r = new_block(&at, bytes, 1);
    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    g.pinned->host = simt_place(at, bytes);
    *p = g.pinned->host;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned flags)
{
    ONE_AT_A_TIME;
    (void)flags;
    for (const struct pinned *b = g.pinned; b; b = b->next)
        if (b->host && b->host == p) {
            *d = b->device;
            return standin_enter();
        }
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT void standin_run_all(void)
{
    ONE_AT_A_TIME;
    for (int d = 0; d < DEVICES_MAX; d++)
        (void)is_through(d);
}

EXPORT struct standin_left standin_left(void)
{
    ONE_AT_A_TIME;
    struct standin_left l = { .events = g.events, .opened = standin_opened() };
    for (int d = 0; d < DEVICES_MAX; d++)
        l.contexts += (uint64_t)g.retained[d];
    for (const struct pinned *b = g.pinned; b; b = b->next)
        l.blocks++;
    for (const struct CUstream_st *s = g.streams; s; s = s->next)
        l.streams++;
    return l;
}

static CUresult free_block(uint64_t device, const void *host)
{
    /* work that is queued may use it: a free waits for all that the device has */
    standin_settle();
    for (struct pinned **b = &g.pinned; *b; b = &(*b)->next) {
        struct pinned *found = *b;
        if (found->device != device && !(host && found->host == host))
            continue;
        *b = found->next;
        g.count.taken++;
        g.freed += (uint64_t)(g.begun != 0);
        g.allocated -= found->bytes;
        if (found->fd < 0)
            simt_free(found->device);
        else
            standin_shared_free(found);
        free(found);
        return standin_enter();
    }
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemFree(CUdeviceptr p)
{
    ONE_AT_A_TIME;
    return free_block(p, NULL);
}
/* Mapped memory has one address on a real machine. */
EXPORT CUresult cuMemFreeHost(void *p)
{
    ONE_AT_A_TIME;
    return free_block((uint64_t)(uintptr_t)p, p);
}

EXPORT void *standin_place(uint64_t address, uint64_t bytes)
{
    return simt_place(address, bytes);
}

/* ---- copies -------------------------------------------------------------------------------------- */

static int is_pinned(const void *p, uint64_t bytes)
{
    const uint8_t *q = p;
    for (const struct pinned *b = g.pinned; b; b = b->next) {
        const uint8_t *base = b->host;
        if (base && q >= base && q < base + b->bytes)
            return bytes <= b->bytes - (uint64_t)(q - base);
    }
    return 0;
}

struct copy {
    void       *to;
    const void *from;
    uint64_t    bytes;
    int         value;
    uint8_t     own[]; /* of memory that is not pinned */
};

static CUresult do_copy(void *arg)
{
    const struct copy *c = arg;
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, c->value, c->bytes);
    return CUDA_SUCCESS;
}

static CUresult queue_copy(CUstream s, const struct copy *c, uint64_t own)
{
    struct copy *q = malloc(sizeof *q + own);
    CUresult     r = standin_enter();
    if (r != CUDA_SUCCESS || !q) {
        free(q);
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(q, c, sizeof *q);
    if (own) {
        memcpy(q->own, c->from, own);
        q->from = q->own;
    }
    return standin_queue(s, do_copy, q);
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    ONE_AT_A_TIME;
    struct copy c = { .to = simt_place(to, bytes), .from = from, .bytes = bytes };
    return c.to ? queue_copy(s, &c, is_pinned(from, bytes) ? 0 : bytes) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
    ONE_AT_A_TIME;
    struct copy c = { .to = to, .from = simt_place(from, bytes), .bytes = bytes };
    if (!c.from)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > g.count.fetched)
        g.count.fetched = bytes;
    CUresult r = queue_copy(s, &c, 0);
    return r == CUDA_SUCCESS && !is_pinned(to, bytes) ? wait_for(s, NULL) : r;
}
EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    ONE_AT_A_TIME;
    struct copy c = { simt_place(to, bytes), simt_place(from, bytes), bytes, 0 };
    return c.to && c.from ? queue_copy(s, &c, 0) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s)
{
    ONE_AT_A_TIME;
    struct copy c = { .to = simt_place(to, bytes), .bytes = bytes, .value = value };
    return c.to ? queue_copy(s, &c, 0) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- streams and events ----------------------------------------------------------------------------- */

EXPORT CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
    ONE_AT_A_TIME;
    CUresult r = standin_enter();
    *s = NULL;
    if (r != CUDA_SUCCESS || flags != CU_STREAM_NON_BLOCKING)
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
    *s = calloc(1, sizeof **s);
    if (!*s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*s)->device = standin_device();
    (*s)->next = g.streams;
    g.streams = *s;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy(CUstream s)
{
    ONE_AT_A_TIME;
    CUresult r = wait_for(s, NULL);
    for (struct CUstream_st **p = &g.streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    free(s->tasks);
    free(s);
    return r;
}

EXPORT CUresult cuStreamSynchronize(CUstream s)
{
    ONE_AT_A_TIME;
    CUresult r = standin_enter();
    g.count.waits++;
    if (s->capturing) {
        s->spoilt = 1;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return r != CUDA_SUCCESS ? r : wait_for(s, NULL);
}

/* Looking moves it on. */
EXPORT CUresult cuStreamQuery(CUstream s)
{
    ONE_AT_A_TIME;
    return standin_run(s);
}

struct CUevent_st {
    struct record *last;
};

static void leave_record(struct record *r)
{
    if (r && --r->users == 0)
        free(r);
}

static CUresult do_event(void *arg)
{
    struct record *r = *(struct record **)arg;
    (void)clock_gettime(CLOCK_MONOTONIC, &r->at);
    r->passed = 1;
    leave_record(r);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *e, unsigned flags)
{
    ONE_AT_A_TIME;
    (void)flags;
    *e = calloc(1, sizeof **e);
    g.events += *e != NULL;
    return *e ? standin_enter() : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT CUresult cuEventDestroy(CUevent e)
{
    ONE_AT_A_TIME;
    g.events--;
    leave_record(e->last);
    free(e);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent e, CUstream s)
{
    ONE_AT_A_TIME;
    struct record **p = malloc(sizeof *p), *r = malloc(sizeof *r);
    if (!p || !r) {
        free(p);
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *r = (struct record){ .stream = s, .users = 2 };
    *p = r;
    leave_record(e->last);
    e->last = r;
    return standin_queue(s, do_event, p);
}
EXPORT CUresult cuEventSynchronize(CUevent e)
{
    ONE_AT_A_TIME;
    return !e->last          ? CUDA_ERROR_INVALID_VALUE
           : e->last->passed ? CUDA_SUCCESS
                             : wait_for(e->last->stream, e->last);
}
EXPORT CUresult cuEventQuery(CUevent e)
{
    ONE_AT_A_TIME;
    return !e->last || e->last->passed ? CUDA_SUCCESS : standin_run_until(e->last->stream, e->last);
}

static CUresult do_wait(void *arg)
{
    struct record *r = *(struct record **)arg;
    CUresult       e = r->passed ? CUDA_SUCCESS : standin_run_until(r->stream, r);
    if (e == CUDA_ERROR_NOT_READY)
        return e;
    leave_record(r);
    return e;
}

EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    ONE_AT_A_TIME;
    if (flags || !e->last)
        return flags ? CUDA_ERROR_INVALID_VALUE : standin_enter();
    struct record **arg = malloc(sizeof *arg);
    if (!arg)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *arg = e->last;
    e->last->users++;
    return standin_queue(s, do_wait, arg);
}
#undef cuEventElapsedTime
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b);
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    ONE_AT_A_TIME;
    const struct timespec *from = &a->last->at, *to = &b->last->at;
    *ms = (float)((double)(to->tv_sec - from->tv_sec) * 1e3 +
                  (double)(to->tv_nsec - from->tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}
