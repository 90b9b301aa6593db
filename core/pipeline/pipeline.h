/* pipeline/pipeline.h - a job: a YAML file with a head and a list of steps run in order.
 *
 * Each step is one small file pipeline/step_<name>.c with a declared option table; job.c holds
 * the list and is the only place that loops over it.
 *
 *   load -> check every step (all errors at once) -> run the steps -> results.json, manifest
 */
#ifndef TSR_PIPELINE_PIPELINE_H
#define TSR_PIPELINE_PIPELINE_H

#include "config/config.h"
#include "engine/engine.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "plugin/registry.h"
#include "quant/quant.h"

#include <jansson.h>

/* What the steps share.  Owned by job.c. */
struct tsr_job {
    struct tsr_registry    *registry;
    struct tsr_doc         *doc;
    const char             *model_path;  /* relative to the file already applied */
    uint64_t                seed;
    char                   *out;         /* job folder */
    bool                    json, quiet;
    struct tsr_model       *model;       /* loaded before the first step that needs it */
    struct tsr_tokenizer   *tokenizer;   /* NULL: the model has none */
    struct tsr_calibration *calibration; /* made by `calibrate`, or NULL */
    struct tsr_overlay     *overlay;     /* made by `quantize`, or NULL: original weights */
    json_t                 *results;     /* object: step name -> what it found */
    json_t                 *manifest;    /* object: versions, hashes, seeds, options */
};

struct tsr_step {
    const char *name, *summary;
    const struct tsr_option *options;
    uint64_t    n_options, options_size;
    bool        open;                    /* further keys are a plugin's; check() looks at them */
    /* Everything that can be said without running.  May be NULL.  opts filled, node the map. */
    tsr_status (*check)(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err);
    tsr_status (*run)(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err);
};
extern const struct tsr_step *const tsr_steps[];
extern const uint64_t tsr_n_steps;

/* Input path of a step, relative to the YAML file; fresh memory. */
char *tsr_job_input(const struct tsr_job *job, const char *path);
/* Output path inside the job folder (or as given if absolute); fresh memory, folder made. */
tsr_status tsr_job_output(const struct tsr_job *job, const char *path, char **full,
                          struct tsr_err *err);
/* Loads model and tokenizer if they are not loaded. */
tsr_status tsr_job_need_model(struct tsr_job *job, struct tsr_err *err);

#endif
