/* tasks/task_text.h - the texts of configs/tasks, put into the program by tools/embed. */
#ifndef TSR_TASKS_TASK_TEXT_H
#define TSR_TASKS_TASK_TEXT_H

#include "tasks.h" /* TSR_TASKS_BUILT_IN */

struct tsr_tasks_text {
    const char *name; /* "configs/tasks/arc_easy.yaml" */
    const char *text;
};
extern const struct tsr_tasks_text tsr_tasks_texts[TSR_TASKS_BUILT_IN];

#endif
