/* Tasks: the kind, the rules about the file itself, and the table of all. */
#include "conformance/task/task.h"

#include <string.h>

#define NAME 48u

static void reads(struct tsr_conformance_case *c)
{
    (void)tsr_task_under_check(c);
}

static void name(struct tsr_conformance_case *c)
{
    const struct tsr_tasks_task *t = tsr_task_under_check(c);
    if (!tsr_conformance_text_name_ok(t->name, NAME))
        tsr_conformance_rule_fail(c, "the name is \"%.60s\"", t->name);
    if (tsr_tasks_is_built_in(t->name))
        tsr_conformance_rule_fail(c, "the name \"%s\" is that of a built-in task", t->name);
}

static void summary(struct tsr_conformance_case *c)
{
    const struct tsr_tasks_task *t = tsr_task_under_check(c);
    if (strlen(t->summary) < 3 || strchr(t->summary, '\n'))
        tsr_conformance_rule_fail(c, "the summary is \"%.60s\"", t->summary);
}

static void golden(struct tsr_conformance_case *c)
{
    struct tsr_task_golden g;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    if (tsr_task_golden_read(&g, c->path, &e.err) != TSR_OK)
        tsr_conformance_rule_fail(c, "%s", e.text);
}

static void shots(struct tsr_conformance_case *c)
{
    const struct tsr_tasks_task *t = tsr_task_under_check(c);
    struct tsr_task_golden       g;
    if (!*t->shot_split)
        tsr_conformance_rule_skip(c, "the file names no split of shots");
    tsr_task_golden_need(c, &g);
    for (size_t i = 0; i < json_array_size(g.g.cases); i++)
        if (tsr_task_golden_case(&g, i).shots)
            return;
    tsr_conformance_rule_fail(c, "the file takes shots from the split \"%s\", and all cases have 0",
                              t->shot_split);
}

#define RAW (TSR_CONFORMANCE_RULE_FILE | TSR_CONFORMANCE_RULE_RAW)

static const struct tsr_conformance_rule rules[] = {
    { "task-reads", "The file is a task: its keys are known, and what they say fits together.", RAW,
      0, reads },
    { "task-name",
      "A task's name has 1 to 48 lower-case letters, digits, '_' and '-', a letter first, and is "
      "no built-in task's.",
      RAW, 0, name },
    { "task-summary", "The summary says in one line what the task asks.", RAW, 0, summary },
    { "task-golden",
      "NAME.golden.json has the author's program, rows, and cases of requests made of them.", RAW,
      0, golden },
    { "task-shots", "If the file names a split of shots, a case of the golden has shots.", RAW, 0,
      shots },
    { "task-requests",
      "Contexts, continuations and texts of every row are the golden's, byte for byte.", RAW, 0,
      tsr_task_rule_requests },
    { "task-answers", "The right choice of every row is the golden's.", RAW, 0,
      tsr_task_rule_answers },
    { "task-scores",
      "The metrics of the golden's log-likelihoods are the golden's, and no other ones.", RAW, 60,
      tsr_task_rule_scores },
};

const struct tsr_conformance_kind_rules tsr_task_rules = {
    .kind = TSR_TASKS_FORMAT,
    .noun = "task",
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
};
