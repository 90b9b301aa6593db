/* A list of requests through a server: a slot whose request is done takes the next one at once, so
 * that the batch stays full to the end. */
#include "engine/serve.h"

struct run {
    struct tsr_engine_request *reqs;
};

static tsr_status on_token(void *ctx, uint64_t id, uint32_t token)
{
    struct tsr_engine_request *q = &((struct run *)ctx)->reqs[id];
    q->tokens[q->n_tokens++] = token;
    return q->on_token ? q->on_token(q->ctx, id, token) : TSR_OK;
}

static tsr_status on_done(void *ctx, const struct tsr_engine_served *r, struct tsr_err *err)
{
    ((struct run *)ctx)->reqs[r->id].stopped = r->finish == TSR_ENGINE_FINISH_EOS;
    return r->finish == TSR_ENGINE_FINISH_FAILED ? tsr_fail(err, r->status, "%s", r->error)
                                                 : TSR_OK;
}

static struct tsr_engine_serve_request request(const struct tsr_engine_request *q, uint64_t i)
{
    return (struct tsr_engine_serve_request){ .id = i,
                                              .prompt = q->prompt,
                                              .n_prompt = q->n_prompt,
                                              .max_tokens = q->max_tokens,
                                              .ignore_eos = q->ignore_eos,
                                              .record = q->record,
                                              .sampling = q->sampling,
                                              .samplers = q->samplers,
                                              .draft = q->draft };
}

static tsr_status run_all(struct tsr_server *s, struct tsr_engine_request *reqs, uint64_t n,
                          struct tsr_err *err)
{
    uint64_t next = 0;
    do {
        while (next < n && tsr_engine_server_room(s)) {
            struct tsr_engine_serve_request q = request(&reqs[next], next);
            TSR_TRY(tsr_engine_server_submit(s, &q, err));
            next++;
        }
        TSR_TRY(tsr_engine_server_step(s, err));
    } while (next < n || tsr_engine_server_busy(s));
    return TSR_OK;
}

tsr_status tsr_engine_generate(struct tsr_engine *e, struct tsr_engine_request *reqs, uint64_t n,
                               struct tsr_engine_generate_timing *timing, struct tsr_err *err)
{
    return tsr_engine_generate_drafted(e, NULL, reqs, n, timing, err);
}

tsr_status tsr_engine_generate_drafted(struct tsr_engine *e, struct tsr_engine_drafter *drafter,
                                       struct tsr_engine_request *reqs, uint64_t n,
                                       struct tsr_engine_generate_timing *timing,
                                       struct tsr_err                    *err)
{
    struct run                     r = { .reqs = reqs };
    struct tsr_engine_serve_events events = { .ctx = &r, .token = on_token, .done = on_done };
    struct tsr_engine_pass         pass;
    struct tsr_server             *s = NULL;
    if (timing)
        *timing = (struct tsr_engine_generate_timing){ 0 };
    tsr_engine_pass_engine(&pass, e);
    pass.drafter = drafter;
    for (uint64_t i = 0; i < n; i++) {
        struct tsr_engine_serve_request q = request(&reqs[i], i);
        tsr_status                      st = tsr_engine_server_check(&pass, &q, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "request %llu", (unsigned long long)i + 1);
        reqs[i].n_tokens = 0;
        reqs[i].stopped = false;
    }
    if (n == 0)
        return TSR_OK;
    for (uint32_t i = 0; i < pass.slots; i++)
        tsr_engine_reset(e, i);
    if (n < pass.slots) /* logits for those that will run */
        pass.slots = (uint32_t)n;
    TSR_TRY(tsr_engine_server_create(&s, &pass, &events, err));
    tsr_status st = run_all(s, reqs, n, err);
    if (timing) {
        *timing = *tsr_engine_server_timing(s);
        timing->drafts = *tsr_engine_server_drafted(s);
    }
    tsr_engine_server_destroy(s);
    return st;
}
