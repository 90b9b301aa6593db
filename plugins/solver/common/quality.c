#include "quality.h"

#include "host.h"

#include <math.h>
#include <string.h>

#define MAX_TABLE (UINT64_C(256) << 20) /* bytes */

struct quality_block {
    double omega, pre, dec; /* omega INFINITY: does not fit */
};
struct quality_point {
    uint64_t bytes, host;
    double   omega, pre, dec;
};
/* The best of a front in (host, omega): the more of the host, the less omega. */
struct quality_stair {
    uint64_t host;
    double   omega;
};
struct quality_step {
    uint32_t parent, q;
};

bool quality_start(struct quality *y, const struct tsr_solver_instance *in,
                   struct plan_clock *clock, struct plan_arena *a, bool *too_many)
{
    uint64_t L = in->layers, blocks;
    *y = (struct quality){ .in = in, .clock = clock, .exact = true };
    *too_many = __builtin_mul_overflow(L, L + 1, &blocks) ||
                __builtin_mul_overflow(blocks, in->n_kinds, &blocks) ||
                blocks > MAX_TABLE / sizeof *y->table;
    if (*too_many)
        return false;
    y->table = plan_take_dirty(a, blocks, sizeof *y->table);
    y->now = plan_take(a, QUALITY_FRONT, sizeof *y->now);
    y->next = plan_take(a, QUALITY_FRONT, sizeof *y->next);
    y->stairs = plan_take(a, QUALITY_FRONT, sizeof *y->stairs);
    y->history = plan_take_dirty(a, L * QUALITY_FRONT, sizeof *y->history);
    y->at = plan_take(a, in->bits, sizeof *y->at);
    y->head = plan_take(a, in->bits, sizeof *y->head);
    y->n = plan_take(a, L, sizeof *y->n);
    y->rest_pre = plan_take(a, L + 1, sizeof *y->rest_pre);
    y->rest_dec = plan_take(a, L + 1, sizeof *y->rest_dec);
    return !a->failed;
}

/* ---- fronts --------------------------------------------------------------------- */

/* head[q]: the next point in bytes on the front after layer l with bit q; NONE at the end. */
#define NONE UINT64_MAX
static void advance(struct quality *y, uint64_t k, uint64_t l, uint64_t q, uint32_t n)
{
    struct quality_point *c = &y->head[q];
    uint64_t              host = plan_host_bytes(y->in, l, q), have = plan_host_room(y->in, k);
    c->bytes = NONE;
    while (y->at[q] < n && plan_add(y->now[y->at[q]].host, host) > have)
        y->at[q]++;
    if (y->at[q] >= n || !plan_can_run(y->in, y->o, k, l, q))
        return;
    const struct quality_point *p = &y->now[y->at[q]];
    uint64_t                    e = plan_entry(y->in, k, l, q);
    *c = (struct quality_point){ plan_add(p->bytes, plan_layer_bytes(y->in, l, q)),
                                 plan_add(p->host, host),
                                 p->omega + y->in->omega[l * y->in->bits + q],
                                 p->pre + y->o->pre_ms[e], p->dec + y->o->dec_ms[e] };
    if (c->bytes > plan_room(y->in, y->o, k))
        c->bytes = NONE;
}

/* Puts a point on the stairs; false when one that is on them is no worse.  Points come by their bytes, so that what is on
 * the stairs takes no more of the device. */
static bool climb(struct quality *y, const struct quality_point *p)
{
    struct quality_stair *s = y->stairs;
    uint32_t              low = 0, high = y->n_stairs, end;
    while (low < high) { /* stairs before `low` take no more of the host */
        uint32_t mid = low + (high - low) / 2;
        if (s[mid].host <= p->host)
            low = mid + 1;
        else
            high = mid;
    }
    if (low > 0 && s[low - 1].omega <= p->omega)
        return false;
    low -= low > 0 && s[low - 1].host == p->host;
    for (end = low; end < y->n_stairs && s[end].omega >= p->omega; end++) {
    }
    if (end == low && y->n_stairs == QUALITY_FRONT)
        return true; /* the front is full, too, and is thinned next */
    memmove(s + low + 1, s + end, (y->n_stairs - end) * sizeof *s);
    s[low] = (struct quality_stair){ p->host, p->omega };
    y->n_stairs = y->n_stairs - (end - low) + 1;
    return true;
}

/* Every second point goes, the first and the last stay. */
static uint32_t thin(struct quality *y, struct quality_step *steps, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (i % 2 == 0 || i + 1 == n) {
            y->next[kept] = y->next[i];
            steps[kept++] = steps[i];
        }
    y->exact = false;
    y->n_stairs = 0;
    for (uint32_t i = 0; i < kept; i++)
        (void)climb(y, &y->next[i]);
    return kept;
}

/* The front of one more layer: y->now becomes it.  steps has room for QUALITY_FRONT. */
static uint32_t one_layer(struct quality *y, uint64_t k, uint64_t l, uint32_t n,
                          struct quality_step *steps)
{
    uint32_t made = 0;
    y->n_stairs = 0;
    memset(y->at, 0, y->in->bits * sizeof *y->at);
    for (uint64_t q = 0; q < y->in->bits; q++)
        advance(y, k, l, q, n);
    for (;;) {
        struct quality_point best = { .bytes = NONE };
        uint64_t             from = NONE;
        for (uint64_t q = 0; q < y->in->bits; q++) {
            const struct quality_point *c = &y->head[q];
            if (c->bytes < best.bytes ||
                (c->bytes == best.bytes && c->bytes != NONE && c->omega < best.omega)) {
                best = *c;
                from = q;
            }
        }
        if (from == NONE)
            break;
        uint32_t parent = (uint32_t)y->at[from]++;
        advance(y, k, l, from, n);
        if (!climb(y, &best))
            continue;
        if (made == QUALITY_FRONT) {
            made = thin(y, steps, made);
            (void)climb(y, &best);
        }
        y->next[made] = best;
        steps[made++] = (struct quality_step){ parent, (uint32_t)from };
    }
    struct quality_point *t = y->now;
    y->now = y->next;
    y->next = t;
    return made;
}

/* Bytes for layers from..to-1 as a stage of kind k; false when embedding and head take more. */
static bool room_of(const struct quality *y, uint64_t k, uint64_t from, uint64_t to, uint64_t *room)
{
    uint64_t ends =
        plan_add(from == 0 ? y->in->embed_bytes : 0, to == y->in->layers ? y->in->head_bytes : 0);
    *room = plan_room(y->in, y->o, k);
    if (ends > *room)
        return false;
    *room -= ends;
    return true;
}

/* The point that fits with the least omega; -1 for none. */
static int64_t fitting(const struct quality *y, uint64_t k, uint64_t from, uint64_t to, uint32_t n)
{
    uint64_t room;
    if (!room_of(y, k, from, to, &room))
        return -1;
    int64_t best = -1;
    for (uint32_t i = 0; i < n && y->now[i].bytes <= room; i++)
        if (best < 0 || y->now[i].omega < y->now[best].omega)
            best = i;
    return best;
}

static struct quality_block *block_at(const struct quality *y, uint64_t k, uint64_t from,
                                      uint64_t to)
{
    return &y->table[(k * y->in->layers + from) * (y->in->layers + 1) + to];
}

static void fill_from(struct quality *y, uint64_t k, uint64_t from)
{
    uint32_t n = 1;
    y->now[0] = (struct quality_point){ .bytes = 0 };
    for (uint64_t to = from + 1; to <= y->in->layers; to++) {
        struct quality_block *b = block_at(y, k, from, to);
        n = n ? one_layer(y, k, to - 1, n, y->history) : 0;
        int64_t i = n ? fitting(y, k, from, to, n) : -1;
        *b = (struct quality_block){ INFINITY, 0, 0 };
        if (i >= 0)
            *b = (struct quality_block){ y->now[i].omega, y->now[i].pre, y->now[i].dec };
    }
}

void quality_option(struct quality *y, uint64_t option)
{
    const struct tsr_solver_instance *in = y->in;
    y->o = in->options[option];
    for (uint64_t k = 0; k < in->n_kinds; k++)
        for (uint64_t from = 0; from < in->layers; from++) {
            if (plan_over(y->clock)) {
                y->exact = false;
                for (uint64_t to = from + 1; to <= in->layers; to++)
                    *block_at(y, k, from, to) = (struct quality_block){ INFINITY, 0, 0 };
            } else {
                fill_from(y, k, from);
            }
        }
    y->rest_pre[in->layers] = y->rest_dec[in->layers] = 0;
    for (uint64_t l = in->layers; l-- > 0;) {
        double lp = INFINITY, ld = INFINITY;
        for (uint64_t k = 0; k < in->n_kinds; k++)
            for (uint64_t q = 0; q < in->bits; q++)
                if (plan_can_run(in, y->o, k, l, q)) {
                    lp = fmin(lp, y->o->pre_ms[plan_entry(in, k, l, q)]);
                    ld = fmin(ld, y->o->dec_ms[plan_entry(in, k, l, q)]);
                }
        y->rest_pre[l] = y->rest_pre[l + 1] + lp;
        y->rest_dec[l] = y->rest_dec[l + 1] + ld;
    }
}

/* ---- plans ------------------------------------------------------------------------ */

static bool block_of(const void *ctx, uint64_t k, uint64_t from, uint64_t to,
                     struct partition_block *b)
{
    const struct quality_block *t = block_at(ctx, k, from, to);
    *b = (struct partition_block){ t->pre, t->dec, t->omega };
    return t->omega < INFINITY;
}

/* The bits of one stage: its front again, with the way that led to each point. */
static void read_bits(struct quality *y, uint64_t k, uint64_t from, uint64_t to, uint32_t *bits)
{
    uint32_t n = 1;
    y->now[0] = (struct quality_point){ .bytes = 0 };
    for (uint64_t l = from; l < to; l++)
        n = one_layer(y, k, l, n, y->history + (l - from) * QUALITY_FRONT);
    uint32_t at = (uint32_t)fitting(y, k, from, to, n);
    for (uint64_t l = to; l-- > from;) {
        const struct quality_step *s = &y->history[(l - from) * QUALITY_FRONT + at];
        bits[l] = s->q;
        at = s->parent;
    }
}

double quality_plan(struct quality *y, struct partition *p, double most, double *cost)
{
    p->block = block_of;
    p->ctx = y;
    p->rest_pre = y->rest_pre;
    p->rest_dec = y->rest_dec;
    double least = partition_criterion(p, PARTITION_OMEGA), before = p->best;
    if (!(least <= most))
        return least;
    p->fixed = y->in->theta * least;
    if (!partition_run(p))
        return least;
    struct tsr_solver_solution *s = p->plan;
    for (uint64_t i = 0; i < s->stages; i++)
        read_bits(y, s->stage_kind[i], s->stage_first[i], s->stage_first[i] + s->stage_count[i],
                  s->layer_bits);
    /* the tolerance of the first criterion is one of quality, not of the rules */
    if (plan_cost(y->in, s, cost))
        p->best = *cost;
    else
        p->best = before;
    return least;
}
