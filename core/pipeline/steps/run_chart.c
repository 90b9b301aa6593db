/* A run's own record as a picture, and the simulator's of the same times. */
#include "pipeline/steps/run_chart.h"

#include "base/log.h"
#include "base/mem.h"
#include "plan/simulate/gantt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct chart {
    struct tsr_launch               *f;
    const struct tsr_runtime_layout *l;
    const struct tsr_runtime_page   *page;
    struct tsr_plan_pipeline         pipeline;
    bool                             turns; /* hidden rows go back to a head on the first stage */
    struct tsr_plan_pipeline_back    back;
    double                          *ms; /* [4][stages]: work and links, prefill and decode */
    struct tsr_plan_dealt *dealt;    /* [pre + slot sets]: the micro-batches of the simulation */
    double                *dealt_ms; /* [pre + slot sets][positions] */
    struct tsr_plan_visit *visits;
    uint64_t               n;
    char (*names)[48];
    const char **name, **note;   /* [stages] */
    uint64_t     steps;          /* of decode, the most of a slot set */
    double       hidden, linked; /* ms of links that work hid; ms of links in total */
};

static const struct tsr_runtime_page_rank *rank_of(const struct chart *c, uint32_t stage)
{
    return &c->page->rank[tsr_runtime_layout_rank(c->l, 0, stage, 0)];
}

static uint64_t kept(const struct tsr_runtime_spans *s)
{
    uint64_t n = atomic_load(&s->n);
    return n < s->cap ? n : s->cap;
}

/* ---- from spans to visits -------------------------------------------------------- */

static uint64_t first_ns(const struct chart *c)
{
    uint64_t t = UINT64_MAX;
    for (uint32_t i = 0; i < c->l->n_stages; i++) {
        const struct tsr_runtime_spans *w = &rank_of(c, i)->work;
        if (kept(w) && w->v[0].start < t)
            t = w->v[0].start;
    }
    return t;
}

/* Positions on a micro-batch's way: stages and the links between them, then the link back and the head. */
static uint64_t positions(const struct chart *c)
{
    return 2 * (uint64_t)c->l->n_stages - 1 + (c->turns ? 2 : 0);
}

/* Spans of a position; *head: those of the first stage that are of the head alone. */
static const struct tsr_runtime_spans *spans_of(const struct chart *c, uint64_t at, bool *head)
{
    uint32_t n = c->l->n_stages, i = (uint32_t)(at / 2);
    *head = i == n;
    return at % 2 ? &rank_of(c, (i + 1) % n)->link : &rank_of(c, i % n)->work;
}

/* Prefill micro-batches by number, in the order of their requests. */
struct prefills {
    const struct tsr_runtime_spans *w; /* of the first stage */
    uint64_t                        i, seen;
};

/* How many there were before that one: not all of them come to the head. */
static uint64_t index_of(struct prefills *p, uint64_t number)
{
    for (; p->i < kept(p->w); p->i++) {
        const struct tsr_runtime_span *v = &p->w->v[p->i];
        if (v->head || v->decode)
            continue;
        if (v->number == number)
            break;
        p->seen++;
    }
    return p->seen;
}

/* Spans of a position: its visits, and the mean time of each phase.  Prefill micro-batches are counted
 * as they come, decode ones are slot sets, whose steps are counted in step[]. */
static void take(struct chart *c, uint64_t at, uint64_t t0, uint64_t *step, double *pre_ms,
                 double *dec_ms)
{
    uint64_t n[2] = { 0, 0 }, free_at = 0; /* a link carries one message at a time */
    double   sum[2] = { 0, 0 };
    bool     head;
    const struct tsr_runtime_spans *s = spans_of(c, at, &head);
    struct prefills                 all = { .w = &rank_of(c, 0)->work };
    memset(step, 0, tsr_runtime_layout_slot_sets(c->l) * sizeof *step);
    for (uint64_t i = 0; i < kept(s); i++) {
        const struct tsr_runtime_span *v = &s->v[i];
        bool                           d = v->decode != 0;
        uint64_t                       start = v->start > free_at ? v->start : free_at;
        if ((v->head != 0) != head)
            continue;
        if (at % 2)
            free_at = v->end;
        c->visits[c->n++] =
            (struct tsr_plan_visit){ .resource = head ? 0 : at,
                                     .micro_batch = d ? v->slot_set : index_of(&all, v->number),
                                     .step = d ? step[v->slot_set]++ : 0,
                                     .decode = d,
                                     .head = head,
                                     .start = (double)(start - t0) / 1e6,
                                     .end = (double)(v->end - t0) / 1e6 };
        sum[d] += (double)(v->end - start) / 1e6;
        n[d]++;
    }
    *pre_ms = n[0] ? sum[0] / (double)n[0] : 0;
    *dec_ms = n[1] ? sum[1] / (double)n[1] : 0;
}

/* Time of [start, end) that spans of work cover; both ascend. */
static double covered(const struct tsr_runtime_spans *work, uint64_t start, uint64_t end)
{
    double ms = 0;
    for (uint64_t i = 0; i < kept(work); i++) {
        uint64_t a = work->v[i].start > start ? work->v[i].start : start;
        uint64_t b = work->v[i].end < end ? work->v[i].end : end;
        if (b > a)
            ms += (double)(b - a) / 1e6;
    }
    return ms;
}

/* A link's time is hidden while the stage that waits for it works on something else. */
static void measure_hidden(struct chart *c)
{
    for (uint32_t i = 0; i + (c->turns ? 0 : 1) < c->l->n_stages; i++) {
        const struct tsr_runtime_page_rank *to = rank_of(c, (i + 1) % c->l->n_stages);
        uint64_t                            free_at = 0;
        for (uint64_t k = 0; k < kept(&to->link); k++) {
            const struct tsr_runtime_span *v = &to->link.v[k];
            uint64_t                       start = v->start > free_at ? v->start : free_at;
            free_at = v->end;
            c->linked += (double)(v->end - start) / 1e6;
            c->hidden += covered(&to->work, start, v->end);
        }
    }
}

static int by_end(const void *a, const void *b)
{
    const struct tsr_plan_visit *x = a, *y = b;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* ---- the same micro-batches, for the simulator ------------------------------------- */

/* Prefill micro-batches of each slot set before the next slot set's, as the first ones of a batch go; those that
 * refill slots later are played with them, ahead of all decoding.  place: [prefill] where the n-th goes. */
static void deal(struct chart *c, uint64_t *place)
{
    const struct tsr_runtime_spans *w = &rank_of(c, 0)->work;
    uint64_t slot_sets = tsr_runtime_layout_slot_sets(c->l) / c->l->replicas, n = 0;
    for (uint64_t slot_set = 0; slot_set < slot_sets; slot_set++) {
        uint64_t steps = 0, seen = 0;
        for (uint64_t i = 0; i < kept(w); i++) {
            if (w->v[i].head)
                continue;
            if (w->v[i].decode) {
                steps += w->v[i].slot_set == slot_set;
                continue;
            }
            if (w->v[i].slot_set == slot_set)
                place[seen] = n++;
            seen++;
        }
        c->dealt[c->pipeline.n_pre + slot_set] =
            (struct tsr_plan_dealt){ .after = n ? n : 1, .steps = steps };
    }
}

/* What each took: prefill on its own, decode in the mean over a slot set's steps. */
static tsr_status deal_times(struct chart *c, const uint64_t *place, struct tsr_err *err)
{
    uint64_t  places = positions(c), pre = c->pipeline.n_pre;
    uint64_t  slot_sets = c->pipeline.n_dec;
    uint64_t *steps = tsr_new(slot_sets, sizeof *steps);
    if (!steps)
        return tsr_fail_nomem(err, slot_sets * sizeof *steps, "a chart");
    for (uint64_t r = 0; r < places; r++) {
        bool                            head;
        const struct tsr_runtime_spans *s = spans_of(c, r, &head);
        struct prefills                 all = { .w = &rank_of(c, 0)->work };
        uint64_t                        free_at = 0;
        memset(steps, 0, slot_sets * sizeof *steps);
        for (uint64_t i = 0; i < kept(s); i++) {
            const struct tsr_runtime_span *v = &s->v[i];
            uint64_t                       start = r % 2 && v->start < free_at ? free_at : v->start;
            double                         ms = (double)(v->end - start) / 1e6;
            uint64_t                       seen;
            if ((v->head != 0) != head)
                continue;
            free_at = v->end;
            if (v->decode && v->slot_set < slot_sets) {
                double *mean = &c->dealt_ms[(pre + v->slot_set) * places + r];
                *mean += (ms - *mean) / (double)++steps[v->slot_set];
            } else if (!v->decode && (seen = index_of(&all, v->number)) < pre) {
                c->dealt_ms[place[seen] * places + r] = ms;
            }
        }
    }
    free(steps);
    return TSR_OK;
}

static tsr_status make_dealt(struct chart *c, struct tsr_err *err)
{
    const struct tsr_runtime_spans *w = &rank_of(c, 0)->work;
    struct tsr_plan_pipeline       *p = &c->pipeline;
    uint64_t                        places = positions(c);
    for (uint64_t i = 0; i < kept(w); i++)
        p->n_pre += !w->v[i].decode && !w->v[i].head;
    p->n_dec = tsr_runtime_layout_slot_sets(c->l) / c->l->replicas;
    uint64_t  n = p->n_pre + p->n_dec;
    uint64_t *place = tsr_new(p->n_pre, sizeof *place);
    c->dealt = tsr_new(n, sizeof *c->dealt);
    c->dealt_ms = tsr_new(n * places, sizeof *c->dealt_ms);
    tsr_status st = place && c->dealt && c->dealt_ms
                        ? TSR_OK
                        : tsr_fail_nomem(err, n * places * sizeof *c->dealt_ms, "a chart");
    if (st == TSR_OK) {
        deal(c, place);
        st = deal_times(c, place, err);
    }
    for (uint64_t i = 0; st == TSR_OK && i < n; i++)
        c->dealt[i].ms = c->dealt_ms + i * places;
    p->pre = c->dealt;
    p->dec = c->dealt + p->n_pre;
    free(place);
    return st;
}

static tsr_status gather(struct chart *c, struct tsr_err *err)
{
    uint32_t  stages = c->l->n_stages, slot_sets = tsr_runtime_layout_slot_sets(c->l);
    uint64_t  most = 0, t0 = first_ns(c);
    uint64_t *step = tsr_new(slot_sets, sizeof *step);
    for (uint32_t i = 0; i < stages; i++)
        most += kept(&rank_of(c, i)->work) + kept(&rank_of(c, i)->link);
    c->visits = tsr_new(most, sizeof *c->visits);
    c->ms = tsr_new(4 * (uint64_t)stages, sizeof *c->ms);
    c->names = tsr_new(stages, sizeof *c->names);
    c->name = tsr_new(stages, sizeof *c->name);
    c->note = tsr_new(stages, sizeof *c->note);
    if (!step || !c->visits || !c->ms || !c->names || !c->name || !c->note) {
        free(step);
        return tsr_fail_nomem(err, most * sizeof *c->visits, "a chart");
    }
    for (uint32_t i = 0; i < stages; i++) {
        take(c, 2 * (uint64_t)i, t0, step, &c->ms[i], &c->ms[stages + i]);
        for (uint32_t k = 0; k < slot_sets; k++)
            c->steps = step[k] > c->steps ? step[k] : c->steps;
        if (i + 1 < stages)
            take(c, 2 * (uint64_t)i + 1, t0, step, &c->ms[2 * stages + i], &c->ms[3 * stages + i]);
        (void)snprintf(c->names[i], sizeof c->names[i], "layers %llu-%llu",
                       (unsigned long long)c->l->stages[i].first,
                       (unsigned long long)c->l->stages[i].end - 1);
        c->name[i] = c->names[i];
        c->note[i] = c->l->stages[i].cpu_experts ? "and experts on the CPU" : NULL;
    }
    if (c->turns) {
        take(c, 2 * (uint64_t)stages - 1, t0, step, &c->back.link_pre_ms, &c->back.link_dec_ms);
        take(c, 2 * (uint64_t)stages, t0, step, &c->back.head_pre_ms, &c->back.head_dec_ms);
    }
    free(step);
    qsort(c->visits, c->n, sizeof *c->visits, by_end);
    measure_hidden(c);
    return TSR_OK;
}

/* ---- pictures ------------------------------------------------------------------------ */

static tsr_status draw(const struct tsr_pipeline_job *job, struct chart *c, const char *file,
                       bool simulated, struct tsr_err *err)
{
    struct tsr_plan_gantt g = { .title = simulated ? "The same times, simulated" : "As it ran",
                                .names = c->name,
                                .notes = c->note,
                                .pipeline = &c->pipeline,
                                .how = { .no_barrier = true } };
    char                  name[512], *path = NULL;
    size_t                stem = strlen(file);
    if (stem > 4 && strcmp(file + stem - 4, ".svg") == 0)
        stem -= 4;
    (void)snprintf(name, sizeof name, "%.*s%s.svg", (int)(stem < 400 ? stem : 400), file,
                   simulated ? ".simulated" : "");
    if (!simulated) {
        g.visits = c->visits;
        g.n_visits = c->n;
    }
    TSR_TRY(tsr_pipeline_job_output(job, name, &path, err));
    tsr_status st = tsr_plan_gantt_write(&g, path, err);
    free(path);
    return st;
}

static tsr_status put(struct chart *c, const char *file, json_t *results, struct tsr_err *err)
{
    struct tsr_simulate_how    how = { .no_barrier = true };
    struct tsr_plan_simulation s;
    double                     total = 0;
    json_t                    *j = json_object();
    for (uint64_t i = 0; i < c->n; i++)
        total = fmax(total, c->visits[i].end);
    tsr_status st = tsr_simulate(&c->pipeline, &how, NULL, NULL, &s, err);
    if (st != TSR_OK) {
        json_decref(j);
        return st;
    }
    bool ok =
        tsr_pipeline_json_put_text(j, "file", file) &&
        tsr_pipeline_json_put_real(j, "run_ms", total) &&
        tsr_pipeline_json_put_real(j, "simulated_ms", s.total_ms) &&
        tsr_pipeline_json_put_real(j, "link_ms", c->linked) &&
        tsr_pipeline_json_put_real(j, "hidden_share", c->linked > 0 ? c->hidden / c->linked : 1);
    tsr_plan_simulation_destroy(&s);
    ok = tsr_pipeline_json_put(results, "chart", j) && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the results");
}

tsr_status tsr_step_run_chart(const struct tsr_pipeline_job *job, struct tsr_launch *f,
                              const char *file, json_t *results, struct tsr_err *err)
{
    struct chart c = { .f = f, .l = tsr_launch_layout(f), .page = tsr_launch_page(f) };
    const struct tsr_runtime_layout *l = c.l;
    c.turns = l->head_first && l->n_stages > 1;
    if (first_ns(&c) == UINT64_MAX) {
        tsr_logf(TSR_LOG_WARN, "%s is not drawn: no record was computed", file);
        return TSR_OK;
    }
    tsr_status st = gather(&c, err);
    if (st == TSR_OK) {
        c.pipeline =
            (struct tsr_plan_pipeline){ .stages = l->n_stages,
                                        .batch = (l->slots + l->replicas - 1) / l->replicas,
                                        .tokens = c.steps + 1,
                                        .prefill_mb = l->prefill_mb,
                                        .decode_mb = l->decode_mb,
                                        .pre_ms = c.ms,
                                        .dec_ms = c.ms + l->n_stages,
                                        .link_pre_ms = c.ms + 2 * (uint64_t)l->n_stages,
                                        .link_dec_ms = c.ms + 3 * (uint64_t)l->n_stages,
                                        .back = c.turns ? &c.back : NULL };
        st = make_dealt(&c, err);
    }
    if (st == TSR_OK)
        st = put(&c, file, results, err);
    if (st == TSR_OK)
        st = draw(job, &c, file, false, err);
    if (st == TSR_OK)
        st = draw(job, &c, file, true, err);
    free(c.visits);
    free(c.ms);
    free(c.dealt);
    free(c.dealt_ms);
    free(c.names);
    free(c.name);
    free(c.note);
    return st;
}
