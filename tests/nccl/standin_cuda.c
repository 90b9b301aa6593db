/* libcuda.so.1 as far as the transport nccl goes (standin.h). */
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY UINT64_C(0x5a00000000000000) /* bits that no pointer has */

#define EXPORT __attribute__((visibility("default")))

struct work {
    struct work *next;
    bool (*run)(void *);
    void *arg;
};

struct cu_stream_s {
    struct cu_stream_s *next;
    struct work        *first, *last;
    cu_context          context;
    bool                gone; /* destroyed with work on it */
};

struct cu_event_s {
    uint64_t recorded, passed;
    bool     gone; /* destroyed */
};

struct cu_context_s {
    int device, retained;
};

struct block {
    struct block *next;
    uint8_t      *p;
    uint64_t      bytes;
    bool          pinned;
};

#define DEVICES_MAX 16

static pthread_mutex_t          mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int                      n_devices = 8;
static bool                     started;
static struct cu_context_s      contexts[DEVICES_MAX];
static struct cu_stream_s      *streams;
static struct block            *blocks;
static uint64_t                 events, stalls, taken;
static int64_t                  allocs_left = -1;
static _Thread_local cu_context stack[16];
static _Thread_local int        depth;

EXPORT void standin_lock(void)
{
    (void)pthread_mutex_lock(&mutex);
}

EXPORT void standin_unlock(void)
{
    (void)pthread_mutex_unlock(&mutex);
}

EXPORT void standin_devices(int n)
{
    n_devices = n;
}

EXPORT int standin_retained(int device)
{
    standin_lock();
    int n = contexts[device].retained;
    standin_unlock();
    return n;
}

EXPORT void standin_fail_alloc(int64_t after)
{
    allocs_left = after;
}

EXPORT uint64_t standin_stalls(void)
{
    return stalls;
}

EXPORT uint64_t standin_taken(void)
{
    return taken;
}

EXPORT bool standin_has_context(void)
{
    return depth > 0;
}

EXPORT struct standin_live standin_live(void)
{
    struct standin_live l = { .events = events };
    standin_lock();
    for (int i = 0; i < DEVICES_MAX; i++)
        l.contexts += (uint64_t)contexts[i].retained;
    for (const struct block *b = blocks; b; b = b->next)
        l.blocks++;
    for (const struct cu_stream_s *s = streams; s; s = s->next)
        l.streams++;
    standin_unlock();
    return l;
}

/* ---- streams ------------------------------------------------------------------- */

EXPORT bool standin_push(cu_stream stream, bool (*run)(void *), void *arg)
{
    struct work *w = malloc(sizeof *w);
    if (!w || !stream)
        abort();
    *w = (struct work){ NULL, run, arg };
    if (stream->last)
        stream->last->next = w;
    else
        stream->first = w;
    stream->last = w;
    return true;
}

EXPORT void standin_move(void)
{
    standin_lock();
    for (struct cu_stream_s **at = &streams; *at;) {
        struct cu_stream_s *s = *at;
        while (s->first && s->first->run(s->first->arg)) {
            struct work *w = s->first;
            s->first = w->next;
            if (!s->first)
                s->last = NULL;
            free(w);
        }
        if (s->gone && !s->first) {
            *at = s->next;
            free(s);
        } else {
            at = &s->next;
        }
    }
    standin_unlock();
}

/* ---- devices and contexts -------------------------------------------------------- */

EXPORT cu_result cuInit(unsigned flags)
{
    started = flags == 0;
    return n_devices ? CU_OK : CU_NO_DEVICE;
}

EXPORT cu_result cuDeviceGetCount(int *n)
{
    *n = n_devices;
    return started ? CU_OK : 3;
}

EXPORT cu_result cuDeviceGet(cu_device *d, int i)
{
    *d = i;
    return i >= 0 && i < n_devices ? CU_OK : 101;
}

EXPORT cu_result cuDevicePrimaryCtxRetain(cu_context *c, cu_device d)
{
    standin_lock();
    *c = &contexts[d];
    contexts[d].device = d;
    contexts[d].retained++;
    standin_unlock();
    return CU_OK;
}

EXPORT cu_result cuDevicePrimaryCtxRelease_v2(cu_device d)
{
    standin_lock();
    contexts[d].retained--;
    standin_unlock();
    return CU_OK;
}

EXPORT cu_result cuCtxPushCurrent_v2(cu_context c)
{
    if (!c || depth == 16)
        return 201;
    stack[depth++] = c;
    return CU_OK;
}

EXPORT cu_result cuCtxPopCurrent_v2(cu_context *c)
{
    if (depth == 0)
        return 201;
    *c = stack[--depth];
    return CU_OK;
}

/* ---- memory ---------------------------------------------------------------------- */

static cu_result new_block(size_t bytes, bool pinned, void **p)
{
    struct block *b = NULL;
    if (depth == 0 || bytes == 0)
        return depth ? 1 : 201;
    standin_lock();
    taken++;
    if (allocs_left != 0)
        b = malloc(sizeof *b);
    if (allocs_left > 0)
        allocs_left--;
    if (b && !(b->p = malloc(bytes))) {
        free(b);
        b = NULL;
    }
    if (b) {
        memset(b->p, 0x5a, bytes); /* nothing is zeroed */
        b->bytes = bytes;
        b->pinned = pinned;
        b->next = blocks;
        blocks = b;
        *p = b->p;
    }
    standin_unlock();
    return b ? CU_OK : CU_OUT_OF_MEMORY;
}

static cu_result free_block(const void *p, bool pinned)
{
    cu_result e = 1;
    standin_lock();
    standin_move();
    for (const struct cu_stream_s *s = streams; s; s = s->next)
        if (s->first && depth && s->context == stack[depth - 1]) {
            stalls++;
            break;
        }
    for (struct block **at = &blocks; *at; at = &(*at)->next) {
        struct block *b = *at;
        if (b->p != p || b->pinned != pinned)
            continue;
        *at = b->next;
        free(b->p);
        free(b);
        taken++;
        e = CU_OK;
        break;
    }
    standin_unlock();
    return e;
}

static bool inside(const void *p, uint64_t bytes, bool pinned)
{
    for (const struct block *b = blocks; b; b = b->next)
        if (b->pinned == pinned && (uintptr_t)p >= (uintptr_t)b->p &&
            (uintptr_t)p - (uintptr_t)b->p <= b->bytes &&
            bytes <= b->bytes - ((uintptr_t)p - (uintptr_t)b->p))
            return true;
    return false;
}

static void *(*other_memory)(uint64_t address, uint64_t bytes);

EXPORT void standin_memory(void *(*place)(uint64_t address, uint64_t bytes))
{
    other_memory = place;
}

EXPORT void *standin_place(const void *address, uint64_t bytes)
{
    void *p = (void *)((uintptr_t)address ^ KEY);
    standin_lock();
    bool ok = inside(p, bytes, false);
    standin_unlock();
    if (!ok && other_memory)
        return other_memory((uintptr_t)address, bytes);
    return ok ? p : NULL;
}

EXPORT cu_result cuMemAlloc_v2(cu_pointer *p, size_t bytes)
{
    void     *at = NULL;
    cu_result e = new_block(bytes, false, &at);
    *p = e == CU_OK ? (uintptr_t)at ^ KEY : 0;
    return e;
}

EXPORT cu_result cuMemFree_v2(cu_pointer p)
{
    return free_block((const void *)(uintptr_t)(p ^ KEY), false);
}

EXPORT cu_result cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    return flags <= 7 ? new_block(bytes, true, p) : 1;
}

EXPORT cu_result cuMemFreeHost(void *p)
{
    return free_block(p, true);
}

struct copy {
    void       *to;
    const void *from;
    size_t      bytes;
};

static bool run_copy(void *arg)
{
    struct copy *c = arg;
    memcpy(c->to, c->from, c->bytes);
    free(c);
    return true;
}

static cu_result push_copy(void *to, const void *from, size_t bytes, cu_stream stream)
{
    struct copy *c = malloc(sizeof *c);
    if (!c || !to || !from || !stream || depth == 0) {
        free(c);
        return 1;
    }
    *c = (struct copy){ to, from, bytes };
    standin_lock();
    (void)standin_push(stream, run_copy, c);
    standin_unlock();
    return CU_OK;
}

static bool pinned(const void *p, size_t bytes)
{
    standin_lock();
    bool ok = inside(p, bytes, true);
    standin_unlock();
    return ok;
}

EXPORT cu_result cuMemcpyHtoDAsync_v2(cu_pointer to, const void *from, size_t bytes, cu_stream s)
{
    return pinned(from, bytes)
               ? push_copy(standin_place((void *)(uintptr_t)to, bytes), from, bytes, s)
               : 1;
}

EXPORT cu_result cuMemcpyDtoHAsync_v2(void *to, cu_pointer from, size_t bytes, cu_stream s)
{
    return pinned(to, bytes)
               ? push_copy(to, standin_place((void *)(uintptr_t)from, bytes), bytes, s)
               : 1;
}

EXPORT cu_result cuMemcpyDtoDAsync_v2(cu_pointer to, cu_pointer from, size_t bytes, cu_stream s)
{
    return push_copy(standin_place((void *)(uintptr_t)to, bytes),
                     standin_place((void *)(uintptr_t)from, bytes), bytes, s);
}

/* ---- devices that see each other's memory ----------------------------------------- */

EXPORT cu_result cuMemHostGetDevicePointer_v2(cu_pointer *p, void *host, unsigned flags)
{
    *p = (uintptr_t)host ^ KEY;
    return flags == 0 && pinned(host, 1) ? CU_OK : 1;
}

struct fill {
    void         *to;
    unsigned char value;
    size_t        bytes;
};

static bool run_fill(void *arg)
{
    struct fill *f = arg;
    memset(f->to, f->value, f->bytes);
    free(f);
    return true;
}

EXPORT cu_result cuMemsetD8Async(cu_pointer to, unsigned char value, size_t bytes, cu_stream s)
{
    struct fill *f = malloc(sizeof *f);
    if (!f || !s || depth == 0) {
        free(f);
        return 1;
    }
    *f = (struct fill){ standin_place((void *)(uintptr_t)to, bytes), value, bytes };
    if (!f->to) {
        free(f);
        return 1;
    }
    standin_lock();
    (void)standin_push(s, run_fill, f);
    standin_unlock();
    return CU_OK;
}

EXPORT cu_result cuDeviceGetPCIBusId(char *text, int cap, cu_device d)
{
    (void)snprintf(text, (size_t)cap, "0000:%02X:00.0", (unsigned)d);
    return CU_OK;
}

EXPORT cu_result cuDeviceGetByPCIBusId(cu_device *d, const char *text)
{
    *d = (int)strtol(text + 5, NULL, 16);
    return *d < n_devices ? CU_OK : 101;
}

/* No kernel of this stand-in sums, so nobody needs to see. */
EXPORT cu_result cuDeviceCanAccessPeer(int *can, cu_device d, cu_device other)
{
    *can = 0;
    return d != other ? CU_OK : 101;
}

EXPORT cu_result cuCtxEnablePeerAccess(cu_context other, unsigned flags)
{
    (void)other;
    (void)flags;
    return 217;
}

EXPORT cu_result cuIpcGetMemHandle(cu_ipc *h, cu_pointer p)
{
    memset(h, 0, sizeof *h);
    return standin_place((void *)(uintptr_t)p, 1) ? CU_OK : 1;
}

EXPORT cu_result cuIpcOpenMemHandle_v2(cu_pointer *p, cu_ipc h, unsigned flags)
{
    (void)h;
    (void)flags;
    *p = 0;
    return 1;
}

EXPORT cu_result cuIpcCloseMemHandle(cu_pointer p)
{
    (void)p;
    return 1;
}

/* ---- streams and events ---------------------------------------------------------- */

EXPORT cu_result cuStreamCreate(cu_stream *out, unsigned flags)
{
    struct cu_stream_s *s = calloc(1, sizeof *s);
    if (!s || depth == 0 || flags > 1) {
        free(s);
        return 201;
    }
    standin_lock();
    s->context = stack[depth - 1];
    s->next = streams;
    streams = s;
    standin_unlock();
    *out = s;
    return CU_OK;
}

EXPORT cu_result cuStreamDestroy_v2(cu_stream s)
{
    standin_lock();
    s->gone = true;
    standin_move();
    standin_unlock();
    return CU_OK;
}

EXPORT cu_result cuStreamQuery(cu_stream s)
{
    standin_move();
    standin_lock();
    cu_result e = s->first ? CU_NOT_READY : CU_OK;
    standin_unlock();
    return e;
}

EXPORT cu_result cuEventCreate(cu_event *out, unsigned flags)
{
    struct cu_event_s *e = calloc(1, sizeof *e);
    if (!e || flags != CU_EVENT_UNTIMED) {
        free(e);
        return 1;
    }
    standin_lock();
    events++;
    standin_unlock();
    *out = e;
    return CU_OK;
}

EXPORT cu_result cuEventDestroy_v2(cu_event e)
{
    standin_lock();
    events--;
    e->gone = true;
    if (e->passed == e->recorded)
        free(e); /* else its mark still comes, and does it */
    standin_unlock();
    return CU_OK;
}

static bool pass(void *arg)
{
    struct cu_event_s *e = arg;
    if (++e->passed == e->recorded && e->gone)
        free(e);
    return true;
}

EXPORT cu_result cuEventRecord(cu_event e, cu_stream s)
{
    if (depth == 0 || !s)
        return 201;
    standin_lock();
    e->recorded++;
    (void)standin_push(s, pass, e);
    standin_unlock();
    return CU_OK;
}

EXPORT cu_result cuEventQuery(cu_event e)
{
    standin_move();
    standin_lock();
    cu_result r = e->passed == e->recorded ? CU_OK : CU_NOT_READY;
    standin_unlock();
    return r;
}

EXPORT cu_result cuGetErrorString(cu_result e, const char **text)
{
    *text = e == CU_OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in";
    return CU_OK;
}
