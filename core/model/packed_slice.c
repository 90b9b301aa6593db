/* Parts of matrices: valid column splits, and the bytes of a part of packed weights. */
#include "model/packed_slice.h"

#include "base/f16.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U(x)       ((unsigned long long)(x))
#define WIDEST     8u /* segments, and so ranks */
#define WIDTHS_CAP 32

/* ---- where ------------------------------------------------------------------ */

struct tsr_model_cut tsr_model_cut_of(const struct tsr_matrix *m, const struct tsr_model_packed *p)
{
    struct tsr_model_cut c = { .name = m->name, .rows = m->rows, .cols = m->cols };
    if (p) {
        c.rows = p->rows;
        c.cols = p->cols;
        c.format = tsr_model_format_known(&p->format) ? &p->format : NULL;
        c.ordered = p->ordered;
    }
    return c;
}

static bool is(const struct tsr_format *f, const char *id)
{
    return f && strcmp(f->id, id) == 0;
}

/* Groups are in records of 256 columns: TSR_AFFINE_SUPER, TSR_TABLE_SUPER. */
static bool has_records(const struct tsr_format *f)
{
    return (is(f, TSR_FORMAT_AFFINE) && f->scale_bits) ||
           (is(f, TSR_FORMAT_TABLE) && f->scale_bits && !f->element);
}

static uint64_t record_bytes(const struct tsr_format *f)
{
    return is(f, TSR_FORMAT_TABLE) ? tsr_format_table_record_bytes(f)
                                   : tsr_format_affine_record_bytes(f);
}

/* Columns that share a scale; 0: a cut may fall anywhere. */
static uint64_t group_of(const struct tsr_model_cut *c)
{
    bool grouped = is(c->format, TSR_FORMAT_INT) || is(c->format, TSR_FORMAT_AFFINE) ||
                   is(c->format, TSR_FORMAT_TABLE) || is(c->format, TSR_FORMAT_MX) ||
                   is(c->format, TSR_FORMAT_FP8);
    if (!grouped || c->format->group >= c->cols)
        return 0;
    return has_records(c->format) ? TSR_AFFINE_SUPER : c->format->group;
}

/* Why it cannot be split by columns, or NULL. */
static const char *never(const struct tsr_model_cut *c)
{
    if (c->ordered)
        return "its columns are in a permuted order (act-order)";
    if (is(c->format, TSR_FORMAT_INT) && c->format->act8 == TSR_ACT8_LLM)
        return "LLM.int8 has one activation scale for all columns";
    if (is(c->format, TSR_FORMAT_LUT) && c->format->outliers)
        return "its rows keep outliers next to the codes";
    return NULL;
}

/* What is wrong with `ranks` ranks, or an empty text. */
static void why_not(const struct tsr_model_cut *c, uint32_t ranks, char *why, size_t cap)
{
    uint64_t per = 0, group = group_of(c), segment = tsr_segment_columns(c->cols);
    *why = '\0';
    if (ranks == 1)
        return;
    if (ranks == 0 || ranks > WIDEST || (ranks & (ranks - 1)) != 0) {
        (void)snprintf(why, cap, "a group has 1, 2, 4 or 8 ranks");
        return;
    }
    if (never(c)) {
        (void)snprintf(why, cap, "%s", never(c));
        return;
    }
    per = WIDEST / ranks * segment;
    for (uint64_t r = 1; r < ranks; r++) {
        uint64_t at = r * per;
        if (at >= c->cols)
            (void)snprintf(why, cap,
                           "its %llu columns are %llu segments of %llu, rank %llu has none",
                           U(c->cols), U((c->cols + segment - 1) / segment), U(segment), U(r));
        else if (group && at % group)
            (void)snprintf(why, cap, "column %llu lies inside a group of %llu that shares a scale",
                           U(at), U(group));
        else if (c->unit && at % c->unit)
            (void)snprintf(why, cap,
                           "column %llu lies inside heads of %llu columns that stay together",
                           U(at), U(c->unit));
        else
            continue;
        return;
    }
}

bool tsr_model_slice_allowed(const struct tsr_model_cut *c, uint32_t ranks)
{
    char why[192];
    why_not(c, ranks, why, sizeof why);
    return why[0] == '\0';
}

/* "1 and 2": the widths that work. */
static void list_widths(const struct tsr_model_cut *c, char text[WIDTHS_CAP])
{
    uint32_t works[4], n = 0;
    size_t   at = 0;
    for (uint32_t ranks = 1; ranks <= WIDEST; ranks *= 2)
        if (tsr_model_slice_allowed(c, ranks))
            works[n++] = ranks;
    text[0] = '\0';
    for (uint32_t i = 0; i < n && at < WIDTHS_CAP; i++)
        at += (size_t)snprintf(text + at, WIDTHS_CAP - at, "%s%u",
                               i == 0       ? ""
                               : i + 1 == n ? " and "
                                            : ", ",
                               works[i]);
}

tsr_status tsr_model_slice_columns(const struct tsr_model_cut *c, uint32_t rank, uint32_t ranks,
                                   struct tsr_model_slice *s, struct tsr_err *err)
{
    char why[192], widths[WIDTHS_CAP];
    why_not(c, ranks, why, sizeof why);
    if (why[0]) {
        list_widths(c, widths);
        return tsr_fail(err, TSR_E_CONFIG,
                        "tensor '%s': cannot be cut for %u ranks: %s; %s would do",
                        c->name ? c->name : "?", ranks, why, widths);
    }
    if (rank >= ranks)
        return tsr_fail(err, TSR_E_BUG, "rank %u of %u", rank, ranks);
    *s = (struct tsr_model_slice){ .rows = c->rows, .cols = c->cols };
    if (ranks == 1)
        return TSR_OK;
    uint64_t per = WIDEST / ranks * tsr_segment_columns(c->cols);
    s->segment = tsr_segment_columns(c->cols);
    s->col = rank * per;
    s->cols = c->cols - s->col < per ? c->cols - s->col : per;
    return TSR_OK;
}

/* The least number of columns that a cut keeps together. */
static uint64_t unit_of(const struct tsr_model_cut *c, uint32_t ranks)
{
    uint64_t group = group_of(c), unit = 32;
    if (!c->format && c->cols / 32 < ranks)
        return 1;
    while (group && unit % group) /* ends: their product is a multiple of both */
        unit += 32;
    return unit;
}

tsr_status tsr_model_slice_share(const struct tsr_model_cut *c, uint32_t rank, uint32_t ranks,
                                 struct tsr_model_slice *s, struct tsr_err *err)
{
    struct tsr_model_cut any = *c;
    any.unit = 0;
    if (ranks && tsr_model_slice_allowed(&any, ranks))
        return tsr_model_slice_columns(&any, rank, ranks, s, err);
    if (never(c))
        return tsr_fail(err, TSR_E_CONFIG, "tensor '%s': cannot be cut for %u ranks: %s",
                        c->name ? c->name : "?", ranks, never(c));
    uint64_t unit = unit_of(c, ranks), units = (c->cols + unit - 1) / unit;
    if (ranks == 0 || ranks > 64 || units < ranks)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "tensor '%s': cannot be cut for %u ranks: its %llu columns are %llu parts of "
            "%llu that stay together",
            c->name ? c->name : "?", ranks, U(c->cols), U(units), U(unit));
    uint64_t end = units * (rank + 1) / ranks * unit;
    *s = (struct tsr_model_slice){ .rows = c->rows, .col = units * rank / ranks * unit };
    s->cols = (end < c->cols ? end : c->cols) - s->col;
    s->segment = tsr_segment_columns(s->cols);
    return TSR_OK;
}

struct tsr_model_slice tsr_model_slice_rows(const struct tsr_model_cut *c, uint64_t first,
                                            uint64_t rows)
{
    return (struct tsr_model_slice){ .row = first, .rows = rows, .cols = c->cols };
}

/* ---- the bytes --------------------------------------------------------------- */

struct tsr_matrix tsr_model_matrix_slice(const struct tsr_matrix      *m,
                                         const struct tsr_model_slice *s)
{
    struct tsr_matrix part = *m;
    if (m->data)
        part.data =
            (unsigned char *)m->data + s->row * m->row_stride + s->col * tsr_dtype_size(m->dtype);
    part.rows = s->rows;
    part.cols = s->cols;
    return part;
}

/* A row's groups from `first` on: `size` bytes each at from, then at to. */
static void copy_groups(unsigned char *to, const unsigned char *from, uint64_t first, uint64_t n,
                        uint64_t size)
{
    memcpy(to, from + first * size, n * size);
}

static void cut_meta(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                     const unsigned char *from, unsigned char *to)
{
    const struct tsr_format *f = &p->format;
    uint64_t whole = tsr_format_groups(f, p->cols), n = tsr_format_groups(f, s->cols);
    uint64_t first = whole == 1 ? 0 : s->col / f->group;
    if (is(f, TSR_FORMAT_INT)) {
        uint64_t size = tsr_dtype_size(f->scale_dtype);
        copy_groups(to, from, first, n, size);
        if (f->zero == TSR_ZERO_STORED)
            copy_groups(to + n * size, from + whole * size, first, n, 1);
    } else if (has_records(f)) {
        uint64_t records = (s->cols + TSR_AFFINE_SUPER - 1) / TSR_AFFINE_SUPER;
        copy_groups(to, from, s->col / TSR_AFFINE_SUPER, records, record_bytes(f));
    } else if (is(f, TSR_FORMAT_AFFINE)) {
        uint64_t size = tsr_dtype_size(f->scale_dtype);
        copy_groups(to, from, first, n, size);
        copy_groups(to + n * size, from + whole * size, first, n, size);
    } else if (is(f, TSR_FORMAT_TABLE) && f->element) {
        memcpy(to, from, 4);
        copy_groups(to + 4, from + 4, first, n, 1);
    } else if (is(f, TSR_FORMAT_TABLE) || is(f, TSR_FORMAT_FP8)) {
        copy_groups(to, from, first, n, tsr_dtype_size(f->scale_dtype));
    } else if (is(f, TSR_FORMAT_MX)) {
        copy_groups(to, from, first, n, 1);
    } else {
        memcpy(to, from, tsr_model_format_meta_bytes(f, s->cols)); /* a table is the row's */
    }
}

static void cut_rows(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                     struct tsr_model_packed *q)
{
    const struct tsr_format *f = &p->format;
    uint64_t bits = is(f, TSR_FORMAT_FLOAT) ? 8 * tsr_dtype_size(f->dtype) : f->bits;
    unsigned tail = (unsigned)(s->cols * bits % 8);
    for (uint64_t r = 0; r < s->rows; r++) {
        unsigned char *codes = (unsigned char *)q->codes + r * q->code_stride;
        memcpy(codes,
               (const unsigned char *)p->codes + (s->row + r) * p->code_stride + s->col * bits / 8,
               q->code_stride);
        if (tail)
            codes[q->code_stride - 1] &= (unsigned char)((1u << tail) - 1u);
        if (q->meta_stride)
            cut_meta(p, s, (const unsigned char *)p->meta + (s->row + r) * p->meta_stride,
                     (unsigned char *)q->meta + r * q->meta_stride);
    }
}

static void *copy_of(const void *bytes, uint64_t at, uint64_t n, uint64_t size)
{
    void *to = tsr_new_aligned(n, size);
    if (to && size)
        memcpy(to, (const unsigned char *)bytes + at * size, n * size);
    return to;
}

/* Fills q->own and copies the units of s's rows; false: no memory. */
static bool own_units(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                      struct tsr_model_packed *q)
{
    uint64_t from = p->own.skip + s->row, unit = from / p->own.unit;
    q->own.units = (from + s->rows - 1) / p->own.unit + 1 - unit;
    q->own.first += unit * p->own.unit;
    q->own.skip = from % p->own.unit;
    q->own.col += s->col;
    q->codes = copy_of(p->codes, unit, q->own.units, p->own.code_bytes);
    q->meta = p->own.meta_bytes ? copy_of(p->meta, unit, q->own.units, p->own.meta_bytes) : NULL;
    return q->codes && (q->meta || !p->own.meta_bytes);
}

/* Memory of the part; false when there is none. */
static bool reserve(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                    struct tsr_model_packed *q)
{
    uint64_t n;
    if (p->own.unit)
        return own_units(p, s, q);
    if (p->dense)
        return tsr_mul(s->rows, s->cols, &n) && (q->dense = tsr_new_aligned(n, sizeof *q->dense));
    q->code_stride = tsr_model_format_code_bytes(&p->format, s->cols);
    q->meta_stride = tsr_model_format_meta_bytes(&p->format, s->cols);
    return (q->codes = tsr_new_aligned(s->rows, q->code_stride)) &&
           (q->meta_stride == 0 || (q->meta = tsr_new(s->rows, q->meta_stride)));
}

static tsr_status check(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                        struct tsr_err *err)
{
    bool columns = s->col != 0 || s->cols != p->cols, known = tsr_model_format_known(&p->format);
    struct tsr_model_cut c = { .cols = p->cols,
                               .format = known ? &p->format : NULL,
                               .ordered = p->ordered };
    uint64_t             group = group_of(&c);
    if (s->rows == 0 || s->row > p->rows || s->rows > p->rows - s->row || s->cols == 0 ||
        s->col > p->cols || s->cols > p->cols - s->col ||
        (columns &&
         (never(&c) || s->segment == 0 || (known && s->col % 32) || (group && s->col % group))) ||
        (!known && !p->dense && !p->own.unit) || (p->own.unit && !p->codes))
        return tsr_fail(err, TSR_E_BUG,
                        "%llu x %llu from %llu, %llu of packed weights of %llu x %llu", U(s->rows),
                        U(s->cols), U(s->row), U(s->col), U(p->rows), U(p->cols));
    return TSR_OK;
}

tsr_status tsr_model_packed_slice(const struct tsr_model_packed *p, const struct tsr_model_slice *s,
                                  struct tsr_model_packed **out, struct tsr_err *err)
{
    TSR_TRY(check(p, s, err));
    struct tsr_model_packed *q = tsr_new(1, sizeof *q);
    if (!q)
        return tsr_fail_nomem(err, sizeof *q, "packed weights");
    *q = *p;
    q->codes = q->meta = NULL;
    q->dense = NULL;
    q->order = NULL;
    q->rows = s->rows;
    q->cols = s->cols;
    q->segment = s->segment;
    q->code_stride = q->meta_stride = 0;
    q->own.use = p->own.use ? tsr_strdup(p->own.use) : NULL;
    q->plugin = p->plugin ? tsr_strdup(p->plugin) : NULL;
    q->format_id = tsr_strdup(p->format.id);
    q->format.id = q->format_id;
    bool there = (q->plugin || !p->plugin) && q->format_id && (q->own.use || !p->own.use) &&
                 reserve(p, s, q);
    if (there && p->order)
        there = (q->order = tsr_new(p->cols, sizeof *q->order)) != NULL;
    if (!there) {
        tsr_model_packed_destroy(q);
        return tsr_fail_nomem(err, s->rows * tsr_model_format_code_bytes(&p->format, s->cols),
                              "a rank's part of packed weights");
    }
    if (p->order)
        memcpy(q->order, p->order, p->cols * sizeof *q->order);
    if (q->dense)
        for (uint64_t r = 0; r < s->rows; r++)
            memcpy(q->dense + r * s->cols, p->dense + (s->row + r) * p->cols + s->col,
                   s->cols * sizeof *q->dense);
    else if (!p->own.unit)
        cut_rows(p, s, q);
    *out = q;
    return TSR_OK;
}
