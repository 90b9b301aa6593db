/* What a rank needs before it works: links, the group of its stage, its part of the model. */
#include "plan/cost/device.h"
#include "runtime/emulate.h"
#include "runtime/rank_internal.h"

#include <string.h>
#include <time.h>

#define TURN_NS 1000000
#define FORWARD 512u /* tokens of an engine's forward where the layout leaves it open */

tsr_status tsr_runtime_rank_open_edges(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    const struct tsr_runtime_group_plan *p = r->plan;
    _Atomic uint64_t                    *moved = &r->page->numbers.moved;
    for (uint32_t i = 0; i < p->n_edges; i++) {
        const struct tsr_runtime_edge *e = &p->edges[i];
        bool                           here = e->kind != TSR_RUNTIME_EDGE_TOKENS;
        if (e->to == r->place.rank && e->kind == TSR_RUNTIME_EDGE_BACK) {
            TSR_TRY(tsr_runtime_edge_open(&r->back.end, e, false, p->deadline_us, moved,
                                          r->registry, err));
            r->back.there = true;
        } else if (e->to == r->place.rank && e->kind != TSR_RUNTIME_EDGE_RESULT) {
            TSR_TRY(
                tsr_runtime_edge_open(&r->in, e, false, p->deadline_us, moved, r->registry, err));
            r->has_in = true;
        }
        if (e->from == r->place.rank && here) {
            bool fan = e->kind == TSR_RUNTIME_EDGE_ROWS &&
                       tsr_runtime_layout_place(p->layout, e->to).stage == r->place.stage;
            bool answer = e->kind == TSR_RUNTIME_EDGE_RESULT && r->place.back;
            struct tsr_runtime_rank_sender *s = fan ? &r->fan : answer ? &r->answer : &r->next;
            TSR_TRY(tsr_runtime_edge_open(&s->end[s->n++], e, true, p->deadline_us, moved,
                                          r->registry, err));
        }
    }
    return TSR_OK;
}

static enum tsr_comm_algorithm algorithm_of(const struct tsr_runtime_layout_stage *s, int phase,
                                            tsr_status *st, struct tsr_err *err)
{
    enum tsr_comm_algorithm a = TSR_COMM_ALL_GATHER;
    if (s->algorithm[phase] ? strcmp(s->algorithm[phase], "auto") == 0
                            : tsr_comm_is_auto(s->collective[phase]))
        return TSR_COMM_AUTO;
    if (s->algorithm[phase] && *st == TSR_OK)
        *st = tsr_comm_algorithm_find(&a, s->algorithm[phase], err);
    return a;
}

static struct tsr_runtime_page_choice *choice_of(const struct tsr_runtime_rank *r, int phase)
{
    return &r->plan->page->choice[TSR_PLAN_PHASES * r->place.stage + (uint32_t)phase];
}

/* The first replica measures the open choices; the others adopt its result, or the answers would depend on
 * the replica. */
static tsr_status hear_choice(const struct tsr_runtime_rank *r, int phase, struct tsr_comm_way *way,
                              struct tsr_err *err)
{
    const struct tsr_runtime_page_choice *c = choice_of(r, phase);
    while (!atomic_load(&c->fixed)) {
        if (tsr_runtime_page_failed(r->plan->page))
            return tsr_fail(err, TSR_E_CANCELLED, "ended by another rank");
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_STARTS, 0);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    way->codec = c->codec;
    way->algorithm = (enum tsr_comm_algorithm)c->algorithm;
    return TSR_OK;
}

/* Measures, and sends the choice to the others. */
static tsr_status make_choice(struct tsr_runtime_rank *r, int phase, struct tsr_err *err)
{
    const struct tsr_runtime_layout *l = r->plan->layout;
    struct tsr_runtime_page_choice  *c = choice_of(r, phase);
    uint64_t rows = phase == TSR_PLAN_PREFILL ? l->forward ? l->forward : FORWARD : l->decode_mb;
    TSR_TRY(tsr_comm_group_tune(r->group, (uint32_t)phase, rows, r->plan->limits.hidden, err));
    const char *codec = tsr_comm_group_codec(r->group, (uint32_t)phase);
    if (strlen(codec) >= sizeof c->codec)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "codec auto: '%.200s' has more than %zu letters",
                        codec, sizeof c->codec - 1);
    if (r->place.tp == 0) {
        (void)snprintf(c->codec, sizeof c->codec, "%s", codec);
        c->algorithm = tsr_comm_group_algorithm(r->group, (uint32_t)phase);
        atomic_store(&c->fixed, 1);
    }
    return TSR_OK;
}

/* A sum over a slow link takes long, and gets on. */
static void beat(void *ctx)
{
    struct tsr_runtime_progress *p = &((struct tsr_runtime_rank *)ctx)->page->progress;
    tsr_runtime_progress_beat(p, atomic_load(&p->op), atomic_load(&p->site));
}

tsr_status tsr_runtime_rank_join(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    const struct tsr_runtime_group_plan   *p = r->plan;
    const struct tsr_runtime_layout_stage *s = &p->layout->stages[r->place.stage];
    uint32_t                     at = r->place.replica * p->layout->n_stages + r->place.stage;
    const struct tsr_comm_world *w = &p->groups[at];
    tsr_status                   st = TSR_OK;
    bool                         open[TSR_COMM_PHASES];
    struct tsr_comm_options      o = {
             .place = { .transport = s->collective_over ? s->collective_over
                                     : p->peers         ? p->group_over[at]
                                                        : p->transport,
                        .under = p->peers && s->collective_over ? p->group_over[at] : NULL,
                        .rank = r->place.tp,
                        .ranks = s->ranks,
                        .shared = w->shared,
                        .shared_bytes = w->bytes,
                        .epoch = p->epoch },
             .deadline_us = p->deadline_us,
             .beat = beat,
             .ctx = r,
    };
    for (int k = 0; k < TSR_COMM_PHASES; k++) {
        o.way[k] = (struct tsr_comm_way){ .codec = s->collective[k],
                                          .algorithm = algorithm_of(s, k, &st, err),
                                          .states = s->states[k],
                                          .n_states = s->n_states[k],
                                          .rows_alone = true };
        open[k] = tsr_runtime_layout_open(p->layout, r->place.stage, k);
        if (st == TSR_OK && open[k] && r->place.replica > 0)
            st = hear_choice(r, k, &o.way[k], err);
    }
    if (st == TSR_OK)
        st = tsr_comm_group_create(&r->group, r->registry, &o, err);
    for (int k = 0; k < TSR_COMM_PHASES; k++)
        if (st == TSR_OK && open[k] && r->place.replica == 0)
            st = make_choice(r, k, err);
    return st;
}

static void on_layer(void *ctx, uint64_t layer, bool load)
{
    struct tsr_runtime_rank *r = ctx;
    tsr_runtime_progress_beat(&r->page->progress,
                              load ? TSR_RUNTIME_RANK_LOADS : TSR_RUNTIME_RANK_WORKS,
                              (uint32_t)layer);
}

/* Whether any input of the rank's layers is compensated. */
static bool compensates(const struct tsr_runtime_rank *r)
{
    const struct tsr_engine_compensate *c = r->plan->compensate;
    bool                                any = c && !c->k && c->each > 0;
    for (uint64_t l = r->place.first; c && c->k && l < r->place.end; l++)
        for (int s = 0; s < TSR_MODEL_SITES; s++)
            any = any || c->k[l][s] > 0;
    return any;
}

static tsr_status load(struct tsr_runtime_rank *r, struct tsr_engine_options *o,
                       struct tsr_err *err)
{
    const struct tsr_runtime_group_plan *p = r->plan;
    struct tsr_runtime_rank_numbers     *n = &r->page->numbers;
    struct tsr_runtime_loader_numbers    took;
    struct tsr_engine_share              share;
    if (!p->scheme)
        return tsr_engine_create(&r->engine, r->registry, p->model, p->overlay, o, err);
    TSR_TRY(tsr_engine_share_of(&p->model->hp, o->tp->rank, o->tp->ranks, o->tp->whole_experts,
                                &share, err));
    TSR_TRY(tsr_runtime_loader_open(&r->loader, p->scheme, r->registry, p->model, o->first, o->end,
                                    &share, r->place.head, &r->page->progress, err));
    o->source = tsr_runtime_loader_source(r->loader);
    TSR_TRY(tsr_engine_create(&r->engine, r->registry, p->model,
                              tsr_runtime_loader_overlay(r->loader), o, err));
    tsr_runtime_loader_numbers(r->loader, &took);
    atomic_store(&n->load_peak, took.total);
    atomic_store(&n->load_layer, took.layer);
    atomic_store(&n->read_bytes, took.read);
    atomic_store(&n->read_ns, (uint64_t)(took.read_s * 1e9));
    atomic_store(&n->quantize_ns, (uint64_t)(took.quantize_s * 1e9));
    atomic_store(&n->place_ns, (uint64_t)(took.place_s * 1e9));
    return TSR_OK;
}

/* The loading rank is watched; a rank that waits for it ends with the group. */
static tsr_status take_turn(struct tsr_runtime_rank *r, pthread_mutex_t *turn, struct tsr_err *err)
{
    while (pthread_mutex_trylock(turn) != 0) {
        if (tsr_runtime_page_failed(r->plan->page))
            return tsr_fail(err, TSR_E_CANCELLED, "ended by another rank");
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "interrupted");
        tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_STARTS, 0);
        (void)nanosleep(&(struct timespec){ .tv_nsec = TURN_NS }, NULL);
    }
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_LOADS, (uint32_t)r->place.first);
    return TSR_OK;
}

tsr_status tsr_runtime_rank_open_engine(struct tsr_runtime_rank *r, struct tsr_err *err)
{
    const struct tsr_runtime_group_plan *p = r->plan;
    struct tsr_engine_tp                 tp = { .rank = r->place.tp,
                                                .ranks = p->layout->stages[r->place.stage].ranks,
                                                .whole_experts = p->layout->stages[r->place.stage].whole_experts,
                                                .sum = tsr_runtime_rank_sum,
                                                .sum_on = tsr_runtime_rank_sum_on,
                                                .reserve_on = tsr_runtime_rank_reserve_on,
                                                .ctx = r };
    struct tsr_engine_options            o = { .on = r->on,
                                               .act = p->act,
                                               .kv_dtype = p->kv_dtype,
                                               .kv_layers = p->kv_layers,
                                               .slots = tsr_runtime_layout_engine_slots(p->layout),
                                               .context = p->context,
                                               .chunk = p->layout->forward,
                                               .first = r->place.first,
                                               .end = r->place.end,
                                               .no_embed = !r->place.embed,
                                               .no_head = !r->place.head,
                                               .tp = &tp,
                                               .compensate = compensates(r) ? p->compensate : NULL,
                                               .release = true,
                                               .on_layer = on_layer,
                                               .layer_ctx = r };
    tsr_runtime_progress_beat(&r->page->progress, TSR_RUNTIME_RANK_LOADS, (uint32_t)r->place.first);
    if (p->pacing)
        tsr_plugin_registry_set_limit(r->registry, tsr_runtime_pacing_limit(p->pacing, &r->place));
    /* a loader opens no layer of the model */
    pthread_mutex_t *turn = p->scheme ? NULL : p->loading;
    if (turn)
        TSR_TRY(take_turn(r, turn, err));
    tsr_status st = load(r, &o, err);
    if (turn)
        (void)pthread_mutex_unlock(turn);
    return st;
}
