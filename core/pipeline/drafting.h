/* pipeline/drafting.h - `draft` of the steps that generate: tokens that probably come next run in the same pass.
 *
 *   draft, draft_tokens, draft_bits -> most ids of a draft of a request (engine/serve.h), and what makes drafts
 *                                   -> {"drafted", "accepted"}
 *
 * It changes no answer, so it is not part of a job's identity.
 */
#ifndef TSR_PIPELINE_DRAFTING_H
#define TSR_PIPELINE_DRAFTING_H

#include "engine/drafter.h"
#include "engine/serve.h"
#include "pipeline/pipeline.h"
#include "pipeline/running.h"

struct tsr_pipeline_draft_keys {
    const char *draft;
    int64_t     draft_tokens, draft_bits;
};
#define TSR_PIPELINE_DRAFT_BITS 3 /* of `self` that does not say */
// clang-format off
#define TSR_PIPELINE_DRAFT_OPTIONS(S, k) \
    { .name = "draft", .type = TSR_OPT_STRING, .unit = "none|lookup|self|MODEL", .flags = TSR_OPT_UNSAID, \
      .offset = TSR_FIELD(S, k.draft, const char *), .def = { .s = "none" }, \
      .help = "Run tokens that probably come next in the same pass, and keep those that are right: answers are the " \
              "same, sooner. lookup: what followed where the text had its last tokens before. self: what the model says " \
              "in fewer bits. MODEL: what a smaller model with the same vocabulary says." }, \
    { .name = "draft_tokens", .type = TSR_OPT_INT, .unit = "tokens", .flags = TSR_OPT_UNSAID, \
      .offset = TSR_FIELD(S, k.draft_tokens, int64_t), .min = { .i = 0 }, .max = { .i = TSR_ENGINE_DRAFT_MOST }, \
      .help = "Most tokens of a draft; 0: as many as gain time, by what passes take and how many were right." }, \
    { .name = "draft_bits", .type = TSR_OPT_INT, .unit = "bits", .flags = TSR_OPT_UNSAID, \
      .offset = TSR_FIELD(S, k.draft_bits, int64_t), .min = { .i = 0 }, .max = { .i = 8 }, \
      .help = "Bits of `draft: self`, from 2, rounded to nearest when the step starts; 0: 3." }
// clang-format on

bool tsr_pipeline_draft_wanted(const struct tsr_pipeline_draft_keys *k);
/* Errors where the keys do not go together, or there is no such model. */
void tsr_pipeline_draft_check(const struct tsr_pipeline_job        *job,
                              const struct tsr_pipeline_draft_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d);

/* The place of the draft model: a path from the job file, or a name; fresh memory. */
char *tsr_pipeline_draft_path(const struct tsr_pipeline_job        *job,
                              const struct tsr_pipeline_draft_keys *k);

/* The drafts of a step at work.  Zeroed: none. */
struct tsr_pipeline_drafting {
    uint32_t                   draft; /* of each request, as of tsr_engine_serve_request */
    struct tsr_engine_drafter *by;    /* NULL: the text so far */
    struct tsr_model          *own;
    struct tsr_model_overlay  *overlay; /* of the step's model, in fewer bits */
    struct tsr_engine         *engine;
};
/* For an engine with these options.  TSR_E_INPUT: the draft model has another vocabulary, or `self` has no original
 * weights.  close() also after an error.  [setup] */
tsr_status tsr_pipeline_drafting_on(struct tsr_pipeline_drafting *d, struct tsr_pipeline_job *job,
                                    const struct tsr_pipeline_draft_keys *k,
                                    const struct tsr_engine_options *eo, const struct tsr_model *m,
                                    const struct tsr_model_overlay *overlay, struct tsr_err *err);
/* The same for a pass of ranks that run with `run`.  on_layer: as in tsr_engine_options, of the draft model. */
tsr_status tsr_pipeline_drafting_ranks(struct tsr_pipeline_drafting           *d,
                                       struct tsr_pipeline_job                *job,
                                       const struct tsr_pipeline_draft_keys   *k,
                                       const struct tsr_pipeline_running_keys *run,
                                       const struct tsr_engine_pass *pass, const char *why,
                                       void (*on_layer)(void *ctx, uint64_t layer, bool load),
                                       struct tsr_err *err);
void       tsr_pipeline_drafting_close(struct tsr_pipeline_drafting *d);
/* "drafts": {"drafted", "accepted"}, where draft is on, and "bytes" of a draft model.  false: out of memory. */
bool tsr_pipeline_draft_put(json_t *object, const struct tsr_pipeline_draft_keys *k,
                            const struct tsr_engine_drafted *n);

#endif
