/* compensation.cu - error compensation: channels by buckets, and residuals of those channels read from pinned memory
 * of the host by the kernel that adds them (docs/decisions/numerics.md, COMPENSATE).
 *
 * Sums of codes are whole numbers modulo 2^32, so threads add them in any order.  A piece is 128 bytes of every
 * selected row: reads of the bus are whole lines, and a block has 16 KiB of them on the way.
 *
 * Reference: kernels/cpu/k_select.c and k_compensate.c; held to their bytes by tests/gpu/compensation.c.
 * Bytes moved: x and the list from a cache; codes over the bus once.
 */
#include "k_math.h"

/* ---- selection ---------------------------------------------------------------------------- */

/* The bucket of x: the first whose floor is at most |x|; K_BUCKETS for NaN. */
DEV uint32_t bucket_of(const float *below, float x)
{
    const float v = fabsf(x);
    uint32_t    low = 0, high = K_BUCKETS;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (below[mid] < v)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

DEV uint64_t row_of(uint64_t rows, uint64_t i)
{
    return rows ? AT(const uint32_t, rows)[i] : i;
}

DEV uint32_t chunk_length(const struct k_select *a, uint32_t chunk)
{
    const uint32_t left = a->cols - chunk * K_CHUNK;
    return left < K_CHUNK ? left : K_CHUNK;
}

DEV uint32_t chunk_takes(const struct k_select *a, uint32_t chunk)
{
    return (uint32_t)((uint64_t)a->per * chunk_length(a, chunk) / K_CHUNK);
}

/* What a warp's chunks before `chunk` take: as many as asked, or all that are numbers. */
DEV uint32_t taken_before(const struct k_select *a, const float *x, uint32_t chunk, uint32_t warp,
                          uint32_t lane)
{
    uint32_t all = 0;
    for (uint32_t c = warp; c < chunk; c += K_CHUNK / WARP) {
        uint32_t numbers = 0;
        UNROLL_8
        for (uint32_t i = 0; i < K_CHUNK; i += WARP) {
            const float v = x[c * K_CHUNK + i + lane];
            numbers += (uint32_t)__popc(__ballot_sync(ALL_LANES, v == v));
        }
        const uint32_t take = chunk_takes(a, c);
        all += numbers < take ? numbers : take;
    }
    return all;
}

/* A block for a chunk of 1024 channels and a list; a thread for a channel. */
TSR_KERNEL(k_select, struct k_select, K_CHUNK)
{
    __shared__ float    below[K_BUCKETS];
    __shared__ uint32_t in_bucket[K_BUCKETS + 1];
    __shared__ uint32_t sure_of[K_CHUNK / WARP], edge_of[K_CHUNK / WARP];
    __shared__ uint32_t before;
    const uint32_t      chunk = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t      take = chunk_takes(&a, chunk);
    const float        *x = AT(const float, a.x) + row_of(a.rows, blockIdx.y) * a.ldx;
    uint32_t           *list = AT(uint32_t, a.list) + blockIdx.y * a.ldl;
    if (threadIdx.x < K_BUCKETS)
        below[threadIdx.x] = a.below[threadIdx.x];
    if (threadIdx.x <= K_BUCKETS)
        in_bucket[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        before = 0;
    __syncthreads();
    const uint32_t bucket = threadIdx.x < chunk_length(&a, chunk)
                                ? bucket_of(below, x[chunk * K_CHUNK + threadIdx.x])
                                : K_BUCKETS;
    atomicAdd(&in_bucket[bucket], 1u);
    const uint32_t earlier = taken_before(&a, x, chunk, warp, lane);
    if (lane == 0 && earlier)
        atomicAdd(&before, earlier);
    __syncthreads();
    /* every warp finds the last bucket that is taken from */
    const uint32_t own = in_bucket[lane];
    uint32_t       upto = own;
    for (uint32_t d = 1; d < WARP; d *= 2) {
        const uint32_t more = shfl_u(ALL_LANES, upto, lane >= d ? lane - d : lane);
        upto += lane >= d ? more : 0;
    }
    const uint32_t enough = __ballot_sync(ALL_LANES, upto >= take || lane == K_BUCKETS - 1);
    const uint32_t last = (uint32_t)__popc(~enough & (enough - 1)); /* the lowest bit's place */
    const uint32_t whole = shfl_u(ALL_LANES, upto - own, last);     /* in the buckets before */
    const uint32_t sure = __ballot_sync(ALL_LANES, bucket < last);
    const uint32_t edge = __ballot_sync(ALL_LANES, bucket == last);
    const uint32_t room = take - whole; /* of the last bucket's, the lowest */
    if (lane == 0) {
        sure_of[warp] = (uint32_t)__popc(sure);
        edge_of[warp] = (uint32_t)__popc(edge);
    }
    __syncthreads();
    const uint32_t lower = (1u << lane) - 1;
    uint32_t       n = (uint32_t)__popc(sure & lower), e = (uint32_t)__popc(edge & lower);
    for (uint32_t w = 0; w < warp; w++) {
        n += sure_of[w];
        e += edge_of[w];
    }
    if (take && (bucket < last || (bucket == last && e < room)))
        list[1 + before + n + (e < room ? e : room)] = chunk * K_CHUNK + threadIdx.x;
    if (chunk + 1 == gridDim.x && threadIdx.x == 0) {
        uint32_t all = 0;
        for (uint32_t i = 0; i < K_BUCKETS; i++)
            all += in_bucket[i];
        list[0] = before + (all < take ? all : take);
    }
}

/* ---- addition ------------------------------------------------------------------------------ */

#define ADD_THREADS  256u
#define ADD_LANES    8u                        /* threads of a row: 16 bytes each */
#define ADD_GROUPS   (ADD_THREADS / ADD_LANES) /* rows at a time */
#define ADD_FLIGHT   4u                        /* of a thread, before the first is added */
#define ADD_CHANNELS 512u                      /* whose sums of codes of 8 bits stay below 2^31 */
#define ADD_TOP      32512.0f                  /* docs/decisions/numerics.md */
#define ADD_OUTPUTS  (K_PIECE * 8 / 2)         /* of a piece, of 2 bits */

/* The list's channels from i on as whole numbers. */
struct add_numbers {
    float    *value;  /* [ADD_CHANNELS] */
    int32_t  *number; /* [ADD_CHANNELS] */
    uint32_t *row;    /* [ADD_CHANNELS] */
    uint32_t *most, *sum;
};

/* Returns the step: a number times it is the input.  NaN: an input is not finite, or the list names a channel that
 * is not there. */
DEV float round_inputs(const struct k_compensate *a, const float *x, const uint32_t *list,
                       uint32_t i, uint32_t n, const struct add_numbers *s)
{
    __syncthreads();
    if (threadIdx.x == 0)
        *s->most = *s->sum = 0;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < n; j += ADD_THREADS) {
        const uint32_t channel = list[1 + i + j];
        const int      is_there = channel < a->cols;
        const float    v = is_there ? x[channel] : k_nan();
        s->row[j] = is_there ? channel : 0;
        s->value[j] = v;
        atomicMax(s->most, __float_as_uint(v) & 0x7fffffffu);
    }
    __syncthreads();
    const float top = __uint_as_float(*s->most);
    const int   counts = top >= 0x1p-100f && k_finite(top);
    const float per = counts ? ADD_TOP / top : 0.0f;
    for (uint32_t j = threadIdx.x; j < n; j += ADD_THREADS) {
        s->number[j] = counts ? (int32_t)rintf(s->value[j] * per) : 0;
        if (s->number[j])
            atomicAdd(s->sum, (uint32_t)s->number[j]);
    }
    __syncthreads();
    return k_finite(top) ? top / ADD_TOP : k_nan();
}

DEV void add_codes(uint32_t *acc, const int bits, uint4 v, int32_t number)
{
    const uint32_t word[4] = { v.x, v.y, v.z, v.w };
    UNROLL_LOOP
    for (int w = 0; w < 4; w++) {
        UNROLL_LOOP
        for (int c = 0; c < 32 / bits; c++)
            acc[w * (32 / bits) + c] +=
                (word[w] >> c * bits & ((1u << bits) - 1)) * (uint32_t)number;
    }
}

/* Sums of n rows' piece at byte `at`, to sums[], which are 0. */
DEV void add_rows(const struct k_residual *r, const int bits, uint64_t at, uint32_t n,
                  const struct add_numbers *s, uint32_t *sums)
{
    const uint32_t lane = threadIdx.x % ADD_LANES, group = threadIdx.x / ADD_LANES;
    const uint8_t *codes = AT(const uint8_t, r->codes) + at + 16 * lane;
    uint32_t       acc[64] = { 0 };
    for (uint32_t j = group; j < n; j += ADD_GROUPS * ADD_FLIGHT) {
        uint4 v[ADD_FLIGHT];
        UNROLL_LOOP
        for (uint32_t f = 0; f < ADD_FLIGHT; f++) {
            const uint32_t k = j + f * ADD_GROUPS < n ? j + f * ADD_GROUPS : j;
            v[f] = *(const uint4 *)(const void *)(codes + s->row[k] * r->stride);
        }
        UNROLL_LOOP
        for (uint32_t f = 0; f < ADD_FLIGHT; f++)
            add_codes(acc, bits, v[f], j + f * ADD_GROUPS < n ? s->number[j + f * ADD_GROUPS] : 0);
    }
    UNROLL_LOOP
    for (int o = 0; o < 128 / bits; o++) {
        uint32_t u = acc[o];
        u += shfl_xor_u(ALL_LANES, u, 8);
        u += shfl_xor_u(ALL_LANES, u, 16);
        if (threadIdx.x % WARP < ADD_LANES)
            atomicAdd(&sums[lane * (128 / (uint32_t)bits) + (uint32_t)o], u);
    }
    __syncthreads();
}

DEV void give_output(const struct k_residual *r, uint64_t token, uint64_t n, float sum)
{
    float      *out = AT(float, r->out) + token * r->ldo + n;
    const float s = 0.0f + sum * (r->scales ? k_half(AT(const uint16_t, r->scales)[n]) : 1.0f);
    const float y = *out + s;
    *out = y != y ? k_nan() : y;
}

/* A piece of rows of F16: a chain for each output, over the list in its order. */
DEV void piece_of_values(const struct k_residual *r, uint64_t piece, const float *x,
                         const uint32_t *list, uint32_t count, uint32_t cols, uint64_t token,
                         uint4 *tile)
{
    const uint32_t lane = threadIdx.x % ADD_LANES, group = threadIdx.x / ADD_LANES;
    const uint8_t *codes = AT(const uint8_t, r->codes) + piece * K_PIECE + 16 * lane;
    const uint64_t n = piece * (K_PIECE / 2) + threadIdx.x;
    float          z = 0.0f;
    for (uint32_t i = 0; i < count; i += ADD_GROUPS) {
        __syncthreads();
        if (i + group < count) {
            const uint32_t channel = list[1 + i + group];
            tile[threadIdx.x] =
                *(const uint4 *)(const void *)(codes + (channel < cols ? channel : 0) * r->stride);
        }
        __syncthreads();
        if (threadIdx.x < K_PIECE / 2)
            for (uint32_t j = 0; j < ADD_GROUPS && i + j < count; j++) {
                const uint32_t  channel = list[1 + i + j];
                const uint16_t *row = (const uint16_t *)(const void *)(tile + j * ADD_LANES);
                z = fmaf(channel < cols ? x[channel] : k_nan(), k_half(row[threadIdx.x]), z);
            }
    }
    if (threadIdx.x < K_PIECE / 2 && n < r->outputs)
        give_output(r, token, n, z);
}

/* Blocks take pieces of all linears in turn; grid: blocks that fetch, tokens. */
TSR_KERNEL(k_compensate, struct k_compensate, ADD_THREADS)
{
    __shared__ uint4         tile[ADD_THREADS];
    __shared__ float         value[ADD_CHANNELS];
    __shared__ int32_t       number[ADD_CHANNELS];
    __shared__ uint32_t      row[ADD_CHANNELS], sums[ADD_OUTPUTS], most, sum;
    const struct add_numbers s = { value, number, row, &most, &sum };
    const uint64_t           token = row_of(a.rows, blockIdx.y);
    const float             *x = AT(const float, a.x) + token * a.ldx;
    const uint32_t          *list = AT(const uint32_t, a.list) + blockIdx.y * a.ldl;
    const uint32_t           count = list[0] < a.room ? list[0] : a.room;
    float                    step = 0.0f;
    if (count <= ADD_CHANNELS)
        step = round_inputs(&a, x, list, 0, count, &s);
    for (uint32_t p = blockIdx.x; p < a.pieces; p += gridDim.x) {
        uint32_t l = 0;
        while (l + 1 < a.n && p >= a.linear[l + 1].first)
            l++;
        const struct k_residual *r = &a.linear[l];
        const uint64_t           piece = p - r->first;
        if (r->bits == 16) {
            piece_of_values(r, piece, x, list, count, a.cols, token, tile);
            continue;
        }
        const uint32_t outputs = K_PIECE * 8 / r->bits;
        float          all[ADD_OUTPUTS / ADD_THREADS];
        uint32_t       i = 0;
        do {
            const uint32_t n = count - i < ADD_CHANNELS ? count - i : ADD_CHANNELS;
            if (count > ADD_CHANNELS)
                step = round_inputs(&a, x, list, i, n, &s);
            for (uint32_t o = threadIdx.x; o < outputs; o += ADD_THREADS)
                sums[o] = 0;
            __syncthreads();
            if (r->bits == 2)
                add_rows(r, 2, piece * K_PIECE, n, &s, sums);
            else if (r->bits == 4)
                add_rows(r, 4, piece * K_PIECE, n, &s, sums);
            else
                add_rows(r, 8, piece * K_PIECE, n, &s, sums);
            UNROLL_LOOP
            for (uint32_t k = 0; k < ADD_OUTPUTS / ADD_THREADS; k++) {
                const uint32_t o = threadIdx.x + k * ADD_THREADS;
                if (o < outputs) {
                    const uint32_t less = sum << (r->bits - 1);
                    const float    v = (float)(int32_t)(sums[o] - less) * step;
                    all[k] = i ? all[k] + v : v;
                }
            }
            i += n;
            __syncthreads();
        } while (i < count);
        UNROLL_LOOP
        for (uint32_t k = 0; k < ADD_OUTPUTS / ADD_THREADS; k++) {
            const uint64_t o = threadIdx.x + k * ADD_THREADS;
            if (o < outputs && piece * outputs + o < r->outputs)
                give_output(r, token, piece * outputs + o, all[k]);
        }
    }
}
