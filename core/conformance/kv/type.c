/* KV-cache codecs whose units are of a type of tessera/kv_cache.h: their bytes and elements are those of the reference backend. */
#include "conformance/kv/kv.h"

#include "tessera/f16.h"

#include <math.h>
#include <string.h>

#include "reference.h"

typedef struct tsr_conformance_case kv_case;

/* The units as the reference backend stores them; x of a block is F16, as the host keeps it. */
static void want_units(const struct tsr_kv_trial *k, unsigned char *to)
{
    uint16_t *half = tsr_conformance_rule_room(k->each * sizeof *half);
    for (uint64_t u = 0; u < TSR_KV_UNITS; u++) {
        const float *x = k->x + u * k->each;
        if (k->l.type != TSR_Q4_CHANNEL) {
            tsr_ref_head_store(to + u * k->l.bytes, k->l.type, x, k->dim);
            continue;
        }
        for (uint64_t i = 0; i < k->each; i++)
            half[i] = tsr_f32_f16(x[i]);
        tsr_ref_block_store(to + u * k->l.bytes, half, 2 * k->dim, k->dim);
    }
    tsr_conformance_guarded_free(half);
}

static void want_elements(const struct tsr_kv_trial *k, const unsigned char *units, uint64_t p,
                          double *x)
{
    const unsigned char *unit = units + p / k->l.positions * k->l.bytes;
    if (k->l.type == TSR_Q4_CHANNEL)
        tsr_ref_block_load(x, unit, p % k->l.positions, k->dim);
    else
        tsr_ref_head_load(x, k->l.type, unit, k->dim);
}

/* Normal elements, small and large ones, a unit of zeros, and one that is too small to have a scale. */
static void scaled(struct tsr_kv_trial *k, int pass)
{
    static const float by[] = { 1, 0x1p-6f, 0x1p6f, 0, 0x1p-140f };
    for (uint64_t i = 0; i < TSR_KV_UNITS * k->each; i++) {
        k->x[i] *= by[pass];
        if (k->l.type == TSR_Q4_CHANNEL)
            k->x[i] = tsr_f16_f32(tsr_f32_f16(k->x[i]));
        k->x[i] += 0.0f; /* which of two zeros is the least is nobody's promise */
    }
}

/* The first byte of a unit that differs; k->bytes: none.  A block of few elements may have bytes at its end that no key has. */
static uint64_t differ(const struct tsr_kv_trial *k, const unsigned char *want)
{
    uint64_t used = k->l.type == TSR_Q4_CHANNEL ? 20 * k->dim : k->l.bytes;
    for (uint64_t u = 0; u < k->bytes; u += k->l.bytes) {
        uint64_t at = tsr_conformance_rule_differ(k->units + u, want + u, used);
        if (at < used)
            return u + at;
    }
    return k->bytes;
}

static void type(kv_case *c, struct tsr_kv_trial *k)
{
    if (!k->l.type)
        return;
    uint64_t positions = k->l.type == TSR_Q4_CHANNEL ? TSR_KV_BLOCK : 1;
    uint64_t bytes = positions * tsr_kv_head_bytes(k->l.type, k->dim);
    if (!bytes || k->l.positions != positions || k->l.bytes != bytes ||
        (k->l.type == TSR_Q4_CHANNEL && k->side == TSR_KV_VALUES))
        tsr_conformance_rule_fail(
            c,
            "layout() of %s says type %u, %u positions and %llu bytes; of a type of a cache, "
            "units have %llu positions and %llu bytes",
            tsr_kv_text(k), k->l.type, k->l.positions, (unsigned long long)k->l.bytes,
            (unsigned long long)positions, (unsigned long long)bytes);
    float         *was = tsr_conformance_rule_room(TSR_KV_UNITS * k->each * sizeof *was);
    unsigned char *want = tsr_conformance_rule_room(k->bytes);
    double        *x = tsr_conformance_rule_room(k->dim * sizeof *x);
    memcpy(was, k->x, TSR_KV_UNITS * k->each * sizeof *was);
    for (int pass = 0; pass < 5; pass++) {
        memcpy(k->x, was, TSR_KV_UNITS * k->each * sizeof *was);
        scaled(k, pass);
        want_units(k, want);
        tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
        uint64_t at = differ(k, want);
        if (at < k->bytes)
            tsr_conformance_rule_fail(
                c, "encode() of %s: byte %llu of a unit is %u, not %u as that of its type %u",
                tsr_kv_text(k), (unsigned long long)(at % k->l.bytes), k->units[at], want[at],
                k->l.type);
        tsr_kv_decode(c, k, TSR_KV_UNITS, want, k->back);
        for (uint64_t p = 0; p < (uint64_t)TSR_KV_UNITS * k->l.positions; p++) {
            want_elements(k, want, p, x);
            for (uint64_t d = 0; d < k->dim; d++)
                if (!((double)k->back[p * k->dim + d] == (double)(float)x[d]))
                    tsr_conformance_rule_fail(
                        c, "decode() of %s gives %.9g at element %llu, not %.9g as its type %u",
                        tsr_kv_text(k), (double)k->back[p * k->dim + d], (unsigned long long)d,
                        x[d], k->l.type);
        }
    }
    tsr_conformance_guarded_free(was);
    tsr_conformance_guarded_free(want);
    tsr_conformance_guarded_free(x);
}

void tsr_kv_rule_type(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), type);
}
