/* pipeline/run_identity.h - the identity of a batch: everything that its answers depend on. */
#ifndef TSR_PIPELINE_RUN_IDENTITY_H
#define TSR_PIPELINE_RUN_IDENTITY_H

#include "batch/records.h"
#include "pipeline/pipeline.h"

/* *about: a JSON object of options, seed, version, the input range and the hashes of the model, its texts,
 * inputs and the plugins used; fresh memory. id is its hash. base is the hash without the range, so that
 * shards give the lines of the whole. Paths, slots, threads and ranks are left out: they change no answer.
 * `kept` goes into *about as TSR_BATCH_KEPT and into no hash: it appears in answers but is not part of the
 * identity. exact: every machine gives the same answers; else the machine is a part of the identity. The model is
 * loaded. */
tsr_status tsr_pipeline_run_identify(struct tsr_pipeline_job *job, bool exact,
                                     const struct tsr_batch_records *r, json_t *kept,
                                     char id[TSR_HASH_TEXT], char base[TSR_HASH_TEXT], char **about,
                                     struct tsr_err *err);
/* Removes from a job's options the keys that do not change its files: `threads`, and slots, stall, ranks,
 * chunk and fail_on_errors of steps `run`. */
void tsr_pipeline_run_strip_ways(json_t *options);
/* TSR_E_INPUT: the batch in a folder is another one; names the keys that differ, with both
 * values. */
tsr_status tsr_pipeline_run_differs(const char *folder, const char *theirs, const char *ours,
                                    struct tsr_err *err);

#endif
