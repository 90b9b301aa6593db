/* weight_extra.c - tessera.lut/1, tessera.mx/1 and LLM.int8 to what the kernels read (extra.h). */
#include "weight_extra.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- what is allowed ------------------------------------------------------------ */

static tsr_status refuse(struct tsr_err *err, const struct tsr_weight_desc *d, const char *why)
{
    return tsr_fail(err, TSR_E_INVAL, "weight '%s': %s", d->name ? d->name : "?", why);
}

int tsr_cpu_extra_takes(const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    return f && f->id && (strcmp(f->id, TSR_FORMAT_LUT) == 0 || strcmp(f->id, TSR_FORMAT_MX) == 0);
}

static int mx_known(uint32_t element)
{
    static const uint32_t floats[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                       TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                       TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2,
                                       TSR_MX_FP3_E1M1 };
    for (unsigned i = 0; i < sizeof floats / sizeof *floats; i++)
        if (element == floats[i])
            return 1;
    return element >= TSR_MX_INT(2) && element <= TSR_MX_INT(8);
}

static tsr_status check_lut(const struct tsr_weight_desc *d, int data, struct tsr_err *err)
{
    const struct tsr_format *f = d->format;
    if (f->bits < 2 || f->bits > 8)
        return refuse(err, d, "bits must be 2 to 8");
    if (f->scale_dtype != TSR_F16 && f->scale_dtype != TSR_F32)
        return refuse(err, d, "tables must be F16 or F32");
    if (f->outliers > d->cols)
        return refuse(err, d, "it has more outliers than columns");
    if (d->code_stride < tsr_format_int_code_bytes(f, d->cols) ||
        d->meta_stride < tsr_format_lut_meta_bytes(f))
        return refuse(err, d, "code_stride or meta_stride is shorter than a row");
    for (uint64_t r = 0; data && r < d->rows; r++) {
        const uint8_t *p = (const uint8_t *)d->meta + r * d->meta_stride +
                           tsr_format_lut_meta_bytes(f) - 4 * f->outliers;
        uint32_t last = 0, column;
        for (uint64_t i = 0; i < f->outliers; i++, last = column) {
            memcpy(&column, p + 4 * i, 4);
            if (column >= d->cols || (i > 0 && column <= last))
                return tsr_fail(err, TSR_E_INVAL,
                                "weight '%s': row %llu: the columns of its outliers do not ascend "
                                "within the row",
                                d->name ? d->name : "?", (unsigned long long)r);
        }
    }
    return TSR_OK;
}

/* data: codes and meta are there. */
static tsr_status check(const struct tsr_weight_desc *d, int data, struct tsr_err *err)
{
    const struct tsr_format *f = d->format;
    if (data && (!d->codes || !d->meta))
        return refuse(err, d, "the codes, or the tables or scales, are missing");
    if (f->struct_size < offsetof(struct tsr_format, act8))
        return refuse(err, d, "its format's struct_size has no room for the format's parameters");
    if (d->rows == 0 || d->cols == 0 || d->rows > UINT32_MAX || d->cols > UINT32_MAX / 2)
        return refuse(err, d, "rows and columns must be 1 to 2^31");
    if (tsr_cpu_segments_wrong(d))
        return refuse(err, d, tsr_cpu_segments_wrong(d));
    if (TSR_HAS(struct tsr_format, f, act8))
        return refuse(err, d, "act8 is not for this format");
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        return check_lut(d, data, err);
    if (!mx_known(f->element) || f->bits != 1 + (f->element >> 8) + (f->element & 255))
        return refuse(err, d, "element and bits are none of tessera.mx/1");
    if (f->scale_bits < 4 || f->scale_bits > 8)
        return refuse(err, d, "scale_bits must be 4 to 8");
    if (d->code_stride < tsr_format_int_code_bytes(f, d->cols) ||
        d->meta_stride < tsr_format_mx_meta_bytes(f, d->cols))
        return refuse(err, d, "code_stride or meta_stride is shorter than a row");
    return TSR_OK;
}

/* ---- codes and elements ----------------------------------------------------------- */

/* Code k of a row's bit stream. */
static uint32_t code_at(const uint8_t *row, uint64_t k, uint32_t bits)
{
    uint64_t at = k * bits;
    uint32_t v = (uint32_t)(row[at / 8] >> (at % 8));
    if (at % 8 + bits > 8)
        v |= (uint32_t)row[at / 8 + 1] << (8 - at % 8);
    return v & ((1u << bits) - 1u);
}

static void code_put(uint8_t *row, uint64_t k, uint32_t bits, uint32_t code)
{
    uint64_t at = k * bits;
    row[at / 8] |= (uint8_t)(code << (at % 8));
    if (at % 8 + bits > 8)
        row[at / 8 + 1] |= (uint8_t)(code >> (8 - at % 8));
}

/* The element's magnitude in units of 2^-mx_unit(). */
static uint32_t mx_units(uint32_t element, uint32_t magnitude)
{
    uint32_t ebits = element >> 8, mbits = element & 255, e = magnitude >> mbits;
    uint32_t m = magnitude & ((1u << mbits) - 1u);
    if (ebits == 0)
        return magnitude;
    return e ? ((1u << mbits) + m) << (e - 1) : m;
}

static int mx_unit(uint32_t element)
{
    int ebits = (int)(element >> 8), mbits = (int)(element & 255);
    return (ebits ? (1 << (ebits - 1)) - 1 : 0) + mbits - 1;
}

/* The largest magnitude in units. */
static uint32_t mx_largest(uint32_t element)
{
    return mx_units(element, (1u << ((element >> 8) + (element & 255))) - 1u);
}

/* 2^(scale - lim - unit), NaN for a NaN block. */
static float mx_scale(const struct tsr_format *f, uint8_t scale, int unit)
{
    int lim = (1 << (f->scale_bits - 1)) - 1;
    return scale > 2 * lim ? NAN : ldexpf(1.0f, scale - lim - unit);
}

/* A small float's value without its scale; E4M3 and E5M2 have codes that are no numbers. */
static float fpx_value(uint32_t ebits, uint32_t mbits, uint32_t code)
{
    uint32_t magnitude = code & ((1u << (ebits + mbits)) - 1u), e = magnitude >> mbits;
    uint32_t m = magnitude & ((1u << mbits) - 1u);
    int      bias = (1 << (ebits - 1)) - 1;
    float    v = e ? ldexpf((float)((1u << mbits) + m), (int)e - bias - (int)mbits)
                   : ldexpf((float)m, 1 - bias - (int)mbits);
    if (ebits == 4 && magnitude == 127)
        v = NAN;
    if (ebits == 5 && e == 31)
        v = m ? NAN : INFINITY;
    return magnitude && code >> (ebits + mbits) & 1 ? -v : v;
}

/* ---- MX elements that are integers: tessera.int/1 ---------------------------------- */

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
    int                      unit = mx_unit(f->element);
    for (uint64_t i = begin; i < end; i++) {
        const uint8_t *src = (const uint8_t *)r->d->codes + i * r->d->code_stride;
        const uint8_t *scales = (const uint8_t *)r->d->meta + i * r->d->meta_stride;
        uint8_t       *dst = r->codes + i * r->code_stride;
        memset(dst, 0, r->code_stride);
        for (uint64_t k = 0; k < r->d->cols; k++)
            code_put(dst, k, r->f.bits, r->map[code_at(src, k, f->bits)]);
        for (uint64_t g = 0; g < r->groups; g++) {
            float s = mx_scale(f, scales[g], unit);
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
    while ((1u << (i.bits - 1)) <= mx_largest(f->element))
        i.bits++;
    return i;
}

static tsr_status load_integers(struct tsr_cpu *c, const struct tsr_weight_desc *d, void **weight,
                                struct tsr_err *err)
{
    const struct tsr_host   *host = c->host;
    const struct tsr_format *f = d->format;
    struct recode            r = { .d = d, .groups = tsr_format_groups(f, d->cols) };
    uint32_t                 half = 1u << (f->bits - 1);
    r.f = as_integers(f);
    for (uint32_t m = 0; m < half; m++) {
        uint32_t units = mx_units(f->element, m), mid = 1u << (r.f.bits - 1);
        r.map[m] = (uint8_t)(mid + units);
        r.map[half + m] = (uint8_t)(mid - units);
    }
    r.code_stride = tsr_format_int_code_bytes(&r.f, d->cols);
    r.meta_stride = tsr_format_int_meta_bytes(&r.f, d->cols);
    uint64_t nc, nm;
    if (__builtin_mul_overflow(d->rows, r.code_stride, &nc) ||
        __builtin_mul_overflow(d->rows, r.meta_stride, &nm) || nc > PTRDIFF_MAX || nm > PTRDIFF_MAX)
        return refuse(err, d, "it is larger than the address space");
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

/* ---- W_TAB and W_FPX ----------------------------------------------------------------- */

/* As weight.c cuts runs: fills w->runs when it is set, else counts. */
static uint64_t cut_runs(struct tsr_cpu_weight *w)
{
    uint64_t n = 0, block = 0;
    for (uint64_t s = 0; s < w->nseg; s++) {
        uint64_t end = cpu_min((s + 1) * w->seg, w->cols);
        for (uint64_t b = s * w->seg; b < end; b += BLOCK, block++)
            for (uint64_t k = b, last = cpu_min(b + BLOCK, end); k < last; n++) {
                uint64_t g = k / w->group, k1 = cpu_min((g + 1) * w->group, last);
                if (w->runs)
                    w->runs[n] = (struct tsr_cpu_run){ (uint32_t)k, (uint32_t)k1, (uint32_t)g,
                                                       (uint32_t)block, (uint32_t)s };
                k = k1;
            }
    }
    w->nblocks = block;
    return n;
}

/* Takes n * size bytes, rounded up to a cache line, from the end of *total; 0 on overflow. */
static int take(uint64_t *total, uint64_t n, uint64_t size, uint64_t *place)
{
    uint64_t b;
    *place = *total;
    return !__builtin_mul_overflow(n, size, &b) && b < (UINT64_C(1) << 60) &&
           !__builtin_add_overflow(*total, (b + 63) / 64 * 64, total);
}

struct place {
    uint64_t codes, scales, table, table8, column, value, delta, first, where;
};

static int plan(struct tsr_cpu_weight *w, const struct tsr_weight_desc *d, struct place *p)
{
    const struct tsr_format *f = d->format;
    struct tsr_cpu_extra    *e = &w->extra;
    int                      lut = strcmp(f->id, TSR_FORMAT_LUT) == 0;
    w->rows = d->rows;
    w->cols = d->cols;
    w->panels = cpu_ceil(d->rows, PANEL);
    tsr_cpu_segments(w, d);
    w->group = !lut && f->group && f->group < d->cols ? f->group : d->cols;
    w->groups = lut ? 1 : tsr_format_groups(f, d->cols);
    w->layout = lut || f->element == TSR_MX_FP4_E2M1 ? W_TAB : W_FPX;
    w->aligned = w->groups == 1 || w->group % TABLE_STEP == 0;
    uint64_t rows = w->panels * PANEL, total = 0;
    if (w->layout == W_FPX) {
        e->ebits = f->element >> 8;
        e->mbits = f->element & 255;
        w->panel_bytes = w->cols * PANEL;
    } else {
        e->byte_codes = lut && f->bits > 4;
        e->entries = e->byte_codes ? 256 : 16;
        e->shared = !lut;
        e->outliers = lut ? f->outliers : 0;
        w->panel_bytes = cpu_ceil(w->cols, e->byte_codes ? 16 : TABLE_STEP) * 512;
    }
    uint64_t tables = e->shared ? 1 : rows;
    int      tab = w->layout == W_TAB;
    if (!take(&total, w->panels, w->panel_bytes, &p->codes) ||
        !take(&total, rows * (lut ? 4u : 2u), w->groups, &p->scales) ||
        !take(&total, tab ? tables : 0, e->entries * 4, &p->table) ||
        !take(&total, tab ? (e->shared ? 4 : rows) : 0, e->entries, &p->table8) ||
        !take(&total, rows * 4, e->outliers, &p->column) ||
        !take(&total, rows * 4, e->outliers, &p->value) ||
        !take(&total, rows * 4, e->outliers, &p->delta) ||
        !take(&total, e->outliers ? rows : 0, (SEGMENTS + 1) * 4, &p->first) ||
        !take(&total, rows, e->outliers, &p->where) || total > PTRDIFF_MAX)
        return 0;
    w->data_bytes = total;
    return 1;
}

struct fill {
    struct tsr_cpu_weight        *w;
    const struct tsr_weight_desc *d;
    struct place                  p;
};

static uint8_t *code_place(const struct tsr_cpu_weight *w, uint64_t row, uint64_t k)
{
    uint64_t r = row % PANEL;
    uint8_t *p = w->codes + row / PANEL * w->panel_bytes;
    if (w->layout == W_FPX)
        return p + k * PANEL + r;
    uint64_t at = (r / 16 * 4 + r % 4) * 64 + r % 16 / 4 * 16;
    return p + k / (w->extra.byte_codes ? 16 : TABLE_STEP) * 512 + at + k % 16;
}

static uint32_t code_get(const struct tsr_cpu_weight *w, uint64_t row, uint64_t k)
{
    uint8_t b = *code_place(w, row, k);
    if (w->layout == W_FPX || w->extra.byte_codes)
        return b;
    return k % TABLE_STEP < 16 ? b & 15 : b >> 4;
}

static void code_set(const struct tsr_cpu_weight *w, uint64_t row, uint64_t k, uint32_t code)
{
    uint8_t *b = code_place(w, row, k);
    if (w->layout == W_FPX || w->extra.byte_codes)
        *b = (uint8_t)code;
    else if (k % TABLE_STEP < 16)
        *b = (uint8_t)((*b & 0xf0) | code);
    else
        *b = (uint8_t)((*b & 15) | code << 4);
}

/* amax/127 over the entries, and what each becomes: the rule for activations. */
static float round_table(const float *table, uint64_t n, int8_t *t)
{
    float amax = 0.0f;
    int   finite = 1;
    for (uint64_t i = 0; i < n; i++) {
        finite &= isfinite(table[i]) != 0;
        amax = fabsf(table[i]) > amax ? fabsf(table[i]) : amax;
    }
    float scale = amax / 127.0f, inv = 1.0f / scale;
    memset(t, 0, n);
    if (!finite)
        return NAN;
    if (!isfinite(inv))
        return 0.0f;
    for (uint64_t i = 0; i < n; i++) {
        float q = rintf(table[i] * inv);
        t[i] = (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    }
    return scale;
}

static float entry(const struct tsr_format *f, const uint8_t *meta, uint64_t i)
{
    float    v;
    uint16_t h;
    if (f->scale_dtype == TSR_F32) {
        memcpy(&v, meta + 4 * i, 4);
        return v;
    }
    memcpy(&h, meta + 2 * i, 2);
    return tsr_cpu_f16(h);
}

/* Table, outliers and codes of one row of lut. */
static void fill_lut_row(const struct fill *a, uint64_t row)
{
    struct tsr_cpu_weight   *w = a->w;
    struct tsr_cpu_extra    *e = &w->extra;
    const struct tsr_format *f = a->d->format;
    const uint8_t           *meta = (const uint8_t *)a->d->meta + row * a->d->meta_stride;
    const uint8_t           *codes = (const uint8_t *)a->d->codes + row * a->d->code_stride;
    uint64_t                 n = UINT64_C(1) << f->bits, r = row % PANEL;
    float                   *table = (float *)(void *)(w->data + a->p.table) + row * e->entries;
    int8_t                   t[256] = { 0 };
    for (uint64_t i = 0; i < n; i++)
        table[i] = entry(f, meta, i);
    float sw = round_table(table, n, t);
    memcpy(w->scales + 4 * row, &sw, 4);
    uint8_t *t8 = w->data + a->p.table8;
    t8 +=
        e->byte_codes ? row * 256 : row / PANEL * 512 + (r / 16 * 4 + r % 4) * 64 + r % 16 / 4 * 16;
    uint32_t zero = 0;
    for (uint32_t i = 0; i < n; i++) {
        t8[i] = (uint8_t)(t[i] + 128);
        if ((t[i] < 0 ? -t[i] : t[i]) < (t[zero] < 0 ? -t[zero] : t[zero]))
            zero = i;
    }
    for (uint64_t k = 0; k < w->cols; k++)
        code_set(w, row, k, code_at(codes, k, f->bits));
    if (e->outliers == 0)
        return;
    const uint8_t *columns = meta + tsr_format_lut_meta_bytes(f) - 4 * e->outliers;
    uint32_t      *column = (uint32_t *)(void *)(w->data + a->p.column) + row * e->outliers;
    float         *value = (float *)(void *)(w->data + a->p.value) + row * e->outliers;
    float         *delta = (float *)(void *)(w->data + a->p.delta) + row * e->outliers;
    uint32_t      *first = (uint32_t *)(void *)(w->data + a->p.first) + row * (SEGMENTS + 1);
    uint32_t       i = 0;
    memcpy(column, columns, 4 * e->outliers);
    for (uint64_t s = 0; s <= SEGMENTS; s++) {
        for (; s && i < e->outliers && column[i] < s * w->seg; i++) {
            value[i] = entry(f, meta, n + i);
            delta[i] = value[i] - (float)t[zero] * sw;
            code_set(w, row, column[i], zero);
            w->data[a->p.where + row * e->outliers + i] = (uint8_t)(s - 1);
        }
        first[s] = i;
    }
}

static void fill_mx_row(const struct fill *a, uint64_t row)
{
    struct tsr_cpu_weight   *w = a->w;
    const struct tsr_format *f = a->d->format;
    const uint8_t           *scales = (const uint8_t *)a->d->meta + row * a->d->meta_stride;
    const uint8_t           *codes = (const uint8_t *)a->d->codes + row * a->d->code_stride;
    int                      unit = w->layout == W_TAB ? mx_unit(f->element) : 0;
    uint32_t                 up = w->layout == W_FPX ? 8 - f->bits : 0; /* the sign on top */
    for (uint64_t k = 0; k < w->cols; k++)
        code_set(w, row, k, code_at(codes, k, f->bits) << up);
    for (uint64_t g = 0; g < w->groups; g++) {
        float    s = mx_scale(f, scales[g], unit);
        uint32_t u;
        memcpy(&u, &s, 4);
        uint16_t h = (uint16_t)(u >> 16); /* BF16 holds 2^-133 and more exactly, and NaN */
        memcpy(w->scales + 2 * ((row / PANEL * w->groups + g) * PANEL + row % PANEL), &h, 2);
    }
}

static tsr_status fill_panels(void *arg, uint64_t begin, uint64_t end)
{
    const struct fill *a = arg;
    int                lut = strcmp(a->d->format->id, TSR_FORMAT_LUT) == 0;
    for (uint64_t row = begin * PANEL; row < cpu_min(end * PANEL, a->w->rows); row++)
        if (lut)
            fill_lut_row(a, row);
        else
            fill_mx_row(a, row);
    return TSR_OK;
}

/* The one table of fp4_e2m1, in units. */
static void fill_shared(struct tsr_cpu_weight *w, const struct place *p)
{
    float   *table = (float *)(void *)(w->data + p->table);
    uint8_t *t8 = w->data + p->table8;
    for (uint32_t c = 0; c < 16; c++) {
        int32_t units = (int32_t)mx_units(TSR_MX_FP4_E2M1, c & 7);
        units = c & 8 ? -units : units;
        table[c] = (float)units;
        for (uint32_t i = 0; i < 4; i++)
            t8[16 * i + c] = (uint8_t)(units + 128);
    }
}

/* The outliers of panels that came from outside: columns within the row, and indices that are those
 * of these columns. */
static int outliers_hold(const struct tsr_cpu_weight *w)
{
    const struct tsr_cpu_extra *e = &w->extra;
    uint64_t                    n = e->outliers;
    for (uint64_t row = 0; n && row < w->rows; row++) {
        const uint32_t *column = e->column + row * n, *first = e->first + row * (SEGMENTS + 1);
        uint64_t        i = 0;
        for (uint64_t s = 0; s <= SEGMENTS; s++) {
            for (; s && i < n && column[i] < s * w->seg; i++)
                if (e->where[row * n + i] != s - 1 || column[i] >= w->cols ||
                    (i && column[i] <= column[i - 1]))
                    return 0;
            if (first[s] != i)
                return 0;
        }
        if (i != n)
            return 0;
    }
    for (uint64_t row = w->rows; n && row < w->panels * PANEL; row++) {
        for (uint64_t s = 0; s <= SEGMENTS; s++)
            if (e->first[row * (SEGMENTS + 1) + s] != 0)
                return 0;
        for (uint64_t i = row * n; i < (row + 1) * n; i++) /* read, times 0 */
            if (e->column[i] != 0 || e->where[i] != 0)
                return 0;
    }
    return 1;
}

/* As make() in weight.c. */
static tsr_status load_table(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                             uint64_t bytes, void **weight, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    struct tsr_cpu_weight *w = host->alloc(host->ctx, sizeof *w, 64);
    struct fill            f = { .w = w, .d = d };
    if (!w)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a weight");
    memset(w, 0, sizeof *w);
    tsr_status st = plan(w, d, &f.p) ? tsr_cpu_weight_data(c, d, w, cut_runs(w), data, bytes, err)
                                     : refuse(err, d, "it is larger than the address space");
    if (st != TSR_OK) {
        host->release(host->ctx, w, sizeof *w);
        return st;
    }
    (void)cut_runs(w);
    w->codes = w->data + f.p.codes;
    w->scales = w->data + f.p.scales;
    w->extra.table = (const float *)(void *)(w->data + f.p.table);
    w->extra.table8 = w->data + f.p.table8;
    w->extra.column = (const uint32_t *)(void *)(w->data + f.p.column);
    w->extra.value = (const float *)(void *)(w->data + f.p.value);
    w->extra.delta = (const float *)(void *)(w->data + f.p.delta);
    w->extra.first = (const uint32_t *)(void *)(w->data + f.p.first);
    w->extra.where = w->data + f.p.where;
    if (data && !outliers_hold(w)) {
        tsr_cpu_weight_free(c, w);
        return refuse(err, d, "its outliers are damaged");
    }
    if (!data) {
        c->mem->open(w->data, w->data_bytes);
        memset(w->data, 0, w->data_bytes); /* codes are or-ed in; padding */
        if (w->extra.shared)
            fill_shared(w, &f.p);
        st = tsr_cpu_for(c, w->panels, w->cols * PANEL * 2, fill_panels, &f);
        c->mem->close(w->data, w->data_bytes);
    }
    if (st != TSR_OK) {
        tsr_cpu_weight_free(c, w);
        return tsr_fail(err, st, "weight '%s': loading was stopped", d->name ? d->name : "?");
    }
    *weight = w;
    return TSR_OK;
}

/* True for MX elements that run as tessera.int/1. */
static int runs_as_integers(const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    if (strcmp(f->id, TSR_FORMAT_LUT) == 0)
        return 0;
    /* runs of looked-up nibbles must begin on four columns */
    if (f->element == TSR_MX_FP4_E2M1 && (tsr_format_groups(f, d->cols) == 1 || f->group % 4 == 0))
        return 0;
    return mx_largest(f->element) <= 127;
}

tsr_status tsr_cpu_extra_load(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                              uint64_t bytes, void **weight, struct tsr_err *err)
{
    tsr_status st = check(d, !data, err);
    if (st != TSR_OK)
        return st;
    if (!runs_as_integers(d))
        return load_table(c, d, data, bytes, weight, err);
    if (!data)
        return load_integers(c, d, weight, err);
    struct tsr_format      f = as_integers(d->format);
    struct tsr_weight_desc as = *d;
    as.struct_size = sizeof as;
    as.format = &f;
    return tsr_cpu_weight_over(c, &as, data, bytes, weight, err);
}

tsr_status tsr_cpu_extra_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                 struct tsr_err *err)
{
    struct place p;
    tsr_status   st = check(d, 0, err);
    if (st != TSR_OK)
        return st;
    if (runs_as_integers(d)) {
        struct tsr_format      f = as_integers(d->format);
        struct tsr_weight_desc as = *d;
        as.struct_size = sizeof as;
        as.format = &f;
        as.code_stride = tsr_format_int_code_bytes(&f, d->cols);
        as.meta_stride = tsr_format_int_meta_bytes(&f, d->cols);
        return tsr_cpu_weight_outline(&as, w, err);
    }
    if (!plan(w, d, &p))
        return refuse(err, d, "it is larger than the address space");
    w->nruns = cut_runs(w);
    return TSR_OK;
}

const char *tsr_cpu_extra_wrong(const struct tsr_format *f)
{
    if (!TSR_HAS(struct tsr_format, f, act8))
        return NULL;
    if (f->act8 != TSR_ACT8_LLM)
        return "act8 is not known";
    if (f->bits != 8 || f->group != 0 || f->zero != TSR_ZERO_MID)
        return "LLM.int8 is for 8 bits, group 0 and an implicit zero point";
    return isfinite(f->act8_threshold) && f->act8_threshold >= 0
               ? NULL
               : "LLM.int8's threshold must be 0 or a positive number";
}

void tsr_cpu_extra_int(struct tsr_cpu_weight *w, const struct tsr_format *f)
{
    if (strcmp(f->id, TSR_FORMAT_INT) != 0 || !TSR_HAS(struct tsr_format, f, act8))
        return;
    w->extra.llm = 1;
    w->extra.threshold = (float)f->act8_threshold;
}

void tsr_cpu_extra_row(const struct tsr_cpu_weight *w, uint64_t row, float *out)
{
    const struct tsr_cpu_extra *e = &w->extra;
    for (uint64_t k = 0; k < w->cols; k++) {
        uint32_t code = code_get(w, row, k);
        if (w->layout == W_TAB && !e->shared) {
            out[k] = e->table[row * e->entries + code];
            continue;
        }
        uint64_t at = (row / PANEL * w->groups + k / w->group) * PANEL + row % PANEL;
        uint16_t h;
        float    scale;
        memcpy(&h, w->scales + 2 * at, 2);
        uint32_t u = (uint32_t)h << 16;
        memcpy(&scale, &u, 4);
        out[k] = (e->shared ? e->table[code]
                            : fpx_value(e->ebits, e->mbits, code >> (7 - e->ebits - e->mbits))) *
                 scale;
    }
    for (uint64_t i = 0; i < e->outliers; i++)
        out[e->column[row * e->outliers + i]] = e->value[row * e->outliers + i];
}
