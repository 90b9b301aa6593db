#include "cli/plan/simulate.h"

#include "base/mem.h"
#include "plan/simulate/gantt.h"

#include <stdlib.h>

/* ---- numbers ----------------------------------------------------------------------------------- */

/* Takes v over; false when out of memory. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static bool put_resource(json_t *list, const struct tsr_plan_simulation *sim, uint64_t r)
{
    json_t *o = json_object();
    bool    ok = put(o, "prefill_ms", json_real(sim->busy_pre[r]));
    ok = put(o, "decode_ms", json_real(sim->busy_dec[r])) && ok;
    ok = put(o, "busy",
             json_real(sim->total_ms > 0 ? (sim->busy_pre[r] + sim->busy_dec[r]) / sim->total_ms
                                         : 0)) &&
         ok;
    return json_array_append_new(list, o) == 0 && ok;
}

static json_t *as_json(const struct tsr_plan_simulation *barrier, double free_ms)
{
    json_t *o = json_object(), *stages = json_array(), *links = json_array();
    bool    ok = true;
    for (uint64_t r = 0; r < barrier->resources; r++)
        ok = put_resource(r % 2 ? links : stages, barrier, r) && ok;
    ok = put(o, "barrier_ms", json_real(barrier->total_ms)) && ok;
    ok = put(o, "no_barrier_ms", json_real(free_ms)) && ok;
    ok = put(o, "prefill_ms", json_real(barrier->prefill_ms)) && ok;
    ok = put(o, "decode_ms", json_real(barrier->total_ms - barrier->prefill_ms)) && ok;
    ok = put(o, "visits", json_integer((json_int_t)barrier->visits)) && ok;
    ok = put(o, "stages", stages) && ok;
    ok = put(o, "links", links) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

tsr_status tsr_cli_plan_simulate(const struct tsr_solver_instance    *in,
                                 const struct tsr_solver_solution    *s,
                                 const struct tsr_plan_pipeline_back *back, const double *links_ms,
                                 json_t **out, struct tsr_err *err)
{
    struct tsr_plan_pipeline  *p = NULL;
    struct tsr_plan_simulation barrier = { 0 }, loose = { 0 };
    struct tsr_simulate_how    how = { .no_barrier = true };
    *out = NULL;
    TSR_TRY(tsr_plan_pipeline_of(&p, in, s, back, links_ms, err));
    tsr_status st = tsr_simulate(p, &how, NULL, NULL, &loose, err);
    how.no_barrier = false;
    if (st == TSR_OK)
        st = tsr_simulate(p, &how, NULL, NULL, &barrier, err);
    if (st == TSR_OK) {
        *out = as_json(&barrier, loose.total_ms);
        st = *out ? TSR_OK : tsr_fail_nomem(err, 0, "the simulation as JSON");
    }
    tsr_plan_simulation_destroy(&barrier);
    tsr_plan_simulation_destroy(&loose);
    free(p);
    return st;
}

void tsr_cli_plan_simulation_print(const json_t *o)
{
    const json_t *stage;
    size_t        i, column = 10;
    (void)printf("simulated  %.6g ms: prefill %.6g, decode %.6g; %.6g ms where a\n"
                 "           micro-batch decodes as soon as its own prompts are read\n",
                 json_number_value(json_object_get(o, "barrier_ms")),
                 json_number_value(json_object_get(o, "prefill_ms")),
                 json_number_value(json_object_get(o, "decode_ms")),
                 json_number_value(json_object_get(o, "no_barrier_ms")));
    (void)printf("busy      ");
    json_array_foreach (json_object_get(o, "stages"), i, stage) {
        char   text[48];
        size_t n = (size_t)snprintf(text, sizeof text, "%sstage %zu %.0f %%", i ? ", " : " ", i,
                                    100 * json_number_value(json_object_get(stage, "busy")));
        if (column + n > 78) {
            (void)printf("%s\n          ", i ? "," : "");
            (void)printf("%s", text + 1);
            column = 10 + n - 1;
            continue;
        }
        (void)printf("%s", text);
        column += n;
    }
    (void)printf("\n");
}

/* ---- picture ----------------------------------------------------------------------------------- */

tsr_status tsr_cli_plan_gantt(const struct tsr_solver_instance    *in,
                              const struct tsr_solver_solution    *s,
                              const struct tsr_plan_pipeline_back *back, const double *links_ms,
                              const char *const *notes, const char *title, const char *path,
                              struct tsr_err *err)
{
    struct tsr_plan_pipeline *p = NULL;
    TSR_TRY(tsr_plan_pipeline_of(&p, in, s, back, links_ms, err));
    const char **names = tsr_new(s->stages, sizeof *names);
    tsr_status   st = TSR_OK;
    if (!names)
        st = tsr_fail_nomem(err, s->stages * sizeof *names, "a Gantt chart");
    for (uint64_t i = 0; names && i < s->stages; i++)
        names[i] = in->kinds[s->stage_kind[i]]->name;
    if (names)
        st = tsr_plan_gantt_write(&(struct tsr_plan_gantt){ .title = title,
                                                            .names = names,
                                                            .notes = notes,
                                                            .pipeline = p },
                                  path, err);
    free(names);
    free(p);
    return st;
}
