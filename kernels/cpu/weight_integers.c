/* weight_integers.c - MX elements that are integers under a power of two: they run as tessera.int/1. */
#include "weight_extra.h"

#include "../weight/weight.h"

#include <stddef.h>
#include <string.h>

int tsr_cpu_is_integers(const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        return 0;
    /* runs of looked-up nibbles must begin on four columns */
    if (f->element == TSR_MX_FP4_E2M1 && (tsr_format_groups(f, d->cols) == 1 || f->group % 4 == 0))
        return 0;
    return tsr_element_largest(f->element) <= 127;
}

static void code_put(uint8_t *row, uint64_t k, uint32_t bits, uint32_t code)
{
    uint64_t at = k * bits;
    row[at / 8] |= (uint8_t)(code << (at % 8));
    if (at % 8 + bits > 8)
        row[at / 8 + 1] |= (uint8_t)(code >> (8 - at % 8));
}

struct recode {
    const struct tsr_weight_desc *d;
    struct tsr_format             f;
    uint8_t                      *codes, *meta;
    uint64_t                      code_stride, meta_stride, groups;
    uint8_t                       map[256];
};

static tsr_status recode_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct recode     *r = arg;
    const struct tsr_format *f = r->d->format;
    int                      unit = tsr_element_unit(f->element);
    for (uint64_t i = begin; i < end; i++) {
        const uint8_t *src = (const uint8_t *)r->d->codes + i * r->d->code_stride;
        const uint8_t *scales = (const uint8_t *)r->d->meta + i * r->d->meta_stride;
        uint8_t       *dst = r->codes + i * r->code_stride;
        memset(dst, 0, r->code_stride);
        for (uint64_t k = 0; k < r->d->cols; k++)
            code_put(dst, k, r->f.bits, r->map[tsr_weight_code(src, k, f->bits)]);
        for (uint64_t g = 0; g < r->groups; g++) {
            float s = tsr_element_scale(f, scales[g], unit);
            memcpy(r->meta + i * r->meta_stride + 4 * g, &s, 4);
        }
    }
    return TSR_OK;
}

/* The int layout of the fewest bits that holds an integer element. */
static struct tsr_format as_integers(const struct tsr_format *f)
{
    struct tsr_format i = { .struct_size = sizeof i,
                            .id = TSR_FORMAT_INT,
                            .bits = 2,
                            .zero = TSR_ZERO_MID,
                            .group = f->group,
                            .scale_dtype = TSR_F32 };
    while ((1u << (i.bits - 1)) <= tsr_element_largest(f->element))
        i.bits++;
    return i;
}

static tsr_status recode(struct tsr_cpu *c, const struct tsr_weight_desc *d, void **weight,
                         struct tsr_err *err)
{
    const struct tsr_host   *host = c->host;
    const struct tsr_format *f = d->format;
    struct recode            r = { .d = d, .groups = tsr_format_groups(f, d->cols) };
    uint32_t                 half = 1u << (f->bits - 1);
    r.f = as_integers(f);
    for (uint32_t m = 0; m < half; m++) {
        uint32_t units = tsr_element_units(f->element, m), mid = 1u << (r.f.bits - 1);
        r.map[m] = (uint8_t)(mid + units);
        r.map[half + m] = (uint8_t)(mid - units);
    }
    r.code_stride = tsr_format_int_code_bytes(&r.f, d->cols);
    r.meta_stride = tsr_format_int_meta_bytes(&r.f, d->cols);
    uint64_t nc, nm;
    if (__builtin_mul_overflow(d->rows, r.code_stride, &nc) ||
        __builtin_mul_overflow(d->rows, r.meta_stride, &nm) || nc > PTRDIFF_MAX || nm > PTRDIFF_MAX)
        return tsr_weight_refuse(err, d, "it is larger than the address space");
    r.codes = host->alloc(host->ctx, nc, 64);
    r.meta = r.codes ? host->alloc(host->ctx, nm, 64) : NULL;
    tsr_status st = TSR_OK;
    if (!r.meta)
        st = tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes to repack weight '%s'",
                      (unsigned long long)(nc + nm), d->name ? d->name : "?");
    else if ((st = tsr_cpu_for(c, d->rows, 4 * d->cols, recode_rows, &r)) != TSR_OK)
        (void)tsr_fail(err, st, "weight '%s': loading was stopped", d->name ? d->name : "?");
    if (st == TSR_OK) {
        struct tsr_weight_desc as = *d;
        as.struct_size = sizeof as;
        as.format = &r.f;
        as.codes = r.codes;
        as.meta = r.meta;
        as.code_stride = r.code_stride;
        as.meta_stride = r.meta_stride;
        st = tsr_cpu_weight_load(c, &as, weight, err);
    }
    host->release(host->ctx, r.codes, nc);
    host->release(host->ctx, r.meta, nm);
    return st;
}

tsr_status tsr_cpu_integers_load(struct tsr_cpu *c, const struct tsr_weight_desc *d,
                                 const void *data, uint64_t bytes, void **weight,
                                 struct tsr_err *err)
{
    if (!data)
        return recode(c, d, weight, err);
    struct tsr_format      f = as_integers(d->format);
    struct tsr_weight_desc as = *d;
    as.struct_size = sizeof as;
    as.format = &f;
    return tsr_cpu_weight_over(c, &as, data, bytes, weight, err);
}

tsr_status tsr_cpu_integers_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                    struct tsr_err *err)
{
    struct tsr_format      f = as_integers(d->format);
    struct tsr_weight_desc as = *d;
    as.struct_size = sizeof as;
    as.format = &f;
    return tsr_cpu_weight_outline(&as, w, err);
}
