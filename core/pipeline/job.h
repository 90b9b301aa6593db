/* pipeline/job.h - declarations shared by the files about jobs. */
#ifndef TSR_PIPELINE_JOB_H
#define TSR_PIPELINE_JOB_H

#include "base/json_differ.h"
#include "base/stamp.h"
#include "pipeline/pipeline.h"
#include "pipeline/running.h"

struct tsr_pipeline_job_head {
    int64_t                         version, seed;
    struct tsr_pipeline_run_on_keys on;
    const char                     *model, *cluster;
    const struct tsr_config_node   *plugins, *families, *pipeline, *workload;
};

/* One step of this job. */
struct tsr_pipeline_job_step {
    const struct tsr_pipeline_step *step;
    const struct tsr_config_node   *key, *node; /* the name, the map of options */
    void                           *opts;
    struct tsr_pipeline_external
        *external; /* what `step` is a part of, if it is a plugin's; or NULL */
    /* job_resolve.c */
    uint64_t                      nth; /* of the steps of its name, from 1 */
    struct tsr_pipeline_job_step *planned, *calibrated,
        *measured; /* the last such step before it; NULL: none. measured: indicators */
    uint64_t need; /* of a calibration: TSR_NEED_* that steps after it declare */
    bool     done; /* it ran */
    /* job_verify.c, of a plan that is verified */
    double  limit;    /* KL of the next search, in place of the keys' own; 0: theirs */
    json_t *attempts; /* plans that did not keep their promise; or NULL */
    size_t  results;  /* how many there were before it ran */
    bool    inputs;   /* there was a calibration before it ran */
};

struct tsr_pipeline_job_state {
    struct tsr_pipeline_job_options options;
    struct tsr_pipeline_job_head    head;
    char                           *dir;      /* of the YAML file */
    char                           *model;    /* target of job->model_path, except with model_at */
    char                           *model_at; /* of this host's node; or NULL */
    struct tsr_pipeline_job_step   *steps;
    uint64_t                        n;
    char                          **inputs; /* paths that steps read */
    uint64_t                        n_inputs;
    json_t           *model_said;  /* of the manifest, once a step replaced the model; or NULL */
    char             *replaced;    /* target of job->model_path then; or NULL */
    struct tsr_stamps stamps;      /* of the inputs when read, and of a model's files */
    bool              inputs_lost; /* one could not be noted: out of memory */
    int               lock;        /* the locked job folder, or -1 */
    bool              fresh;       /* no job was in it before */
};

/* job_resolve.c.  Links the newest step to those before it, and makes it job->at. */
void tsr_pipeline_job_link(struct tsr_pipeline_job *job);
/* The plan step before job->at that writes `file` ("": the last one), or NULL; and the name that it writes to. */
const struct tsr_pipeline_job_step *tsr_pipeline_job_planned(const struct tsr_pipeline_job *job,
                                                             const char                    *file);
const char *tsr_pipeline_job_planned_to(const struct tsr_pipeline_job_step *planned);
/* Whether a step `indicators` before job->at writes `file`. */
bool tsr_pipeline_job_measures(const struct tsr_pipeline_job *job, const char *file);
/* The file of the last such step; NULL: there is none. */
const char *tsr_pipeline_job_measured(const struct tsr_pipeline_job *job);
/* Resolves what each calibration must hold, before anything runs; repeated after a step that writes the
 * plan of a later step. */
tsr_status tsr_pipeline_job_resolve(struct tsr_pipeline_job *job, struct tsr_err *err);

/* steps/external.c: the step of that name of a plugin, for one place in a job; *x is NULL if no plugin has one.  TSR_E_INPUT:
 * two plugins have it. */
struct tsr_pipeline_external;
tsr_status tsr_pipeline_external_find(struct tsr_pipeline_external **x, struct tsr_registry *r,
                                      const char *name, struct tsr_err *err);
void       tsr_pipeline_external_destroy(struct tsr_pipeline_external *x); /* NULL is allowed */
const struct tsr_pipeline_step *tsr_pipeline_external_step(const struct tsr_pipeline_external *x);
/* The i-th name of those that plugins have, loaded so far, for hints; NULL past the end. */
const char *tsr_pipeline_external_name(const struct tsr_registry *r, uint64_t i);

/* job_verify.c: plans whose KL is measured once later steps have made what they say, and that are solved again where it
 * is too high (docs/decisions/verified-plans.md).  After all steps are checked: errors of their order. */
void tsr_pipeline_job_verify_check(const struct tsr_pipeline_job *job, struct tsr_diag *d);
/* Before step i, which may be such a plan: continues where an interrupted run of this job was. */
tsr_status tsr_pipeline_job_verify_begin(struct tsr_pipeline_job *job, uint64_t i,
                                         struct tsr_err *err);
/* After step i, which may make the last part of such a plan: measures.  *next: the step to go on with, i + 1 or that of
 * the plan.  TSR_E_CHECK with both figures after the last attempt. */
tsr_status tsr_pipeline_job_verify(struct tsr_pipeline_job *job, uint64_t i, uint64_t *next,
                                   struct tsr_err *err);
/* Step i failed with st: where that is a plan that was to be solved again, TSR_E_CHECK with both figures; else st. */
tsr_status tsr_pipeline_job_verify_failed(const struct tsr_pipeline_job *job, uint64_t i,
                                          tsr_status st, struct tsr_err *err);

/* compare/file.c: whether a file is a comparison, and its root as the job that it describes; errors go to
 * d. */
bool       tsr_pipeline_compare_file_is(const struct tsr_config_node *root);
tsr_status tsr_pipeline_compare_file_expand(struct tsr_config_doc *doc, const char *path,
                                            struct tsr_diag *d, struct tsr_err *err);

/* job_folder.c: opens and locks the folder; TSR_E_INPUT names the keys that differ from the job in that
 * folder. *done: that job is finished, job->results is loaded. */
tsr_status tsr_pipeline_job_folder_open(struct tsr_pipeline_job *job, bool *done,
                                        struct tsr_err *err);
void       tsr_pipeline_job_folder_close(struct tsr_pipeline_job *job);
/* The job failed: removes a folder that holds only its manifest. */
void tsr_pipeline_job_folder_discard(struct tsr_pipeline_job *job);
/* Writes manifest.json with the facts known so far; `final` adds hashes of everything used. */
tsr_status tsr_pipeline_job_write_manifest(struct tsr_pipeline_job *job, bool final,
                                           struct tsr_err *err);
tsr_status tsr_pipeline_job_write_results(struct tsr_pipeline_job *job, struct tsr_err *err);

/* What answers call the model: the last part of the job's name for it, "demo" for @demo. */
const char *tsr_pipeline_job_model_name(const struct tsr_pipeline_job *job);
/* job_same.c: TSR_E_INPUT if the plugins, inputs or models of an earlier manifest are not those of today; moved: the
 * job names another place for the model. */
tsr_status tsr_pipeline_job_same(struct tsr_pipeline_job *job, const json_t *old, bool moved,
                                 struct tsr_err *err);
/* job_inputs.c: a path in the job folder, fresh memory. */
tsr_status tsr_pipeline_job_in_folder(const struct tsr_pipeline_job *job, const char *name,
                                      char **path, struct tsr_err *err);

/* manifest.c */
tsr_status tsr_pipeline_manifest_make(struct tsr_pipeline_job *job, bool final, json_t **out,
                                      struct tsr_err *err);
/* {"path", "family", "hash", "texts", "tokenizer_hash"} of the job's model, as far as it is loaded; new
 * reference. texts: hashes of generation_config.json and similar files, of a folder or a file. */
tsr_status tsr_pipeline_manifest_model(const struct tsr_pipeline_job *job, json_t **out,
                                       struct tsr_err *err);
/* Hashes of a model's text files of which Tessera uses parts that hash and tokenizer_hash do not cover: special
 * tokens, stop tokens, sampling, chat template. */
tsr_status tsr_pipeline_manifest_texts(const struct tsr_model *m, json_t *to, struct tsr_err *err);
/* Adds the differences in options and version between an old manifest and a current one. */
void tsr_pipeline_manifest_differences(const json_t *old, const json_t *now,
                                       struct tsr_differences *d);

#endif
