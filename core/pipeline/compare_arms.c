/* Arms: what stands in their maps, the schemes and models that they run. */
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/doc.h"
#include "model/tokenizer.h"
#include "pipeline/compare.h"
#include "pipeline/job.h"
#include "quant/quantize.h"
#include "quant/scheme.h"

#include <stdlib.h>
#include <string.h>

#define ORIGINAL "original"
#define MAX_NAME 60u
#define HOW      "write {quantize: {use: rtn}}, {model: FOLDER}, {plan: FILE} or {set: {KEY: VALUE}}"
#define QUANTIZE "quantize"

static void arm_what(char what[96], const char *name)
{
    (void)snprintf(what, 96, "arm '%.60s'", name);
}

tsr_status compare_arm_failed(struct compare_arm *a, tsr_status st, const char *text,
                              struct tsr_err *err)
{
    if (st == TSR_E_CANCELLED || st == TSR_E_NOMEM)
        return tsr_fail(err, st, "arm '%s': %s", a->name, text);
    if (a->status == TSR_OK) {
        a->status = st;
        (void)tsr_fail(&a->error.err, st, "%s", text);
        tsr_logf(TSR_LOG_WARN, "arm '%s' failed: %s", a->name, text);
    }
    return TSR_OK;
}

/* ---- reading ----------------------------------------------------------------------- */

/* A map of the job's document with one more pair; the value is replaced where the key is there. */
static bool put(struct compare *c, struct tsr_node *map, const char *key, size_t len,
                const struct tsr_mark *mark, const struct tsr_node *value)
{
    struct tsr_doc  *doc = c->job->doc;
    struct tsr_node *k = tsr_doc_node(doc, TSR_NODE_SCALAR, mark), *v = tsr_doc_copy(doc, value);
    if (k)
        k->text = tsr_doc_strndup(doc, key, len);
    return k && k->text && v && tsr_doc_put(doc, map, k, v);
}

/* The map below a key of a map; made where there is none, NULL where there is something else. */
static struct tsr_node *below(struct compare *c, struct tsr_node *map, const char *key, size_t len,
                              const struct tsr_mark *mark, bool *nomem)
{
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; i < map->n; i++)
            if (strlen(map->keys[i]->text) == len && memcmp(map->keys[i]->text, key, len) == 0)
                return map->items[i]->kind == TSR_NODE_MAP ? map->items[i] : NULL;
        struct tsr_node empty = { .kind = TSR_NODE_MAP, .mark = *mark, .text = "" };
        if (!put(c, map, key, len, mark, &empty)) {
            *nomem = true;
            return NULL;
        }
    }
    return NULL;
}

/* "quantize.bits" with its value into the arm's map. */
static tsr_status override(struct compare *c, struct compare_arm *a, const struct tsr_node *key,
                           const struct tsr_node *value, struct tsr_diag *d, struct tsr_err *err)
{
    const char *s = key->text;
    size_t      n = strcspn(s, ".");
    bool        nomem = false;
    if (n != strlen(QUANTIZE) || strncmp(s, QUANTIZE, n) != 0 || !s[n] || !s[n + 1]) {
        tsr_diag_error(d, &key->mark, "write quantize.KEY: VALUE",
                       "'%.60s': an arm changes keys of 'quantize' alone; model, calibration and "
                       "text are shared by all arms",
                       s);
        return TSR_OK;
    }
    struct tsr_node *map = a->quantize;
    for (s += n + 1; map && s[n = strcspn(s, ".")]; s += n + 1)
        map = below(c, map, s, n, &key->mark, &nomem);
    if (nomem)
        return tsr_fail_nomem(err, 64, "an arm");
    if (!map || n == 0 || strchr(s, '['))
        tsr_diag_error(d, &key->mark, "give the list or the value above it as a whole",
                       "'%.60s' leads to no key of a map", key->text);
    else if (!put(c, map, s, n, &key->mark, value))
        return tsr_fail_nomem(err, 64, "an arm");
    return TSR_OK;
}

static bool is_text(const struct tsr_node *n, const char *what, struct tsr_diag *d)
{
    if (n->kind == TSR_NODE_SCALAR && *n->text)
        return true;
    tsr_diag_error(d, &n->mark, NULL, "'%s' must be a path", what);
    return false;
}

/* ---- simulated ranks ---------------------------------------------------------------- */

struct arm_tp {
    struct tsr_tp_keys k;
};
static const struct tsr_option tp_options[] = { TSR_TP_OPTIONS(struct arm_tp, k) };

static bool is_tp(const char *key)
{
    for (size_t i = 0; i < sizeof tp_options / sizeof *tp_options; i++)
        if (strcmp(key, tp_options[i].name) == 0)
            return true;
    return false;
}

/* The arm's keys of simulated ranks. */
static tsr_status read_tp(struct compare *c, struct compare_arm *a, const struct tsr_node *map,
                          struct tsr_diag *d, struct tsr_err *err)
{
    struct arm_tp     o;
    struct tsr_optset set = { tp_options, sizeof tp_options / sizeof *tp_options,
                              sizeof *tp_options, &o };
    struct tsr_node   part = *map;
    char              what[96];
    uint64_t          before = tsr_diag_errors(d);
    part.keys = tsr_new(map->n + 1, sizeof(struct tsr_node *));
    part.items = tsr_new(map->n + 1, sizeof(struct tsr_node *));
    if (!part.keys || !part.items) {
        free(part.keys);
        free(part.items);
        return tsr_fail_nomem(err, map->n * 16, "an arm");
    }
    part.n = 0;
    for (uint64_t i = 0; i < map->n; i++)
        if (is_tp(map->keys[i]->text)) {
            part.keys[part.n] = map->keys[i];
            part.items[part.n++] = map->items[i];
        }
    arm_what(what, a->name);
    memset(&o, 0, sizeof o);
    tsr_options_fill(&set, 1, NULL, &part, what, d);
    a->tp = o.k;
    if (tsr_diag_errors(d) == before)
        tsr_tp_keys_check(c->job, &a->tp, &part, d);
    if (part.n && a->tp.simulate_tp &&
        (c->keys.samples || (c->keys.measure && tsr_node_get(c->keys.measure, "speed"))))
        tsr_diag_error(d, &map->mark,
                       "leave `samples` and `measure.speed` to a comparison of their own",
                       "arm '%.60s' simulates ranks, which has neither texts nor a speed", a->name);
    free(part.keys);
    free(part.items);
    return TSR_OK;
}

static tsr_status read_pair(struct compare *c, struct compare_arm *a, const struct tsr_node *key,
                            const struct tsr_node *value, struct tsr_diag *d, struct tsr_err *err)
{
    static const char *const names[] = { "model",       "plan",      QUANTIZE, "set",
                                         "simulate_tp", "algorithm", "codec",  "codec_state" };
    if (strcmp(key->text, "model") == 0) {
        a->path = is_text(value, "model", d) ? value->text : "";
        return TSR_OK;
    }
    if (strcmp(key->text, QUANTIZE) == 0 || is_tp(key->text))
        return TSR_OK; /* taken first */
    if (strcmp(key->text, "plan") == 0) {
        a->kind = COMPARE_PLAN;
        if (is_text(value, "plan", d) && !put(c, a->quantize, "plan", 4, &key->mark, value))
            return tsr_fail_nomem(err, 64, "an arm");
        return TSR_OK;
    }
    if (strcmp(key->text, "set") == 0 && value->kind == TSR_NODE_MAP) {
        for (uint64_t i = 0; i < value->n; i++)
            TSR_TRY(override(c, a, value->keys[i], value->items[i], d, err));
        return TSR_OK;
    }
    if (strcmp(key->text, "set") == 0) {
        tsr_diag_error(d, &value->mark, "write set: {quantize.bits: 3}", "'set' must be a map");
        return TSR_OK;
    }
    if (strchr(key->text, '.'))
        return override(c, a, key, value, d, err);
    const char *near = tsr_nearest(key->text, names, 8);
    char        hint[80];
    (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
    tsr_diag_error(d, &key->mark, near ? hint : HOW, "unknown key '%.60s' in arm '%.60s'",
                   key->text, a->name);
    return TSR_OK;
}

/* What the arm's keys change: its own `quantize`, else that of the comparison, else nothing. */
static tsr_status start_map(struct compare *c, struct compare_arm *a, const struct tsr_node *map,
                            struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_node *own = tsr_node_get(map, QUANTIZE), *from = own ? own : c->keys.quantize;
    struct tsr_node        empty = { .kind = TSR_NODE_MAP, .mark = map->mark, .text = "" };
    if (from && from->kind != TSR_NODE_MAP) {
        tsr_diag_error(d, &from->mark, "write quantize: {use: rtn}", "'quantize' must be a map");
        from = NULL;
    }
    a->quantize = tsr_doc_copy(c->job->doc, from ? from : &empty);
    return a->quantize ? TSR_OK : tsr_fail_nomem(err, 64, "an arm");
}

static tsr_status read_arm(struct compare *c, struct compare_arm *a, const struct tsr_node *map,
                           struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t before = tsr_diag_errors(d);
    if (map->kind != TSR_NODE_MAP || map->n == 0) {
        tsr_diag_error(d, &map->mark, HOW, "arm '%.60s' does not say what it is", a->name);
        return TSR_OK;
    }
    a->kind = COMPARE_QUANTIZE;
    TSR_TRY(start_map(c, a, map, d, err));
    uint64_t others = map->n;
    TSR_TRY(read_tp(c, a, map, d, err));
    for (uint64_t i = 0; i < map->n; i++) {
        TSR_TRY(read_pair(c, a, map->keys[i], map->items[i], d, err));
        others -= is_tp(map->keys[i]->text);
    }
    if (tsr_diag_errors(d) != before)
        a->quantize = NULL; /* enough is said of it */
    if (others == 0 && !c->keys.quantize) {
        a->kind = COMPARE_CODEC;
        a->quantize = NULL;
    }
    if (!a->path)
        return TSR_OK;
    a->kind = COMPARE_MODEL;
    a->quantize = NULL;
    if (others > 1 && tsr_diag_errors(d) == before)
        tsr_diag_error(d, &map->mark, "quantize that model first, and name the result here",
                       "arm '%.60s' is a model on disk; beside 'model' can stand 'codec' and "
                       "'simulate_tp' alone",
                       a->name);
    return TSR_OK;
}

static void check_name(const struct tsr_node *key, struct tsr_diag *d)
{
    size_t n = strspn(key->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_-+");
    if (strcmp(key->text, ORIGINAL) == 0)
        tsr_diag_error(d, &key->mark, NULL,
                       "arm '" ORIGINAL "' is always there: the "
                       "model as it is; choose another name");
    else if (n == 0 || key->text[n] || n > MAX_NAME)
        tsr_diag_error(d, &key->mark, NULL,
                       "an arm's name is made of at most 60 letters, digits, '_', '-' and '+', "
                       "not '%.60s'",
                       key->text);
}

tsr_status compare_read_arms(struct compare *c, struct tsr_diag *d, struct tsr_err *err)
{
    static const struct tsr_mark nowhere;
    const struct tsr_node       *map = c->keys.arms;
    uint64_t                     n = map && map->kind == TSR_NODE_MAP ? map->n : 0;
    if (map && map->kind != TSR_NODE_MAP)
        tsr_diag_error(d, &map->mark, "write arms: {name: {quantize: {use: rtn}}}",
                       "'arms' is not a map");
    c->arms = tsr_new(n + 1, sizeof *c->arms);
    if (!c->arms)
        return tsr_fail_nomem(err, (n + 1) * sizeof *c->arms, "arms");
    c->n = n + 1;
    for (uint64_t i = 0; i < c->n; i++) {
        c->arms[i].error = (struct tsr_errbuf)TSR_ERRBUF(c->arms[i].error);
        c->arms[i].mark = i ? &map->keys[i - 1]->mark : &nowhere;
    }
    c->arms[0].name = ORIGINAL;
    for (uint64_t i = 0; i < n; i++) {
        c->arms[i + 1].name = map->keys[i]->text;
        check_name(map->keys[i], d);
        TSR_TRY(read_arm(c, &c->arms[i + 1], map->items[i], d, err));
    }
    return TSR_OK;
}

/* ---- schemes ------------------------------------------------------------------------ */

/* An arm's scheme with what it borrows: the map without `plan`, the plan's rules in front. */
struct arm_scheme {
    struct tsr_scheme    *scheme;
    struct tsr_plan_rules plan;
    struct tsr_node       node, key;
    struct tsr_node     **keys, **items;
};

static void scheme_free(struct arm_scheme *s)
{
    tsr_scheme_destroy(s->scheme);
    tsr_plan_rules_free(&s->plan);
    free(s->keys);
    free(s->items);
}

static tsr_status scheme_plan(struct compare *c, struct arm_scheme *s, const struct tsr_node *plan,
                              const struct tsr_node *rules, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *path = tsr_job_input(c->job, plan->text);
    tsr_status        st = path ? tsr_plan_rules_load(&s->plan, path, rules, d, &e.err)
                                : tsr_fail_nomem(&e.err, strlen(plan->text), "a plan");
    free(path);
    if (st == TSR_E_INPUT) {
        tsr_diag_error(d, &plan->mark, "paths are relative to the job file", "%s", e.text);
        st = TSR_OK;
    } else if (st != TSR_OK) {
        return tsr_fail(err, st, "%s", e.text);
    }
    s->key = (struct tsr_node){ .kind = TSR_NODE_SCALAR, .mark = plan->mark, .text = "rules" };
    s->keys[s->node.n] = &s->key;
    s->items[s->node.n++] = &s->plan.list;
    return st;
}

static tsr_status scheme_make(struct compare *c, const struct compare_arm *a, struct arm_scheme *s,
                              struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_node *map = a->quantize, *plan = tsr_node_get(map, "plan");
    const struct tsr_node *rules = tsr_node_get(map, "rules");
    uint64_t               before = tsr_diag_errors(d);
    char                   what[96];
    arm_what(what, a->name);
    *s = (struct arm_scheme){ .node = *map };
    s->keys = tsr_new(map->n + 1, sizeof(struct tsr_node *));
    s->items = tsr_new(map->n + 1, sizeof(struct tsr_node *));
    if (!s->keys || !s->items)
        return tsr_fail_nomem(err, map->n * 16, what);
    s->node.keys = s->keys;
    s->node.items = s->items;
    s->node.n = 0;
    bool lists = !rules || rules->kind == TSR_NODE_LIST || rules->kind == TSR_NODE_NULL;
    for (uint64_t i = 0; i < map->n; i++) {
        if (map->items[i] == plan || (plan && lists && map->items[i] == rules))
            continue;
        s->keys[s->node.n] = map->keys[i];
        s->items[s->node.n++] = map->items[i];
    }
    if (plan && lists &&
        is_text(plan, "plan", d)) /* rules that are no list: the scheme's to refuse */
        TSR_TRY(scheme_plan(c, s, plan, rules, d, err));
    if (tsr_diag_errors(d) != before)
        return TSR_OK;
    return tsr_scheme_create(&s->scheme, c->job->registry, &s->node, NULL, what, d, err);
}

/* The scheme of an arm that was checked. */
static tsr_status scheme_of(struct compare *c, const struct compare_arm *a, struct arm_scheme *s,
                            struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    *s = (struct arm_scheme){ 0 };
    TSR_TRY(tsr_diag_create(&d, err));
    tsr_status st = scheme_make(c, a, s, d, err);
    if (st == TSR_OK)
        st = tsr_diag_status(d, err);
    if (st == TSR_OK && s->plan.file.doc)
        st = tsr_plan_rules_fit(&s->plan, c->job->model, err);
    tsr_diag_destroy(d);
    return st;
}

tsr_status compare_check_arm(struct compare *c, const struct compare_arm *a, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct arm_scheme s = { 0 };
    tsr_status        st = TSR_OK;
    if (a->quantize) {
        st = scheme_make(c, a, &s, d, err);
        scheme_free(&s);
    }
    if (!a->path || !*a->path || *a->path == '@')
        return st;
    char *path = tsr_path_join(c->job->state->dir, a->path);
    if (path && !tsr_path_exists(path))
        tsr_diag_error(d, a->mark, "paths are relative to the job file",
                       "arm '%.60s': there is no model at '%s'", a->name, path);
    free(path);
    return st;
}

tsr_status compare_arm_need(struct compare *c, const struct compare_arm *a, uint64_t *need,
                            struct tsr_err *err)
{
    struct arm_scheme s = { 0 };
    *need = 0;
    if (!a->quantize)
        return TSR_OK;
    tsr_status st = scheme_of(c, a, &s, err);
    if (st == TSR_OK)
        st = tsr_scheme_needs(s.scheme, c->job->registry, c->job->model, need, err);
    scheme_free(&s);
    return st;
}

/* ---- models ------------------------------------------------------------------------- */

static char *model_path(const struct compare *c, const struct compare_arm *a)
{
    return *a->path == '@' ? tsr_strdup(a->path) : tsr_path_join(c->job->state->dir, a->path);
}

/* The same tokens must mean the same. */
static tsr_status check_tokenizer(const struct compare *c, const char *path, struct tsr_err *err)
{
    struct tsr_tokenizer *t = NULL;
    TSR_TRY(tsr_job_load_tokenizer(&t, path, err));
    tsr_status st = TSR_OK;
    bool       agree = true;
    if (t && c->job->tokenizer && c->windows)
        st = tsr_windows_agree(c->windows, c->job->tokenizer, t, &agree, err);
    else if (t && c->job->tokenizer)
        agree = strcmp(tsr_tokenizer_hash(t), tsr_tokenizer_hash(c->job->tokenizer)) == 0;
    if (st == TSR_OK && !agree)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s has another tokenizer than %s; arms are compared on the same tokens",
                      path, c->job->model_path);
    tsr_tokenizer_destroy(t);
    return st;
}

/* For the manifest: a finished job looks whether its models are the same still. */
static tsr_status note_model(struct compare *c, const char *path, const char *hash,
                             struct tsr_err *err)
{
    json_t *list = json_object_get(c->job->manifest, "models"), *one, *v;
    size_t  i;
    if (!list && tsr_json_put(c->job->manifest, "models", json_array()))
        list = json_object_get(c->job->manifest, "models");
    json_array_foreach (list, i, v) {
        const char *known = json_string_value(json_object_get(v, "path"));
        if (known && strcmp(known, path) == 0)
            return TSR_OK;
    }
    one = json_object();
    bool ok = tsr_json_put_text(one, "path", path) && tsr_json_put_text(one, "hash", hash);
    ok = json_array_append_new(list, one) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 64, "the manifest");
}

static tsr_status load_model(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    char *path = model_path(c, a);
    if (!path)
        return tsr_fail_nomem(err, strlen(a->path), "a path");
    tsr_logf(TSR_LOG_INFO, "loading %s", path);
    tsr_status st = tsr_model_load(&a->own, path, false, err);
    if (st == TSR_OK && a->own->hp.vocab != c->job->model->hp.vocab)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s has a vocabulary of %llu, %s of %llu; they cannot be compared", path,
                      (unsigned long long)a->own->hp.vocab, c->job->model_path,
                      (unsigned long long)c->job->model->hp.vocab);
    if (st == TSR_OK)
        st = check_tokenizer(c, path, err);
    if (st == TSR_OK)
        st = note_model(c, path, a->own->hash, err);
    free(path);
    return st;
}

static tsr_status pack(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct arm_scheme s;
    tsr_status        st = scheme_of(c, a, &s, err);
    if (st == TSR_OK)
        st = tsr_scheme_apply(s.scheme, c->job->registry, c->job->model, c->job->calibration,
                              &a->overlay, err);
    scheme_free(&s);
    return st;
}

tsr_status compare_arm_ready(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    if (a->ready)
        return TSR_OK;
    if (a->kind == COMPARE_MODEL)
        TSR_TRY(load_model(c, a, err));
    else if (a->quantize)
        TSR_TRY(pack(c, a, err));
    TSR_TRY(tsr_tp_keys_open(c->job, &a->tp, compare_arm_model(c, a), compare_arm_overlay(c, a),
                             TSR_ACT_F32, &a->ranks, err));
    a->ready = true;
    return TSR_OK;
}

void compare_arm_release(struct compare_arm *a)
{
    tsr_tp_close(a->ranks);
    tsr_overlay_destroy(a->overlay);
    tsr_model_destroy(a->own);
    a->ranks = NULL;
    a->overlay = NULL;
    a->own = NULL;
    a->ready = false;
}

const struct tsr_model *compare_arm_model(const struct compare *c, const struct compare_arm *a)
{
    return a->own ? a->own : c->job->model;
}

const struct tsr_overlay *compare_arm_overlay(const struct compare *c, const struct compare_arm *a)
{
    return a->overlay ? a->overlay : compare_arm_model(c, a)->packed;
}

/* ---- what an arm is made of ------------------------------------------------------------ */

static tsr_status scheme_fingerprint(struct compare *c, const struct compare_arm *a, json_t **of,
                                     struct tsr_err *err)
{
    struct arm_scheme s;
    tsr_status        st = scheme_of(c, a, &s, err);
    if (st == TSR_OK)
        st = tsr_fingerprint_make(s.scheme, c->job->registry, c->job->model, c->job->calibration,
                                  &s.node, of, err);
    scheme_free(&s);
    return st;
}

tsr_status compare_arm_of(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    if (a->kind == COMPARE_MODEL) {
        TSR_TRY(compare_arm_ready(c, a, err));
        a->of = json_pack("{s:s, s:s}", "model", c->job->model->hash, "arm", a->own->hash);
    } else if (a->quantize) {
        TSR_TRY(scheme_fingerprint(c, a, &a->of, err));
    } else {
        a->of = json_pack("{s:s}", "model", c->job->model->hash);
    }
    json_t *measure = c->keys.measure ? tsr_node_json(c->keys.measure) : json_object();
    if (measure)
        (void)json_object_del(measure, "speed"); /* is never kept */
    json_t *how =
        json_pack("{s:s, s:o, s:o*, s:o*, s:o*, s:o*}", "version", TSR_VERSION, "measure", measure,
                  "samples", c->keys.samples ? tsr_node_json(c->keys.samples) : NULL, "sampling",
                  c->keys.sampling ? tsr_node_json(c->keys.sampling) : NULL, "text",
                  c->windows ? json_string(c->windows->text_hash) : NULL, "questions",
                  c->choices ? json_string(c->choices->hash) : NULL);
    if (a->of && a->tp.simulate_tp) {
        json_t *tp = json_pack("{s:I, s:s, s:I, s:s, s:s*}", "ranks", (json_int_t)a->tp.simulate_tp,
                               "codec", a->tp.codec, "algorithm", (json_int_t)a->tp.algorithm,
                               "state", a->tp.codec_state, "calibration",
                               c->job->calibration ? c->job->calibration->hash : NULL);
        (void)json_object_set_new(a->of, "simulated", tp);
    }
    bool ok = a->of && how && json_object_set_new(a->of, "measured", how) == 0 &&
              json_object_set_new(a->of, "seed", json_integer((json_int_t)c->job->seed)) == 0;
    return ok ? TSR_OK : tsr_fail_nomem(err, 256, "an arm");
}
