/* Rows of a matrix in the type that was chosen: taken over, rounded, or fitted on the host's threads. */
#include "checkpoint/export/gguf_out.h"

#include "base/mem.h"
#include "checkpoint/export/gguf_super.h"
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>

#define TOGETHER 64u /* rows that are fitted before they are written */
#define GRAIN    4u

struct rows {
    struct tsr_export                   *x;
    const struct tsr_export_module      *m;
    const struct tsr_export_gguf_entry  *e;
    const struct tsr_export_gguf_levels *levels;
    struct tsr_export_gguf_inputs        in;
    float                               *row; /* and room for another one */
    unsigned char                       *lines;
    uint64_t                             bytes, first, bad; /* bad: a row that does not fit */
};

uint64_t tsr_export_gguf_row_of(const struct tsr_export_gguf_entry *e, uint64_t rows, uint64_t r)
{
    return e->map.columns ? r : tsr_gguf_row_back(&e->map, rows, r);
}

static void take_row(const struct rows *w, uint64_t row)
{
    struct tsr_export_gguf_super s;
    const uint64_t               cols = w->m->v->cols;
    const unsigned               elements = tsr_export_gguf_elements(w->e->type);
    const uint64_t               each = tsr_export_gguf_row_bytes(w->e->type, elements);
    if (!tsr_export_gguf_is_super_type(w->e->type, w->m))
        tsr_export_gguf_repack_row(w->e->type, w->m, row, w->lines);
    else
        for (uint64_t b = 0; b < cols / elements; b++) {
            tsr_export_gguf_take_super(w->levels, w->m, row, b, &s);
            tsr_export_gguf_put_super(w->levels, &s, w->lines + b * each);
        }
    if (w->e->map.columns && !w->e->turned)
        tsr_export_gguf_turn_columns(&w->e->map, cols, w->lines, w->row, elements, each);
}

static tsr_status round_row(const struct rows *w, uint64_t row)
{
    const uint64_t cols = w->m->v->cols;
    tsr_export_module_row(w->m, row, w->row);
    if (w->e->map.columns)
        tsr_export_gguf_turn_columns(&w->e->map, cols, w->row, w->row + cols, 1, sizeof *w->row);
    if (tsr_export_gguf_is_float(w->e->type))
        return tsr_export_gguf_put_floats(w->x, w->e->name, w->e->type, row, w->row, cols,
                                          w->lines);
    return tsr_export_gguf_quantize_row(w->e->type, w->row, cols, w->lines)
               ? TSR_OK
               : tsr_export_gguf_not_held(w->x, w->e->name, row);
}

/* ---- fitted ---------------------------------------------------------------------------------- */

static bool fit_one(const struct rows *w, uint64_t r, float *room, struct tsr_export_gguf_super *s)
{
    const struct tsr_model_stored_view *v = w->m->v;
    const uint64_t                      cols = v->cols;
    uint64_t                            row = tsr_export_gguf_row_of(w->e, v->rows, w->first + r);
    tsr_export_module_row(w->m, row, room);
    if (w->e->map.columns)
        tsr_export_gguf_turn_columns(&w->e->map, cols, room, room + cols, 1, sizeof *room);
    if (!tsr_export_gguf_fit_row(w->levels, room, w->in.square, cols, s))
        return false;
    if (w->in.hessian)
        tsr_export_gguf_descend_row(w->levels, room, &w->in, cols, s, room + cols);
    unsigned char *line = w->lines + r * w->bytes;
    for (uint64_t b = 0; b < cols / w->levels->elements; b++)
        tsr_export_gguf_put_super(w->levels, &s[b],
                                  line + b * tsr_export_gguf_row_bytes(w->e->type,
                                                                       w->levels->elements));
    return true;
}

static tsr_status fit_some(void *arg, uint64_t begin, uint64_t end)
{
    struct rows                  *w = arg;
    const uint64_t                cols = w->m->v->cols;
    float                        *room = tsr_new(cols, 4 * sizeof *room);
    struct tsr_export_gguf_super *s = tsr_new(cols / w->levels->elements, sizeof *s);
    tsr_status                    st = room && s ? TSR_OK : TSR_E_NOMEM;
    for (uint64_t r = begin; st == TSR_OK && r < end; r++) {
        if (!fit_one(w, r, room, s)) {
            __atomic_store_n(&w->bad, w->first + r, __ATOMIC_RELAXED);
            st = TSR_E_INPUT;
        }
    }
    free(room);
    free(s);
    return st;
}

/* The rows of one piece of a stack, or all: they share their inputs. */
static tsr_status fit_piece(struct rows *w, uint64_t first, uint64_t end, struct tsr_writer *to)
{
    struct tsr_pool *pool =
        w->x->opt->registry ? tsr_plugin_registry_pool(w->x->opt->registry) : NULL;
    for (w->first = first; w->first < end; w->first += TOGETHER) {
        uint64_t   n = end - w->first < TOGETHER ? end - w->first : TOGETHER;
        tsr_status st = tsr_pool_for(pool, n, GRAIN, fit_some, w);
        if (st == TSR_E_NOMEM)
            return tsr_fail_nomem(w->x->err, w->m->v->cols * 16, w->e->name);
        if (st != TSR_OK)
            return tsr_export_gguf_not_held(w->x, w->e->name, w->bad);
        tsr_writer_put(to, w->lines, n * w->bytes);
    }
    return TSR_OK;
}

static tsr_status fit_rows(struct rows *w, struct tsr_writer *to)
{
    const struct tsr_model_stored_view *v = w->m->v;
    uint64_t                            pieces = v->stack ? v->stack : 1;
    float                              *square = tsr_new(v->cols, 2 * sizeof *square);
    tsr_status st = square ? TSR_OK : tsr_fail_nomem(w->x->err, v->cols * 8, w->e->name);
    for (uint64_t i = 0; i < pieces && st == TSR_OK; i++) {
        st = tsr_export_gguf_inputs_of(w->x, v, w->e->name, i, square, &w->in);
        if (st == TSR_OK && w->e->map.columns && w->in.square) {
            tsr_export_gguf_turn_columns(&w->e->map, v->cols, square, square + v->cols, 1,
                                         sizeof *square);
            w->in.hessian = NULL; /* of columns in the model's order */
        }
        if (st == TSR_OK)
            st = fit_piece(w, v->rows / pieces * i, v->rows / pieces * (i + 1), to);
    }
    free(square);
    return st;
}

/* ---- all -------------------------------------------------------------------------------------- */

static void count(const struct rows *w)
{
    struct tsr_export_report *r = w->x->report;
    bool                      packed = w->m->form != TSR_EXPORT_FORM_DENSE,
         blocks = !tsr_export_gguf_is_float(w->e->type);
    r->packed += w->e->exact;
    r->widened += packed && !blocks;
    r->requantized += packed && blocks && !w->e->exact;
    r->quantized += !packed && blocks && !w->e->exact;
}

tsr_status tsr_export_gguf_put_rows(struct tsr_export *x, struct tsr_writer *to,
                                    const struct tsr_export_module     *m,
                                    const struct tsr_export_gguf_entry *e)
{
    const struct tsr_model_stored_view *v = m->v;
    struct rows                         w = { .x = x,
                                              .m = m,
                                              .e = e,
                                              .levels = tsr_export_gguf_levels(e->type),
                                              .bytes = tsr_export_gguf_row_bytes(e->type, v->cols) };
    bool                                fitted = e->fit && !e->exact;
    w.row = tsr_new(v->cols, 2 * sizeof *w.row);
    w.lines = tsr_new(w.bytes, fitted ? TOGETHER : 1);
    tsr_status st = w.row && w.lines ? TSR_OK : tsr_fail_nomem(x->err, w.bytes * TOGETHER, e->name);
    if (st == TSR_OK && fitted)
        st = fit_rows(&w, to);
    for (uint64_t r = 0; st == TSR_OK && !fitted && r < v->rows; r++) {
        uint64_t row = tsr_export_gguf_row_of(e, v->rows, r);
        if (e->exact)
            take_row(&w, row);
        else
            st = round_row(&w, row);
        if (st == TSR_OK)
            tsr_writer_put(to, w.lines, w.bytes);
    }
    free(w.row);
    free(w.lines);
    count(&w);
    return st;
}
