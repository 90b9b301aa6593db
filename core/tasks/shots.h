/* tasks/shots.h - which rows are the shots of each document. */
#ifndef TSR_TASKS_SHOTS_H
#define TSR_TASKS_SHOTS_H

#include "tasks/rows.h"

struct tsr_tasks_shots;
/* n: shots of a document.  from: NULL if n is 0.  TSR_E_INPUT: a group of rows has too few. */
tsr_status  tsr_tasks_shots_create(struct tsr_tasks_shots **s, const struct tsr_tasks_task *t,
                                   const struct tsr_tasks_rows *rows,
                                   const struct tsr_tasks_rows *from, uint64_t n,
                                   struct tsr_err *err);
void        tsr_tasks_shots_destroy(struct tsr_tasks_shots *s);
void        tsr_tasks_shots_restart(struct tsr_tasks_shots *s);
uint64_t    tsr_tasks_shots_groups(const struct tsr_tasks_shots *s);
const char *tsr_tasks_shots_group(const struct tsr_tasks_shots *s, uint64_t i);
/* The rows of the shots of document `row`, in memory of s, and the document's group.  Called for the documents in
 * order, since each draws from where the one before stopped. */
tsr_status tsr_tasks_shots_next(struct tsr_tasks_shots *s, uint64_t row, const uint64_t **rows,
                                uint64_t *n, uint64_t *group, struct tsr_err *err);

#endif
