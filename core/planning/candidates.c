/* The candidates of a plan step, from its keys `bits` or `candidates`. */
#include "planning/planning.h"

#include "base/mem.h"
#include "pipeline/job.h"
#include "pipeline/step.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "step 'plan'"
#define TEXT 400 /* of a candidate */

bool tsr_planning_own(const char *key)
{
    for (uint64_t i = 0; i < TSR_PLAN_OPTIONS; i++)
        if (strcmp(tsr_plan_step_options[i].name, key) == 0)
            return true;
    return false;
}

tsr_status tsr_planning_add(struct tsr_planning *pl, const char *text, struct tsr_err *err)
{
    char **v = tsr_renew(pl->texts, pl->n_texts + 1, sizeof *v), *copy = tsr_strdup(text);
    if (v)
        pl->texts = v;
    if (!v || !copy) {
        free(copy);
        return tsr_fail_nomem(err, strlen(text), "candidates");
    }
    v[pl->n_texts++] = copy;
    return TSR_OK;
}

static bool is_original(const char *text)
{
    return strcmp(text, "16") == 0 || strcmp(text, "original") == 0 || strcmp(text, "f16") == 0 ||
           strcmp(text, "bf16") == 0;
}

/* "key=value" of the scalars in a map that pass; false with an error at the place of a value that is not a
 * scalar, or that the text of options cannot hold. */
static bool add_keys(char text[TEXT], const struct tsr_config_node *map, bool step,
                     const char *skip, struct tsr_diag *d)
{
    for (uint64_t i = 0; i < map->n; i++) {
        const struct tsr_config_node *key = map->keys[i], *value = map->items[i];
        size_t                        at = strlen(text);
        if ((step && tsr_planning_own(key->text)) || strcmp(key->text, skip) == 0)
            continue;
        if (value->kind != TSR_CONFIG_NODE_SCALAR || strchr(value->text, ',') ||
            at + strlen(key->text) + strlen(value->text) + 3 > TEXT) {
            tsr_config_diag_error(d, &value->mark, NULL, "'%s' is not one short value", key->text);
            return false;
        }
        (void)snprintf(text + at, TEXT - at, "%s%s=%s", strchr(text, ':') ? "," : ":", key->text,
                       value->text);
    }
    return true;
}

tsr_status tsr_planning_try(struct tsr_registry *r, const char *text,
                            const struct tsr_config_node *at, struct tsr_diag *d,
                            struct tsr_err *err)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plugin_spec spec = { 0 };
    if (is_original(text))
        return TSR_OK;
    tsr_status st = tsr_plugin_spec_open(&spec, r, TSR_KIND_QUANTIZER, text, &e.err);
    tsr_plugin_spec_close(&spec);
    if (st == TSR_E_INPUT || st == TSR_E_CONFIG)
        tsr_config_diag_failure(d, &at->mark, &e.err);
    else if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    return TSR_OK;
}

static tsr_status add(struct tsr_planning *pl, const struct tsr_pipeline_job *job, const char *text,
                      const struct tsr_config_node *at, struct tsr_diag *d, struct tsr_err *err)
{
    for (uint64_t i = 0; i < pl->n_texts; i++)
        if (strcmp(pl->texts[i], text) == 0 || (is_original(text) && is_original(pl->texts[i]))) {
            tsr_config_diag_error(d, &at->mark, "keep one of them",
                                  "the candidate '%.80s' comes twice", text);
            return TSR_OK;
        }
    TSR_TRY(tsr_planning_try(job->registry, text, at, d, err));
    return tsr_planning_add(pl, text, err);
}

/* One width of `bits`. */
static tsr_status add_width(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                            const struct tsr_planning_plan_keys *k,
                            const struct tsr_config_node *node, const char *width,
                            const struct tsr_config_node *at, struct tsr_diag *d,
                            struct tsr_err *err)
{
    char text[TEXT];
    if (is_original(width))
        return add(pl, job, "original", at, d, err);
    if (!*width || strlen(width) > 2 || strspn(width, "0123456789") != strlen(width)) {
        tsr_config_diag_error(d, &at->mark, "write bits: [3, 4, 8, 16]", "'%.40s' is not a width",
                              width);
        return TSR_OK;
    }
    (void)snprintf(text, sizeof text, "%.100s:bits=%lu", k->use, strtoul(width, NULL, 10));
    if (node->kind == TSR_CONFIG_NODE_MAP && !add_keys(text, node, true, "bits", d))
        return TSR_OK;
    return add(pl, job, text, at, d, err);
}

/* The quantizer and the options next to it; each wrong key is reported once, at its place. */
static tsr_status check_use(const struct tsr_pipeline_job       *job,
                            const struct tsr_planning_plan_keys *k,
                            const struct tsr_config_node *node, struct tsr_diag *d,
                            struct tsr_err *err)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "use");
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct tsr_plugin_found       found;
    struct tsr_config_node        map = *node;
    uint64_t                      n = node->kind == TSR_CONFIG_NODE_MAP ? node->n : 0;
    tsr_status                    st =
        tsr_plugin_registry_find(job->registry, TSR_KIND_QUANTIZER, k->use, &found, &e.err);
    if (st == TSR_E_INPUT)
        tsr_config_diag_failure(d, at ? &at->mark : &node->mark, &e.err);
    if (st != TSR_OK)
        return st == TSR_E_INPUT ? TSR_OK : tsr_err_copy(err, st, &e.err);
    const struct tsr_component *c = found.component;
    map.keys = tsr_new(2 * n + 1, sizeof(struct tsr_config_node *));
    void *opts = tsr_new_aligned(1, c->options_size);
    if (map.keys && opts) {
        struct tsr_config_optset set = { c->options, c->n_options, c->option_stride, opts };
        const char              *own[TSR_PLAN_OPTIONS + 1] = { NULL }; /* are meant, too */
        char                     what[120];
        for (uint64_t i = 0; i < TSR_PLAN_OPTIONS; i++)
            own[i] = tsr_plan_step_options[i].name;
        map.items = map.keys + n;
        map.n = 0;
        for (uint64_t i = 0; i < n; i++)
            if (!tsr_planning_own(node->keys[i]->text)) {
                map.keys[map.n] = node->keys[i];
                map.items[map.n++] = node->items[i];
            }
        memset(opts, 0, c->options_size);
        (void)snprintf(what, sizeof what, WHAT " with quantizer '%.60s'", k->use);
        tsr_config_options_fill(&set, 1, own, &map, what, d);
    } else {
        st = tsr_fail_nomem(err, n * 16, "options");
    }
    free(map.keys);
    free(opts);
    return st;
}

static tsr_status read_bits(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                            const struct tsr_planning_plan_keys *k,
                            const struct tsr_config_node *node, struct tsr_diag *d,
                            struct tsr_err *err)
{
    static const char *const      usual[] = { "3", "4", "8", "16" };
    const struct tsr_config_node *list = k->bits;
    uint64_t                      before = tsr_config_diag_errors(d);
    TSR_TRY(check_use(job, k, node, d, err));
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK; /* each bit width would report the same */
    if (!list || list->kind == TSR_CONFIG_NODE_NULL) {
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
            TSR_TRY(add_width(pl, job, k, node, usual[i], node, d, err));
        return TSR_OK;
    }
    if (list->kind == TSR_CONFIG_NODE_SCALAR) { /* "3,4,8" of a command line */
        for (const char *s = list->text;;) {
            size_t n = strcspn(s, ",");
            char   one[8];
            (void)snprintf(one, sizeof one, "%.*s", (int)(n < 7 ? n : 7), s);
            TSR_TRY(add_width(pl, job, k, node, one, list, d, err));
            if (!s[n])
                return TSR_OK;
            s += n + 1;
        }
    }
    if (list->kind != TSR_CONFIG_NODE_LIST || !list->n)
        tsr_config_diag_error(d, &list->mark, "write bits: [3, 4, 8, 16]", "'bits' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
    for (uint64_t i = 0; list->kind == TSR_CONFIG_NODE_LIST && i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        TSR_TRY(add_width(pl, job, k, node, item->kind == TSR_CONFIG_NODE_SCALAR ? item->text : "",
                          item, d, err));
    }
    return TSR_OK;
}

static tsr_status add_candidate(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                                const struct tsr_config_node *item, struct tsr_diag *d,
                                struct tsr_err *err)
{
    char text[TEXT];
    if (item->kind == TSR_CONFIG_NODE_SCALAR)
        return add(pl, job, item->text, item, d, err);
    const struct tsr_config_node *use =
        item->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(item, "use") : NULL;
    if (!use || use->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &item->mark, "write {use: gptq, bits: 4} or original",
                              "a candidate does not say which quantizer");
        return TSR_OK;
    }
    (void)snprintf(text, sizeof text, "%.100s", use->text);
    return add_keys(text, item, false, "use", d) ? add(pl, job, text, item, d, err) : TSR_OK;
}

tsr_status tsr_planning_candidates(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                                   const struct tsr_planning_plan_keys *k,
                                   const struct tsr_config_node *node, struct tsr_diag *d,
                                   struct tsr_err *err)
{
    const struct tsr_config_node *list = k->candidates;
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return read_bits(pl, job, k, node, d, err);
    if (k->bits && k->bits->kind != TSR_CONFIG_NODE_NULL)
        tsr_config_diag_error(d, &k->bits->mark, NULL,
                              "'bits' and 'candidates' are given; keep one");
    for (uint64_t i = 0; node->kind == TSR_CONFIG_NODE_MAP && i < node->n; i++)
        if (!tsr_planning_own(node->keys[i]->text) && node->items[i]->kind != TSR_CONFIG_NODE_NULL)
            tsr_config_diag_error(d, &node->keys[i]->mark, "options stand in each candidate",
                                  "unknown key '%.60s' in " WHAT " with candidates",
                                  node->keys[i]->text);
    const struct tsr_config_node *use =
        node->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(node, "use") : NULL;
    char from[40] = "default";
    if (use)
        tsr_config_mark_text(&use->mark, from, sizeof from);
    if (strcmp(from, "default") != 0)
        tsr_config_diag_error(d, &use->mark, "each candidate names its quantizer",
                              "'use' is for 'bits'; with 'candidates' it would do nothing");
    if (list->kind != TSR_CONFIG_NODE_LIST || !list->n) {
        tsr_config_diag_error(d, &list->mark, "write [{use: gptq, bits: 4}, original]",
                              "'candidates' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
        return TSR_OK;
    }
    for (uint64_t i = 0; i < list->n; i++)
        TSR_TRY(add_candidate(pl, job, list->items[i], d, err));
    return TSR_OK;
}

json_t *tsr_planning_counts(const struct tsr_plan_problem *p, const struct tsr_plan_outcome *o,
                            uint64_t first, uint64_t n)
{
    json_t *j = json_object();
    bool    ok = j != NULL;
    for (uint64_t c = 0; c < p->candidates.n; c++) {
        uint64_t m = 0;
        for (uint64_t l = first; l < first + n; l++)
            m += o->bits[l] == c;
        if (m)
            ok = ok && tsr_pipeline_json_put_int(j, p->candidates.v[c].name, m);
    }
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}
