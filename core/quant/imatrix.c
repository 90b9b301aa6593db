/* An importance matrix of llama.cpp as a calibration: the mean squares of the inputs, without a run of the model. */
#include "quant/imatrix.h"

#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "checkpoint/gguf/imatrix.h"
#include "model/bind.h"
#include "model/family.h"
#include "model/stored.h"
#include "quant/scheme_run.h"

#include <stdlib.h>
#include <string.h>

struct fill {
    const struct tsr_model       *m;
    struct tsr_gguf_imatrix       file;
    struct tsr_quant_calibration *c;
    bool                        **wants;       /* [layers][linears]: quantized by its inputs */
    char                          absent[64];  /* the first name that the file lacks; "": none */
    char                          missing[64]; /* the first one that is wanted */
    uint64_t                      found;
};

static tsr_status choose(struct fill *f, struct tsr_scheme_run *run, struct tsr_err *err)
{
    for (uint64_t l = 0; l < f->m->hp.layers; l++)
        for (uint64_t i = 0; i < f->m->hp.linears; i++) {
            const struct tsr_quantizer *q;
            struct tsr_quant_plan       plan = { 0 };
            TSR_TRY(tsr_quant_scheme_plan(run, l, (enum tsr_linear_id)i, &q, &plan, err));
            f->wants[l][i] = q && plan.need;
        }
    return TSR_OK;
}

static tsr_status find_wanted(struct fill *f, const struct tsr_quant_scheme *s,
                              struct tsr_registry *r, struct tsr_err *err)
{
    struct tsr_scheme_run *run;
    f->wants = tsr_new_rows(f->m->hp.layers, f->m->hp.linears, sizeof **f->wants);
    if (!f->wants)
        return tsr_fail_nomem(err, f->m->hp.layers * f->m->hp.linears, "linears of the scheme");
    TSR_TRY(tsr_quant_scheme_open(&run, s, r, f->m, err));
    tsr_status st = choose(f, run, err);
    tsr_quant_scheme_close(run);
    return st;
}

/* Whether a linear of a tensor is quantized by its inputs; of several linears in one tensor, any with their input. */
static bool is_wanted(const struct fill *f, const struct tsr_model_stored_view *v)
{
    const bool *wants = f->wants[v->layer];
    if (v->n == 1)
        return wants[v->id];
    for (uint64_t i = 0; i < f->m->hp.linears; i++) {
        enum tsr_site at = tsr_model_linear_site((enum tsr_linear_id)i),
                      of = tsr_model_linear_site(v->id);
        bool same = v->stack ? at >= TSR_MODEL_SITE_EXPERTS &&
                                   tsr_model_site_kind(at) == tsr_model_site_kind(of)
                             : at == of;
        if (wants[i] && same)
            return true;
    }
    return false;
}

/* The mean squares of one site in the order of the model's columns: as variances of means of 0. */
static tsr_status put(struct fill *f, const struct tsr_model_stored_view *v,
                      const struct tsr_gguf_map *map, enum tsr_site at, const float *square,
                      struct tsr_err *err)
{
    struct tsr_quant_stats *s = &f->c->site[v->layer][at];
    if (s->variance) /* of another linear with this input */
        return TSR_OK;
    float *mean = tsr_new(v->cols, sizeof *mean), *variance = tsr_new(v->cols, sizeof *variance);
    *s = (struct tsr_quant_stats){
        .struct_size = sizeof *s, .cols = v->cols, .mean = mean, .variance = variance
    };
    if (!mean || !variance)
        return tsr_fail_nomem(err, v->cols * 8, "statistics of the inputs");
    for (uint64_t k = 0; k < v->cols; k++)
        variance[map->columns ? tsr_gguf_row_back(map, v->cols, k) : k] = square[k];
    return TSR_OK;
}

static tsr_status visit(void *ctx, const struct tsr_model_stored_view *v, struct tsr_err *err)
{
    struct fill        *f = ctx;
    struct tsr_gguf_map map;
    char                name[64];
    uint64_t            stack = v->stack ? v->stack : 1, cols = v->cols * stack;
    if (v->kind != TSR_MODEL_STORED_LINEAR)
        return TSR_OK;
    if (!tsr_gguf_name_of(f->m, v, name, &map))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the family %s gives \"%s\" no name in a GGUF file, so that no "
                        "importance matrix is of it",
                        f->file.path, f->m->family, v->module);
    const struct tsr_gguf_imatrix_entry *e = tsr_gguf_imatrix_find(&f->file, name);
    if (!e) {
        if (!*f->absent)
            memcpy(f->absent, name, sizeof name);
        if (!*f->missing && is_wanted(f, v))
            memcpy(f->missing, name, sizeof name);
        return TSR_OK;
    }
    f->found++;
    if (e->n != cols)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" has %llu columns; the model's has %llu",
                        f->file.path, name, (unsigned long long)e->n, (unsigned long long)cols);
    for (uint64_t i = 0; i < stack; i++) {
        enum tsr_site at = tsr_model_linear_site(v->id);
        if (at >= TSR_MODEL_SITE_EXPERTS)
            at = tsr_model_expert_site(i, tsr_model_site_kind(at));
        TSR_TRY(put(f, v, &map, at, e->square + i * v->cols, err));
    }
    return TSR_OK;
}

static tsr_status hash_of(const struct fill *f, struct tsr_err *err)
{
    static const char  head[] = "tessera.imatrix/1 ";
    struct tsr_hasher *h;
    TSR_TRY(tsr_hasher_create(&h, err));
    tsr_hasher_update(h, head, sizeof head - 1);
    tsr_hasher_update(h, f->m->hash, strlen(f->m->hash));
    for (uint64_t i = 0; i < f->file.n; i++) {
        const struct tsr_gguf_imatrix_entry *e = &f->file.v[i];
        tsr_hasher_update(h, e->name, strlen(e->name) + 1);
        tsr_hasher_update(h, &e->n, sizeof e->n);
        tsr_hasher_update(h, e->square, e->n * sizeof *e->square);
    }
    tsr_hasher_finish(h, f->c->hash);
    return TSR_OK;
}

static tsr_status fill(struct fill *f, struct tsr_err *err)
{
    struct tsr_quant_calibration *c = f->c;
    c->layers = f->m->hp.layers;
    c->sites = f->m->hp.sites;
    c->seqlen = 1;
    c->site = tsr_new_rows(c->layers, c->sites, sizeof **c->site);
    c->borrowed = tsr_new_rows(c->layers, c->sites, sizeof **c->borrowed);
    if (!c->site || !c->borrowed)
        return tsr_fail_nomem(err, c->layers * c->sites * sizeof **c->site, "calibration");
    TSR_TRY(tsr_model_visit_stacked(f->m, NULL, false, visit, f, err));
    if (!f->found)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: none of its %llu tensors is a linear of the model: the first is "
                        "\"%s\", where the model has \"%s\"",
                        f->file.path, (unsigned long long)f->file.n, f->file.v[0].name, f->absent);
    if (*f->missing)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: has no \"%s\", a linear that is quantized by its inputs; keep it by a "
                        "rule, or take a file of the whole model",
                        f->file.path, f->missing);
    return hash_of(f, err);
}

tsr_status tsr_quant_imatrix_open(struct tsr_quant_calibration **c,
                                  const struct tsr_quant_scheme *s, struct tsr_registry *r,
                                  const struct tsr_model *m, const char *path, struct tsr_err *err)
{
    struct fill f = { .m = m, .c = tsr_new(1, sizeof *f.c) };
    if (!f.c)
        return tsr_fail_nomem(err, sizeof *f.c, "calibration");
    tsr_status st = tsr_gguf_imatrix_read(&f.file, path, err);
    if (st == TSR_OK) {
        st = find_wanted(&f, s, r, err);
        if (st == TSR_OK)
            st = fill(&f, err);
        tsr_gguf_imatrix_free(&f.file);
    }
    free(f.wants);
    if (st != TSR_OK) {
        tsr_quant_calibration_destroy(f.c);
        return st;
    }
    *c = f.c;
    return TSR_OK;
}
