#include "pipeline/quantize_plan.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT     "tessera.plan/1"
#define MAX_LAYERS 100000

struct head {
    const char            *format, *model;
    int64_t                layers;
    const struct tsr_node *stages;
};
struct stage {
    const char            *layers;
    const struct tsr_node *schemes;
};

#define REQUIRED_TEXT(S, f, h)                                                                     \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_STRING, .flags = TSR_OPT_REQUIRED,                  \
        .offset = TSR_FIELD(S, f, const char *), .def = {                                          \
            .s = ""                                                                                \
        }                                                                                          \
    }
static const struct tsr_option head_options[] = {
    REQUIRED_TEXT(struct head, format, "\"" FORMAT "\"."),
    TSR_OPTION_STRING(struct head, model, "", "Hash of the model that the plan is for."),
    { .name = "layers",
      .help = "Decoder layers of the model.",
      .type = TSR_OPT_INT,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct head, layers, int64_t),
      .min = { .i = 1 },
      .max = { .i = MAX_LAYERS } },
    TSR_OPTION_NODE(struct head, stages, "Runs of layers, in order."),
};
static const struct tsr_option stage_options[] = {
    REQUIRED_TEXT(struct stage, layers, "Layers, such as 0-10."),
    TSR_OPTION_NODE(struct stage, schemes, "Rules for the stage's layers."),
};

/* The two sets of layers while a file is read: of the stages so far, and of one stage's rules. */
struct reading {
    struct tsr_plan_rules *p;
    struct tsr_diag       *d;
    uint64_t               before; /* errors that d had */
    uint64_t               next;   /* the first layer that no stage has yet */
    bool                  *in, *covered;
};

static bool failed(const struct reading *r)
{
    return tsr_diag_errors(r->d) != r->before;
}

static bool is_list(const struct tsr_node *n, const struct tsr_mark *at, const char *what,
                    struct tsr_diag *d)
{
    if (n && n->kind == TSR_NODE_LIST && n->n)
        return true;
    tsr_diag_error(d, n ? &n->mark : at, NULL, "%s is not a list of at least one map", what);
    return false;
}

/* "3-7" into in[]; false after a diagnostic. */
static bool read_layers(const struct reading *r, const char *text, const struct tsr_node *map)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    const struct tsr_node *at = tsr_node_get(map, "layers");
    if (tsr_parse_ranges(text, r->p->layers, r->in, &e.err) == TSR_OK)
        return true;
    tsr_diag_error(r->d, at ? &at->mark : &map->mark, NULL, "layers: %s", e.text);
    return false;
}

static void read_entry(struct reading *r, struct tsr_node *entry, uint64_t first, uint64_t end)
{
    const struct tsr_node *layers =
        entry->kind == TSR_NODE_MAP ? tsr_node_get(entry, "layers") : NULL;
    if (!layers || layers->kind != TSR_NODE_SCALAR) {
        tsr_diag_error(r->d, &entry->mark, "write {layers: 0-10, bits: 4}",
                       "an entry of schemes does not say which layers");
        return;
    }
    if (!read_layers(r, layers->text, entry))
        return;
    for (uint64_t l = 0; l < r->p->layers; l++) {
        if (r->in[l] && (l < first || l >= end)) {
            tsr_diag_error(r->d, &layers->mark, NULL, "layer %llu is not in this stage",
                           (unsigned long long)l);
            return;
        }
        r->covered[l] = r->covered[l] || r->in[l];
    }
    r->p->items[r->p->list.n++] = entry;
}

static tsr_status take_entries(struct reading *r, const struct tsr_node *list, uint64_t first,
                               uint64_t end, struct tsr_err *err)
{
    struct tsr_plan_rules *p = r->p;
    struct tsr_node      **v = tsr_renew(p->items, p->list.n + list->n, sizeof(struct tsr_node *));
    if (!v)
        return tsr_fail_nomem(err, list->n * sizeof(struct tsr_node *), "the rules of a plan");
    p->items = v;
    for (uint64_t i = 0; i < list->n; i++)
        read_entry(r, list->items[i], first, end);
    for (uint64_t l = first; l < end; l++)
        if (!r->covered[l] && !failed(r))
            tsr_diag_error(r->d, &list->mark, NULL, "no entry of schemes is for layer %llu",
                           (unsigned long long)l);
    return TSR_OK;
}

static tsr_status read_stage(struct reading *r, const struct tsr_node *n, struct tsr_err *err)
{
    struct stage      s = { 0 };
    struct tsr_optset set = { stage_options, 2, sizeof *stage_options, &s };
    uint64_t          end;
    if (n->kind != TSR_NODE_MAP) {
        tsr_diag_error(r->d, &n->mark, NULL, "a stage is not a map");
        return TSR_OK;
    }
    tsr_options_fill(&set, 1, NULL, n, "a stage", r->d);
    if (failed(r) || !read_layers(r, s.layers, n) || !is_list(s.schemes, &n->mark, "schemes", r->d))
        return TSR_OK;
    for (end = r->next; end < r->p->layers && r->in[end]; end++)
        ;
    uint64_t count = 0;
    for (uint64_t l = 0; l < r->p->layers; l++)
        count += r->in[l];
    if (end == r->next || count != end - r->next) {
        tsr_diag_error(r->d, &tsr_node_get(n, "layers")->mark, NULL,
                       "a stage's layers are not one run that begins with layer %llu",
                       (unsigned long long)r->next);
        return TSR_OK;
    }
    uint64_t first = r->next;
    r->next = end;
    return take_entries(r, s.schemes, first, end, err);
}

static tsr_status read_stages(struct reading *r, const struct tsr_node *stages, struct tsr_err *err)
{
    for (uint64_t i = 0; i < stages->n && !failed(r); i++)
        TSR_TRY(read_stage(r, stages->items[i], err));
    if (!failed(r) && r->next < r->p->layers)
        tsr_diag_error(r->d, &stages->mark, NULL, "no stage has layer %llu of %llu",
                       (unsigned long long)r->next, (unsigned long long)r->p->layers);
    return TSR_OK;
}

static tsr_status read_plan(struct tsr_plan_rules *p, struct tsr_diag *d, struct tsr_err *err)
{
    struct head            h = { 0 };
    struct tsr_optset      set = { head_options, 4, sizeof *head_options, &h };
    const struct tsr_node *root = tsr_doc_root(p->doc);
    struct reading         r = { .p = p, .d = d, .before = tsr_diag_errors(d) };
    tsr_options_fill(&set, 1, NULL, root, "a plan", d);
    if (failed(&r))
        return TSR_OK;
    if (strcmp(h.format, FORMAT) != 0) {
        tsr_diag_error(d, &tsr_node_get(root, "format")->mark, NULL,
                       "the format is '%s', not " FORMAT, h.format);
        return TSR_OK;
    }
    if (!is_list(h.stages, &root->mark, "stages", d))
        return TSR_OK;
    p->layers = (uint64_t)h.layers;
    p->model = h.model;
    p->list = (struct tsr_node){ .kind = TSR_NODE_LIST, .mark = h.stages->mark };
    r.in = tsr_new(p->layers, sizeof *r.in);
    r.covered = tsr_new(p->layers, sizeof *r.covered);
    tsr_status st = r.in && r.covered ? read_stages(&r, h.stages, err)
                                      : tsr_fail_nomem(err, 2 * p->layers, "the layers of a plan");
    free(r.in);
    free(r.covered);
    return st;
}

static tsr_status append(struct tsr_plan_rules *p, const struct tsr_node *rules,
                         struct tsr_err *err)
{
    uint64_t n = rules && rules->kind == TSR_NODE_LIST ? rules->n : 0;
    if (n) {
        struct tsr_node **v = tsr_renew(p->items, p->list.n + n, sizeof(struct tsr_node *));
        if (!v)
            return tsr_fail_nomem(err, n * sizeof(struct tsr_node *), "the rules of a plan");
        p->items = v;
        memcpy(v + p->list.n, rules->items, n * sizeof(struct tsr_node *));
        p->list.n += n;
    }
    p->list.items = p->items;
    return TSR_OK;
}

tsr_status tsr_plan_rules_load(struct tsr_plan_rules *p, const char *path,
                               const struct tsr_node *rules, struct tsr_diag *d,
                               struct tsr_err *err)
{
    uint64_t before = tsr_diag_errors(d);
    *p = (struct tsr_plan_rules){ 0 };
    TSR_TRY(tsr_doc_load(&p->doc, path, d, err));
    if (tsr_diag_errors(d) != before)
        return TSR_OK;
    TSR_TRY(read_plan(p, d, err));
    return tsr_diag_errors(d) != before ? TSR_OK : append(p, rules, err);
}

tsr_status tsr_plan_rules_fit(const struct tsr_plan_rules *p, const struct tsr_model *m,
                              struct tsr_err *err)
{
    if (p->layers != m->hp.layers)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for %llu layers, %s has %llu; plan for this model",
                        tsr_doc_path(p->doc), (unsigned long long)p->layers, m->path,
                        (unsigned long long)m->hp.layers);
    if (*p->model && strcmp(p->model, m->hash) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the plan is for the model %s, %s is %s; plan for this model",
                        tsr_doc_path(p->doc), p->model, m->path, m->hash);
    return TSR_OK;
}

void tsr_plan_rules_free(struct tsr_plan_rules *p)
{
    free(p->items);
    tsr_doc_destroy(p->doc);
    *p = (struct tsr_plan_rules){ 0 };
}
