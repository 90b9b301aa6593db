/* The tensors of a rotated model, one at a time on their way into a folder. */
#include "rotate/rotate.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/bind.h"
#include "model/family.h"
#include "model/stored.h"
#include "model/unused.h"
#include "rotate/online.h"
#include "rotate/transform.h"

#include <stdlib.h>

struct turn {
    const struct tsr_model             *m;
    const struct tsr_rotate_options    *o;
    struct tsr_orthogonal               residual, heads; /* heads: of layer `at` */
    struct tsr_orthogonal               run;             /* of the last run of columns; n 0: none */
    struct tsr_model_online             online;
    uint64_t                            at;
    float                              *values; /* of the tensor in work, [rows, cols] */
    const struct tsr_model_stored_view *v;
};

/* The streams of the seed: 0 is the hidden state's, l + 1 layer l's. */
static tsr_status heads_of(struct turn *t, uint64_t layer, struct tsr_err *err)
{
    if (t->heads.n && t->at == layer)
        return TSR_OK;
    tsr_orthogonal_free(&t->heads);
    t->at = layer;
    return tsr_orthogonal_create(&t->heads, t->o->kind, t->m->hp.head_dim, t->o->seed, layer + 1,
                                 err);
}

/* ---- rows ------------------------------------------------------------------------------- */

/* Where the rows of a piece are in the whole; fresh memory, or NULL. */
static uint64_t *rows_of(const struct tsr_model_stored_view *v, unsigned piece)
{
    uint64_t *at = tsr_new(v->piece_rows[piece], sizeof *at);
    for (uint64_t r = 0; at && r < v->rows; r++) {
        unsigned i;
        uint64_t row;
        tsr_model_stored_row(v, r, &i, &row);
        if (i == piece)
            at[row] = r;
    }
    return at;
}

/* A piece produces what is transformed. */
static tsr_status turn_outputs(const struct turn *t, struct tsr_orthogonal *q, unsigned piece,
                               struct tsr_err *err)
{
    const struct tsr_rotate_transform as = { .matrix = q, .matrices = 1 };
    uint64_t                         *at = rows_of(t->v, piece);
    tsr_status st = at ? TSR_OK : tsr_fail_nomem(err, t->v->rows * 8, t->v->module);
    if (st == TSR_OK)
        st = tsr_rotate_transform_producer(&as, t->o->pool, t->values, at, t->v->piece_rows[piece],
                                           t->v->cols, err);
    free(at);
    return st;
}

/* ---- linears ---------------------------------------------------------------------------- */

static const struct tsr_model_norm *norm_of(const struct tsr_model *m, uint64_t layer,
                                            enum tsr_linear_id id)
{
    const struct tsr_model_layer *l = &m->layers[layer];
    switch (tsr_model_site_columns(tsr_model_linear_site(id))) {
    case TSR_MODEL_SITE_ATTN_IN:
        return &l->attn_in;
    case TSR_MODEL_SITE_FFN_IN:
        return m->hp.norm_place == TSR_MODEL_NORM_PARALLEL ? &l->attn_in : &l->ffn_in;
    default:
        return NULL;
    }
}

/* The linears that the pieces of a tensor are; for one of experts, piece 0's stands for all. */
static enum tsr_linear_id id_of(const struct turn *t, unsigned piece)
{
    enum tsr_linear_id ids[TSR_MODEL_FUSED];
    uint32_t           groups;
    unsigned           n = tsr_model_fused(&t->m->hp, t->v->role->part, ids, &groups);
    return piece < n ? ids[piece] : t->v->id;
}

/* The matrix of a run of the inputs of down, which come transformed. */
static tsr_status run_of(struct turn *t, uint32_t run, struct tsr_err *err)
{
    if (t->run.n == run)
        return TSR_OK;
    tsr_orthogonal_free(&t->run);
    return tsr_orthogonal_plain(&t->run, run, err);
}

/* What a linear reads: the norm of the hidden state, the values of the heads, or what goes into down. */
static tsr_status turn_inputs(struct turn *t, struct tsr_err *err)
{
    const struct tsr_model_stored_view *v = t->v;
    const struct tsr_model_norm        *norm = norm_of(t->m, v->layer, id_of(t, 0));
    struct tsr_rotate_transform         as = { .matrices = 1 };
    uint32_t                            run = tsr_rotate_run(&t->online, id_of(t, 0));
    if (norm && t->o->sites & TSR_ROTATE_RESIDUAL) {
        as.matrix = &t->residual;
    } else if (run) {
        TSR_TRY(run_of(t, run, err));
        as.online = &t->run;
    } else if (id_of(t, 0) == TSR_MODEL_O && t->o->sites & TSR_ROTATE_HEADS) {
        TSR_TRY(heads_of(t, v->layer, err));
        as.matrix = &t->heads;
    }
    return tsr_rotate_transform_inputs(&as, t->o->pool, t->values, v->rows, v->cols,
                                       norm ? norm->gain : NULL,
                                       norm ? t->m->hp.norm_gain_offset : 0, err);
}

/* What it writes, and its bias. */
static tsr_status turn_pieces(struct turn *t, struct tsr_err *err)
{
    for (unsigned i = 0; i < t->v->n; i++) {
        enum tsr_linear_id id = id_of(t, i), kind = tsr_model_linear_kind(id);
        if (t->o->sites & TSR_ROTATE_RESIDUAL && (id == TSR_MODEL_O || kind == TSR_MODEL_DOWN))
            TSR_TRY(turn_outputs(t, &t->residual, i, err));
        if (!(t->o->sites & TSR_ROTATE_HEADS) || id != TSR_MODEL_V)
            continue;
        TSR_TRY(heads_of(t, t->v->layer, err));
        TSR_TRY(turn_outputs(t, &t->heads, i, err));
    }
    return TSR_OK;
}

/* ---- the other tensors -------------------------------------------------------------------- */

static bool folds(const struct turn *t, enum tsr_model_part part)
{
    return t->o->sites & TSR_ROTATE_RESIDUAL &&
           (part == TSR_MODEL_PART_ATTN_IN || part == TSR_MODEL_PART_FFN_IN ||
            part == TSR_MODEL_PART_FINAL_NORM);
}

static tsr_status turn_vector(struct turn *t, struct tsr_err *err)
{
    const struct tsr_model_stored_view *v = t->v;
    const enum tsr_model_part           part = v->role->part;
    enum tsr_linear_id                  ids[TSR_MODEL_FUSED];
    uint32_t                            groups;
    if (v->norm) {
        for (uint64_t i = 0; folds(t, part) && i < v->rows; i++)
            t->values[i] = 1 - t->m->hp.norm_gain_offset;
        return TSR_OK;
    }
    bool bias = part == TSR_MODEL_PART_LINEAR || tsr_model_part_is_expert(part) ||
                tsr_model_fused(&t->m->hp, part, ids, &groups);
    return bias ? turn_pieces(t, err) : TSR_OK;
}

static tsr_status turn_tensor(void *ctx, const struct tsr_model_stored_view *v, float *values,
                              struct tsr_err *err)
{
    struct turn *t = ctx;
    const bool   residual = t->o->sites & TSR_ROTATE_RESIDUAL;
    t->v = v;
    t->values = values;
    switch (v->kind) {
    case TSR_MODEL_STORED_VECTOR:
        return turn_vector(t, err);
    case TSR_MODEL_STORED_LINEAR:
        TSR_TRY(turn_inputs(t, err));
        return turn_pieces(t, err);
    case TSR_MODEL_STORED_HEAD:
        return residual ? tsr_orthogonal_rows(&t->residual, t->o->pool, values, v->rows, v->cols,
                                              t->m->final_norm.gain, t->m->hp.norm_gain_offset, err)
                        : TSR_OK;
    case TSR_MODEL_STORED_MATRIX: /* the embedding: tsr_rotate_check() leaves no other */
        return residual ? tsr_orthogonal_rows(&t->residual, t->o->pool, values, v->rows, v->cols,
                                              NULL, 0, err)
                        : TSR_OK;
    }
    return tsr_fail(err, TSR_E_BUG, "%s is of no kind", v->module);
}

static tsr_status edit_config(void *ctx, json_t *config, struct tsr_err *err)
{
    const struct turn *t = ctx;
    return tsr_rotate_config(&t->online, config, err);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* An overlay that gives a tied model an LM head of its own, with the embedding's numbers; borrows them. */
static tsr_status untie(const struct tsr_model *m, struct tsr_model_overlay **o,
                        struct tsr_err *err)
{
    struct tsr_model_packed *p;
    TSR_TRY(tsr_model_overlay_create(o, m->hp.layers, m->hp.linears, err));
    if (!(p = (*o)->head = tsr_new(1, sizeof *p)) ||
        !(p->format_id = tsr_strdup(TSR_FORMAT_FLOAT)) || !(p->plugin = tsr_strdup("")))
        return tsr_fail_nomem(err, sizeof *p, "an LM head");
    p->format = (struct tsr_format){ .struct_size = sizeof p->format,
                                     .id = p->format_id,
                                     .dtype = m->head.w.dtype };
    p->rows = m->head.w.rows;
    p->cols = m->head.w.cols;
    p->code_stride = m->head.w.row_stride;
    p->codes = (void *)(uintptr_t)m->head.w.data;
    return TSR_OK;
}

static void untied_free(struct tsr_model_overlay *o)
{
    if (o && o->head)
        o->head->codes = NULL; /* the model's */
    tsr_model_overlay_destroy(o);
}

static tsr_status count_unused(void *n, const struct tsr_safetensors *file,
                               const struct tsr_safetensors_tensor *t, struct tsr_err *err)
{
    (void)file, (void)t, (void)err;
    ++*(uint64_t *)n;
    return TSR_OK;
}

/* An encoder for images would give hidden states in the old basis. */
static tsr_status tell_unused(const struct tsr_model *m, struct tsr_err *err)
{
    uint64_t n = 0;
    TSR_TRY(tsr_model_visit_unused(m, count_unused, &n, err));
    if (n)
        tsr_logf(TSR_LOG_WARN,
                 "%s: %llu tensors that the text model does not run are left out: they do not fit "
                 "its rotated hidden state",
                 m->path, (unsigned long long)n);
    return TSR_OK;
}

tsr_status tsr_rotate(const struct tsr_model *m, const char *folder,
                      const struct tsr_rotate_options *o, struct tsr_export_report *report,
                      struct tsr_err *err)
{
    struct turn               t = { .m = m, .o = o };
    struct tsr_model_overlay *head = NULL;
    struct tsr_export_options eo = { .format = TSR_EXPORT_HF,
                                     .dtype = o->dtype,
                                     .replace = o->replace,
                                     .edit = { .edit = turn_tensor, .ctx = &t } };
    TSR_TRY(tsr_rotate_check(m, o, err));
    TSR_TRY(tsr_rotate_online(m, o->sites, &t.online, err));
    if (o->sites & (TSR_ROTATE_KEYS | TSR_ROTATE_DOWN))
        eo.edit.config = edit_config;
    tsr_status st = tell_unused(m, err);
    if (st == TSR_OK && o->sites & TSR_ROTATE_RESIDUAL)
        st = tsr_orthogonal_create(&t.residual, o->kind, m->hp.hidden, o->seed, 0, err);
    if (st == TSR_OK && o->sites & TSR_ROTATE_RESIDUAL && m->hp.tied)
        st = untie(m, &head, err);
    if (st == TSR_OK)
        st = tsr_export(m, head, folder, &eo, report, err);
    untied_free(head);
    tsr_orthogonal_free(&t.residual);
    tsr_orthogonal_free(&t.heads);
    tsr_orthogonal_free(&t.run);
    return st;
}
