/* imatrix: the calibration's mean squares as an importance matrix of llama.cpp, a GGUF file with two tensors for each matrix:
 * sums of squares, and how many tokens they are of. */
#include "checkpoint/export/gguf_super.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct one {
    char                name[64];
    struct tsr_gguf_map map;
    uint64_t            cols, mats;
};

struct file {
    struct tsr_export *x;
    struct one        *v;
    uint64_t           n, cap, at;
    struct tsr_writer  w;
};

/* kv_b of latent attention, too, under the name that older files give it whole: attn_kv_b.  The two tensors of newer ones have
 * other inputs, and llama-quantize passes over a name that its file lacks. */
static bool has_inputs(const struct tsr_model_stored_view *v)
{
    return v->kind == TSR_MODEL_STORED_LINEAR;
}

static tsr_status list(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct file *f = ctx;
    if (!has_inputs(v))
        return TSR_OK;
    if (f->n == f->cap) {
        uint64_t    want = f->cap ? f->cap * 2 : 256;
        struct one *p = tsr_renew(f->v, want, sizeof *p);
        if (!p)
            return tsr_fail_nomem(err, want * sizeof *p, "the list of tensors");
        f->v = p;
        f->cap = want;
    }
    struct one *o = &f->v[f->n++];
    *o = (struct one){ .cols = v->cols, .mats = v->stack ? v->stack : 1 };
    return tsr_export_gguf_name(f->x, v, o->name, &o->map);
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + TSR_GGUF_OUT_ALIGN - 1) / TSR_GGUF_OUT_ALIGN * TSR_GGUF_OUT_ALIGN;
}

static void put_tensor(struct tsr_export_gguf_bytes *b, const struct one *o, const char *suffix,
                       uint64_t cols, uint64_t *at)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s%s", o->name, suffix);
    tsr_export_gguf_add_text(b, name, strlen(name));
    tsr_export_gguf_add_u32(b, 2);
    tsr_export_gguf_add_u64(b, cols);
    tsr_export_gguf_add_u64(b, o->mats);
    tsr_export_gguf_add_u32(b, TSR_GGUF_OUT_F32);
    tsr_export_gguf_add_u64(b, *at);
    *at += padded(cols * o->mats * sizeof(float));
}

static void put_head(const struct file *f, struct tsr_export_gguf_bytes *b)
{
    const struct tsr_export_layer_inputs *in = &f->x->opt->inputs;
    struct tsr_export_gguf_bytes          meta = { 0 };
    uint64_t                              at = 0;
    tsr_export_gguf_key_text(&meta, "general.type", "imatrix");
    tsr_export_gguf_key_array(&meta, "imatrix.datasets", TSR_GGUF_OUT_STRING, 1);
    tsr_export_gguf_add_text(&meta, in->text, strlen(in->text));
    tsr_export_gguf_key_u32(&meta, "imatrix.chunk_count", in->sequences);
    tsr_export_gguf_key_u32(&meta, "imatrix.chunk_size", in->seqlen);
    tsr_export_gguf_add(b, "GGUF", 4);
    tsr_export_gguf_add_u32(b, 3);
    tsr_export_gguf_add_u64(b, 2 * f->n);
    tsr_export_gguf_add_u64(b, meta.keys);
    tsr_export_gguf_add(b, meta.v, meta.n);
    for (uint64_t i = 0; i < f->n; i++) {
        put_tensor(b, &f->v[i], ".in_sum2", f->v[i].cols, &at);
        put_tensor(b, &f->v[i], ".counts", 1, &at);
    }
    while (b->n % TSR_GGUF_OUT_ALIGN != 0 && !b->failed)
        tsr_export_gguf_add(b, "", 1);
    b->failed = b->failed || meta.failed;
    free(meta.v);
}

static void put_padded(struct file *f, const float *v, uint64_t n)
{
    static const unsigned char zeros[TSR_GGUF_OUT_ALIGN];
    uint64_t                   bytes = n * sizeof *v;
    tsr_writer_put(&f->w, v, bytes);
    tsr_writer_put(&f->w, zeros, padded(bytes) - bytes);
    f->x->report->tensors++;
    f->x->report->bytes += padded(bytes);
}

static tsr_status fill(struct file *f, const struct tsr_model_stored_view *v, const struct one *o,
                       float *sums, float *counts, float *room)
{
    for (uint64_t i = 0; i < o->mats; i++) {
        struct tsr_export_gguf_inputs in;
        TSR_TRY(tsr_export_gguf_inputs_of(f->x, v, o->name, i, room, &in));
        counts[i] = (float)in.tokens;
        if (o->map.columns)
            tsr_export_gguf_turn_columns(&o->map, o->cols, room, room + o->cols, 1, sizeof *room);
        for (uint64_t k = 0; k < o->cols; k++)
            sums[i * o->cols + k] = in.tokens ? room[k] * counts[i] : 0;
    }
    put_padded(f, sums, o->mats * o->cols);
    put_padded(f, counts, o->mats);
    return TSR_OK;
}

static tsr_status write(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct file *f = ctx;
    if (!has_inputs(v))
        return TSR_OK;
    const struct one *o = &f->v[f->at++];
    float            *sums = tsr_new(o->mats * o->cols, sizeof *sums);
    float            *counts = tsr_new(o->mats, sizeof *counts);
    float            *room = tsr_new(o->cols, 2 * sizeof *room);
    bool              have = sums && counts && room;
    tsr_status        st = have ? fill(f, v, o, sums, counts, room)
                                : tsr_fail_nomem(err, o->mats * o->cols * sizeof *sums, o->name);
    free(sums);
    free(counts);
    free(room);
    return st;
}

static tsr_status write_file(struct file *f, const char *path)
{
    struct tsr_export           *x = f->x;
    const char                  *arch;
    struct tsr_export_gguf_bytes head = { 0 };
    TSR_TRY(tsr_export_gguf_arch(x, &arch)); /* names of tensors are its */
    TSR_TRY(tsr_model_visit_stacked(x->m, x->o, false, list, f, x->err));
    put_head(f, &head);
    tsr_status st = head.failed ? tsr_fail_nomem(x->err, head.n, "the header of an imatrix file")
                    : x->opt->replace ? tsr_writer_open(&f->w, path, x->err)
                                      : tsr_writer_open_fresh(&f->w, path, x->err);
    if (st == TSR_OK) {
        tsr_writer_put(&f->w, head.v, head.n);
        st = tsr_model_visit_stacked(x->m, x->o, false, write, f, x->err);
        if (st == TSR_OK)
            st = tsr_writer_commit(&f->w, x->err);
        else
            tsr_writer_abort(&f->w);
    }
    free(head.v);
    return st;
}

tsr_status tsr_export_imatrix(struct tsr_export *x)
{
    struct file f = { .x = x };
    if (!x->opt->inputs.layer)
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: an importance matrix is what a calibration found; a job has the step "
                        "'calibrate' before 'export: {format: imatrix}'",
                        x->path);
    tsr_status st = write_file(&f, x->path);
    free(f.v);
    return st;
}
