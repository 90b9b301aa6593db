#include "batch/fan.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void tsr_batch_taken_free(struct tsr_batch_taken *t)
{
    tsr_batch_request_free(&t->request);
    json_decref(t->answer);
    for (uint32_t i = 0; t->parts && i < t->choices; i++)
        tsr_batch_part_free(&t->parts[i]);
    free(t->parts);
    free(t->why);
    memset(t, 0, sizeof *t);
}

struct tsr_batch_taken *tsr_batch_fan_place(const struct tsr_batch_fan *f)
{
    for (uint32_t k = 0; k < f->places; k++)
        if (!f->taken[k].busy)
            return &f->taken[k];
    return NULL;
}

uint64_t tsr_batch_fan_oldest_us(const struct tsr_batch_fan *f)
{
    uint64_t oldest = 0;
    for (uint32_t k = 0; k < f->places; k++)
        if (f->taken[k].since_us && (!oldest || f->taken[k].since_us < oldest))
            oldest = f->taken[k].since_us;
    return oldest;
}

tsr_status tsr_batch_fan_begin(struct tsr_batch_fan *f, struct tsr_batch_taken *t, uint64_t index,
                               struct tsr_err *err)
{
    t->busy = true;
    t->index = index;
    t->choices = t->failed = tsr_batch_request_choices(&t->request);
    if (t->request.stream) {
        t->parts = tsr_new(t->choices, sizeof *t->parts);
        return t->parts ? tsr_batch_fan_feed(f, err)
                        : tsr_fail_nomem(err, t->choices * sizeof *t->parts, "an answer");
    }
    t->answer = json_array();
    for (uint32_t i = 0; i < t->choices; i++)
        tsr_json_add(&t->answer, json_null());
    return t->answer ? tsr_batch_fan_feed(f, err) : tsr_fail_nomem(err, t->choices, "an answer");
}

/* The request that waits first; NULL: every choice is in the server. */
static struct tsr_batch_taken *waiting(const struct tsr_batch_fan *f)
{
    struct tsr_batch_taken *first = NULL;
    for (uint32_t k = 0; k < f->places; k++) {
        struct tsr_batch_taken *t = &f->taken[k];
        if (t->busy && t->next < t->choices && (!first || t->index < first->index))
            first = t;
    }
    return first;
}

bool tsr_batch_fan_waits(const struct tsr_batch_fan *f)
{
    return waiting(f) != NULL;
}

tsr_status tsr_batch_fan_feed(struct tsr_batch_fan *f, struct tsr_err *err)
{
    struct tsr_batch_taken *t;
    while (tsr_engine_server_room(f->server) && (t = waiting(f)) != NULL) {
        struct tsr_engine_serve_request q = tsr_batch_request_choice(&t->request, t->next);
        if (t->next == 0)
            t->since_us = tsr_now_us();
        q.id = (uint64_t)(t - f->taken) << 32 | t->next++;
        t->open++;
        TSR_TRY(tsr_engine_server_submit(f->server, &q, err));
    }
    return TSR_OK;
}

static void begin(struct tsr_batch_fan *f, struct tsr_batch_taken *t)
{
    if (!t->begun && f->begun)
        f->begun(f->ctx, t);
    t->begun = true;
}

tsr_status tsr_batch_fan_on_token(void *ctx, uint64_t id, uint32_t token)
{
    struct tsr_batch_fan *f = ctx;
    (void)token;
    if (f->token)
        f->token(f->ctx);
    begin(f, &f->taken[id >> 32]);
    return TSR_OK;
}

/* Of several choices that fail the first in order is named, whichever failed first in time. */
static void note_failure(struct tsr_batch_taken *t, uint32_t choice,
                         const struct tsr_engine_served *s)
{
    if (choice >= t->failed)
        return;
    t->failed = choice;
    t->code = s->status == TSR_E_NUMERIC ? "not_finite" : "failed";
    free(t->why);
    t->why = tsr_strdup(s->error);
}

static tsr_status end(struct tsr_batch_fan *f, struct tsr_batch_taken *t, struct tsr_err *err)
{
    tsr_status st = f->ended(f->ctx, t, err);
    tsr_batch_taken_free(t);
    return st;
}

/* Its choices end, and none begins. */
static tsr_status end_early(struct tsr_batch_fan *f, struct tsr_batch_taken *t, struct tsr_err *err)
{
    uint64_t place = (uint64_t)(t - f->taken);
    for (uint32_t i = 0; i < t->next; i++)
        tsr_engine_server_cancel(f->server, place << 32 | i);
    t->next = t->choices;
    return t->open == 0 ? end(f, t, err) : TSR_OK;
}

tsr_status tsr_batch_fan_leave(struct tsr_batch_fan *f, struct tsr_batch_taken *t,
                               struct tsr_err *err)
{
    bool ends = t->late || t->gone; /* already */
    t->gone = true;
    return ends ? TSR_OK : end_early(f, t, err);
}

tsr_status tsr_batch_fan_end_late(struct tsr_batch_fan *f, struct tsr_err *err)
{
    uint64_t now = tsr_now_us();
    for (uint32_t k = 0; f->deadline_us && k < f->places; k++) {
        struct tsr_batch_taken *t = &f->taken[k];
        if (!t->since_us || t->late || t->gone || now - t->since_us <= f->deadline_us)
            continue;
        t->late = true;
        TSR_TRY(end_early(f, t, err));
    }
    return TSR_OK;
}

/* The new part of a choice goes out. */
static tsr_status give_part(struct tsr_batch_fan *f, struct tsr_batch_taken *t,
                            const struct tsr_engine_served *s, bool over, struct tsr_err *err)
{
    json_t  *delta = NULL;
    uint32_t choice = (uint32_t)s->id;
    if (t->late || t->gone || t->failed < t->choices) /* its answer is an error */
        return TSR_OK;
    TSR_TRY(tsr_batch_part_next(&t->parts[choice], &t->request, choice, s, over, f->tokenizer,
                                &delta, err));
    return delta ? f->grown(f->ctx, t, delta, err) : TSR_OK;
}

tsr_status tsr_batch_fan_on_grown(void *ctx, const struct tsr_engine_served *s, struct tsr_err *err)
{
    struct tsr_batch_fan *f = ctx;
    return give_part(f, &f->taken[s->id >> 32], s, false, err);
}

static tsr_status put_answer(struct tsr_batch_fan *f, struct tsr_batch_taken *t,
                             const struct tsr_engine_served *s, struct tsr_err *err)
{
    uint32_t choice = (uint32_t)s->id;
    json_t  *one = tsr_batch_answer_choice(&t->request, choice, s, f->tokenizer, err);
    return one && json_array_set_new(t->answer, choice, one) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, s->n_tokens, "a choice");
}

tsr_status tsr_batch_fan_on_done(void *ctx, const struct tsr_engine_served *s, struct tsr_err *err)
{
    struct tsr_batch_fan   *f = ctx;
    struct tsr_batch_taken *t = &f->taken[s->id >> 32];
    uint32_t                choice = (uint32_t)s->id;
    t->open--;
    if (s->finish == TSR_ENGINE_FINISH_EOS)
        begin(f, t); /* an end without a preceding token */
    if (s->finish == TSR_ENGINE_FINISH_FAILED) {
        note_failure(t, choice, s);
    } else if (s->finish != TSR_ENGINE_FINISH_ENDED) {
        TSR_TRY(t->request.stream ? give_part(f, t, s, true, err) : put_answer(f, t, s, err));
        t->new_tokens += s->n_tokens;
    }
    return t->open == 0 && t->next == t->choices ? end(f, t, err) : TSR_OK;
}
