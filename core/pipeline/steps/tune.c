/* tune: as many compensated channels as a target slow-down allows, linear by linear, into a plan. */
#include "pipeline/step.h"
#include "pipeline/steps/tuning.h"

#include <stdlib.h>

#define PROFILE "dec-profile.json"

struct tune_options {
    double      slower;
    const char *profile, *plan, *to;
    int64_t     freeze, most_blocks, repeats, act;
};

#define S struct tune_options
static const struct tsr_option options[] = {
    TSR_OPTION_REAL(S, slower, 5, 0, 1000, "%", "How much slower the linears may become."),
    TSR_OPTION_PATH(S, profile, "", "FILE",
                    "Times of a device (tessera.dec-profile/1); without it this one is measured."),
    TSR_OPTION_PATH(S, plan, "", "FILE", "A plan that gets the channels; without it a new one."),
    TSR_OPTION_PATH(S, to, "tuned.yaml", "FILE", "The plan to write, in the job folder."),
    TSR_OPTION_ENUM(S, freeze, TSR_COMPENSATE_FREEZE_RETRY, tsr_freeze_choices,
                    "When a linear that does not fit any more is left alone."),
    TSR_OPTION_INT(S, most_blocks, 0, 0, 65535, NULL,
                   "Most thread blocks for compensation; 0: as the profile has them."),
    TSR_OPTION_INT(S, repeats, 20, 1, 100000, NULL, "Passes of a measurement; the fastest counts."),
    TSR_OPTION_ENUM(S, act, TSR_ACT_A8, tsr_act_choices,
                    "How activations enter packed weights while it is measured."),
};
#undef S

static void print(const json_t *r, FILE *to)
{
    const json_t *m;
    size_t        i;
    (void)fprintf(to,
                  "at most %.3g %% slower: %.3g %%, at most %lld thread blocks, common k %lld\n",
                  json_number_value(json_object_get(r, "target")),
                  100 * json_number_value(json_object_get(r, "slower")),
                  (long long)json_integer_value(json_object_get(r, "most_blocks")),
                  (long long)json_integer_value(json_object_get(r, "common")));
    json_array_foreach (json_object_get(r, "modules"), i, m)
        if (json_object_get(m, "skipped"))
            (void)fprintf(to, "  %-8s skipped: %s\n", tsr_json_word(json_object_get(m, "name")),
                          tsr_json_word(json_object_get(m, "skipped")));
        else
            (void)fprintf(to, "  %-8s k %4lld of 1024  (%lld inputs, %lld blocks)\n",
                          tsr_json_word(json_object_get(m, "name")),
                          (long long)json_integer_value(json_object_get(m, "k")),
                          (long long)json_integer_value(json_object_get(m, "inputs")),
                          (long long)json_integer_value(json_object_get(m, "blocks")));
    if (json_is_number(json_object_get(r, "knee")))
        (void)fprintf(to, "  the formula's knee: %.1f\n",
                      json_number_value(json_object_get(r, "knee")));
    else
        (void)fprintf(to, "  the formula's knee: not known, %s\n",
                      json_string_value(json_object_get(r, "knee_unknown")));
    (void)fprintf(to, "  at most %.1f %% of what was lost stays lost; %s\n",
                  100 * json_number_value(json_object_get(r, "lost")),
                  json_string_value(json_object_get(r, "plan")));
}

static bool put_modules(json_t *j, const struct tsr_compensate_tune_table *t,
                        const struct tsr_compensate_tune_result *r)
{
    json_t *list = json_array();
    bool    ok = tsr_pipeline_json_put(j, "modules", list);
    for (uint32_t i = 0; i < t->n && ok; i++) {
        json_t *m = json_object();
        ok = tsr_pipeline_json_put_text(m, "name", t->m[i].name) &&
             tsr_pipeline_json_put_int(m, "inputs", t->m[i].inputs) &&
             tsr_pipeline_json_put_int(m, "outputs", t->m[i].outputs) &&
             tsr_pipeline_json_put_int(m, "k", r->k[i]) &&
             tsr_pipeline_json_put_int(m, "blocks", r->blocks[i]) &&
             tsr_pipeline_json_put_real(m, "base_ms", t->m[i].base);
        if (ok && r->skipped[i]) {
            char why[96];
            (void)snprintf(why, sizeof why, "its linears take %.3g us, less than %.3g us",
                           1e3 * t->m[i].base, t->least_us);
            ok = tsr_pipeline_json_put_text(m, "skipped", why);
        }
        ok = json_array_append_new(list, m) == 0 && ok;
    }
    return ok;
}

/* A slow-down within or below the noise of a measured table costs nothing. */
static double slower_by(const struct tsr_compensate_tune_result *r)
{
    return r->base > 0 && r->total > r->base ? r->total / r->base - 1 : 0;
}

/* Why the knee is unknown. */
static const char *knee_unknown(const struct tune_options              *o,
                                const struct tsr_compensate_tune_table *t)
{
    if (!*o->profile)
        return "no cost was measured: 1024 channels took no longer than 512, so that nothing says "
               "how "
               "fast residuals are read";
    if (!(t->bits > 0))
        return "the profile does not say the bits of its weights (bits)";
    if (!(t->host_gbps > 0))
        return "the profile does not say how fast residuals are read (host_gbps)";
    return "the profile does not say how fast weights are read (device_gbps)";
}

static json_t *result(const struct tune_options *o, const struct tsr_compensate_tune_table *t,
                      const struct tsr_compensate_tune_result *r, double lost, const char *path)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put_real(j, "target", o->slower) &&
              tsr_pipeline_json_put_real(j, "slower", slower_by(r)) &&
              tsr_pipeline_json_put_int(j, "most_blocks", r->most_blocks) &&
              tsr_pipeline_json_put_int(j, "common", r->common) &&
              tsr_pipeline_json_put_real(j, "base_ms", r->base) &&
              tsr_pipeline_json_put_real(j, "ms", r->total) &&
              tsr_pipeline_json_put_real(j, "lost", lost) &&
              tsr_pipeline_json_put_text(j, "device", t->device) &&
              tsr_pipeline_json_put_text(j, "plan", path) && put_modules(j, t, r);
    if (ok && t->bits > 0 && t->host_gbps > 0 && t->device_gbps > 0)
        ok = tsr_pipeline_json_put_real(j, "knee",
                                        tsr_compensate_tune_knee(t->bits, t->host_gbps,
                                                                 t->device_gbps));
    else if (ok)
        ok = tsr_pipeline_json_put_text(j, "knee_unknown", knee_unknown(o, t));
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* A file's table, or this device's, which is stored next to the plan. */
static tsr_status get_table(struct tsr_pipeline_job *job, const struct tune_options *o,
                            const struct tsr_compensation *c, struct tsr_compensate_tune_table *t,
                            struct tsr_err *err)
{
    if (*o->profile) {
        char *path = tsr_pipeline_job_input(job, o->profile);
        if (!path)
            return tsr_fail_nomem(err, 0, "a path");
        tsr_status st = tsr_compensate_tune_load(t, path, err);
        if (st == TSR_OK)
            st = tsr_step_tuning_fits(t, path, job->model, job->overlay, c, err);
        free(path);
        return st;
    }
    TSR_TRY(tsr_step_tuning_measure(t, job->registry, job->model, job->overlay, c, &job->on,
                                    (uint32_t)o->act, (uint32_t)o->repeats, err));
    tsr_status st = tsr_step_tuning_store(t, job, PROFILE, err);
    if (st != TSR_OK)
        tsr_compensate_tune_free(t);
    return st;
}

static tsr_status tune(struct tsr_pipeline_job *job, const struct tune_options *o,
                       const struct tsr_compensation *c, const struct tsr_compensate_tune_table *t,
                       struct tsr_err *err)
{
    struct tsr_compensate_tune_result r;
    uint32_t                          k[TSR_MODEL_SITES], blocks[TSR_MODEL_SITES];
    char                             *from = NULL, *to = NULL;
    double                            lost = 0;
    TSR_TRY(tsr_compensate_tune(t, o->slower / 100, (uint32_t)o->most_blocks,
                                (enum tsr_freeze)o->freeze, &r, err));
    tsr_step_tuning_sites(t, &r, k);
    tsr_step_tuning_blocks(t, &r, blocks);
    TSR_TRY(tsr_step_tuning_lost(c, k, &lost, err));
    TSR_TRY(tsr_pipeline_mapped_unchanged(job->model, c, err));
    if (*o->plan && !(from = tsr_pipeline_job_input(job, o->plan)))
        return tsr_fail_nomem(err, 0, "a path");
    tsr_status st = tsr_pipeline_job_output(job, o->to, &to, err);
    if (st == TSR_OK)
        st = tsr_step_tuning_write(to, from, job->model, c, k, blocks, slower_by(&r), lost, err);
    json_t *j = st == TSR_OK ? result(o, t, &r, lost, o->to) : NULL;
    free(from);
    free(to);
    TSR_TRY(st);
    if (j && !job->json)
        print(j, stdout);
    return tsr_pipeline_step_result(job, "tune", j, err);
}

static tsr_status run(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err)
{
    const struct tune_options       *o = opts;
    struct tsr_compensation         *c = NULL;
    struct tsr_compensate_tune_table t = { 0 };
    (void)node;
    TSR_TRY(tsr_pipeline_job_need_model(job, err));
    TSR_TRY(job->packed ? tsr_compensation_open(&c, job->packed, job->model, err)
                        : tsr_compensation_of_model(&c, job->model, err));
    tsr_status st = get_table(job, o, c, &t, err);
    if (st == TSR_OK)
        st = tune(job, o, c, &t, err);
    tsr_compensate_tune_free(&t);
    tsr_compensation_destroy(c);
    return st;
}

static tsr_status check(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d, struct tsr_err *err)
{
    (void)opts;
    (void)err;
    tsr_pipeline_check_input(job, node, "profile", d);
    tsr_pipeline_check_input(job, node, "plan", d);
    return TSR_OK;
}

const struct tsr_pipeline_step tsr_step_tune = {
    .name = "tune",
    .summary = "finds how many channels of each linear may be compensated at a target slow-down",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct tune_options),
    .check = check,
    .run = run,
    .print = print,
};
