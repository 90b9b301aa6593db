/* simt_mma.c - operations of k_mma.h and k_mma_half.h: a product of matrices by a whole warp, and copies that complete when
 * their thread waits for them. */
#include "simt_block.h"
#include "simt_trace.h"
#include "tessera/f16.h"

#include <stdio.h>
#include <string.h>

/* Byte `column` of row or column `row` of a matrix whose lanes hold words `low` (columns 0..15) and `high`. */
static int32_t element(const uint32_t *low, const uint32_t *high, uint32_t column)
{
    uint32_t word = *(column < 16 ? low : high);
    return (int8_t)(word >> 8 * (column % 4));
}

static void multiply_bytes(const struct simt_fiber *f)
{
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t col = 0; col < 8; col++) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < 32; k++) {
                const uint32_t *a = f[row % 8 * 4 + k % 16 / 4].a + row / 8;
                const uint32_t *b = f[col * 4 + k % 16 / 4].b;
                sum += element(a, a + 2, k) * element(b, b + 1, k);
            }
            ((int32_t *)f[row % 8 * 4 + col / 2].c)[row / 8 * 2 + col % 2] += sum;
        }
}

/* Element `column` of a row or column of 16 whose lanes hold words `low` (columns 0..7) and `high`. */
static double half_element(const uint32_t *low, const uint32_t *high, uint32_t column, bool bf16)
{
    const uint16_t h = (uint16_t)(*(column < 8 ? low : high) >> 16 * (column % 2));
    return (double)(bf16 ? tsr_bf16_f32(h) : tsr_f16_f32(h));
}

/* Sums are rounded once; the device's are not, nor does it say how. */
static void multiply_halves(const struct simt_fiber *f, bool bf16)
{
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t col = 0; col < 8; col++) {
            float *c = (float *)f[row % 8 * 4 + col / 2].c + row / 8 * 2 + col % 2;
            double sum = (double)*c;
            for (uint32_t k = 0; k < 16; k++) {
                const uint32_t *a = f[row % 8 * 4 + k % 8 / 2].a + row / 8;
                const uint32_t *b = f[col * 4 + k % 8 / 2].b;
                sum += half_element(a, a + 2, k, bf16) * half_element(b, b + 1, k, bf16);
            }
            *c = (float)sum;
        }
}

void simt_multiply(uint32_t first, uint32_t mask)
{
    const struct simt_fiber *f = &simt_now->fibers[first];
    if (mask != 0xffffffffu) {
        simt_report("a product of matrices takes a warp of 32 lanes");
        return;
    }
    if (f->op == SIMT_MMA)
        multiply_bytes(f);
    else
        multiply_halves(f, f->op == SIMT_MMA_BF16);
}

static void multiply(enum simt_warp_op op, void *c, const uint32_t *a, const uint32_t *b, int line)
{
    struct simt_fiber *f = &simt_now->fibers[simt_now->current];
    f->c = c;
    f->a = a;
    f->b = b;
    (void)simt_warp(op, 0xffffffffu, 0, 0, line);
}

void simt_mma(int32_t *c, const uint32_t *a, const uint32_t *b, int line)
{
    multiply(SIMT_MMA, c, a, b, line);
}

void simt_mma_half(float *c, const uint32_t *a, const uint32_t *b, int bf16, int line)
{
    multiply(bf16 ? SIMT_MMA_BF16 : SIMT_MMA_F16, c, a, b, line);
}

void simt_copy_async(void *to, const void *from, uint32_t bytes)
{
    struct simt_fiber *f = &simt_now->fibers[simt_now->current];
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes)
        simt_stop(bytes == 16 ? "a copy of 16 bytes is not aligned to them"
                              : "a copy of 4 bytes is not aligned to them");
    if (f->n_copies == SIMT_COPIES)
        simt_stop("more copies are under way than the emulation has room for");
    simt_access(from, bytes, false, false);
    simt_access(to, bytes, true, false);
    simt_trace_access(from, bytes, false, __builtin_return_address(0));
    simt_trace_access(to, bytes, true, (const char *)__builtin_return_address(0) + 1);
    memset(to, 0xa5, bytes);
    f->copies[(f->first_copy + f->n_copies++) % SIMT_COPIES] =
        (struct simt_copy){ to, from, f->group, bytes };
}

void simt_copy_commit(void)
{
    simt_now->fibers[simt_now->current].group++;
}

void simt_copy_wait(uint32_t n)
{
    struct simt_fiber *f = &simt_now->fibers[simt_now->current];
    while (f->n_copies) {
        const struct simt_copy *c = &f->copies[f->first_copy];
        if (c->group + n >= f->group)
            break; /* of the n latest groups, or of the one that is not over */
        simt_access(c->from, c->bytes, false, false);
        simt_access(c->to, c->bytes, true, false);
        memcpy(c->to, c->from, c->bytes);
        f->first_copy = (f->first_copy + 1) % SIMT_COPIES;
        f->n_copies--;
    }
}
