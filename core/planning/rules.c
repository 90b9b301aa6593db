/* The rules of a plan file: what each layer takes, as candidates. */
#include "planning/rules.h"

#include "base/mem.h"
#include "plan/file/check.h"

#include <stdlib.h>
#include <string.h>

#define TEXT TSR_PLANNING_TEXT

/* Index of the text among those of pl, where it is put if it is new. */
static tsr_status index_of(const struct tsr_planning_rules *z, const char *text,
                           const struct tsr_config_node *at, uint32_t *index, struct tsr_err *err)
{
    struct tsr_planning *pl = z->pl;
    for (uint64_t i = 0; i < pl->n_texts; i++)
        if (strcmp(pl->texts[i], text) == 0) {
            *index = (uint32_t)i;
            return TSR_OK;
        }
    *index = (uint32_t)pl->n_texts;
    TSR_TRY(tsr_planning_try(z->registry, text, at, z->d, err));
    return tsr_planning_add(pl, text, err);
}

/* ---- experts that rules tell apart ---------------------------------------------------------- */

/* Whether some rule is about some of a layer's experts. */
static bool tells_apart(const struct tsr_plan_file *f)
{
    for (uint64_t i = 0; i < f->n_entries; i++) {
        const struct tsr_config_node *t = tsr_config_node_get(f->entries[i], "tensors");
        if (tsr_config_node_get(f->entries[i], "experts") ||
            (t && t->kind == TSR_CONFIG_NODE_SCALAR && strstr(t->text, "experts")))
            return true;
    }
    return false;
}

/* The experts that each rule names. */
static void read_experts(struct tsr_planning_rules *z)
{
    uint64_t n = z->shape->experts;
    for (uint64_t i = 0; i < z->f->n_entries; i++) {
        const struct tsr_config_node *e = tsr_config_node_get(z->f->entries[i], "experts");
        struct tsr_errbuf             b = TSR_ERRBUF(b);
        if (!e)
            continue;
        z->experts[i] = tsr_new(n, sizeof **z->experts);
        if (!z->experts[i] || e->kind != TSR_CONFIG_NODE_SCALAR ||
            tsr_config_parse_ranges_of(e->text, "expert", n, z->experts[i], &b.err) != TSR_OK)
            tsr_config_diag_error(z->d, &e->mark, "write experts: \"0-3,7\"", "experts: %.200s",
                                  *b.text ? b.text : "is not a value");
    }
}

/* The model of the job, how often its experts are taken, and the groups that the step asks for. */
static tsr_status open_shape(struct tsr_planning_rules *z, struct tsr_err *err)
{
    struct tsr_planning *pl = z->pl;
    TSR_TRY(tsr_plan_shape_load(&z->own, pl->options.model, err));
    z->shape = z->own;
    if (z->own->layers != z->f->layers || !z->own->experts)
        return TSR_OK; /* reported with the model open, or below */
    tsr_planning_routing(pl, z->job);
    if (pl->options.routing && *pl->options.routing)
        TSR_TRY(tsr_plan_shape_measured(z->own, pl->options.routing, err));
    if (pl->options.expert_groups <= 1 || *z->own->packed)
        return TSR_OK;
    if (*pl->options.indicators)
        TSR_TRY(tsr_plan_quality_order(z->own, pl->options.indicators, pl->options.table, err));
    TSR_TRY(tsr_plan_shape_group(z->own, pl->options.expert_groups, err));
    return TSR_OK;
}

/* The model's experts, and which of them each rule names. */
static tsr_status open_experts(struct tsr_planning_rules *z, struct tsr_err *err)
{
    uint64_t all;
    if (z->job)
        TSR_TRY(open_shape(z, err));
    if (z->shape->layers != z->f->layers || !z->shape->experts)
        return TSR_OK;
    z->experts = tsr_new(z->f->n_entries, sizeof *z->experts);
    z->group_of =
        tsr_mul(z->f->layers, z->shape->experts, &all) ? tsr_new(all, sizeof *z->group_of) : NULL;
    if (!z->experts || !z->group_of)
        return tsr_fail_nomem(err, z->f->layers * z->shape->experts, "groups of experts");
    read_experts(z);
    return tsr_config_diag_errors(z->d) ? tsr_config_diag_status(z->d, err) : TSR_OK;
}

/* Experts of one layer with the same rules, in the same group of the step. */
struct alike {
    uint32_t index[TSR_EXPERT_LINEARS]; /* candidates of gate, up and down */
    uint32_t group;
    double   taken; /* by its experts, together */
    uint64_t n;
};

/* Taken more often; of equal ones in the earlier group. */
static bool before(const struct alike *a, const struct alike *b)
{
    double x = a->taken * (double)b->n, y = b->taken * (double)a->n;
    return x > y || (!(x < y) && a->group < b->group);
}

/* The most used first; place[i]: where the i-th goes. */
static void sort_groups(struct alike *g, uint32_t n, uint8_t *place)
{
    struct alike was[TSR_PLAN_GROUPS];
    memcpy(was, g, n * sizeof *g);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < n; k++)
            at += before(&was[k], &was[i]) || (k < i && !before(&was[i], &was[k]));
        place[i] = (uint8_t)at;
        g[at] = was[i];
    }
}

/* The candidate of one linear. */
static tsr_status read_linear(const struct tsr_planning_rules    *z,
                              const struct tsr_planning_covering *c, uint64_t layer, int linear,
                              int64_t expert, uint32_t *index, struct tsr_err *err)
{
    const struct tsr_config_node     *last = z->node;
    const struct tsr_planning_reading r = { z->f, z->use, z->node, z->experts, z->used, z->d };
    char                              text[TSR_PLANNING_TEXT];
    TSR_TRY(tsr_planning_rules_text(&r, c, layer, linear, expert, text, &last, err));
    return index_of(z, text, last, index, err);
}

/* Groups of a layer's experts with the same rules; *n of them. */
static tsr_status read_groups(const struct tsr_planning_rules    *z,
                              const struct tsr_planning_covering *c, uint64_t layer,
                              struct alike g[TSR_PLAN_GROUPS], uint32_t *n, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = z->shape;
    uint8_t                     *of = z->group_of + layer * s->experts, place[TSR_PLAN_GROUPS];
    *n = 0;
    for (uint64_t e = 0; e < s->experts; e++) {
        struct alike one = { .group = s->group_of ? s->group_of[layer * s->experts + e] : 0 };
        uint32_t     k = 0;
        for (int i = 0; i < TSR_EXPERT_LINEARS; i++)
            TSR_TRY(read_linear(z, c, layer, TSR_MODEL_GATE + i, (int64_t)e, &one.index[i], err));
        while (k < *n &&
               (g[k].group != one.group || memcmp(g[k].index, one.index, sizeof one.index) != 0))
            k++;
        if (k == TSR_PLAN_GROUPS)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: layer %llu: its experts have more than %d different schemes",
                            tsr_config_doc_path(z->f->doc), (unsigned long long)layer,
                            TSR_PLAN_GROUPS);
        if (k == *n)
            g[(*n)++] = one;
        g[k].n++;
        g[k].taken += s->routing ? s->routing[layer * s->experts + e] : 1;
        of[e] = (uint8_t)k;
    }
    sort_groups(g, *n, place);
    for (uint64_t e = 0; e < s->experts; e++)
        of[e] = place[of[e]];
    return TSR_OK;
}

/* Index of the mix of these candidates among the texts, where it is put if it is new. */
static tsr_status mix_of(struct tsr_planning *pl, const uint32_t *index, uint32_t n,
                         uint32_t *candidate, struct tsr_err *err)
{
    char   text[TSR_PLAN_PARTS * TEXT];
    size_t at = strlen(TSR_CANDIDATE_MIX);
    memcpy(text, TSR_CANDIDATE_MIX, at + 1);
    for (uint32_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? "|" : "",
                               pl->texts[index[i]]);
    for (uint64_t i = 0; i < pl->n_texts; i++)
        if (strcmp(pl->texts[i], text) == 0) {
            *candidate = (uint32_t)i;
            return TSR_OK;
        }
    *candidate = (uint32_t)pl->n_texts;
    return tsr_planning_add(pl, text, err);
}

/* The candidate of a layer: that of its linears, or a mix of theirs. */
static tsr_status read_layer(const struct tsr_planning_rules    *z,
                             const struct tsr_planning_covering *c, uint64_t layer,
                             uint32_t *candidate, struct tsr_err *err)
{
    struct alike g[TSR_PLAN_GROUPS] = { 0 };
    uint32_t     index[TSR_PLAN_PARTS], groups = 0, n = TSR_PLAN_MIXED;
    bool         same = true;
    if (z->group_of && z->shape->layer[z->shape->layer_class[layer]].router.rows)
        TSR_TRY(read_groups(z, c, layer, g, &groups, err));
    for (int i = 0; i < TSR_PLAN_MIXED; i++) {
        int  linear = (int)tsr_plan_mixed(i), of = linear - TSR_MODEL_GATE;
        bool expert = groups && of >= 0 && of < TSR_EXPERT_LINEARS;
        TSR_TRY(read_linear(z, c, layer, linear, TSR_PLANNING_NO_EXPERT, &index[i], err));
        index[i] = expert ? g[0].index[of] : index[i];
    }
    for (uint32_t k = 1; k < groups; k++)
        for (int i = 0; i < TSR_EXPERT_LINEARS; i++)
            index[n++] = g[k].index[i];
    for (uint32_t i = 0; i < n; i++)
        same = same && index[i] == index[0];
    *candidate = index[0];
    return same || tsr_config_diag_errors(z->d) ? TSR_OK : mix_of(z->pl, index, n, candidate, err);
}

/* An entry whose names no linear has. */
static void unused(const struct tsr_planning_rules *z, uint64_t entry)
{
    const struct tsr_config_node *t = tsr_config_node_get(z->f->entries[entry], "tensors");
    tsr_config_diag_error(z->d, t ? &t->mark : &z->f->entries[entry]->mark,
                          "as in model.layers.3.mlp.down_proj", "no linear has this name");
}

tsr_status tsr_planning_rules_read(struct tsr_planning_rules *z, uint32_t *candidate,
                                   struct tsr_err *err)
{
    uint64_t                     before = tsr_config_diag_errors(z->d), n = z->f->n_entries;
    struct tsr_planning_covering c = { .at = tsr_new(n, sizeof *c.at) };
    tsr_status                   st = TSR_OK;
    z->used = tsr_new(n, sizeof *z->used);
    if (!c.at || !z->used)
        st = tsr_fail_nomem(err, n * sizeof *c.at, "the rules of a plan");
    else if (tells_apart(z->f))
        st = open_experts(z, err);
    for (uint64_t l = 0; l < z->f->layers && st == TSR_OK && tsr_config_diag_errors(z->d) == before;
         l++) {
        st = tsr_planning_rules_cover(z->f, l, &c, err);
        if (st == TSR_OK)
            st = read_layer(z, &c, l, &candidate[l], err);
    }
    for (uint64_t i = 0; i < n && st == TSR_OK; i++)
        if (!z->used[i] && tsr_config_diag_errors(z->d) == before)
            unused(z, i);
    free(c.at);
    if (st != TSR_OK)
        return st;
    return tsr_config_diag_errors(z->d) == before ? TSR_OK : tsr_config_diag_status(z->d, err);
}

void tsr_planning_rules_free(struct tsr_planning_rules *z)
{
    for (uint64_t i = 0; z->experts && i < z->f->n_entries; i++)
        free(z->experts[i]);
    free(z->experts);
    free(z->group_of);
    free(z->used);
    tsr_plan_shape_destroy(z->own);
}

/* Whether a linear of the layer is meant: of experts that rules tell apart, one of them. */
static bool is_meant(const struct tsr_planning_rules *z, uint64_t entry, uint64_t layer, int linear)
{
    const struct tsr_config_node *e = z->f->entries[entry];
    const bool                   *in = z->experts ? z->experts[entry] : NULL;
    const struct tsr_plan_shape  *s = z->group_of ? z->shape : NULL;
    if (tsr_planning_rules_names(e, in, layer, linear, TSR_PLANNING_NO_EXPERT))
        return true;
    for (int64_t i = 0; s && i < (int64_t)s->experts &&
                        tsr_plan_shape_is_expert(&s->layer[s->layer_class[layer]], linear);
         i++)
        if (tsr_planning_rules_names(e, in, layer, linear, i))
            return true;
    return false;
}

/* Whether one of the model's linears is meant: a layer lacks those of the other forms of attention. */
static tsr_status is_used(const struct tsr_planning_rules *z, uint64_t entry, bool *used,
                          struct tsr_err *err)
{
    const struct tsr_plan_shape *shape = z->pl->problem.shape;
    *used = false;
    for (uint64_t l = 0; l < z->f->layers && !*used; l++) {
        const struct tsr_plan_shape_layer *s = &shape->layer[shape->layer_class[l]];
        bool                               covers;
        TSR_TRY(tsr_plan_file_covers(z->f, z->f->entries[entry], l, &covers, err));
        for (int i = 0; i < TSR_PLAN_MIXED && covers && !*used; i++)
            *used = s->lin[tsr_plan_mixed(i)].rows && is_meant(z, entry, l, (int)tsr_plan_mixed(i));
    }
    return TSR_OK;
}

tsr_status tsr_planning_rules_settle(const struct tsr_planning_rules *z, uint32_t *candidate,
                                     struct tsr_err *err)
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
        for (int i = 0; i < TSR_PLAN_LINEARS && c->mixed; i++)
            for (uint32_t g = 0; g < tsr_plan_shape_groups(p->shape) && same; g++) {
                const struct tsr_plan_candidate *part = tsr_plan_candidate_part(c, i, g);
                if (s->lin[i].rows == 0 || tsr_plan_shape_matrices(p->shape, s, i, g) == 0)
                    continue;
                same = !one || part == one;
                one = part;
            }
        if (same && one)
            candidate[l] = (uint32_t)(one - p->candidates.v);
    }
    return tsr_config_diag_errors(z->d) == before ? TSR_OK : tsr_config_diag_status(z->d, err);
}
