/* Logprobs of one request: its room for them, and one from a row of logits. */
#include "base/mem.h"
#include "engine/serve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool tsr_engine_slot_scores(const struct tsr_engine_serve_slot *s, uint64_t at)
{
    return s->q.prompt_logprobs && at + 1 < s->q.n_prompt;
}

uint64_t tsr_engine_slot_inputs(const struct tsr_engine_serve_slot *s)
{
    return s->ids.n - (s->q.max_tokens == 0);
}

/* Room for one more token.  One block: cap own values, then cap times top best ones. */
static tsr_status grow_logprobs(struct tsr_engine_serve_slot *s, struct tsr_err *err)
{
    uint64_t n = s->n_logprobs, cap = s->cap_logprobs ? s->cap_logprobs * 2 : 32;
    if (n < s->cap_logprobs)
        return TSR_OK;
    struct tsr_engine_logprob *v = NULL;
    uint64_t                   entries;
    if (tsr_mul(cap, 1 + (uint64_t)s->q.top, &entries))
        v = tsr_new(entries, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, cap * sizeof *v, "logprobs");
    if (n) {
        memcpy(v, s->logprobs, n * sizeof *v);
        memcpy(v + cap, s->logprobs + s->cap_logprobs, n * s->q.top * sizeof *v);
    }
    free(s->logprobs);
    s->logprobs = v;
    s->cap_logprobs = cap;
    return TSR_OK;
}

/* Softmax over all ids, summed in id order; ties of the best go to the lowest id. */
tsr_status tsr_engine_slot_logprob(struct tsr_engine_serve_slot *s, uint64_t at,
                                   const float *logits, uint64_t vocab, uint32_t id,
                                   struct tsr_err *err)
{
    double   sum = 0, max = logits[0];
    uint32_t k = s->q.top < vocab ? s->q.top : (uint32_t)vocab, have = 0;
    TSR_TRY(grow_logprobs(s, err));
    struct tsr_engine_logprob *own = s->logprobs + at;
    struct tsr_engine_logprob *top = s->logprobs + s->cap_logprobs + at * s->q.top;
    if (at == s->n_logprobs)
        s->n_logprobs++;
    for (uint64_t i = 1; i < vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (uint64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - max);
    double shift = max + log(sum);
    *own = (struct tsr_engine_logprob){ id, (double)logits[id] - shift };
    for (uint64_t i = 0; i < vocab && k; i++) {
        struct tsr_engine_logprob v = { (uint32_t)i, (double)logits[i] - shift };
        if (have == k && !(v.value > top[k - 1].value))
            continue;
        uint32_t place = have < k ? have++ : k - 1;
        for (; place > 0 && v.value > top[place - 1].value; place--)
            top[place] = top[place - 1];
        top[place] = v;
    }
    return TSR_OK;
}
