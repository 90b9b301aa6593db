/* tasks/run.h - a task on an engine. */
#ifndef TSR_TASKS_RUN_H
#define TSR_TASKS_RUN_H

#include "base/output.h"
#include "tasks/metrics.h"

struct tsr_tasks_result {
    struct tsr_tasks_summary  all;
    struct tsr_tasks_summary *group; /* [groups], NULL without groups */
    struct tsr_tasks_marks   *marks;
    uint64_t                  requests, cut; /* cut: requests that lost tokens of their context */
    uint64_t                  tokens_run, tokens_shared;
    double                    seconds;
};
void tsr_tasks_result_free(struct tsr_tasks_result *r);

/* Positions that the longest request of the task takes, at most the model's maximum. */
tsr_status tsr_tasks_context(struct tsr_tasks_reader *r, const struct tsr_tasks_task *t,
                             const struct tsr_eval_encoding *how, uint64_t *context,
                             struct tsr_err *err);
/* log: takes a line for each request (docs/formats/task.md), or NULL.  Slot 0 of the engine is empty afterwards. */
tsr_status tsr_tasks_run(struct tsr_tasks_reader *r, const struct tsr_tasks_task *t,
                         struct tsr_engine *e, const struct tsr_eval_encoding *how,
                         struct tsr_writer *log, struct tsr_tasks_result *out, struct tsr_err *err);

#endif
