/* Samplers: the tokens and requests of the rules. */
#include "conformance/sampler/sampler.h"

#include <math.h>
#include <string.h>

/* ---- tokens -------------------------------------------------------------------- */

static const char *const words[] = { "true", "false", "null", "\": ", "\", \"",
                                     "{\"",  "\"}",   " the", "12",   "0.5",
                                     "é",    "],",    "[1,",  "e+",   "a\n" };
#define WORDS (sizeof words / sizeof *words)

const struct tsr_sampler_tokens *tsr_sampler_tokens_of(struct tsr_conformance_case *c)
{
    static char                      bytes[1024];
    static uint64_t                  start[TSR_SAMPLER_VOCAB + 1];
    static uint8_t                   ends[TSR_SAMPLER_VOCAB];
    static struct tsr_sampler_tokens t;
    uint64_t                         n = 0;
    (void)c;
    if (t.struct_size)
        return &t;
    for (uint64_t i = 0; i < TSR_SAMPLER_VOCAB; i++) {
        start[i] = n;
        if (i < 256) {
            bytes[n++] = (char)i;
        } else if (i < 256 + WORDS) {
            size_t len = strlen(words[i - 256]);
            memcpy(bytes + n, words[i - 256], len);
            n += len;
        }
        ends[i] = i >= TSR_SAMPLER_VOCAB - 2;
    }
    start[TSR_SAMPLER_VOCAB] = n;
    t = (struct tsr_sampler_tokens){ .struct_size = sizeof t,
                                     .vocab = TSR_SAMPLER_VOCAB,
                                     .bytes = bytes,
                                     .start = start,
                                     .ends = ends };
    return &t;
}

/* ---- requests -------------------------------------------------------------------- */

void *tsr_sampler_made(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    void                        *self = NULL;
    tsr_conformance_rule_ok(c, t->create(c->host->give, c->options, &self, &e.err), &e, "create()");
    if (!(t->needs & TSR_SAMPLER_TOKENS))
        return self;
    if (!t->tokens)
        tsr_conformance_rule_fail(c, "needs TSR_SAMPLER_TOKENS, and tokens() is NULL");
    tsr_conformance_rule_ok(c, t->tokens(self, tsr_sampler_tokens_of(c), &e.err), &e, "tokens()");
    return self;
}

static void measure(struct tsr_conformance_case *c, struct tsr_sampler_run *r)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    r->bytes = (struct tsr_sampler_sizes){ .struct_size = sizeof r->bytes };
    tsr_conformance_rule_ok(c, r->t->sizes(r->self, TSR_SAMPLER_VOCAB, &r->bytes, &e.err), &e,
                            "sizes() of %u tokens", TSR_SAMPLER_VOCAB);
    if (r->bytes.state_bytes > 1u << 24 || r->bytes.scratch_bytes > 1u << 28)
        tsr_conformance_rule_fail(c, "sizes() wants %llu bytes of state and %llu of scratch",
                                  (unsigned long long)r->bytes.state_bytes,
                                  (unsigned long long)r->bytes.scratch_bytes);
}

void tsr_sampler_begin(struct tsr_conformance_case *c, struct tsr_sampler_run *r, void *self,
                       uint64_t stream)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *r = (struct tsr_sampler_run){ .t = c->iface, .self = self, .n = 4, .stream = stream };
    for (uint32_t i = 0; i < 4; i++)
        r->history[i] = 'a' + i;
    measure(c, r);
    r->logits = tsr_conformance_rule_room(TSR_SAMPLER_VOCAB * sizeof(float));
    r->state = tsr_conformance_rule_room(r->bytes.state_bytes);
    r->scratch = tsr_conformance_rule_room(r->bytes.scratch_bytes);
    struct tsr_sampler_request q = tsr_sampler_request_of(c, r);
    tsr_conformance_rule_ok(c, r->t->start(self, &q, r->state, &e.err), &e, "start()");
}

void tsr_sampler_logits(struct tsr_conformance_case *c, uint64_t stream, uint64_t at, float *logits)
{
    tsr_conformance_rule_normal(c, 1000 * stream + at, logits, TSR_SAMPLER_VOCAB);
    for (uint32_t i = 0; i < TSR_SAMPLER_VOCAB; i++)
        logits[i] *= 3;
}

struct tsr_sampler_request tsr_sampler_request_of(struct tsr_conformance_case  *c,
                                                  const struct tsr_sampler_run *r)
{
    return (struct tsr_sampler_request){ .struct_size = sizeof(struct tsr_sampler_request),
                                         .vocab = TSR_SAMPLER_VOCAB,
                                         .prompt = r->history,
                                         .n_prompt = 4,
                                         .seed = c->seed,
                                         .record = r->stream };
}

struct tsr_sampler_job tsr_sampler_job_of(struct tsr_conformance_case  *c,
                                          const struct tsr_sampler_run *r)
{
    return (struct tsr_sampler_job){
        .struct_size = sizeof(struct tsr_sampler_job),
        .vocab = TSR_SAMPLER_VOCAB,
        .logits = r->logits,
        .history = r->history,
        .n_prompt = 4,
        .n_history = r->n,
        .seed = c->seed,
        .record = r->stream,
        .uniform =
            (double)tsr_conformance_rule_below(c, 77 + r->stream, r->n, 1u << 20) / (1u << 20),
        .state = r->state,
        .scratch = r->scratch
    };
}

/* The best token left; END where there is none, or a logit that another rule is about. */
static uint32_t best_of(const float *logits)
{
    uint32_t best = TSR_SAMPLER_END;
    for (uint32_t i = 0; i < TSR_SAMPLER_VOCAB; i++)
        if (logits[i] > -INFINITY && (best == TSR_SAMPLER_END || logits[i] > logits[best]))
            best = i;
    return best;
}

tsr_status tsr_sampler_try(struct tsr_conformance_case *c, struct tsr_sampler_run *r, uint32_t *id,
                           struct tsr_err *err)
{
    *id = TSR_SAMPLER_NONE;
    tsr_sampler_logits(c, r->stream, r->n, r->logits);
    struct tsr_sampler_job j = tsr_sampler_job_of(c, r);
    tsr_status             st = r->t->sample(r->self, &j, id, err);
    if (st == TSR_OK && *id == TSR_SAMPLER_NONE)
        *id = best_of(r->logits);
    if (st != TSR_OK || *id >= TSR_SAMPLER_VOCAB)
        *id = TSR_SAMPLER_END;
    return st;
}

uint32_t tsr_sampler_step(struct tsr_conformance_case *c, struct tsr_sampler_run *r)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint32_t          id;
    tsr_status        st = tsr_sampler_try(c, r, &id, &e.err);
    if (st != TSR_E_NUMERIC)
        tsr_conformance_rule_ok(c, st, &e, "sample() of token %llu", (unsigned long long)r->n - 3);
    return id;
}

void tsr_sampler_accept(struct tsr_conformance_case *c, struct tsr_sampler_run *r, uint32_t id)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(c, r->t->accept(r->self, r->state, id, &e.err), &e,
                            "accept() of token %u, which sample() left", id);
    r->history[r->n++] = id;
}
