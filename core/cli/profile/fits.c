/* tessera profile --fits: the regressions over the points of a profile, as the planner uses them. */
#include "cli/profile/profile.h"
#include "pipeline/step.h"
#include "plan/cost/fit.h"

static const char *const phases[] = { "prefill", "decode" };

static json_t *fit_json(const struct tsr_plan_fit *f)
{
    json_t *j = json_object(), *c = json_array();
    bool    ok = tsr_pipeline_json_put_text(j, "kernel", f->kernel) &&
              tsr_pipeline_json_put_text(j, "phase", phases[f->phase]) &&
              tsr_pipeline_json_put_int(j, "more_than", f->knots[0]);
    if (f->knots[1] != UINT64_MAX)
        ok = ok && tsr_pipeline_json_put_int(j, "up_to", f->knots[1]);
    if (!f->pooled) /* the value of a regression over all shapes is only the first one's */
        ok = ok && tsr_pipeline_json_put(j, "shape",
                                         json_pack("{s:f, s:f, s:f, s:f}", "weights",
                                                   f->shape.weights, "hidden", f->shape.hidden,
                                                   "attend", f->shape.attend, "kv", f->shape.kv));
    for (int i = 0; i < TSR_PLAN_FEATURES; i++)
        ok = ok && json_array_append_new(c, json_real(f->c[i])) == 0;
    ok = tsr_pipeline_json_put(j, "coefficients", c) && ok;
    ok = ok && tsr_pipeline_json_put_int(j, "points", f->points) &&
         tsr_pipeline_json_put_real(j, "error", f->error);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status print_json(const struct tsr_plan_fits *f, struct tsr_err *err)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t i = 0; i < f->n && ok; i++)
        ok = json_array_append_new(list, fit_json(&f->v[i])) == 0;
    if (ok)
        return tsr_cli_print_json(list, err);
    json_decref(list);
    return tsr_fail_nomem(err, f->n * sizeof *f->v, "regressions");
}

/* "17-96 tokens" */
static const char *range_of(const struct tsr_plan_fit *f, char *text, size_t cap)
{
    if (f->knots[1] == UINT64_MAX)
        (void)snprintf(text, cap, "%llu and more", (unsigned long long)f->knots[0] + 1);
    else
        (void)snprintf(text, cap, "%llu to %llu", (unsigned long long)f->knots[0] + 1,
                       (unsigned long long)f->knots[1]);
    return text;
}

tsr_status profile_fits(const struct tsr_cli *c, const struct tsr_plan_profile *dev,
                        struct tsr_err *err)
{
    const struct tsr_plan_fits *f = dev->fits;
    char                        tokens[64], shape[64];
    if (c->json)
        return print_json(f, err);
    (void)printf("%-10s %-8s %-14s %-18s %6s %8s  %s\n", "kernel", "phase", "tokens",
                 "weights a layer", "points", "error", "ms a feature");
    for (uint64_t i = 0; i < f->n; i++) {
        const struct tsr_plan_fit *o = &f->v[i];
        if (o->pooled)
            (void)snprintf(shape, sizeof shape, "all shapes");
        else
            (void)snprintf(shape, sizeof shape, "%.0f", o->shape.weights);
        (void)printf("%-10s %-8s %-14s %-18s %6llu %6.2f %%  %.4g %.4g %.4g %.4g %.4g\n", o->kernel,
                     phases[o->phase], range_of(o, tokens, sizeof tokens), shape,
                     (unsigned long long)o->points, 100 * o->error, o->c[0], o->c[1], o->c[2],
                     o->c[3], o->c[4]);
    }
    return tsr_cli_flush(err);
}
