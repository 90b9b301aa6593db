#include "partition.h"

#include <math.h>
#include <string.h>

#define MAX_SLOTS (UINT64_C(1) << 21) /* labels over all states: 96 MiB */

struct partition_label {
    double   pre, dec, max_pre, max_dec;
    double   least;  /* no completion costs less */
    uint32_t parent; /* slot; meaningless in the root */
    uint32_t pad;
};

/* ---- states -------------------------------------------------------------------- */

static uint64_t state_of(const struct partition *p, uint64_t place, uint64_t layers, uint64_t kind)
{
    return place * p->per_place + layers * p->in->n_kinds + kind;
}

/* Chooses the device states; with too many combinations of a free order, only the order in which the
 * instance lists its kinds is searched. */
static bool lay_out(struct partition *p, uint32_t *listed)
{
    uint64_t limit = MAX_SLOTS / p->per_place;
    p->places = 1;
    for (uint64_t k = 0; k < p->in->n_kinds && !p->order; k++) {
        p->radix[k] = p->places;
        p->places *= p->in->kinds[k]->count + UINT64_C(1);
        if (p->places > limit) {
            uint64_t at = 0;
            for (uint32_t j = 0; j < p->in->n_kinds; j++)
                for (uint32_t i = 0; i < p->in->kinds[j]->count; i++)
                    listed[at++] = j;
            p->order = listed;
            p->exact = false;
            p->listed = true;
        }
    }
    if (p->order)
        p->places = p->devices + 1;
    return p->places <= limit;
}

bool partition_start(struct partition *p, const struct tsr_solver_instance *in,
                     struct plan_clock *clock, const uint32_t *order, uint64_t labels,
                     struct plan_arena *a, bool *too_many)
{
    *p = (struct partition){ .in = in,
                             .clock = clock,
                             .order = order ? order : in->order,
                             .devices = plan_devices(in),
                             .exact = true,
                             .least = 1,
                             .most = in->layers };
    *too_many = in->layers + 1 > MAX_SLOTS / in->n_kinds;
    if (*too_many)
        return false;
    p->per_place = (in->layers + 1) * in->n_kinds;
    p->radix = plan_take(a, in->n_kinds, sizeof *p->radix);
    uint32_t *listed = plan_take(a, p->devices, sizeof *listed);
    if (!p->radix || !listed)
        return false;
    *too_many = !lay_out(p, listed);
    if (*too_many)
        return false;
    uint64_t states = p->places * p->per_place;
    p->cap = MAX_SLOTS / states;
    p->cap = p->cap > labels ? labels : p->cap;
    p->labels = plan_take_dirty(a, states * p->cap, sizeof *p->labels);
    p->n = plan_take(a, states, sizeof *p->n);
    p->togo = plan_take_dirty(a, states, sizeof *p->togo);
    return !a->failed;
}

void partition_option(struct partition *p, uint64_t option)
{
    p->option = option;
    p->o = p->in->options[option];
    p->c = plan_counts(p->in, p->o);
    p->first = PARTITION_TIME;
    p->most_dec = INFINITY;
}

/* ---- steps: one more device after a state ------------------------------------------ */

struct step {
    uint64_t place, kind; /* afterwards */
};

/* The i-th device that can follow, counted from 0; false past the last. */
static bool next_device(const struct partition *p, uint64_t place, uint64_t *at, struct step *s)
{
    if (!p->order) {
        for (; *at < p->in->n_kinds; ++*at) {
            uint64_t count = p->in->kinds[*at]->count;
            if (place / p->radix[*at] % (count + 1) < count) {
                *s = (struct step){ place + p->radix[*at], *at };
                ++*at;
                return true;
            }
        }
        return false;
    }
    for (uint64_t i = place + *at; i < p->devices; i++) {
        bool tried = false; /* an earlier device of the same kind leaves more devices after it */
        if (i > place && !p->in->allow_unused)
            return false;
        for (uint64_t j = place; j < i; j++)
            tried |= p->order[j] == p->order[i];
        if (!tried) {
            *s = (struct step){ i + 1, p->order[i] };
            *at = i + 1 - place;
            return true;
        }
    }
    return false;
}

/* A block as a stage with everything that belongs to it; false when it cannot be. */
static bool stage_of(const struct partition *p, const struct step *s, uint64_t from, uint64_t to,
                     struct partition_block *b)
{
    bool end = to == p->in->layers;
    if (end && !p->in->allow_unused && s->place != p->places - 1)
        return false;
    if (!p->block(p->ctx, s->kind, from, to, b))
        return false;
    b->pre += from == 0 ? p->o->embed_pre_ms[s->kind] : 0;
    b->dec += from == 0 ? p->o->embed_dec_ms[s->kind] : 0;
    b->pre += end ? p->o->head_pre_ms[s->kind] : 0;
    b->dec += end ? p->o->head_dec_ms[s->kind] : 0;
    return true;
}

static uint64_t link_of(const struct partition *p, uint64_t last, uint64_t kind)
{
    return last * p->in->n_kinds + kind;
}

/* ---- the first criterion ------------------------------------------------------------ */

static double best_from(const struct partition *p, uint64_t place, uint64_t l, uint64_t last)
{
    double      best = INFINITY;
    struct step s;
    for (uint64_t at = 0; next_device(p, place, &at, &s);)
        for (uint64_t to = l + p->least; to <= p->in->layers && to <= l + p->most; to++) {
            struct partition_block b;
            if (!stage_of(p, &s, l, to, &b))
                continue;
            double then = to == p->in->layers ? 0 : p->togo[state_of(p, s.place, to, s.kind)];
            double v = b.omega + then;
            if (p->first == PARTITION_DECODE) {
                v = fmax(b.dec, then);
                v = l > 0 ? fmax(v, p->o->comm_dec_ms[link_of(p, last, s.kind)]) : v;
            }
            best = fmin(best, v);
        }
    return best;
}

double partition_criterion(struct partition *p, enum partition_first first)
{
    uint64_t K = p->in->n_kinds;
    p->first = first;
    for (uint64_t place = p->places; place-- > 0;)
        for (uint64_t l = p->in->layers; l-- > 0;)
            for (uint64_t k = 0; k < K; k++) {
                /* without links the last kind does not affect what follows */
                uint64_t state = state_of(p, place, l, k);
                bool     same = k > 0 && (l == 0 || first == PARTITION_OMEGA);
                if (!same && plan_over(p->clock)) {
                    p->exact = false;
                    return INFINITY;
                }
                p->togo[state] = same ? p->togo[state - k] : best_from(p, place, l, k);
            }
    if (first == PARTITION_DECODE)
        p->most_dec = p->togo[0] * (1 + 1e-9); /* sums in another order */
    return p->togo[0];
}

/* On the way to the best value of the criterion. */
static bool allowed(const struct partition *p, uint64_t state, const struct step *s, uint64_t to,
                    const struct partition_block *b, double link_dec)
{
    if (p->first == PARTITION_DECODE)
        return b->dec <= p->most_dec && link_dec <= p->most_dec;
    if (p->first == PARTITION_TIME)
        return true;
    double then = to == p->in->layers ? 0 : p->togo[state_of(p, s->place, to, s->kind)];
    /* sums in another order; far less than the tolerance of max_omega, for every stage adds as much */
    return b->omega + then <= p->togo[state] * (1 + 1e-12);
}

/* ---- labels ------------------------------------------------------------------------------ */

static void insert(struct partition *p, uint64_t state, struct partition_label v)
{
    struct partition_label *a = p->labels + state * p->cap;
    uint32_t                n = p->n[state], kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (a[i].pre <= v.pre && a[i].dec <= v.dec && a[i].max_pre <= v.max_pre &&
            a[i].max_dec <= v.max_dec)
            return;
    for (uint32_t i = 0; i < n; i++)
        if (!(v.pre <= a[i].pre && v.dec <= a[i].dec && v.max_pre <= a[i].max_pre &&
              v.max_dec <= a[i].max_dec))
            a[kept++] = a[i];
    p->n[state] = kept;
    if (kept < p->cap) {
        a[kept] = v;
        p->n[state]++;
        return;
    }
    uint32_t worst = 0;
    for (uint32_t i = 1; i < kept; i++)
        if (a[i].least > a[worst].least)
            worst = i;
    if (v.least < a[worst].least)
        a[worst] = v;
    p->exact = false;
}

/* Writes the plan that ends with block [first, L) on `kind` after the label in `parent`. */
static void record(struct partition *p, uint64_t kind, uint64_t first, uint64_t parent)
{
    struct tsr_solver_solution *out = p->plan;
    uint64_t                    n = 0, layers = p->in->layers + 1;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t k = kind, f = first, e = p->in->layers, slot = parent, i = n;
        for (uint64_t count = 1;; count++) {
            if (pass) {
                i--;
                out->stage_kind[i] = (uint32_t)k;
                out->stage_first[i] = f;
                out->stage_count[i] = e - f;
            } else {
                n = count;
            }
            if (f == 0)
                break;
            k = slot / p->cap % p->in->n_kinds;
            e = f;
            slot = p->labels[slot].parent;
            /* the block of that label begins where its parent's ended */
            f = slot / p->cap / p->in->n_kinds % layers;
        }
    }
    out->stages = n;
    out->option = p->option;
}

/* The labels of a state after one more stage. */
static bool extend(struct partition *p, uint64_t state, uint64_t l, const struct step *s,
                   uint64_t to, const struct partition_block *b, double link_pre, double link_dec)
{
    bool paper = p->in->objective == TSR_OBJECTIVE_PAPER, end = to == p->in->layers, found = false;
    for (uint32_t i = 0; i < p->n[state]; i++) {
        uint64_t                      slot = state * p->cap + i;
        const struct partition_label *a = &p->labels[slot];
        struct partition_label        v = { a->pre + b->pre + (paper ? 0 : link_pre),
                                            a->dec + b->dec + (paper ? 0 : link_dec),
                                            fmax(a->max_pre, fmax(b->pre, link_pre)),
                                            fmax(a->max_dec, fmax(b->dec, link_dec)),
                                            0,
                                            (uint32_t)slot,
                                            0 };
        v.least = p->fixed + plan_time(p->in, &p->c, v.pre + p->rest_pre[to],
                                       v.dec + p->rest_dec[to], v.max_pre, v.max_dec);
        if (!(v.least < p->best))
            continue;
        if (end) {
            p->best = v.least;
            record(p, s->kind, l, slot);
            found = true;
        } else {
            insert(p, state_of(p, s->place, to, s->kind), v);
        }
    }
    return found;
}

static bool follow(struct partition *p, uint64_t state)
{
    uint64_t    place = state / p->per_place, l = state % p->per_place / p->in->n_kinds;
    uint64_t    last = state % p->in->n_kinds;
    bool        found = false;
    struct step s;
    for (uint64_t at = 0; next_device(p, place, &at, &s);) {
        double link_pre = l > 0 ? p->o->comm_pre_ms[link_of(p, last, s.kind)] : 0;
        double link_dec = l > 0 ? p->o->comm_dec_ms[link_of(p, last, s.kind)] : 0;
        for (uint64_t to = l + p->least; to <= p->in->layers && to <= l + p->most; to++) {
            struct partition_block b;
            if (stage_of(p, &s, l, to, &b) && allowed(p, state, &s, to, &b, link_dec))
                found |= extend(p, state, l, &s, to, &b, link_pre, link_dec);
        }
    }
    return found;
}

bool partition_run(struct partition *p)
{
    uint64_t states = p->places * p->per_place;
    bool     found = false;
    memset(p->n, 0, states * sizeof *p->n);
    p->labels[0] = (struct partition_label){ 0, 0, 0, 0, 0, 0, 0 };
    p->n[0] = 1;
    for (uint64_t state = 0; state < states; state++) {
        if (p->n[state] == 0)
            continue;
        if (plan_over(p->clock)) {
            p->exact = false;
            break;
        }
        found |= follow(p, state);
    }
    return found;
}
