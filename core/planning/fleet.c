/* Many nodes: the model in copies, as files, as JSON and as a table. */
#include "base/mem.h"
#include "pipeline/step.h"
#include "plan/file/write.h"
#include "planning/planning.h"
#include "planning/table.h"
#include "plugin/kv_codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL 2u /* default number of nodes of a copy */

/* Most nodes of a copy; of `replicas: auto` all but one, as all of them together are one pipeline. */
static uint64_t nodes_of(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k)
{
    if (pl->groups == TSR_PLANNING_GROUPS_CHOSEN)
        return pl->cluster->n_nodes - 1;
    return k->copy_nodes ? (uint64_t)k->copy_nodes : USUAL;
}

tsr_status tsr_planning_fleet(struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                              struct tsr_err *err)
{
    struct tsr_plan_fleet_options o = { .max_nodes = nodes_of(pl, k), .unit = pl->share_unit };
    if (o.max_nodes > pl->cluster->n_nodes)
        o.max_nodes = pl->cluster->n_nodes;
    return tsr_plan_fleet_plan(&pl->fleet, &pl->problem, &pl->solver, &o, err);
}

/* ---- files ------------------------------------------------------------------------- */

/* "plan.yaml" of the first kind, "plan-2.yaml" of the second. */
static char *path_of(const char *path, uint64_t i)
{
    uint64_t    bytes = strlen(path) + 24;
    char       *s = tsr_new(bytes, 1);
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int         stem = dot && dot > (slash ? slash + 1 : path) ? (int)(dot - path) : -1;
    if (!s)
        return NULL;
    if (i == 0)
        (void)snprintf(s, bytes, "%s", path);
    else if (stem >= 0)
        (void)snprintf(s, bytes, "%.*s-%llu%s", stem, path, (unsigned long long)i + 1, dot);
    else
        (void)snprintf(s, bytes, "%s-%llu", path, (unsigned long long)i + 1);
    return s;
}

/* The work of the whole where a copy has its own settings: a share of it (share.h) runs as many at once as the copy. */
static void settle(struct tsr_plan_problem *whole, const struct tsr_plan_fleet_kind *k)
{
    const struct tsr_plan_problem *p = &k->problem;
    uint64_t                       batch = whole->work.batch, once;
    if (whole->o.free_concurrency && tsr_mul(p->memory.batch, batch, &once))
        whole->work.concurrency = once / k->batch;
    whole->work.chunk = p->work.chunk;
    whole->work.kv = p->work.kv;
    tsr_plan_problem_refresh(whole);
}

static tsr_status write_kinds(const struct tsr_planning *pl, const char *path, struct tsr_err *err)
{
    const struct tsr_plan_fleet *f = &pl->fleet;
    tsr_status                   st = TSR_OK;
    for (uint64_t i = 0; i < f->n_kinds && st == TSR_OK; i++) {
        const struct tsr_plan_fleet_kind *k = &f->kinds[i];
        struct tsr_plan_problem           whole = pl->problem;
        settle(&whole, k);
        struct tsr_plan_copies c = { .whole = &whole,
                                     .copies = k->copies,
                                     .share = k->batch,
                                     .nodes = k->nodes,
                                     .n_nodes = k->n_nodes };
        char                  *to = path_of(path, i);
        st = to ? tsr_plan_write(&k->problem, &k->planned, &c, to, err)
                : tsr_fail_nomem(err, strlen(path), "a path");
        free(to);
    }
    return st;
}

/* ---- JSON --------------------------------------------------------------------------- */

static json_t *names_json(const struct tsr_plan_cluster *c, const struct tsr_plan_fleet_kind *k)
{
    json_t *all = json_array();
    bool    ok = all != NULL;
    for (uint64_t i = 0; i < k->copies && ok; i++) {
        json_t *one = json_array();
        for (uint64_t n = 0; n < k->n_nodes && one; n++)
            ok = json_array_append_new(one,
                                       json_string(c->nodes[k->nodes[i * k->n_nodes + n]].name)) ==
                     0 &&
                 ok;
        ok = json_array_append_new(all, one) == 0 && ok;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *kind_json(const struct tsr_planning *pl, const struct tsr_plan_fleet_kind *k,
                         const char *path, uint64_t i)
{
    json_t *j = json_object();
    char   *file = path ? path_of(path, i) : NULL;
    bool    ok = (!path || (file && tsr_pipeline_json_put_text(j, "file", file))) &&
              tsr_pipeline_json_put_int(j, "copies", k->copies) &&
              tsr_pipeline_json_put_int(j, "batch", k->batch) &&
              tsr_pipeline_json_put_int(j, "concurrency", k->problem.memory.batch) &&
              tsr_pipeline_json_put_int(j, "chunk", k->problem.work.chunk) &&
              tsr_pipeline_json_put_text(j, "kv", tsr_plugin_kv_name(k->problem.work.kv)) &&
              tsr_pipeline_json_put(j, "nodes", names_json(pl->cluster, k)) &&
              tsr_pipeline_json_put(j, "plan", tsr_planning_outcome_json(&k->problem, &k->planned));
    free(file);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status fleet_json(const struct tsr_planning *pl, const struct tsr_planning_plan_keys *k,
                             const char *path, json_t **out, struct tsr_err *err)
{
    const struct tsr_plan_fleet *f = &pl->fleet;
    json_t                      *j = json_object(), *fleet = json_object(), *kinds = json_array();
    bool                         ok = j && fleet && kinds &&
              tsr_pipeline_json_put_text(j, "format", "tessera.planning/1") &&
              tsr_planning_put_problem(j, &pl->problem) &&
              tsr_pipeline_json_put_text(fleet, "status", f->proved ? "optimal" : "feasible") &&
              tsr_pipeline_json_put_text(fleet, "solver", pl->solver.found.component->name) &&
              tsr_pipeline_json_put_real(fleet, "seconds", f->seconds) &&
              tsr_pipeline_json_put_int(fleet, "solves", f->solves) &&
              tsr_pipeline_json_put_int(fleet, "types", f->types) &&
              tsr_pipeline_json_put_int(fleet, "unit", f->unit) &&
              tsr_pipeline_json_put_int(fleet, "copy_nodes", nodes_of(pl, k)) &&
              tsr_pipeline_json_put_int(fleet, "copies", f->copies) &&
              tsr_pipeline_json_put_int(fleet, "nodes_used", f->used) &&
              tsr_pipeline_json_put_real(fleet, "objective_ms", f->objective) &&
              tsr_pipeline_json_put_real(fleet, "bound_ms", f->bound) &&
              tsr_pipeline_json_put_real(fleet, "latency_ms", f->latency_ms) &&
              tsr_pipeline_json_put_real(fleet, "tokens_per_second", f->tokens_per_second);
    for (uint64_t i = 0; i < f->n_kinds && ok; i++)
        ok = json_array_append_new(kinds, kind_json(pl, &f->kinds[i], path, i)) == 0;
    ok = tsr_pipeline_json_put(fleet, "kinds", kinds) && ok;
    if (pl->n_tried)
        ok = tsr_pipeline_json_put(fleet, "tried", tsr_planning_tried_json(pl)) && ok;
    ok = tsr_pipeline_json_put(j, "fleet", fleet) && ok;
    if (!ok) {
        json_decref(j);
        return tsr_fail_nomem(err, 64, "a plan");
    }
    *out = j;
    return TSR_OK;
}

tsr_status tsr_planning_fleet_put(const struct tsr_planning           *pl,
                                  const struct tsr_planning_plan_keys *k, const char *path,
                                  const char *said, json_t **out, struct tsr_err *err)
{
    TSR_TRY(write_kinds(pl, path, err));
    return fleet_json(pl, k, said, out, err);
}

/* ---- for people -------------------------------------------------------------------- */

/* "; 8 at once, in chunks of 512, cache of int8", what differs from the work of the whole. */
static void own_settings(const json_t *k, const json_t *work, char *text, size_t at)
{
    long long once = tsr_planning_table_int(k, "concurrency"),
              chunk = tsr_planning_table_int(k, "chunk");
    const char *kv = tsr_planning_table_text(k, "kv");
    if (at < TSR_TABLE_SENTENCE && once < tsr_planning_table_int(k, "batch"))
        at += (size_t)snprintf(text + at, TSR_TABLE_SENTENCE - at, "; %lld at once", once);
    if (at < TSR_TABLE_SENTENCE && chunk)
        at += (size_t)snprintf(text + at, TSR_TABLE_SENTENCE - at, "; chunks of %lld", chunk);
    if (at < TSR_TABLE_SENTENCE && strcmp(kv, tsr_planning_table_text(work, "kv")) != 0)
        (void)snprintf(text + at, TSR_TABLE_SENTENCE - at, "; cache of %.40s", kv);
}

/* "31 copies on n000 + n031 and the like: 160 requests each, 30.1 s, bits 4x80" */
static void print_kind(const json_t *r, const json_t *k, FILE *to)
{
    const json_t *plan = json_object_get(k, "plan"), *first, *node;
    char          text[TSR_TABLE_SENTENCE], label[TSR_TABLE_CELL], ms[TSR_TABLE_CELL];
    size_t        at = 0, i;
    long long     copies = tsr_planning_table_int(k, "copies");
    first = json_array_get(json_object_get(k, "nodes"), 0);
    json_array_foreach (first, i, node)
        if (at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%.60s", i ? " + " : "",
                                   json_string_value(node));
    if (at < sizeof text)
        at += (size_t)snprintf(
            text + at, sizeof text - at,
            "%s: %lld request%s%s in %s; micro-batches of %lld in prefill, %lld in "
            "decode; omega %.4g",
            copies > 1 ? " and nodes like these" : "", tsr_planning_table_int(k, "batch"),
            tsr_planning_table_int(k, "batch") == 1 ? "" : "s", copies > 1 ? " each" : "",
            tsr_planning_table_time(tsr_planning_table_real(plan, "latency_ms"), ms),
            tsr_planning_table_int(plan, "prefill_mb"), tsr_planning_table_int(plan, "decode_mb"),
            tsr_planning_table_real(plan, "omega"));
    own_settings(k, json_object_get(r, "workload"), text, at);
    (void)fputc('\n', to);
    (void)snprintf(label, sizeof label, "%lld cop%s ", copies, copies > 1 ? "ies" : "y");
    tsr_planning_table_wrap(to, label, text);
    tsr_planning_table_stages(r, json_object_get(plan, "stages"), to);
}

void tsr_planning_fleet_print(const json_t *r, FILE *to)
{
    const json_t *f = json_object_get(r, "fleet"), *tried = json_object_get(f, "tried"), *k;
    char          text[TSR_TABLE_SENTENCE], a[TSR_TABLE_CELL], b[TSR_TABLE_CELL];
    size_t        i, at;
    double        time = tsr_planning_table_real(f, "objective_ms"),
           bound = tsr_planning_table_real(f, "bound_ms");
    tsr_planning_table_problem(r, NULL, to);
    at = (size_t)
        snprintf(text, sizeof text,
                 "%lld of the model on %lld of %lld nodes; shares are multiples of %lld request%s",
                 tsr_planning_table_int(f, "copies"), tsr_planning_table_int(f, "nodes_used"),
                 tsr_planning_table_int(r, "nodes"), tsr_planning_table_int(f, "unit"),
                 tsr_planning_table_int(f, "unit") == 1 ? "" : "s");
    tsr_planning_tried_text(tried, 0, text, &at);
    tsr_planning_table_wrap(to, "copies", text);
    (void)snprintf(text, sizeof text, "%s; %.4g tokens/s",
                   tsr_planning_table_time(tsr_planning_table_real(f, "latency_ms"), a),
                   tsr_planning_table_real(f, "tokens_per_second"));
    tsr_planning_table_wrap(to, "latency", text);
    tsr_planning_table_wrap(to, "quality", tsr_planning_table_text(r, "quality"));
    at =
        (size_t)snprintf(text, sizeof text, "%s: %s, with %scopies of up to %lld node%s ",
                         tsr_planning_table_text(f, "solver"), tsr_planning_table_text(f, "status"),
                         tried ? "one pipeline, equal parts or " : "",
                         tsr_planning_table_int(f, "copy_nodes"),
                         tsr_planning_table_int(f, "copy_nodes") == 1 ? "" : "s");
    if (bound > 0)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "nothing is below %s (gap %.2g %%)",
                             tsr_planning_table_time(bound, b), 100 * fmax(time - bound, 0) / time);
    else
        at += (size_t)snprintf(text + at, sizeof text - at, "and no bound");
    (void)snprintf(text + at, sizeof text - at, "; %lld groups solved, %.2g s",
                   tsr_planning_table_int(f, "solves"), tsr_planning_table_real(f, "seconds"));
    tsr_planning_table_wrap(to, "solver", text);
    json_array_foreach (json_object_get(f, "kinds"), i, k)
        print_kind(r, k, to);
}
