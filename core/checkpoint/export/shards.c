/* The tensors of an export as safetensors files: one pass says what there will be, the second
 * writes it, one tensor in memory at a time. */
#include "checkpoint/export/internal.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "model/family.h"
#include "model/unused.h"

#include <stdlib.h>
#include <string.h>

#define NAME_CAP (TSR_STORED_MODULE + 32)

struct item {
    char                                 name[NAME_CAP];
    struct tsr_export_out                out;
    const struct tsr_safetensors        *file; /* of a tensor that is copied as it is; else NULL */
    const struct tsr_safetensors_tensor *copied;
    uint64_t                             bytes;
    uint32_t                             shard;
};

struct pass {
    struct tsr_export *x;
    struct item       *items;
    uint64_t           n, cap, at; /* at: the next one to write */
    uint32_t           shards, open;
    uint64_t           in_shard, total;
    const char        *folder;
    struct tsr_st_out *file;
    unsigned char     *buf;
    uint64_t           buf_cap;
};

/* The dtype of a tensor that is not packed: 16 bits in an hf export or where that was asked for, else unchanged. */
static uint32_t plain_dtype(const struct pass *p, const struct tsr_export_module *m)
{
    if (p->x->opt->edit.edit) /* vectors are few */
        return m->v->kind == TSR_MODEL_STORED_VECTOR ? TSR_F32 : p->x->dtype;
    if (m->v->kind == TSR_MODEL_STORED_VECTOR) {
        uint64_t inexact = 0;
        uint32_t dtype = p->x->dtype;
        for (unsigned i = 0; i < m->v->n; i++)
            for (uint64_t k = 0; k < m->v->piece_rows[i]; k++) {
                unsigned char b[4];
                if (!tsr_export_put(b, dtype, m->v->values[i][k], &inexact) || inexact)
                    return TSR_F32; /* few, and worth their bits */
            }
        return dtype;
    }
    return p->x->kind == &tsr_export_hf || p->x->opt->dtype || m->form != TSR_EXPORT_FORM_DENSE
               ? p->x->dtype
               : m->dtype;
}

static tsr_status outs_of(struct pass *p, const struct tsr_export_module *m,
                          struct tsr_export_out out[TSR_EXPORT_OUTS], unsigned *n)
{
    const struct tsr_model_stored_view *v = m->v;
    *n = 0;
    if (v->kind == TSR_MODEL_STORED_LINEAR || v->kind == TSR_MODEL_STORED_HEAD)
        TSR_TRY(p->x->kind->plan(p->x, m, out, n));
    if (*n)
        return TSR_OK;
    uint32_t dtype = plain_dtype(p, m);
    out[0] = (struct tsr_export_out){ .suffix = v->suffix,
                                      .dtype = tsr_dtype_name(dtype),
                                      .size = (uint32_t)tsr_dtype_size(dtype),
                                      .rank = v->kind == TSR_MODEL_STORED_VECTOR ? 1 : 2,
                                      .shape = { v->rows, v->cols } };
    if (v->stack) { /* the linears of all experts, or their biases */
        out[0].rank++;
        out[0].shape[0] = v->stack;
        out[0].shape[1] = v->transposed ? v->cols : v->rows / v->stack;
        out[0].shape[2] = v->transposed ? v->rows / v->stack : v->cols;
    }
    if ((v->norm || v->role->row) && v->dim) { /* a gain for each head; a row */
        out[0].rank = 2;
        out[0].shape[0] = v->rows / v->dim;
        out[0].shape[1] = v->dim;
    }
    if (v->role->part == TSR_MODEL_PART_CONV && v->dim) {
        out[0].rank = 3;
        out[0].shape[0] = v->rows / v->dim;
        out[0].shape[1] = 1;
        out[0].shape[2] = v->dim;
    }
    *n = 1;
    return TSR_OK;
}

static const char *name_of(const struct item *i)
{
    return i->copied ? i->copied->name : i->name;
}

static tsr_status add(struct pass *p, const char *module, const struct tsr_export_out *o)
{
    uint64_t bytes = o->size,
             limit = p->x->opt->shard_bytes ? p->x->opt->shard_bytes : TSR_EXPORT_SHARD_BYTES;
    for (uint32_t d = 0; d < o->rank; d++)
        if (!tsr_mul(bytes, o->shape[d], &bytes))
            return tsr_fail(p->x->err, TSR_E_INPUT, "%s: \"%s%s\" is too large", p->x->path, module,
                            o->suffix);
    if (p->n == p->cap) {
        uint64_t     want = p->cap ? p->cap * 2 : 256;
        struct item *items = tsr_renew(p->items, want, sizeof *items);
        if (!items)
            return tsr_fail_nomem(p->x->err, want * sizeof *items, "the list of tensors");
        p->items = items;
        p->cap = want;
    }
    if (p->in_shard && (p->in_shard >= limit || bytes > limit - p->in_shard)) {
        p->shards++;
        p->in_shard = 0;
    }
    struct item *i = &p->items[p->n++];
    memset(i, 0, sizeof *i);
    (void)snprintf(i->name, sizeof i->name, "%s%s", module, o->suffix);
    i->out = *o;
    i->bytes = bytes;
    i->shard = p->shards;
    if (!tsr_add(p->total, bytes, &p->total))
        return tsr_fail(p->x->err, TSR_E_INPUT, "%s: more than 2^64 bytes", p->x->path);
    p->in_shard += bytes;
    return TSR_OK;
}

static tsr_status count(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct pass             *p = ctx;
    struct tsr_export_module m;
    struct tsr_export_out    out[TSR_EXPORT_OUTS];
    unsigned                 n;
    (void)err;
    tsr_export_module_of(&m, v);
    TSR_TRY(outs_of(p, &m, out, &n));
    for (unsigned k = 0; k < n; k++)
        TSR_TRY(add(p, v->module, &out[k]));
    return TSR_OK;
}

static tsr_status count_unused(void *ctx, const struct tsr_safetensors *file,
                               const struct tsr_safetensors_tensor *t, struct tsr_err *err)
{
    struct pass          *p = ctx;
    struct tsr_export_out o = { .suffix = "", .dtype = t->dtype_name, .rank = t->rank };
    TSR_TRY(tsr_model_unused_size(file, t, &o.size, err));
    memcpy(o.shape, t->shape, t->rank * sizeof *t->shape);
    TSR_TRY(add(p, t->name, &o));
    p->items[p->n - 1].file = file;
    p->items[p->n - 1].copied = t;
    return TSR_OK;
}

/* ---- writing ------------------------------------------------------------------------- */

static void file_name(const struct pass *p, uint32_t shard, char name[64])
{
    if (p->shards == 1)
        (void)snprintf(name, 64, "model.safetensors");
    else
        (void)snprintf(name, 64, "model-%05u-of-%05u.safetensors", shard + 1, p->shards);
}

static tsr_status begin(struct pass *p, uint32_t shard)
{
    char name[64];
    if (p->file) {
        struct tsr_st_out *f = p->file;
        p->file = NULL;
        TSR_TRY(tsr_safetensors_commit(f, p->x->err));
    }
    file_name(p, shard, name);
    char *path = tsr_path_join(p->folder, name);
    if (!path)
        return tsr_fail_nomem(p->x->err, strlen(p->folder), p->folder);
    tsr_status st = tsr_safetensors_create(&p->file, path, p->x->err);
    free(path);
    TSR_TRY(st);
    TSR_TRY(tsr_safetensors_metadata(p->file, "format", "pt", p->x->err));
    for (uint64_t i = p->at; i < p->n && p->items[i].shard == shard; i++) {
        const struct tsr_export_out *o = &p->items[i].out;
        TSR_TRY(tsr_safetensors_declare_as(p->file, name_of(&p->items[i]), o->dtype, o->size,
                                           o->rank, o->shape, p->x->err));
    }
    p->open = shard;
    return tsr_safetensors_begin(p->file, p->x->err);
}

static tsr_status overflow(const struct pass *p, const struct tsr_model_stored_view *v,
                           uint64_t row)
{
    return tsr_fail(p->x->err, TSR_E_INPUT,
                    "%s: \"%s%s\": row %llu has a value that F16 does not hold; export as "
                    "BF16 with --dtype bf16",
                    p->x->path, v->module, v->suffix, (unsigned long long)row);
}

/* Row r of the whole, where the tensor has it. */
static void put_row(const struct tsr_model_stored_view *v, uint64_t r, uint32_t size,
                    const unsigned char *line, unsigned char *dst)
{
    const uint64_t n = v->cols * size;
    if (!v->transposed) {
        memcpy(dst + r * n, line, n);
        return;
    }
    const uint64_t each = v->rows / v->stack;
    dst += r / each * each * n + r % each * size;
    for (uint64_t k = 0; k < v->cols; k++)
        memcpy(dst + k * each * size, line + k * size, size);
}

/* A tensor unchanged, or widened and rounded. */
static tsr_status fill_plain(struct pass *p, const struct tsr_export_module *m, unsigned char *dst,
                             const struct tsr_export_out *o)
{
    const struct tsr_model_stored_view *v = m->v;
    struct tsr_export_report           *rep = p->x->report;
    uint32_t dtype = o->size == 4 ? TSR_F32 : strcmp(o->dtype, "F16") == 0 ? TSR_F16 : TSR_BF16;
    if (v->kind == TSR_MODEL_STORED_VECTOR) {
        for (uint64_t r = 0; r < v->rows; r++, dst += o->size) {
            unsigned i;
            uint64_t row;
            tsr_model_stored_row(v, r, &i, &row);
            (void)tsr_export_put(dst, dtype, v->values[i][row],
                                 &rep->rounded); /* exact by choice */
        }
        return TSR_OK;
    }
    /* a row as floats, then in the dtype */
    float *row = tsr_new(v->cols, 2 * sizeof *row);
    if (!row)
        return tsr_fail_nomem(p->x->err, v->cols * 2 * sizeof *row, v->module);
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < v->rows && st == TSR_OK; r++) {
        unsigned             i;
        uint64_t             at;
        unsigned char       *to = (unsigned char *)(row + v->cols);
        const unsigned char *line = to;
        tsr_model_stored_row(v, r, &i, &at);
        if (!v->packed[i] && v->w[i]->dtype == dtype) { /* bit for bit, including NaN */
            line = (const unsigned char *)v->w[i]->data + at * v->w[i]->row_stride;
        } else {
            tsr_export_module_row(m, r, row);
            for (uint64_t k = 0; k < v->cols && st == TSR_OK; k++, to += o->size)
                if (!tsr_export_put(to, dtype, row[k], &rep->rounded))
                    st = overflow(p, v, r);
        }
        put_row(v, r, o->size, line, dst);
    }
    free(row);
    return st;
}

/* All values as F32, for edit(), then in the dtype. */
static tsr_status fill_edited(struct pass *p, const struct tsr_export_module *m, unsigned char *dst,
                              const struct tsr_export_out *o)
{
    const struct tsr_model_stored_view *v = m->v;
    const struct tsr_export_edit       *e = &p->x->opt->edit;
    uint32_t dtype = o->size == 4 ? TSR_F32 : strcmp(o->dtype, "F16") == 0 ? TSR_F16 : TSR_BF16;
    uint64_t n;
    float   *all = tsr_mul(v->rows, v->cols, &n) ? tsr_new(n, sizeof *all) : NULL;
    unsigned char *line = tsr_new(v->cols, sizeof(float));
    tsr_status     st = all && line ? TSR_OK : tsr_fail_nomem(p->x->err, v->rows * 4, v->module);
    for (uint64_t r = 0; r < v->rows && st == TSR_OK; r++) {
        unsigned i;
        uint64_t row;
        tsr_model_stored_row(v, r, &i, &row);
        if (v->kind == TSR_MODEL_STORED_VECTOR)
            all[r] = v->values[i][row];
        else
            tsr_export_module_row(m, r, all + r * v->cols);
    }
    if (st == TSR_OK)
        st = e->edit(e->ctx, v, all, p->x->err);
    for (uint64_t r = 0; r < v->rows && st == TSR_OK; r++) {
        for (uint64_t k = 0; k < v->cols && st == TSR_OK; k++)
            if (!tsr_export_put(line + k * o->size, dtype, all[r * v->cols + k],
                                &p->x->report->rounded))
                st = overflow(p, v, r);
        put_row(v, r, o->size, line, dst);
    }
    free(all);
    free(line);
    return st;
}

static tsr_status write(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct pass             *p = ctx;
    struct tsr_export_module m;
    struct tsr_export_out    out[TSR_EXPORT_OUTS];
    unsigned                 n;
    tsr_export_module_of(&m, v);
    TSR_TRY(outs_of(p, &m, out, &n));
    bool plain = n == 1 && out[0].suffix == v->suffix;
    for (unsigned i = 0; i < n; i++) {
        const struct item *item = &p->items[p->at];
        if (!p->file || item->shard != p->open)
            TSR_TRY(begin(p, item->shard));
        if (item->bytes > p->buf_cap) {
            free(p->buf);
            p->buf_cap = 0;
            p->buf = tsr_new(item->bytes, 1);
            if (!p->buf)
                return tsr_fail_nomem(err, item->bytes, item->name);
            p->buf_cap = item->bytes;
        }
        memset(p->buf, 0, item->bytes);
        if (plain && p->x->opt->edit.edit)
            TSR_TRY(fill_edited(p, &m, p->buf, &out[i]));
        else if (plain)
            TSR_TRY(fill_plain(p, &m, p->buf, &out[i]));
        else
            TSR_TRY(p->x->kind->fill(p->x, &m, &out[i], p->buf));
        tsr_safetensors_put(p->file, p->buf, item->bytes);
        p->at++;
        p->x->report->tensors++;
        p->x->report->bytes += item->bytes;
    }
    if (!plain)
        p->x->report->packed++;
    else if (v->packed[0] && m.form != TSR_EXPORT_FORM_DENSE)
        p->x->report->widened++;
    return TSR_OK;
}

/* Unchanged, behind those of the model. */
static tsr_status write_unused(struct pass *p)
{
    for (; p->at < p->n; p->at++) {
        const struct item *i = &p->items[p->at];
        if (i->shard != p->open)
            TSR_TRY(begin(p, i->shard));
        TSR_TRY(tsr_model_unused_copy(i->file, i->copied, p->file, p->x->err));
        p->x->report->unused++;
        p->x->report->bytes += i->bytes;
    }
    return TSR_OK;
}

static tsr_status put_index(struct pass *p)
{
    json_t *map = json_object(), *j = NULL;
    bool    ok = map != NULL;
    for (uint64_t i = 0; i < p->n && ok; i++) {
        char name[64];
        file_name(p, p->items[i].shard, name);
        ok = json_object_set_new(map, name_of(&p->items[i]), json_string(name)) == 0;
    }
    if (ok)
        j = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)p->total,
                      "weight_map", map);
    tsr_status st = j ? tsr_export_put_json(p->folder, "model.safetensors.index.json", j, p->x->err)
                      : tsr_fail_nomem(p->x->err, p->n * 64, "the index of tensors");
    json_decref(j);
    json_decref(map);
    return st;
}

static tsr_status both(struct pass *p)
{
    struct tsr_export *x = p->x;
    TSR_TRY(tsr_model_visit(x->m, x->o, x->m->packed != NULL, count, p, x->err));
    if (!x->opt->edit.edit) /* an encoder for images fits the hidden states as they were */
        TSR_TRY(tsr_model_visit_unused(x->m, count_unused, p, x->err));
    p->shards++;
    TSR_TRY(tsr_model_visit(x->m, x->o, true, write, p, x->err));
    TSR_TRY(write_unused(p));
    struct tsr_st_out *f = p->file;
    p->file = NULL;
    TSR_TRY(tsr_safetensors_commit(f, x->err));
    return p->shards > 1 ? put_index(p) : TSR_OK;
}

tsr_status tsr_export_tensors(struct tsr_export *x, const char *folder)
{
    struct pass p = { .x = x, .folder = folder };
    tsr_status  st = both(&p);
    tsr_safetensors_abort(p.file);
    free(p.items);
    free(p.buf);
    return st;
}
