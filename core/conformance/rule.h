/* conformance/rule.h - the interface for a file of rules.
 *
 * A rule is a function that runs in a separate process. It returns when the plugin passed, and otherwise ends
 * the process through tsr_conformance_rule_fail() or tsr_conformance_rule_skip(): no rule cleans up.
 *
 * Each rule checks one property and tolerates every other fault as far as it can, so that a plugin with
 * one fault fails one rule. Therefore only the rules about overruns use guarded memory; the others give
 * every buffer room around it (tsr_conformance_roomy()).
 */
#ifndef TSR_CONFORMANCE_RULE_H
#define TSR_CONFORMANCE_RULE_H

#include "conformance/conformance.h"
#include "conformance/test_host.h"
#include "plugin/registry.h"

struct tsr_conformance_case;

#define TSR_CONFORMANCE_RULE_ADVICE 1u /* breaking it is a warning */
#define TSR_CONFORMANCE_RULE_FILE   2u /* once per file, before any component: c->component is NULL */
#define TSR_CONFORMANCE_RULE_RAW    4u /* with FILE; the rule loads the file itself: c->path only */

struct tsr_conformance_rule {
    const char *name;    /* "writes-exactly": lower case and '-', unique over all kinds */
    const char *text;    /* the rule as docs/abi.md has it, one sentence */
    uint32_t    flags;   /* TSR_CONFORMANCE_RULE_* */
    uint32_t    limit_s; /* 0: 20 seconds, for a machine that does other things too */
    void (*run)(struct tsr_conformance_case *c);
};

/* One component kind: how to make it do its work once, for the rules that hold for every kind
 * (any_*.c), and its own rules. */
struct tsr_conformance_kind_rules {
    const char *kind; /* TSR_KIND_QUANTIZER */
    const char *noun; /* "quantizer" */
    /* create() with c->host->give and c->options, and destroy(), which takes NULL. */
    tsr_status (*make)(struct tsr_conformance_case *c, void **self, struct tsr_err *err);
    void (*unmake)(struct tsr_conformance_case *c, void *self);
    /* extension(self, id); NULL also where the table has none. */
    const void *(*extension)(struct tsr_conformance_case *c, void *self, const char *id);
    /* One whole life through the table: create, typical work of a few ms, destroy. A negative status is the
     * plugin's answer (say after a failed alloc or a cancel); everything created is destroyed then too. err
     * may be NULL. Verifies nothing; buffers that the plugin writes are tsr_conformance_roomy().
     * long_run, for the cancel rule: work of about a second of processor time, or as near to it as memory
     * allows. When everything is ready it calls tsr_conformance_test_host_start() and then the one long
     * call; TSR_OK means that the call finished before the cancel. */
    tsr_status (*exercise)(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err);
    const struct tsr_conformance_rule *rules;
    uint64_t                           n_rules;
};

struct tsr_conformance_case {
    const struct tsr_conformance_rule       *rule;
    const struct tsr_conformance_kind_rules *kind;      /* NULL for FILE rules */
    const char                              *path;      /* canonical */
    const struct tsr_plugin                 *plugin;    /* full-size copy; NULL for RAW rules */
    const struct tsr_component              *component; /* full-size copy; NULL for FILE rules */
    const void                              *iface;     /* full-size copy of the kind's table */
    const void *options; /* defaults and --set, filled; a rule may change it */
    struct tsr_conformance_test_host           *host; /* fresh for each rule; one worker */
    uint64_t                                    seed;
    const struct tsr_conformance_check_options *o;
};

/* End the process with the verdict: one sentence that gives the finding, its place and the expected
 * result. */
_Noreturn void tsr_conformance_rule_fail(struct tsr_conformance_case *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void tsr_conformance_rule_skip(struct tsr_conformance_case *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A number that the rule measured, for reports: in plain words what it is, and its unit ("": none).  Those that do not fit
 * into the message of a verdict are left out. */
void tsr_conformance_rule_figure(struct tsr_conformance_case *c, const char *name, double value,
                                 const char *unit);
/* Memory of the rule itself, zeroed; ends the process when there is none.  Never freed. */
void *tsr_conformance_rule_memory(struct tsr_conformance_case *c, uint64_t bytes);
/* "TSR_E_NUMERIC", also for unknown codes ("status -77"; in a buffer that the next call overwrites). */
const char *tsr_conformance_status_name(tsr_status st);

#endif
