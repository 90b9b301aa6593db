/* conformance/internal.h - declarations shared by the runner's files. */
#ifndef TSR_CONFORMANCE_INTERNAL_H
#define TSR_CONFORMANCE_INTERNAL_H

#include "conformance/rule.h"

#include <setjmp.h>

#define TSR_VERDICT_TEXT    1500
#define TSR_VERDICT_FIGURES 600
#define TSR_VERDICT_SPLIT   '\x1e' /* between sentence and figures in the pipe; no sentence has it */

/* The rules of every plugin, and the kinds that have rules. */
extern const struct tsr_conformance_rule tsr_any_rules[];
extern const uint64_t                    tsr_n_any_rules;
const struct tsr_conformance_kind_rules *tsr_conformance_kind_rules_find(const char *kind);
/* The same by the word for it: "family". */
const struct tsr_conformance_kind_rules *tsr_conformance_noun_rules_find(const char *noun);

/* One rule on one component, as the process that runs it sees it. */
struct tsr_conformance_rule_run {
    struct tsr_conformance_case c;     /* first: a case is found back from its address */
    int                         fd;    /* takes the verdict; -1: this process continues, through
                                    * `back` */
    uint64_t                    index; /* of the component among those known to the host */
    sigjmp_buf                  back;
    enum tsr_verdict            verdict;
    char                        text[TSR_VERDICT_TEXT];
    char                        figures[TSR_VERDICT_FIGURES]; /* lines "NAME\tVALUE\tUNIT" */
};

/* Runs the rule in this process; returns only with fd -1. */
void tsr_conformance_rule_run_here(struct tsr_conformance_rule_run *r);
/* Loads the plugin and answers with its id in a line, then
 * "kind\tname\t\n" per component (before the end a '1' or '0' per --set: is it an option?) as the text of TSR_CONFORMANCE_PASS; a file
 * that the host refuses is TSR_CONFORMANCE_FAILED, options that do not fit TSR_CONFORMANCE_SKIP. */
void tsr_conformance_describe_here(struct tsr_conformance_rule_run *r);

/* Runs f(r) in a child with its own standard streams and reads the verdict. */
tsr_status tsr_conformance_rule_fork(struct tsr_conformance_rule_run *r,
                                     void (*f)(struct tsr_conformance_rule_run *), uint32_t limit_s,
                                     double *seconds, struct tsr_err *err);

/* Calls f in the thread that receives a fatal signal, with a description ("ended with signal 11 ..."); f
 * ends the process with a verdict, or returns for the default one. */
void tsr_conformance_child_on_signal(void (*f)(const char *what));

/* Bytes that this child wrote to its standard output and error so far. */
uint64_t tsr_conformance_child_output(void);
/* Calls of fork() in this child so far. */
uint64_t tsr_conformance_child_forks(void);

#endif
