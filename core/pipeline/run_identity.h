/* pipeline/run_identity.h - what a batch is: all that its answers depend on, and nothing else. */
#ifndef TSR_PIPELINE_RUN_IDENTITY_H
#define TSR_PIPELINE_RUN_IDENTITY_H

#include "batch/records.h"
#include "pipeline/pipeline.h"

/* *about: a JSON object of options, seed, version and the hashes of model, its texts, inputs and
 * plugins that take part, with the stretch of the input; fresh memory.  id is its hash.  base is that
 * of the same without the stretch, so that shards give the lines of the whole.  Paths, slots,
 * threads, ranks and the like are not in it: they change no answer.  `kept` goes into *about as TSR_BATCH_KEPT
 * and into no hash: what stands in answers without being a part of the identity.  The model is loaded. */
tsr_status tsr_run_identify(struct tsr_job *job, const struct tsr_records *r, json_t *kept,
                            char id[TSR_HASH_TEXT], char base[TSR_HASH_TEXT], char **about,
                            struct tsr_err *err);
/* Takes the keys of steps `run` that say how a batch is worked on, not what it is, out of a job's
 * options: slots, stall, ranks, threads, fail_on_errors.  Any value of them gives the same files. */
void tsr_run_strip_ways(json_t *options);
/* TSR_E_INPUT: the batch in a folder is another one; names the keys that differ, with both
 * values. */
tsr_status tsr_run_differs(const char *folder, const char *theirs, const char *ours,
                           struct tsr_err *err);

#endif
