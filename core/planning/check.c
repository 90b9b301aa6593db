/* A plan file under a job: each layer's packing as candidates, then its cost. */
#include "planning/planning.h"

#include "base/mem.h"
#include "pipeline/step.h"
#include "plan/file/check.h"
#include "quant/scheme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS 32
#define TEXT  TSR_PLANNING_TEXT

/* The rules of one layer so far. */
struct layer {
    const char *use;
    const char *key[PAIRS], *value[PAIRS];
    uint64_t    n;
    bool        keep;
};

static void put(struct layer *l, const char *key, const char *value)
{
    for (uint64_t i = 0; i < l->n; i++)
        if (strcmp(l->key[i], key) == 0) {
            l->value[i] = value;
            return;
        }
    if (l->n < PAIRS) {
        l->key[l->n] = key;
        l->value[l->n++] = value;
    }
}

/* Later rules win, option by option; another plugin starts from its own defaults. */
static void take(struct layer *l, const struct tsr_config_node *e, struct tsr_diag *d)
{
    const struct tsr_config_node *use = tsr_config_node_get(e, "use");
    if (use && use->kind == TSR_CONFIG_NODE_SCALAR && strcmp(use->text, l->use) != 0) {
        l->use = use->text;
        l->n = 0;
    }
    l->keep = false;
    for (uint64_t i = 0; i < e->n; i++) {
        const char                   *key = e->keys[i]->text;
        const struct tsr_config_node *v = e->items[i];
        if (strcmp(key, "use") == 0 || strcmp(key, "layers") == 0 || strcmp(key, "tensors") == 0)
            continue;
        if (v->kind != TSR_CONFIG_NODE_SCALAR || strchr(v->text, ',') || strlen(v->text) > 60 ||
            strlen(key) > 60)
            tsr_config_diag_error(d, &v->mark, NULL, "'%.60s' is not one short value", key);
        else if (strcmp(key, "keep") == 0)
            l->keep = strcmp(v->text, "true") == 0;
        else
            put(l, key, v->text);
    }
}

static bool text_of(const struct layer *l, char text[TEXT])
{
    if (l->keep) {
        (void)snprintf(text, TEXT, "original");
        return true;
    }
    int at = snprintf(text, TEXT, "%.60s", l->use), n = 0;
    /* the width first, as the step's own candidates have it: the same text is the same candidate */
    for (int width = 1; width >= 0; width--)
        for (uint64_t i = 0; i < l->n && at < TEXT; i++)
            if ((strcmp(l->key[i], "bits") == 0) == (width == 1))
                at += snprintf(text + at, (size_t)(TEXT - at), "%c%s=%s", n++ ? ',' : ':',
                               l->key[i], l->value[i]);
    return at < TEXT;
}

/* Index of the text among those of pl, where it is put if it is new. */
static tsr_status index_of(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                           const char *text, const struct tsr_config_node *at, uint32_t *index,
                           struct tsr_diag *d, struct tsr_err *err)
{
    for (uint64_t i = 0; i < pl->n_texts; i++)
        if (strcmp(pl->texts[i], text) == 0) {
            *index = (uint32_t)i;
            return TSR_OK;
        }
    *index = (uint32_t)pl->n_texts;
    TSR_TRY(tsr_planning_try(job, text, at, d, err));
    return tsr_planning_add(pl, text, err);
}

/* Is a linear meant?  A rule without names is about the whole layer. */
static bool names(const struct tsr_config_node *e, uint64_t layer, int linear)
{
    const struct tsr_config_node *t = tsr_config_node_get(e, "tensors");
    char                          name[80];
    bool                          attn = tsr_model_linear_attends((enum tsr_linear_id)linear);
    if (!t || t->kind != TSR_CONFIG_NODE_SCALAR)
        return true;
    (void)snprintf(name, sizeof name, "model.layers.%llu.%s.%s", (unsigned long long)layer,
                   attn ? "self_attn" : "mlp", tsr_model_linear_name((enum tsr_linear_id)linear));
    return tsr_quant_name_matches(t->text, name);
}

#define WHOLE                                                                                      \
    (-1) /* instead of a linear: the layer, and rules about some of its tensors are errors */

/* The rules' result for a linear; used[entries], NULL: not recorded. */
static tsr_status linear_text(const struct tsr_plan_file *f, uint64_t layer, int linear,
                              const char *use, const struct tsr_config_node *node,
                              char text[TSR_PLANNING_TEXT], const struct tsr_config_node **last,
                              bool *used, struct tsr_diag *d, struct tsr_err *err)
{
    struct layer one = { .use = use };
    for (uint64_t i = 0; node && node->kind == TSR_CONFIG_NODE_MAP && i < node->n; i++)
        if (!tsr_planning_own(node->keys[i]->text) &&
            node->items[i]->kind == TSR_CONFIG_NODE_SCALAR)
            put(&one, node->keys[i]->text, node->items[i]->text);
    for (uint64_t i = 0; i < f->n_entries; i++) {
        const struct tsr_config_node *tensors = tsr_config_node_get(f->entries[i], "tensors");
        bool                          covers;
        TSR_TRY(tsr_plan_file_covers(f, f->entries[i], layer, &covers, err));
        if (!covers || (linear != WHOLE && !names(f->entries[i], layer, linear)))
            continue;
        if (tensors && linear == WHOLE)
            tsr_config_diag_error(
                d, &tensors->mark, "give the whole layer one scheme",
                "times are known for whole layers, not for some of their tensors");
        *last = f->entries[i];
        if (used)
            used[i] = true;
        take(&one, f->entries[i], d);
    }
    if (!text_of(&one, text))
        return tsr_fail(err, TSR_E_INPUT, "layer %llu: the options of its scheme are too long",
                        (unsigned long long)layer);
    return TSR_OK;
}

tsr_status tsr_planning_layer(const struct tsr_plan_file *f, uint64_t layer, const char *use,
                              const struct tsr_config_node *node, char text[TSR_PLANNING_TEXT],
                              const struct tsr_config_node **last, struct tsr_diag *d,
                              struct tsr_err *err)
{
    return linear_text(f, layer, WHOLE, use, node, text, last, NULL, d, err);
}

struct rules {
    struct tsr_planning                 *pl;
    const struct tsr_pipeline_job       *job;
    const struct tsr_planning_plan_keys *k;
    const struct tsr_config_node        *node; /* of the step */
    const struct tsr_plan_file          *f;
    struct tsr_diag                     *d;
    bool                                *used; /* [entries] some linear of any model has the name */
};

/* The candidate of one linear. */
static tsr_status read_linear(const struct rules *z, uint64_t layer, int linear, uint32_t *index,
                              struct tsr_err *err)
{
    const struct tsr_config_node *last = z->node;
    char                          text[TSR_PLANNING_TEXT];
    TSR_TRY(linear_text(z->f, layer, linear, z->k->use, z->node, text, &last, z->used, z->d, err));
    return index_of(z->pl, z->job, text, last, index, z->d, err);
}

/* The candidate of a layer: that of its linears, or a mix of theirs. */
static tsr_status read_layer(const struct rules *z, uint64_t layer, uint32_t *candidate,
                             struct tsr_err *err)
{
    char     text[TSR_PLAN_MIXED * TEXT];
    uint32_t index[TSR_PLAN_MIXED];
    bool     same = true;
    size_t   at = strlen(TSR_CANDIDATE_MIX);
    for (int i = 0; i < TSR_PLAN_MIXED; i++) {
        TSR_TRY(read_linear(z, layer, (int)tsr_plan_mixed(i), &index[i], err));
        same = same && index[i] == index[0];
    }
    *candidate = index[0];
    if (same || tsr_config_diag_errors(z->d))
        return TSR_OK;
    memcpy(text, TSR_CANDIDATE_MIX, at + 1);
    for (int i = 0; i < TSR_PLAN_MIXED; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? "|" : "",
                               z->pl->texts[index[i]]);
    for (uint64_t i = 0; i < z->pl->n_texts; i++)
        if (strcmp(z->pl->texts[i], text) == 0) {
            *candidate = (uint32_t)i;
            return TSR_OK;
        }
    *candidate = (uint32_t)z->pl->n_texts;
    return tsr_planning_add(z->pl, text, err);
}

/* An entry whose names no linear has. */
static void unused(const struct rules *z, uint64_t entry)
{
    const struct tsr_config_node *t = tsr_config_node_get(z->f->entries[entry], "tensors");
    tsr_config_diag_error(z->d, t ? &t->mark : &z->f->entries[entry]->mark,
                          "as in model.layers.3.mlp.down_proj", "no linear has this name");
}

static tsr_status read_layers(struct rules *z, uint32_t *candidate, struct tsr_err *err)
{
    uint64_t   before = tsr_config_diag_errors(z->d);
    tsr_status st = TSR_OK;
    for (uint64_t l = 0; l < z->f->layers && st == TSR_OK && tsr_config_diag_errors(z->d) == before;
         l++)
        st = read_layer(z, l, &candidate[l], err);
    for (uint64_t i = 0; i < z->f->n_entries && st == TSR_OK; i++)
        if (!z->used[i] && tsr_config_diag_errors(z->d) == before)
            unused(z, i);
    if (st != TSR_OK)
        return st;
    return tsr_config_diag_errors(z->d) == before ? TSR_OK : tsr_config_diag_status(z->d, err);
}

/* Whether one of the model's linears is meant: a layer lacks those of the other forms of attention. */
static tsr_status is_used(const struct rules *z, uint64_t entry, bool *used, struct tsr_err *err)
{
    const struct tsr_plan_shape *shape = z->pl->problem.shape;
    *used = false;
    for (uint64_t l = 0; l < z->f->layers && !*used; l++) {
        const struct tsr_plan_shape_layer *s = &shape->layer[shape->layer_class[l]];
        bool                               covers;
        TSR_TRY(tsr_plan_file_covers(z->f, z->f->entries[entry], l, &covers, err));
        for (int i = 0; i < TSR_PLAN_MIXED && covers && !*used; i++)
            *used = s->lin[tsr_plan_mixed(i)].rows &&
                    names(z->f->entries[entry], l, (int)tsr_plan_mixed(i));
    }
    return TSR_OK;
}

/* With the model known: every entry is about a linear of it, and a mix of which a layer has one part alone is that
 * part. */
static tsr_status settle(const struct rules *z, uint32_t *candidate, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = &z->pl->problem;
    uint64_t                       before = tsr_config_diag_errors(z->d);
    for (uint64_t i = 0; i < z->f->n_entries; i++) {
        bool used;
        TSR_TRY(is_used(z, i, &used, err));
        if (!used && tsr_config_diag_errors(z->d) == before)
            unused(z, i);
    }
    for (uint64_t l = 0; l < z->f->layers; l++) {
        const struct tsr_plan_shape_layer *s = &p->shape->layer[p->shape->layer_class[l]];
        const struct tsr_plan_candidate   *c = &p->candidates.v[candidate[l]], *one = NULL;
        bool                               same = c->mixed;
        for (int i = 0; i < TSR_PLAN_MIXED && same; i++) {
            if (s->lin[tsr_plan_mixed(i)].rows == 0)
                continue;
            same = !one || c->of[i] == one;
            one = c->of[i];
        }
        if (same && one)
            candidate[l] = (uint32_t)(one - p->candidates.v);
    }
    return tsr_config_diag_errors(z->d) == before ? TSR_OK : tsr_config_diag_status(z->d, err);
}

static tsr_status check_made_for(const struct tsr_planning *pl, const struct tsr_plan_file *f,
                                 struct tsr_err *err)
{
    const struct tsr_plan_shape *s = pl->problem.shape;
    const char                  *path = tsr_config_doc_path(f->doc);
    if (*f->headers && strcmp(f->headers, s->hash) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for a model with the headers %s, those of %s are %s", path,
                        f->headers, s->name, s->hash);
    return TSR_OK;
}

/* A packed model is planned unchanged: every layer is kept. */
static tsr_status check_kept(const struct tsr_planning *pl, const struct tsr_plan_file *f,
                             uint32_t *candidate, struct tsr_err *err)
{
    for (uint64_t l = 0; l < f->layers; l++) {
        const char *text = pl->texts[candidate[l]];
        if (strcmp(text, "original") != 0)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: layer %llu is to be %s, the weights of %s are packed already "
                            "(%s); write 'keep: true'",
                            tsr_config_doc_path(f->doc), (unsigned long long)l, text,
                            pl->problem.shape->name, pl->problem.shape->packed);
        candidate[l] = 0;
    }
    return TSR_OK;
}

/* One of several replicas: the cost is that of its share on its nodes. */
static tsr_status take_share(struct tsr_planning *pl, const struct tsr_plan_file *f,
                             struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t n, before = tsr_config_diag_errors(d), *nodes = tsr_new(f->n_stages, sizeof *nodes);
    if (!nodes)
        return tsr_fail_nomem(err, f->n_stages * sizeof *nodes, "the nodes of a plan");
    struct tsr_plan_problem  share = { 0 };
    struct tsr_plan_cluster *part = NULL;
    tsr_status               st = tsr_plan_nodes(pl->problem.cluster, f, nodes, &n, d, err);
    if (st == TSR_OK && tsr_config_diag_errors(d) != before)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK)
        st = tsr_plan_fleet_share(&share, &part, &pl->problem, nodes, n, (uint64_t)f->share, err);
    free(nodes);
    if (st != TSR_OK)
        return st;
    pl->whole = pl->problem;
    pl->problem = share;
    pl->part = part;
    if ((uint64_t)f->decode_mb > share.memory.batch)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: a decode micro-batch of %lld is more than the %llu requests that a "
                        "replica runs at once",
                        tsr_config_doc_path(f->doc), (long long)f->decode_mb,
                        (unsigned long long)share.memory.batch);
    return TSR_OK;
}

tsr_status tsr_planning_check(struct tsr_planning *pl, struct tsr_pipeline_job *job,
                              const struct tsr_planning_plan_keys *k,
                              const struct tsr_config_node *node, const struct tsr_plan_file *f,
                              struct tsr_plan_planned *a, struct tsr_diag *d, struct tsr_err *err)
{
    if (!f->placed)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan says what layers take, not where they are; there is nothing "
                        "to price",
                        tsr_config_doc_path(f->doc));
    uint32_t *candidate = tsr_new(f->layers, sizeof *candidate);
    if (!candidate)
        return tsr_fail_nomem(err, f->layers * sizeof *candidate, "the layers of a plan");
    struct rules z = { .pl = pl, .job = job, .k = k, .node = node, .f = f, .d = d };
    z.used = tsr_new(f->n_entries, sizeof *z.used);
    tsr_status st = z.used ? read_layers(&z, candidate, err)
                           : tsr_fail_nomem(err, f->n_entries, "the rules of a plan");
    pl->options.prefill_mb = (uint64_t)f->prefill_mb;
    pl->options.decode_mb = (uint64_t)f->decode_mb;
    pl->options.head = f->head;
    pl->options.together = 1;
    pl->options.chosen = false; /* they are the plan's */
    if (st == TSR_OK)
        st = tsr_planning_open(pl, job, err);
    if (st == TSR_OK && pl->problem.shape->layers != f->layers)
        st = tsr_fail(err, TSR_E_INPUT, "%s: the plan is for %llu layers, %s has %llu",
                      tsr_config_doc_path(f->doc), (unsigned long long)f->layers,
                      pl->problem.shape->name, (unsigned long long)pl->problem.shape->layers);
    if (st == TSR_OK)
        st = check_made_for(pl, f, err);
    if (st == TSR_OK && *pl->problem.shape->packed) /* first: its problem has one candidate */
        st = check_kept(pl, f, candidate, err);
    if (st == TSR_OK)
        st = settle(&z, candidate, err);
    if (st == TSR_OK) /* the file's, whatever the job would have */
        st = tsr_plan_take_codecs(&pl->problem, f, err);
    if (st == TSR_OK && f->share)
        st = take_share(pl, f, d, err);
    if (st == TSR_OK)
        st = tsr_plan_check(a, &pl->problem, f, candidate, d, err);
    if (st == TSR_OK && tsr_config_diag_errors(d) == 0)
        st = tsr_plan_compensate(a, &pl->problem, f, err);
    free(z.used);
    free(candidate);
    return st;
}

json_t *tsr_planning_said(const struct tsr_planning *pl, const struct tsr_plan_file *f)
{
    const struct tsr_plan_load     *l = &f->load;
    const struct tsr_plan_problem  *p = pl->part ? &pl->whole : &pl->problem;
    const struct tsr_plan_workload *w = &p->work;
    uint64_t                        once = (uint64_t)(l->concurrency ? l->concurrency : l->batch);
    bool same = (uint64_t)l->prompt == w->s && (uint64_t)l->generate == w->n &&
                (uint64_t)l->batch == w->batch && once == p->memory.batch;
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_text(j, "file", tsr_config_doc_path(f->doc)) &&
              tsr_pipeline_json_put_real(j, "latency_ms", f->said.latency_ms) &&
              tsr_pipeline_json_put_real(j, "tokens_per_second", f->said.tokens_per_second) &&
              tsr_pipeline_json_put_real(j, "omega", f->said.omega) &&
              tsr_pipeline_json_put_int(j, "prompt", (uint64_t)l->prompt) &&
              tsr_pipeline_json_put_int(j, "generate", (uint64_t)l->generate) &&
              tsr_pipeline_json_put_int(j, "batch", (uint64_t)l->batch) &&
              tsr_pipeline_json_put(j, "same_work", json_boolean(same));
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}
