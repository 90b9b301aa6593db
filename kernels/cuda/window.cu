/* window.cu - a sum over ranks in one launch: each device writes its numbers where the others see them, waits for
 * theirs and adds all of them itself.  Nothing of it waits for the host, so the launch is part of a token's graph.
 * k_window_step does ADD, NORM and the quantization of the sum's rows too.
 *
 * Reference: core/comm/coder_sum.c (tsr_comm_tree) with codec `plain`, `mx` or `int4_bf16`; held to its bytes by tests/gpu/test_window.c.
 * Bytes moved by a number, with n ranks: 4 read and 4 written here, the bytes of the type, or of a code and its part of a
 * factor or outlier, written here and read of each rank, n - 1 times over the link.
 */
#include "k_norm_step.h"
#include "k_window_mx.h"
#include "k_window_scaled.h"

#define DT_F32  1u
#define DT_F16  2u
#define DT_BF16 3u

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

/* A share's runs that other ranks add, in the type of `plain`, to this rank's window. */
DEV void plain_put(const struct k_window *a, const struct share *s)
{
    const uint32_t n = a->cols % 4 ? 1u : 4u, rows = (uint32_t)a->rows;
    float          v[4];
    for (struct walk w = walk_of(s); w.row < rows; walk_on(&w, s)) {
        if (is_own(a, w.col))
            continue;
        x_get(place_of(a, &w, n), a->wide, n, v);
        half_put(AT(uint8_t, a->window[a->rank] + a->half), a->dtype, w.row * a->runs + w.col, n,
                 v);
    }
}

/* own: this rank's numbers as they are, or 0: those in its window. */
DEV void plain_sum(const struct k_window *a, const struct walk *w, const float *own, uint32_t n,
                   float v[K_WINDOW_RANKS][4])
{
    UNROLL_LOOP
    for (uint32_t k = 0; k < K_WINDOW_RANKS; k++) {
        if (k < a->ranks)
            half_get(AT(const uint8_t, a->window[k] + a->half), a->dtype, w->row * a->runs + w->col,
                     n, v[k]);
        if (own && k == a->rank)
            x_get(own, a->wide, n, v[k]);
    }
    UNROLL_LOOP
    for (uint32_t k = 0; k < K_WINDOW_RANKS; k++)
        tree_on(v, k, a->ranks, n);
}

/* This rank's slice of a share: the sum to its window. */
DEV void plain_reduce(const struct k_window *a, const struct share *share)
{
    const struct share s = own_of(a, share);
    const uint32_t     n = a->cols % 4 ? 1u : 4u, rows = (uint32_t)a->rows;
    float              v[K_WINDOW_RANKS][4];
    for (struct walk w = walk_of(&s); w.row < rows; walk_on(&w, &s)) {
        plain_sum(a, &w, place_of(a, &w, n), n, v);
        half_put(AT(uint8_t, a->window[a->rank] + a->half), a->dtype, w.row * a->runs + w.col, n,
                 v[0]);
    }
}

/* The sum of a share's runs: from the windows of all ranks, or of those that have added them. */
DEV void plain_add(const struct k_window *a, const struct share *s)
{
    const uint32_t n = a->cols % 4 ? 1u : 4u, rows = (uint32_t)a->rows;
    float          v[K_WINDOW_RANKS][4];
    for (struct walk w = walk_of(s); w.row < rows; walk_on(&w, s)) {
        if (a->slices)
            half_get(AT(const uint8_t, a->window[owner_of(a, w.col)] + a->half), a->dtype,
                     w.row * a->runs + w.col, n, v[0]);
        else
            plain_sum(a, &w, 0, n, v);
        bias_on(a, &w, w.col * n, n, v[0]);
        x_put(place_of(a, &w, n), a->wide, n, v[0]);
    }
}

/* To whom a flag goes and whose this rank waits for. */
#define FROM_ALL  0u /* each rank's */
#define TO_OWNER  1u /* the numbers of a cell are there for the rank that adds them */
#define TO_OTHERS 2u /* their sum is there for the others */

/* The block's numbers are in its window; afterwards those of other ranks are there.  A thread looks at the flag of one rank
 * and cell.  A cell's two flags of a sum in two steps lie in different windows. */
DEV void meet(const struct k_window *a, const struct share *s, uint32_t step)
{
    const uint32_t thread = anew(threadIdx.x), r = thread % K_WINDOW_RANKS;
    const uint32_t cell = s->cell + thread / K_WINDOW_RANKS;
    const int      is_looking = thread < s->cells * K_WINDOW_RANKS;
    uint32_t      *own = AT(uint32_t, a->window[a->rank]), *epochs = own + K_WINDOW_FLAGS;
    const uint32_t epoch = is_looking ? epochs[cell] + 1 : 0;
    const uint32_t owner = step ? cell % a->parts * a->slices / a->parts : a->rank;
    const int      owns = owner == a->rank, raises = owns ? step != TO_OWNER : step == TO_OWNER;
    __syncthreads();
    if (is_looking && r < a->ranks && r != a->rank && (owns || r == owner)) {
        if (raises)
            flag_raise(AT(uint32_t, a->window[r]) + cell * K_WINDOW_RANKS + a->rank, epoch);
        if (!raises || !step)
            wait_for(a, r, own + cell * K_WINDOW_RANKS + r, epoch);
    }
    __syncthreads();
    if (is_looking && r == 0 && step != TO_OWNER) /* all threads have read it */
        epochs[cell] = epoch;
}

DEV void window_sum(const struct k_window *a, const struct share *s)
{
    if (a->scaled.most)
        scaled_put(a, s, 0);
    else if (a->lanes)
        mx_put(a, s);
    else
        plain_put(a, s);
    if (a->slices) {
        meet(a, s, TO_OWNER);
        if (a->scaled.most)
            scaled_reduce(a, s);
        else if (a->lanes)
            mx_reduce(a, s);
        else
            plain_reduce(a, s);
    }
    meet(a, s, a->slices ? TO_OTHERS : FROM_ALL);
    if (a->scaled.most)
        scaled_add(a, s);
    else if (a->lanes)
        mx_add(a, s);
    else
        plain_add(a, s);
}

/* Grid: cells of a row, rows. */
TSR_KERNEL(k_window_sum, struct k_window, 256, 4)
{
    const uint32_t     each = a.slices ? a.parts / a.slices : a.parts, slice = blockIdx.x / each;
    const uint32_t     border = a.slices ? a.border[slice + 1] : a.runs;
    const uint32_t     from = (a.slices ? a.border[slice] : 0) + blockIdx.x % each * a.part;
    const uint32_t     first = from < border ? from : border;
    const uint32_t     end = first + a.part < border ? first + a.part : border;
    const struct share s = { blockIdx.y, gridDim.y, first, end, blockIdx.y * gridDim.x + blockIdx.x,
                             1 };
    window_sum(&a, &s);
}

/* A block for a row. */
TSR_KERNEL(k_window_step, struct k_summed_step, K_STEP_THREADS)
{
    __shared__ float4  tiles[NORM_TILE / 4];
    __shared__ float   result;
    const struct share s = { blockIdx.x, gridDim.x, 0, a.sum.runs, blockIdx.x * a.sum.parts,
                             a.sum.parts };
    window_sum(&a.sum, &s);
    sum_seen();
    norm_step(&a.step, blockIdx.x, (float *)(void *)tiles, &result);
}
