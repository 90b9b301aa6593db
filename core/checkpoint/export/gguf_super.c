/* Blocks of a GGUF type: numbers to bytes, and the same numbers out of packed rows. */
#include "checkpoint/export/gguf_super.h"

#include "checkpoint/gguf/gguf.h"
#include "model/packed_table.h"

#include <string.h>

const struct tsr_export_gguf_levels *tsr_export_gguf_levels(uint32_t type)
{
    static const struct tsr_export_gguf_levels levels[] = {
        { TSR_GGUF_T_Q4_0, 32, 32, 15, 8, 1, false, false, false },
        { TSR_GGUF_T_Q5_0, 32, 32, 31, 16, 1, false, false, false },
        { TSR_GGUF_T_Q8_0, 32, 32, 255, 128, 1, false, false, false },
        { TSR_GGUF_T_Q4_1, 32, 32, 15, 0, 1, false, true, true },
        { TSR_GGUF_T_Q5_1, 32, 32, 31, 0, 1, false, true, true },
        { TSR_GGUF_T_Q2_K, 256, 16, 3, 0, 15, false, true, false },
        { TSR_GGUF_T_Q3_K, 256, 16, 7, 4, 31, true, false, false },
        { TSR_GGUF_T_Q4_K, 256, 32, 15, 0, 63, false, true, false },
        { TSR_GGUF_T_Q5_K, 256, 32, 31, 0, 63, false, true, false },
        { TSR_GGUF_T_Q6_K, 256, 16, 63, 32, 127, true, false, false },
    };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].type == type)
            return &levels[i];
    return NULL;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void or_at(unsigned char *p, unsigned v)
{
    *p = (unsigned char)(*p | v);
}

static void put_u16(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

/* Low nibbles of 32 elements, element j below j + 16, and their fifth bits. */
static void put_32(const unsigned char *code, unsigned char *fifth, unsigned char *nibbles)
{
    for (unsigned i = 0; i < 32; i++) {
        or_at(nibbles + i % 16, (code[i] & 15u) << (i / 16 * 4));
        if (fifth)
            or_at(fifth + i / 8, (unsigned)(code[i] >> 4) << (i % 8));
    }
}

/* Q2_K: 16 bytes with a 4-bit scale below and a 4-bit minimum above, 64 of codes, d, m. */
static void put_q2(const struct tsr_export_gguf_super *s, unsigned char *b)
{
    for (unsigned g = 0; g < 16; g++)
        b[g] = (unsigned char)((unsigned)s->scale[g] | (unsigned)s->minimum[g] << 4);
    for (unsigned i = 0; i < 256; i++)
        or_at(b + 16 + (size_t)(i / 128 * 32 + i % 32), (unsigned)s->code[i] << (i % 128 / 32 * 2));
    put_u16(b + 80, s->d);
    put_u16(b + 82, s->m);
}

/* Q3_K: 32 bytes of third bits, 64 of two bits, 12 of sixteen 6-bit scales, d. */
static void put_q3(const struct tsr_export_gguf_super *s, unsigned char *b)
{
    for (unsigned i = 0; i < 256; i++) {
        unsigned half = i / 128, part = i % 128 / 32, l = i % 32;
        or_at(b + 32 + (size_t)(half * 32 + l), (s->code[i] & 3u) << (2 * part));
        or_at(b + l, (unsigned)(s->code[i] >> 2) << (half * 4 + part));
    }
    for (unsigned g = 0; g < 16; g++) {
        unsigned u = (unsigned)(s->scale[g] + 32);
        or_at(b + 96 + g % 8, (u & 15u) << (g / 8 * 4));
        or_at(b + 104 + g % 4, u >> 4 << (g / 4 * 2));
    }
    put_u16(b + 108, s->d);
}

/* Q4_K and Q5_K: d, m, eight 6-bit scales and minimums in 12 bytes, fifth bits, nibbles. */
static void put_q45(const struct tsr_export_gguf_super *s, bool five, unsigned char *b)
{
    unsigned char *q = b + 4, *nibbles = b + (five ? 48 : 16);
    put_u16(b, s->d);
    put_u16(b + 2, s->m);
    for (unsigned g = 0; g < 8; g++) {
        unsigned a = (unsigned)s->scale[g], m = s->minimum[g];
        if (g < 4) {
            or_at(q + g, a);
            or_at(q + g + 4, m);
        } else {
            or_at(q + g + 4, (a & 15u) | (m & 15u) << 4);
            or_at(q + g - 4, a >> 4 << 6);
            or_at(q + g, m >> 4 << 6);
        }
    }
    for (unsigned i = 0; i < 256; i++) {
        or_at(nibbles + (size_t)(i / 64 * 32 + i % 32), (s->code[i] & 15u) << (i / 32 % 2 * 4));
        if (five)
            or_at(b + 16 + i % 32, (unsigned)(s->code[i] >> 4) << (i / 32));
    }
}

/* Q6_K: 128 bytes of low nibbles, 64 of two high bits, 16 scales, d. */
static void put_q6(const struct tsr_export_gguf_super *s, unsigned char *b)
{
    for (unsigned i = 0; i < 256; i++) {
        unsigned half = i / 128, part = i % 128 / 32, l = i % 32;
        or_at(b + (size_t)(half * 64 + part % 2 * 32 + l), (s->code[i] & 15u) << (part / 2 * 4));
        or_at(b + 128 + (size_t)(half * 32 + l), (unsigned)(s->code[i] >> 4) << (2 * part));
    }
    for (unsigned g = 0; g < 16; g++)
        b[192 + g] = (unsigned char)s->scale[g];
    put_u16(b + 208, s->d);
}

void tsr_export_gguf_put_super(const struct tsr_export_gguf_levels *k,
                               const struct tsr_export_gguf_super *s, unsigned char *dst)
{
    uint32_t elements, bytes = 0;
    (void)tsr_gguf_block(k->type, &elements, &bytes);
    memset(dst, 0, bytes);
    switch (k->type) {
    case TSR_GGUF_T_Q2_K:
        put_q2(s, dst);
        return;
    case TSR_GGUF_T_Q3_K:
        put_q3(s, dst);
        return;
    case TSR_GGUF_T_Q4_K:
    case TSR_GGUF_T_Q5_K:
        put_q45(s, k->type == TSR_GGUF_T_Q5_K, dst);
        return;
    case TSR_GGUF_T_Q6_K:
        put_q6(s, dst);
        return;
    default:
        break;
    }
    put_u16(dst, s->d);
    dst += 2;
    if (k->plain) { /* it is added there */
        put_u16(dst, s->m ^ 0x8000u);
        dst += 2;
    }
    if (k->top == 255)
        for (unsigned i = 0; i < 32; i++)
            dst[i] = s->code[i] ^ 0x80u;
    else
        put_32(s->code, k->top == 31 ? dst : NULL, dst + (k->top == 31 ? 4 : 0));
}

/* ---- packed rows ---------------------------------------------------------------------------- */

bool tsr_export_gguf_is_super(const struct tsr_export_gguf_levels *k,
                              const struct tsr_export_module      *m)
{
    struct tsr_format f;
    if (m->form == TSR_EXPORT_FORM_DENSE || !m->v->packed[0] || m->order ||
        m->v->cols % k->elements != 0 || !tsr_gguf_format(k->type, &f))
        return false;
    for (unsigned i = 0; i < m->v->n; i++) {
        const struct tsr_format *p = m->v->packed[i] ? &m->v->packed[i]->format : NULL;
        if (!p || strcmp(p->id, f.id) != 0 || p->bits != f.bits || p->zero != f.zero ||
            p->group != f.group || p->scale_bits != f.scale_bits ||
            (!f.scale_bits && p->scale_dtype != f.scale_dtype) || p->element != f.element ||
            !tsr_model_same_table(p->table, f.table))
            return false;
    }
    return true;
}

static unsigned u16_at(const unsigned char *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

void tsr_export_gguf_take_super(const struct tsr_export_gguf_levels *k,
                                const struct tsr_export_module *m, uint64_t r, uint64_t b,
                                struct tsr_export_gguf_super *s)
{
    const unsigned char *codes = tsr_export_module_codes(m, r);
    const unsigned char *meta = tsr_export_module_meta(m, r);
    unsigned bits = m->f.bits, level = m->f.scale_bits, groups = tsr_export_gguf_groups(k);
    memset(s, 0, sizeof *s);
    for (unsigned i = 0; i < k->elements; i++)
        s->code[i] = (unsigned char)tsr_export_bits_get(codes, (b * k->elements + i) * bits, bits);
    if (level == 0) {
        s->scale[0] = 1;
        s->minimum[0] = k->minimum;
        s->d = (uint16_t)u16_at(meta + 2 * b);
        if (k->minimum)
            s->m = (uint16_t)(u16_at(meta + 2 * (m->groups + b)) ^ 0x8000u);
        return;
    }
    const unsigned char *record = meta + b * (k->minimum ? tsr_format_affine_record_bytes(&m->f)
                                                         : tsr_format_table_record_bytes(&m->f));
    const unsigned char *scales = record + (k->minimum ? 4 : 2);
    s->d = (uint16_t)u16_at(record);
    if (k->minimum)
        s->m = (uint16_t)u16_at(record + 2);
    for (unsigned g = 0; g < groups; g++) {
        int v = (int)tsr_export_bits_get(scales, (uint64_t)g * level, level);
        s->scale[g] = (int8_t)(k->negative ? v - (1 << (level - 1)) : v);
        if (k->minimum)
            s->minimum[g] = (uint8_t)tsr_export_bits_get(scales + (groups * level + 7) / 8,
                                                         (uint64_t)g * level, level);
    }
}
