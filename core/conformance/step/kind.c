/* Steps: the kind, what a step does for the rules of every kind, and the table of rules. */
#include "conformance/step/step.h"

static const struct tsr_step_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    return table(c)->create(c->host->give, c->options, self, err);
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

/* A step that needs results which the rules do not have is made and not run. */
static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    struct tsr_step_rules_test x;
    void                      *self = NULL;
    tsr_status                 st = make(c, &self, err);
    if (st != TSR_OK)
        return st;
    if (!tsr_step_rules_unmet(c)) {
        tsr_step_rules_open(&x, c);
        st = tsr_step_rules_check(&x, self, err);
        x.slow = long_run;
        if (long_run)
            tsr_conformance_test_host_start(c->host);
        if (st == TSR_OK)
            st = tsr_step_rules_run(&x, self, err);
        if (long_run)
            tsr_conformance_test_host_stop(c->host);
    }
    unmake(c, self);
    if (!tsr_step_rules_unmet(c))
        tsr_step_rules_close(&x);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "step-declares",
      .text = "Needs, inputs and products of the table are as tessera/step.h wants them.",
      .run = tsr_step_rule_declares },
    { .name = "step-products",
      .text = "run() gives every declared product once, and no others.",
      .run = tsr_step_rule_products },
    { .name = "step-finite",
      .text = "Figures and numbers are finite, and what put() gets is JSON.",
      .run = tsr_step_rule_finite },
    { .name = "step-needs",
      .text = "A step reads only what its table declares.",
      .run = tsr_step_rule_needs },
    { .name = "step-ranges",
      .text = "A step asks for matrices, rows and tokens that the model has.",
      .run = tsr_step_rule_ranges },
    { .name = "step-files",
      .text = "write() names files inside the job's folder.",
      .run = tsr_step_rule_files },
    { .name = "step-window",
      .text = "Functions of the job are called inside the call that got them, on its thread.",
      .run = tsr_step_rule_window },
    { .name = "step-section",
      .text = "Texts of the section are UTF-8, and a row has a cell for each column.",
      .run = tsr_step_rule_section },
    { .name = "step-check",
      .text = "check() reads the options and calls nothing that is for run().",
      .run = tsr_step_rule_check },
    { .name = "step-passes-on",
      .text = "A failure of a function of the job comes back from run() or check().",
      .run = tsr_step_rule_passes_on },
    { .name = "step-repeats",
      .text = "The same job gives the same products and section, each time and in every instance.",
      .run = tsr_step_rule_repeats },
};

const struct tsr_conformance_kind_rules tsr_step_rules = {
    .kind = TSR_KIND_STEP,
    .noun = "step",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
