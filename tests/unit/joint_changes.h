/* joint_changes.h - changes of a problem of joint_problem.h, and what each one says of the best objective: those that take no plan
 * away, and those that write the same plans in another way. */
#ifndef TSR_JOINT_CHANGES_H
#define TSR_JOINT_CHANGES_H

#include "joint_problem.h"

/* A problem with its optimum. */
struct base {
    const struct joint               *p;
    const struct tsr_solver_solution *s;
    bool                              feasible;
    double                            omega, first; /* of its plan, where it has one */
    struct joint_dice                *d;
};

enum says { SAME, NO_WORSE, DOUBLE };

/* Changes a copy of b->p; false where the relation says nothing of this problem. */
typedef bool relation(const struct base *b, struct joint *p);

/* ---- a wider space ------------------------------------------------------------------------------ */

static bool wider_pool(const struct base *b, struct joint *p)
{
    uint64_t g = joint_below(b->d, p->G);
    p->pool[g]++;
    if (p->n_order) /* at the end: the order of the others stays */
        p->order[p->n_order++] = (uint32_t)g;
    return !p->all_used;
}

static bool another_codec(const struct base *b, struct joint *p)
{
    uint64_t v = p->V++;
    for (uint64_t l = 0; l < p->L; l++)
        p->link_omega[v][l] = (double)joint_below(b->d, 16) / 8;
    for (uint64_t o = 0; o < p->O; o++)
        for (uint64_t i = 0; i < p->K; i++)
            for (uint64_t k = 0; k < p->K; k++) {
                p->option[o].comm_pre[v][i][k] = joint_ms(b->d, 4);
                p->option[o].comm_dec[v][i][k] = joint_ms(b->d, 4);
            }
    return true;
}

/* Kind `from` once more. */
static uint64_t repeat_kind(struct joint *p, uint64_t from)
{
    uint64_t to = p->K++;
    p->kind[to] = p->kind[from];
    memcpy(p->kind_omega[to], p->kind_omega[from], sizeof p->kind_omega[to]);
    for (uint64_t i = 0; i < p->O; i++) {
        struct joint_option *o = &p->option[i];
        memcpy(o->pre[to], o->pre[from], sizeof o->pre[to]);
        memcpy(o->dec[to], o->dec[from], sizeof o->dec[to]);
        o->workspace[to] = o->workspace[from];
        for (int e = 0; e < 4; e++)
            o->ends[e][to] = o->ends[e][from];
        for (uint64_t v = 0; v < p->V; v++) {
            for (uint64_t k = 0; k < to; k++) {
                o->comm_pre[v][k][to] = o->comm_pre[v][k][from];
                o->comm_dec[v][k][to] = o->comm_dec[v][k][from];
            }
            memcpy(o->comm_pre[v][to], o->comm_pre[v][from], sizeof o->comm_pre[v][to]);
            memcpy(o->comm_dec[v][to], o->comm_dec[v][from], sizeof o->comm_dec[v][to]);
        }
    }
    return to;
}

/* Stages of kind k take `by` times as long. */
static void scale_kind(struct joint *p, uint64_t k, double by)
{
    for (uint64_t o = 0; o < p->O; o++)
        for (uint64_t c = 0; c < p->C; c++)
            for (uint64_t q = 0; q < p->Q; q++) {
                p->option[o].pre[k][c][q] *= by;
                p->option[o].dec[k][c][q] *= by;
            }
}

static bool another_sum_codec(const struct base *b, struct joint *p)
{
    uint64_t k = repeat_kind(p, joint_below(b->d, p->K));
    scale_kind(p, k, 0.75);
    for (uint64_t l = 0; l < p->L; l++)
        p->kind_omega[k][l] += (double)joint_below(b->d, 8) / 8;
    return !p->own;
}

static bool another_width(const struct base *b, struct joint *p)
{
    uint64_t k = repeat_kind(p, joint_below(b->d, p->K)), g = p->kind[k].pool;
    p->kind[k].takes = 1 + joint_below(b->d, p->pool[g]);
    p->kind[k].capacity *= 2;
    scale_kind(p, k, 0.5);
    return !p->own;
}

/* The item `from` once more, with other bytes and times. */
static uint64_t repeat_item(struct joint *p, uint64_t from, double by)
{
    uint64_t to = p->Q++;
    for (uint64_t c = 0; c < p->C; c++) {
        p->bytes[c][to] = p->bytes[c][from];
        p->host[c][to] = p->host[c][from];
        for (uint64_t o = 0; o < p->O; o++)
            for (uint64_t k = 0; k < p->K; k++) {
                p->option[o].pre[k][c][to] = p->option[o].pre[k][c][from] * by;
                p->option[o].dec[k][c][to] = p->option[o].dec[k][c][from] * by;
            }
    }
    for (uint64_t l = 0; l < p->L; l++)
        p->omega[l][to] = p->omega[l][from];
    return to;
}

static bool another_cache(const struct base *b, struct joint *p)
{
    uint64_t q = repeat_item(p, joint_below(b->d, p->Q), 0.75);
    for (uint64_t c = 0; c < p->C; c++)
        p->bytes[c][q] -= 6;
    for (uint64_t l = 0; l < p->L; l++)
        p->omega[l][q] += (double)joint_below(b->d, 12) / 8;
    return true;
}

static bool more_compensation(const struct base *b, struct joint *p)
{
    uint64_t q = repeat_item(p, joint_below(b->d, p->Q), 1.25);
    for (uint64_t c = 0; c < p->C; c++)
        p->host[c][q] += joint_below(b->d, 8);
    for (uint64_t l = 0; l < p->L; l++)
        p->omega[l][q] *= 0.5;
    return true;
}

static bool other_ends(const struct base *b, struct joint *p)
{
    struct joint_option *o = &p->option[p->O];
    *o = p->option[joint_below(b->d, p->O)];
    p->O++;
    o->embed_bytes /= 2;
    o->head_bytes /= 2;
    o->omega += (double)joint_below(b->d, 12) / 8;
    for (int e = 0; e < 4; e++)
        for (uint64_t k = 0; k < p->K; k++)
            o->ends[e][k] *= 0.5;
    return true;
}

/* ---- the same space, easier ----------------------------------------------------------------------- */

static bool more_memory(const struct base *b, struct joint *p)
{
    uint64_t k = joint_below(b->d, p->K);
    p->kind[k].capacity += 1 + joint_below(b->d, 40);
    p->kind[k].host += joint_below(b->d, 2) * 8;
    return true;
}

static bool less_workspace(const struct base *b, struct joint *p)
{
    uint64_t o = joint_below(b->d, p->O);
    for (uint64_t k = 0; k < p->K; k++)
        p->option[o].workspace[k] /= 4;
    return true;
}

/* One codec between two kinds, or every link. */
static bool faster_link(const struct base *b, struct joint *p)
{
    bool     every = joint_below(b->d, 2);
    uint64_t at[3] = { joint_below(b->d, p->V), joint_below(b->d, p->K), joint_below(b->d, p->K) };
    for (uint64_t o = 0; o < p->O; o++)
        for (uint64_t v = 0; v < p->V; v++)
            for (uint64_t i = 0; i < p->K; i++)
                for (uint64_t k = 0; k < p->K; k++)
                    if (every || (v == at[0] && i == at[1] && k == at[2])) {
                        p->option[o].comm_pre[v][i][k] *= 0.5;
                        p->option[o].comm_dec[v][i][k] *= 0.5;
                    }
    return true;
}

static bool higher_limit(const struct base *b, struct joint *p)
{
    p->max_omega += p->max_omega >= 0 ? (double)(1 + joint_below(b->d, 32)) / 8 : 0;
    return p->max_omega >= 0;
}

static bool later_first(const struct base *b, struct joint *p)
{
    p->max_first += p->max_first > 0 ? (double)(1 + joint_below(b->d, 160)) / 8 : 0;
    return p->max_first > 0;
}

static bool less_lossy(const struct base *b, struct joint *p)
{
    uint64_t v = joint_below(b->d, p->V), k = joint_below(b->d, p->K);
    for (uint64_t l = 0; l < p->L; l++) {
        p->link_omega[v][l] *= 0.5;
        p->kind_omega[k][l] *= 0.5;
    }
    return true;
}

static bool fewer_tokens(const struct base *b, struct joint *p)
{
    (void)b;
    p->tokens--;
    return p->tokens > 0;
}

static bool any_order(const struct base *b, struct joint *p)
{
    (void)b;
    bool fixed = p->n_order > 0 || p->all_used;
    p->n_order = 0;
    p->all_used = false;
    return fixed;
}

/* ---- the same plans ------------------------------------------------------------------------------- */

static bool split_kind(const struct base *b, struct joint *p)
{
    (void)repeat_kind(p, joint_below(b->d, p->K));
    return !p->own;
}

/* Kinds that have devices of their own are pools from which a stage takes one. */
static bool as_pools(const struct base *b, struct joint *p)
{
    bool own = p->own;
    (void)b;
    p->own = false;
    return own;
}

static bool worse_of_all(const struct base *b, struct joint *p)
{
    uint64_t v, q, k;
    (void)another_codec(b, p);
    v = p->V - 1;
    for (uint64_t l = 0; l < p->L; l++)
        p->link_omega[v][l] = p->link_omega[0][l];
    for (uint64_t o = 0; o < p->O; o++)
        for (uint64_t i = 0; i < p->K; i++)
            for (uint64_t j = 0; j < p->K; j++) {
                p->option[o].comm_pre[v][i][j] = p->option[o].comm_pre[0][i][j] + 0.125;
                p->option[o].comm_dec[v][i][j] = p->option[o].comm_dec[0][i][j];
            }
    q = repeat_item(p, joint_below(b->d, p->Q), 1.125);
    for (uint64_t c = 0; c < p->C; c++)
        p->bytes[c][q]++;
    if (p->own)
        return true;
    k = repeat_kind(p, joint_below(b->d, p->K));
    p->kind[k].capacity -= p->kind[k].capacity / 8;
    for (uint64_t l = 0; l < p->L; l++)
        p->kind_omega[k][l] += 0.125;
    return true;
}

static bool limits_at_optimum(const struct base *b, struct joint *p)
{
    if (b->feasible) {
        p->max_omega = b->omega;
        p->max_first = b->first;
    }
    return b->feasible;
}

/* No plan that takes more than these limits is worse off: limits that never bind. */
static bool loose_limits(const struct base *b, struct joint *p)
{
    (void)b;
    bool none = p->max_omega < 0 || !(p->max_first > 0);
    p->max_omega = p->max_omega < 0 ? 1e9 : p->max_omega;
    p->max_first = p->max_first > 0 ? p->max_first : 1e9;
    return none;
}

/* From the last layer to the first one: embedding and head change places, links go the other way. */
static bool reversed(const struct base *b, struct joint *p)
{
    const struct joint *f = b->p;
    uint64_t            L = p->L;
    p->embed_bytes = f->head_bytes;
    p->head_bytes = f->embed_bytes;
    for (uint64_t l = 0; l < L; l++) {
        p->class_of[l] = f->class_of[L - 1 - l];
        memcpy(p->omega[l], f->omega[L - 1 - l], sizeof p->omega[l]);
        for (uint64_t k = 0; k < p->K; k++)
            p->kind_omega[k][l] = f->kind_omega[k][L - 1 - l];
        for (uint64_t v = 0; v < p->V; v++)
            p->link_omega[v][l] = l + 1 < L ? f->link_omega[v][L - 2 - l] : 0;
    }
    for (uint64_t i = 0; i < p->n_order; i++)
        p->order[i] = f->order[p->n_order - 1 - i];
    for (uint64_t i = 0; i < p->O; i++) {
        const struct joint_option *from = &f->option[i];
        struct joint_option       *o = &p->option[i];
        o->embed_bytes = from->head_bytes;
        o->head_bytes = from->embed_bytes;
        for (int e = 0; e < 4; e++)
            memcpy(o->ends[e], from->ends[e ^ 2], sizeof o->ends[e]);
        for (uint64_t v = 0; v < p->V; v++)
            for (uint64_t j = 0; j < p->K; j++)
                for (uint64_t k = 0; k < p->K; k++) {
                    o->comm_pre[v][j][k] = from->comm_pre[v][k][j];
                    o->comm_dec[v][j][k] = from->comm_dec[v][k][j];
                }
    }
    return true;
}

static bool twice_the_time(const struct base *b, struct joint *p)
{
    (void)b;
    p->theta *= 2;
    p->max_first *= 2;
    for (uint64_t k = 0; k < p->K; k++)
        scale_kind(p, k, 2);
    for (uint64_t o = 0; o < p->O; o++)
        for (uint64_t i = 0; i < p->K; i++) {
            for (int e = 0; e < 4; e++)
                p->option[o].ends[e][i] *= 2;
            for (uint64_t v = 0; v < p->V; v++)
                for (uint64_t k = 0; k < p->K; k++) {
                    p->option[o].comm_pre[v][i][k] *= 2;
                    p->option[o].comm_dec[v][i][k] *= 2;
                }
        }
    return true;
}

static const struct {
    const char *name;
    relation   *change;
    enum says   says;
} relations[] = {
    { "one more device of a pool", wider_pool, NO_WORSE },
    { "another codec of links", another_codec, NO_WORSE },
    { "another codec of sums", another_sum_codec, NO_WORSE },
    { "another width", another_width, NO_WORSE },
    { "another cache type", another_cache, NO_WORSE },
    { "more compensation", more_compensation, NO_WORSE },
    { "other ends", other_ends, NO_WORSE },
    { "more memory", more_memory, NO_WORSE },
    { "less workspace", less_workspace, NO_WORSE },
    { "a faster link", faster_link, NO_WORSE },
    { "a higher limit of omega", higher_limit, NO_WORSE },
    { "a later limit of prefill", later_first, NO_WORSE },
    { "codecs that lose less", less_lossy, NO_WORSE },
    { "fewer tokens", fewer_tokens, NO_WORSE },
    { "any order, any devices", any_order, NO_WORSE },
    { "a kind as two of its pool", split_kind, SAME },
    { "devices of their own as pools", as_pools, SAME },
    { "worse choices", worse_of_all, SAME },
    { "limits at the optimum", limits_at_optimum, SAME },
    { "limits that never bind", loose_limits, SAME },
    { "from the last layer to the first", reversed, SAME },
    { "twice the time", twice_the_time, DOUBLE },
};
#define RELATIONS (sizeof relations / sizeof *relations)

#endif
