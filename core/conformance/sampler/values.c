/* Samplers: the rules. */
#include "conformance/sampler/sampler.h"

#include <math.h>
#include <string.h>

#define VOCAB   TSR_SAMPLER_VOCAB
#define STREAMS 4u
#define U(x)    ((unsigned long long)(x))

/* The tokens of a request alone; how many. */
static uint64_t whole(struct tsr_conformance_case *c, void *self, uint64_t stream, uint32_t *out)
{
    struct tsr_sampler_run r;
    uint64_t               n = 0;
    tsr_sampler_begin(c, &r, self, stream);
    for (uint32_t id; n < TSR_SAMPLER_STEPS && (id = tsr_sampler_step(c, &r)) != TSR_SAMPLER_END;) {
        tsr_sampler_accept(c, &r, id);
        out[n++] = id;
    }
    return n;
}

static void same(struct tsr_conformance_case *c, const uint32_t *a, uint64_t n, const uint32_t *b,
                 uint64_t m, const char *what)
{
    for (uint64_t i = 0; i < n && i < m; i++)
        if (a[i] != b[i])
            tsr_conformance_rule_fail(c, "%s: token %llu is %u, wanted %u", what, U(i) + 1, b[i],
                                      a[i]);
    if (n != m)
        tsr_conformance_rule_fail(c, "%s: %llu tokens, wanted %llu", what, U(m), U(n));
}

void tsr_sampler_rule_sizes(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    struct tsr_sampler_sizes     a = { .struct_size = sizeof a }, b;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    void                        *self = tsr_sampler_made(c), *other = tsr_sampler_made(c);
    tsr_conformance_rule_ok(c, t->sizes(self, VOCAB, &a, &e.err), &e, "sizes()");
    for (int i = 0; i < 4; i++) {
        b = (struct tsr_sampler_sizes){ .struct_size = sizeof b };
        tsr_conformance_rule_ok(c, t->sizes(i % 2 ? other : self, VOCAB, &b, &e.err), &e,
                                "sizes()");
        if (a.state_bytes != b.state_bytes || a.scratch_bytes != b.scratch_bytes)
            tsr_conformance_rule_fail(c,
                                      "sizes() gives %llu and %llu bytes, and before %llu and %llu",
                                      U(b.state_bytes), U(b.scratch_bytes), U(a.state_bytes),
                                      U(a.scratch_bytes));
    }
}

void tsr_sampler_rule_start_writes(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_sampler_run       r;
    tsr_sampler_begin(c, &r, tsr_sampler_made(c), 1);
    struct tsr_sampler_request q = tsr_sampler_request_of(c, &r);
    unsigned char             *a = tsr_conformance_guarded("the state", r.bytes.state_bytes, 0x11);
    unsigned char             *b = tsr_conformance_guarded("the state", r.bytes.state_bytes, 0xee);
    tsr_conformance_rule_ok(c, t->start(r.self, &q, a, &e.err), &e, "start()");
    tsr_conformance_rule_ok(c, t->start(r.self, &q, b, &e.err), &e, "start()");
    uint64_t at = tsr_conformance_rule_differ(a, b, r.bytes.state_bytes);
    if (at < r.bytes.state_bytes)
        tsr_conformance_rule_fail(c, "start() leaves byte %llu of %llu of the state as it was",
                                  U(at), U(r.bytes.state_bytes));
    if (!tsr_conformance_guarded_intact(a))
        tsr_conformance_rule_fail(c, "start() writes outside the state");
}

void tsr_sampler_rule_writes(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_sampler_run       r;
    uint32_t                     id;
    tsr_sampler_begin(c, &r, tsr_sampler_made(c), 2);
    r.logits = tsr_conformance_guarded("the logits", VOCAB * sizeof(float), 0);
    r.scratch = tsr_conformance_guarded("the scratch", r.bytes.scratch_bytes, 0x55);
    r.state = tsr_conformance_guarded("the state", r.bytes.state_bytes, 0);
    uint32_t *history = tsr_conformance_guarded("the history", sizeof r.history, 0);
    struct tsr_sampler_request q = tsr_sampler_request_of(c, &r);
    tsr_conformance_rule_ok(c, t->start(r.self, &q, r.state, &e.err), &e, "start()");
    for (uint32_t i = 0; i < TSR_SAMPLER_STEPS; i++) {
        tsr_sampler_logits(c, r.stream, r.n, r.logits);
        memcpy(history, r.history, sizeof r.history);
        struct tsr_sampler_job j = tsr_sampler_job_of(c, &r), was = j;
        j.history = was.history = history;
        id = TSR_SAMPLER_NONE;
        tsr_status st = t->sample(r.self, &j, &id, &e.err);
        if (j.vocab != was.vocab || j.logits != was.logits || j.history != was.history ||
            j.n_history != was.n_history || j.state != was.state || j.scratch != was.scratch)
            tsr_conformance_rule_fail(c, "sample() changes the job");
        if (tsr_conformance_rule_differ(history, r.history, sizeof r.history) < sizeof r.history)
            tsr_conformance_rule_fail(c, "sample() changes the history");
        if (!tsr_conformance_guarded_intact(r.logits) ||
            !tsr_conformance_guarded_intact(r.scratch) || !tsr_conformance_guarded_intact(r.state))
            tsr_conformance_rule_fail(c, "sample() writes outside its buffers");
        id = st == TSR_OK ? tsr_sampler_step(c, &r) : TSR_SAMPLER_END;
        if (id == TSR_SAMPLER_END)
            return;
        tsr_sampler_accept(c, &r, id);
        if (!tsr_conformance_guarded_intact(r.state))
            tsr_conformance_rule_fail(c, "accept() writes outside the state");
    }
}

void tsr_sampler_rule_keeps_state(struct tsr_conformance_case *c)
{
    struct tsr_sampler_run r;
    tsr_sampler_begin(c, &r, tsr_sampler_made(c), 3);
    void *was = tsr_conformance_rule_memory(c, r.bytes.state_bytes + 1);
    for (uint32_t i = 0, id; i < TSR_SAMPLER_STEPS; i++) {
        memcpy(was, r.state, r.bytes.state_bytes);
        id = tsr_sampler_step(c, &r);
        uint64_t at = tsr_conformance_rule_differ(was, r.state, r.bytes.state_bytes);
        if (at < r.bytes.state_bytes)
            tsr_conformance_rule_fail(c, "sample() of token %u changes byte %llu of the state",
                                      i + 1, U(at));
        if (id == TSR_SAMPLER_END)
            return;
        tsr_sampler_accept(c, &r, id);
    }
}

void tsr_sampler_rule_logits(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    struct tsr_sampler_run       r;
    void                        *self = tsr_sampler_made(c);
    for (uint64_t s = 0; s < STREAMS; s++) {
        tsr_sampler_begin(c, &r, self, s);
        for (uint32_t i = 0; i < TSR_SAMPLER_STEPS; i++) {
            struct tsr_errbuf e = TSR_ERRBUF(e);
            uint32_t          id = TSR_SAMPLER_NONE;
            bool              any = false;
            tsr_sampler_logits(c, s, r.n, r.logits);
            struct tsr_sampler_job j = tsr_sampler_job_of(c, &r);
            if (t->sample(self, &j, &id, &e.err) != TSR_OK)
                break;
            for (uint32_t k = 0; k < VOCAB; k++) {
                if (!(r.logits[k] < INFINITY))
                    tsr_conformance_rule_fail(
                        c, "sample() of token %u leaves the logit %g of token %u", i + 1,
                        (double)r.logits[k], k);
                any = any || r.logits[k] > -INFINITY;
            }
            if (!any && id == TSR_SAMPLER_NONE)
                tsr_conformance_rule_fail(c, "sample() of token %u leaves no token", i + 1);
            id = tsr_sampler_step(c, &r);
            if (id == TSR_SAMPLER_END)
                break;
            tsr_sampler_accept(c, &r, id);
        }
    }
}

/* Every second token is excluded, so that one that is chosen all the same is seen. */
void tsr_sampler_rule_token(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    void                        *self = tsr_sampler_made(c);
    for (uint64_t s = 0; s < 16; s++) {
        struct tsr_errbuf      e = TSR_ERRBUF(e);
        struct tsr_sampler_run r;
        uint32_t               id = TSR_SAMPLER_NONE;
        tsr_sampler_begin(c, &r, self, s);
        tsr_sampler_logits(c, s, 0, r.logits);
        for (uint32_t k = (uint32_t)s % 2; k < VOCAB; k += 2)
            r.logits[k] = -INFINITY;
        struct tsr_sampler_job j = tsr_sampler_job_of(c, &r);
        tsr_status             st = t->sample(self, &j, &id, &e.err);
        if (st != TSR_OK || id == TSR_SAMPLER_NONE || id == TSR_SAMPLER_END)
            continue;
        if (id >= VOCAB)
            tsr_conformance_rule_fail(c, "sample() gives token %u of %u", id, VOCAB);
        if (id % 2 == s % 2)
            tsr_conformance_rule_fail(c, "sample() gives token %u, whose logit was -INFINITY", id);
    }
}

/* Other samplers ruled every second token out. */
void tsr_sampler_rule_excluded(struct tsr_conformance_case *c)
{
    const struct tsr_sampler_v1 *t = c->iface;
    void                        *self = tsr_sampler_made(c);
    for (uint64_t s = 0; s < STREAMS; s++) {
        struct tsr_errbuf      e = TSR_ERRBUF(e);
        struct tsr_sampler_run r;
        uint32_t               id = TSR_SAMPLER_NONE;
        tsr_sampler_begin(c, &r, self, s);
        tsr_sampler_logits(c, s, 0, r.logits);
        for (uint32_t k = (uint32_t)s % 2; k < VOCAB; k += 2)
            r.logits[k] = -INFINITY;
        struct tsr_sampler_job j = tsr_sampler_job_of(c, &r);
        if (t->sample(self, &j, &id, &e.err) != TSR_OK || id != TSR_SAMPLER_NONE)
            continue;
        for (uint32_t k = (uint32_t)s % 2; k < VOCAB; k += 2)
            if (r.logits[k] != -INFINITY) /* a NaN too: another rule names it */
                tsr_conformance_rule_fail(
                    c, "sample() gives token %u, which was excluded, the logit %g", k,
                    (double)r.logits[k]);
    }
}

void tsr_sampler_rule_repeats(struct tsr_conformance_case *c)
{
    uint32_t a[TSR_SAMPLER_STEPS], b[TSR_SAMPLER_STEPS];
    void    *self = tsr_sampler_made(c), *other = tsr_sampler_made(c);
    for (uint64_t s = 0; s < STREAMS; s++) {
        uint64_t n = whole(c, self, s, a), m = whole(c, self, s, b);
        same(c, a, n, b, m, "the same request again");
        m = whole(c, other, s, b);
        same(c, a, n, b, m, "the same request in another instance");
    }
}

void tsr_sampler_rule_scratch(struct tsr_conformance_case *c)
{
    void *self = tsr_sampler_made(c);
    for (uint64_t s = 0; s < STREAMS; s++) {
        struct tsr_sampler_run r;
        tsr_sampler_begin(c, &r, self, s);
        for (uint32_t i = 0; i < TSR_SAMPLER_STEPS; i++) {
            memset(r.scratch, 0, r.bytes.scratch_bytes);
            uint32_t a = tsr_sampler_step(c, &r);
            memset(r.scratch, 0xa5, r.bytes.scratch_bytes);
            uint32_t b = tsr_sampler_step(c, &r);
            same(c, &a, 1, &b, 1, "with other bytes in scratch");
            if (a == TSR_SAMPLER_END)
                break;
            tsr_sampler_accept(c, &r, a);
        }
    }
}

void tsr_sampler_rule_resumes(struct tsr_conformance_case *c)
{
    uint32_t a[TSR_SAMPLER_STEPS];
    void    *self = tsr_sampler_made(c);
    for (uint64_t s = 0; s < STREAMS; s++) {
        struct tsr_sampler_run r, q;
        uint64_t               n = whole(c, self, s, a);
        tsr_sampler_begin(c, &r, self, s);
        for (uint64_t i = 0; i < n; i++) {
            tsr_sampler_begin(c, &q, tsr_sampler_made(c), s);
            memcpy(q.state, r.state, r.bytes.state_bytes);
            memset(r.state, 0xa5, r.bytes.state_bytes); /* the old place is gone */
            memcpy(q.history, r.history, sizeof r.history);
            q.n = r.n;
            r = q;
            uint32_t id = tsr_sampler_step(c, &r);
            same(c, &a[i], 1, &id, 1, "after the state was copied");
            tsr_sampler_accept(c, &r, id);
        }
    }
}

void tsr_sampler_rule_together(struct tsr_conformance_case *c)
{
    uint32_t               a[STREAMS][TSR_SAMPLER_STEPS];
    uint64_t               n[STREAMS];
    struct tsr_sampler_run r[STREAMS];
    for (uint64_t s = 0; s < STREAMS; s++)
        n[s] = whole(c, tsr_sampler_made(c), s, a[s]);
    void *self = tsr_sampler_made(c);
    for (uint64_t s = 0; s < STREAMS; s++)
        tsr_sampler_begin(c, &r[s], self, s);
    for (uint64_t i = 0; i < TSR_SAMPLER_STEPS; i++)
        for (uint64_t s = 0; s < STREAMS; s++) {
            if (i >= n[s])
                continue;
            uint32_t id = tsr_sampler_step(c, &r[s]);
            same(c, &a[s][i], 1, &id, 1, "among other requests");
            tsr_sampler_accept(c, &r[s], id);
        }
}
