/* joint_problem.h - random problems with every part of revision 2 at once, as a planner would write them: pools whose kinds
 * are widths with a codec for sums, codecs of links, items of a scheme, a cache type and a k of compensation, options that
 * bring their ends, both limits.
 *
 * The tables have room for one more of everything, with fixed strides, so that a change of a problem is one assignment;
 * joint_pack() writes them as a solver reads them.  All numbers are multiples of 1/64 and small: sums are exact. */
#ifndef TSR_JOINT_PROBLEM_H
#define TSR_JOINT_PROBLEM_H

#include "base/rng.h"
#include "plan/instance/instance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JL = 7, JC = 2, JQ = 13, JK = 12, JV = 4, JG = 3, JO = 5, J_DEVICES = 12 };

struct joint_option {
    uint64_t eta, xi, embed_bytes, head_bytes, workspace[JK];
    double   jobs, omega;
    double   pre[JK][JC][JQ], dec[JK][JC][JQ];
    double   ends[4][JK]; /* embedding in prefill and decode, head likewise */
    double   comm_pre[JV][JK][JK], comm_dec[JV][JK][JK];
};

struct joint_kind {
    uint64_t pool, takes, capacity, host;
};

struct joint {
    uint64_t            L, C, Q, K, V, G, O;
    uint32_t            objective, class_of[JL];
    bool                all_used, own; /* own: no pools, a kind for each */
    uint64_t            batch, tokens, pool[JG], n_order, embed_bytes, head_bytes;
    uint32_t            order[J_DEVICES]; /* of pools */
    struct joint_kind   kind[JK];
    uint64_t            bytes[JC][JQ], host[JC][JQ];
    double              omega[JL][JQ], kind_omega[JK][JL], link_omega[JV][JL];
    double              theta, max_omega, max_first; /* negative, 0: no limit */
    struct joint_option option[JO];
};

/* The same as a solver reads it. */
struct joint_packed {
    struct tsr_instance             inst;
    struct tsr_solver_kind          kind[JK];
    struct tsr_solver_option        option[JO];
    const struct tsr_solver_kind   *kinds[JK];
    const struct tsr_solver_option *options[JO];
    const char                     *names[JQ];
    uint64_t                        bytes[JC * JQ], host[JC * JQ];
    double                          omega[JL * JQ], kind_omega[JK * JL], link_omega[JV * JL];
    struct {
        double pre[JK * JC * JQ], dec[JK * JC * JQ], comm_pre[JV * JK * JK], comm_dec[JV * JK * JK];
    } tables[JO];
    struct joint from;
};

static inline uint64_t joint_devices(const struct joint *p)
{
    uint64_t n = 0;
    for (uint64_t g = 0; g < p->G; g++)
        n += p->pool[g];
    return n;
}

static inline void joint_pack_option(struct joint_packed *to, uint64_t o)
{
    const struct joint        *p = &to->from;
    const struct joint_option *f = &p->option[o];
    uint64_t                   n = 0, m = 0;
    for (uint64_t k = 0; k < p->K; k++)
        for (uint64_t c = 0; c < p->C; c++)
            for (uint64_t q = 0; q < p->Q; q++, n++) {
                to->tables[o].pre[n] = f->pre[k][c][q];
                to->tables[o].dec[n] = f->dec[k][c][q];
            }
    for (uint64_t v = 0; v < p->V; v++)
        for (uint64_t i = 0; i < p->K; i++)
            for (uint64_t k = 0; k < p->K; k++, m++) {
                to->tables[o].comm_pre[m] = f->comm_pre[v][i][k];
                to->tables[o].comm_dec[m] = f->comm_dec[v][i][k];
            }
    to->option[o] = (struct tsr_solver_option){ .struct_size = sizeof to->option[o],
                                                .prefill_mb = f->eta,
                                                .decode_mb = f->xi,
                                                .pre_ms = to->tables[o].pre,
                                                .dec_ms = to->tables[o].dec,
                                                .embed_pre_ms = f->ends[0],
                                                .embed_dec_ms = f->ends[1],
                                                .head_pre_ms = f->ends[2],
                                                .head_dec_ms = f->ends[3],
                                                .comm_pre_ms = to->tables[o].comm_pre,
                                                .comm_dec_ms = to->tables[o].comm_dec,
                                                .workspace_bytes = f->workspace,
                                                .prefill_jobs = f->jobs,
                                                .embed_bytes = f->embed_bytes,
                                                .head_bytes = f->head_bytes,
                                                .omega = f->omega };
    to->options[o] = &to->option[o];
}

static inline void joint_pack_layers(struct joint_packed *to)
{
    const struct joint *p = &to->from;
    for (uint64_t c = 0; c < p->C; c++) {
        memcpy(to->bytes + c * p->Q, p->bytes[c], p->Q * 8);
        memcpy(to->host + c * p->Q, p->host[c], p->Q * 8);
    }
    for (uint64_t l = 0; l < p->L; l++)
        memcpy(to->omega + l * p->Q, p->omega[l], p->Q * 8);
    for (uint64_t k = 0; k < p->K; k++)
        memcpy(to->kind_omega + k * p->L, p->kind_omega[k], p->L * 8);
    for (uint64_t v = 0; v < p->V; v++)
        memcpy(to->link_omega + v * p->L, p->link_omega[v], p->L * 8);
    for (uint64_t q = 0; q < p->Q; q++)
        to->names[q] = "item";
}

/* *to points into itself and is not to be copied. */
static inline void joint_pack(struct joint_packed *to, const struct joint *p)
{
    memset(to, 0, sizeof *to);
    to->from = *p;
    p = &to->from;
    joint_pack_layers(to);
    for (uint64_t o = 0; o < p->O; o++)
        joint_pack_option(to, o);
    for (uint64_t k = 0; k < p->K; k++) {
        const struct joint_kind *d = &p->kind[k];
        to->kind[k] = (struct tsr_solver_kind){ .struct_size = sizeof to->kind[k],
                                                .count = (uint32_t)(p->pool[d->pool] / d->takes),
                                                .name = "kind",
                                                .capacity_bytes = d->capacity,
                                                .host_capacity_bytes = d->host,
                                                .pool = p->own ? 0 : d->pool,
                                                .takes = p->own ? 0 : d->takes };
        to->kinds[k] = &to->kind[k];
    }
    to->inst.in = (struct tsr_solver_instance){ .struct_size = sizeof to->inst.in,
                                                .objective = p->objective,
                                                .layers = p->L,
                                                .classes = p->C,
                                                .bits = p->Q,
                                                .n_kinds = p->K,
                                                .n_options = p->O,
                                                .layer_class = p->class_of,
                                                .bit_names = to->names,
                                                .layer_bytes = to->bytes,
                                                .omega = to->omega,
                                                .theta = p->theta,
                                                .max_omega = p->max_omega,
                                                .batch = p->batch,
                                                .tokens = p->tokens,
                                                .kinds = to->kinds,
                                                .order = p->n_order ? p->order : NULL,
                                                .order_len = p->n_order,
                                                .allow_unused = !p->all_used,
                                                .embed_bytes = p->embed_bytes,
                                                .head_bytes = p->head_bytes,
                                                .options = to->options,
                                                .gap = 0,
                                                .seed = 7,
                                                .cutoff = INFINITY,
                                                .host_bytes = to->host,
                                                .n_pools = p->own ? 0 : p->G,
                                                .pool_devices = p->pool,
                                                .kind_omega = to->kind_omega,
                                                .n_links = p->V,
                                                .link_omega = to->link_omega,
                                                .max_first_ms = p->max_first };
    to->inst.devices = joint_devices(p);
    to->inst.features = tsr_instance_features(&to->inst.in);
}

/* ---- random problems ------------------------------------------------------------------------- */

struct joint_dice {
    uint64_t seed, problem, at;
};

/* 0 to n - 1 */
static inline uint64_t joint_below(struct joint_dice *d, uint64_t n)
{
    return (uint64_t)(tsr_uniform(d->seed, d->problem, d->at++) * (double)n) % n;
}

/* 1/8 to most */
static inline double joint_ms(struct joint_dice *d, uint64_t most)
{
    return (double)(1 + joint_below(d, 8 * most)) / 8;
}

/* Schemes x cache types x k: fewer bits take fewer bytes and lose more; k leaves a half of it, in memory of the host. */
static inline void joint_items(struct joint *p, struct joint_dice *d)
{
    uint64_t schemes = 2 + joint_below(d, 2), caches = 1 + joint_below(d, 2);
    uint64_t ks = 1 + joint_below(d, 2);
    double   base[JL][3], cache[JL];
    p->Q = schemes * caches * ks;
    for (uint64_t l = 0; l < p->L; l++) {
        cache[l] = (double)joint_below(d, 6) / 8;
        for (uint64_t s = 0; s < schemes; s++)
            base[l][s] = (double)(schemes - s) + (double)joint_below(d, 12) / 8;
    }
    for (uint64_t q = 0; q < p->Q; q++) {
        uint64_t s = q % schemes, kv = q / schemes % caches, k = q / schemes / caches;
        for (uint64_t c = 0; c < p->C; c++) {
            p->bytes[c][q] = 20 * (s + 1) + 12 * (caches - kv) + 3 * k + 4 * c;
            p->host[c][q] = k * (6 + 3 * c);
        }
        for (uint64_t l = 0; l < p->L; l++)
            p->omega[l][q] = base[l][s] * (k ? 0.5 : 1) + (kv ? cache[l] : 0);
    }
}

/* Each pool as widths of 1 to 3 devices, wide ones with one codec for sums or two. */
static inline void joint_kinds(struct joint *p, struct joint_dice *d)
{
    for (uint64_t g = 0; g < p->G; g++) {
        uint64_t memory = p->L * (10 + joint_below(d, 60)), host = joint_below(d, 8 * p->L);
        p->pool[g] = 1 + joint_below(d, p->G == 1 ? 4 : 3);
        for (uint64_t t = 1; t <= p->pool[g] && t <= 3; t++) {
            if (p->own ? t > 1 : t > 1 && joint_below(d, 4) == 0)
                continue;
            for (uint64_t sum = 0; sum < (t > 1 ? 1 + joint_below(d, 2) : 1) && p->K < JK - 2;
                 sum++) {
                p->kind[p->K] = (struct joint_kind){ g, t, memory * t, host * t };
                for (uint64_t l = 0; l < p->L; l++)
                    p->kind_omega[p->K][l] = sum ? (double)(1 + joint_below(d, 8)) / 8 : 0;
                p->K++;
            }
        }
    }
}

static inline void joint_fill_option(struct joint *p, struct joint_dice *d, struct joint_option *o)
{
    o->eta = 1 + joint_below(d, 2);
    o->xi = o->eta * (1 + joint_below(d, 2));
    o->embed_bytes = joint_below(d, 20);
    o->head_bytes = joint_below(d, 20);
    o->omega = (double)joint_below(d, 16) / 8;
    uint64_t n = (p->batch + o->eta - 1) / o->eta;
    o->jobs = joint_below(d, 2) ? (double)(n * (8 + joint_below(d, 24))) / 8 : 0;
    for (uint64_t k = 0; k < p->K; k++) {
        o->workspace[k] = joint_below(d, 40);
        for (int e = 0; e < 4; e++)
            o->ends[e][k] = joint_ms(d, 2);
        for (uint64_t c = 0; c < p->C; c++)
            for (uint64_t q = 0; q < p->Q; q++) {
                o->pre[k][c][q] = joint_below(d, 10) ? joint_ms(d, 12) / 2 : NAN;
                o->dec[k][c][q] = joint_ms(d, 12) / 2;
            }
        for (uint64_t v = 0; v < p->V; v++)
            for (uint64_t i = 0; i < p->K; i++) {
                o->comm_pre[v][k][i] = joint_ms(d, 8 / (v + 1));
                o->comm_dec[v][k][i] = joint_ms(d, 8 / (v + 1));
            }
    }
}

/* The same draws and index give the same problem. */
static inline void joint_random(struct joint *p, uint64_t draws, uint64_t index)
{
    struct joint_dice d = { draws, 40000 + index, 0 };
    memset(p, 0, sizeof *p);
    p->L = 2 + joint_below(&d, JL - 1);
    p->C = 1 + joint_below(&d, 2);
    p->G = 1 + joint_below(&d, 2);
    p->V = 1 + joint_below(&d, JV - 1);
    p->O = 1 + joint_below(&d, 3);
    p->own = joint_below(&d, 6) == 0;
    p->objective = joint_below(&d, 4) ? TSR_OBJECTIVE_STEADY : TSR_OBJECTIVE_PAPER;
    p->batch = 4 + joint_below(&d, 5);
    p->tokens = 1 + joint_below(&d, 6);
    p->theta = joint_below(&d, 3) ? 0 : (double)joint_below(&d, 16) / 8;
    p->all_used = joint_below(&d, 8) == 0;
    p->embed_bytes = joint_below(&d, 20);
    p->head_bytes = joint_below(&d, 20);
    for (uint64_t l = 0; l < p->L; l++)
        p->class_of[l] = (uint32_t)joint_below(&d, p->C);
    joint_items(p, &d);
    joint_kinds(p, &d);
    for (uint64_t v = 1; v < p->V; v++)
        for (uint64_t l = 0; l < p->L; l++)
            p->link_omega[v][l] = (double)(1 + joint_below(&d, 8 * v)) / 8;
    for (uint64_t o = 0; o < p->O; o++)
        joint_fill_option(p, &d, &p->option[o]);
    p->max_omega = joint_below(&d, 4) ? (double)(p->L * (8 + joint_below(&d, 24))) / 8 : -1;
    p->max_first = joint_below(&d, 2) ? (double)(p->L * (40 + joint_below(&d, 300))) / 8 : 0;
    if (joint_below(&d, 4) == 0) /* a fixed order: pools in turn, or one after another */
        for (uint64_t i = 0, turn = joint_below(&d, 2), n = joint_devices(p); i < 4 * n; i++) {
            uint64_t g = turn ? i % p->G : i / n % p->G, seen = 0;
            for (uint64_t j = 0; j < p->n_order; j++)
                seen += p->order[j] == g;
            if (seen < p->pool[g])
                p->order[p->n_order++] = (uint32_t)g;
        }
}

#endif
