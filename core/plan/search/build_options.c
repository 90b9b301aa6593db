/* Micro-batch sizes, and the cost of each on every kind. */
#include "plan/search/build_internal.h"

#include "base/mem.h"
#include "plan/cost/device.h"
#include "plugin/choices.h"

#include <math.h>

#define NEW(b, v, n)                                                                               \
    if (!((v) = tsr_plan_build_alloc(b, n, sizeof *(v))))                                          \
    return tsr_fail_nomem(err, n, "a planning problem")

/* Tables of one phase at one micro-batch size. */
struct sized {
    uint64_t size;
    double  *layer, *embed, *head, *comm; /* [K][C][Q], [K], [K], [V][K][K]; prefill: of a job */
    double *alone; /* layer, without what places of kinds forbid; layer itself where nothing does */
    double  jobs;  /* of a micro-batch: tsr_plan_build_jobs() */
};

/* A kind runs neither the first nor the last unit where it cannot be that stage. */
static bool may_run(const struct tsr_plan_built *b, uint64_t kind, uint64_t cls)
{
    const struct tsr_plan_built_kind *k = &b->kinds[kind];
    bool                              first = cls == b->whole.layer_class[0];
    bool                              last = cls == b->whole.layer_class[b->units - 1];
    return !b->apart || ((!first || !k->no_first) && (!last || !k->no_last));
}

static tsr_status layer_table(struct tsr_plan_built *b, const uint32_t *counts,
                              enum tsr_phase phase, struct sized *z, struct tsr_err *err)
{
    uint64_t sc = b->p->shape->classes, q = b->whole.bits, cls = b->whole.classes;
    double  *one;
    NEW(b, one, sc);
    for (uint64_t k = 0; k < b->whole.n_kinds; k++)
        for (uint64_t i = 0; i < q; i++) {
            for (uint64_t s = 0; s < sc; s++) {
                struct tsr_plan_time t;
                TSR_TRY(tsr_plan_built_layer(b, k, s, i, phase, z->size, &t, err));
                one[s] = t.ms;
            }
            for (uint64_t c = 0; c < cls; c++) {
                double sum = 0;
                for (uint64_t s = 0; s < sc; s++)
                    if (counts[c * sc + s]) /* NaN times zero would be NaN */
                        sum += one[s] * counts[c * sc + s];
                z->alone[(k * cls + c) * q + i] = sum;
                if (z->layer != z->alone)
                    z->layer[(k * cls + c) * q + i] = may_run(b, k, c) ? sum : (double)NAN;
            }
        }
    return TSR_OK;
}

tsr_status tsr_plan_built_ends(const struct tsr_plan_built *b, uint64_t kind, enum tsr_phase phase,
                               uint64_t size, struct tsr_plan_time *embed,
                               struct tsr_plan_time *head, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    const struct tsr_plan_mesh    *m = &b->meshes.kinds[kind].mesh;
    double tokens = (double)size * (phase == TSR_PLAN_PREFILL ? (double)p->work.s : 1.0);
    TSR_TRY(tsr_plan_latency_embed(&p->latency, m, tokens, embed, err));
    return tsr_plan_latency_head(&p->latency, m, p->memory.head, (double)size, head, err);
}

/* The profile of a kind has no time for an end of the model, for want of a kernel of its type. */
static tsr_status no_kernel(const struct tsr_plan_built *b, uint64_t k, bool head,
                            struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    const struct tsr_plan_profile *profile = b->meshes.kinds[k].mesh.profile;
    char                           kernel[TSR_PLAN_KERNEL_TEXT];
    struct tsr_format              f;
    uint64_t                       bytes;
    TSR_TRY(tsr_plan_candidate_matrix(head ? p->memory.head : p->memory.embed,
                                      head ? &p->shape->head : &p->shape->embed, &f, &bytes, err));
    tsr_plan_kernel_name(&f, kernel);
    tsr_plan_profile_scheme_kernel(profile, NULL, kernel);
    if (tsr_plan_profile_runs(profile, kernel)) /* by points of layers, which say nothing of ends */
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the profile %s has measured layers of kernel %s, but no time for the "
                        "%s of the model; add the kernel under 'kernels' or points under 'ends'",
                        p->cluster->name, profile->name, kernel, head ? "head" : "embedding");
    const char *closest = tsr_plan_profile_closest(profile, kernel);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: the profile %s has no kernel %s, which the %s of the model needs%s%s; add "
                    "one to the profile",
                    p->cluster->name, profile->name, kernel, head ? "head" : "embedding",
                    closest ? "; the closest that it has is " : "", closest ? closest : "");
}

static tsr_status ends_table(struct tsr_plan_built *b, enum tsr_phase phase, struct sized *z,
                             struct tsr_err *err)
{
    for (uint64_t k = 0; k < b->whole.n_kinds; k++) {
        struct tsr_plan_time embed, head;
        TSR_TRY(tsr_plan_built_ends(b, k, phase, z->size, &embed, &head, err));
        if (!isfinite(embed.ms) || !isfinite(head.ms))
            return no_kernel(b, k, !isfinite(head.ms), err);
        z->embed[k] = embed.ms;
        z->head[k] = head.ms;
        if (b->p->memory.place != TSR_PLAN_HEAD_FIRST)
            continue;
        z->embed[k] += z->head[k]; /* the first stage does the head's work */
        TSR_TRY(tsr_plan_build_back(b, k, phase, z->size, &z->head[k], err));
    }
    return TSR_OK;
}

tsr_status tsr_plan_built_send(const struct tsr_plan_built *b, uint64_t from, uint64_t to,
                               enum tsr_phase phase, uint64_t link, uint64_t size,
                               struct tsr_plan_send *out, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    struct tsr_plan_mesh           x, y;
    uint64_t                       rows = size;
    if (phase == TSR_PLAN_PREFILL && !tsr_mul(rows, tsr_plan_build_piece(p, size), &rows))
        return tsr_fail(err, TSR_E_INPUT, "batch times prompt is more than can be counted");
    tsr_plan_build_pair(b, from, to, &x, &y);
    TSR_TRY(tsr_plan_latency_link(p->cluster, &x, &y, phase, &p->links[link].wire[phase], rows,
                                  p->shape->hidden, out, err));
    return isfinite(out->ms)
               ? TSR_OK
               : tsr_fail(err, TSR_E_INPUT,
                          "%s: node '%s' has no way to send to node '%s'; give the cluster a "
                          "'network', or the node a 'link'",
                          p->cluster->name, p->cluster->nodes[x.node].name,
                          p->cluster->nodes[y.node].name);
}

/* No plan's slowest stage takes less: an even share of the layers, each on the kind and with the candidate that is fastest. */
static double least_stage(const struct tsr_plan_built *b, const struct sized *z)
{
    const struct tsr_solver_instance *in = &b->whole;
    double                            sum = 0;
    for (uint64_t u = 0; u < b->units; u++) {
        double least = INFINITY;
        for (uint64_t k = 0; k < in->n_kinds; k++)
            for (uint64_t q = 0; q < in->bits; q++)
                least =
                    fmin(least, z->alone[(k * in->classes + in->layer_class[u]) * in->bits + q]);
        sum += isfinite(least) ? least : 0;
    }
    uint64_t stages = b->meshes.total < b->units ? b->meshes.total : b->units;
    return sum / (double)(stages ? stages : 1);
}

/* From every kind to every other, by every codec.  A table has one time of a link, which counts on a message's way and in
 * the wait for the slowest.  The way is right for both unless a link may be the slowest; there it is no less than the wait
 * for the next message and no more than the way, that what is least by the tables is a lower bound (outcome_time.c has
 * both). */
static tsr_status links_table(struct tsr_plan_built *b, enum tsr_phase phase, struct sized *z,
                              struct tsr_err *err)
{
    uint64_t n = b->whole.n_kinds;
    double   stage = least_stage(b, z) / (phase == TSR_PLAN_PREFILL ? fmax(z->jobs, 1) : 1);
    for (uint64_t v = 0; v < b->n_links; v++)
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++) {
                struct tsr_plan_send way;
                if (!tsr_plan_meshes_together(&b->meshes, i, j))
                    continue; /* no second one to send to */
                TSR_TRY(tsr_plan_built_send(b, i, j, phase, b->first_link + v, z->size, &way, err));
                z->comm[(v * n + i) * n + j] = fmin(way.ms, fmax(way.every_ms, stage));
            }
    return TSR_OK;
}

/* Times of micro-batches to those of one of their jobs, whose links have them already. */
static void scale(const struct tsr_plan_built *b, struct sized *z, double by)
{
    uint64_t n = b->whole.n_kinds;
    for (uint64_t i = 0; i < n * b->whole.classes * b->whole.bits; i++) {
        z->layer[i] *= by;
        if (z->alone != z->layer)
            z->alone[i] *= by;
    }
    for (uint64_t k = 0; k < n; k++) {
        z->embed[k] *= by;
        z->head[k] *= by;
    }
}

static tsr_status sized_make(struct tsr_plan_built *b, const uint32_t *counts, enum tsr_phase phase,
                             struct sized *z, struct tsr_err *err)
{
    uint64_t k = b->whole.n_kinds;
    NEW(b, z->layer, k * b->whole.classes * b->whole.bits);
    z->alone = z->layer;
    if (b->apart)
        NEW(b, z->alone, k * b->whole.classes * b->whole.bits);
    NEW(b, z->embed, k);
    NEW(b, z->head, k);
    NEW(b, z->comm, b->n_links * k * k);
    if (phase == TSR_PLAN_PREFILL)
        TSR_TRY(tsr_plan_build_jobs(b->p, z->size, &z->jobs, err));
    TSR_TRY(layer_table(b, counts, phase, z, err));
    TSR_TRY(ends_table(b, phase, z, err));
    TSR_TRY(links_table(b, phase, z, err));
    if (phase == TSR_PLAN_PREFILL && z->jobs > 1)
        scale(b, z, 1 / z->jobs);
    return TSR_OK;
}

/* Decode times of the whole batch, with those of a last round that is not full (build_rounds.c). */
static tsr_status add_rest(struct tsr_plan_built *b, const uint32_t *counts, struct sized *z,
                           struct tsr_err *err)
{
    uint64_t     n = b->whole.n_kinds, layers = n * b->whole.classes * b->whole.bits;
    struct sized rest = { .size = tsr_plan_build_rest(b->p, z->size) };
    if (rest.size)
        TSR_TRY(sized_make(b, counts, TSR_PLAN_DECODE, &rest, err));
    tsr_plan_build_mean(b->p, z->size, z->layer, rest.layer, layers);
    if (z->alone != z->layer)
        tsr_plan_build_mean(b->p, z->size, z->alone, rest.alone, layers);
    tsr_plan_build_mean(b->p, z->size, z->embed, rest.embed, n);
    tsr_plan_build_mean(b->p, z->size, z->head, rest.head, n);
    tsr_plan_build_mean(b->p, z->size, z->comm, rest.comm, b->n_links * n * n);
    return TSR_OK;
}

/* The tables of a size, made on first use. */
static tsr_status sized_of(struct tsr_plan_built *b, const uint32_t *counts, enum tsr_phase phase,
                           struct sized *list, uint64_t *n, uint64_t size, const struct sized **z,
                           struct tsr_err *err)
{
    for (uint64_t i = 0; i < *n; i++)
        if (list[i].size == size) {
            *z = &list[i];
            return TSR_OK;
        }
    list[*n].size = size;
    TSR_TRY(sized_make(b, counts, phase, &list[*n], err));
    if (phase == TSR_PLAN_DECODE && b->p->whole)
        TSR_TRY(add_rest(b, counts, &list[*n], err));
    *z = &list[(*n)++];
    return TSR_OK;
}

/* Jobs of prefill where there are others than the batch divided by a micro-batch's prompts: these go in chunks, or in more
 * groups, since each decode micro-batch has its own; 0: so many. */
static double jobs_of(const struct tsr_plan_built *b, const struct sized *pre, uint64_t dec)
{
    const struct tsr_plan_problem *p = b->p;
    double                         jobs = fmax(pre->jobs, 1), least;
    if (p->whole)
        return jobs * tsr_plan_build_prefills(p, pre->size, dec);
    least = ceil((double)b->whole.batch / (double)pre->size);
    jobs *= (double)tsr_plan_prefill_count(b->whole.batch, pre->size, dec);
    return jobs > least && p->o.objective != TSR_OBJECTIVE_PAPER ? jobs : 0;
}

static tsr_status check_sizes(const struct tsr_plan_problem *p, struct tsr_err *err)
{
    uint64_t batch = p->memory.batch, d = p->o.decode_mb;
    if (d > batch)
        return tsr_fail(err, TSR_E_INPUT,
                        "decode_mb is %llu, more than the %llu requests that run at once",
                        (unsigned long long)d, (unsigned long long)batch);
    if (p->o.prefill_mb > (d ? d : batch))
        return tsr_fail(err, TSR_E_INPUT, "prefill_mb is %llu, more than the %llu of %s",
                        (unsigned long long)p->o.prefill_mb, (unsigned long long)(d ? d : batch),
                        d ? "decode_mb" : "the batch");
    return TSR_OK;
}

tsr_status tsr_plan_build_options(struct tsr_plan_built *b, const uint32_t *counts,
                                  struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    uint64_t                       devices = b->meshes.total, n_dec = 1, n = 0, n_pre = 0, made = 0;
    uint64_t                      *dec, pre[64];
    struct sized                  *pre_of, *dec_of;
    struct tsr_solver_option      *o;
    const struct tsr_solver_option **list;
    TSR_TRY(check_sizes(p, err));
    if (devices > b->units)
        devices = b->units; /* no more stages than that */
    NEW(b, dec, 2 * devices);
    if (p->o.decode_mb)
        dec[0] = p->o.decode_mb;
    else
        n_dec = p->few ? tsr_plan_few_sizes(p->memory.batch, devices, dec)
                       : tsr_plan_decode_sizes(p->memory.batch, devices, dec);
    if (p->whole)
        b->whole.tokens = tsr_plan_build_tokens(p);
    uint64_t most = n_dec * 64;
    NEW(b, pre_of, most);
    NEW(b, dec_of, n_dec);
    NEW(b, o, most);
    NEW(b, list, most);
    NEW(b, b->alone_pre, most);
    NEW(b, b->alone_dec, most);
    NEW(b, b->alone_work, most);
    NEW(b, b->alone_ends, most);
    for (uint64_t i = 0; i < n_dec; i++) {
        const struct sized *d, *f;
        uint64_t            sizes = 1;
        if (p->o.prefill_mb > dec[i])
            continue;
        TSR_TRY(sized_of(b, counts, TSR_PLAN_DECODE, dec_of, &made, dec[i], &d, err));
        if (p->o.prefill_mb)
            pre[0] = p->o.prefill_mb;
        else
            sizes = tsr_plan_prefill_sizes(dec[i], pre);
        for (uint64_t j = 0; j < sizes; j++, n++) {
            uint64_t *workspace;
            TSR_TRY(sized_of(b, counts, TSR_PLAN_PREFILL, pre_of, &n_pre, pre[j], &f, err));
            NEW(b, workspace, b->whole.n_kinds);
            o[n] = (struct tsr_solver_option){
                .struct_size = sizeof o[n],
                .prefill_mb = pre[j],
                .decode_mb = dec[i],
                .pre_ms = f->layer,
                .dec_ms = d->layer,
                .embed_pre_ms = f->embed,
                .embed_dec_ms = d->embed,
                .head_pre_ms = f->head,
                .head_dec_ms = d->head,
                .comm_pre_ms = f->comm,
                .comm_dec_ms = d->comm,
                .workspace_bytes = workspace,
                .prefill_jobs = jobs_of(b, f, dec[i]),
            };
            list[n] = &o[n];
            b->alone_pre[n] = f->alone;
            b->alone_dec[n] = d->alone;
        }
    }
    b->whole.options = list;
    b->whole.n_options = n;
    return TSR_OK;
}
