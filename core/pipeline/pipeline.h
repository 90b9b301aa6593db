/* pipeline/pipeline.h - a job: a YAML file with a head and a list of steps run in order.
 *
 * Each step is one small file pipeline/steps/<name>.c with a declared option table; steps.c
 * lists them; job_*.c alone loop over a job's own.
 *
 *   load -> plugins -> check every step (all errors at once) -> run -> results.json, manifest
 */
#ifndef TSR_PIPELINE_PIPELINE_H
#define TSR_PIPELINE_PIPELINE_H

#include "config/config.h"
#include "engine/engine.h"
#include "model/model.h"
#include "plugin/registry.h"
#include "quant/quant.h"
#include "tokenizer/tokenizer.h"

#include <jansson.h>

struct tsr_runtime_peers; /* runtime/peers.h */

/* What the steps share.  Owned by job.c. */
struct tsr_pipeline_job {
    struct tsr_registry           *registry;
    struct tsr_config_doc         *doc;
    const char                    *model_path; /* relative to the file already applied */
    uint64_t                       seed;
    struct tsr_plugin_run_on       on;      /* backend, threads and the like of its models */
    uint32_t                       threads; /* and on how many; 0: all CPUs */
    char                          *out;     /* job folder */
    bool                           json, quiet;
    bool                           verb;  /* made from a verb's options: has no places in a file */
    bool                           loose; /* no folder: outputs are relative to the current one */
    struct tsr_model              *model; /* loaded before the first step that needs it */
    struct tsr_tokenizer          *tokenizer;   /* NULL: the model has none */
    struct tsr_quant_calibration  *calibration; /* made by `calibrate`, or NULL */
    struct tsr_model_overlay      *overlay;     /* made by `quantize`, or NULL: original weights */
    char                          *packed;      /* folder where `quantize` stored it, or NULL */
    json_t                        *results;     /* object: step name -> its result */
    json_t                        *manifest;    /* object: versions, hashes, seeds, options */
    struct tsr_pipeline_job_state *state;       /* job.c's own */
    struct tsr_pipeline_job_step  *at; /* the current step: in check, need or run (job.h) */
    struct tsr_runtime_peers *peers;   /* the job's other processes under MPI, or NULL; borrowed */
};

struct tsr_pipeline_step {
    const char              *name, *summary;
    const struct tsr_option *options;
    uint64_t                 n_options, options_size;
    bool                     open; /* further keys belong to a plugin; check() reads them */
    /* Reports every error that can be found without running. May be NULL. opts is filled, node is the map. */
    tsr_status (*check)(struct tsr_pipeline_job *job, const void *opts,
                        const struct tsr_config_node *node, struct tsr_diag *d,
                        struct tsr_err *err);
    tsr_status (*run)(struct tsr_pipeline_job *job, const void *opts,
                      const struct tsr_config_node *node, struct tsr_err *err);
    /* TSR_NEED_* that run() will take from job->calibration. NULL: none. The model is loaded. Declared
     * before anything runs, and again after a plan step (job_resolve.c). */
    tsr_status (*need)(struct tsr_pipeline_job *job, const void *opts,
                       const struct tsr_config_node *node, uint64_t *need, struct tsr_err *err);
    /* Prints the step's part of the results as run() printed it, when the user requests a finished job
     * again. NULL: run() prints nothing. */
    void (*print)(const json_t *result, FILE *to);
    /* Whether a file that run() wrote next to the results is missing or changed: a finished job then runs
     * again. NULL: no check. */
    tsr_status (*spoilt)(const struct tsr_pipeline_job *job, const void *opts, bool *yes,
                         struct tsr_err *err);
    /* Prints the remarks on a finished job's results to stderr, unless the user set quiet. Also decides
     * whether the options make these results a failure of the command. NULL: no remarks. */
    void (*remark)(const json_t *result, FILE *to);
    tsr_status (*gate)(const void *opts, const json_t *result, struct tsr_err *err);
    bool resolves;                          /* its output determines what later steps need */
    bool streams;                           /* reads the weights one layer at a time */
    bool (*streams_with)(const void *opts); /* the same where it depends on the options; or NULL */
    bool later;                             /* valid only after other steps: has no verb */
};
extern const struct tsr_pipeline_step *const tsr_steps[];
extern const uint64_t                        tsr_n_steps;

/* How a caller opens a job. All pointers are borrowed for the lifetime of the job. */
struct tsr_pipeline_step_pair;
struct tsr_pipeline_job_options {
    const char        *out;  /* job folder; NULL: out/<file stem> */
    const char *const *sets; /* overrides "a.b=c" */
    uint64_t           n_sets;
    /* options of steps from the command line, of tsr_pipeline_job_load() */
    const struct tsr_pipeline_step_pair *pairs;
    uint64_t                             n_pairs;
    bool                                 json, quiet;
    uint32_t threads; /* of the command line: instead of the head's; 0: the head's */
    bool     loose;   /* results stay in memory; only files that a step is configured to write are
                     * written */
    const struct tsr_pipeline_step
        *append; /* of tsr_pipeline_job_load(): appended to the steps of a job that lacks it */
    bool again;  /* discard the results of an earlier run in the folder */
    bool
        launched; /* one of several processes of an MPI job: paths are this host's, and a rank that is
                    * not 0 neither reads the job's folder nor writes */
};

/* Reads the file and applies the overrides. Errors of the file go to d; *job is then NULL or a job in
 * which tsr_pipeline_job_check() finds more errors. TSR_OK does not mean that d has none. An unreadable
 * file is TSR_E_INPUT with *job NULL. */
tsr_status tsr_pipeline_job_load(struct tsr_pipeline_job **job, const char *path,
                                 const struct tsr_pipeline_job_options *o, struct tsr_diag *d,
                                 struct tsr_err *err);
/* A job of steps in order; each pair is for one of them.  Relative paths start at the current folder. */
struct tsr_pipeline_step_pair {
    const struct tsr_pipeline_step *step; /* NULL: a key of the head */
    const char                     *text; /* "key=value" */
    const char                     *flag; /* that was typed for it; NULL: the key's */
};
tsr_status tsr_pipeline_job_make_steps(struct tsr_pipeline_job **job, const char *model,
                                       const struct tsr_pipeline_step *const *steps,
                                       uint64_t n_steps, const struct tsr_pipeline_step_pair *pairs,
                                       uint64_t n_pairs, const struct tsr_pipeline_job_options *o,
                                       struct tsr_diag *d, struct tsr_err *err);
void       tsr_pipeline_job_destroy(struct tsr_pipeline_job *job);
/* Later steps take the model in this folder, which a step wrote, in place of the job's; the manifest keeps naming the job's.
 * Nothing may hold the old one. */
tsr_status tsr_pipeline_job_replace_model(struct tsr_pipeline_job *job, const char *folder,
                                          struct tsr_err *err);
/* Whether the pipeline of a loaded job names a step. */
bool tsr_pipeline_job_has_step(const struct tsr_pipeline_job *job, const char *name);
/* Adds the paths of `plugins:` to the registry, and the settings for running its plugins. */
tsr_status tsr_pipeline_job_plugins(struct tsr_pipeline_job *job, struct tsr_registry *r,
                                    struct tsr_diag *d, struct tsr_err *err);
/* Adds the files of `families`.  Errors of the job and of these files go to d. */
tsr_status tsr_pipeline_job_families(struct tsr_pipeline_job *job, struct tsr_diag *d,
                                     struct tsr_err *err);
/* Fills and checks every step, and puts the defaults into the doc. */
tsr_status tsr_pipeline_job_check(struct tsr_pipeline_job *job, struct tsr_registry *r,
                                  struct tsr_diag *d, struct tsr_err *err);
/* Runs a checked job in its folder. *done: the folder already held the finished job and nothing was run;
 * job->results holds its results. Cancelled: TSR_E_CANCELLED; run it again to resume. */
tsr_status tsr_pipeline_job_run(struct tsr_pipeline_job *job, bool *done, struct tsr_err *err);
/* {"format": "tessera.results/1", "results": {...}}; new reference, NULL when out of memory. */
json_t *tsr_pipeline_job_results(const struct tsr_pipeline_job *job);
/* The results of a finished job, step by step. */
void tsr_pipeline_job_print(const struct tsr_pipeline_job *job, FILE *to);

/* What the steps remark on a finished job's results. */
void tsr_pipeline_job_remark(const struct tsr_pipeline_job *job, FILE *to);
/* TSR_E_GATE with a sentence where a fail_if of a finished job holds, TSR_E_NUMERIC where all arms of a
 * comparison failed, TSR_E_CHECK where records of a batch did that must not. */
tsr_status tsr_pipeline_job_gate(const struct tsr_pipeline_job *job, struct tsr_err *err);

/* The step of a name, or NULL. */
const struct tsr_pipeline_step *tsr_pipeline_step_find(const char *name);
/* The keys of the head, for the schema. */
const struct tsr_option *tsr_pipeline_job_head(uint64_t *n);
/* Those of `plugins:` where it is a map. */
const struct tsr_option *tsr_pipeline_job_plugins_options(uint64_t *n);

/* Input path of a step, relative to the YAML file; fresh memory.  The file goes into the manifest
 * with its hash. */
char *tsr_pipeline_job_input(const struct tsr_pipeline_job *job, const char *path);
/* Output path inside the job folder (or as given if absolute); fresh memory, folder made. */
tsr_status tsr_pipeline_job_output(const struct tsr_pipeline_job *job, const char *path,
                                   char **full, struct tsr_err *err);
/* Loads model and tokenizer if they are not loaded. If all steps of the job stream, the model keeps one
 * layer in memory at a time. */
tsr_status tsr_pipeline_job_need_model(struct tsr_pipeline_job *job, struct tsr_err *err);
/* A loose job loads its tokenizer on first use; it stays NULL if the model has none. */
tsr_status tsr_pipeline_job_find_tokenizer(struct tsr_pipeline_job *job, struct tsr_err *err);
bool       tsr_pipeline_job_streams(const struct tsr_pipeline_job *job);
/* The tokenizer of a model argument; *t is NULL where the model has none. */
tsr_status tsr_pipeline_job_load_tokenizer(struct tsr_tokenizer **t, const char *model,
                                           struct tsr_err *err);

#endif
