/* conformance/conformance.h - `tessera plugin check`: whether a plugin keeps the rules of docs/abi.md.
 *
 *   file -> describe (a child loads it and lists its components)
 *        -> for each rule and component: fork, run the rule in the child, read its verdict
 *        -> report (one line each, or --json)
 *
 * Only children map the plugin: any damage to the process ends with the child.
 */
#ifndef TSR_CONFORMANCE_H
#define TSR_CONFORMANCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

enum tsr_verdict {
    TSR_CONFORMANCE_PASS,
    TSR_CONFORMANCE_WARN, /* broken, but only advice */
    TSR_CONFORMANCE_FAILED,
    TSR_CONFORMANCE_SKIP,    /* does not apply to this component; text says why */
    TSR_CONFORMANCE_CRASHED, /* text names the signal, and the buffer whose end was passed */
    TSR_CONFORMANCE_HUNG,    /* over the rule's time limit */
};

struct tsr_conformance_check_options {
    const char        *only;      /* glob over rule names, or NULL */
    const char        *skip;      /* glob over rule names, or NULL */
    const char        *component; /* a component's name, or NULL: all */
    const char        *on;   /* file of a backend's plugin, for the rules device-*; NULL: none */
    const char *const *sets; /* "key=value" options of the components */
    uint64_t           n_sets;
    uint64_t           seed;
    uint32_t           limit_s;    /* for every rule; 0: each has its own */
    bool               in_process; /* no fork: for a debugger; `only` names one rule */
};

struct tsr_conformance_check_result {
    const struct tsr_conformance_rule *rule;
    char                              *component; /* "quantizer rtn", or NULL: the file */
    enum tsr_verdict                   verdict;
    char                              *text;    /* one sentence; NULL after a pass */
    char                              *figures; /* lines "NAME\tVALUE\tUNIT"; NULL: none */
    double                             seconds;
};

struct tsr_conformance_check_report {
    char *path, *id; /* id: the plugin's, NULL where it does not load */
    struct tsr_conformance_check_result *results;
    uint64_t                             n, passed, failed, warned, skipped;
    uint64_t                             seed; /* of every rule */
};

/* Runs every applicable rule. A plugin that breaks rules is TSR_OK with report->failed > 0 (failed,
 * crashed and hung together); an error is an unreadable file or an unknown option. Call from a process
 * without further threads. progress (may be NULL) gets a line per rule as it ends. Free the report after
 * an error too. [setup] */
tsr_status tsr_conformance_check_run(struct tsr_conformance_check_report *report, const char *path,
                                     const struct tsr_conformance_check_options *o, FILE *progress,
                                     struct tsr_err *err);
void       tsr_conformance_check_report_free(struct tsr_conformance_check_report *r);

/* One line of a report, as progress gets it. */
void tsr_conformance_check_print(const struct tsr_conformance_check_result *r, FILE *to);
/* "tessera.check/1" (docs/formats/check.md); new reference, NULL when out of memory. */
struct json_t;
struct json_t *tsr_conformance_check_json(const struct tsr_conformance_check_report *r);

/* The i-th rule over all kinds, in the order of a report; kind is NULL for the rules of every
 * plugin, else "quantizer".  False past the end. */
bool tsr_conformance_check_rule_at(uint64_t i, const struct tsr_conformance_rule **rule,
                                   const char **kind);

#endif
