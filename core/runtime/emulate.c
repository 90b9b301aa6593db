/* Service times of emulated devices. */
#include "runtime/emulate.h"

#include <math.h>
#include <time.h>

#define BEAT_NS UINT64_C(500000000)

/* Sequences of a micro-batch, tokens of each and their past positions, as means; tokens of a slot are
 * contiguous. */
static void shape_of(const struct tsr_engine *e, const struct tsr_runtime_micro_batch *b, double *v,
                     double *s, double *t)
{
    uint64_t sequences = 0, past = 0;
    for (uint32_t i = 0; i < b->head.tokens; i++) {
        uint32_t slot = b->token[i].slot;
        uint64_t has = tsr_engine_length(e, slot);
        if (i > 0 && slot == b->token[i - 1].slot)
            continue;
        for (uint32_t k = 0; k < b->head.resets; k++)
            has = b->reset[k].slot == slot ? b->reset[k].keep : has;
        sequences++;
        past += has;
    }
    *v = (double)sequences;
    *s = (double)b->head.tokens / *v;
    *t = (double)past / *v;
}

tsr_status tsr_runtime_pacing_time(const struct tsr_runtime_pacing      *p,
                                   const struct tsr_runtime_place       *place,
                                   const struct tsr_engine              *e,
                                   const struct tsr_runtime_micro_batch *b, double *ms,
                                   struct tsr_err *err)
{
    const struct tsr_plan_mesh *m = &p->stages[place->stage].mesh;
    struct tsr_plan_mesh        of = *m;
    enum tsr_phase phase = b->head.phase == TSR_PLAN_DECODE ? TSR_PLAN_DECODE : TSR_PLAN_PREFILL;
    double         v, s, t, total = 0;
    struct tsr_plan_time one;
    *ms = 0;
    if (!m->profile)
        return TSR_OK;
    shape_of(e, b, &v, &s, &t);
    for (uint64_t l = place->first; l < place->end; l++) {
        of.cpu_experts = p->cpu_experts[l];
        TSR_TRY(tsr_plan_latency_layer(&p->job, &of, p->job.shape->layer_class[l],
                                       &p->candidates->v[p->candidate[l]], phase, v, s, t, &one,
                                       err));
        if (!(one.ms >= 0))
            return tsr_fail(err, TSR_E_CONFIG, "%s does not run layer %llu as it is packed",
                            m->name, (unsigned long long)l);
        total += one.ms;
    }
    if (place->embed) {
        TSR_TRY(tsr_plan_latency_embed(&p->job, m, b->head.tokens, &one, err));
        total += one.ms;
    }
    if (place->head && !place->back && b->head.wanted) {
        TSR_TRY(tsr_plan_latency_head(&p->job, m, p->head, b->head.wanted, &one, err));
        total += one.ms;
    }
    if (!isfinite(total))
        return tsr_fail(err, TSR_E_CONFIG, "%s has no time for an end of the model", m->name);
    *ms = total * p->scale;
    return TSR_OK;
}

tsr_status tsr_runtime_pacing_head(const struct tsr_runtime_pacing *p,
                                   const struct tsr_runtime_place *place, uint32_t rows, double *ms,
                                   struct tsr_err *err)
{
    const struct tsr_plan_mesh *m = &p->stages[place->stage].mesh;
    struct tsr_plan_time        one;
    *ms = 0;
    if (!m->profile)
        return TSR_OK;
    TSR_TRY(tsr_plan_latency_head(&p->job, m, p->head, rows, &one, err));
    if (!isfinite(one.ms))
        return tsr_fail(err, TSR_E_CONFIG, "%s has no time for an end of the model", m->name);
    *ms = one.ms * p->scale;
    return TSR_OK;
}

double tsr_runtime_pacing_code(const struct tsr_runtime_pacing      *p,
                               const struct tsr_runtime_place       *place,
                               const struct tsr_runtime_edge        *edge,
                               const struct tsr_runtime_micro_batch *b, bool encode)
{
    struct tsr_plan_coding c;
    if (edge->kind != TSR_RUNTIME_EDGE_ROWS || b->head.kind != TSR_RUNTIME_FRAME_WORK)
        return 0;
    uint32_t phase = b->head.phase == TSR_PLAN_DECODE ? 1 : 0;
    tsr_plan_latency_coding(&p->stages[place->stage].mesh, edge->codec[phase], b->head.tokens,
                            p->job.shape->hidden, &c);
    return (encode ? c.encode_ms : c.decode_ms) * p->scale;
}

static void wait_until(uint64_t until, struct tsr_runtime_page_rank *r)
{
    for (uint64_t now = tsr_runtime_now_ns(); now < until; now = tsr_runtime_now_ns()) {
        uint64_t        stop = until - now > BEAT_NS ? now + BEAT_NS : until;
        struct timespec t = { .tv_sec = (time_t)(stop / 1000000000u),
                              .tv_nsec = (long)(stop % 1000000000u) };
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        tsr_runtime_progress_beat(&r->progress, TSR_RUNTIME_RANK_WORKS,
                                  atomic_load(&r->progress.site));
    }
}

void tsr_runtime_pacing_wait(uint64_t start_ns, double ms, struct tsr_runtime_page_rank *r)
{
    struct tsr_runtime_rank_numbers *n = &r->numbers;
    uint64_t now = tsr_runtime_now_ns(), until = start_ns + (uint64_t)(ms * 1e6);
    if (ms <= 0)
        return;
    atomic_fetch_add(&n->paced, 1);
    if (now > until) {
        atomic_fetch_add(&n->overruns, 1);
        atomic_fetch_add(&n->overrun_ns, now - until);
        return;
    }
    wait_until(until, r);
}

void tsr_runtime_pacing_mark(uint64_t start_ns, double ms, struct tsr_runtime_page_rank *r)
{
    if (ms > 0)
        wait_until(start_ns + (uint64_t)(ms * 1e6), r);
}

uint64_t tsr_runtime_pacing_limit(const struct tsr_runtime_pacing *p,
                                  const struct tsr_runtime_place  *place)
{
    const struct tsr_plan_mesh *m = &p->stages[place->stage].mesh;
    if (!m->profile)
        return 0;
    bool     on_cpu = false;
    uint64_t limit = tsr_plan_memory_capacity(m, TSR_PLAN_ACCOUNT_EXACT);
    for (uint64_t l = place->first; l < place->end; l++)
        on_cpu = on_cpu || p->cpu_experts[l];
    if (on_cpu) /* the backend that emulates the device has both memories */
        limit += tsr_plan_memory_host(m);
    return limit / m->tp;
}
