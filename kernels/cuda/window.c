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
    if (ranks > K_WINDOW_RANKS || border[0] != 0 || border[ranks] != a->cols)
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

/* What a sum of rows with these codes is, but for its rows; the bytes of a row in a half.  0: it is not added here. */
static uint64_t outline(const struct tsr_codec_wire *wire, const uint64_t *border, uint32_t ranks,
                        struct k_window *a)
{
    const int is_mx = wire->kind == TSR_WIRE_MX;
    uint32_t  grid[2];
    a->cols = wire->cols;
    a->rows = 1;
    if (wire->cols == 0 || wire->cols > K_WINDOW_MOST)
        return 0;
    if (is_mx) { /* blocks that are runs of a warp */
        const uint32_t bits = tsr_cuda_mx_bits(wire, &a->mx);
        if (bits == 0 || wire->block % 8 || wire->block > 256 || wire->block & (wire->block - 1))
            return 0;
        a->lanes = (uint32_t)wire->block / 8;
        a->log2_lanes = (uint32_t)__builtin_ctz(a->lanes);
        a->words = bits > 4 ? 2 : 1;
    } else if (wire->kind == TSR_WIRE_PLAIN &&
               (wire->dtype == TSR_F32 || wire->dtype == TSR_F16 || wire->dtype == TSR_BF16)) {
        a->dtype = wire->dtype;
    } else {
        return 0;
    }
    k_window_cells(a, grid); /* the runs */
    if (border && !has_slices(a, ranks, border))
        return 0;
    return is_mx ? k_window_mx_bytes(a, 1) : wire->cols * (wire->dtype == TSR_F32 ? 4 : 2);
}

static uint64_t half_of(const struct tsr_window *w)
{
    const uint64_t half = w->bytes < K_WINDOW_HEAD ? 0 : (w->bytes - K_WINDOW_HEAD) / 512 * 256;
    return cuda_min(half, K_WINDOW_MOST);
}

static uint64_t room(const void *self, const struct tsr_window *w,
                     const struct tsr_codec_wire *wire, const uint64_t *border)
{
    struct k_window a = { 0 };
    const uint64_t  row = outline(wire, border, w->ranks, &a);
    (void)self;
    return row ? half_of(w) / row : 0;
}

static tsr_status sum(void *self, const struct tsr_window *w, uint64_t turn,
                      const struct tsr_codec_wire *wire, const uint64_t *border,
                      const struct tsr_tensor *x, struct tsr_err *err)
{
    struct tsr_cuda        *c = self;
    struct tsr_cuda_buffer *b = x->buffer;
    struct tsr_view         v;
    struct k_window         a = { .half = K_WINDOW_HEAD + (turn & 1) * half_of(w),
                                  .state = w->state_address,
                                  .wait_ns = w->wait_us * 1000,
                                  .rank = w->rank,
                                  .ranks = w->ranks };
    uint32_t                grid[2];
    tsr_status st = tsr_cuda_view(&v, x, "a sum over ranks", "x", TSR_F32, 0, wire->cols, err);
    if (st != TSR_OK)
        return st;
    if (outline(wire, border, w->ranks, &a) == 0 || v.rows > room(self, w, wire, border))
        return tsr_fail(err, TSR_E_INVAL, "a sum of %llu x %llu numbers does not fit its window",
                        U(v.rows), U(v.cols));
    memcpy(a.window, w->address, sizeof a.window);
    a.x = v.p;
    a.ldx = v.stride / 4;
    a.rows = v.rows;
    a.wide = a.cols % 4 == 0 && a.x % 16 == 0 && a.ldx % 4 == 0;
    a.resident =
        (uint32_t)cuda_min(c->api->units(c->device), K_WINDOW_CELLS / (a.slices ? a.slices : 1));
    k_window_cells(&a, grid);
    TSR_CUDA_ALONE(c);
    if (w->rank >= w->ranks || w->ranks > K_WINDOW_RANKS || (c->window && c->window != w))
        return tsr_fail(err, TSR_E_INVAL, "a window of rank %u of %u, or a second one", w->rank,
                        w->ranks);
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
    static const struct tsr_backend_window_v1 table = {
        .struct_size = sizeof table, .room = room, .sum = sum, .forget = forget
    };
    return &table;
}
