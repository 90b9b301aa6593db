#include "plan/search/build.h"

#include "base/mem.h"
#include "plan/search/build_internal.h"

#include <math.h>
#include <string.h>

#define SLACK 512u /* of the smallest capacity that counting the ends coarsely may cost */

#define NEW(b, v, n)                                                                               \
    if (!((v) = tsr_plan_build_alloc(b, n, sizeof *(v))))                                          \
    return tsr_fail_nomem(err, n, "a planning problem")

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- units ---------------------------------------------------------------------- */

/* Layers in runs of `together`; units with the same layers are one class.  unit_class of the whole
 * gets [units], *of gets [classes][shape classes] counts. */
static tsr_status make_units(struct tsr_plan_built *b, uint32_t **counts, struct tsr_err *err)
{
    const struct tsr_plan_shape *s = b->p->shape;
    uint64_t                     g = b->p->o.together ? b->p->o.together : 1, sc = s->classes;
    uint32_t                    *cls, *c;
    b->units = s->layers / g + (s->layers % g != 0);
    NEW(b, b->unit_first, b->units + 1);
    NEW(b, cls, b->units);
    NEW(b, c, (b->units + 1) * sc); /* the last row is the one that is counted now */
    for (uint64_t u = 0; u < b->units; u++) {
        uint64_t  end = (u + 1) * g < s->layers ? (u + 1) * g : s->layers, k = 0;
        uint32_t *row = c + b->units * sc;
        b->unit_first[u] = u * g;
        memset(row, 0, sc * sizeof *row);
        for (uint64_t l = u * g; l < end; l++)
            row[s->layer_class[l]]++;
        if (b->apart && u > 0)
            k = u + 1 == b->units ? b->whole.classes : 1;
        while (k < b->whole.classes && memcmp(c + k * sc, row, sc * sizeof *row) != 0)
            k++;
        if (k == b->whole.classes) {
            memcpy(c + k * sc, row, sc * sizeof *row);
            b->whole.classes++;
        }
        cls[u] = (uint32_t)k;
    }
    b->unit_first[b->units] = s->layers;
    b->whole.layers = b->units;
    b->whole.layer_class = cls;
    *counts = c;
    return TSR_OK;
}

/* ---- kinds, quality ------------------------------------------------------------ */

static tsr_status make_kinds(struct tsr_plan_built *b, struct tsr_err *err)
{
    const struct tsr_plan_meshes  *m = &b->meshes;
    struct tsr_solver_kind        *k;
    const struct tsr_solver_kind **list;
    NEW(b, k, m->n_kinds);
    NEW(b, list, m->n_kinds);
    NEW(b, b->kinds, m->n_kinds);
    for (uint64_t i = 0; i < m->n_kinds; i++) {
        const struct tsr_plan_mesh_kind *from = &m->kinds[i];
        k[i] = (struct tsr_solver_kind){
            .struct_size = sizeof k[i],
            .count = (uint32_t)from->count,
            .name = from->mesh.name,
            .capacity_bytes = tsr_plan_problem_capacity(b->p, from->group, &from->mesh),
        };
        if (tsr_plan_meshes_pooled(m)) {
            k[i].pool = from->pool;
            k[i].takes = from->mesh.tp;
        }
        list[i] = &k[i];
        b->kinds[i].capacity = k[i].capacity_bytes;
    }
    b->whole.n_kinds = m->n_kinds;
    b->whole.kinds = list;
    if (tsr_plan_meshes_pooled(m)) {
        uint64_t *devices;
        NEW(b, devices, m->n_pools);
        memcpy(devices, m->devices, m->n_pools * sizeof *devices);
        b->whole.n_pools = m->n_pools;
        b->whole.pool_devices = devices;
    }
    return b->p->cluster->fixed ? tsr_plan_build_order(b, err) : TSR_OK;
}

/* What the items of each unit lose. */
static tsr_status make_omega(struct tsr_plan_built *b, struct tsr_err *err)
{
    uint64_t q = b->whole.bits;
    double  *omega;
    NEW(b, omega, b->units * q);
    for (uint64_t u = 0; u < b->units; u++)
        for (uint64_t l = b->unit_first[u]; l < b->unit_first[u + 1]; l++)
            for (uint64_t i = 0; i < q; i++) {
                const struct tsr_plan_item *t = tsr_plan_built_item(b, i);
                omega[u * q + i] += tsr_plan_built_left(b, l, t);
                if (b->p->kv_types)
                    omega[u * q + i] += tsr_plan_problem_kv_omega(b->p, t->kv, l, NULL);
            }
    b->whole.omega = omega;
    return b->codecs ? tsr_plan_build_codecs(b, err) : TSR_OK;
}

/* ---- parts -------------------------------------------------------------------------- */

/* Options [n] of the build as an instance over kinds [first, first + kinds). */
static tsr_status add_part(struct tsr_plan_built *b, const uint64_t *options, uint64_t n,
                           uint64_t first, uint64_t kinds, const struct tsr_plan_build_ends *ends,
                           struct tsr_err *err)
{
    struct tsr_plan_part            *part = &b->parts[b->n_parts];
    struct tsr_solver_instance      *in = &part->inst.in;
    struct tsr_solver_option        *o;
    const struct tsr_solver_option **list;
    uint64_t                         cq = b->whole.classes * b->whole.bits;
    bool                             all = kinds == b->whole.n_kinds && !ends->alone;
    double                          *none;
    NEW(b, part->option, n);
    NEW(b, o, n);
    NEW(b, list, n);
    NEW(b, none, b->n_links);
    *in = b->whole;
    part->first_kind = (uint32_t)first;
    part->inst.name = (char *)(uintptr_t) "";
    for (uint64_t i = 0; i < n; i++) {
        o[i] = *b->whole.options[options[i]];
        part->option[i] = options[i];
        list[i] = &o[i];
        if (all)
            continue;
        o[i].pre_ms = b->alone_pre[options[i]] + first * cq;
        o[i].dec_ms = b->alone_dec[options[i]] + first * cq;
        o[i].embed_pre_ms += first;
        o[i].embed_dec_ms += first;
        o[i].head_pre_ms += first;
        o[i].head_dec_ms += first;
        o[i].workspace_bytes = b->alone_work[options[i]] + first;
        o[i].comm_pre_ms = o[i].comm_dec_ms = none;    /* a single stage has no peer */
        if (b->p->memory.place == TSR_PLAN_HEAD_FIRST) /* the head's time is the embedding's */
            o[i].head_pre_ms = o[i].head_dec_ms = none;
    }
    in->options = list;
    in->n_options = n;
    in->embed_bytes = ends->embed;
    in->head_bytes = ends->head;
    part->inst.devices = b->meshes.total;
    if (!all) {
        struct tsr_solver_kind        *one;
        const struct tsr_solver_kind **kind;
        NEW(b, one, 1);
        NEW(b, kind, 1);
        *one = *b->whole.kinds[first];
        one->count = 1;
        one->capacity_bytes =
            tsr_capacity_left(b->kinds[first].alone_capacity, b->lost_alone[first]);
        in->layer_bytes = b->kinds[first].layer_bytes;
        *kind = one;
        in->kinds = kind;
        in->n_kinds = 1;
        in->order = NULL;
        in->order_len = 0;
        in->n_pools = 0;
        in->pool_devices = NULL;
        in->n_links = 0;
        in->link_omega = NULL;
        in->kind_omega = in->kind_omega ? in->kind_omega + first * in->layers : NULL;
        part->inst.devices = 1;
    }
    part->inst.features = tsr_instance_features(in);
    b->n_parts++;
    return TSR_OK;
}

/* A device with less memory than that has no layer, whatever the slack. */
static uint64_t least_unit(const struct tsr_plan_built *b)
{
    uint64_t least = UINT64_MAX;
    for (uint64_t i = 0; i < b->whole.classes * b->whole.bits; i++)
        least = b->whole.layer_bytes[i] < least ? b->whole.layer_bytes[i] : least;
    return least;
}

/* Options whose ends differ by no more than the slack go together. */
static tsr_status part_options(struct tsr_plan_built *b, const struct tsr_plan_build_ends *ends,
                               bool alone, uint64_t first, uint64_t kinds, struct tsr_err *err)
{
    uint64_t n = b->whole.n_options, left = n, slack = UINT64_MAX, *take, unit = least_unit(b);
    bool    *done, bound = b->p->work_k < b->p->most_k; /* takes no more than any option has */
    NEW(b, take, n);
    NEW(b, done, n);
    for (uint64_t k = first; k < first + kinds; k++)
        if (b->whole.kinds[k]->capacity_bytes >= unit &&
            b->whole.kinds[k]->capacity_bytes / SLACK < slack)
            slack = b->whole.kinds[k]->capacity_bytes / SLACK;
    while (left) {
        struct tsr_plan_build_ends sum = { .alone = alone };
        uint64_t                   least = UINT64_MAX, m = 0;
        for (uint64_t i = 0; i < n; i++)
            if (!done[i] && ends[i].embed + ends[i].head < least)
                least = ends[i].embed + ends[i].head;
        for (uint64_t i = 0; i < n; i++) {
            if (done[i] || ends[i].embed + ends[i].head - least > slack)
                continue;
            sum.embed =
                bound && m ? smaller(sum.embed, ends[i].embed) : larger(sum.embed, ends[i].embed);
            sum.head =
                bound && m ? smaller(sum.head, ends[i].head) : larger(sum.head, ends[i].head);
            take[m++] = i;
            done[i] = true;
        }
        TSR_TRY(add_part(b, take, m, first, kinds, &sum, err));
        left -= m;
    }
    return TSR_OK;
}

static uint64_t devices(const struct tsr_plan_built *b)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < b->meshes.n_pools; i++)
        n += b->meshes.devices[i];
    return n;
}

/* Whether a plan of one stage on the kind takes less than by the numbers of all kinds. */
static bool takes_less(const struct tsr_plan_built *b, const struct tsr_plan_build_ends *ends,
                       uint64_t kind)
{
    bool less = b->lost[kind] > b->lost_alone[kind];
    for (uint64_t o = 0; o < b->whole.n_options && !less; o++)
        less = b->alone_ends[o][kind] < ends[o].embed + ends[o].head;
    for (uint64_t i = 0; i < b->whole.classes * b->whole.bits && !less; i++)
        less = b->kinds[kind].layer_bytes[i] < b->whole.layer_bytes[i];
    return less;
}

static tsr_status make_parts(struct tsr_plan_built *b, struct tsr_plan_build_ends *ends,
                             uint64_t shared, struct tsr_err *err)
{
    uint64_t n = b->whole.n_options, k = b->whole.n_kinds;
    bool     several = b->meshes.total > 1;
    bool     back = b->p->memory.place == TSR_PLAN_HEAD_FIRST; /* not where one has all */
    bool     alone = !several || shared || back;
    struct tsr_plan_build_ends *one;
    NEW(b, b->parts, n * (k + 1));
    NEW(b, one, n);
    if (several)
        TSR_TRY(part_options(b, ends, false, 0, k, err));
    for (uint64_t i = 0; i < k; i++) {
        const struct tsr_plan_mesh_kind *kind = &b->meshes.kinds[i];
        alone = alone || takes_less(b, ends, i);
        for (uint64_t o = 0; o < n; o++)
            one[o].embed = b->alone_ends[o][i];
        bool whole = kind->role == TSR_PLAN_FIRST_STAGE; /* one of the three kinds of a mesh */
        if ((whole || (alone && kind->role == TSR_PLAN_ANY_STAGE)) &&
            !((b->leads || b->firsts) && several) &&
            (!several || !b->p->o.use_all || kind->mesh.tp == devices(b)))
            TSR_TRY(part_options(b, one, true, i, 1, err));
    }
    return TSR_OK;
}

/* ---- all ------------------------------------------------------------------------------ */

static tsr_status fill(struct tsr_plan_built *b, struct tsr_err *err)
{
    const struct tsr_plan_problem *p = b->p;
    uint32_t                      *counts = NULL;
    struct tsr_plan_build_ends    *ends = NULL;
    uint64_t                       shared = 0;
    b->whole = (struct tsr_solver_instance){
        .struct_size = sizeof b->whole,
        .objective = (uint32_t)p->o.objective,
        .batch = p->memory.batch,
        .tokens = p->work.n,
        .allow_unused = !p->o.use_all,
        .seed = p->o.seed,
        .cutoff = INFINITY,
        .max_first_ms = p->o.max_first_ms,
    };
    b->places = tsr_plan_problem_cpu_experts(p);
    TSR_TRY(make_kinds(b, err));
    TSR_TRY(tsr_plan_build_leads(b, err));
    TSR_TRY(make_units(b, &counts, err));
    TSR_TRY(tsr_plan_build_items(b, err));
    TSR_TRY(make_omega(b, err));
    TSR_TRY(tsr_plan_build_bytes(b, counts, err));
    TSR_TRY(tsr_plan_build_host(b, counts, err));
    TSR_TRY(tsr_plan_build_options(b, counts, err));
    TSR_TRY(tsr_plan_build_ends(b, &ends, &shared, err));
    tsr_plan_build_scale(b, ends);
    TSR_TRY(make_parts(b, ends, shared, err));
    tsr_plan_built_put(b, p);
    return TSR_OK;
}

tsr_status tsr_plan_build(struct tsr_plan_built **out, const struct tsr_plan_problem *p,
                          const struct tsr_plan_space *s, struct tsr_err *err)
{
    struct tsr_plan_built *b = tsr_new(1, sizeof *b);
    *out = NULL;
    if (!b)
        return tsr_fail_nomem(err, sizeof *b, "a planning problem");
    b->p = p;
    b->codecs = s->codecs;
    b->leads = s->leads;
    b->firsts = s->firsts;
    b->nearest = s->nearest;
    b->n_links = s->codecs ? p->n_links : 1;
    b->first_link = s->codecs ? 0 : p->least_link;
    tsr_status st = tsr_plan_meshes_make(&b->meshes, p, s, err);
    if (st == TSR_OK)
        st = fill(b, err);
    b->led = s->leads || s->firsts;
    b->leads = b->firsts = NULL; /* the space's */
    if (st != TSR_OK) {
        tsr_plan_built_destroy(b);
        return st;
    }
    *out = b;
    return TSR_OK;
}
