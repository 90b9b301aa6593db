/* Measured points of device profiles. */
#include "plan/cost/device_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIDE    (1 << 24)
#define MAX_POINTS  100000u
#define MAX_EXPERTS 65536
#define MAX_MS      1e9

struct layer {
    const char                   *kernel, *source;
    const struct tsr_config_node *shape, *prefill, *decode;
};
struct side {
    int64_t hidden, ffn, heads, kv_heads, head_dim, experts, used;
    int32_t gated;
};
struct end {
    const char                   *part, *kernel, *source;
    int64_t                       vocab, width;
    const struct tsr_config_node *points;
};

#define SIZE(S, f, h)                                                                              \
    {                                                                                              \
        .name = #f, .help = h, .type = TSR_OPT_INT, .flags = TSR_OPT_REQUIRED,                     \
        .offset = TSR_FIELD(S, f, int64_t), .min = { .i = 1 }, .max = {                            \
            .i = MAX_SIDE                                                                          \
        }                                                                                          \
    }

static const struct tsr_option layer_options[] = {
    PROFILE_TEXT(struct layer, kernel, "Kernel of its linears."),
    TSR_OPTION_NODE(struct layer, shape, "Sizes of the layer."),
    TSR_OPTION_NODE(struct layer, prefill, "[prompts, tokens, past, ms, spread] each."),
    TSR_OPTION_NODE(struct layer, decode, "[sequences, past, ms, spread] each."),
    PROFILE_TEXT(struct layer, source, "Where the values come from."),
};
static const struct tsr_option side_options[] = {
    SIZE(struct side, hidden, "Width of the hidden states."),
    { .name = "ffn",
      .help = "Width of the feed-forward; 0: attention alone was measured.",
      .type = TSR_OPT_INT,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct side, ffn, int64_t),
      .max = { .i = MAX_SIDE } },
    SIZE(struct side, heads, "Query heads."),
    SIZE(struct side, kv_heads, "Key and value heads."),
    SIZE(struct side, head_dim, "Width of a head."),
    TSR_OPTION_BOOL(struct side, gated, 0, "The feed-forward has a gate."),
    TSR_OPTION_INT(struct side, experts, 0, 0, MAX_EXPERTS, NULL,
                   "Experts of that width in place of it; 0: none."),
    TSR_OPTION_INT(struct side, used, 0, 0, MAX_EXPERTS, NULL, "How many of them a token takes."),
};
static const struct tsr_option end_options[] = {
    PROFILE_TEXT(struct end, part, "embed or head."),
    PROFILE_TEXT(struct end, kernel, "Kernel of the matrix."),
    SIZE(struct end, vocab, "Rows of the matrix."),
    SIZE(struct end, width, "Columns of the matrix."),
    TSR_OPTION_NODE(struct end, points, "[tokens, ms, spread] each."),
    PROFILE_TEXT(struct end, source, "Where the values come from."),
};

/* ---- points ------------------------------------------------------------------------------ */

/* A list of `most` numbers, the last of which may be missing; false with an error. */
static bool numbers(struct tsr_plan_profile_reading *r, const struct tsr_config_node *n,
                    const char *wanted, uint64_t most, double *v)
{
    static const struct tsr_option real = {
        .name = "a point", .type = TSR_OPT_REAL, .min = { .r = 0 }, .max = { .r = MAX_MS }
    };
    if (n->kind != TSR_CONFIG_NODE_LIST || n->n > most || n->n + 1 < most) {
        tsr_config_diag_error(r->d, &n->mark, "the last number, the spread, may be left out",
                              "a point is %s", wanted);
        return false;
    }
    v[most - 1] = NAN;
    for (uint64_t i = 0; i < n->n; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        if (n->items[i]->kind == TSR_CONFIG_NODE_SCALAR &&
            tsr_config_option_set(&real, &v[i], n->items[i]->text, &e.err) == TSR_OK)
            continue;
        tsr_config_diag_error(r->d, &n->items[i]->mark, NULL,
                              "a point is %s, each a number from 0 to 1e9", wanted);
        return false;
    }
    return true;
}

/* Room for one more; false: remembered. */
static bool more(struct tsr_plan_profile_reading *r, void *list, uint64_t n, uint64_t *cap,
                 uint64_t size)
{
    void **v = list, *p;
    if (n < *cap)
        return true;
    uint64_t want = *cap ? *cap * 2 : 64;
    p = n < MAX_POINTS ? tsr_renew(*v, want, size) : NULL;
    if (!p) {
        r->nomem = true;
        return false;
    }
    *v = p;
    *cap = want;
    return true;
}

static bool whole(double v, double least)
{
    return v >= least && v <= 1e9 && v == floor(v);
}

static void read_points(struct tsr_plan_profile_reading *r, const struct tsr_config_node *list,
                        const struct layer *l, const struct side *s, enum tsr_phase phase)
{
    const char *wanted = phase == TSR_PLAN_PREFILL ? "[prompts, tokens, past, ms, spread]"
                                                   : "[sequences, past, ms, spread]";
    uint64_t    most = phase == TSR_PLAN_PREFILL ? 5 : 4;
    double      v[5];
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return;
    if (list->kind != TSR_CONFIG_NODE_LIST) {
        tsr_config_diag_error(r->d, &list->mark, NULL, "points are a list of %s", wanted);
        return;
    }
    for (uint64_t i = 0; i < list->n; i++) {
        struct tsr_plan_profile *p = r->p;
        if (!numbers(r, list->items[i], wanted, most, v) ||
            !more(r, &p->points, p->n_points, &r->cap_points, sizeof *p->points))
            continue;
        double past = v[most - 3], ms = v[most - 2];
        if (!whole(v[0], 1) || !whole(past, 0) || (phase == TSR_PLAN_PREFILL && !whole(v[1], 1)) ||
            !(ms > 0)) {
            tsr_config_diag_error(
                r->d, &list->items[i]->mark, NULL,
                "a point is %s: whole numbers, at least one %s, and more than 0 ms", wanted,
                phase == TSR_PLAN_PREFILL ? "prompt of one token" : "sequence");
            continue;
        }
        p->points[p->n_points++] =
            (struct tsr_plan_point){ .kernel = l->kernel,
                                     .phase = phase,
                                     .hidden = (uint64_t)s->hidden,
                                     .ffn = (uint64_t)s->ffn,
                                     .heads = (uint32_t)s->heads,
                                     .kv_heads = (uint32_t)s->kv_heads,
                                     .head_dim = (uint32_t)s->head_dim,
                                     .gated = s->gated != 0,
                                     .experts = (uint32_t)s->experts,
                                     .used = (uint32_t)s->used,
                                     .v = (uint64_t)v[0],
                                     .s = phase == TSR_PLAN_PREFILL ? (uint64_t)v[1] : 1,
                                     .t = (uint64_t)past,
                                     .ms = ms,
                                     .spread = v[most - 1],
                                     .source = l->source };
    }
}

void tsr_plan_profile_layer(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    struct layer l = { 0 };
    struct side  s = { 0 };
    uint64_t     before = tsr_config_diag_errors(r->d);
    PROFILE_FILL(r, layer_options, map, "a measured layer", &l);
    if (!l.shape)
        tsr_config_diag_error(r->d, &map->mark, NULL, "a measured layer needs 'shape'");
    else
        PROFILE_FILL(r, side_options, l.shape, "the shape of a layer", &s);
    if (l.shape && tsr_config_diag_errors(r->d) == before &&
        (!s.experts != !s.used || s.used > s.experts || (s.experts && !s.ffn)))
        tsr_config_diag_error(r->d, &l.shape->mark, NULL,
                              "'experts' need 'used', at most as many, and an 'ffn' that is not 0");
    if (!tsr_plan_profile_kernel_name(r, map, l.kernel) || tsr_config_diag_errors(r->d) != before)
        return;
    read_points(r, l.prefill, &l, &s, TSR_PLAN_PREFILL);
    read_points(r, l.decode, &l, &s, TSR_PLAN_DECODE);
}

void tsr_plan_profile_end(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    struct end               e = { 0 };
    struct tsr_plan_profile *p = r->p;
    uint64_t                 before = tsr_config_diag_errors(r->d);
    double                   v[3];
    PROFILE_FILL(r, end_options, map, "a measured end", &e);
    if (tsr_config_diag_errors(r->d) == before && strcmp(e.part, "embed") != 0 &&
        strcmp(e.part, "head") != 0)
        tsr_config_diag_error(r->d, &tsr_config_node_get(map, "part")->mark, NULL,
                              "'part' must be embed or head");
    if (!tsr_plan_profile_kernel_name(r, map, e.kernel) || tsr_config_diag_errors(r->d) != before)
        return;
    if (!e.points || e.points->kind != TSR_CONFIG_NODE_LIST) {
        tsr_config_diag_error(r->d, &map->mark, NULL, "a measured end needs 'points', a list");
        return;
    }
    for (uint64_t i = 0; i < e.points->n; i++) {
        const struct tsr_config_node *n = e.points->items[i];
        if (!numbers(r, n, "[tokens, ms, spread]", 3, v) ||
            !more(r, &p->ends, p->n_ends, &r->cap_ends, sizeof *p->ends))
            continue;
        if (!whole(v[0], 1) || !(v[1] > 0)) {
            tsr_config_diag_error(
                r->d, &n->mark, NULL,
                "a point is [tokens, ms, spread]: whole tokens and more than 0 ms");
            continue;
        }
        struct tsr_plan_end_point *to = &p->ends[p->n_ends++];
        *to = (struct tsr_plan_end_point){ .head = e.part[0] == 'h',
                                           .vocab = (uint64_t)e.vocab,
                                           .width = (uint64_t)e.width,
                                           .tokens = (uint64_t)v[0],
                                           .ms = v[1],
                                           .spread = v[2],
                                           .source = e.source };
        (void)snprintf(to->kernel, sizeof to->kernel, "%s", e.kernel);
    }
}
