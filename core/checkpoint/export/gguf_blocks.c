/* Blocks of 32 weights: Q4_0, Q8_0 and MXFP4, rounded as ggml's reference rounds them, or these and IQ4_NL
 * taken over from codes and scales that are the same numbers. */
#include "checkpoint/export/gguf_out.h"

#include "base/f16.h"
#include "checkpoint/export/gguf_super.h"
#include "model/packed_table.h"

#include <math.h>
#include <string.h>

#define QK TSR_GGUF_OUT_BLOCK

unsigned tsr_export_gguf_elements(uint32_t type)
{
    uint32_t elements = 1, bytes = 0;
    (void)tsr_gguf_block(type, &elements, &bytes);
    return elements > QK ? elements : QK;
}

uint64_t tsr_export_gguf_row_bytes(uint32_t type, uint64_t cols)
{
    uint32_t elements = 1, bytes = 0;
    (void)tsr_gguf_block(type, &elements, &bytes);
    return cols / elements * bytes;
}

/* ---- rounding ------------------------------------------------------------------------------ */

/* False for a scale that F16 does not hold. */
static bool put_f16(unsigned char *dst, float v)
{
    uint64_t inexact = 0;
    return tsr_export_put(dst, TSR_F16, v, &inexact);
}

/* 1/d; 0 if d is so small that F16 rounds it to 0 anyway. */
static float inverse(float d)
{
    float id = d != 0 ? 1.0f / d : 0.0f;
    return isfinite(id) ? id : 0.0f;
}

static bool q8_0(const float *x, unsigned char *dst)
{
    float amax = 0;
    for (unsigned i = 0; i < QK; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float d = amax / 127, id = inverse(d);
    for (unsigned i = 0; i < QK; i++)
        dst[2 + i] = (unsigned char)(int8_t)roundf(x[i] * id);
    return put_f16(dst, d);
}

/* The scale is that of the element with the largest magnitude, which becomes -8. */
static bool q4_0(const float *x, unsigned char *dst)
{
    float amax = 0, max = 0;
    for (unsigned i = 0; i < QK; i++) {
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            max = x[i];
        }
    }
    float    d = max / -8, id = inverse(d);
    unsigned q[QK];
    for (unsigned i = 0; i < QK; i++) {
        float v = x[i] * id + 8.5f;
        q[i] = v >= 15 ? 15 : (unsigned)v;
    }
    for (unsigned i = 0; i < QK / 2; i++)
        dst[2 + i] = (unsigned char)(q[i] | q[i + QK / 2] << 4);
    return put_f16(dst, d);
}

/* Twice the elements of FP4 E2M1; their scale is half as large for it. */
static const float mxfp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static float half_e8m0(unsigned e)
{
    return tsr_bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* The nearest element; of two as near the one that comes first. */
static unsigned mxfp4_nearest(float x, float d)
{
    unsigned best = 0;
    float    least = fabsf(mxfp4_values[0] * d - x);
    for (unsigned i = 1; i < 16; i++) {
        float e = fabsf(mxfp4_values[i] * d - x);
        if (e < least) {
            least = e;
            best = i;
        }
    }
    return best;
}

static bool mxfp4(const float *x, unsigned char *dst)
{
    float amax = 0;
    for (unsigned i = 0; i < QK; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float    exponent = amax > 0 ? floorf(log2f(amax)) - 2 + 127 : 0;
    unsigned e = exponent > 0 ? (unsigned)exponent : 0;
    float    d = half_e8m0(e);
    dst[0] = (unsigned char)e;
    for (unsigned i = 0; i < QK / 2; i++)
        dst[1 + i] = (unsigned char)(mxfp4_nearest(x[i], d) | mxfp4_nearest(x[i + QK / 2], d) << 4);
    return true;
}

bool tsr_export_gguf_quantize_row(uint32_t type, const float *x, uint64_t cols, unsigned char *dst)
{
    for (uint64_t k = 0; k < cols; k++)
        if (!isfinite(x[k]))
            return false;
    for (uint64_t k = 0; k < cols; k += QK, x += QK) {
        bool ok = type == TSR_GGUF_OUT_Q8_0   ? q8_0(x, dst)
                  : type == TSR_GGUF_OUT_Q4_0 ? q4_0(x, dst)
                                              : mxfp4(x, dst);
        if (!ok)
            return false;
        dst += tsr_export_gguf_row_bytes(type, QK);
    }
    return true;
}

/* ---- taking over --------------------------------------------------------------------------- */

static bool holds_mx(const struct tsr_export_module *m)
{
    if (m->f.element != TSR_MX_FP4_E2M1 || m->f.bits != 4 || m->f.scale_bits != 8 ||
        !(m->f.group == QK || (m->f.group == 0 && m->v->cols == QK)))
        return false;
    for (uint64_t r = 0; r < m->v->rows; r++)
        for (uint64_t g = 0; g < m->groups; g++)
            if (tsr_export_module_meta(m, r)[g] == 255) /* not a number here, a large one to ggml */
                return false;
    return true;
}

/* Codes under the levels of IQ4_NL, with an F16 scale for each block. */
static bool holds_table(const struct tsr_export_module *m)
{
    static const float levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113 };
    return strcmp(m->f.id, TSR_FORMAT_TABLE) == 0 && m->f.scale_bits == 0 &&
           m->f.scale_dtype == TSR_F16 &&
           (m->f.group == QK || (m->f.group == 0 && m->v->cols == QK)) &&
           tsr_model_same_table(m->f.table, levels);
}

bool tsr_export_gguf_is_super_type(uint32_t type, const struct tsr_export_module *m)
{
    const struct tsr_export_gguf_levels *k = tsr_export_gguf_levels(type);
    return k && tsr_export_gguf_is_super(k, m);
}

/* Of the types whose codes are whole numbers around 0, else 0. */
static uint32_t bits_of(uint32_t type)
{
    return type == TSR_GGUF_OUT_Q4_0   ? 4
           : type == TSR_GGUF_T_Q5_0   ? 5
           : type == TSR_GGUF_OUT_Q8_0 ? 8
                                       : 0;
}

bool tsr_export_gguf_holds(uint32_t type, const struct tsr_export_module *m)
{
    if (tsr_export_gguf_is_super_type(type, m))
        return true;
    if (type != TSR_GGUF_OUT_MXFP4 && type != TSR_GGUF_OUT_IQ4_NL && !bits_of(type))
        return false;
    if (m->v->cols % QK != 0 || m->f.group % QK != 0 || m->order)
        return false;
    if (m->form == TSR_EXPORT_FORM_MX)
        return type == TSR_GGUF_OUT_MXFP4 && holds_mx(m);
    if (m->form == TSR_EXPORT_FORM_TABLE || type == TSR_GGUF_OUT_IQ4_NL)
        return m->form == TSR_EXPORT_FORM_TABLE && type == TSR_GGUF_OUT_IQ4_NL && holds_table(m);
    if (m->form != TSR_EXPORT_FORM_INT || type == TSR_GGUF_OUT_MXFP4 ||
        tsr_export_module_scale_dtype(m, TSR_F16) != TSR_F16)
        return false;
    const uint32_t bits = bits_of(type);
    const int      hi = (1 << (bits - 1)) - 1, lo = -hi - 1;
    if (m->f.zero != TSR_ZERO_STORED)
        return m->f.bits <= bits;
    for (uint64_t r = 0; r < m->v->rows; r++) {
        const unsigned char *codes = tsr_export_module_codes(m, r);
        for (uint64_t k = 0; k < m->v->cols; k++) {
            uint64_t g = m->f.group ? k / m->f.group : 0;
            int      q = (int)tsr_export_bits_get(codes, k * m->f.bits, m->f.bits) -
                    (int)tsr_export_module_zero(m, r, g);
            if (q < lo || q > hi)
                return false;
        }
    }
    return true;
}

static void repack_int(uint32_t type, const struct tsr_export_module *m, uint64_t r, uint64_t block,
                       unsigned char *dst)
{
    const unsigned char *codes = tsr_export_module_codes(m, r);
    uint64_t             at = block * QK, g = m->f.group ? at / m->f.group : 0;
    unsigned             zero = tsr_export_module_zero(m, r, g), q[QK];
    for (unsigned i = 0; i < QK; i++)
        q[i] = tsr_export_bits_get(codes, (at + i) * m->f.bits, m->f.bits) - zero;
    (void)put_f16(dst, tsr_export_module_scale(m, r, g)); /* exact: holds() looked */
    dst += 2;
    if (type == TSR_GGUF_OUT_Q8_0) {
        for (unsigned i = 0; i < QK; i++)
            dst[i] = (unsigned char)q[i];
        return;
    }
    const unsigned middle = 1u << (bits_of(type) - 1);
    if (type == TSR_GGUF_T_Q5_0) { /* the fifth bits come first */
        memset(dst, 0, QK / 8);
        for (unsigned i = 0; i < QK; i++)
            dst[i / 8] = (unsigned char)(dst[i / 8] | ((q[i] + middle) >> 4 & 1u) << i % 8);
        dst += QK / 8;
    }
    for (unsigned i = 0; i < QK / 2; i++)
        dst[i] = (unsigned char)(((q[i] + middle) & 15) | (q[i + QK / 2] + middle) << 4);
}

/* Codes of MXFP4 and IQ4_NL after the bytes of their scales. */
static void repack_nibbles(const struct tsr_export_module *m, uint64_t r, uint64_t block,
                           unsigned char *dst)
{
    const unsigned char *codes = tsr_export_module_codes(m, r);
    uint64_t             scale = m->form == TSR_EXPORT_FORM_TABLE ? 2 : 1;
    memcpy(dst, tsr_export_module_meta(m, r) + block * scale, scale);
    for (unsigned i = 0; i < QK / 2; i++)
        dst[scale + i] =
            (unsigned char)(tsr_export_bits_get(codes, (block * QK + i) * 4, 4) |
                            tsr_export_bits_get(codes, (block * QK + i + QK / 2) * 4, 4) << 4);
}

void tsr_export_gguf_repack_row(uint32_t type, const struct tsr_export_module *m, uint64_t r,
                                unsigned char *dst)
{
    for (uint64_t b = 0; b < m->v->cols / QK; b++, dst += tsr_export_gguf_row_bytes(type, QK)) {
        if (m->form == TSR_EXPORT_FORM_MX || m->form == TSR_EXPORT_FORM_TABLE)
            repack_nibbles(m, r, b, dst);
        else
            repack_int(type, m, r, b, dst);
    }
}
