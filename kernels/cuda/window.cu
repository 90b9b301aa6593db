/* window.cu - a sum over ranks in one launch: each device writes its numbers where the others see them, waits for
 * theirs and adds all of them itself.  Nothing of it waits for the host, so the launch is part of a token's graph.
 * k_window_step does ADD, NORM and the quantization of the sum's rows too.
 *
 * Reference: core/comm/coder_sum.c (tsr_comm_tree) with codec `plain`; held to its bytes by tests/gpu/test_window.c.
 * Bytes moved by a number, with n ranks: 4 read and 4 written here, the bytes of the type written here and read of
 * each rank, n - 1 times over the link.
 */
#include "k_norm_step.h"
#include "k_window.h"

#define DT_F32  1u
#define DT_F16  2u
#define DT_BF16 3u

/* What a block adds: runs [first, end) of rows row, row + step, ...  Its flags are those of `cells` cells from `cell` on. */
struct share {
    uint32_t row, step, first, end, cell, cells;
};

/* A share's runs, which are the same in all ranks whatever their addresses are.  Rows and columns are counted on, since
 * a division a run would take longer than the run. */
struct walk {
    uint32_t row, col;    /* col: in runs */
    uint32_t down, right; /* from one to the next */
};

DEV struct walk walk_of(const struct share *s)
{
    const uint32_t wide = s->end - s->first;
    struct walk    w;
    w.down = blockDim.x / wide * s->step;
    w.right = blockDim.x % wide;
    w.row = s->row + threadIdx.x / wide * s->step;
    w.col = s->first + threadIdx.x % wide;
    return w;
}

DEV void walk_on(struct walk *w, const struct share *s)
{
    w->row += w->down;
    w->col += w->right;
    if (w->col >= s->end) {
        w->col -= s->end - s->first;
        w->row += s->step;
    }
}

DEV float *place_of(const struct k_window *a, const struct walk *w, uint32_t n)
{
    return AT(float, a->x) + w->row * a->ldx + w->col * n;
}

DEV void x_get(const float *x, uint32_t wide, uint32_t n, float *v)
{
    if (wide) {
        const float4 q = *(const float4 *)(const void *)x;
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        return;
    }
    UNROLL_LOOP
    for (uint32_t k = 0; k < 4; k++)
        if (k < n)
            v[k] = x[k];
}

DEV void x_put(float *x, uint32_t wide, uint32_t n, const float *v)
{
    if (wide) {
        float4 q;
        q.x = v[0], q.y = v[1], q.z = v[2], q.w = v[3];
        *(float4 *)(void *)x = q;
        return;
    }
    UNROLL_LOOP
    for (uint32_t k = 0; k < 4; k++)
        if (k < n)
            x[k] = v[k];
}

DEV uint32_t narrowed(uint32_t dtype, float v)
{
    return dtype == DT_F16 ? k_to_half(v) : __float_as_uint(k_round_bf16(v)) >> 16;
}
DEV float widened(uint32_t dtype, uint32_t h)
{
    return dtype == DT_F16 ? k_half(h) : k_bf16(h);
}

/* A run of a half, which is dense. */
DEV void half_put(uint8_t *half, uint32_t dtype, uint32_t run, uint32_t n, const float *v)
{
    if (dtype == DT_F32) {
        x_put((float *)(void *)half + (uint64_t)run * n, n == 4, n, v);
    } else if (n == 4) {
        uint2 q;
        q.x = narrowed(dtype, v[0]) | narrowed(dtype, v[1]) << 16;
        q.y = narrowed(dtype, v[2]) | narrowed(dtype, v[3]) << 16;
        ((uint2 *)(void *)half)[run] = q;
    } else {
        ((uint16_t *)(void *)half)[run] = (uint16_t)narrowed(dtype, v[0]);
    }
}

DEV void half_get(const uint8_t *half, uint32_t dtype, uint32_t run, uint32_t n, float *v)
{
    if (dtype == DT_F32) {
        x_get((const float *)(const void *)half + (uint64_t)run * n, n == 4, n, v);
    } else if (n == 4) {
        const uint2 q = ((const uint2 *)(const void *)half)[run];
        v[0] = widened(dtype, q.x & 0xffffu), v[1] = widened(dtype, q.x >> 16);
        v[2] = widened(dtype, q.y & 0xffffu), v[3] = widened(dtype, q.y >> 16);
    } else {
        v[0] = widened(dtype, ((const uint16_t *)(const void *)half)[run]);
    }
}

/* Until rank r has raised its flag; not for ever. */
DEV void wait_for(const struct k_window *a, uint32_t r, const uint32_t *flag, uint32_t epoch)
{
    uint32_t *const state = AT(uint32_t, a->state);
    uint64_t        since = 0;
    for (uint32_t looks = 1; (int32_t)(flag_look(flag) - epoch) < 0; looks++) {
        if (looks % FLAG_LOOKS)
            continue;
        if (flag_look(state))
            return;
        const uint64_t now = clock_ns();
        since = since ? since : now;
        if (now - since > a->wait_ns) {
            flag_raise(state, K_WINDOW_LATE + r);
            return;
        }
    }
    flag_seen();
}

/* A thread looks at the flag of one rank and cell. */
DEV void window_sum(const struct k_window *a, const struct share *s)
{
    const uint32_t    n = a->cols % 4 ? 1u : 4u, wide = K_WINDOW_WIDE(a->cols);
    const uint32_t    rows = (uint32_t)a->rows, r = threadIdx.x % K_WINDOW_RANKS;
    const uint32_t    cell = s->cell + threadIdx.x / K_WINDOW_RANKS;
    const int         is_looking = threadIdx.x < s->cells * K_WINDOW_RANKS;
    uint32_t         *own = AT(uint32_t, a->window[a->rank]), *epochs = own + K_WINDOW_FLAGS;
    const uint32_t    epoch = is_looking ? epochs[cell] + 1 : 0;
    const struct walk from = walk_of(s);
    float             v[K_WINDOW_RANKS][4];
    for (struct walk w = from; w.row < rows; walk_on(&w, s)) {
        x_get(place_of(a, &w, n), a->wide, n, v[0]);
        half_put(AT(uint8_t, a->window[a->rank] + a->half), a->dtype, w.row * wide + w.col, n,
                 v[0]);
    }
    __syncthreads();
    if (is_looking && r < a->ranks && r != a->rank) {
        flag_raise(AT(uint32_t, a->window[r]) + cell * K_WINDOW_RANKS + a->rank, epoch);
        wait_for(a, r, own + cell * K_WINDOW_RANKS + r, epoch);
    }
    __syncthreads();
    if (is_looking && r == 0) /* all threads have read it */
        epochs[cell] = epoch;
    for (struct walk w = from; w.row < rows; walk_on(&w, s)) {
        UNROLL_LOOP
        for (uint32_t k = 0; k < K_WINDOW_RANKS; k++)
            if (k < a->ranks)
                half_get(AT(const uint8_t, a->window[k] + a->half), a->dtype, w.row * wide + w.col,
                         n, v[k]);
        UNROLL_LOOP
        for (uint32_t step = 1; step < K_WINDOW_RANKS; step *= 2)
            UNROLL_LOOP
        for (uint32_t k = 0; k + step < K_WINDOW_RANKS; k += 2 * step)
            UNROLL_LOOP
        for (uint32_t i = 0; i < 4; i++)
            if (k + step < a->ranks && i < n)
                v[k][i] += v[k + step][i];
        if (w.row < a->biased) {
            x_get(AT(const float, a->bias) + w.col * n, a->wide && a->bias % 16 == 0, n, v[1]);
            UNROLL_LOOP
            for (uint32_t i = 0; i < 4; i++)
                if (i < n)
                    v[0][i] += v[1][i];
        }
        x_put(place_of(a, &w, n), a->wide, n, v[0]);
    }
}

/* Grid: cells of a row, rows. */
TSR_KERNEL(k_window_sum, struct k_window, 256, 4)
{
    const uint32_t     wide = K_WINDOW_WIDE(a.cols), first = blockIdx.x * a.part;
    const uint32_t     end = first + a.part < wide ? first + a.part : wide;
    const struct share s = { blockIdx.y, gridDim.y, first, end, blockIdx.y * gridDim.x + blockIdx.x,
                             1 };
    window_sum(&a, &s);
}

/* A block for a row. */
TSR_KERNEL(k_window_step, struct k_summed_step, K_STEP_THREADS)
{
    __shared__ float4  tiles[NORM_TILE / 4];
    __shared__ float   result;
    const struct share s = {
        blockIdx.x, gridDim.x, 0, K_WINDOW_WIDE(a.sum.cols), blockIdx.x * a.sum.parts, a.sum.parts
    };
    window_sum(&a.sum, &s);
    sum_seen();
    norm_step(&a.step, blockIdx.x, (float *)(void *)tiles, &result);
}
