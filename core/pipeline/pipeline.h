/* pipeline/pipeline.h - a job: a YAML file with a head and a list of steps run in order.
 *
 * Each step is one small file pipeline/step_<name>.c with a declared option table; steps.c
 * lists them, job.c is the only place that loops over a job's own.
 *
 *   load -> plugins -> check every step (all errors at once) -> run -> results.json, manifest
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

struct tsr_mates; /* runtime/mates.h */

/* What the steps share.  Owned by job.c. */
struct tsr_job {
    struct tsr_registry    *registry;
    struct tsr_doc         *doc;
    const char             *model_path; /* relative to the file already applied */
    uint64_t                seed;
    char                   *out; /* job folder */
    bool                    json, quiet;
    bool                    verb;        /* made of a verb's options: no file has a place in it */
    struct tsr_model       *model;       /* loaded before the first step that needs it */
    struct tsr_tokenizer   *tokenizer;   /* NULL: the model has none */
    struct tsr_calibration *calibration; /* made by `calibrate`, or NULL */
    struct tsr_overlay     *overlay;     /* made by `quantize`, or NULL: original weights */
    char                   *packed;      /* folder where `quantize` stored it, or NULL */
    json_t                 *results;     /* object: step name -> what it found */
    json_t                 *manifest;    /* object: versions, hashes, seeds, options */
    struct tsr_job_state   *state;       /* job.c's own */
    struct tsr_mates       *mates; /* the job's other processes under MPI, or NULL; borrowed */
};

struct tsr_step {
    const char              *name, *summary;
    const struct tsr_option *options;
    uint64_t                 n_options, options_size;
    bool                     open; /* further keys are a plugin's; check() looks at them */
    /* Everything that can be said without running.  May be NULL.  opts filled, node the map. */
    tsr_status (*check)(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                        struct tsr_diag *d, struct tsr_err *err);
    tsr_status (*run)(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                      struct tsr_err *err);
    /* TSR_NEED_* that run() will ask job->calibration for.  NULL: none.  The model is loaded. */
    tsr_status (*need)(struct tsr_job *job, const void *opts, const struct tsr_node *node,
                       uint64_t *need, struct tsr_err *err);
    /* Prints the step's part of the results as run() printed it, when a finished job is asked
     * for again.  NULL: run() prints nothing. */
    void (*print)(const json_t *result, FILE *to);
    /* Whether what run() wrote beside the results is gone, or is not what it wrote: a finished job is then
     * run once more.  NULL: it is not looked at. */
    tsr_status (*spoilt)(const struct tsr_job *job, const void *opts, bool *yes,
                         struct tsr_err *err);
    /* What a finished job's results need said on stderr, unless the user wants quiet; and whether the options make
     * these results a failure of the command.  NULL: nothing. */
    void (*remark)(const json_t *result, FILE *to);
    tsr_status (*gate)(const void *opts, const json_t *result, struct tsr_err *err);
    bool streams; /* asks for the weights of one layer at a time */
    bool later;   /* of use behind other steps only: no verb of its own */
};
extern const struct tsr_step *const tsr_steps[];
extern const uint64_t               tsr_n_steps;

/* How a job is asked for.  Everything is borrowed for as long as the job lives. */
struct tsr_step_pair;
struct tsr_job_options {
    const char        *out;  /* job folder; NULL: out/<file stem> */
    const char *const *sets; /* overrides "a.b=c" */
    uint64_t           n_sets;
    /* options of steps from the command line, of tsr_job_load() */
    const struct tsr_step_pair *pairs;
    uint64_t                    n_pairs;
    bool                        json, quiet;
    const struct tsr_step *append; /* of tsr_job_load(): put behind the steps of a job without it */
    bool                   again;  /* forget what an earlier run left in the folder */
    bool
        launched; /* one of several processes of an MPI job: paths are this host's, and a rank that is
                    * not 0 neither reads the job's folder nor writes */
};

/* Reads the file and applies the overrides.  Errors of the file go to d, and *job is then NULL or
 * a job that tsr_job_check() finds more errors in; TSR_OK does not mean that d has none.  A file
 * that cannot be read at all is TSR_E_INPUT with *job NULL. */
tsr_status tsr_job_load(struct tsr_job **job, const char *path, const struct tsr_job_options *o,
                        struct tsr_diag *d, struct tsr_err *err);
/* A job of one step; pairs are "key=value", relative paths start at the current folder. */
tsr_status tsr_job_make(struct tsr_job **job, const char *model, const struct tsr_step *step,
                        const char *const *pairs, uint64_t n_pairs, const struct tsr_job_options *o,
                        struct tsr_diag *d, struct tsr_err *err);
/* The same of several steps, in order; each pair is for one of them. */
struct tsr_step_pair {
    const struct tsr_step *step;
    const char            *text; /* "key=value" */
};
tsr_status tsr_job_make_steps(struct tsr_job **job, const char *model,
                              const struct tsr_step *const *steps, uint64_t n_steps,
                              const struct tsr_step_pair *pairs, uint64_t n_pairs,
                              const struct tsr_job_options *o, struct tsr_diag *d,
                              struct tsr_err *err);
void       tsr_job_destroy(struct tsr_job *job);
/* Whether the pipeline of a loaded job names a step. */
bool tsr_job_has_step(const struct tsr_job *job, const char *name);
/* Adds the paths of `plugins:` to the registry, and how its plugins are to be run. */
tsr_status tsr_job_plugins(struct tsr_job *job, struct tsr_registry *r, struct tsr_diag *d,
                           struct tsr_err *err);
/* Fills and checks every step, and puts the defaults into the doc. */
tsr_status tsr_job_check(struct tsr_job *job, struct tsr_registry *r, struct tsr_diag *d,
                         struct tsr_err *err);
/* Runs a checked job in its folder.  *done: the folder held the finished job already and nothing
 * was run; job->results holds what it found.  Cancelled: TSR_E_CANCELLED, run again. */
tsr_status tsr_job_run(struct tsr_job *job, bool *done, struct tsr_err *err);
/* {"format": "tessera.results/1", "results": {...}}; new reference, NULL when out of memory. */
json_t *tsr_job_results(const struct tsr_job *job);
/* The results of a finished job, step by step. */
void tsr_job_print(const struct tsr_job *job, FILE *to);

/* What the steps remark on a finished job's results. */
void tsr_job_remark(const struct tsr_job *job, FILE *to);
/* TSR_E_GATE with a sentence where a fail_if of a finished job holds, TSR_E_NUMERIC where all arms of a
 * comparison failed, TSR_E_CHECK where records of a batch did that must not. */
tsr_status tsr_job_gate(const struct tsr_job *job, struct tsr_err *err);

/* The step of a name, or NULL. */
const struct tsr_step *tsr_step_find(const char *name);
/* The keys of the head, for the schema. */
const struct tsr_option *tsr_job_head(uint64_t *n);
/* Those of `plugins:` where it is a map. */
const struct tsr_option *tsr_job_plugins_options(uint64_t *n);

/* Input path of a step, relative to the YAML file; fresh memory.  The file goes into the manifest
 * with its hash. */
char *tsr_job_input(const struct tsr_job *job, const char *path);
/* Output path inside the job folder (or as given if absolute); fresh memory, folder made. */
tsr_status tsr_job_output(const struct tsr_job *job, const char *path, char **full,
                          struct tsr_err *err);
/* Loads model and tokenizer if they are not loaded.  A job of nothing but steps that stream gets a
 * model whose layers are in memory one at a time. */
tsr_status tsr_job_need_model(struct tsr_job *job, struct tsr_err *err);
bool       tsr_job_streams(const struct tsr_job *job);
/* The tokenizer of a model argument; *t is NULL where the model has none. */
tsr_status tsr_job_load_tokenizer(struct tsr_tokenizer **t, const char *model, struct tsr_err *err);

#endif
