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
    int64_t                       hidden, ffn, heads, kv_heads, head_dim, experts, used, shared;
    int32_t                       gated, attention_gate;
    const struct tsr_config_node *delta, *latent;
};
struct rule {
    int64_t key_heads, value_heads, key_dim, value_dim, kernel;
};
struct latent {
    int64_t q_rank, rank, nope, rope, v;
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
    TSR_OPTION_INT(struct side, heads, 0, 0, MAX_SIDE, NULL, "Query heads."),
    TSR_OPTION_INT(struct side, kv_heads, 0, 0, MAX_SIDE, NULL, "Key and value heads."),
    TSR_OPTION_INT(struct side, head_dim, 0, 0, MAX_SIDE, NULL, "Width of a head."),
    TSR_OPTION_BOOL(struct side, attention_gate, 0, "Attention has a gate."),
    TSR_OPTION_NODE(struct side, delta, "Heads of the gated delta rule, in place of attention."),
    TSR_OPTION_NODE(struct side, latent, "Latent attention, with 'heads' alone."),
    TSR_OPTION_BOOL(struct side, gated, 0, "The feed-forward has a gate."),
    TSR_OPTION_INT(struct side, experts, 0, 0, MAX_EXPERTS, NULL,
                   "Experts of that width in place of it; 0: none."),
    TSR_OPTION_INT(struct side, used, 0, 0, MAX_EXPERTS, NULL, "How many of them a token takes."),
    TSR_OPTION_INT(struct side, shared, 0, 0, MAX_SIDE, NULL,
                   "Width of the expert that every token takes in addition; 0: none."),
};
static const struct tsr_option rule_options[] = {
    SIZE(struct rule, key_heads, "Heads of queries and keys."),
    SIZE(struct rule, value_heads, "Heads of values, a multiple."),
    SIZE(struct rule, key_dim, "Width of a head of queries and keys."),
    SIZE(struct rule, value_dim, "Width of a head of values."),
    SIZE(struct rule, kernel, "Tokens that the convolution sees."),
};
static const struct tsr_option latent_options[] = {
    TSR_OPTION_INT(struct latent, q_rank, 0, 0, MAX_SIDE, NULL, "Row of the queries; 0: none."),
    SIZE(struct latent, rank, "Row of keys and values."),
    SIZE(struct latent, nope, "Columns of a head that do not rotate."),
    SIZE(struct latent, rope, "Columns of a head that rotate."),
    SIZE(struct latent, v, "Columns of a head's value."),
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
                        const struct tsr_plan_point *of, enum tsr_phase phase)
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
        struct tsr_plan_point *to = &p->points[p->n_points++];
        *to = *of;
        to->phase = phase;
        to->v = (uint64_t)v[0];
        to->s = phase == TSR_PLAN_PREFILL ? (uint64_t)v[1] : 1;
        to->t = (uint64_t)past;
        to->ms = ms;
        to->spread = v[most - 1];
    }
}

static void read_rule(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map,
                      struct tsr_model_delta *d)
{
    struct rule u = { 0 };
    uint64_t    before = tsr_config_diag_errors(r->d);
    PROFILE_FILL(r, rule_options, map, "the delta rule of a layer", &u);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    if (u.value_heads % u.key_heads)
        tsr_config_diag_error(r->d, &map->mark, NULL,
                              "'value_heads' must be a multiple of 'key_heads'");
    *d = (struct tsr_model_delta){ .key_heads = (uint32_t)u.key_heads,
                                   .value_heads = (uint32_t)u.value_heads,
                                   .key_dim = (uint32_t)u.key_dim,
                                   .value_dim = (uint32_t)u.value_dim,
                                   .kernel = (uint32_t)u.kernel };
}

/* As the engine runs it: keys and values of every head, in one width. */
static void read_latent(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map,
                        struct tsr_plan_point *of)
{
    struct latent l = { 0 };
    uint64_t      before = tsr_config_diag_errors(r->d);
    PROFILE_FILL(r, latent_options, map, "the latent attention of a layer", &l);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    of->latent = (struct tsr_model_latent){ .q_rank = (uint32_t)l.q_rank,
                                            .rank = (uint32_t)l.rank,
                                            .nope = (uint32_t)l.nope,
                                            .rope = (uint32_t)l.rope,
                                            .v = (uint32_t)l.v };
    of->kv_heads = of->heads;
    of->head_dim = (uint32_t)(l.nope + l.rope > l.v ? l.nope + l.rope : l.v);
}

/* The shape of a layer, to which its points add what was run. */
static void read_shape(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map,
                       struct tsr_plan_point *of)
{
    struct side s = { 0 };
    uint64_t    before = tsr_config_diag_errors(r->d);
    PROFILE_FILL(r, side_options, map, "the shape of a layer", &s);
    if (tsr_config_diag_errors(r->d) != before)
        return;
    if (!s.experts != !s.used || s.used > s.experts || (s.experts && !s.ffn))
        tsr_config_diag_error(r->d, &map->mark, NULL,
                              "'experts' need 'used', at most as many, and an 'ffn' that is not 0");
    bool whole = s.heads && s.kv_heads && s.head_dim, some = s.heads || s.kv_heads || s.head_dim;
    bool latent = s.heads && !s.kv_heads && !s.head_dim && !s.attention_gate && !s.delta;
    if (s.latent ? !latent : s.delta ? some || s.attention_gate : !whole)
        tsr_config_diag_error(
            r->d, &map->mark, NULL,
            "a layer has 'heads', 'kv_heads' and 'head_dim', or it has 'delta', or "
            "'heads' and 'latent'");
    of->hidden = (uint64_t)s.hidden;
    of->ffn = (uint64_t)s.ffn;
    of->heads = (uint32_t)s.heads;
    of->kv_heads = (uint32_t)s.kv_heads;
    of->head_dim = (uint32_t)s.head_dim;
    of->gated = s.gated != 0;
    of->attn_gate = s.attention_gate != 0;
    of->experts = (uint32_t)s.experts;
    of->used = (uint32_t)s.used;
    of->shared_ffn = (uint64_t)s.shared;
    if (s.delta)
        read_rule(r, s.delta, &of->delta);
    if (s.latent)
        read_latent(r, s.latent, of);
}

void tsr_plan_profile_layer(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    struct layer l = { 0 };
    uint64_t     before = tsr_config_diag_errors(r->d);
    PROFILE_FILL(r, layer_options, map, "a measured layer", &l);
    struct tsr_plan_point of = { .kernel = l.kernel, .source = l.source };
    if (!l.shape)
        tsr_config_diag_error(r->d, &map->mark, NULL, "a measured layer needs 'shape'");
    else
        read_shape(r, l.shape, &of);
    if (!tsr_plan_profile_kernel_name(r, map, l.kernel) || tsr_config_diag_errors(r->d) != before)
        return;
    read_points(r, l.prefill, &of, TSR_PLAN_PREFILL);
    read_points(r, l.decode, &of, TSR_PLAN_DECODE);
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
