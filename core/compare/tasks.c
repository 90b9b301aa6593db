/* Named tasks of every arm. */
#include "base/json.h"
#include "compare/compare.h"

tsr_status compare_tasks_open(struct compare *c, struct tsr_err *err)
{
    TSR_TRY(tsr_pipeline_step_need_tokenizer(c->job, "tasks", err));
    return tsr_pipeline_tasks_open(c->tasks, !c->measure.add_bos, &c->tasks_context, err);
}

/* Of an arm alone: what the tasks ask is the same for all arms and stands in tasks_of. */
static void keep_numbers(json_t *task)
{
    static const char *const common[] = { "shots",     "add_bos",    "data_set", "file",
                                          "file_hash", "shots_hash", "task_hash" };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        (void)json_object_del(task, common[i]);
}

static tsr_status take_results(const struct compare *c, json_t **out, struct tsr_err *err)
{
    json_t *j = tsr_pipeline_tasks_json(c->tasks);
    for (uint64_t i = 0; j && i < tsr_pipeline_tasks_count(c->tasks); i++) {
        const struct tsr_tasks_result *r = tsr_pipeline_tasks_result(c->tasks, i);
        json_t *one = json_object_get(j, tsr_pipeline_tasks_task(c->tasks, i)->name);
        keep_numbers(one);
        if (json_object_set_new(one, "outcomes", tsr_tasks_marks_json(r->marks)) != 0) {
            json_decref(j);
            j = NULL;
        }
    }
    *out = j;
    return j ? TSR_OK : tsr_fail_nomem(err, 256, "the results");
}

tsr_status compare_tasks_run(struct compare *c, const struct compare_arm *a, json_t **out,
                             struct tsr_err *err)
{
    const struct tsr_model   *m = compare_arm_model(c, a);
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options eo = {
        .on = c->job->on, .act = TSR_ACT_F32, .slots = 1, .context = c->tasks_context
    };
    *out = NULL;
    if (!c->tasks)
        return TSR_OK;
    if (m->hp.max_positions < eo.context)
        eo.context = m->hp.max_positions;
    TSR_TRY(compare_arm_engine(c, a, eo, &e, err));
    if (!*c->device)
        (void)snprintf(c->device, sizeof c->device, "%s", tsr_engine_device(e));
    tsr_status st = tsr_pipeline_tasks_run(c->tasks, e, "", err);
    if (st == TSR_OK)
        st = take_results(c, out, err);
    tsr_engine_destroy(e);
    return st;
}

json_t *compare_tasks_of_json(const struct compare *c)
{
    json_t *j = json_object();
    bool    ok = tsr_pipeline_json_put(j, "tasks", tsr_pipeline_tasks_of(c->tasks, true)) &&
              tsr_pipeline_json_put_text(j, "act", "f32") &&
              tsr_pipeline_json_put_text(j, "device", c->device) &&
              tsr_pipeline_json_put_int(j, "draws", TSR_COMPARE_DRAWS) &&
              tsr_pipeline_json_put_int(j, "seed", c->job->seed) &&
              tsr_pipeline_json_put_real(j, "difference", TSR_TASKS_DIFFERENCE);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}
