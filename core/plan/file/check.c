#include "plan/file/check.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct check {
    const struct tsr_plan_problem *p;
    const struct tsr_plan_file    *f;
    const uint32_t                *candidate;
    struct tsr_diag               *d;
    uint32_t                      *ways; /* [groups][stages] that the plan has of each, ascending */
    uint32_t                      *n;    /* [groups] of them */
    uint64_t                      *group; /* [stages] */
    uint64_t                      *taken; /* [groups] devices */
    uint32_t                      *item;  /* [layers] of the build */
};

static const struct tsr_config_mark *mark_of(const struct tsr_plan_stage *s, const char *key)
{
    const struct tsr_config_node *n = tsr_config_node_get(s->map, key);
    return n ? &n->mark : &s->map->mark;
}

static uint32_t way_of(const struct tsr_plan_stage *s)
{
    bool whole = s->tp > 1 && s->experts == TSR_PLAN_EXPERTS_WHOLE;
    return (uint32_t)s->tp | (whole ? TSR_PLAN_WAY_WHOLE : 0);
}

/* One more way of a group, in its place. */
static void add_way(struct check *z, uint64_t group, uint32_t way)
{
    uint32_t *w = z->ways + group * z->f->n_stages, at = z->n[group];
    while (at > 0 && w[at - 1] > way)
        at--;
    if (at > 0 && w[at - 1] == way)
        return;
    memmove(w + at + 1, w + at, (z->n[group] - at) * sizeof *w);
    w[at] = way;
    z->n[group]++;
}

/* A group of the node with that profile and devices to spare. */
static void find_group(struct check *z, uint64_t i)
{
    const struct tsr_plan_stage   *s = &z->f->stages[i];
    const struct tsr_plan_cluster *c = z->p->cluster;
    uint64_t                       node, there = 0;
    bool                           known = false;
    if (!tsr_plan_node(c, mark_of(s, "node"), s->node, z->d, &node))
        return;
    for (uint64_t g = 0; g < c->n_groups; g++) {
        if (c->groups[g].node != node || strcasecmp(c->groups[g].profile->name, s->device) != 0)
            continue;
        uint64_t have = tsr_plan_problem_devices(z->p, g), want = (uint64_t)s->tp;
        known = true;
        there += have;
        if (have - z->taken[g] < want)
            continue;
        add_way(z, g, way_of(s));
        z->taken[g] += want;
        z->group[i] = g;
        return;
    }
    if (!known)
        tsr_config_diag_error(z->d, mark_of(s, "device"), NULL, "node '%.60s' has no %.60s",
                              s->node, s->device);
    else
        tsr_config_diag_error(z->d, &s->map->mark, NULL,
                              "stage %llu: of the %llu %s in node '%s' not %lld are left for it",
                              (unsigned long long)i, (unsigned long long)there, s->device, s->node,
                              (long long)s->tp);
}

/* Experts on the CPU are of a model that has some, in a node whose CPU is known. */
static void check_place(const struct check *z, uint64_t i)
{
    const struct tsr_plan_stage   *s = &z->f->stages[i];
    const struct tsr_plan_problem *p = z->p;
    uint64_t                       node = p->cluster->groups[z->group[i]].node;
    if (!s->cpu_experts)
        return;
    if (!p->shape->experts)
        tsr_config_diag_error(z->d, mark_of(s, "cpu_experts"), "leave the key out",
                              "stage %llu: the model has no experts", (unsigned long long)i);
    else if (p->memory.accounting != TSR_PLAN_ACCOUNT_EXACT)
        tsr_config_diag_error(z->d, mark_of(s, "cpu_experts"), "use accounting: exact",
                              "stage %llu: accounting: paper counts whole layers",
                              (unsigned long long)i);
    else if (!p->cluster->nodes[node].cpu)
        tsr_config_diag_error(z->d, mark_of(s, "cpu_experts"),
                              "give the node 'cpu: {profile: NAME, link: {...}}' in the cluster",
                              "stage %llu: nothing is known of the CPU of node '%.60s'",
                              (unsigned long long)i, s->node);
}

static tsr_status check_width(const struct check *z, uint64_t i, struct tsr_err *err)
{
    const struct tsr_plan_stage *s = &z->f->stages[i];
    struct tsr_plan_shape       *shape = z->p->shape;
    uint64_t                     sum = tsr_plan_file_sum(z->p, z->f, i);
    shape->lossy_sums = z->p->sums[sum < z->p->n_sums ? sum : 0].lossy; /* of this stage */
    for (uint64_t l = s->first; s->tp > 1 && l < s->first + s->count; l++) {
        const struct tsr_plan_candidate *c = &z->p->candidates.v[z->candidate[l]];
        tsr_status st = tsr_plan_candidate_splits(c, z->p->shape, (uint32_t)s->tp,
                                                  s->experts == TSR_PLAN_EXPERTS_WHOLE, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "stage %llu, layer %llu as %s", (unsigned long long)i,
                                  (unsigned long long)l, c->name);
    }
    return TSR_OK;
}

static void mesh_of(const struct check *z, uint64_t i, struct tsr_plan_mesh *m)
{
    struct tsr_plan_mesh first;
    tsr_plan_mesh_of(z->p->cluster, z->group[0], way_of(&z->f->stages[0]), &first);
    tsr_plan_mesh_of(z->p->cluster, z->group[i], way_of(&z->f->stages[i]), m);
    m->mixed = tsr_plan_mesh_beside(m, &first);
}

/* Exact bytes, reported in full where they do not fit. */
static tsr_status check_memory(const struct check *z, uint64_t i, struct tsr_err *err)
{
    const struct tsr_plan_stage   *s = &z->f->stages[i];
    const struct tsr_plan_problem *p = z->p;
    struct tsr_plan_stage_memory   m;
    struct tsr_plan_mesh           mesh;
    char w[TSR_BYTES_TEXT], kv[TSR_BYTES_TEXT], work[TSR_BYTES_TEXT], lack[TSR_BYTES_TEXT],
        place[300];
    mesh_of(z, i, &mesh);
    TSR_TRY(tsr_plan_memory_stage(&p->memory, &mesh, &p->candidates, z->candidate,
                                  z->f->cpu_experts, s->first, s->count, (uint64_t)z->f->prefill_mb,
                                  (uint64_t)z->f->decode_mb, &m, err));
    uint64_t has = tsr_capacity_left(tsr_plan_problem_capacity(p, z->group[i], &mesh), m.uneven);
    if (m.total <= has && m.host <= m.host_capacity && !m.draft_lack)
        return TSR_OK;
    tsr_config_mark_text(&s->map->mark, place, sizeof place);
    if (m.draft_lack)
        return tsr_fail(
            err, TSR_E_INFEASIBLE,
            "%s: a draft model has too little of the memory of node %s's CPU: short by %s", place,
            s->node, tsr_format_bytes(lack, sizeof lack, m.draft_lack));
    if (m.total <= has)
        return tsr_fail(err, TSR_E_INFEASIBLE,
                        "%s: stage %llu: its experts take %s, the memory of node %s's CPU for it "
                        "is short by %s",
                        place, (unsigned long long)i, tsr_format_bytes(w, sizeof w, m.host),
                        s->node, tsr_format_bytes(lack, sizeof lack, m.host - m.host_capacity));
    return tsr_fail(err, TSR_E_INFEASIBLE,
                    "%s: stage %llu does not fit on %s of node %s: weights %s, cache %s, work %s, "
                    "short by %s",
                    place, (unsigned long long)i, mesh.name, s->node,
                    tsr_format_bytes(w, sizeof w, m.weights + m.ends),
                    tsr_format_bytes(kv, sizeof kv, m.kv),
                    tsr_format_bytes(work, sizeof work, m.workspace),
                    tsr_format_bytes(lack, sizeof lack, m.total - has));
}

/* ---- the same as a solution of an instance -------------------------------------------- */

/* A plan of one stage is in the part of its kind, where there is one. */
static uint64_t part_of(const struct tsr_plan_built *b, uint64_t stages, uint32_t kind)
{
    for (uint64_t i = 0; stages == 1 && i < b->n_parts; i++)
        if (b->parts[i].inst.devices == 1 && b->parts[i].first_kind == kind)
            return i;
    return 0;
}

static uint32_t kind_of(const struct check *z, const struct tsr_plan_built *b, uint64_t stage)
{
    enum tsr_plan_role role = stage == 0                    ? TSR_PLAN_FIRST_STAGE
                              : stage + 1 == z->f->n_stages ? TSR_PLAN_LAST_STAGE
                                                            : TSR_PLAN_MIDDLE_STAGE;
    return (uint32_t)tsr_plan_meshes_find(&b->meshes, z->group[stage], way_of(&z->f->stages[stage]),
                                          tsr_plan_file_sum(z->p, z->f, stage), role);
}

static tsr_status solution(const struct check *z, const struct tsr_plan_built *b, uint64_t part,
                           struct tsr_solver_solution **out, struct tsr_err *err)
{
    struct tsr_solver_solution *s;
    const struct tsr_plan_part *pt = &b->parts[part];
    TSR_TRY(tsr_plan_solution_create(&s, &pt->inst, err));
    if (z->f->n_stages > s->max_stages) {
        free(s);
        return tsr_fail(err, TSR_E_INPUT, "%llu stages on %llu devices",
                        (unsigned long long)z->f->n_stages, (unsigned long long)pt->inst.devices);
    }
    s->stages = z->f->n_stages;
    for (uint64_t i = 0; i < s->stages; i++) {
        s->stage_kind[i] = kind_of(z, b, i) - pt->first_kind;
        if (s->stage_link && i + 1 < s->stages)
            s->stage_link[i] = (uint32_t)tsr_plan_file_link(z->p, z->f, i);
        s->stage_first[i] = z->f->stages[i].first;
        s->stage_count[i] = z->f->stages[i].count;
    }
    for (uint64_t l = 0; l < pt->inst.in.layers; l++)
        s->layer_bits[l] = z->item[l];
    s->status = TSR_SOLVED_FEASIBLE;
    *out = s;
    return TSR_OK;
}

/* NaN in the tables, with names in place of numbers. */
static tsr_status check_runs(const struct check *z, const struct tsr_plan_built *b,
                             struct tsr_err *err)
{
    const struct tsr_solver_instance *in = &b->whole;
    for (uint64_t i = 0; i < z->f->n_stages; i++) {
        const struct tsr_plan_stage *s = &z->f->stages[i];
        uint64_t                     k = kind_of(z, b, i);
        for (uint64_t l = s->first; l < s->first + s->count; l++) {
            uint32_t bits = z->item[l];
            uint64_t e = (k * in->classes + in->layer_class[l]) * in->bits + bits;
            if (isnan(in->options[0]->pre_ms[e]) || isnan(in->options[0]->dec_ms[e]))
                return tsr_fail(err, TSR_E_INFEASIBLE, "layer %llu: %s cannot run %s",
                                (unsigned long long)l, b->meshes.kinds[k].mesh.name,
                                in->bit_names[bits]);
        }
    }
    return TSR_OK;
}

/* What each layer takes, as the build has it. */
static tsr_status find_items(const struct check *z, const struct tsr_plan_built *b,
                             struct tsr_err *err)
{
    for (uint64_t l = 0; l < z->f->layers; l++) {
        uint32_t kv = z->p->memory.kv_of ? z->p->memory.kv_of[l] : z->p->work.kv;
        if (!tsr_plan_built_find(b,
                                 &(struct tsr_plan_item){ z->candidate[l], kv,
                                                          z->p->k_of ? z->p->k_of[l] : 0,
                                                          z->f->cpu_experts[l] },
                                 &z->item[l]))
            return tsr_fail(err, TSR_E_INVAL, "layer %llu takes what is none of the choices",
                            (unsigned long long)l);
    }
    return TSR_OK;
}

static tsr_status price(struct check *z, struct tsr_plan_planned *a, struct tsr_err *err)
{
    struct tsr_plan_space space = {
        .ways = z->ways, .n = z->n, .stride = z->f->n_stages, .codecs = true
    };
    TSR_TRY(tsr_plan_build(&a->built, z->p, &space, err));
    tsr_plan_built_unlimited(a->built); /* instances count in excess; bytes are checked by stage */
    TSR_TRY(find_items(z, a->built, err));
    TSR_TRY(check_runs(z, a->built, err));
    a->part = part_of(a->built, z->f->n_stages, kind_of(z, a->built, 0));
    TSR_TRY(solution(z, a->built, a->part, &a->solution, err));
    TSR_TRY(tsr_plan_built_price(a->built, a->part, a->solution, &a->solution->objective, err));
    a->status = TSR_SOLVED_FEASIBLE;
    TSR_TRY(tsr_plan_outcome_of(&a->outcome, a->built, a->part, a->solution, err));
    if (z->p->o.objective != TSR_OBJECTIVE_PAPER) /* as a search has it */
        a->outcome.objective_ms +=
            tsr_plan_outcome_on_way(&a->outcome, &z->p->work, z->p->memory.batch);
    a->objective = a->outcome.objective_ms;
    if (z->p->max_omega >= 0 && !(a->outcome.omega <= z->p->max_omega * (1 + 1e-6) + 1e-12) &&
        z->p->kv_omega + z->p->wire_omega + z->p->ends_omega >= z->p->max_omega) {
        char why[400];
        tsr_plan_problem_limit_text(z->p, why, sizeof why);
        return tsr_fail(err, TSR_E_INFEASIBLE, "%s", why);
    }
    /* meshes of a kind change places; the file has said which is which */
    for (uint64_t i = 0; i < a->outcome.n_stages; i++) {
        a->outcome.stages[i].group = z->group[i];
        mesh_of(z, i, &a->outcome.stages[i].mesh);
    }
    return TSR_OK;
}

static tsr_status run(struct check *z, struct tsr_plan_planned *a, struct tsr_err *err)
{
    uint64_t before = tsr_config_diag_errors(z->d);
    for (uint64_t i = 0; i < z->f->n_stages; i++) {
        find_group(z, i);
        check_place(z, i);
    }
    for (uint64_t g = 0; g < z->p->cluster->n_groups; g++)
        if (!z->n[g])
            add_way(z, g, 1);
    if (tsr_config_diag_errors(z->d) != before)
        return tsr_config_diag_status(z->d, err);
    for (uint64_t i = 0; i < z->f->n_stages; i++) {
        TSR_TRY(check_width(z, i, err));
        TSR_TRY(check_memory(z, i, err));
    }
    return price(z, a, err);
}

tsr_status tsr_plan_check(struct tsr_plan_planned *a, const struct tsr_plan_problem *p,
                          const struct tsr_plan_file *f, const uint32_t *candidate,
                          struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t     n = p->cluster->n_groups;
    struct check z = { .p = p,
                       .f = f,
                       .candidate = candidate,
                       .d = d,
                       .ways = tsr_new(n, f->n_stages * sizeof *z.ways),
                       .n = tsr_new(n, sizeof *z.n),
                       .group = tsr_new(f->n_stages, sizeof *z.group),
                       .taken = tsr_new(n, sizeof *z.taken),
                       .item = tsr_new(f->layers, sizeof *z.item) };
    *a = (struct tsr_plan_planned){ .status = TSR_SOLVED_UNKNOWN, .bound = -INFINITY };
    tsr_status st = z.ways && z.n && z.group && z.taken && z.item
                        ? run(&z, a, err)
                        : tsr_fail_nomem(err, n * 12, "the places of a plan");
    free(z.ways);
    free(z.n);
    free(z.group);
    free(z.taken);
    free(z.item);
    return st;
}
