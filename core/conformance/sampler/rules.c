/* Samplers: the kind, what a sampler does for the rules of every kind, and the table of rules. */
#include "conformance/sampler/sampler.h"

#include <stdlib.h>

static const struct tsr_sampler_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    return table(c)->create(c->host->give, c->options, self, err);
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

/* One token; the long one is of many requests in turn, each call of which is short. */
static tsr_status one_token(struct tsr_conformance_case *c, void *self, bool long_run,
                            struct tsr_err *err)
{
    const struct tsr_sampler_v1 *t = table(c);
    struct tsr_sampler_run r = { .t = t, .self = self, .bytes = { .struct_size = sizeof r.bytes } };
    uint32_t               id = TSR_SAMPLER_NONE;
    tsr_status             st = t->sizes(self, TSR_SAMPLER_VOCAB, &r.bytes, err);
    if (st != TSR_OK)
        return st;
    r.logits = tsr_conformance_rule_room(TSR_SAMPLER_VOCAB * sizeof(float));
    r.state = tsr_conformance_rule_room(r.bytes.state_bytes);
    r.scratch = tsr_conformance_rule_room(r.bytes.scratch_bytes);
    r.n = 4;
    struct tsr_sampler_job     j = tsr_sampler_job_of(c, &r);
    struct tsr_sampler_request q = tsr_sampler_request_of(c, &r);
    st = t->start(self, &q, r.state, err);
    if (long_run)
        tsr_conformance_test_host_start(c->host);
    for (int i = 0; st == TSR_OK && i < (long_run ? 200 : 1); i++) {
        tsr_sampler_logits(c, 1, 1, r.logits);
        id = TSR_SAMPLER_NONE;
        st = t->sample(self, &j, &id, err);
    }
    for (uint32_t i = 0; st == TSR_OK && id == TSR_SAMPLER_NONE && i < TSR_SAMPLER_VOCAB; i++)
        if (r.logits[i] >= -1e30f)
            id = i;
    if (st == TSR_OK && id < TSR_SAMPLER_VOCAB)
        st = t->accept(self, r.state, id, err);
    tsr_conformance_guarded_free(r.logits);
    tsr_conformance_guarded_free(r.state);
    tsr_conformance_guarded_free(r.scratch);
    return st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    void      *self = NULL;
    tsr_status st = make(c, &self, err);
    if (st != TSR_OK)
        return st;
    if (table(c)->tokens && (table(c)->needs & TSR_SAMPLER_TOKENS))
        st = table(c)->tokens(self, tsr_sampler_tokens_of(c), err);
    if (st == TSR_OK)
        st = one_token(c, self, long_run, err);
    unmake(c, self);
    return st;
}

static const struct tsr_conformance_rule rules[] = {
    { .name = "sampler-sizes",
      .text = "sizes() gives the same bytes each time.",
      .run = tsr_sampler_rule_sizes },
    { .name = "sampler-start-writes",
      .text = "start() writes every one of state_bytes bytes, and no others.",
      .run = tsr_sampler_rule_start_writes },
    { .name = "sampler-writes",
      .text =
          "sample() writes logits, scratch and the token, accept() the state, and nothing else.",
      .run = tsr_sampler_rule_writes },
    { .name = "sampler-keeps-state",
      .text = "sample() does not change the state.",
      .run = tsr_sampler_rule_keeps_state },
    { .name = "sampler-logits",
      .text = "sample() leaves finite logits or -INFINITY, and at least one finite one, or gives a "
              "token, TSR_SAMPLER_END or TSR_E_NUMERIC.",
      .run = tsr_sampler_rule_logits },
    { .name = "sampler-token",
      .text = "A token of sample() is below vocab, and its logit was not -INFINITY.",
      .run = tsr_sampler_rule_token },
    { .name = "sampler-excluded",
      .text = "sample() leaves logits of -INFINITY as they are.",
      .run = tsr_sampler_rule_excluded },
    { .name = "sampler-repeats",
      .text = "The same job gives the same token and logits, each time and in every instance.",
      .run = tsr_sampler_rule_repeats },
    { .name = "sampler-scratch",
      .text = "What scratch holds before the call changes nothing.",
      .run = tsr_sampler_rule_scratch },
    { .name = "sampler-resumes",
      .text = "A state that was copied goes on in another instance and at another address with the "
              "same tokens.",
      .run = tsr_sampler_rule_resumes },
    { .name = "sampler-together",
      .text = "Requests on one instance in turn get the tokens that each gets alone.",
      .run = tsr_sampler_rule_together },
    { .name = "sampler-threads",
      .text = "Requests on several threads at once on one instance get the tokens that each gets "
              "alone.",
      .run = tsr_sampler_rule_threads },
};

const struct tsr_conformance_kind_rules tsr_sampler_rules = {
    .kind = TSR_KIND_SAMPLER,
    .noun = "sampler",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
