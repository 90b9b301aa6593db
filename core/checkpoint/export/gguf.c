/* gguf: one file; a first pass lays the tensors out, in types that gguf_types.c chooses, a second writes them. */
#include "checkpoint/export/gguf_out.h"

#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/export/gguf_super.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/imatrix.h"
#include "model/bind.h"

#include <stdlib.h>
#include <string.h>

#define RUN (UINT64_C(1) << 20) /* bytes that are copied at once */

struct file {
    struct tsr_export            *x;
    enum tsr_export_gguf_choice   choice;
    struct tsr_export_gguf_entry *v;
    uint64_t                      n, cap, at, end;
    bool                          tied;  /* the file's embedding is its head, too */
    const struct tsr_gguf_tensor *embed; /* of the file that it is copied from, or NULL */
    bool                          wide;  /* it is in blocks that are not written: F32 */
    struct tsr_export_gguf_bytes  head;
    struct tsr_writer             w;
};

/* ---- the list --------------------------------------------------------------------------- */

static tsr_status append(struct file *f, const struct tsr_export_gguf_entry *e)
{
    if (f->n == f->cap) {
        uint64_t                      want = f->cap ? f->cap * 2 : 256;
        struct tsr_export_gguf_entry *v = tsr_renew(f->v, want, sizeof *v);
        if (!v)
            return tsr_fail_nomem(f->x->err, want * sizeof *v, "the list of tensors");
        f->v = v;
        f->cap = want;
    }
    struct tsr_export_gguf_entry *n = &f->v[f->n++];
    *n = *e;
    uint64_t rows = 1; /* of a tensor that is in memory */
    for (uint32_t d = 1; d < e->rank; d++)
        rows *= e->dims[d];
    if (!tsr_mul(tsr_export_gguf_row_bytes(e->type, e->dims[0]), rows, &n->bytes))
        return tsr_fail(f->x->err, TSR_E_INPUT, "%s: \"%s\" is too large", f->x->path, e->name);
    n->offset = f->end;
    f->end += (n->bytes + TSR_GGUF_OUT_ALIGN - 1) / TSR_GGUF_OUT_ALIGN * TSR_GGUF_OUT_ALIGN;
    return TSR_OK;
}

/* An embedding of an exported type is copied. */
static void choose_embed(struct file *f)
{
    char                          of[64];
    const struct tsr_model_role  *embed = &f->x->m->storage->family->roles[0];
    const struct tsr_gguf_tensor *t =
        embed->gguf && tsr_model_tensor_name(of, sizeof of, "", embed->gguf, 0, ".weight")
            ? tsr_gguf_part(f->x->m, of)
            : NULL;
    bool known = t && (tsr_export_gguf_levels(t->type) || t->type == TSR_GGUF_OUT_MXFP4) &&
                 (!tsr_export_gguf_is_mix(f->choice) ||
                  t->type == tsr_export_gguf_mix_type(f->x, f->choice, of, 0, t->dims[0], f->tied));
    char name[16];
    f->embed = known && f->choice != TSR_EXPORT_GGUF_F16 ? t : NULL;
    f->wide = t && !known && tsr_gguf_dtype(t->type) == 0 && f->choice != TSR_EXPORT_GGUF_F16 &&
              !tsr_export_gguf_is_mix(f->choice);
    if (f->wide)
        tsr_logf(TSR_LOG_WARN,
                 "%s: the embedding is stored as %s, which is not written; it becomes F32, which "
                 "holds the same values, or F16 with --type f16",
                 f->x->path, tsr_gguf_type_name(t->type, name));
}

/* Whether no head will be written. */
static bool is_tied(const struct file *f)
{
    const struct tsr_model_overlay *o = f->x->o ? f->x->o : f->x->m->packed;
    return f->x->m->hp.tied && (!o || !o->head || o->head == o->embed);
}

/* A row's length first; the experts of a stack last. */
static void set_dims(struct tsr_export_gguf_entry *e, const struct tsr_model_stored_view *v)
{
    if (v->dim) {
        e->rank = 2;
        e->dims[0] = v->dim;
        e->dims[1] = v->rows / v->dim;
        return;
    }
    if (v->kind != TSR_MODEL_STORED_VECTOR)
        e->dims[e->rank++] = v->cols;
    e->dims[e->rank++] = v->stack ? v->rows / v->stack : v->rows;
    if (v->stack)
        e->dims[e->rank++] = v->stack;
}

/* The matrix; columns that are packed in the file's order are in no other order for the file. */
static void module_of(struct tsr_export_module *m, const struct tsr_model_stored_view *v,
                      struct tsr_export_gguf_entry *e)
{
    tsr_export_module_of(m, v);
    e->turned = e->map.columns && tsr_export_gguf_is_turned(&e->map, m);
    if (e->turned)
        m->order = NULL;
}

/* Codes of columns that change their places go by whole blocks. */
static tsr_status check_blocks(const struct file *f, const struct tsr_model_stored_view *v,
                               const struct tsr_export_gguf_entry *e)
{
    uint64_t width = f->x->m->hp.delta.value_dim;
    if (!e->map.columns || !e->exact || e->turned || width % tsr_export_gguf_elements(e->type) == 0)
        return TSR_OK;
    return tsr_fail(f->x->err, TSR_E_INPUT,
                    "%s: \"%s\": heads of %llu columns change their places, and its codes are in "
                    "blocks of %u; --type f16 takes any number",
                    f->x->path, v->module, (unsigned long long)width,
                    tsr_export_gguf_elements(e->type));
}

/* kv_b of latent attention is two tensors. */
static tsr_status list_halves(struct file *f, const struct tsr_model_stored_view *v)
{
    const struct tsr_model_latent *l = &f->x->m->hp.latent;
    struct tsr_export_module       m;
    tsr_export_module_of(&m, v);
    uint32_t                     type = f->choice == TSR_EXPORT_GGUF_F16 ? TSR_GGUF_OUT_F16
                                        : m.form == TSR_EXPORT_FORM_DENSE ? tsr_export_gguf_dense_type(m.dtype)
                                                                          : TSR_GGUF_OUT_F32;
    uint64_t                     heads = f->x->m->hp.heads;
    struct tsr_export_gguf_entry keys = { .type = type,
                                          .rank = 3,
                                          .dims = { l->nope, l->rank, heads } };
    struct tsr_export_gguf_entry values = { .type = type,
                                            .rank = 3,
                                            .dims = { l->rank, l->v, heads } };
    TSR_TRY(tsr_export_gguf_half_name(f->x, v, true, keys.name));
    TSR_TRY(tsr_export_gguf_half_name(f->x, v, false, values.name));
    TSR_TRY(append(f, &keys));
    return append(f, &values);
}

static tsr_status list(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct file                 *f = ctx;
    struct tsr_export_gguf_entry e = { .type = TSR_GGUF_OUT_F32 };
    struct tsr_export_module     m;
    (void)err;
    if (tsr_export_gguf_is_halves(v))
        return list_halves(f, v);
    TSR_TRY(tsr_export_gguf_name(f->x, v, e.name, &e.map));
    set_dims(&e, v);
    if (v->kind != TSR_MODEL_STORED_VECTOR) {
        module_of(&m, v, &e);
        if (f->embed && v->role->part == TSR_MODEL_PART_EMBED) {
            e.raw = e.exact = true;
            e.type = f->embed->type;
        } else if (v->kind == TSR_MODEL_STORED_MATRIX &&
                   !(tsr_export_gguf_is_mix(f->choice) && v->role->part == TSR_MODEL_PART_EMBED)) {
            bool wide = f->wide && v->role->part == TSR_MODEL_PART_EMBED;
            e.type = f->choice == TSR_EXPORT_GGUF_F16
                         ? TSR_GGUF_OUT_F16
                         : tsr_export_gguf_dense_type(wide ? TSR_F32 : m.dtype);
        } else {
            TSR_TRY(tsr_export_gguf_matrix_type(f->x, f->choice, &m, e.name, f->tied, &e));
            TSR_TRY(check_blocks(f, v, &e));
        }
    }
    return append(f, &e);
}

/* ---- header ------------------------------------------------------------------------------- */

static tsr_status make_head(struct file *f, const char *arch)
{
    struct tsr_export_gguf_bytes *b = &f->head, meta = { 0 };
    tsr_status                    st = tsr_export_gguf_put_model(f->x, &meta, arch);
    if (st == TSR_OK) {
        tsr_export_gguf_key_u32(&meta, "general.file_type",
                                tsr_export_gguf_ftype(f->choice, f->v, f->n));
        tsr_export_gguf_key_u32(&meta, "general.quantization_version", 2);
        st = tsr_export_gguf_put_tokens(f->x, &meta);
    }
    if (st == TSR_OK) {
        tsr_export_gguf_add(b, "GGUF", 4);
        tsr_export_gguf_add_u32(b, 3);
        tsr_export_gguf_add_u64(b, f->n);
        tsr_export_gguf_add_u64(b, meta.keys);
        tsr_export_gguf_add(b, meta.v, meta.n);
        for (uint64_t i = 0; i < f->n; i++) {
            const struct tsr_export_gguf_entry *e = &f->v[i];
            tsr_export_gguf_add_text(b, e->name, strlen(e->name));
            tsr_export_gguf_add_u32(b, e->rank);
            for (uint32_t d = 0; d < e->rank; d++)
                tsr_export_gguf_add_u64(b, e->dims[d]);
            tsr_export_gguf_add_u32(b, e->type);
            tsr_export_gguf_add_u64(b, e->offset);
        }
        while (b->n % TSR_GGUF_OUT_ALIGN != 0 && !b->failed)
            tsr_export_gguf_add(b, "", 1);
        if (b->failed || meta.failed)
            st = tsr_fail_nomem(f->x->err, b->n, "the header of a gguf file");
    }
    free(meta.v);
    return st;
}

/* ---- data --------------------------------------------------------------------------------- */

static void pad(struct file *f, uint64_t bytes)
{
    static const unsigned char zeros[TSR_GGUF_OUT_ALIGN];
    uint64_t                   over = bytes % TSR_GGUF_OUT_ALIGN;
    if (over)
        tsr_writer_put(&f->w, zeros, TSR_GGUF_OUT_ALIGN - over);
}

/* The tensor whose bytes were put is complete. */
static void done(struct file *f, const struct tsr_export_gguf_entry *e)
{
    pad(f, e->bytes);
    f->x->report->tensors++;
    f->x->report->bytes += e->bytes;
}

static tsr_status put_halves(struct file *f, const struct tsr_model_stored_view *v)
{
    struct tsr_export_module m;
    tsr_export_module_of(&m, v);
    for (int keys = 1; keys >= 0; keys--) {
        const struct tsr_export_gguf_entry *e = &f->v[f->at++];
        TSR_TRY(tsr_export_gguf_put_half(f->x, &f->w, &m, keys, e->name, e->type));
        done(f, e);
    }
    f->x->report->widened += m.form != TSR_EXPORT_FORM_DENSE;
    return TSR_OK;
}

static tsr_status put_matrix(struct file *f, const struct tsr_model_stored_view *v,
                             const struct tsr_export_gguf_entry *e)
{
    struct tsr_export_module     m;
    struct tsr_export_gguf_entry now = *e;
    module_of(&m, v, &now);
    return tsr_export_gguf_put_rows(f->x, &f->w, &m, e);
}

static tsr_status copy_matrix(struct file *f, const struct tsr_export_gguf_entry *e)
{
    unsigned char *buf = tsr_new(RUN, 1);
    tsr_status     st = buf ? TSR_OK : tsr_fail_nomem(f->x->err, RUN, e->name);
    for (uint64_t at = 0; at < e->bytes && st == TSR_OK; at += RUN) {
        uint64_t n = e->bytes - at < RUN ? e->bytes - at : RUN;
        st = tsr_gguf_part_read(f->x->m, f->embed, at, buf, n, f->x->err);
        if (st == TSR_OK)
            tsr_writer_put(&f->w, buf, n);
    }
    free(buf);
    f->x->report->packed++;
    return st;
}

static void put_vector(struct file *f, const struct tsr_model_stored_view *v,
                       const struct tsr_export_gguf_entry *e)
{
    uint64_t each = e->map.deep ? v->dim : 1;
    for (uint64_t r = 0; r < v->rows; r++) {
        unsigned i;
        uint64_t row, from = tsr_export_gguf_row_of(e, v->rows / each, r / each) * each + r % each;
        tsr_model_stored_row(v, from, &i, &row);
        float number = tsr_export_gguf_number(&e->map, v->values[i][row]);
        tsr_writer_put(&f->w, &number, 4);
    }
}

static tsr_status write(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct file *f = ctx;
    (void)err;
    if (tsr_export_gguf_is_halves(v))
        return put_halves(f, v);
    const struct tsr_export_gguf_entry *e = &f->v[f->at++];
    if (v->kind == TSR_MODEL_STORED_VECTOR)
        put_vector(f, v, e);
    else if (e->raw)
        TSR_TRY(copy_matrix(f, e));
    else
        TSR_TRY(put_matrix(f, v, e));
    done(f, e);
    return TSR_OK;
}

/* Divisors of rotary frequencies are tensors: the first ones. */
static tsr_status add_rope(struct file *f)
{
    const struct tsr_model_rope *r = &f->x->m->hp.rope;
    const char *const           *names;
    unsigned                     n = tsr_export_gguf_rope_tensors(r, &names);
    for (unsigned i = 0; i < n; i++) {
        struct tsr_export_gguf_entry e = { .rank = 1,
                                           .type = TSR_GGUF_OUT_F32,
                                           .dims = { r->dim / 2 } };
        (void)snprintf(e.name, sizeof e.name, "%s", names[i]);
        TSR_TRY(append(f, &e));
    }
    return TSR_OK;
}

static tsr_status put_rope(struct file *f)
{
    const struct tsr_model_rope *r = &f->x->m->hp.rope;
    unsigned                     n = tsr_export_gguf_rope_tensors(r, NULL);
    float                       *v = n ? tsr_new(r->dim / 2, sizeof *v) : NULL;
    if (n && !v)
        return tsr_fail_nomem(f->x->err, r->dim * sizeof *v, "factors of rope");
    for (unsigned i = 0; i < n; i++) {
        tsr_export_gguf_rope_factors(r, i, v);
        tsr_writer_put(&f->w, v, r->dim / 2 * sizeof *v);
        done(f, &f->v[f->at++]);
    }
    free(v);
    return TSR_OK;
}

static tsr_status write_file(struct file *f, const char *path)
{
    struct tsr_export *x = f->x;
    const char        *arch = NULL;
    TSR_TRY(tsr_export_gguf_choose(x->opt->type, &f->choice, x->err));
    f->tied = is_tied(f);
    choose_embed(f);
    TSR_TRY(tsr_export_gguf_arch(x, &arch));
    TSR_TRY(add_rope(f));
    TSR_TRY(tsr_model_visit_stacked(x->m, x->o, x->m->packed != NULL, list, f, x->err));
    TSR_TRY(make_head(f, arch));
    TSR_TRY(tsr_export_gguf_check(x, &f->head, f->end));
    TSR_TRY(x->opt->replace ? tsr_writer_open(&f->w, path, x->err)
                            : tsr_writer_open_fresh(&f->w, path, x->err));
    tsr_writer_put(&f->w, f->head.v, f->head.n);
    tsr_status st = put_rope(f);
    if (st == TSR_OK)
        st = tsr_model_visit_stacked(x->m, x->o, true, write, f, x->err);
    if (st == TSR_OK)
        return tsr_writer_commit(&f->w, x->err);
    tsr_writer_abort(&f->w);
    return st;
}

tsr_status tsr_export_gguf(struct tsr_export *x)
{
    struct file             f = { .x = x };
    struct tsr_gguf_imatrix imatrix = { 0 };
    if (x->opt->imatrix) {
        TSR_TRY(tsr_gguf_imatrix_read(&imatrix, x->opt->imatrix, x->err));
        x->imatrix = &imatrix;
    }
    tsr_status st = write_file(&f, x->path);
    tsr_gguf_imatrix_free(&imatrix);
    free(f.v);
    free(f.head.v);
    return st;
}
