/* pipeline/drafting.h - `draft` of the steps that generate: tokens that probably come next run in the same pass.
 *
 *   draft, draft_tokens -> most ids of a draft of a request (engine/serve.h) -> {"drafted", "accepted"}
 *
 * It changes no answer, so it is not part of a job's identity.
 */
#ifndef TSR_PIPELINE_DRAFTING_H
#define TSR_PIPELINE_DRAFTING_H

#include "engine/serve.h"
#include "pipeline/pipeline.h"

enum tsr_pipeline_draft { TSR_PIPELINE_DRAFT_NONE, TSR_PIPELINE_DRAFT_LOOKUP };
extern const struct tsr_choice tsr_pipeline_draft_choices[2];

struct tsr_pipeline_draft_keys {
    int64_t draft, draft_tokens;
};
// clang-format off
#define TSR_PIPELINE_DRAFT_OPTIONS(S, k) \
    { .name = "draft", .type = TSR_OPT_ENUM, .flags = TSR_OPT_UNSAID, .offset = TSR_FIELD(S, k.draft, int64_t), \
      .choices = tsr_pipeline_draft_choices, .n_choices = 2, \
      .help = "Run tokens that probably come next in the same pass, and keep those that are right: answers are the " \
              "same, sooner. lookup: what followed where the text had its last tokens before." }, \
    { .name = "draft_tokens", .type = TSR_OPT_INT, .unit = "tokens", .flags = TSR_OPT_UNSAID, \
      .offset = TSR_FIELD(S, k.draft_tokens, int64_t), .min = { .i = 0 }, .max = { .i = TSR_ENGINE_DRAFT_MOST }, \
      .help = "Most tokens of a draft; 0: as many as gain time, by what passes take and how many were right." }
// clang-format on

/* An error where draft_tokens has no draft. */
void tsr_pipeline_draft_check(const struct tsr_pipeline_draft_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d);
/* As of tsr_engine_serve_request; 0, and a warning, where why is not NULL: what cannot have drafts. */
uint32_t tsr_pipeline_draft_of(const struct tsr_pipeline_draft_keys *k, const char *why);
/* The same for an engine with these options. */
uint32_t tsr_pipeline_draft_on(const struct tsr_pipeline_draft_keys *k,
                               const struct tsr_model_hparams       *hp,
                               const struct tsr_engine_options      *o);
/* "drafts": {"drafted", "accepted"}, where draft is on.  false: out of memory. */
bool tsr_pipeline_draft_put(json_t *object, const struct tsr_pipeline_draft_keys *k,
                            const struct tsr_engine_drafted *n);

#endif
