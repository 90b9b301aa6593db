/* conformance/step/step.h - declarations shared by the files of step rules. */
#ifndef TSR_CONFORMANCE_STEP_STEP_H
#define TSR_CONFORMANCE_STEP_STEP_H

#include "conformance/helpers.h"
#include "tessera/step.h"

#include <jansson.h>
#include <pthread.h>

/* What a step can get wrong with its job; wrong[] keeps the first of each. */
enum tsr_step_rules_wrong {
    TSR_STEP_WRONG_PRODUCT, /* not declared, given twice, of another form */
    TSR_STEP_WRONG_FIGURE,  /* not finite, no JSON                        */
    TSR_STEP_WRONG_NEED,    /* what the table does not declare            */
    TSR_STEP_WRONG_RANGE,   /* a matrix, rows or tokens that do not exist */
    TSR_STEP_WRONG_FILE,    /* a name outside of the folder               */
    TSR_STEP_WRONG_WINDOW,  /* outside of the call, on another thread     */
    TSR_STEP_WRONG_SECTION, /* no text, rows of another width             */
    TSR_STEP_WRONG_CHECK,   /* in check() what is for run()               */
    TSR_STEP_WRONGS
};

/* A made-up job of a small model.  It answers what a host refuses, too, so that each fault breaks its own rule only. */
struct tsr_step_rules_test {
    struct tsr_conformance_case *c;
    const struct tsr_step_v1    *t;
    struct tsr_step_job          job;
    json_t                      *options; /* tree of the step's keys */
    json_t                      *results; /* canned, by step         */
    json_t                      *config;
    json_t                      *made;    /* all that the step gave, in order */
    json_t                      *names;   /* of products that it gave         */
    uint64_t                     columns; /* of the last table              */
    bool                         open, checking, slow;
    pthread_t                    thread;
    json_t                      *calls; /* of each function that can fail, how many     */
    const char *fail_in;                /* the call number fail_at of this one fails; NULL: none */
    json_int_t  fail_at;
    bool        failed; /* that call came */
    char        wrong[TSR_STEP_WRONGS][256];
    uint32_t    ids[256];
};

/* The needs of a step that no rule has: a sentence, or NULL. */
const char *tsr_step_rules_unmet(const struct tsr_conformance_case *c);
/* A fresh job.  close() frees what it owns. */
void tsr_step_rules_open(struct tsr_step_rules_test *x, struct tsr_conformance_case *c);
void tsr_step_rules_close(struct tsr_step_rules_test *x);
/* check() and run() of an instance. */
tsr_status tsr_step_rules_check(struct tsr_step_rules_test *x, const void *self,
                                struct tsr_err *err);
tsr_status tsr_step_rules_run(struct tsr_step_rules_test *x, void *self, struct tsr_err *err);

/* The trees that a job's steps read (trees.c). */
json_t *tsr_step_rules_options_tree(const struct tsr_conformance_case *c);
json_t *tsr_step_rules_canned_results(void);
json_t *tsr_step_rules_canned_config(void);
void    tsr_step_rules_show(const json_t *j, const char *key, struct tsr_step_value *v);
void    tsr_step_rules_tree_functions(struct tsr_step_job *j);

void tsr_step_rule_declares(struct tsr_conformance_case *c);
void tsr_step_rule_products(struct tsr_conformance_case *c);
void tsr_step_rule_finite(struct tsr_conformance_case *c);
void tsr_step_rule_needs(struct tsr_conformance_case *c);
void tsr_step_rule_ranges(struct tsr_conformance_case *c);
void tsr_step_rule_files(struct tsr_conformance_case *c);
void tsr_step_rule_window(struct tsr_conformance_case *c);
void tsr_step_rule_section(struct tsr_conformance_case *c);
void tsr_step_rule_check(struct tsr_conformance_case *c);
void tsr_step_rule_passes_on(struct tsr_conformance_case *c);
void tsr_step_rule_repeats(struct tsr_conformance_case *c);

#endif
