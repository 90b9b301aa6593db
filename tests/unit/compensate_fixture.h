/* compensate_fixture.h - what tests of compensation on the CPU share: its table, floors, a selection that is asked for,
 * residuals of random codes. */
#ifndef TSR_COMPENSATE_FIXTURE_H
#define TSR_COMPENSATE_FIXTURE_H

#include "cpu_fixture.h"

#include "../../kernels/weight/weight.h"
#include "compensate.h"
#include "tessera/f16.h"

static inline const struct tsr_backend_compensate_v1 *table(struct tsr_cpu *c)
{
    const struct tsr_backend_compensate_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_COMPENSATE);
    assert_non_null(t);
    return t;
}

static inline float f16(uint16_t h)
{
    return tsr_f16_f32_quiet(h);
}

/* Floors as the paper draws them, all in double. */
static inline void floors_of(double b0, double b15, float f[32])
{
    for (int i = 0; i < 16; i++)
        f[i] = (float)(i < 15 ? b0 + (b15 - b0) * i / 15 : b15);
    for (int i = 16; i < 32; i++)
        f[i] = (float)(b15 * (31 - i) / 16);
}

static inline tsr_status select_on(struct tsr_cpu *c, const struct tsr_tensor *x,
                                   const struct tsr_tensor *rows, uint32_t k, const float *floors,
                                   const struct tsr_tensor *list, char text[512])
{
    struct tsr_err       err = { .struct_size = sizeof err, .cap = 512, .text = text };
    struct tsr_select_op op = {
        .struct_size = sizeof op, .k = k, .x = x, .rows = rows, .floors = floors, .list = list
    };
    return table(c)->select(c, NULL, &op, &err);
}

struct res {
    struct tsr_residual_desc d;
    uint8_t                 *codes;
    uint16_t                *scales;
};

static inline struct res res_new(uint32_t bits, uint64_t inputs, uint64_t outputs)
{
    struct res r = { 0 };
    uint64_t   stride = ((outputs * bits + 7) / 8 + 63) / 64 * 64;
    assert_int_equal(posix_memalign((void **)&r.codes, 64, inputs * stride), 0);
    r.scales = malloc(outputs * 2);
    assert_non_null(r.scales);
    for (uint64_t i = 0; i < inputs * stride; i++)
        r.codes[i] = (uint8_t)rnd();
    for (uint64_t i = 0; bits == 16 && i < inputs * stride; i += 2)
        r.codes[i + 1] = (uint8_t)((rnd() & 0x80) | (0x10 + rnd() % 0x28)); /* finite */
    for (uint64_t i = 0; i < outputs; i++)
        r.scales[i] = (uint16_t)(0x1000 + rnd() % 0x1000);
    r.d = (struct tsr_residual_desc){ .struct_size = sizeof r.d,
                                      .bits = bits,
                                      .name = "r",
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .stride = stride,
                                      .codes = r.codes,
                                      .scales = bits == 16 ? NULL : r.scales };
    return r;
}

#endif
