/* codec.cu - rows of activations to messages between ranks, and back: the wires of docs/formats/codecs.md
 * that a codec describes as plain data (tessera/codec.h).
 *
 * Reference: plugins/comm/plain.c and kernels/encode (mx_row, mx_decode, scaled_encode, scaled_decode);
 * held to their bytes by tests/gpu/codecs.c.
 * Bytes moved by a number: 4 read and those of its code written, or the other way round; 4 more where it
 * is added to what is there; `mx` also its part of a scale, `int4_bf16` 8 bytes of lists, which all
 * rows share.
 *
 * Eight codes of `bits` bits are `bits` whole bytes of a row, whatever the width, so that a thread takes
 * eight and no byte has two writers.
 */
#include "k_mx.h"
#include "k_scaled.h"

#define DT_F32  1u
#define DT_F16  2u
#define DT_BF16 3u

#define EACH(i, total)                                                                             \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (total);                \
         i += (uint64_t)gridDim.x * blockDim.x)

/* ---- bytes --------------------------------------------------------------------------------- */

/* Eight codes, one a byte and below 2^bits, to 8 * bits bits at the low end; and back. */
DEV uint64_t squeeze(uint64_t x, uint32_t bits)
{
    const uint64_t m8 = 0x00ff00ff00ff00ffu, m16 = 0x0000ffff0000ffffu;
    x = (x & m8) | (x >> 8 & m8) << bits;
    x = (x & m16) | (x >> 16 & m16) << 2 * bits;
    return (x & 0xffffffffu) | x >> 32 << 4 * bits;
}
DEV uint64_t spread(uint64_t x, uint32_t bits)
{
    const uint64_t one = ((uint64_t)1 << bits) - 1, two = ((uint64_t)1 << 2 * bits) - 1;
    const uint64_t four = ((uint64_t)1 << 4 * bits) - 1;
    x = (x & four) | (x >> 4 * bits & four) << 32;
    x = (x & two * 0x100000001u) | (x >> 2 * bits & two * 0x100000001u) << 16;
    return (x & one * 0x0001000100010001u) | (x >> bits & one * 0x0001000100010001u) << 8;
}

/* The lowest n bytes, n up to 8, at p; words: p lies on 4 bytes. */
DEV void put_bytes(uint8_t *p, uint64_t v, uint32_t n, uint32_t words)
{
    uint32_t i = 0;
    for (; words && i + 4 <= n; i += 4)
        *(uint32_t *)(void *)(p + i) = (uint32_t)(v >> 8 * i);
    for (; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}
DEV uint64_t get_bytes(const uint8_t *p, uint32_t n, uint32_t words)
{
    uint64_t v = 0;
    uint32_t i = 0;
    for (; words && i + 4 <= n; i += 4)
        v |= (uint64_t)(*(const uint32_t *)(const void *)(p + i)) << 8 * i;
    for (; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Up to eight codes that begin at column 8 * g of `cols`. */
DEV uint32_t codes_at(uint64_t g, uint64_t cols)
{
    return cols - 8 * g < 8 ? (uint32_t)(cols - 8 * g) : 8u;
}

DEV uint32_t to_bf16(float x)
{
    return __float_as_uint(k_round_bf16(x)) >> 16;
}

DEV void give(float *to, float v, uint32_t add)
{
    *to = add ? *to + v : v;
}

/* ---- plain --------------------------------------------------------------------------------- */

TSR_KERNEL(k_plain_encode, struct k_wire, 256)
{
    const uint32_t n = a.dtype == DT_F32 ? 4u : 2u;
    EACH(i, a.rows * a.cols)
    {
        uint64_t r = i / a.cols, c = i % a.cols;
        uint32_t u = AT(const uint32_t, a.x)[r * a.ldx + c];
        uint8_t *to = AT(uint8_t, a.wire) + r * a.row_bytes + c * n;
        if (a.dtype == DT_BF16)
            u = to_bf16(__uint_as_float(u));
        else if (a.dtype == DT_F16)
            u = k_to_half(__uint_as_float(u));
        if (a.aligned && n == 4)
            *(uint32_t *)(void *)to = u;
        else if (a.aligned)
            *(uint16_t *)(void *)to = (uint16_t)u;
        else
            put_bytes(to, u, n, 0);
    }
}

/* A NaN keeps its bits. */
DEV uint32_t from_half(uint32_t h)
{
    return tsr_f32_bits(tsr_f16_f32((uint16_t)h));
}

TSR_KERNEL(k_plain_decode, struct k_wire, 256)
{
    const uint32_t n = a.dtype == DT_F32 ? 4u : 2u;
    EACH(i, a.rows * a.cols)
    {
        uint64_t       r = i / a.cols, c = i % a.cols;
        const uint8_t *from = AT(const uint8_t, a.wire) + r * a.row_bytes + c * n;
        uint32_t       u;
        if (a.aligned && n == 4)
            u = *(const uint32_t *)(const void *)from;
        else if (a.aligned)
            u = *(const uint16_t *)(const void *)from;
        else
            u = (uint32_t)get_bytes(from, n, 0);
        if (a.dtype == DT_BF16)
            u <<= 16;
        else if (a.dtype == DT_F16)
            u = from_half(u);
        uint32_t *to =
            AT(uint32_t, a.x) + r * a.ldx + c; /* moved as bits: a NaN keeps its payload */
        *to = a.add ? __float_as_uint(__uint_as_float(*to) + __uint_as_float(u)) : u;
    }
}

/* ---- mx ------------------------------------------------------------------------------------ */

/* A tile is a.tile columns, whole runs of eight blocks: its scales and its codes are whole bytes. */
#define MX_BLOCKS 2048u

/* The largest magnitude of each block of the tile, as bits; NaN and infinities are the largest. */
DEV void mx_tops(const struct k_wire *w, const uint32_t *x, uint32_t n, uint32_t *top)
{
    const uint32_t block = (uint32_t)w->block;
    for (uint32_t i = 8 * threadIdx.x; i < n; i += 8 * blockDim.x) {
        uint32_t b = i / block, next = (b + 1) * block, most = 0;
        for (uint32_t c = i; c < n && c < i + 8; c++) {
            if (c == next) {
                atomicMax(&top[b], most);
                b++;
                next += block;
                most = 0;
            }
            uint32_t m = x[c] & 0x7fffffffu;
            most = m > most ? m : most;
        }
        atomicMax(&top[b], most);
    }
}

DEV void mx_codes(const struct k_wire *w, const float *x, uint32_t n, const uint32_t *scale,
                  uint8_t *codes)
{
    const uint32_t block = (uint32_t)w->block, none = 2 * (uint32_t)w->mx.lim + 1;
    for (uint32_t g = threadIdx.x; 8 * g < n; g += blockDim.x) {
        uint32_t m = codes_at(g, n);
        uint64_t v = 0;
        for (uint32_t k = 0; k < m; k++) {
            uint32_t s = scale[(8 * g + k) / block];
            float    up = mx_pow2(w->mx.lim - (int32_t)s);
            if (s != none)
                v |= (uint64_t)mx_code(&w->mx, x[8 * g + k] * up) << 8 * k;
        }
        put_bytes(codes + (uint64_t)g * w->bits, squeeze(v, w->bits), (m * w->bits + 7) / 8,
                  w->aligned);
    }
}

TSR_KERNEL(k_mx_encode, struct k_wire, 256)
{
    __shared__ uint32_t top[MX_BLOCKS]; /* then the stored scales */
    const uint64_t      first = (uint64_t)blockIdx.x * a.tile;
    const uint32_t      n = a.cols - first < a.tile ? (uint32_t)(a.cols - first) : (uint32_t)a.tile;
    const uint32_t      blocks = (n - 1) / (uint32_t)a.block + 1, t = threadIdx.x;
    for (uint64_t r = blockIdx.y; r < a.rows; r += gridDim.y) {
        const uint64_t from = r * a.ldx + first;
        uint8_t       *row = AT(uint8_t, a.wire) + r * a.row_bytes;
        for (uint32_t b = t; b < blocks; b += blockDim.x)
            top[b] = 0;
        __syncthreads();
        mx_tops(&a, AT(const uint32_t, a.x) + from, n, top);
        __syncthreads();
        for (uint32_t b = t; b < blocks; b += blockDim.x)
            top[b] = mx_scale(&a.mx, top[b]);
        __syncthreads();
        for (uint32_t g = t; 8 * g < blocks; g += blockDim.x) {
            uint32_t m = codes_at(g, blocks);
            uint64_t v = 0;
            for (uint32_t k = 0; k < m; k++)
                v |= (uint64_t)top[8 * g + k] << 8 * k;
            put_bytes(row + (first / a.block / 8 + g) * a.scale_bits, squeeze(v, a.scale_bits),
                      (m * a.scale_bits + 7) / 8, 0);
        }
        mx_codes(&a, AT(const float, a.x) + from, n, top, row + a.scale_bytes + first / 8 * a.bits);
        __syncthreads();
    }
}

TSR_KERNEL(k_mx_decode, struct k_wire, 256)
{
    const uint64_t groups = (a.cols + 7) / 8;
    EACH(i, a.rows * groups)
    {
        uint64_t       r = i / groups, g = i % groups;
        uint32_t       m = codes_at(g, a.cols);
        const uint8_t *row = AT(const uint8_t, a.wire) + r * a.row_bytes;
        float         *x = AT(float, a.x) + r * a.ldx + 8 * g;
        uint64_t v = get_bytes(row + a.scale_bytes + g * a.bits, (m * a.bits + 7) / 8, a.aligned);
        uint64_t next = 8 * g / a.block * a.block; /* column where the scale is read */
        float    scale = 0.0f;
        v = spread(v, a.bits);
        next = next < 8 * g ? 8 * g : next;
        for (uint32_t k = 0; k < m; k++) {
            if (8 * g + k == next) {
                uint64_t b = next / a.block, at = b * a.scale_bits;
                uint32_t s = row[at / 8];
                if (at % 8 + a.scale_bits > 8)
                    s |= (uint32_t)row[at / 8 + 1] << 8;
                s = s >> at % 8 & ((1u << a.scale_bits) - 1);
                scale = mx_factor(&a.mx, s);
                next = (b + 1) * a.block;
            }
            give(&x[k], mx_value(&a.mx, (uint32_t)(v >> 8 * k) & 0xffu) * scale, a.add);
        }
    }
}

/* ---- int4_bf16 ----------------------------------------------------------------------------- */

/* A thread for eight codes of a row, then one for each feature in BF16. */
TSR_KERNEL(k_scaled_encode, struct k_wire, 256)
{
    const uint64_t  places = a.cols - a.kept, groups = (places + 7) / 8, each = groups + a.kept;
    const uint32_t *place = AT(const uint32_t, a.place), *feature = AT(const uint32_t, a.feature);
    const float    *inv = AT(const float, a.factor);
    const int32_t   most = (int32_t)(1u << (a.bits - 1)) - 1;
    EACH(i, a.rows * each)
    {
        uint64_t     r = i / each, g = i % each, v = 0;
        const float *x = AT(const float, a.x) + r * a.ldx;
        uint8_t     *row = AT(uint8_t, a.wire) + r * a.row_bytes;
        if (g >= groups) {
            g -= groups;
            put_bytes(row + 2 * g, to_bf16(x[feature[g]]), 2, 0);
            continue;
        }
        uint32_t m = codes_at(g, places);
        for (uint32_t k = 0; k < m; k++)
            v |= (uint64_t)scaled_code(x[place[8 * g + k]], inv[8 * g + k], most) << 8 * k;
        put_bytes(row + 2 * a.kept + g * a.bits, squeeze(v, a.bits), (m * a.bits + 7) / 8,
                  a.aligned);
    }
}

TSR_KERNEL(k_scaled_decode, struct k_wire, 256)
{
    const uint64_t  places = a.cols - a.kept, groups = (places + 7) / 8, each = groups + a.kept;
    const uint32_t *place = AT(const uint32_t, a.place), *feature = AT(const uint32_t, a.feature);
    const float    *scale = AT(const float, a.factor);
    const int32_t   most = (int32_t)(1u << (a.bits - 1)) - 1;
    EACH(i, a.rows * each)
    {
        uint64_t       r = i / each, g = i % each;
        float         *x = AT(float, a.x) + r * a.ldx;
        const uint8_t *row = AT(const uint8_t, a.wire) + r * a.row_bytes;
        if (g >= groups) {
            g -= groups;
            give(&x[feature[g]], k_bf16((uint32_t)get_bytes(row + 2 * g, 2, 0)), a.add);
            continue;
        }
        uint32_t m = codes_at(g, places);
        uint64_t v = get_bytes(row + 2 * a.kept + g * a.bits, (m * a.bits + 7) / 8, a.aligned);
        v = spread(v, a.bits);
        for (uint32_t k = 0; k < m; k++) {
            uint32_t code = (uint32_t)(v >> 8 * k) & 0xffu;
            give(&x[place[8 * g + k]], scaled_value(code, most, scale[8 * g + k]), a.add);
        }
    }
}
