/* Quantizers that look at a whole block: a small one with all kinds of producers, made up. */
#include "conformance/quantizer/quantizer.h"

#include "tessera/quantizer_block.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define HIDDEN  96u
#define INNER   64u
#define HEAD    UINT64_C(8)
#define SITES   4
#define LOSS_MS 30u
#define LINEARS 3

/* attn_in (no producer): q, k, v; o_in (v): o; ffn_in (a norm): gate, up; down_in (up): down. */
static const struct {
    const char *name, *linears[LINEARS];
    uint64_t    n, rows, cols;
    uint32_t    producer;
    uint64_t    producer_site, producer_linear, takes, hadamard_cols;
} layout[SITES] = {
    { "attn_in",
      { "q_proj", "k_proj", "v_proj" },
      3,
      32,
      HIDDEN,
      TSR_PRODUCER_NONE,
      0,
      0,
      TSR_TAKES_KEYS,
      HEAD },
    { "o_in", { "o_proj" }, 1, HIDDEN, 32, TSR_PRODUCER_LINEAR, 0, 2, TSR_TAKES_MATRIX, 0 },
    { "ffn_in", { "gate_proj", "up_proj" }, 2, INNER, HIDDEN, TSR_PRODUCER_NORM, 0, 0, 0, 0 },
    { "down_in",
      { "down_proj" },
      1,
      HIDDEN,
      INNER,
      TSR_PRODUCER_LINEAR,
      2,
      1,
      TSR_TAKES_ORDER | TSR_TAKES_HADAMARD,
      INNER },
};

struct block {
    struct tsr_conformance_test_host    *slow;  /* loss() takes LOSS_MS and cancels; or NULL */
    uint64_t                             calls; /* of loss() */
    const struct tsr_quantizer_block_v1 *table;
    struct tsr_matrix                    w[SITES][LINEARS];
    const struct tsr_matrix             *list[SITES][LINEARS];
    struct tsr_quant_stats               stats[SITES];
    struct tsr_block_site                site[SITES];
    const struct tsr_block_site         *sites[SITES];
    float                               *clip[SITES][LINEARS];
    uint64_t                             groups[SITES];
    struct tsr_block_choice              choice[SITES];
    struct tsr_block_choice             *choices[SITES];
    char                                 names[SITES][LINEARS][64];
};

/* The user stops in the first loss() of a search; that one and those after it take their time. */
static void stop_slowly(struct tsr_conformance_test_host *h)
{
    struct timespec t;
    uint64_t        now, until = 0;
    if (!atomic_exchange(&h->cancel, 1)) {
        h->cancel_after_ms = 1; /* for the clock of tsr_conformance_test_host_late_ms() */
        tsr_conformance_test_host_start(h);
    }
    do {
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
        until = until ? until : now + LOSS_MS;
    } while (now < until);
}

/* Mean squared change of the linears' own outputs over the recorded inputs. */
static tsr_status loss(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                       double *mse, struct tsr_err *err)
{
    struct block                 *b = ctx;
    const struct tsr_quant_stats *s = site < SITES ? &b->stats[site] : NULL;
    double                        sum = 0.0;
    if (!s || !s->inputs)
        return tsr_fail(err, TSR_E_INVAL, "there are no recorded inputs of site %llu",
                        (unsigned long long)site);
    for (uint64_t i = 0; i < layout[site].n; i++)
        for (uint64_t r = 0; r < layout[site].rows; r++) {
            const float *a = tsr_conformance_quant_row(&b->w[site][i], r),
                        *z = tsr_conformance_quant_row(linears[i], r);
            for (uint64_t t = 0; t < s->input_rows; t++) {
                double d = 0.0;
                for (uint64_t k = 0; k < layout[site].cols; k++)
                    d += ((double)z[k] - (double)a[k]) * (double)s->inputs[t * s->cols + k];
                sum += d * d;
            }
        }
    b->calls++;
    if (b->slow)
        stop_slowly(b->slow);
    *mse = sum / (double)(s->input_rows * layout[site].rows * layout[site].n);
    return TSR_OK;
}

static float *filled(const char *name, uint64_t n, float value, bool guard)
{
    float *v = guard ? tsr_conformance_guarded(name, n * sizeof *v, 0)
                     : tsr_conformance_roomy(name, n * sizeof *v, 0);
    for (uint64_t i = 0; i < n; i++)
        v[i] = value;
    return v;
}

/* What a site takes, as it is without a transform. */
static void make_transforms(struct tsr_block_site *s, struct tsr_block_choice *c, bool guard)
{
    void *(*room)(const char *, uint64_t, unsigned char) =
        guard ? tsr_conformance_guarded : tsr_conformance_roomy;
    if (s->takes & TSR_TAKES_ORDER)
        c->order = room("order", s->cols * sizeof *c->order, 0);
    for (uint64_t i = 0; c->order && i < s->cols; i++)
        c->order[i] = (uint32_t)i;
    if (!(s->takes & TSR_TAKES_MATRIX))
        return;
    s->matrix_cols = HEAD;
    s->matrices = s->cols / HEAD;
    c->matrix = room("matrix", s->matrices * HEAD * HEAD * sizeof *c->matrix, 0);
    for (uint64_t i = 0; i < s->matrices * HEAD * HEAD; i++)
        c->matrix[i] = i / HEAD % HEAD == i % HEAD ? 1 : 0;
}

static void make_site(struct tsr_conformance_case *c, struct block *b, const void *self, uint64_t s,
                      bool guard)
{
    uint64_t          cols = layout[s].cols, need = b->table->block_need(self);
    struct tsr_format f = { .group = b->table->clip_group(self, cols) };
    b->groups[s] = tsr_format_groups(&f, cols);
    tsr_conformance_quant_stats_make(c, &b->stats[s], (need | need >> 32) & UINT32_MAX,
                                     layout[s].rows, cols);
    for (uint64_t i = 0; i < layout[s].n; i++) {
        b->w[s][i] = tsr_conformance_quant_matrix(c, layout[s].rows, cols, c->seed + 10 * s + i);
        (void)snprintf(b->names[s][i], sizeof b->names[s][i], "model.layers.0.%s",
                       layout[s].linears[i]);
        b->w[s][i].name = b->names[s][i];
        b->list[s][i] = &b->w[s][i];
        b->clip[s][i] = filled("clip", layout[s].rows * b->groups[s], INFINITY, guard);
    }
    b->site[s] = (struct tsr_block_site){ .struct_size = sizeof b->site[s],
                                          .producer = layout[s].producer,
                                          .name = layout[s].name,
                                          .cols = cols,
                                          .n_linears = layout[s].n,
                                          .linears = b->list[s],
                                          .stats = &b->stats[s],
                                          .producer_site = layout[s].producer_site,
                                          .producer_linear = layout[s].producer_linear,
                                          .takes = layout[s].takes,
                                          .hadamard_cols = layout[s].hadamard_cols };
    b->sites[s] = &b->site[s];
    b->choice[s] = (struct tsr_block_choice){ .struct_size = sizeof b->choice[s],
                                              .scale = filled("scale", cols, 1.0f, guard),
                                              .clip = b->clip[s] };
    b->choices[s] = &b->choice[s];
    make_transforms(&b->site[s], &b->choice[s], guard);
}

/* search() of a block that is the same each time, and its status.  self is destroyed. */
static struct block *search(struct tsr_conformance_case *c, bool guard, bool stop,
                            tsr_status *status, struct tsr_err *err)
{
    struct block *b = tsr_conformance_rule_memory(c, sizeof *b);
    void         *self = tsr_conformance_quant_make(c);
    b->slow = stop ? c->host : NULL;
    b->table =
        tsr_conformance_quant_table(c, self, TSR_QUANTIZER_BLOCK,
                                    TSR_CONFORMANCE_END(struct tsr_quantizer_block_v1, search));
    if (!b->table)
        tsr_conformance_rule_skip(c, "it looks at no block with these options");
    if (!b->table->block_need || !b->table->clip_group || !b->table->search)
        tsr_conformance_rule_fail(c, "a function of its table %s is NULL", TSR_QUANTIZER_BLOCK);
    for (uint64_t s = 0; s < SITES; s++)
        make_site(c, b, self, s, guard);
    struct tsr_block block = { .struct_size = sizeof block,
                               .name = "model.layers.0",
                               .n_sites = SITES,
                               .sites = b->sites,
                               .ctx = b,
                               .loss = loss };
    *status = b->table->search(self, &block, b->choices, err);
    tsr_conformance_quant_destroy(c, self);
    return b;
}

static const struct block *searched(struct tsr_conformance_case *c, bool guard)
{
    struct tsr_errbuf   e = TSR_ERRBUF(e);
    tsr_status          st;
    const struct block *b = search(c, guard, false, &st, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(c, "search() answers %s: %s", tsr_conformance_status_name(st),
                                  e.text);
    return b;
}

void tsr_conformance_quant_block_answers(struct tsr_conformance_case *c)
{
    const struct block *b = searched(c, false);
    for (uint64_t s = 0; s < SITES; s++) {
        for (uint64_t k = 0; k < layout[s].cols; k++) {
            float x = b->choice[s].scale[k];
            bool  none = layout[s].producer == TSR_PRODUCER_NONE;
            if (none ? x != 1.0f : !(x > 0.0f && isfinite(x)))
                tsr_conformance_rule_fail(c,
                                          "the scale of column %llu of site %s is %g; %s is wanted",
                                          (unsigned long long)k, layout[s].name, (double)x,
                                          none ? "1 (nothing takes it)" : "a positive number");
        }
        for (uint64_t i = 0; i < layout[s].n; i++)
            for (uint64_t k = 0; k < layout[s].rows * b->groups[s]; k++)
                if (!(b->clip[s][i][k] >= 0.0f))
                    tsr_conformance_rule_fail(c, "the clip of %s, row %llu group %llu, is %g",
                                              b->names[s][i],
                                              (unsigned long long)(k / b->groups[s]),
                                              (unsigned long long)(k % b->groups[s]),
                                              (double)b->clip[s][i][k]);
    }
}

static void check_order(struct tsr_conformance_case *c, const struct tsr_block_site *s,
                        const uint32_t *order)
{
    bool seen[INNER] = { false };
    for (uint64_t k = 0; k < s->cols; k++) {
        if (order[k] >= s->cols || seen[order[k]])
            tsr_conformance_rule_fail(c,
                                      "the order of site %s has column %u in place %llu; each "
                                      "below %llu is wanted once",
                                      s->name, order[k], (unsigned long long)k,
                                      (unsigned long long)s->cols);
        seen[order[k]] = true;
    }
}

static void check_matrices(struct tsr_conformance_case *c, const struct tsr_block_site *s,
                           const double *m)
{
    for (uint64_t at = 0; at < s->matrices; at++, m += HEAD * HEAD)
        for (uint64_t i = 0; i < HEAD; i++)
            for (uint64_t j = 0; j <= i; j++) {
                double dot = i == j ? -1 : 0;
                for (uint64_t k = 0; k < HEAD; k++)
                    dot += m[i * HEAD + k] * m[j * HEAD + k];
                if (!(fabs(dot) <= TSR_BLOCK_ORTHOGONAL))
                    tsr_conformance_rule_fail(
                        c, "rows %llu and %llu of matrix %llu of site %s are %g from orthogonal",
                        (unsigned long long)i, (unsigned long long)j, (unsigned long long)at,
                        s->name, dot);
            }
}

void tsr_conformance_quant_block_transforms(struct tsr_conformance_case *c)
{
    const struct block *b = searched(c, false);
    for (uint64_t s = 0; s < SITES; s++) {
        const struct tsr_block_site   *site = &b->site[s];
        const struct tsr_block_choice *x = &b->choice[s];
        if (x->order)
            check_order(c, site, x->order);
        if (x->matrix)
            check_matrices(c, site, x->matrix);
        /* the sizes here are powers of two */
        if (x->hadamard && (!site->hadamard_cols || site->hadamard_cols % x->hadamard))
            tsr_conformance_rule_fail(c,
                                      "the Hadamard transform of site %s has %llu columns; a "
                                      "divisor of %llu is wanted, 0 for none",
                                      site->name, (unsigned long long)x->hadamard,
                                      (unsigned long long)site->hadamard_cols);
        if (((site->takes & TSR_TAKES_ORDER) != 0) != (x->order != NULL) ||
            ((site->takes & TSR_TAKES_MATRIX) != 0) != (x->matrix != NULL))
            tsr_conformance_rule_fail(c, "search() changed a pointer of the choice of site %s",
                                      site->name);
    }
}

void tsr_conformance_quant_block_writes(struct tsr_conformance_case *c)
{
    const struct block *b = searched(c, true);
    for (uint64_t s = 0; s < SITES; s++) {
        struct tsr_quant_stats fresh;
        uint64_t               cols = layout[s].cols;
        if (!tsr_conformance_guarded_intact(b->choice[s].scale))
            tsr_conformance_rule_fail(c, "search() wrote past the end of the scales of site %s",
                                      layout[s].name);
        if ((b->choice[s].order && !tsr_conformance_guarded_intact(b->choice[s].order)) ||
            (b->choice[s].matrix && !tsr_conformance_guarded_intact(b->choice[s].matrix)))
            tsr_conformance_rule_fail(c, "search() wrote past the end of a transform of site %s",
                                      layout[s].name);
        for (uint64_t i = 0; i < layout[s].n; i++) {
            struct tsr_matrix w =
                tsr_conformance_quant_matrix(c, layout[s].rows, cols, c->seed + 10 * s + i);
            if (memcmp(w.data, b->w[s][i].data, layout[s].rows * cols * sizeof(float)) != 0)
                tsr_conformance_rule_fail(c, "search() changed the weights of %s", b->names[s][i]);
            if (!tsr_conformance_guarded_intact(b->clip[s][i]))
                tsr_conformance_rule_fail(c, "search() wrote past the end of the clips of %s",
                                          b->names[s][i]);
        }
        tsr_conformance_quant_stats_make(c, &fresh, TSR_NEED_INPUTS, layout[s].rows, cols);
        if (b->stats[s].inputs &&
            memcmp(fresh.inputs, b->stats[s].inputs, fresh.input_rows * cols * sizeof(float)) != 0)
            tsr_conformance_rule_fail(c, "search() changed the recorded inputs of site %s",
                                      layout[s].name);
    }
}

void tsr_conformance_quant_block_cancel(struct tsr_conformance_case *c)
{
    struct tsr_errbuf   e = TSR_ERRBUF(e);
    tsr_status          st;
    const struct block *b = search(c, false, true, &st, &e.err);
    double              late = tsr_conformance_test_host_late_ms(c->host);
    if (b->calls == 0)
        tsr_conformance_rule_skip(c, "its search asks for no loss");
    if (!(late <= 200.0 + LOSS_MS)) /* the loss() during which the user cancelled does not count */
        tsr_conformance_rule_fail(
            c,
            "its search went on for %.0f ms of processor time and %llu calls of loss() "
            "after the user had asked to stop, and answered %s",
            late, (unsigned long long)b->calls, tsr_conformance_status_name(st));
    if (st != TSR_OK && st != TSR_E_CANCELLED)
        tsr_conformance_rule_fail(
            c, "when it was stopped it answered %s instead of TSR_E_CANCELLED: %s",
            tsr_conformance_status_name(st), e.text);
}
