/* conformance/sampler/sampler.h - declarations shared by the files of sampler rules. */
#ifndef TSR_CONFORMANCE_SAMPLER_SAMPLER_H
#define TSR_CONFORMANCE_SAMPLER_SAMPLER_H

#include "conformance/helpers.h"
#include "tessera/sampler.h"

#define TSR_SAMPLER_VOCAB 300u /* the 256 bytes, words of JSON, tokens without text, two ends */
#define TSR_SAMPLER_STEPS 24u  /* tokens of a request, at most */

/* The tokens of the rules, the same memory each time. */
const struct tsr_sampler_tokens *tsr_sampler_tokens_of(struct tsr_conformance_case *c);

/* A request of the rules and what it has been so far. */
struct tsr_sampler_run {
    const struct tsr_sampler_v1 *t;
    void                        *self;
    struct tsr_sampler_sizes     bytes;
    float                       *logits; /* [vocab] of the step */
    void                        *state, *scratch;
    uint32_t                     history[4 + TSR_SAMPLER_STEPS];
    uint64_t                     n; /* of history */
    uint64_t                     stream;
};

/* create() and tokens(); a refusal fails the rule. */
void *tsr_sampler_made(struct tsr_conformance_case *c);
/* A request in roomy memory, after start(). */
void tsr_sampler_begin(struct tsr_conformance_case *c, struct tsr_sampler_run *r, void *self,
                       uint64_t stream);
/* The logits of step `at` of a stream. */
void tsr_sampler_logits(struct tsr_conformance_case *c, uint64_t stream, uint64_t at,
                        float *logits);
/* The request of the run, with its first four tokens as the prompt, and the job of its next step. */
struct tsr_sampler_request tsr_sampler_request_of(struct tsr_conformance_case  *c,
                                                  const struct tsr_sampler_run *r);
struct tsr_sampler_job     tsr_sampler_job_of(struct tsr_conformance_case  *c,
                                              const struct tsr_sampler_run *r);
/* One sample() on fresh logits, and its status.  *id: its token, or where it is NONE the best one left; TSR_SAMPLER_END: the
 * request is over, also after TSR_E_NUMERIC.  err may be NULL. */
tsr_status tsr_sampler_try(struct tsr_conformance_case *c, struct tsr_sampler_run *r, uint32_t *id,
                           struct tsr_err *err);
/* The same; any other status fails the rule. */
uint32_t tsr_sampler_step(struct tsr_conformance_case *c, struct tsr_sampler_run *r);
void     tsr_sampler_accept(struct tsr_conformance_case *c, struct tsr_sampler_run *r, uint32_t id);

void tsr_sampler_rule_sizes(struct tsr_conformance_case *c);
void tsr_sampler_rule_start_writes(struct tsr_conformance_case *c);
void tsr_sampler_rule_writes(struct tsr_conformance_case *c);
void tsr_sampler_rule_keeps_state(struct tsr_conformance_case *c);
void tsr_sampler_rule_logits(struct tsr_conformance_case *c);
void tsr_sampler_rule_token(struct tsr_conformance_case *c);
void tsr_sampler_rule_excluded(struct tsr_conformance_case *c);
void tsr_sampler_rule_repeats(struct tsr_conformance_case *c);
void tsr_sampler_rule_scratch(struct tsr_conformance_case *c);
void tsr_sampler_rule_resumes(struct tsr_conformance_case *c);
void tsr_sampler_rule_together(struct tsr_conformance_case *c);
void tsr_sampler_rule_threads(struct tsr_conformance_case *c);

#endif
