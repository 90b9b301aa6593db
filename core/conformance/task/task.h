/* conformance/task/task.h - the rules for task files, by file; rules.c has their words. */
#ifndef TSR_CONFORMANCE_TASK_TASK_H
#define TSR_CONFORMANCE_TASK_TASK_H

#include "conformance/text.h"
#include "tasks/documents.h"

#define TSR_TASK_GOLDEN "tessera.task-golden/1"

/* The rows are the golden's; everything is borrowed from g. */
struct tsr_task_golden {
    struct tsr_conformance_golden g;
    struct tsr_tasks_rows         rows, shot_rows; /* shot_rows.list NULL: it has none */
};
/* One case: `shots` answered examples before each question. */
struct tsr_task_case {
    uint64_t      shots;
    const json_t *requests;          /* objects with context and continuation, or text */
    const json_t *answers, *metrics; /* or NULL */
};

/* file.c: the file as a task; one that cannot be read fails the rule. */
struct tsr_tasks_task *tsr_task_under_check(struct tsr_conformance_case *c);
/* golden.c.  TSR_E_INPUT is one sentence for the author. */
tsr_status tsr_task_golden_read(struct tsr_task_golden *g, const char *path, struct tsr_err *err);
/* The same; a golden that task-golden refuses skips the rule. */
void tsr_task_golden_need(struct tsr_conformance_case *c, struct tsr_task_golden *g);
struct tsr_task_case tsr_task_golden_case(const struct tsr_task_golden *g, size_t i);

/* requests.c.  The reader of a case's documents; shots that the task cannot draw fail the rule. */
struct tsr_tasks_reader *tsr_task_reader(struct tsr_conformance_case  *c,
                                         const struct tsr_tasks_task  *t,
                                         const struct tsr_task_golden *g, size_t at);
/* The next document of a reader, or a failure of the rule. */
struct tsr_tasks_document tsr_task_document(struct tsr_conformance_case *c,
                                            struct tsr_tasks_reader *r, size_t at, uint64_t row);
void                      tsr_task_rule_requests(struct tsr_conformance_case *c);
void                      tsr_task_rule_answers(struct tsr_conformance_case *c);
/* scores.c */
void tsr_task_rule_scores(struct tsr_conformance_case *c);

#endif
