/* The YAML file under check, read as a task. */
#include "conformance/task/task.h"

struct tsr_tasks_task *tsr_task_under_check(struct tsr_conformance_case *c)
{
    /* memory of the check holds it, so that without a process of its own it stays reachable */
    struct tsr_tasks_task **held = tsr_conformance_rule_memory(c, sizeof *held), *t = NULL;
    struct tsr_diag        *d = NULL;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    tsr_status              st = tsr_config_diag_create(&d, &e.err);
    if (st == TSR_OK)
        st = tsr_tasks_open(&t, c->path, d, &e.err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "%s", e.text);
    *held = t;
    return t;
}
