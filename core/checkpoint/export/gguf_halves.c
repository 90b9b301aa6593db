/* kv_b of latent attention as llama.cpp multiplies with it: attn_k_b has the rows of each head's keys transposed,
 * [head][rank][nope], for queries; attn_v_b the rows of its values, [head][v][rank].  Blocks of attn_k_b would lie
 * across the rows of kv_b, so both are floats: those of the model, or F32 for a matrix that is packed. */
#include "checkpoint/export/gguf_out.h"

#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/gguf/gguf.h"

#include <stdlib.h>

bool tsr_export_gguf_is_halves(const struct tsr_model_stored_view *v)
{
    return v->kind == TSR_MODEL_STORED_LINEAR && v->role->part == TSR_MODEL_PART_LINEAR &&
           v->role->lin == TSR_MODEL_KV_B;
}

tsr_status tsr_export_gguf_half_name(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                     bool keys, char name[64])
{
    const char *pattern = keys ? TSR_GGUF_KEYS_OF_ROW : TSR_GGUF_VALUES_OF_ROW;
    return tsr_model_tensor_name(name, 64, "", pattern, v->layer, ".weight")
               ? TSR_OK
               : tsr_fail(x->err, TSR_E_BUG, "tensor name too long");
}

struct half {
    struct tsr_export *x;
    struct tsr_writer *w;
    const char        *name;
    uint32_t           type;
    float             *rows;   /* of one head */
    float             *column; /* of these rows */
    unsigned char     *line;
};

static tsr_status put(const struct half *h, uint64_t row, const float *v, uint64_t n)
{
    TSR_TRY(tsr_export_gguf_put_floats(h->x, h->name, h->type, row, v, n, h->line));
    tsr_writer_put(h->w, h->line, tsr_export_gguf_row_bytes(h->type, n));
    return TSR_OK;
}

/* n rows of a head from row `first` of the matrix on. */
static tsr_status put_head(const struct half *h, const struct tsr_export_module *m, uint64_t first,
                           uint64_t n, bool transposed)
{
    uint64_t cols = m->v->cols;
    for (uint64_t i = 0; i < n; i++)
        tsr_export_module_row(m, first + i, h->rows + i * cols);
    for (uint64_t i = 0; i < n && !transposed; i++)
        TSR_TRY(put(h, first + i, h->rows + i * cols, cols));
    for (uint64_t c = 0; c < cols && transposed; c++) {
        for (uint64_t i = 0; i < n; i++)
            h->column[i] = h->rows[i * cols + c];
        TSR_TRY(put(h, first, h->column, n));
    }
    return TSR_OK;
}

tsr_status tsr_export_gguf_put_half(struct tsr_export *x, struct tsr_writer *w,
                                    const struct tsr_export_module *m, bool keys, const char *name,
                                    uint32_t type)
{
    const struct tsr_model_latent *l = &x->m->hp.latent;
    uint64_t                       n = keys ? l->nope : l->v, cols = m->v->cols;
    struct half                    h = { .x = x,
                                         .w = w,
                                         .name = name,
                                         .type = type,
                                         .rows = tsr_new(n * cols, sizeof *h.rows),
                                         .column = tsr_new(n, sizeof *h.column),
                                         .line = tsr_new(n > cols ? n : cols, sizeof(float)) };
    tsr_status                     st = h.rows && h.column && h.line
                                            ? TSR_OK
                                            : tsr_fail_nomem(x->err, n * cols * sizeof *h.rows, name);
    for (uint64_t head = 0; head < x->m->hp.heads && st == TSR_OK; head++)
        st = put_head(&h, m, head * ((uint64_t)l->nope + l->v) + (keys ? 0 : l->nope), n, keys);
    free(h.rows);
    free(h.column);
    free(h.line);
    return st;
}
