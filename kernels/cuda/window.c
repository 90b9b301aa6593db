/* window.c - the extension of tessera/draft/window.h: sums over ranks in one launch (window.cu). */
#include "backend.h"
#include "k_window.h"

#include <stdatomic.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

_Static_assert(TSR_WINDOW_RANKS == K_WINDOW_RANKS, "a window has room for the flags of all ranks");

static uint32_t state_of(const struct tsr_window *w)
{
    return atomic_load((_Atomic uint32_t *)(void *)w->state);
}

tsr_status tsr_cuda_waited(const struct tsr_cuda *c, tsr_status st, struct tsr_err *err)
{
    const struct tsr_window *w = c->window;
    const uint32_t           state = st == TSR_OK && w ? state_of(w) : 0;
    if (state == 0)
        return st;
    if (state == K_WINDOW_ENDED)
        return tsr_fail(err, TSR_E_CANCELLED, "%s: a rank aborted the group", c->text);
    return tsr_fail(err, TSR_E_DEVICE,
                    "%s: a sum over ranks: %llu us have passed and rank %u has not come", c->text,
                    U(w->wait_us), state - K_WINDOW_LATE);
}

/* Slices in runs.  0: they cut a run, or a block of `mx`. */
static int has_slices(struct k_window *a, uint32_t ranks, const uint64_t *border)
{
    const uint64_t unit = (uint64_t)K_WINDOW_COLUMNS(a) * (a->lanes ? a->lanes : 1);
    if (border[0] != 0 || border[ranks] != a->cols)
        return 0;
    for (uint32_t r = 0; r <= ranks; r++) {
        const int is_end = border[r] == a->cols;
        if ((r && border[r] < border[r - 1]) || (!is_end && border[r] % unit))
            return 0;
        a->border[r] = is_end ? a->runs : (uint32_t)(border[r] / K_WINDOW_COLUMNS(a));
    }
    a->slices = ranks;
    return 1;
}

/* One wire for all numbers. */
static int outline_wire(const struct tsr_codec_wire *wire, struct k_window *a)
{
    if (wire->kind == TSR_WIRE_MX) { /* blocks that are runs of a warp */
        const uint32_t bits = tsr_cuda_mx_bits(wire, &a->mx);
        if (bits == 0 || wire->block % 8 || wire->block > 256 || wire->block & (wire->block - 1))
            return 0;
        a->lanes = (uint32_t)wire->block / 8;
        a->log2_lanes = (uint32_t)__builtin_ctz(a->lanes);
        a->words = bits > 4 ? 2 : 1;
        return 1;
    }
    a->dtype = wire->dtype;
    return wire->kind == TSR_WIRE_PLAIN &&
           (wire->dtype == TSR_F32 || wire->dtype == TSR_F16 || wire->dtype == TSR_BF16);
}

/* What sums have in common. */
struct sums {
    struct k_window a;    /* but for x and the window */
    uint64_t        row;  /* bytes of a half */
    uint64_t        list; /* device memory of a.scaled, or 0 */
};

/* 0: such sums are not added here. */
static int outline(const struct tsr_window *w, const struct tsr_window_codes *codes, struct sums *o)
{
    struct k_window             *a = &o->a;
    const struct tsr_codec_wire *first = codes->first;
    uint32_t                     grid[2];
    *o = (struct sums){ .a = {
                            .cols = codes->cols, .rows = 1, .rank = w->rank, .ranks = w->ranks } };
    if (codes->cols == 0 || codes->cols > K_WINDOW_MOST || w->ranks > K_WINDOW_RANKS ||
        w->rank >= w->ranks)
        return 0;
    if (!(first->same ? outline_wire(first, a) : tsr_cuda_scaled_outline(codes, a)))
        return 0;
    k_window_cells(a, grid); /* the runs */
    if (codes->border && !has_slices(a, w->ranks, codes->border))
        return 0;
    o->row = a->lanes ? k_window_coded_bytes(a, 1) : a->cols * (a->dtype == TSR_F32 ? 4 : 2);
    return 1;
}

static uint64_t half_of(const struct tsr_window *w)
{
    const uint64_t half = w->bytes < K_WINDOW_HEAD ? 0 : (w->bytes - K_WINDOW_HEAD) / 512 * 256;
    return cuda_min(half, K_WINDOW_MOST);
}

static void unload(void *self, void *sums)
{
    struct tsr_cuda       *c = self;
    const struct tsr_host *host = c->host;
    struct sums           *o = sums;
    if (!o)
        return;
    if (o->list)
        c->api->release(c->device, o->list, TSR_CUDA_DEVICE);
    host->release(host->ctx, o, sizeof *o);
}

/* The lists of a.scaled, to the device. */
static tsr_status put_lists(struct tsr_cuda *c, const struct tsr_window_codes *codes,
                            struct sums *o, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    const uint64_t         bytes = 4 * tsr_cuda_scaled_words(&o->a);
    uint32_t              *list = host->alloc(host->ctx, bytes, 64);
    if (!list)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for the scales of a sum",
                        U(bytes));
    tsr_status st = c->api->alloc(c->device, bytes, TSR_CUDA_DEVICE, &o->list, err);
    if (st == TSR_OK) {
        tsr_cuda_scaled_lists(codes, o->list, list, &o->a);
        st = c->api->put(c->device, o->list, list, bytes, err);
    }
    if (st == TSR_OK)
        st = c->api->sync(c->device, NULL, err); /* before the list goes */
    host->release(host->ctx, list, bytes);
    return st;
}

static tsr_status load(void *self, const struct tsr_window *w, const struct tsr_window_codes *codes,
                       void **sums, struct tsr_err *err)
{
    struct tsr_cuda       *c = self;
    const struct tsr_host *host = c->host;
    struct sums            o, *keep;
    tsr_status             st = TSR_OK;
    *sums = NULL;
    if (!outline(w, codes, &o))
        return tsr_fail(err, TSR_E_UNSUPPORTED, "such numbers are not added in a window");
    keep = host->alloc(host->ctx, sizeof *keep, 64);
    if (!keep)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a sum over ranks");
    TSR_CUDA_ALONE(c);
    if (o.a.scaled.most)
        st = put_lists(c, codes, &o, err);
    *keep = o;
    if (st != TSR_OK)
        unload(c, keep); /* takes no lock */
    else
        *sums = keep;
    return st;
}

static uint64_t room(const void *self, const struct tsr_window *w, const void *sums)
{
    const struct sums *o = sums;
    (void)self;
    return half_of(w) / o->row;
}

static tsr_status sum(void *self, const struct tsr_window *w, uint64_t turn, const void *sums,
                      const struct tsr_tensor *x, struct tsr_err *err)
{
    struct tsr_cuda        *c = self;
    const struct sums      *o = sums;
    struct tsr_cuda_buffer *b = x->buffer;
    struct k_window         a = o->a;
    struct tsr_view         v;
    uint32_t                grid[2];
    tsr_status st = tsr_cuda_view(&v, x, "a sum over ranks", "x", TSR_F32, 0, a.cols, err);
    if (st != TSR_OK)
        return st;
    if (v.rows > room(self, w, sums))
        return tsr_fail(err, TSR_E_INVAL, "a sum of %llu x %llu numbers does not fit its window",
                        U(v.rows), U(v.cols));
    a.half = K_WINDOW_HEAD + (turn & 1) * half_of(w);
    a.state = w->state_address;
    a.wait_ns = w->wait_us * 1000;
    memcpy(a.window, w->address, sizeof a.window);
    a.x = v.p;
    a.ldx = v.stride / 4;
    a.rows = v.rows;
    a.wide = a.cols % 4 == 0 && a.x % 16 == 0 && a.ldx % 4 == 0;
    a.resident =
        (uint32_t)cuda_min(c->api->units(c->device), K_WINDOW_CELLS / (a.slices ? a.slices : 1));
    k_window_cells(&a, grid);
    TSR_CUDA_ALONE(c);
    if (c->window && c->window != w)
        return tsr_fail(err, TSR_E_INVAL, "a second window of rank %u of %u", w->rank, w->ranks);
    if ((st = tsr_cuda_waited(c, TSR_OK, err)) != TSR_OK) /* an earlier sum failed */
        return st;
    c->window = w;
    b->written = 1;
    tsr_cuda_kept_wrote(c, a.x, a.x + (a.rows - 1) * v.stride + 4 * a.cols);
    return tsr_cuda_launch(c, NULL, KERNEL_k_window_sum, grid[0], grid[1], 1, 256, &a, sizeof a,
                           err);
}

static void forget(void *self)
{
    struct tsr_cuda *c = self;
    TSR_CUDA_ALONE(c);
    if (tsr_cuda_flush(c, NULL) == TSR_OK)
        (void)c->api->sync(c->device, NULL, NULL);
    c->window = NULL;
}

const struct tsr_backend_window_v1 *tsr_cuda_window(void)
{
    static const struct tsr_backend_window_v1 table = { .struct_size = sizeof table,
                                                        .load = load,
                                                        .free = unload,
                                                        .room = room,
                                                        .sum = sum,
                                                        .forget = forget };
    return &table;
}
