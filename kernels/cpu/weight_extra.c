/* weight_extra.c - converts tessera.lut/1, tessera.mx/1 and tessera.fp8/1 to the kernels' layouts (extra.h). */
#include "weight_extra.h"

#include "../weight/weight.h"
#include "tessera/f16.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

int tsr_cpu_extra_takes(const struct tsr_weight_desc *d)
{
    const struct tsr_format *f = d->format;
    return f && f->id &&
           (strcmp(f->id, TSR_FORMAT_LUT) == 0 || strcmp(f->id, TSR_FORMAT_MX) == 0 ||
            strcmp(f->id, TSR_FORMAT_FP8) == 0);
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
    uint64_t codes, scales, unit, table, table8, column, value, delta, first, where;
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
    w->aligned = w->groups == 1 || w->group % (w->layout == W_FPX ? 4 : TABLE_STEP) == 0;
    uint64_t rows = w->panels * PANEL, total = 0;
    if (w->layout == W_FPX) {
        e->ebits = f->element >> 8;
        e->mbits = f->element & 255;
        e->digits = tsr_element_digits(f->element, 8);
        e->stored = strcmp(f->id, TSR_FORMAT_FP8) == 0 && f->scale_dtype == TSR_F32;
        w->panel_bytes = cpu_ceil(w->cols, 4) * 4 * PANEL;
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
        !take(&total, rows * (lut || e->stored ? 4u : 2u), w->groups, &p->scales) ||
        !take(&total, tab ? 0 : rows, 4, &p->unit) ||
        !take(&total, tab ? tables : 0, e->entries * 4, &p->table) ||
        !take(&total, !tab ? e->digits : (e->shared ? 4 : rows), tab ? e->entries : 128,
              &p->table8) ||
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
    const struct tsr_cpu_weight  *w;
    const struct tsr_weight_desc *d;
    struct place                  p;
};

static uint8_t *code_place(const struct tsr_cpu_weight *w, uint64_t row, uint64_t k)
{
    uint64_t r = row % PANEL;
    uint8_t *p = w->codes + row / PANEL * w->panel_bytes;
    if (w->layout == W_FPX)
        return p + k / 4 * 4 * PANEL + r / 16 * 64 + r % 16 * 4 + k % 4;
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

/* Table, outliers and codes of one row of lut. */
static void fill_lut_row(const struct fill *a, uint64_t row)
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_extra  *e = &w->extra;
    const struct tsr_format     *f = a->d->format;
    const uint8_t               *meta = (const uint8_t *)a->d->meta + row * a->d->meta_stride;
    const uint8_t               *codes = (const uint8_t *)a->d->codes + row * a->d->code_stride;
    uint64_t                     n = UINT64_C(1) << f->bits, r = row % PANEL;
    float                       *table = (float *)(void *)(w->data + a->p.table) + row * e->entries;
    int8_t                       t[256] = { 0 };
    for (uint64_t i = 0; i < n; i++)
        table[i] = tsr_weight_entry(f, meta, i);
    float sw = tsr_weight_round_table(table, n, t);
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
        code_set(w, row, k, tsr_weight_code(codes, k, f->bits));
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
            value[i] = tsr_weight_entry(f, meta, n + i);
            delta[i] = value[i] - (float)t[zero] * sw;
            code_set(w, row, column[i], zero);
            w->data[a->p.where + row * e->outliers + i] = (uint8_t)(s - 1);
        }
        first[s] = i;
    }
}

static void fill_mx_row(const struct fill *a, uint64_t row)
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_extra  *e = &w->extra;
    const struct tsr_format     *f = a->d->format;
    const uint8_t               *scales = (const uint8_t *)a->d->meta + row * a->d->meta_stride;
    const uint8_t               *codes = (const uint8_t *)a->d->codes + row * a->d->code_stride;
    int                          unit = w->layout == W_TAB ? tsr_element_unit(f->element) : 0;
    uint32_t                     up = w->layout == W_FPX ? 8 - f->bits : 0; /* the sign on top */
    int                          finite = 1;
    for (uint64_t k = 0; k < w->cols; k++) {
        uint32_t code = tsr_weight_code(codes, k, f->bits);
        finite &= tsr_element_finite(f->element, code & ((1u << (f->bits - 1)) - 1u));
        code_set(w, row, k, code << up);
    }
    if (w->layout == W_FPX) {
        float one = finite ? ldexpf(1.0f, -tsr_element_unit(f->element)) : NAN;
        memcpy(w->data + a->p.unit + 4 * row, &one, 4);
    }
    for (uint64_t g = 0; g < w->groups; g++) {
        uint64_t at = (row / PANEL * w->groups + g) * PANEL + row % PANEL;
        if (strcmp(f->id, TSR_FORMAT_FP8) == 0) { /* as they are */
            uint64_t size = e->stored ? 4 : 2;
            memcpy(w->scales + at * size, scales + g * size, size);
            continue;
        }
        float    s = tsr_element_scale(f, scales[g], unit);
        uint32_t u;
        memcpy(&u, &s, 4);
        uint16_t h = (uint16_t)(u >> 16); /* BF16 holds 2^-133 and more exactly, and NaN */
        memcpy(w->scales + 2 * at, &h, 2);
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
static void fill_shared(const struct tsr_cpu_weight *w, const struct place *p)
{
    float   *table = (float *)(void *)(w->data + p->table);
    uint8_t *t8 = w->data + p->table8;
    for (uint32_t c = 0; c < 16; c++) {
        int32_t units = (int32_t)tsr_element_units(TSR_MX_FP4_E2M1, c & 7);
        units = c & 8 ? -units : units;
        table[c] = (float)units;
        for (uint32_t i = 0; i < 4; i++)
            t8[16 * i + c] = (uint8_t)(units + 128);
    }
}

/* The digits of small floats. */
static void fill_digits(const struct tsr_cpu_weight *w, const struct place *p)
{
    const struct tsr_cpu_extra *e = &w->extra;
    uint32_t                    n = 1u << (e->ebits + e->mbits), element;
    element = TSR_MX_ELEMENT(e->ebits, e->mbits);
    for (uint32_t m = 0; m < n; m++)
        for (uint32_t i = 0; i < e->digits && tsr_element_finite(element, m); i++)
            w->data[p->table8 + 128 * i + m * (128 / n)] =
                (uint8_t)(tsr_element_units(element, m) >> 8 * i);
}

tsr_status tsr_cpu_extra_fill(const struct tsr_cpu_weight *w)
{
    struct tsr_cpu_weight again = { 0 };
    struct fill           f = { .w = w, .d = cpu_loaded(w)->from };
    (void)plan(&again, cpu_loaded(w)->from, &f.p); /* as it was when w was made */
    memset(w->data, 0, w->data_bytes);             /* codes are or-ed in; padding */
    if (w->extra.shared)
        fill_shared(w, &f.p);
    if (w->layout == W_FPX)
        fill_digits(w, &f.p);
    return tsr_cpu_for(cpu_of(w), w->panels, w->cols * PANEL * 2, fill_panels, &f);
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
    struct tsr_cpu_weight *w = tsr_cpu_weight_new(c, err);
    struct place           p = { 0 };
    if (!w)
        return TSR_E_NOMEM;
    tsr_status st = plan(w, d, &p)
                        ? tsr_cpu_weight_data(c, d, w, cut_runs(w), data, bytes, err)
                        : tsr_weight_refuse(err, d, "it is larger than the address space");
    if (st != TSR_OK) {
        host->release(host->ctx, w, sizeof(struct tsr_cpu_loaded));
        return st;
    }
    (void)cut_runs(w);
    w->codes = w->data + p.codes;
    w->scales = w->data + p.scales;
    w->extra.unit = (const float *)(void *)(w->data + p.unit);
    w->extra.table = (const float *)(void *)(w->data + p.table);
    w->extra.table8 = w->data + p.table8;
    w->extra.column = (const uint32_t *)(void *)(w->data + p.column);
    w->extra.value = (const float *)(void *)(w->data + p.value);
    w->extra.delta = (const float *)(void *)(w->data + p.delta);
    w->extra.first = (const uint32_t *)(void *)(w->data + p.first);
    w->extra.where = w->data + p.where;
    if (data && !outliers_hold(w)) {
        tsr_cpu_weight_free(c, w);
        return tsr_weight_refuse(err, d, "its outliers are damaged");
    }
    if (!data && (st = tsr_cpu_weight_fill(c, d, w, err)) != TSR_OK)
        return st;
    *weight = w;
    return TSR_OK;
}

tsr_status tsr_cpu_extra_load(struct tsr_cpu *c, const struct tsr_weight_desc *d, const void *data,
                              uint64_t bytes, void **weight, struct tsr_err *err)
{
    return tsr_cpu_is_integers(d) ? tsr_cpu_integers_load(c, d, data, bytes, weight, err)
                                  : load_table(c, d, data, bytes, weight, err);
}

tsr_status tsr_cpu_extra_outline(const struct tsr_weight_desc *d, struct tsr_cpu_weight *w,
                                 struct tsr_err *err)
{
    struct place p;
    if (tsr_cpu_is_integers(d))
        return tsr_cpu_integers_outline(d, w, err);
    if (!plan(w, d, &p))
        return tsr_weight_refuse(err, d, "it is larger than the address space");
    w->nruns = cut_runs(w);
    return TSR_OK;
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
        scale = tsr_bf16_f32(h);
        if (e->stored)
            memcpy(&scale, w->scales + 4 * at, 4);
        out[k] = (e->shared ? e->table[code]
                            : tsr_element_value(TSR_MX_ELEMENT(e->ebits, e->mbits),
                                                code >> (7 - e->ebits - e->mbits))) *
                 scale;
    }
    for (uint64_t i = 0; i < e->outliers; i++)
        out[e->column[row * e->outliers + i]] = e->value[row * e->outliers + i];
}
