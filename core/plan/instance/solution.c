#include "plan/instance/instance.h"

#include "base/mem.h"

#include <math.h>

#define REASON_CAP 512u

static const char *const status_names[] = { "optimal", "feasible", "infeasible", "unknown" };

tsr_status tsr_plan_solution_create(struct tsr_solver_solution **out,
                                    const struct tsr_instance *inst, struct tsr_err *err)
{
    /* both numbers are bounded by the reader */
    uint64_t n = inst->devices;
    uint64_t bytes =
        sizeof(struct tsr_solver_solution) + n * (8 + 8 + 4 + 4) + inst->in.layers * 4 + REASON_CAP;
    struct tsr_solver_solution *s = tsr_new(bytes, 1);
    if (!s)
        return tsr_fail_nomem(err, bytes, "a solution");
    s->struct_size = sizeof *s;
    s->status = TSR_SOLVED_UNKNOWN;
    s->objective = NAN;
    s->bound = -INFINITY;
    s->max_stages = n;
    s->stage_first = (uint64_t *)(void *)(s + 1);
    s->stage_count = s->stage_first + n;
    s->stage_kind = (uint32_t *)(void *)(s->stage_count + n);
    s->stage_link = inst->in.n_links > 1 ? s->stage_kind + n : NULL;
    s->layer_bits = s->stage_kind + 2 * n;
    s->reason = (char *)(void *)(s->layer_bits + inst->in.layers);
    s->reason_cap = REASON_CAP;
    *out = s;
    return TSR_OK;
}

/* Takes the value over; false when out of memory. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *tsr_plan_solution_json(const struct tsr_instance *inst, const struct tsr_solver_solution *s,
                               const char *solver, double time_s)
{
    bool    plan = s->status == TSR_SOLVED_OPTIMAL || s->status == TSR_SOLVED_FEASIBLE, ok = true;
    json_t *o = json_object(), *stages = json_array(), *bits = json_array();
    json_t *links = s->stage_link ? json_array() : NULL;
    for (uint64_t i = 0; plan && i < s->stages; i++) {
        json_t *one = json_object();
        ok = ok && one && put(one, "kind", json_integer(s->stage_kind[i])) &&
             put(one, "first", json_integer((json_int_t)s->stage_first[i])) &&
             put(one, "count", json_integer((json_int_t)s->stage_count[i]));
        ok = json_array_append_new(stages, one) == 0 && ok;
    }
    for (uint64_t i = 0; plan && i < inst->in.layers; i++)
        ok = json_array_append_new(bits, json_integer(s->layer_bits[i])) == 0 && ok;
    for (uint64_t i = 0; plan && links && i + 1 < s->stages; i++)
        ok = json_array_append_new(links, json_integer(s->stage_link[i])) == 0 && ok;
    ok = put(o, "format", json_string("tessera.solution/1")) && ok;
    ok = put(o, "status", json_string(status_names[s->status])) && ok;
    ok = put(o, "objective", plan ? real_or_null(s->objective) : json_null()) && ok;
    /* an infeasible instance has no optimum, so no bound either */
    ok = put(o, "bound",
             s->status == TSR_SOLVED_INFEASIBLE ? json_null() : real_or_null(s->bound)) &&
         ok;
    ok = put(o, "option", plan ? json_integer((json_int_t)s->option) : json_null()) && ok;
    ok = put(o, "stages", stages) && ok;
    ok = put(o, "bits", bits) && ok;
    if (s->stage_link)
        ok = put(o, "links", links) && ok;
    ok = put(o, "solver", json_string(solver)) && ok;
    ok = put(o, "time_s", json_real(time_s)) && ok;
    if (s->status == TSR_SOLVED_INFEASIBLE)
        ok = put(o, "reason", json_string(s->reason)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}
