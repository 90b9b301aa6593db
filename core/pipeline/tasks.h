/* pipeline/tasks.h - named tasks of a step: their options, files, rows, runs and results.
 *
 *   tsr_pipeline_tasks_read()    names and task files, at check time too
 *   tsr_pipeline_tasks_open()    rows of the data sets
 *   tsr_pipeline_tasks_run()     on an engine; again on another one, which replaces the results
 */
#ifndef TSR_PIPELINE_TASKS_H
#define TSR_PIPELINE_TASKS_H

#include "pipeline/pipeline.h"
#include "tasks/run.h"

struct tsr_pipeline_tasks_keys {
    const struct tsr_config_node *tasks; /* NULL: none */
    const char                   *data, *fewshot_data;
    int64_t                       shots; /* -1: as the task says */
};
#define TSR_PIPELINE_TASKS_OPTIONS(S, k)                                                           \
    { .name = "tasks",                                                                             \
      .help = "Named tasks, or files FILE.yaml of them: [arc_easy, hellaswag].",                   \
      .type = TSR_OPT_NODE,                                                                        \
      .offset = TSR_FIELD(S, k.tasks, const struct tsr_config_node *) },                           \
        { .name = "data",                                                                          \
          .help = "Rows of tasks: a folder, or a JSON Lines file; default: the hub's cache.",      \
          .type = TSR_OPT_STRING,                                                                  \
          .unit = "PATH",                                                                          \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.data, const char *),                                            \
          .def = { .s = "" } },                                                                    \
        { .name = "fewshot_data",                                                                  \
          .help =                                                                                  \
              "JSON Lines file with the rows that shots come from; default: the task's split.",    \
          .type = TSR_OPT_STRING,                                                                  \
          .unit = "FILE",                                                                          \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.fewshot_data, const char *),                                    \
          .def = { .s = "" } },                                                                    \
    {                                                                                              \
        .name = "shots",                                                                           \
        .help = "Answered examples before each question of a task; -1: as the task says.",         \
        .type = TSR_OPT_INT, .flags = TSR_OPT_UNSAID, .offset = TSR_FIELD(S, k.shots, int64_t),    \
        .min = { .i = -1 }, .max = { .i = 1000 }, .def = {                                         \
            .i = -1                                                                                \
        }                                                                                          \
    }

struct tsr_pipeline_tasks;
/* *t: the tasks that k names, NULL if it names none.  Errors in names and task files, and a task that is listed
 * twice, go to d with their place; a task with an error is left out.  k and job outlive *t.  [setup] */
tsr_status tsr_pipeline_tasks_read(struct tsr_pipeline_tasks **t, struct tsr_pipeline_job *job,
                                   const struct tsr_pipeline_tasks_keys *k,
                                   const struct tsr_config_node *node, struct tsr_diag *d,
                                   struct tsr_err *err);
/* Finds the rows.  *context: positions that the longest request takes, at most the maximum of the job's model.
 * TSR_E_INPUT names a data set without rows.  [setup] */
tsr_status tsr_pipeline_tasks_open(struct tsr_pipeline_tasks *t, bool no_bos, uint64_t *context,
                                   struct tsr_err *err);
/* All tasks.  log_samples: file for a line per request, "" for none.  Slot 0 of the engine is empty afterwards. */
tsr_status tsr_pipeline_tasks_run(struct tsr_pipeline_tasks *t, struct tsr_engine *e,
                                  const char *log_samples, struct tsr_err *err);
void       tsr_pipeline_tasks_close(struct tsr_pipeline_tasks *t);

uint64_t                       tsr_pipeline_tasks_count(const struct tsr_pipeline_tasks *t);
const struct tsr_tasks_task   *tsr_pipeline_tasks_task(const struct tsr_pipeline_tasks *t,
                                                       uint64_t                         i);
const struct tsr_tasks_result *tsr_pipeline_tasks_result(const struct tsr_pipeline_tasks *t,
                                                         uint64_t                         i);

/* Rows, once they are open. */
uint64_t tsr_pipeline_tasks_rows(const struct tsr_pipeline_tasks *t, uint64_t i);

/* "tasks" of a result: an object for each task by its name; NULL: out of memory. */
json_t *tsr_pipeline_tasks_json(const struct tsr_pipeline_tasks *t);
/* What each task asks, by its name: shots, data set, hashes of rows, shots and task file; with files, also the first
 * file of rows.  Equal without files means equal requests.  NULL: out of memory. */
json_t *tsr_pipeline_tasks_of(const struct tsr_pipeline_tasks *t, bool files);
void    tsr_pipeline_tasks_print(const json_t *tasks, FILE *to);

#endif
