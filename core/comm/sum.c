/* One sum: its pieces and their blocks, the order of steps, and the steps in the host's memory. */
#include "comm/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* ---- shapes ------------------------------------------------------------ */

/* Blocks are contiguous in each buffer. */
static bool lay_out(struct tsr_comm_block *b, uint32_t n, const uint64_t *bytes, uint64_t *total)
{
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        b[i] = (struct tsr_comm_block){ *total, bytes[i] };
        if (!tsr_add(*total, bytes[i], total))
            return false;
    }
    return true;
}

static tsr_status plan_piece(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                             struct tsr_comm_piece *p, uint64_t rows, uint64_t cols,
                             struct tsr_err *err)
{
    uint64_t slices[2][TSR_COMM_MAX_RANKS], same[TSR_COMM_MAX_RANKS];
    bool     two = c->algorithm == TSR_COMM_TWO_STEP, fits = true;
    p->rows = rows;
    p->widest = 0;
    for (uint32_t i = 0; i < g->ranks; i++) {
        uint64_t first = 0, end = cols;
        if (two)
            tsr_comm_slice(cols, g->ranks, i, &first, &end);
        p->widest = end - first > p->widest ? end - first : p->widest;
        for (uint32_t h = 0; h < (two ? 2u : 1u); h++)
            TSR_TRY(
                tsr_comm_wire_bytes(c, h == 1, two ? i : 0, rows, end - first, &slices[h][i], err));
    }
    /* all-gather is one hop, in which every block goes to all */
    uint32_t gather = two ? 1 : 0;
    if (two) {
        for (uint32_t i = 0; i < g->ranks; i++)
            same[i] = slices[0][g->rank];
        fits = lay_out(p->mine[0], g->ranks, slices[0], &p->send_bytes[0]) &&
               lay_out(p->theirs[0], g->ranks, same, &p->recv_bytes[0]);
    } else {
        p->send_bytes[1] = p->recv_bytes[1] = 0;
    }
    for (uint32_t i = 0; i < g->ranks; i++)
        p->mine[gather][i] = (struct tsr_comm_block){ 0, slices[gather][g->rank] };
    p->send_bytes[gather] = slices[gather][g->rank];
    fits = fits && lay_out(p->theirs[gather], g->ranks, slices[gather], &p->recv_bytes[gather]);
    return fits ? TSR_OK
                : tsr_fail(err, TSR_E_INVAL, "a message of %llu x %llu is too large",
                           (unsigned long long)rows, (unsigned long long)cols);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

tsr_status tsr_comm_sum_room(const struct tsr_comm_group *g, struct tsr_comm_room *room,
                             struct tsr_err *err)
{
    const struct tsr_comm_piece *p = &g->whole, *q = &g->last;
    uint64_t                    *part = room->part, one = 0, all, floats;
    for (size_t h = 0; h < 2; h++) {
        part[2 * h] = larger(p->send_bytes[h], q->send_bytes[h]);
        part[2 * h + 1] = larger(p->recv_bytes[h], q->recv_bytes[h]);
    }
    for (size_t i = 0; i < 4; i++) {
        if (!tsr_add(part[i], 63, &part[i]) || !tsr_add(one, part[i] & ~UINT64_C(63), &one))
            return tsr_fail(err, TSR_E_INVAL, "a piece of %llu rows is too large",
                            (unsigned long long)p->rows);
        part[i] &= ~UINT64_C(63);
    }
    if (!tsr_mul(one, TSR_COMM_SLOTS, &all) || !tsr_mul(p->rows, p->widest, &floats) ||
        !tsr_mul(floats, TSR_COMM_LEVELS + 1, &floats))
        return tsr_fail(err, TSR_E_INVAL, "a piece of %llu rows is too large",
                        (unsigned long long)p->rows);
    room->one = one;
    room->all = all;
    room->floats = floats;
    return TSR_OK;
}

/* In the host's memory. */
static tsr_status make_room(struct tsr_comm_group *g, struct tsr_err *err)
{
    struct tsr_comm_room room;
    TSR_TRY(tsr_comm_sum_room(g, &room, err));
    uint64_t all = room.all, floats = room.floats;
    if (all > g->room_bytes) {
        free(g->room);
        g->room_bytes = 0;
        g->room = tsr_new_aligned(all, 1);
        if (!g->room)
            return tsr_fail_nomem(err, all, "the messages of a sum");
        g->room_bytes = all;
    }
    if (floats > g->n_floats) {
        free(g->floats);
        g->n_floats = 0;
        g->floats = tsr_new_aligned(floats, sizeof(float));
        if (!g->floats)
            return tsr_fail_nomem(err, floats * sizeof(float), "a sum");
        g->n_floats = floats;
    }
    for (uint32_t i = 0; i < TSR_COMM_SLOTS; i++) {
        unsigned char *at = g->room + i * room.one;
        for (size_t h = 0; h < 2; h++) {
            g->slot[i].send[h] = at;
            at += room.part[2 * h];
            g->slot[i].recv[h] = at;
            at += room.part[2 * h + 1];
        }
    }
    return TSR_OK;
}

/* ---- one sum ----------------------------------------------------------- */

const struct tsr_comm_piece *tsr_comm_sum_piece(const struct tsr_comm_sum *s, uint64_t piece)
{
    return piece + 1 == s->pieces ? &s->g->last : &s->g->whole;
}

static float *rows_of(const struct tsr_comm_sum *s, uint64_t piece)
{
    return s->x + piece * s->each * s->cols;
}

tsr_status tsr_comm_sum_start(const struct tsr_comm_sum *s, uint64_t piece, uint32_t hop,
                              bool to_all, const void *send, void *recv, struct tsr_err *err)
{
    struct tsr_comm_group       *g = s->g;
    const struct tsr_comm_piece *p = tsr_comm_sum_piece(s, piece);
    uint64_t                     bytes = 0;
    for (uint32_t i = 0; i < g->ranks; i++)
        bytes += i == g->rank ? 0 : p->mine[hop][i].bytes;
    g->counters.declared += bytes;
    return tsr_comm_exchange_start(&g->traffic, tsr_comm_sum_hop(s, piece, hop), to_all, send,
                                   p->mine[hop], recv, p->theirs[hop], err);
}

struct tsr_comm_exchange *tsr_comm_sum_hop(const struct tsr_comm_sum *s, uint64_t piece,
                                           uint32_t hop)
{
    return &s->g->exchange[2 * (piece % TSR_COMM_SLOTS) + hop];
}

static tsr_status exchange(const struct tsr_comm_sum *s, uint64_t piece, uint32_t hop, bool to_all,
                           struct tsr_err *err)
{
    const struct tsr_comm_slot *at = &s->g->slot[piece % TSR_COMM_SLOTS];
    return tsr_comm_sum_start(s, piece, hop, to_all, at->send[hop], at->recv[hop], err);
}

static tsr_status arrive(const struct tsr_comm_sum *s, uint64_t piece, uint32_t hop,
                         struct tsr_err *err)
{
    uint64_t   start = now_ns();
    tsr_status st = tsr_comm_exchange_end(&s->g->traffic, tsr_comm_sum_hop(s, piece, hop), err);
    s->g->counters.wait_ns += now_ns() - start;
    return st;
}

struct tsr_comm_message tsr_comm_sum_message(const struct tsr_comm_sum   *s,
                                             const struct tsr_comm_piece *p, uint32_t hop,
                                             uint32_t slice, uint64_t bytes)
{
    uint64_t first = 0, end = s->cols;
    if (s->c->algorithm == TSR_COMM_TWO_STEP)
        tsr_comm_slice(s->cols, s->g->ranks, slice, &first, &end);
    return (struct tsr_comm_message){ hop == 1, slice, s->site, p->rows, end - first, bytes, 0 };
}

static struct tsr_comm_message message_of(const struct tsr_comm_sum *s, uint64_t piece,
                                          uint32_t hop, uint32_t slice, uint64_t bytes)
{
    struct tsr_comm_message m =
        tsr_comm_sum_message(s, tsr_comm_sum_piece(s, piece), hop, slice, bytes);
    m.row = piece * s->each;
    return m;
}

/* Codes a piece and starts its first hop. */
static tsr_status begin(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    struct tsr_comm_group       *g = s->g;
    const struct tsr_comm_piece *p = tsr_comm_sum_piece(s, piece);
    unsigned char               *to = g->slot[piece % TSR_COMM_SLOTS].send[0];
    const float                 *x = rows_of(s, piece);
    uint64_t                     start = now_ns();
    bool                         two = s->c->algorithm == TSR_COMM_TWO_STEP;
    for (uint32_t i = 0; i < (two ? g->ranks : 1); i++) {
        struct tsr_comm_message m = message_of(s, piece, 0, i, p->mine[0][i].bytes);
        const float            *src = x;
        if (two && i == g->rank) /* its own slice stays unchanged */
            continue;
        if (two) {
            uint64_t first, end;
            tsr_comm_slice(s->cols, g->ranks, i, &first, &end);
            tsr_comm_cut(g->floats, x, s->cols, first, p->rows, m.cols);
            src = g->floats;
        }
        TSR_TRY(tsr_comm_encode(s->c, &m, g->rank, src, to + p->mine[0][i].at, err));
    }
    g->counters.encode_ns += now_ns() - start;
    return exchange(s, piece, 0, !two, err);
}

/* The first hop of two-step has come: adds the own slice and starts the second. */
static tsr_status middle(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    struct tsr_comm_group       *g = s->g;
    const struct tsr_comm_piece *p = tsr_comm_sum_piece(s, piece);
    struct tsr_comm_slot        *at = &g->slot[piece % TSR_COMM_SLOTS];
    struct tsr_comm_message      m = message_of(s, piece, 0, g->rank, p->theirs[0][0].bytes);
    uint64_t                     n = m.rows * m.cols;
    TSR_TRY(arrive(s, piece, 0, err));
    uint64_t start = now_ns(), first, end;
    float   *own = g->floats + TSR_COMM_LEVELS * n; /* after the tree's levels */
    tsr_comm_slice(s->cols, g->ranks, g->rank, &first, &end);
    tsr_comm_cut(own, rows_of(s, piece), s->cols, first, p->rows, m.cols);
    struct tsr_comm_leaves l = { at->recv[0], m.wire_bytes, own, g->rank };
    TSR_TRY(tsr_comm_tree(s->c, &m, &l, g->floats, g->floats + n, n, err));
    uint64_t half = now_ns();
    m = message_of(s, piece, 1, g->rank, p->mine[1][0].bytes);
    TSR_TRY(tsr_comm_encode(s->c, &m, g->rank, g->floats, at->send[1], err));
    g->counters.decode_ns += half - start;
    g->counters.encode_ns += now_ns() - half;
    return exchange(s, piece, 1, true, err);
}

/* All codes of a piece have come. */
static tsr_status finish(const struct tsr_comm_sum *s, uint64_t piece, struct tsr_err *err)
{
    struct tsr_comm_group       *g = s->g;
    const struct tsr_comm_piece *p = tsr_comm_sum_piece(s, piece);
    struct tsr_comm_slot        *at = &g->slot[piece % TSR_COMM_SLOTS];
    float                       *x = rows_of(s, piece);
    bool                         two = s->c->algorithm == TSR_COMM_TWO_STEP;
    tsr_status                   st = TSR_OK;
    TSR_TRY(arrive(s, piece, two ? 1 : 0, err));
    uint64_t start = now_ns();
    if (!two) {
        struct tsr_comm_message m = message_of(s, piece, 0, 0, p->theirs[0][0].bytes);
        struct tsr_comm_leaves  l = { at->recv[0], m.wire_bytes, NULL, 0 };
        st = tsr_comm_tree(s->c, &m, &l, x, g->floats, m.rows * m.cols, err);
    }
    for (uint32_t i = 0; two && st == TSR_OK && i < g->ranks; i++) {
        struct tsr_comm_message m = message_of(s, piece, 1, i, p->theirs[1][i].bytes);
        uint64_t                first, end;
        tsr_comm_slice(s->cols, g->ranks, i, &first, &end);
        st = tsr_comm_decode(s->c, &m, i, at->recv[1] + p->theirs[1][i].at, g->floats, err);
        tsr_comm_paste(x, g->floats, s->cols, first, p->rows, m.cols);
    }
    g->counters.decode_ns += now_ns() - start;
    return st;
}

static const struct tsr_comm_steps on_host = { .begin = begin, .middle = middle, .finish = finish };

tsr_status tsr_comm_sum_run(const struct tsr_comm_sum *s, const struct tsr_comm_steps *f,
                            struct tsr_err *err)
{
    bool two = s->c->algorithm == TSR_COMM_TWO_STEP;
    for (uint64_t i = 0; i < s->pieces + TSR_COMM_FINISH; i++) {
        if (i < s->pieces)
            TSR_TRY(f->begin(s, i, err));
        if (two && i >= TSR_COMM_MIDDLE && i - TSR_COMM_MIDDLE < s->pieces)
            TSR_TRY(f->middle(s, i - TSR_COMM_MIDDLE, err));
        if (i >= TSR_COMM_FINISH && i - TSR_COMM_FINISH < s->pieces)
            TSR_TRY(f->finish(s, i - TSR_COMM_FINISH, err));
        if (s->g->beat)
            s->g->beat(s->g->ctx);
    }
    return TSR_OK;
}

tsr_status tsr_comm_sum_plan(struct tsr_comm_sum *s, struct tsr_err *err)
{
    s->each = tsr_comm_piece_rows(s->c, s->rows, s->cols);
    s->pieces = s->rows / s->each + (s->rows % s->each != 0);
    uint64_t left = s->rows % s->each ? s->rows % s->each : s->each;
    TSR_TRY(plan_piece(s->g, s->c, &s->g->whole, s->each, s->cols, err));
    return plan_piece(s->g, s->c, &s->g->last, left, s->cols, err);
}

tsr_status tsr_comm_group_run(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                              uint32_t site, float *x, uint64_t rows, uint64_t cols,
                              struct tsr_err *err)
{
    struct tsr_comm_sum s = { .g = g, .c = c, .site = site, .x = x, .rows = rows, .cols = cols };
    if (rows == 0 || cols == 0 || g->ranks == 1)
        return TSR_OK;
    TSR_TRY(tsr_comm_sum_plan(&s, err));
    TSR_TRY(make_room(g, err));
    return tsr_comm_sum_run(&s, &on_host, err);
}
