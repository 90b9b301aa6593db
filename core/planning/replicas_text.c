/* The copies of a plan, as JSON and as a line. */
#include "base/mem.h"
#include "pipeline/step.h"
#include "planning/planning.h"
#include "planning/table.h"

#include <math.h>
#include <string.h>

static json_t *names(const struct tsr_planning *pl)
{
    json_t *all = json_array();
    bool    ok = all != NULL;
    for (uint64_t i = 0; ok && pl->parts.nodes && i < pl->parts.copies; i++) {
        json_t *one = json_array();
        for (uint64_t n = 0; ok && n < pl->parts.n_nodes; n++) {
            uint64_t node = pl->parts.nodes[i * pl->parts.n_nodes + n];
            ok = json_array_append_new(one, json_string(pl->whole.cluster->nodes[node].name)) == 0;
        }
        ok = json_array_append_new(all, one) == 0 && ok;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

json_t *tsr_planning_tried_json(const struct tsr_planning *pl)
{
    json_t *all = json_array();
    bool    ok = all != NULL;
    for (uint64_t i = 0; ok && i < pl->n_tried; i++) {
        json_t *one = json_object();
        ok = tsr_pipeline_json_put_int(one, "count", pl->tried[i].copies) &&
             tsr_pipeline_json_put_real(one, "latency_ms", pl->tried[i].latency_ms) &&
             tsr_pipeline_json_put_real(one, "omega", pl->tried[i].omega);
        ok = json_array_append_new(all, one) == 0 && ok;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static const char *const groups[] = { [TSR_PLANNING_GROUPS_NONE] = "",
                                      [TSR_PLANNING_GROUPS_CHOSEN] = "chosen",
                                      [TSR_PLANNING_GROUPS_SLOWER] = "not faster",
                                      [TSR_PLANNING_GROUPS_LATE] = "not settled",
                                      [TSR_PLANNING_GROUPS_OUT] = "left out" };

bool tsr_planning_replicas_put(json_t *j, const struct tsr_planning *pl,
                               const struct tsr_plan_planned *a)
{
    const struct tsr_plan_workload *w = pl->part ? &pl->whole.work : &pl->problem.work;
    uint64_t                        copies = pl->part ? pl->parts.copies : 1, all;
    if (!pl->part && !pl->n_tried)
        return true;
    json_t *r = json_object();
    if (!tsr_mul(copies, pl->problem.work.batch, &all) || all > w->batch)
        all = w->batch;
    bool ok =
        tsr_pipeline_json_put_int(r, "count", copies) &&
        tsr_pipeline_json_put_int(r, "share", pl->problem.work.batch) &&
        tsr_pipeline_json_put_int(r, "batch", w->batch) &&
        tsr_pipeline_json_put_int(r, "devices", tsr_plan_cluster_devices(pl->problem.cluster)) &&
        tsr_pipeline_json_put(r, "nodes", names(pl)) &&
        tsr_pipeline_json_put(r, "tried", tsr_planning_tried_json(pl)) &&
        (!*groups[pl->groups] || tsr_pipeline_json_put_text(r, "groups", groups[pl->groups]));
    if (tsr_plan_planned_has_plan(a))
        ok = ok &&
             tsr_pipeline_json_put_real(r, "tokens_per_second",
                                        (double)all * (double)w->n / a->outcome.latency_ms * 1e3);
    if (ok)
        return tsr_pipeline_json_put(j, "replicas", r);
    json_decref(r);
    return false;
}

void tsr_planning_tried_text(const json_t *tried, long long but, char *text, size_t *used)
{
    const json_t *one;
    char          ms[TSR_TABLE_CELL];
    bool          first = true;
    size_t        i, at = *used;
    json_array_foreach (tried, i, one) {
        long long k = tsr_planning_table_int(one, "count");
        double    t = tsr_planning_table_real(one, "latency_ms");
        if (k == but || at >= TSR_TABLE_SENTENCE - 80)
            continue;
        at += (size_t)snprintf(text + at, TSR_TABLE_SENTENCE - at, "%s", first ? "; " : ", ");
        if (isfinite(t))
            at += (size_t)snprintf(text + at, TSR_TABLE_SENTENCE - at,
                                   k == 1 ? "%lld takes %s" : "%lld take %s", k,
                                   tsr_planning_table_time(t, ms));
        else
            at += (size_t)snprintf(text + at, TSR_TABLE_SENTENCE - at,
                                   k == 1 ? "%lld has no plan" : "%lld have no plan", k);
        first = false;
    }
    *used = at;
}

static void said_groups(const char *state, char *text, size_t at)
{
    static const char *const said[][2] = {
        { "not faster", "no groups of whole nodes with other shares are faster" },
        { "not settled", "time ran out before groups of whole nodes were settled" },
        { "left out", "groups of whole nodes with other shares are left out: a later step takes "
                      "one plan, or at_most has a time" },
    };
    for (size_t i = 0; i < sizeof said / sizeof *said && at < TSR_TABLE_SENTENCE - 80; i++)
        if (strcmp(state, said[i][0]) == 0)
            (void)snprintf(text + at, TSR_TABLE_SENTENCE - at, "; %s", said[i][1]);
}

/* "8 of the model, each on 1 device with 4 of 32 requests, together 164 tokens/s; one takes 21.81 s, 2 take 20.4 s" */
void tsr_planning_replicas_print(const json_t *r, FILE *to)
{
    const json_t *of = json_object_get(r, "replicas");
    char          text[TSR_TABLE_SENTENCE];
    long long     n = tsr_planning_table_int(of, "count"),
              devices = tsr_planning_table_int(of, "devices");
    size_t at;
    if (!of)
        return;
    if (n > 1)
        at =
            (size_t)snprintf(text, sizeof text,
                             "%lld of the model, each on %lld device%s with %lld of %lld requests, "
                             "together %.4g tokens/s",
                             n, devices, devices == 1 ? "" : "s",
                             tsr_planning_table_int(of, "share"),
                             tsr_planning_table_int(of, "batch"),
                             tsr_planning_table_real(of, "tokens_per_second"));
    else
        at = (size_t)snprintf(text, sizeof text, "%s", "one pipeline");
    tsr_planning_tried_text(json_object_get(of, "tried"), n, text, &at);
    said_groups(tsr_planning_table_text(of, "groups"), text, at);
    tsr_planning_table_wrap(to, "copies", text);
}
