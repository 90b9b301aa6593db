/* The keys of a plan step about codecs and widths: lists to choose from, and one width for all. */
#include "planning/planning.h"

#include "base/mem.h"
#include "pipeline/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CODECS 16u /* of one list */
#define MOST_TP     1024

static bool given(const struct tsr_config_node *n)
{
    return n && n->kind != TSR_CONFIG_NODE_NULL;
}

/* A codec that exists, with options that it has; between stages one that needs no calibration.  Else an error at its
 * place. */
static tsr_status check_codec(const struct tsr_pipeline_job *job, const char *text, bool link,
                              const struct tsr_config_node *at, struct tsr_diag *d,
                              struct tsr_err *err)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_plan_wire w;
    tsr_status           st = tsr_plan_wire_open(&w, job->registry, text, &e.err);
    if (st == TSR_OK && link && w.iface->observe)
        tsr_config_diag_error(d, &at->mark, "list it under 'sums'",
                              "'%s' must be calibrated, which is done for sums inside a stage only",
                              text);
    tsr_plan_wire_close(&w);
    if (st == TSR_E_INPUT || st == TSR_E_CONFIG)
        tsr_config_diag_failure(d, &at->mark, &e.err);
    else if (st != TSR_OK)
        return tsr_err_copy(err, st, &e.err);
    return TSR_OK;
}

/* [plain, "mx:format=e2m1"] into *to, whose texts are the node's. */
static tsr_status read_list(const struct tsr_pipeline_job *job, const struct tsr_config_node *list,
                            const char *key, const char ***to, uint64_t *n, struct tsr_diag *d,
                            struct tsr_err *err)
{
    if (list->kind != TSR_CONFIG_NODE_LIST || !list->n || list->n > MOST_CODECS) {
        bool is_list = list->kind == TSR_CONFIG_NODE_LIST;
        tsr_config_diag_error(d, &list->mark, "write [plain, 'plain:dtype=bf16']",
                              "'%s' is %s of 1 to %u codecs", key,
                              is_list ? "a list, but not" : "not a list", MOST_CODECS);
        return TSR_OK;
    }
    *to = tsr_new(list->n, sizeof **to);
    if (!*to)
        return tsr_fail_nomem(err, list->n * sizeof **to, "codecs");
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *one = list->items[i];
        if (one->kind != TSR_CONFIG_NODE_SCALAR || !*one->text) {
            tsr_config_diag_error(d, &one->mark, "write plain for F32",
                                  "an entry of '%s' is not the name of a codec", key);
            continue;
        }
        for (uint64_t k = 0; k < *n; k++)
            if (strcmp((*to)[k], one->text) == 0)
                tsr_config_diag_error(d, &one->mark, "keep one of them", "'%s' comes twice in '%s'",
                                      one->text, key);
        TSR_TRY(check_codec(job, one->text, strcmp(key, "codecs") == 0, one, d, err));
        (*to)[(*n)++] = one->text;
    }
    return TSR_OK;
}

/* `tp: auto`, or a number: the only width, where the node's devices and the model allow it. */
static void read_width(struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                       const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "tp");
    char                         *end;
    errno = 0;
    long tp = strtol(k->tp, &end, 10);
    if (strcmp(k->tp, "auto") == 0)
        return;
    if (errno || *end || end == k->tp || tp < 1 || tp > MOST_TP)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, NULL,
                              "'tp' is '%.40s'; expected auto, or a width of 1 to %d", k->tp,
                              MOST_TP);
    else if (k->min_tp || k->max_tp)
        tsr_config_diag_error(d, at ? &at->mark : &node->mark, "keep one of them",
                              "'tp' fixes the width that 'min_tp' and 'max_tp' limit");
    else
        pl->options.min_tp = pl->options.max_tp = (uint32_t)tp;
}

/* Of a key with text, which a job that does not say has. */
static const char *default_of(const char *key)
{
    for (uint64_t i = 0; i < TSR_PLAN_OPTIONS; i++)
        if (strcmp(tsr_plan_step_options[i].name, key) == 0)
            return tsr_plan_step_options[i].def.s;
    return "";
}

tsr_status tsr_planning_codecs(struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                               const struct tsr_planning_plan_keys *k,
                               const struct tsr_config_node *node, struct tsr_diag *d,
                               struct tsr_err *err)
{
    const struct {
        const char                   *key, *single, *value;
        const struct tsr_config_node *list;
        const char                 ***to;
        uint64_t                     *n;
    } keys[] = { { "codecs", "codec", k->codec, k->codecs, &pl->links, &pl->options.n_links },
                 { "sums", "tp_codec", k->tp_codec, k->sums, &pl->sums, &pl->options.n_sums } };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!given(keys[i].list))
            continue;
        if (strcmp(keys[i].value, default_of(keys[i].single)) != 0)
            tsr_config_diag_error(d, &keys[i].list->mark, "keep one of them",
                                  "'%s' lists what '%s' fixes", keys[i].key, keys[i].single);
        TSR_TRY(read_list(job, keys[i].list, keys[i].key, keys[i].to, keys[i].n, d, err));
    }
    pl->options.links = (const char *const *)pl->links;
    pl->options.sums = (const char *const *)pl->sums;
    read_width(pl, k, node, d);
    return TSR_OK;
}

/* ---- as JSON ------------------------------------------------------------------------- */

static const char *codec_name(const struct tsr_plan_codec *c, int phase)
{
    const char *text = c->wire[phase].text;
    return text && *text ? text : "plain";
}

bool tsr_planning_put_codecs(json_t *j, const struct tsr_plan_problem *p)
{
    const struct {
        const char                  *key;
        const struct tsr_plan_codec *v;
        uint64_t                     n;
    } lists[] = { { "codecs", p->links, p->n_links }, { "sums", p->sums, p->n_sums } };
    bool ok = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = lists[i].n > 1 ? json_array() : NULL;
        for (uint64_t c = 0; c < lists[i].n && list; c++)
            ok = ok && json_array_append_new(list, json_string(codec_name(&lists[i].v[c], 0))) == 0;
        ok = ok && (lists[i].n <= 1 || tsr_pipeline_json_put(j, lists[i].key, list));
    }
    return ok;
}

/* {"prefill": NAME, "decode": NAME} */
static json_t *names(const struct tsr_plan_codec *c)
{
    return json_pack("{s:s, s:s}", "prefill", codec_name(c, TSR_PLAN_PREFILL), "decode",
                     codec_name(c, TSR_PLAN_DECODE));
}

bool tsr_planning_put_stage_codecs(json_t *j, const struct tsr_plan_problem *p,
                                   const struct tsr_plan_outcome *o, uint64_t stage)
{
    const struct tsr_plan_outcome_stage *s = &o->stages[stage];
    return (stage + 1 == o->n_stages ||
            tsr_pipeline_json_put(j, "send", names(&p->links[s->link]))) &&
           (s->mesh.tp == 1 || tsr_pipeline_json_put(j, "collective", names(&p->sums[s->sum])));
}

bool tsr_planning_put_ignored(json_t *j, const struct tsr_plan_planned *a)
{
    json_t *list = a->ignored ? json_array() : NULL;
    bool    ok = !a->ignored || list;
    if (a->ignored & TSR_PLAN_IGNORED_WIDTHS)
        ok = ok && json_array_append_new(list, json_string("mixed widths")) == 0;
    if (a->ignored & TSR_PLAN_IGNORED_CODECS)
        ok = ok && json_array_append_new(list, json_string("a choice of codecs")) == 0;
    if (a->ignored & TSR_PLAN_IGNORED_COSTS)
        ok = ok && json_array_append_new(list, json_string("codecs where they are used")) == 0;
    return ok && (!list || tsr_pipeline_json_put(j, "ignored", list));
}
