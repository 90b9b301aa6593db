/* indicators with measure: kl: its keys as choices, and its result for people. */
#include "base/mem.h"
#include "pipeline/job.h"
#include "pipeline/steps/indicators_step.h"
#include "plugin/kv_codec.h"
#include "quant/kl.h"

#include <stdlib.h>
#include <string.h>

#define WHAT  "step 'indicators'"
#define TEXT  400 /* of a scheme */
#define RANKS 2   /* that share a sum */
#define LINK  "plain:dtype=bf16"
/* in the job folder, while compensation is measured */
#define FOLDER "packed.indicators"

/* What the keys name. */
struct choices {
    struct tsr_quant_kl_options o;
    struct indicator_widths    *widths; /* owns the schemes of 'bits' */
    struct tsr_quant_scheme    *own[TSR_KL_CHOICES];
    char                       *folder;
    char                        text[TSR_KL_CHOICES][TEXT], end[TSR_KL_CHOICES][TEXT];
};

static void choices_close(struct choices *z)
{
    for (uint32_t i = 0; z && i < TSR_KL_CHOICES; i++)
        tsr_quant_scheme_destroy(z->own[i]);
    if (z) {
        tsr_step_widths_close(z->widths);
        free(z->folder);
    }
    free(z);
}

static const struct tsr_config_node *given(const struct tsr_config_node *n)
{
    return n && n->kind != TSR_CONFIG_NODE_NULL ? n : NULL;
}

/* ---- schemes ------------------------------------------------------------------------------ */

/* {use: gptq, bits: 4} as "gptq:bits=4". */
static bool scheme_text(const struct tsr_config_node *map, char text[TEXT], struct tsr_diag *d)
{
    static const char *const      never[] = { "rules", "sequential", "on_unsupported" };
    const struct tsr_config_node *use =
        map->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(map, "use") : NULL;
    if (!use || use->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &map->mark, "write {use: gptq, bits: 4}",
                              "a scheme does not say which quantizer");
        return false;
    }
    (void)snprintf(text, TEXT, "%.100s", use->text);
    for (uint64_t i = 0; i < map->n; i++) {
        const struct tsr_config_node *key = map->keys[i], *value = map->items[i];
        size_t                        at = strlen(text);
        bool                          bad = value->kind != TSR_CONFIG_NODE_SCALAR;
        if (strcmp(key->text, "use") == 0)
            continue;
        for (size_t k = 0; k < sizeof never / sizeof *never; k++)
            bad = bad || strcmp(key->text, never[k]) == 0;
        if (bad || strchr(value->text, ',') ||
            at + strlen(key->text) + strlen(value->text) + 3 > TEXT) {
            tsr_config_diag_error(d, &key->mark, "a scheme is one quantizer with its options",
                                  "'%.60s' cannot be part of a scheme that is measured", key->text);
            return false;
        }
        (void)snprintf(text + at, TEXT - at, "%s%s=%s", strchr(text, ':') ? "," : ":", key->text,
                       value->text);
    }
    return true;
}

static tsr_status add_scheme(struct choices *z, struct tsr_pipeline_job *job,
                             const struct tsr_config_node *map, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct tsr_quant_kl_options *o = &z->o;
    uint32_t                     n = o->n_schemes;
    if (n == TSR_KL_CHOICES) {
        tsr_config_diag_error(d, &map->mark, NULL, "more than %u schemes", TSR_KL_CHOICES);
        return TSR_OK;
    }
    if (!scheme_text(map, z->text[n], d))
        return TSR_OK;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(z->text[i], z->text[n]) == 0) {
            tsr_config_diag_error(d, &map->mark, "keep one of them",
                                  "the scheme '%.80s' comes twice", z->text[n]);
            return TSR_OK;
        }
    TSR_TRY(tsr_quant_scheme_create(&z->own[n], job->registry, map, NULL, WHAT, d, err));
    o->scheme_text[n] = z->text[n];
    o->scheme[n] = z->own[n];
    o->scheme_map[n] = map;
    o->n_schemes++;
    return TSR_OK;
}

static tsr_status read_schemes(struct choices *z, struct tsr_pipeline_job *job,
                               const struct indicators_options *o,
                               const struct tsr_config_node *node, struct tsr_diag *d,
                               struct tsr_err *err)
{
    const struct tsr_config_node *list = given(o->schemes);
    if (list && given(o->quantize))
        tsr_config_diag_error(d, &list->mark, "keep one of them",
                              "'schemes' and 'quantize' both say what is measured");
    if (list && (list->kind != TSR_CONFIG_NODE_LIST || !list->n)) {
        tsr_config_diag_error(d, &list->mark, "write [{use: gptq, bits: 4}]", "'schemes' is %s",
                              list->kind == TSR_CONFIG_NODE_LIST ? "an empty list" : "not a list");
        return TSR_OK;
    }
    for (uint64_t i = 0; list && i < list->n; i++)
        TSR_TRY(add_scheme(z, job, list->items[i], d, err));
    if (list || tsr_config_diag_errors(d))
        return TSR_OK;
    TSR_TRY(tsr_step_widths_open(&z->widths, job, o, node, err));
    for (uint32_t i = 0; i < z->widths->n; i++) {
        uint32_t n = z->o.n_schemes;
        if (!z->widths->scheme[i] || !scheme_text(&z->widths->map[i], z->text[n], d))
            continue;
        z->o.scheme_text[n] = z->text[n];
        z->o.scheme[n] = z->widths->scheme[i];
        z->o.scheme_map[n] = &z->widths->map[i];
        z->o.n_schemes++;
    }
    return TSR_OK;
}

/* [{use: rtn, bits: 8}]: quantizers of embedding and head. */
static tsr_status read_ends(struct choices *z, struct tsr_pipeline_job *job,
                            const struct tsr_config_node *list, struct tsr_diag *d,
                            struct tsr_err *err)
{
    if (list->kind != TSR_CONFIG_NODE_LIST || list->n > TSR_KL_CHOICES) {
        tsr_config_diag_error(d, &list->mark, "write [{use: rtn, bits: 8}]",
                              "'ends' is not a list of at most %u quantizers", TSR_KL_CHOICES);
        return TSR_OK;
    }
    for (uint64_t i = 0; i < list->n; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        uint32_t          n = z->o.n_ends;
        if (!scheme_text(list->items[i], z->end[n], d))
            continue;
        tsr_status st = tsr_quant_kl_end(job->registry, z->end[n], &e.err);
        if (st == TSR_E_INPUT || st == TSR_E_CONFIG)
            tsr_config_diag_failure(d, &list->items[i]->mark, &e.err);
        else if (st != TSR_OK)
            return tsr_err_copy(err, st, &e.err);
        z->o.end[z->o.n_ends++] = z->end[n];
    }
    return TSR_OK;
}

/* ---- caches and codecs -------------------------------------------------------------------- */

/* "f16,int8" or "none". */
static void read_kv(struct choices *z, struct tsr_registry *r, const char *text,
                    const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "kv");
    for (const char *s = text; strcmp(text, "none") != 0;) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        size_t            n = strcspn(s, ",");
        uint32_t          kv;
        tsr_status        st = tsr_plugin_kv_resolve(r, s, n, &kv, &e.err);
        for (uint32_t i = 0; i < z->o.n_kv && st == TSR_OK; i++)
            if (z->o.kv[i] == kv || i + 1 == TSR_KL_CHOICES)
                st = tsr_fail(&e.err, TSR_E_INPUT,
                              "'kv' is not a list of at most %u different types of the KV cache",
                              TSR_KL_CHOICES);
        if (st != TSR_OK) {
            tsr_config_diag_failure(d, at ? &at->mark : &node->mark, &e.err);
            return;
        }
        z->o.kv[z->o.n_kv++] = kv;
        s += n;
        if (!*s++)
            return;
    }
}

/* "8,32" or "none". */
static void read_channels(struct choices *z, const char *text, const struct tsr_config_node *node,
                          struct tsr_diag *d)
{
    const struct tsr_config_node *at = tsr_config_node_get(node, "compensate");
    for (const char *s = text; strcmp(text, "none") != 0;) {
        char         *end;
        unsigned long k = *s >= '0' && *s <= '9' ? strtoul(s, &end, 10) : 0;
        if (k < 1 || k > 1024 || (*end && *end != ',') || z->o.n_k == TSR_KL_CHANNELS ||
            (z->o.n_k && k <= z->o.k[z->o.n_k - 1])) {
            tsr_config_diag_error(d, at ? &at->mark : &node->mark, "write compensate: \"8,32\"",
                                  "'compensate' is not a list of at most %u ascending numbers of "
                                  "channels, from 1 to 1024",
                                  TSR_KL_CHANNELS);
            return;
        }
        z->o.k[z->o.n_k++] = (uint32_t)k;
        if (!*end)
            return;
        s = end + 1;
    }
}

static tsr_status read_codecs(struct tsr_pipeline_job *job, const struct tsr_config_node *list,
                              const char *key, const char **v, uint32_t *n, struct tsr_diag *d,
                              struct tsr_err *err)
{
    if (list->kind != TSR_CONFIG_NODE_LIST || list->n > TSR_KL_CHOICES) {
        tsr_config_diag_error(d, &list->mark, "write [\"plain:dtype=bf16\"]",
                              "'%s' is not a list of at most %u codecs", key, TSR_KL_CHOICES);
        return TSR_OK;
    }
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *item = list->items[i];
        struct tsr_errbuf             e = TSR_ERRBUF(e);
        const char                   *text = item->kind == TSR_CONFIG_NODE_SCALAR ? item->text : "";
        tsr_status                    st = tsr_quant_kl_codec(job->registry, text, &e.err);
        if (st == TSR_E_INPUT || st == TSR_E_CONFIG)
            tsr_config_diag_failure(d, &item->mark, &e.err);
        else if (st != TSR_OK)
            return tsr_err_copy(err, st, &e.err);
        v[(*n)++] = text;
    }
    return TSR_OK;
}

static tsr_status choices_read(struct choices *z, struct tsr_pipeline_job *job,
                               const struct indicators_options *o,
                               const struct tsr_config_node *node, struct tsr_diag *d,
                               struct tsr_err *err)
{
    z->o.probes = (uint64_t)o->probes;
    z->o.plans = (uint32_t)o->plans;
    z->o.sequences = (uint64_t)o->sequences;
    z->o.ranks = RANKS;
    if (o->budget > 0)
        tsr_config_diag_error(d, &node->mark, "the step plan chooses by KL",
                              "'budget' is about tables by bit width");
    read_kv(z, job->registry, o->kv, node, d);
    read_channels(z, o->compensate, node, d);
    if (given(o->codecs))
        TSR_TRY(read_codecs(job, o->codecs, "codecs", z->o.link, &z->o.n_links, d, err));
    else
        z->o.link[z->o.n_links++] = LINK;
    if (given(o->sums))
        TSR_TRY(read_codecs(job, o->sums, "sums", z->o.sum, &z->o.n_sums, d, err));
    if (given(o->ends))
        TSR_TRY(read_ends(z, job, o->ends, d, err));
    return read_schemes(z, job, o, node, d, err);
}

static tsr_status choices_open(struct choices **out, struct tsr_pipeline_job *job,
                               const struct indicators_options *o,
                               const struct tsr_config_node *node, struct tsr_err *err)
{
    struct choices  *z = tsr_new(1, sizeof *z);
    struct tsr_diag *d = NULL;
    if (!z)
        return tsr_fail_nomem(err, sizeof *z, WHAT);
    tsr_status st = tsr_config_diag_create(&d, err);
    if (st == TSR_OK)
        st = choices_read(z, job, o, node, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK) {
        choices_close(z);
        return st;
    }
    *out = z;
    return TSR_OK;
}

/* ---- the step ----------------------------------------------------------------------------- */

tsr_status tsr_step_kl_check(struct tsr_pipeline_job *job, const struct indicators_options *o,
                             const struct tsr_config_node *node, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct choices *z = tsr_new(1, sizeof *z);
    if (!z)
        return tsr_fail_nomem(err, sizeof *z, WHAT);
    tsr_status st = choices_read(z, job, o, node, d, err);
    choices_close(z);
    return st;
}

void tsr_step_kl_none(const struct indicators_options *o, struct tsr_diag *d)
{
    const struct tsr_config_node *own[] = { o->schemes, o->codecs, o->sums, o->ends };
    static const char *const      names[] = { "schemes", "codecs", "sums", "ends" };
    for (size_t i = 0; i < 4; i++)
        if (given(own[i]))
            tsr_config_diag_error(d, &own[i]->mark, "add measure: kl", "'%s' is of measure: kl",
                                  names[i]);
}

tsr_status tsr_step_kl_need(struct tsr_pipeline_job *job, const struct indicators_options *o,
                            const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err)
{
    struct choices *z = NULL;
    tsr_status      st = choices_open(&z, job, o, node, err);
    *need = TSR_NEED_MEAN | TSR_NEED_VARIANCE;
    for (uint32_t i = 0; st == TSR_OK && i < z->o.n_schemes; i++) {
        uint64_t one = 0;
        st = tsr_quant_scheme_needs(z->o.scheme[i], job->registry, job->model, &one, err);
        *need |= one;
    }
    choices_close(z);
    return st;
}

tsr_status tsr_step_kl_run(struct tsr_pipeline_job *job, const struct indicators_options *o,
                           const struct tsr_config_node *node, struct tsr_quant_calibration *c,
                           uint64_t seed, json_t **out, struct tsr_err *err)
{
    struct choices     *z = NULL;
    struct tsr_quant_kl t;
    TSR_TRY(choices_open(&z, job, o, node, err));
    z->o.seed = seed;
    tsr_status st = z->o.n_k ? tsr_pipeline_job_in_folder(job, FOLDER, &z->folder, err) : TSR_OK;
    z->o.folder = z->folder;
    if (st == TSR_OK)
        st = tsr_quant_kl_run(&t, job->registry, job->model, c, &z->o, err);
    if (st == TSR_OK) {
        *out = tsr_quant_kl_json(&t, job->model, c, &z->o);
        tsr_quant_kl_free(&t);
        st = *out ? TSR_OK : tsr_fail_nomem(err, 0, "the indicators");
    }
    choices_close(z);
    return st;
}

/* ---- for people --------------------------------------------------------------------------- */

static double real(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static double sum_of(const json_t *list)
{
    const json_t *v;
    size_t        i;
    double        sum = 0;
    json_array_foreach (list, i, v)
        sum += json_number_value(v);
    return sum;
}

static void print_choices(const json_t *r, const char *key, const char *name, const char *what,
                          FILE *to)
{
    const json_t *v;
    size_t        i;
    json_array_foreach (json_object_get(r, key), i, v)
        (void)fprintf(to, "%-44s %10.4g  +-%.2g  %s\n", json_string_value(json_object_get(v, name)),
                      real(v, "kl"), real(v, "half"), what);
}

void tsr_step_kl_print(const json_t *r, FILE *to)
{
    const json_t *v, *cost = json_object_get(r, "cost");
    size_t        i;
    (void)fprintf(to, "KL to the original in nats per token, over %lld tokens\n",
                  (long long)json_integer_value(json_object_get(r, "tokens")));
    json_array_foreach (json_object_get(r, "schemes"), i, v)
        (void)fprintf(to, "%-44s %10.4g  +-%.2g  all layers, summed\n",
                      json_string_value(json_object_get(v, "scheme")),
                      sum_of(json_object_get(v, "kl")), sum_of(json_object_get(v, "half")));
    print_choices(r, "kv", "kv", "cache", to);
    print_choices(r, "links", "codec", "one link", to);
    print_choices(r, "sums", "codec", "sums of two devices in all layers", to);
    json_array_foreach (json_object_get(r, "compensation"), i, v)
        (void)fprintf(to, "%-44s %9.1f%%  +-%.2g%%  left with %lld channels of 1024\n",
                      json_string_value(json_object_get(v, "scheme")), 100 * real(v, "kept"),
                      100 * (json_number_value(json_array_get(json_object_get(v, "interval"), 1)) -
                             real(v, "kept")),
                      (long long)json_integer_value(json_object_get(v, "k")));
    json_array_foreach (json_object_get(r, "ends"), i, v)
        (void)fprintf(to, "%-44s %10.4g  +-%.2g  embedding and head\n",
                      json_string_value(json_object_get(v, "scheme")), real(v, "kl"),
                      json_number_value(json_array_get(json_object_get(v, "interval"), 1)) -
                          real(v, "kl"));
    if (json_array_size(json_object_get(r, "plans")))
        (void)fprintf(to, "\n%-18s %10s %10s %10s\n", "random plans", "sum", "measured", "off");
    json_array_foreach (json_object_get(r, "plans"), i, v)
        (void)fprintf(to, "%-18zu %10.4g %10.4g %9.1f%%%s\n", i + 1, real(v, "w"), real(v, "kl"),
                      100 * (real(v, "w") / real(v, "kl") - 1),
                      json_is_true(json_object_get(v, "adds_up")) ? "" : "  does not add up");
    (void)fprintf(to, "\n%.1f forwards; %.2g min were expected, %.2g min were taken\n",
                  real(cost, "forwards"), real(cost, "said_s") / 60, real(cost, "seconds") / 60);
}
