/* Devices that the cluster file emulates, for the stages of a plan. */
#include "launch/emulate.h"

#include "base/mem.h"
#include "planning/rules.h"
#include "plugin/choices.h"
#include "plugin/kv_codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tsr_launch_emulate {
    struct tsr_plan_cluster   *cluster;
    struct tsr_plan_shape     *shape;
    struct tsr_plan_candidates candidates;
    struct tsr_planning        schemes;     /* their texts alone */
    uint32_t                  *candidate;   /* [layers] */
    uint8_t                   *cpu_experts; /* [layers] */
    struct tsr_runtime_pacing  pacing;
};

/* ---- packing of layers ------------------------------------------------------ */

/* What the plan's rules give each layer, and the groups of experts that they tell apart.  A packed model runs as it is
 * packed. */
static tsr_status layer_schemes(struct tsr_launch_emulate *e, struct tsr_registry *r,
                                const struct tsr_plan_file *p, struct tsr_diag *d,
                                struct tsr_err *err)
{
    struct tsr_planning_rules z = {
        .pl = &e->schemes, .registry = r, .use = "rtn", .f = p, .d = d, .shape = e->shape
    };
    e->candidate = tsr_new(p->layers, sizeof *e->candidate);
    e->cpu_experts = tsr_new(p->layers, sizeof *e->cpu_experts);
    if (!e->candidate || !e->cpu_experts)
        return tsr_fail_nomem(err, p->layers * sizeof *e->candidate, "the layers of a plan");
    memcpy(e->cpu_experts, p->cpu_experts, p->layers);
    if (*e->shape->packed)
        return tsr_planning_add(&e->schemes, "original", err);
    tsr_status st = tsr_planning_rules_read(&z, e->candidate, err);
    if (st == TSR_OK && z.group_of) {
        st = tsr_plan_shape_put_groups(e->shape, z.group_of, err);
        z.group_of = NULL; /* taken over */
    }
    tsr_planning_rules_free(&z);
    return st;
}

/* ---- places and links --------------------------------------------------------- */

static const struct tsr_plan_group *group_of(const struct tsr_plan_cluster *c,
                                             const struct tsr_plan_stage *s, uint64_t *index)
{
    for (uint64_t g = 0; g < c->n_groups; g++)
        if (strcmp(c->groups[g].profile->name, s->device) == 0 &&
            strcmp(c->nodes[c->groups[g].node].name, s->node) == 0) {
            *index = g;
            return &c->groups[g];
        }
    return NULL;
}

static tsr_status paced(const struct tsr_plan_link link[2], double slower, char **to,
                        struct tsr_err *err)
{
    char text[160];
    if (link[0].alpha_ms != link[1].alpha_ms || link[0].rate != link[1].rate)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "a link whose phases differ cannot be emulated; leave prefill and decode "
                        "of it out");
    (void)snprintf(text, sizeof text, "local:bandwidth=%.9g,latency=%.9g",
                   link[0].rate / 1e6 / slower, link[0].alpha_ms * 1e3 * slower);
    *to = tsr_strdup(text);
    return *to ? TSR_OK : tsr_fail_nomem(err, sizeof text, "links");
}

/* The profile, width and links of a stage; *real: it is not emulated. */
static tsr_status place(struct tsr_launch_emulate *e, const struct tsr_plan_file *p, uint64_t i,
                        struct tsr_runtime_layout *layout, bool *real, struct tsr_diag *d,
                        struct tsr_err *err)
{
    bool                         back = i + 1 == p->n_stages; /* where anything goes from it */
    const struct tsr_plan_stage *s = &p->stages[i], *next = back ? &p->stages[0] : s + 1;
    struct tsr_plan_mesh        *m = &e->pacing.stages[i].mesh;
    uint64_t                     g, h;
    const struct tsr_plan_group *group = group_of(e->cluster, s, &g);
    if (!group) {
        tsr_config_diag_error(d, &s->map->mark, NULL, "the cluster has no %.60s in a node '%.60s'",
                              s->device, s->node);
        return TSR_OK;
    }
    *real = !*group->emulate;
    if (*real)
        return TSR_OK;
    tsr_plan_mesh_of(e->cluster, g, (uint32_t)s->tp, m);
    if (s->cpu_experts && !m->cpu)
        tsr_config_diag_error(d, &s->map->mark,
                              "give the node 'cpu: {profile: NAME, link: {...}}' in the cluster",
                              "nothing is known of the CPU of node '%.60s', which runs experts",
                              s->node);
    if (s->tp > 1)
        TSR_TRY(paced(m->inside, e->cluster->slower, &layout->stages[i].collective_over, err));
    for (int k = 0; k < TSR_PLAN_PHASES; k++) /* the sums really run, over paced links */
        m->inside[k] = (struct tsr_plan_link){ .alpha_ms = 0, .rate = 1e30 };
    if (back && (i == 0 || p->head != TSR_PLAN_HEAD_FIRST))
        return TSR_OK;
    const struct tsr_plan_group *to = group_of(e->cluster, next, &h);
    if (!to)
        return TSR_OK; /* reported later, at its place */
    struct tsr_plan_link link[2];
    for (int k = 0; k < TSR_PLAN_PHASES; k++)
        link[k] = *tsr_plan_cluster_link(e->cluster, group->node, to->node, (enum tsr_phase)k);
    return paced(link, e->cluster->slower, &layout->stages[i].send_over, err);
}

static tsr_status places(struct tsr_launch_emulate *e, const struct tsr_plan_file *p,
                         struct tsr_runtime_layout *layout, bool *any, struct tsr_diag *d,
                         struct tsr_err *err)
{
    uint64_t reals = 0;
    e->pacing.stages = tsr_new(p->n_stages, sizeof *e->pacing.stages);
    if (!e->pacing.stages)
        return tsr_fail_nomem(err, p->n_stages * sizeof *e->pacing.stages, "stages");
    for (uint64_t i = 0; i < p->n_stages; i++) {
        bool real = false;
        TSR_TRY(place(e, p, i, layout, &real, d, err));
        reals += real;
    }
    *any = reals < p->n_stages;
    if (*any && reals)
        tsr_config_diag_error(
            d, &tsr_config_doc_root(e->cluster->doc)->mark,
            "as in devices: [{profile: T4, count: 3, emulate: cpu}]",
            "%llu of the plan's %llu stages are on devices that are not emulated; all "
            "are, or none",
            (unsigned long long)reals, (unsigned long long)p->n_stages);
    return TSR_OK;
}

/* ---- life ------------------------------------------------------------------------ */

static tsr_status open_times(struct tsr_launch_emulate *e, struct tsr_registry *r,
                             const struct tsr_model *m, const struct tsr_plan_file *p,
                             struct tsr_diag *d, struct tsr_err *err)
{
    TSR_TRY(tsr_plan_shape_of(&e->shape, m, err));
    TSR_TRY(layer_schemes(e, r, p, d, err));
    TSR_TRY(tsr_plugin_kv_learn(r, (uint32_t)p->load.kv, e->shape->head_dim, err));
    if (tsr_config_diag_errors(d))
        return TSR_OK;
    TSR_TRY(tsr_plan_candidates_open(&e->candidates, r, e->shape,
                                     (const char *const *)e->schemes.texts, e->schemes.n_texts,
                                     err));
    e->pacing.job = (struct tsr_plan_latency_job){ .shape = e->shape,
                                                   .mode = TSR_PLAN_LATENCY_FIT,
                                                   .kv_bits = tsr_plugin_kv_bits(p->load.kv) };
    e->pacing.candidates = &e->candidates;
    e->pacing.candidate = e->candidate;
    e->pacing.cpu_experts = e->cpu_experts;
    e->pacing.scale = e->cluster->slower;
    return TSR_OK;
}

tsr_status tsr_launch_emulate_open(struct tsr_launch_emulate **out, struct tsr_registry *r,
                                   const struct tsr_model *m, const struct tsr_plan_file *p,
                                   struct tsr_runtime_layout *layout, const char *cluster,
                                   const char *beside, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_launch_emulate *e = tsr_new(1, sizeof *e);
    char                      *path = NULL;
    bool                       any = false;
    *out = NULL;
    if (!e)
        return tsr_fail_nomem(err, sizeof *e, "emulated devices");
    tsr_status st = tsr_plan_cluster_find(&path, cluster, beside, err);
    if (st == TSR_OK)
        st = tsr_plan_cluster_load(&e->cluster, path, d, err);
    free(path);
    if (st == TSR_OK && e->cluster)
        st = places(e, p, layout, &any, d, err);
    if (st == TSR_OK && any && !tsr_config_diag_errors(d))
        st = open_times(e, r, m, p, d, err);
    if (st != TSR_OK || !any || tsr_config_diag_errors(d)) {
        tsr_launch_emulate_close(e);
        return st;
    }
    *out = e;
    return TSR_OK;
}

void tsr_launch_emulate_close(struct tsr_launch_emulate *e)
{
    if (!e)
        return;
    tsr_plan_candidates_close(&e->candidates);
    tsr_planning_close(&e->schemes);
    free(e->candidate);
    free(e->cpu_experts);
    free(e->pacing.stages);
    tsr_plan_shape_destroy(e->shape);
    tsr_plan_cluster_destroy(e->cluster);
    free(e);
}

const struct tsr_runtime_pacing *tsr_launch_emulate_pacing(const struct tsr_launch_emulate *e)
{
    return e ? &e->pacing : NULL;
}
