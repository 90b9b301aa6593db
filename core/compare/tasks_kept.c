/* What each question counts, from an arm's result: it stays in the arm's own file, since paired tests are made of it and
 * an arm may have been finished by an earlier run. */
#include "base/mem.h"
#include "compare/compare.h"

#include <stdlib.h>

void compare_tasks_end(const struct compare *c, struct compare_arm *a)
{
    for (uint64_t i = 0; a->marks && i < tsr_pipeline_tasks_count(c->tasks); i++)
        tsr_tasks_marks_destroy(a->marks[i]);
    free(a->marks);
    free(a->tests);
    a->marks = NULL;
    a->tests = NULL;
}

tsr_status compare_tasks_take(const struct compare *c, struct compare_arm *a, const json_t *result,
                              const char *name, struct tsr_err *err)
{
    uint64_t      n = tsr_pipeline_tasks_count(c->tasks);
    const json_t *tasks = json_object_get(result, "tasks");
    tsr_status    st = TSR_OK;
    if (!c->tasks)
        return TSR_OK;
    compare_tasks_end(c, a);
    a->marks = tsr_new(n, sizeof(struct tsr_tasks_marks *));
    if (!a->marks)
        return tsr_fail_nomem(err, n * sizeof *a->marks, "tasks");
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        const struct tsr_tasks_task *t = tsr_pipeline_tasks_task(c->tasks, i);
        const json_t *marks = json_object_get(json_object_get(tasks, t->name), "outcomes");
        st = tsr_tasks_marks_load(&a->marks[i], t, marks, name, err);
        if (st == TSR_OK && a->marks[i]->n != tsr_pipeline_tasks_rows(c->tasks, i))
            st = tsr_fail(err, TSR_E_INPUT, "%s: task '%s' has %llu documents, not %llu", name,
                          t->name, (unsigned long long)a->marks[i]->n,
                          (unsigned long long)tsr_pipeline_tasks_rows(c->tasks, i));
    }
    if (st != TSR_OK)
        compare_tasks_end(c, a);
    return st;
}
