/* pipeline/steps/eval_tasks.h - named tasks of the step eval: their files, rows, runs and results. */
#ifndef TSR_PIPELINE_STEPS_EVAL_TASKS_H
#define TSR_PIPELINE_STEPS_EVAL_TASKS_H

#include "pipeline/pipeline.h"
#include "tasks/run.h"

struct eval_tasks_keys {
    const struct tsr_config_node *tasks; /* NULL: none */
    const char                   *data, *log_samples;
    int64_t                       shots; /* -1: as the task says */
};
#define EVAL_TASKS_OPTIONS(S, k)                                                                   \
    { .name = "tasks",                                                                             \
      .help = "Named tasks, or files FILE.yaml of them: [arc_easy, hellaswag].",                   \
      .type = TSR_OPT_NODE,                                                                        \
      .offset = TSR_FIELD(S, k.tasks, const struct tsr_config_node *) },                           \
        { .name = "data",                                                                          \
          .help = "Folder with the rows of tasks; default: the hub's cache.",                      \
          .type = TSR_OPT_STRING,                                                                  \
          .unit = "FOLDER",                                                                        \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.data, const char *),                                            \
          .def = { .s = "" } },                                                                    \
        { .name = "shots",                                                                         \
          .help = "Answered examples before each question of a task; -1: as the task says.",       \
          .type = TSR_OPT_INT,                                                                     \
          .flags = TSR_OPT_UNSAID,                                                                 \
          .offset = TSR_FIELD(S, k.shots, int64_t),                                                \
          .min = { .i = -1 },                                                                      \
          .max = { .i = 1000 },                                                                    \
          .def = { .i = -1 } },                                                                    \
    {                                                                                              \
        .name = "log_samples", .help = "Write each request of the tasks with its log-likelihood.", \
        .type = TSR_OPT_STRING, .unit = "FILE", .flags = TSR_OPT_UNSAID,                           \
        .offset = TSR_FIELD(S, k.log_samples, const char *), .def = {                              \
            .s = ""                                                                                \
        }                                                                                          \
    }

struct eval_tasks;
/* Names, and the text of task files; errors with their place go to d. */
void eval_tasks_check(struct tsr_pipeline_job *job, const struct eval_tasks_keys *k,
                      const struct tsr_config_node *node, struct tsr_diag *d);
/* Tasks with their rows, and the positions that their longest request takes. */
tsr_status eval_tasks_open(struct eval_tasks **t, struct tsr_pipeline_job *job,
                           const struct eval_tasks_keys *k, bool no_bos, uint64_t *context,
                           struct tsr_err *err);
tsr_status eval_tasks_run(struct eval_tasks *t, struct tsr_engine *e, struct tsr_err *err);
void       eval_tasks_close(struct eval_tasks *t);

/* "tasks" of the result: an object for each task by its name; NULL: out of memory. */
json_t *eval_tasks_json(const struct eval_tasks *t);
void    eval_tasks_print(const json_t *tasks, FILE *to);

#endif
