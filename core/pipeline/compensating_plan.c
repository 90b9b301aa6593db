/* k of every layer and input from the compensation lists of a plan. */
#include "pipeline/compensating.h"

#include "base/mem.h"
#include "plan/file/plan_file.h"
#include "quant/scheme.h"

#include <stdlib.h>

#define UNSAID UINT32_MAX

struct taking {
    const struct tsr_plan_file *p;
    const struct tsr_model     *m;
    const char                 *path;
    uint32_t                  **lin, **blocks; /* [layers][hparams.linears] */
};

static const char *text_of(const struct tsr_config_node *map, const char *key)
{
    const struct tsr_config_node *n = tsr_config_node_get(map, key);
    return n && n->kind == TSR_CONFIG_NODE_SCALAR ? n->text : "";
}

/* One entry; the reader of the file has checked its form. */
static tsr_status take_entry(const struct taking *t, const struct tsr_plan_stage *s,
                             const struct tsr_config_node *entry, struct tsr_err *err)
{
    const char *tensors = text_of(entry, "tensors");
    uint32_t    k = (uint32_t)strtoul(text_of(entry, "k"), NULL, 10);
    uint32_t    blocks = (uint32_t)strtoul(text_of(entry, "blocks"), NULL, 10);
    for (uint64_t l = s->first; l < s->first + s->count; l++) {
        bool covers = true;
        if (*text_of(entry, "layers"))
            TSR_TRY(tsr_plan_file_covers(t->p, entry, l, &covers, err));
        for (uint64_t i = 0; covers && i < t->m->hp.linears; i++) {
            const struct tsr_matrix *w = &t->m->layers[l].lin[i].w;
            if (w->rows && (!*tensors || tsr_quant_name_matches(tensors, w->name))) {
                t->lin[l][i] = k;
                t->blocks[l][i] = blocks;
            }
        }
    }
    return TSR_OK;
}

/* Linears that share an input share their channels, and experts of a layer their number. */
static tsr_status to_sites(const struct taking *t, uint32_t (*k)[TSR_MODEL_SITES],
                           uint32_t (*blocks)[TSR_MODEL_SITES], struct tsr_err *err)
{
    for (uint64_t l = 0; l < t->m->hp.layers; l++)
        for (uint64_t i = 0; i < t->m->hp.linears; i++) {
            const struct tsr_matrix *w = &t->m->layers[l].lin[i].w;
            enum tsr_site            site = tsr_model_linear_site((enum tsr_linear_id)i);
            enum tsr_site            kind = tsr_compensation_kind(site);
            uint32_t                 n = t->lin[l][i] == UNSAID ? 0 : t->lin[l][i];
            if (!w->rows || i == TSR_MODEL_ROUTER || i == TSR_MODEL_SHARED_ROUTER)
                continue;
            if (k[l][kind] != UNSAID && blocks[l][kind] != t->blocks[l][i])
                return tsr_fail(
                    err, TSR_E_INPUT,
                    "%s: %s is given %u thread blocks, other linears of its kind in the "
                    "layer %u; one launch reads for all of them: give them one number",
                    t->path, w->name, t->blocks[l][i], blocks[l][kind]);
            blocks[l][kind] = t->blocks[l][i];
            if (k[l][kind] != UNSAID && k[l][kind] != n)
                return tsr_fail(
                    err, TSR_E_INPUT,
                    t->m->hp.sparse && t->m->hp.sparse[l] && kind >= TSR_MODEL_SITE_FFN_IN
                        ? "%s: %s is given %u channels, others of its kind in the "
                          "layer %u; experts of a layer share the number: give them "
                          "one k"
                    : kind == TSR_MODEL_SITE_ATTN_IN && t->m->hp.latent.rank
                        ? "%s: %s is given %u channels, others before attention %u; they share the "
                          "number: give them one k"
                        : "%s: %s is given %u channels, the other linears with the same "
                          "input %u; they share a selection: give them one k",
                    t->path, w->name, n, k[l][kind]);
            k[l][kind] = n;
        }
    return TSR_OK;
}

static tsr_status take_all(const struct taking *t, uint32_t (*k)[TSR_MODEL_SITES],
                           uint32_t (*blocks)[TSR_MODEL_SITES], struct tsr_err *err)
{
    if (t->p->layers != t->m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for %llu layers, %s has %llu; plan for this model",
                        t->path, (unsigned long long)t->p->layers, t->m->path,
                        (unsigned long long)t->m->hp.layers);
    for (uint64_t l = 0; l < t->m->hp.layers; l++) {
        for (uint64_t i = 0; i < t->m->hp.linears; i++)
            t->lin[l][i] = UNSAID;
        for (int i = 0; i < TSR_MODEL_SITES; i++)
            k[l][i] = UNSAID;
    }
    for (uint64_t i = 0; i < t->p->n_stages; i++) {
        const struct tsr_config_node *list =
            tsr_config_node_get(t->p->stages[i].map, "compensation");
        for (uint64_t j = 0; list && list->kind == TSR_CONFIG_NODE_LIST && j < list->n; j++)
            TSR_TRY(take_entry(t, &t->p->stages[i], list->items[j], err));
    }
    TSR_TRY(to_sites(t, k, blocks, err));
    for (uint64_t l = 0; l < t->m->hp.layers; l++)
        for (int i = 0; i < TSR_MODEL_SITES; i++)
            k[l][i] = k[l][i] == UNSAID ? 0 : k[l][i];
    return TSR_OK;
}

tsr_status tsr_pipeline_compensating_plan(const char *path, const struct tsr_model *m,
                                          uint32_t (**out)[TSR_MODEL_SITES],
                                          uint32_t (**out_blocks)[TSR_MODEL_SITES],
                                          struct tsr_err *err)
{
    struct tsr_plan_file p = { 0 };
    struct tsr_diag     *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    struct taking t = { .p = &p, .m = m, .path = path };
    uint32_t(*k)[TSR_MODEL_SITES] = tsr_new(m->hp.layers, sizeof *k);
    uint32_t(*blocks)[TSR_MODEL_SITES] = tsr_new(m->hp.layers, sizeof *blocks);
    t.lin = tsr_new_rows(m->hp.layers, m->hp.linears, sizeof **t.lin);
    t.blocks = tsr_new_rows(m->hp.layers, m->hp.linears, sizeof **t.blocks);
    tsr_status st = k && blocks && t.lin && t.blocks
                        ? tsr_plan_file_load(&p, path, d, err)
                        : tsr_fail_nomem(err, m->hp.layers * sizeof *k, path);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = take_all(&t, k, blocks, err);
    tsr_plan_file_free(&p);
    tsr_config_diag_destroy(d);
    free(t.lin);
    free(t.blocks);
    if (st != TSR_OK) {
        free(k);
        free(blocks);
        return st;
    }
    *out = k;
    *out_blocks = blocks;
    return TSR_OK;
}
