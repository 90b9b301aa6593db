/* pipeline/job.h - what the files about jobs share. */
#ifndef TSR_PIPELINE_JOB_H
#define TSR_PIPELINE_JOB_H

#include "base/json_differ.h"
#include "base/stamp.h"
#include "pipeline/pipeline.h"

struct tsr_job_head {
    int64_t                version, seed, numerics;
    int64_t                gpu_layers;
    const char            *model, *cluster, *backend;
    const struct tsr_node *plugins, *pipeline, *workload;
};

/* One step of this job. */
struct tsr_job_step {
    const struct tsr_step *step;
    const struct tsr_node *key, *node; /* the name, the map of options */
    void                  *opts;
};

struct tsr_job_state {
    struct tsr_job_options options;
    struct tsr_job_head    head;
    char                  *dir;      /* of the YAML file */
    char                  *model;    /* what job->model_path points to, but for model_at */
    char                  *model_at; /* of this host's node; or NULL */
    struct tsr_job_step   *steps;
    uint64_t               n;
    char                 **inputs; /* paths that steps read */
    uint64_t               n_inputs;
    struct tsr_stamps      stamps;      /* of the inputs as they are read, and of a model's files */
    bool                   inputs_lost; /* one could not be noted: out of memory */
    int                    lock;        /* the locked job folder, or -1 */
    bool                   fresh;       /* no job was in it before */
};

/* compare_file.c: whether a file is a comparison, and its root as the job that it stands for; what
 * is wrong with it goes to d. */
bool       tsr_compare_file_is(const struct tsr_node *root);
tsr_status tsr_compare_file_expand(struct tsr_doc *doc, const char *path, struct tsr_diag *d,
                                   struct tsr_err *err);

/* job_folder.c: opens and locks the folder; TSR_E_INPUT names the keys in which the job that
 * lives there differs.  *done: it is finished, job->results is loaded. */
tsr_status tsr_job_folder_open(struct tsr_job *job, bool *done, struct tsr_err *err);
void       tsr_job_folder_close(struct tsr_job *job);
/* The job failed: a folder that holds its manifest and nothing else goes again. */
void tsr_job_folder_discard(struct tsr_job *job);
/* Writes manifest.json with what is known now; `final` adds hashes of all that took part. */
tsr_status tsr_job_write_manifest(struct tsr_job *job, bool final, struct tsr_err *err);
tsr_status tsr_job_write_results(struct tsr_job *job, struct tsr_err *err);

/* manifest.c */
tsr_status tsr_manifest_make(struct tsr_job *job, bool final, json_t **out, struct tsr_err *err);
/* {"path", "family", "hash", "texts", "tokenizer_hash"} of the job's model, as far as it is loaded; new
 * reference.  texts: hashes of generation_config.json and the like, of a folder or file alike. */
tsr_status tsr_manifest_model(const struct tsr_job *job, json_t **out, struct tsr_err *err);
/* Adds in what options and version differ from an old manifest to one of now. */
void tsr_manifest_differences(const json_t *old, const json_t *now, struct tsr_differences *d);

#endif
