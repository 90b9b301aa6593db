/* pipeline/steps/external_step.h - a plugin's step (tessera/step.h) as a step of a job, and the host's functions for it.
 *
 *   external.c            the component as a struct tsr_pipeline_step: options, check, run
 *   external_call.c       whether a function may be called now
 *   external_values.c     trees that it reads: results, options, the model's configuration
 *   external_products.c   what it makes: products, files, its section
 *   external_model.c      weights by rows
 *   external_measure.c    tokens, logits, evaluations
 *   external_section.c    its section on the terminal
 */
#ifndef TSR_PIPELINE_STEPS_EXTERNAL_STEP_H
#define TSR_PIPELINE_STEPS_EXTERNAL_STEP_H

#include "pipeline/job.h"
#include "pipeline/step.h"
#include "plugin/guard.h"
#include "tessera/step.h"

#include <pthread.h>

struct tsr_pipeline_external {
    struct tsr_pipeline_step step; /* what the job sees */
    struct tsr_plugin_found  found;
    struct tsr_option       *options; /* of step: those with TSR_OPT_JSON are trees */
    char                   **json;    /* [n_options] texts of such trees; NULL: others */
};

/* A matrix of the model. */
struct external_matrix {
    const struct tsr_matrix       *w;
    const struct tsr_model_packed *stored; /* the original, if the model is packed; or NULL */
    const struct tsr_model_packed *now;    /* that an earlier step made; or NULL */
    const char                    *name;
    uint64_t                       layer;
};

/* One call of check() or run(): the ctx of its functions. */
struct external_call {
    struct tsr_pipeline_job      *job;
    const struct tsr_step_v1     *table;
    const char                   *name; /* of the step */
    const struct tsr_config_node *node; /* its keys */
    struct tsr_diag              *d;    /* check(): takes problems; NULL: run() */
    bool                          open; /* the call is under way */
    pthread_t                     thread;
    json_t                       *result; /* products, under their names */
    json_t                       *files, *section;
    json_t                       *config; /* config.json, or NULL */
    void                        **memory; /* [n_memory] that the step was given */
    uint64_t                      n_memory;
    struct external_matrix       *matrices;
    uint64_t                      n_matrices;
    struct tsr_engine            *engine; /* of logits(), or NULL */
};

/* Whether the call `function` is allowed now; `running`: only in run(). */
tsr_status external_enter(const struct external_call *c, const char *function, bool running,
                          struct tsr_err *err);
/* The call ends: keeps p, which came from malloc(), until then.  Takes p, also after a failure. */
tsr_status external_keep(struct external_call *c, void *p, struct tsr_err *err);

/* A function of the host: the caller is not a plugin while it works. */
#define EXTERNAL_CALL(c, function, running, work)                                                  \
    struct tsr_plugin_guard *guard = tsr_guard_pause();                                            \
    tsr_status               st = external_enter(c, function, running, err);                       \
    if (st == TSR_OK)                                                                              \
        st = work;                                                                                 \
    return tsr_guard_resume(guard, st)

/* Members of struct tsr_step_job, by file. */
void external_values_functions(struct tsr_step_job *j);
void external_products_functions(struct tsr_step_job *j);
void external_model_functions(struct tsr_step_job *j);
void external_measure_functions(struct tsr_step_job *j);

/* Every declared product is there: TSR_E_PLUGIN names the first that is not. */
tsr_status external_products_whole(const struct external_call *c, struct tsr_err *err);
/* The "section" of a result, for people. */
void external_section_print(const json_t *result, FILE *to);

#endif
