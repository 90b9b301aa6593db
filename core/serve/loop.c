#include "serve/loop.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "batch/entry.h"
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_MS   200 /* between looks at the signals while nothing runs */
#define TOTALS_US 200000

/* A model and its requests. */
struct served {
    struct run                       *run;
    struct tsr_batch_request_defaults defaults; /* of the loop, with its pass */
    struct tsr_batch_answer_ids       names;
    struct tsr_batch_fan              fan;
    uint64_t                         *ids; /* [places] the HTTP program's number of each request */
};

struct run {
    const struct tsr_serve_loop *l;
    struct tsr_serve_counts     *n;
    struct served               *models; /* [l->n_models] */
    uint64_t                     next;
    bool                         told, stopped; /* the HTTP program is to stop; it has */
    uint64_t                     since_us;      /* of the first signal */
    struct tsr_serve_totals      totals, said;  /* said: to the HTTP program */
    uint64_t                     said_us;
};

/* ---- answers ------------------------------------------------------------ */

static tsr_status send(struct run *r, uint32_t kind, uint64_t id, uint32_t status, const char *text,
                       uint64_t n, struct tsr_err *err)
{
    struct tsr_serve_frame f = {
        .kind = kind, .id = id, .status = status, .length = (uint32_t)n, .payload = text
    };
    return tsr_serve_http_send(r->l->http, &f, err);
}

static void add_totals(struct tsr_serve_totals *t, const struct tsr_server *s)
{
    const struct tsr_engine_drafted *n = tsr_engine_server_drafted(s);
    t->reused += tsr_engine_server_reused(s);
    t->drafted += n->drafted;
    t->accepted += n->accepted;
}

/* Before the answer that they count. */
static tsr_status send_totals(struct run *r, struct tsr_err *err)
{
    r->totals.reused = r->totals.drafted = r->totals.accepted = 0;
    for (uint32_t i = 0; i < r->l->n_models; i++)
        add_totals(&r->totals, r->models[i].fan.server);
    if (memcmp(&r->totals, &r->said, sizeof r->said) == 0)
        return TSR_OK;
    r->said = r->totals;
    r->said_us = tsr_now_us();
    return send(r, TSR_SERVE_TOTALS, 0, 0, (const char *)&r->said, sizeof r->said, err);
}

static tsr_status send_answer(struct run *r, uint64_t id, uint32_t status, const char *text,
                              uint64_t n, struct tsr_err *err)
{
    TSR_TRY(send_totals(r, err));
    return send(r, TSR_SERVE_ANSWER, id, status, text, n, err);
}

/* Takes the reference. */
static tsr_status send_json(struct run *r, uint64_t id, uint32_t status, json_t *j,
                            struct tsr_err *err)
{
    char      *text = NULL;
    uint64_t   n = 0;
    tsr_status st = j ? tsr_json_text(j, JSON_COMPACT | JSON_REAL_PRECISION(12), &text, &n, err)
                      : tsr_fail_nomem(err, 256, "an answer");
    json_decref(j);
    if (st == TSR_OK && n > TSR_ENTRY_MOST) {
        free(text);
        return send_json(r, id, 500,
                         tsr_serve_error("failed",
                                         "the answer is longer than 64 MiB; ask for fewer "
                                         "tokens or choices"),
                         err);
    }
    r->n->errors += status != 200;
    if (st == TSR_OK)
        st = send_answer(r, id, status, text, n, err);
    free(text);
    return st;
}

/* Takes the reference. */
static tsr_status send_event(struct run *r, uint64_t id, json_t *j, struct tsr_err *err)
{
    char      *text = NULL;
    uint64_t   n = 0;
    tsr_status st = j ? tsr_json_text(j, JSON_COMPACT | JSON_REAL_PRECISION(12), &text, &n, err)
                      : tsr_fail_nomem(err, 256, "a part of an answer");
    json_decref(j);
    if (st == TSR_OK)
        st = send(r, TSR_SERVE_EVENT, id, 200, text, n, err);
    free(text);
    return st;
}

static tsr_status send_error(struct run *r, uint64_t id, const char *code, const char *why,
                             struct tsr_err *err)
{
    return send_json(r, id, tsr_serve_status(code), tsr_serve_error(code, why), err);
}

static tsr_status on_grown(void *ctx, const struct tsr_batch_taken *t, json_t *delta,
                           struct tsr_err *err)
{
    struct served *m = ctx;
    return send_event(m->run, m->ids[t - m->fan.taken],
                      tsr_batch_answer_event(&m->names, t->index, &t->request, delta, 0), err);
}

static void on_token(void *ctx)
{
    ((struct served *)ctx)->run->totals.generated++;
}

static tsr_status end_stream(const struct served *m, uint64_t id, const struct tsr_batch_taken *t,
                             struct tsr_err *err)
{
    if (t->request.stream_usage)
        TSR_TRY(send_event(m->run, id,
                           tsr_batch_answer_event(&m->names, t->index, &t->request, NULL,
                                                  t->new_tokens),
                           err));
    return send_answer(m->run, id, 200, NULL, 0, err);
}

static tsr_status on_ended(void *ctx, struct tsr_batch_taken *t, struct tsr_err *err)
{
    struct served *m = ctx;
    struct run    *r = m->run;
    uint64_t       id = m->ids[t - m->fan.taken];
    if (t->gone) {
        r->n->gone++;
        return TSR_OK;
    }
    if (t->late)
        return send_error(r, id, "deadline_exceeded", "the request took longer than its deadline",
                          err);
    if (t->failed < t->choices)
        return send_error(r, id, t->code, t->why ? t->why : "out of memory for the reason", err);
    json_t *choices = t->answer;
    t->answer = NULL;
    r->n->prompt_tokens += t->request.prompts.ids.n;
    r->n->new_tokens += t->new_tokens;
    if (t->request.stream)
        return end_stream(m, id, t, err);
    return send_json(r, id, 200,
                     tsr_batch_answer_body(&m->names, t->index, &t->request, choices,
                                           t->new_tokens),
                     err);
}

/* ---- requests ----------------------------------------------------------- */

/* The model that a body names; NULL: none of them.  A body that is no JSON finds out what it is when it is read. */
static struct served *named(struct run *r, const struct tsr_serve_frame *f)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    json_t           *j = NULL;
    struct served    *found = NULL;
    if (r->l->n_models == 1 ||
        tsr_json_parse(&j, "request", f->payload, f->length, 32, &ignored.err) != TSR_OK)
        return r->models;
    const char *name = tsr_json_word(json_object_get(j, "model"));
    for (uint32_t i = 0; i < r->l->n_models && name && !found; i++)
        if (strcmp(name, r->l->models[i].name) == 0)
            found = &r->models[i];
    json_decref(j);
    return found;
}

static tsr_status complete(struct run *r, const struct tsr_serve_frame *f, bool chat,
                           struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct served    *m = named(r, f);
    if (!m)
        return send_error(r, f->id, "model_not_found",
                          "\"model\" names none of the models that /v1/models lists", err);
    struct tsr_batch_taken *t = tsr_batch_fan_place(&m->fan);
    if (!t)
        return send_error(r, f->id, "overloaded", "too many requests wait; try again", err);
    tsr_status st = tsr_batch_request_parse_body(&t->request, f->payload, f->length, chat,
                                                 &m->defaults, &e.err);
    if (st == TSR_OK) {
        m->ids[t - m->fan.taken] = f->id;
        r->totals.prompt += t->request.prompts.ids.n;
        return tsr_batch_fan_begin(&m->fan, t, r->next++, err);
    }
    /* not the request's fault, such as memory: it fails, the others go on */
    st = send_error(r, f->id, t->request.code ? t->request.code : "failed", e.text, err);
    tsr_batch_taken_free(t);
    return st;
}

/* The client of a request went away; an answer that is out by now met nobody. */
static tsr_status leave(struct run *r, uint64_t id, struct tsr_err *err)
{
    for (uint32_t i = 0; i < r->l->n_models; i++) {
        struct served *m = &r->models[i];
        for (uint32_t k = 0; k < m->fan.places; k++)
            if (m->fan.taken[k].busy && m->ids[k] == id)
                return tsr_batch_fan_leave(&m->fan, &m->fan.taken[k], err);
    }
    return TSR_OK;
}

static tsr_status take(struct run *r, const struct tsr_serve_frame *f, struct tsr_err *err)
{
    uint32_t status = 200;
    json_t  *j;
    if (f->kind == TSR_SERVE_STOPPED) {
        r->stopped = true;
        return TSR_OK;
    }
    if (f->kind == TSR_SERVE_GONE)
        return leave(r, f->id, err);
    r->n->requests++;
    switch (f->status) {
    case TSR_SERVE_COMPLETIONS:
    case TSR_SERVE_CHAT:
        return complete(r, f, f->status == TSR_SERVE_CHAT, err);
    case TSR_SERVE_TOKENIZE:
        j = tsr_serve_tokenize(&r->models->defaults, f->payload, f->length, &status);
        break;
    default:
        j = tsr_serve_detokenize(&r->models->defaults, f->payload, f->length, &status);
    }
    return send_json(r, f->id, status, j, err);
}

static bool is_busy(const struct served *m)
{
    return tsr_engine_server_busy(m->fan.server) || tsr_batch_fan_waits(&m->fan);
}

static bool busy(const struct run *r)
{
    bool any = false;
    for (uint32_t i = 0; i < r->l->n_models; i++)
        any = any || is_busy(&r->models[i]);
    return any;
}

static tsr_status take_all(struct run *r, struct tsr_err *err)
{
    struct tsr_serve_frame f;
    bool                   more = true;
    for (int wait = busy(r) ? 0 : IDLE_MS; more; wait = 0) {
        TSR_TRY(tsr_serve_http_next(r->l->http, wait, &f, &more, err));
        if (more)
            TSR_TRY(take(r, &f, err));
    }
    return TSR_OK;
}

/* *over: nothing is left to do, or the time to do it is. */
static tsr_status look_at_signals(struct run *r, bool *over, struct tsr_err *err)
{
    if (tsr_plugin_cancel_asked() && !r->told) {
        r->told = true;
        r->since_us = tsr_now_us();
        TSR_TRY(tsr_serve_http_send(r->l->http, &(struct tsr_serve_frame){ .kind = TSR_SERVE_STOP },
                                    err));
    }
    *over = r->told && ((r->stopped && !busy(r)) || tsr_now_us() - r->since_us > r->l->drain_us);
    return TSR_OK;
}

/* One step of a model. */
static tsr_status advance(struct served *m, struct tsr_err *err)
{
    TSR_TRY(tsr_batch_fan_end_late(&m->fan, err));
    TSR_TRY(tsr_batch_fan_feed(&m->fan, err));
    return is_busy(m) ? tsr_engine_server_step(m->fan.server, err) : TSR_OK;
}

static tsr_status loop(struct run *r, struct tsr_err *err)
{
    for (bool over = false; !over;) {
        TSR_TRY(take_all(r, err));
        for (uint32_t i = 0; i < r->l->n_models; i++)
            TSR_TRY(advance(&r->models[i], err));
        if (tsr_now_us() - r->said_us > TOTALS_US)
            TSR_TRY(send_totals(r, err));
        TSR_TRY(look_at_signals(r, &over, err));
    }
    return TSR_OK;
}

static tsr_status begin(struct run *r, struct served *m, const struct tsr_serve_model *of,
                        struct tsr_err *err)
{
    const struct tsr_serve_loop   *l = r->l;
    struct tsr_engine_serve_events events = { .ctx = &m->fan,
                                              .token = tsr_batch_fan_on_token,
                                              .grown = tsr_batch_fan_on_grown,
                                              .done = tsr_batch_fan_on_done };
    m->run = r;
    m->defaults = l->defaults;
    m->defaults.pass = &of->pass;
    m->defaults.context = of->context;
    m->defaults.streams = true;
    m->names = l->ids;
    m->names.model = of->name;
    m->fan = (struct tsr_batch_fan){ .places = (uint32_t)l->requests,
                                     .deadline_us = l->deadline_us,
                                     .tokenizer = l->defaults.tokenizer,
                                     .ctx = m,
                                     .token = on_token,
                                     .grown = on_grown,
                                     .ended = on_ended };
    m->fan.taken = tsr_new(l->requests, sizeof *m->fan.taken);
    m->ids = tsr_new(l->requests, sizeof *m->ids);
    if (!m->fan.taken || !m->ids)
        return tsr_fail_nomem(err, l->requests * sizeof *m->fan.taken, "requests");
    return tsr_engine_server_create(&m->fan.server, &of->pass, &events, err);
}

static void end(struct served *m, struct tsr_serve_counts *n)
{
    if (m->fan.server) {
        n->drafts.drafted += tsr_engine_server_drafted(m->fan.server)->drafted;
        n->drafts.accepted += tsr_engine_server_drafted(m->fan.server)->accepted;
        n->drafts.bytes += tsr_engine_server_drafted(m->fan.server)->bytes;
    }
    tsr_engine_server_destroy(m->fan.server);
    for (uint32_t k = 0; m->fan.taken && k < m->fan.places; k++)
        tsr_batch_taken_free(&m->fan.taken[k]);
    free(m->fan.taken);
    free(m->ids);
}

tsr_status tsr_serve_loop_run(const struct tsr_serve_loop *l, struct tsr_serve_counts *n,
                              struct tsr_err *err)
{
    struct run r = { .l = l, .n = n };
    tsr_status st = TSR_OK;
    *n = (struct tsr_serve_counts){ 0 };
    r.models = tsr_new(l->n_models, sizeof *r.models);
    if (!r.models)
        return tsr_fail_nomem(err, l->n_models * sizeof *r.models, "models");
    tsr_plugin_cancel_softly(true);
    for (uint32_t i = 0; i < l->n_models && st == TSR_OK; i++)
        st = begin(&r, &r.models[i], &l->models[i], err);
    if (st == TSR_OK)
        st = loop(&r, err);
    tsr_plugin_cancel_softly(false);
    for (uint32_t i = 0; i < l->n_models; i++)
        end(&r.models[i], n);
    free(r.models);
    return st;
}
