/* exact - the planner that proves its answer: any omega table, all device orders at once, both
 * objectives, every optional part (docs/decisions/exact-solver.md). */
#include "exact.h"

#include <stdio.h>
#include <time.h>

#define MOST_STATES (UINT64_C(1) << 23) /* device states x layers x kinds: 64 MiB a table */

struct exact {
    const struct tsr_host *host;
    void                  *blocks[EX_BLOCKS];
};

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* The instance with all members of this header. */
static const struct tsr_solver_instance *whole_instance(const struct tsr_solver_instance *in,
                                                        struct tsr_solver_instance       *whole)
{
    memset(whole, 0, sizeof *whole);
    memcpy(whole, in, in->struct_size < sizeof *whole ? in->struct_size : sizeof *whole);
    return whole;
}

/* ---- feasibility ----------------------------------------------------------- */

/* The smallest possible stages: finds a plan that ignores the limit of omega, or shows that the model has
 * none. Fills x->trial; 0: none. */
static uint64_t smallest(struct ex *x, const struct ex_model *m)
{
    for (uint64_t k = 0; k < x->K; k++) {
        x->w.a[k] = 1;
        x->w.b[k] = m->kap[0];
    }
    x->w.p_lo = x->w.d_lo = x->w.konst = 0;
    x->w.p_hi = x->w.d_hi = INFINITY;
    x->w.kap = m->kap[0];
    x->w.c = m->c_max[0];
    x->w.link_pre = m->in_sum;
    x->w.link_dec = m->in_sum * m->kap[0];
    x->w.theta = x->theta;
    ex_least(x, m);
    ex_relax(x, m); /* for reach and last: times are not limited, so memory alone decides */
    if (!(ex_forward(x, m) < INFINITY))
        return 0;
    uint64_t n = ex_walk(x, m, x->trial);
    for (uint64_t i = 0; i < n; i++) {
        struct ex_stage *st = &x->trial[i];
        const double    *t = m->end + (uint64_t)st->k * 4;
        st->pre = (st->s ? 0 : t[0]) + (st->e == x->L ? t[2] : 0);
        st->dec = (st->s ? 0 : t[1]) + (st->e == x->L ? t[3] : 0);
        st->w = 0;
        for (uint64_t l = st->s; l < st->e; l++) {
            const struct ex_item *it = m->items + (st->k * x->C + x->in->layer_class[l]) * x->Q;
            x->fit[l] = it->q;
            st->pre += it->pre; /* the first one is the smallest */
            st->dec += it->dec;
            st->w += ex_omega_of(x, st->k, l)[it->q];
        }
    }
    return n;
}

/* ---- the whole ------------------------------------------------------------- */

/* Sets the models that have a plan, with a first incumbent; false: no model has one, and why gives the
 * reason. */
static bool set_models(struct ex *x, const char **why)
{
    uint64_t n = x->in->n_options, kept = 0;
    x->models = ex_new(x, n, sizeof *x->models);
    if (!x->models)
        return false;
    *why = "no partition of the layers fits the memory of the devices";
    x->keeps_limits = ex_keeps_limits;
    for (uint64_t i = 0; i < n; i++) {
        x->n_models = i + 1;
        if (!ex_model_init(x, &x->models[i], i))
            return false;
    }
    if (!ex_tables_init(x))
        return false;
    for (uint64_t i = 0; i < n && x->status == TSR_OK; i++) {
        bool memory = !(x->w_limit < INFINITY) && !x->host_bytes; /* of devices decides alone */
        bool none = false;
        if (x->in->cutoff < INFINITY && !(x->f_limit < INFINITY)) {
            x->models[i].unchecked = !memory; /* bounds rule out most models sooner */
        } else {
            uint64_t stages = smallest(x, &x->models[i]);
            none = stages == 0;
            if (!none && memory)
                ex_incumbent(x, i, x->trial, stages, x->fit);
            if (x->in->cutoff < INFINITY)
                x->models[i].unchecked = true;
            else
                none = none || !ex_keeps_limits(x, i, why);
        }
        if (none)
            ex_model_free(x, &x->models[i]);
        else {
            struct ex_model m = x->models[i];
            if (x->n_best && x->best_model == i)
                x->best_model = kept;
            x->models[i].block = NULL;
            x->models[kept++] = m;
        }
    }
    if (x->status != TSR_OK)
        return false;
    x->n_models = kept;
    return kept > 0;
}

static tsr_status check_size(struct ex *x, struct tsr_err *err)
{
    const struct tsr_solver_instance *in = x->in;
    if (x->K == 0 || x->L == 0 || in->n_options == 0 || x->Q == 0)
        return tsr_fail(err, TSR_E_INVAL, "exact: the instance has no layers, kinds or options");
    if (x->Q > 64 || x->L > 4096 || x->V > 64 || x->K * (x->L + 1) > MOST_STATES)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "exact: %llu layers, %llu bit candidates, %llu kinds: at most 4096, 64 and "
                        "2^23 / layers are possible",
                        (unsigned long long)x->L, (unsigned long long)x->Q,
                        (unsigned long long)x->K);
    for (uint64_t k = 0; k < x->K && in->n_pools; k++) {
        const struct tsr_solver_kind *kind = in->kinds[k];
        if (kind->pool >= in->n_pools || kind->takes == 0 ||
            kind->count != in->pool_devices[kind->pool] / kind->takes)
            return tsr_fail(
                err, TSR_E_INVAL,
                "exact: kind %llu takes %llu of pool %llu, %u times; expected the pool's "
                "devices divided by what a stage takes",
                (unsigned long long)k, (unsigned long long)kind->takes,
                (unsigned long long)kind->pool, kind->count);
    }
    return TSR_OK;
}

static tsr_status check_states(const struct ex *x, struct tsr_err *err)
{
    const struct tsr_solver_instance *in = x->in;
    uint64_t                          states = 1, per = x->K * (x->L + 1);
    for (uint64_t g = 0; g < x->G && !in->order; g++) {
        if (__builtin_mul_overflow(states, x->have[g] + 1, &states) || states > MOST_STATES / per)
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "exact: too many sets of devices for %llu layers; fix the order, or "
                            "plan for a replica",
                            (unsigned long long)x->L);
    }
    if (in->order && in->order_len + 1 > MOST_STATES / per)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "exact: the fixed order is too long");
    return TSR_OK;
}

/* One search with the tables as x->dearest has them. */
static tsr_status search(struct ex *x, struct tsr_solver_solution *out)
{
    const struct tsr_solver_instance *in = x->in;
    const char                       *why = "";
    if (!ex_omega_init(x))
        return TSR_E_NOMEM;
    if (!set_models(x, &why)) {
        if (x->status == TSR_OK)
            ex_put_infeasible(x, out, why);
        return x->status;
    }
    if (in->cutoff < x->best) {
        /* a value not below this in the rounded tables is not below the cutoff */
        x->best = in->cutoff + 2 * ex_error_of(x) + 2e-12 * in->cutoff;
        x->n_best = 0;
        x->target = x->best;
    }
    ex_search(x);
    if (x->status != TSR_OK)
        return x->status;
    bool memory = !(x->f_limit < INFINITY); /* of devices alone leaves a model without a path */
    if ((x->why || memory) && !x->n_best && !(x->closed < INFINITY)) {
        ex_put_infeasible(x, out, x->why ? x->why : why);
        return TSR_OK;
    }
    return ex_answer(x, out) ? TSR_OK : x->status;
}

/* The tables were too coarse for the plan that was found, and can be finer: entries dearer than
 * this plan had a part in the unit. */
static bool again(const struct ex *x, const struct tsr_solver_solution *out)
{
    return x->n_best && !x->late && 2 * out->objective < x->dearest &&
           ex_error_of(x) > 0.01 * ex_most_gap(x->in) * out->objective;
}

static void clear(struct ex *x)
{
    ex_search_free(x);
    x->n_models = x->n_best = x->n_paths = x->n_heap = 0;
    x->models = NULL;
    x->climbed = NULL;
    x->block = NULL;
    x->heap = NULL;
    x->paths = NULL;
    x->lab[0] = x->lab[1] = NULL;
    x->heap_room = x->path_room = x->lab_room[0] = x->lab_room[1] = 0;
    x->least_of = x->reach_of = 0;
    x->kept = false;
    x->cols = (struct ex_columns){ 0 };
    x->best = x->target = x->closed = INFINITY;
}

static tsr_status run(struct ex *x, struct tsr_solver_solution *out)
{
    const struct tsr_solver_instance *in = x->in;
    uint64_t                          devices = 0;
    for (uint64_t k = 0; k < x->K; k++)
        devices += in->kinds[k]->count;
    if (!in->n_pools && !in->allow_unused && devices > x->L) {
        ex_put_infeasible(x, out, "more devices than layers, and all must be used");
        return TSR_OK;
    }
    tsr_status st = ex_devices_init(x);
    if (st == TSR_OK && !ex_can_complete(x)) {
        ex_put_infeasible(x, out, "no stages, of a layer or more each, use all devices");
        return TSR_OK;
    }
    if (st == TSR_OK)
        st = search(x, out);
    while (st == TSR_OK && again(x, out)) {
        x->dearest = out->objective * (1 + 1e-9);
        clear(x);
        st = search(x, out);
    }
    return st;
}

static tsr_status solve_lines(void *self, const struct tsr_solver_instance *in,
                              struct tsr_solver_solution *out, struct tsr_solver_line *lines,
                              struct tsr_err *err)
{
    struct exact              *s = self;
    struct tsr_solver_instance whole; /* members that the host does not know are 0: no such part */
    in = whole_instance(in, &whole);
    struct ex x = { .host = s->host,
                    .blocks = s->blocks,
                    .in = in,
                    .L = in->layers,
                    .K = in->n_kinds,
                    .Q = in->bits,
                    .C = in->classes,
                    .V = in->n_links ? in->n_links : 1,
                    .host_bytes = in->host_bytes,
                    .small = in->layers * in->n_kinds <= EX_SMALL,
                    .many = in->bits > EX_FEW && in->layers * in->n_kinds > EX_SMALL,
                    .f_limit = INFINITY,
                    .theta = in->theta,
                    .lines = lines,
                    .dearest = in->cutoff,
                    .best = INFINITY,
                    .target = INFINITY,
                    .enough = -INFINITY,
                    .closed = INFINITY };
    uint64_t  start = now_us();
    if (in->deadline_us)
        x.end_us = in->deadline_us > UINT64_MAX - start ? UINT64_MAX : start + in->deadline_us;
    if (in->max_first_ms > 0) /* with the tolerance of docs/formats/instance.md */
        x.f_limit = in->max_first_ms + 1e-9 * fmax(1, in->max_first_ms);
    tsr_status st = check_size(&x, err);
    if (st == TSR_OK)
        st = ex_pools_init(&x);
    if (st == TSR_OK)
        st = check_states(&x, err);
    if (st != TSR_OK) {
        ex_free(&x, x.pool);
        return st == TSR_E_NOMEM ? tsr_fail(err, st, "out of memory in solver exact") : st;
    }
    st = run(&x, out);
    ex_search_free(&x);
    ex_free(&x, x.next);
    ex_free(&x, x.complete);
    ex_free(&x, x.reached);
    ex_free(&x, x.omega);
    ex_free(&x, x.link_omega);
    ex_free(&x, x.pool);
    if (st == TSR_E_NOMEM)
        return tsr_fail(err, st, "out of memory in solver exact");
    if (st == TSR_E_CANCELLED)
        return tsr_fail(err, st, "exact: stopped by the user");
    return st == TSR_OK ? st : tsr_fail(err, st, "exact: a plan's sums do not come from its bits");
}

static tsr_status exact_solve(void *self, const struct tsr_solver_instance *in,
                              struct tsr_solver_solution *out, struct tsr_err *err)
{
    return solve_lines(self, in, out, NULL, err);
}

static const struct tsr_solver_lines_v1 lines_iface = { .struct_size = sizeof lines_iface,
                                                        .solve = solve_lines };

static const void *exact_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_SOLVER_LINES) == 0 ? &lines_iface : NULL;
}

static tsr_status exact_create(const struct tsr_host *host, const void *opts, void **self,
                               struct tsr_err *err)
{
    struct exact *s = host->alloc(host->ctx, sizeof *s, _Alignof(struct exact));
    (void)opts;
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for solver exact", sizeof *s);
    *s = (struct exact){ .host = host };
    *self = s;
    return TSR_OK;
}

static void exact_destroy(void *self)
{
    struct exact *s = self;
    if (!s)
        return;
    ex_release(s->host, s->blocks);
    s->host->release(s->host->ctx, s, sizeof *s);
}

static const struct tsr_solver_v1 exact_iface = {
    .struct_size = sizeof exact_iface,
    .supports = TSR_SOLVER_CLASSES | TSR_SOLVER_MAX_OMEGA | TSR_SOLVER_LINKS | TSR_SOLVER_USE_ALL |
                TSR_SOLVER_FORBIDDEN | TSR_SOLVER_WORKSPACE | TSR_SOLVER_ENDS |
                TSR_SOLVER_FIXED_ORDER | TSR_SOLVER_HOST | TSR_SOLVER_JOBS | TSR_SOLVER_POOLS |
                TSR_SOLVER_KIND_OMEGA | TSR_SOLVER_LINK_CODECS | TSR_SOLVER_OPTION_ENDS |
                TSR_SOLVER_MAX_FIRST,
    .create = exact_create,
    .destroy = exact_destroy,
    .solve = exact_solve,
    .extension = exact_extension,
};

static const struct tsr_component exact_component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_SOLVER,
    .name = "exact",
    .summary = "Optimal bits, partition, device order and micro-batches, with the proof.",
    .iface = &exact_iface,
};

static const struct tsr_component *const components[] = { &exact_component };

TSR_PLUGIN_SYMBOL(exact) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.exact", .version = "0.1.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,  .n_components = 1,
};
