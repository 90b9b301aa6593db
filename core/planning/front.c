/* What speed costs in quality, as JSON and as a table. */
#include "base/mem.h"
#include "pipeline/step.h"
#include "planning/planning.h"
#include "planning/table.h"

#include <math.h>
#include <string.h>

static json_t *point_json(const struct tsr_plan_problem *p, const struct tsr_plan_front_point *v)
{
    json_t *j = json_object(), *layers = json_object();
    bool    ok =
        tsr_pipeline_json_put_real(j, "omega", v->omega) &&
        tsr_pipeline_json_put_real(j, "kl", v->kl) && /* null where it is not known */
        (!isfinite(v->kl) || tsr_pipeline_json_put_real(j, "kl_half", v->kl_half)) &&
        tsr_pipeline_json_put_real(j, "latency_s", v->latency_ms / 1e3) &&
        tsr_pipeline_json_put_real(j, "tokens_per_s", v->tokens_per_second) &&
        tsr_pipeline_json_put_int(j, "bytes", v->bytes) &&
        tsr_pipeline_json_put_int(j, "stages", v->stages) &&
        tsr_pipeline_json_put_int(j, "concurrency", v->setting.concurrency) &&
        tsr_pipeline_json_put_int(j, "chunk", v->setting.chunk) &&
        tsr_pipeline_json_put_text(j, "kv",
                                   v->setting.types ? "mixed"
                                                    : tsr_plugin_kv_name(v->setting.kv)) &&
        (!p->ends.n || tsr_pipeline_json_put_text(j, "ends", p->ends.v[v->setting.end].name)) &&
        tsr_pipeline_json_put(j, "proved", json_boolean(v->proved)) &&
        tsr_pipeline_json_put(j, "job", json_boolean(v->job)) &&
        tsr_pipeline_json_put(j, "four_bits", json_boolean(v->four)) &&
        tsr_pipeline_json_put(j, "knee", json_boolean(v->knee));
    for (uint64_t c = 0; c < p->candidates.n && ok; c++)
        if (v->layers[c])
            ok = tsr_pipeline_json_put_int(layers, p->candidates.v[c].name, v->layers[c]);
    ok = tsr_pipeline_json_put(j, "bits", layers) && ok;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

tsr_status tsr_planning_front(const struct tsr_planning *pl, const struct tsr_plan_planned *a,
                              json_t **out, struct tsr_err *err)
{
    struct tsr_plan_front f;
    json_t               *j = NULL, *points = NULL;
    tsr_status            st = tsr_plan_front_find(&f, &pl->problem, a, pl->kept, &pl->solver, err);
    if (st == TSR_OK) {
        j = json_object();
        points = json_array();
        bool ok = points != NULL;
        for (uint64_t i = 0; i < f.n && ok; i++)
            ok = json_array_append_new(points, point_json(&pl->problem, &f.v[i])) == 0;
        ok = tsr_pipeline_json_put(j, "points", points) && ok &&
             tsr_pipeline_json_put_int(j, "solves", f.solves) &&
             tsr_pipeline_json_put_real(j, "seconds", f.seconds);
        if (!ok) {
            json_decref(j);
            st = tsr_fail_nomem(err, 64, "a front");
        }
    }
    tsr_plan_front_free(&f);
    if (st == TSR_OK)
        *out = j;
    return st;
}

/* ---- for people ------------------------------------------------------------------------- */

/* The scale of quality that a point has. */
static const char *scale(const json_t *v)
{
    return json_is_number(json_object_get(v, "kl")) ? "kl" : "omega";
}

static void row(const json_t *r, const json_t *v, FILE *to)
{
    char        bits[400], ms[TSR_TABLE_CELL];
    const char *mark = json_is_true(json_object_get(v, "knee"))        ? "knee"
                       : json_is_true(json_object_get(v, "job"))       ? "job"
                       : json_is_true(json_object_get(v, "four_bits")) ? "4-bit"
                                                                       : "";
    (void)tsr_planning_table_bits(r, json_object_get(v, "bits"), bits, sizeof bits);
    (void)fprintf(to, "%-5s %10s %9.4g %9.4g %7.1f %8lld %5s  %s\n", mark,
                  tsr_planning_table_time(1e3 * tsr_planning_table_real(v, "latency_s"), ms),
                  tsr_planning_table_real(v, "tokens_per_s"), tsr_planning_table_real(v, scale(v)),
                  tsr_planning_table_real(v, "bytes") / 1073741824.0,
                  tsr_planning_table_int(v, "concurrency"), tsr_planning_table_text(v, "kv"), bits);
}

void tsr_planning_front_print(const json_t *r, FILE *to)
{
    const json_t *points = json_object_get(json_object_get(r, "front"), "points"), *v;
    const json_t *slow = json_array_get(points, json_array_size(points) - 1), *knee = NULL,
                 *four = NULL;
    char   text[TSR_TABLE_SENTENCE];
    size_t i;
    if (!points)
        return;
    (void)fprintf(to, "\n%-5s %10s %9s %9s %7s %8s %5s  %s\n", "speed", "latency", "tokens/s",
                  strcmp(scale(slow), "kl") == 0 ? "KL" : "omega", "GiB", "at once", "cache",
                  "bits");
    json_array_foreach (points, i, v) {
        row(r, v, to);
        knee = json_is_true(json_object_get(v, "knee")) ? v : knee;
        four = json_is_true(json_object_get(v, "four_bits")) ? v : four;
    }
    if (four) {
        char ms[TSR_TABLE_CELL];
        (void)snprintf(text, sizeof text,
                       "the default limit, 4 bits in all layers: %s, %.4g tokens/s, %s %.4g",
                       tsr_planning_table_time(1e3 * tsr_planning_table_real(four, "latency_s"),
                                               ms),
                       tsr_planning_table_real(four, "tokens_per_s"),
                       strcmp(scale(four), "kl") == 0 ? "KL" : "omega",
                       tsr_planning_table_real(four, scale(four)));
        tsr_planning_table_wrap(to, "uniform-4", text);
    }
    if (!knee)
        return;
    double times =
        tsr_planning_table_real(slow, "latency_s") / tsr_planning_table_real(knee, "latency_s");
    double nats = tsr_planning_table_real(knee, "kl") - tsr_planning_table_real(slow, "kl");
    if (isfinite(nats))
        (void)snprintf(text, sizeof text, "%.2gx faster costs %.2g nats (perplexity %+.2g %%)",
                       times, nats, 100 * expm1(nats));
    else
        (void)snprintf(text, sizeof text,
                       "%.2gx as fast as the plan of best quality, for omega %.4g instead of %.4g",
                       times, tsr_planning_table_real(knee, "omega"),
                       tsr_planning_table_real(slow, "omega"));
    tsr_planning_table_wrap(to, "the knee", text);
}
