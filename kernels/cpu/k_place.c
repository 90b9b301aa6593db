/* k_place.c - rows of packed codes into a panel (docs/formats/cpu-panels.md): bit streams to a byte a
 * code, bytes transposed to fours of 16 rows, fours to the vectors of the layout.  The inverse of
 * k_codes.h. */
#include "k_decl.h"
#include "simd_bytes.h"

#define HALF  16u /* rows of a vector */
#define PIECE 64u /* columns unpacked at once: whole steps of every layout */
#define STRIDE                                                                                     \
    128u /* columns of one half before the other: whole cache lines of a row of four bits */

/* The 16 columns at 16c of row 4q + i are quarter q of vector 4c + i. */
struct piece {
    _Alignas(64) uint8_t at[PIECE / 16][4][4][16];
};

/* PIECE codes of `bits` bits at p, of which `left` bytes are the row's and zeros follow.  Eight codes
 * are `bits` bytes, spread over a word: two fours to 32 bits each, then twos to 16, then ones to 8. */
INLINE void unpack(const uint8_t *p, uint64_t left, const uint32_t bits, uint64_t out[PIECE / 8])
{
    const uint64_t one = (UINT64_C(1) << bits) - 1, two = (UINT64_C(1) << 2 * bits) - 1,
                   four = (UINT64_C(1) << 4 * bits) - 1;
    const uint64_t ones = one * UINT64_C(0x0001000100010001),
                   twos = two * UINT64_C(0x0000000100000001);
    uint8_t end[8 * PIECE / 8 + 8] = { 0 };
    if (left < (PIECE / 8 - 1) * bits + 8) { /* the last word reads past its codes */
        memcpy(end, p, left < bits * (PIECE / 8) ? left : bits * (PIECE / 8));
        p = end;
    }
    for (uint32_t i = 0; i < PIECE / 8; i++)
        memcpy(&out[i], p + i * bits, 8);
    for (uint32_t i = 0; i < PIECE / 8; i++) {
        uint64_t v = out[i];
        v = (v & four) | (v >> 4 * bits & four) << 32;
        v = (v & twos) | (v >> 2 * bits & twos) << 16;
        out[i] = (v & ones) | (v >> bits & ones) << 8;
    }
}

/* Columns [0,n) of rows [0,rows) of the codes at p, `left` bytes to the end of a row. */
INLINE void unpack_rows(struct piece *b, const uint8_t *p, uint64_t stride, uint64_t rows,
                        uint64_t left, uint64_t n, const uint32_t bits)
{
    for (uint64_t r = 0; r < HALF; r++) {
        uint64_t v[PIECE / 8] = { 0 };
        if (r < rows)
            unpack(p + r * stride, left, bits, v);
        if (n < PIECE && r < rows) { /* bits of the last byte past the last column */
            uint8_t code[PIECE];
            memcpy(code, v, PIECE);
            memset(code + n, 0, PIECE - n);
            memcpy(v, code, PIECE);
        }
        for (uint64_t c = 0; c < PIECE / 16; c++)
            memcpy(b->at[c][r % 4][r / 4], v + 2 * c, 16);
    }
}

/* Fours e of 32 columns to the vectors of as many steps, which lie `apart` bytes apart. */
INLINE void pack(const enum tsr_cpu_layout l, const i16v e[8], uint8_t *dst, uint64_t apart,
                 uint64_t steps)
{
    for (uint64_t s = 0; s < steps; s++, dst += apart)
        switch (l) {
        case W_I4:
            vb_store(dst, vi_or(e[2 * s], vi_shl(e[2 * s + 1], 4)));
            break;
        case W_I2:
            vb_store(dst, vi_or(vi_or(e[4 * s], vi_shl(e[4 * s + 1], 2)),
                                vi_or(vi_shl(e[4 * s + 2], 4), vi_shl(e[4 * s + 3], 6))));
            break;
        case W_I3: /* six whole codes; 6 and 7 go where bits are left over */
            vb_store(dst, vi_or(vi_or(e[0], vi_shl(e[1], 3)), vi_shl(vi_bits(e[6], 0, 3), 6)));
            vb_store(dst + 64, vi_or(vi_or(e[2], vi_shl(e[3], 3)), vi_shl(vi_bits(e[7], 0, 3), 6)));
            vb_store(dst + 128,
                     vi_or(vi_or(e[4], vi_shl(e[5], 3)),
                           vi_or(vi_shl(vi_bits(e[6], 0, 4), 4), vi_shl(vi_bits(e[7], 0, 4), 5))));
            break;
        case W_I5: { /* nibbles as W_I4; bit j of the last vector's bytes is the fifth of four j */
            i16v fifth = vi_bits(e[0], 4, 1);
            for (uint32_t i = 0; i < 8; i++)
                fifth = vi_or(fifth, vi_shl(vi_bits(e[i], 4, 1), i));
            for (uint32_t i = 0; i < 4; i++)
                vb_store(dst + 64 * i,
                         vi_or(vi_bits(e[2 * i], 0, 15), vi_shl(vi_bits(e[2 * i + 1], 0, 15), 4)));
            vb_store(dst + 256, fifth);
            break;
        }
        case W_I6: /* three whole codes; the fourth goes where bits are left over */
            for (uint32_t i = 0; i < 3; i++)
                vb_store(dst + 64 * i,
                         vi_or(e[4 * s + i],
                               vi_shl(vi_bits(e[4 * s + 3], 0, 3 << 2 * i), 6 - 2 * i)));
            break;
        default:
            vb_store(dst, e[s]);
            break;
        }
}

/* A half of a piece: columns [0,n) to dst. */
INLINE void put(const enum tsr_cpu_layout l, const struct piece *b, uint64_t n, uint8_t *dst)
{
    const uint64_t step = cpu_step(l), apart = 2u * cpu_unit(l), all = 32 / step;
    for (uint64_t k = 0; k < n; k += 32) {
        i16v     e[8];
        uint64_t left = (n - k + step - 1) / step;
        for (int i = 0; i < 8; i++)
            e[i] = vi_load(b->at[k / 16 + (uint64_t)i / 4][i % 4]);
        vb_transpose4(e);
        vb_transpose4(e + 4);
        if (left >= all) /* straight code: the fours stay in registers */
            pack(l, e, dst + k / step * apart, apart, all);
        else
            pack(l, e, dst + k / step * apart, apart, left);
    }
}

INLINE void place(const enum tsr_cpu_layout l, uint8_t *dst, const uint8_t *codes, uint64_t stride,
                  uint64_t rows, uint64_t cols, const uint32_t bits)
{
    const uint64_t step = cpu_step(l), unit = cpu_unit(l), bytes = (cols * bits + 7) / 8;
    struct piece   b;
    for (uint64_t k0 = 0; k0 < cols; k0 += STRIDE)
        for (uint64_t half = 0; half < 2; half++)
            for (uint64_t k = k0; k < cols && k < k0 + STRIDE; k += PIECE) {
                uint64_t n = cols - k < PIECE ? cols - k : PIECE, at = k / 8 * bits,
                         r = half * HALF;
                unpack_rows(&b, codes + r * stride + at, stride, rows > r ? rows - r : 0,
                            bytes - at, n, bits);
                put(l, &b, n, dst + (k / step * 2 + half) * unit);
            }
}

void K(place)(enum tsr_cpu_layout l, uint8_t *panel, const uint8_t *codes, uint64_t stride,
              uint64_t rows, uint64_t cols, uint32_t bits)
{
    switch (l) {
    case W_I4:
        if (bits == 4) /* a constant: shifts that the compiler knows */
            place(W_I4, panel, codes, stride, rows, cols, 4);
        else
            place(W_I4, panel, codes, stride, rows, cols, bits);
        return;
    case W_I2:
        place(W_I2, panel, codes, stride, rows, cols, 2);
        return;
    case W_I3:
        place(W_I3, panel, codes, stride, rows, cols, 3);
        return;
    case W_I5:
        place(W_I5, panel, codes, stride, rows, cols, 5);
        return;
    case W_I6:
        place(W_I6, panel, codes, stride, rows, cols, bits);
        return;
    default:
        place(W_I8, panel, codes, stride, rows, cols, bits);
        return;
    }
}
