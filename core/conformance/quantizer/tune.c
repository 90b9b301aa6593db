/* Quantizers that pack blocks: a made-up one of two linears, out = x up^T down^T, with its gradients.  It answers
 * requests that a host refuses, too, so that each fault breaks its own rule only. */
#include "conformance/quantizer/quantizer.h"
#include "conformance/quantizer/tune_block.h"

#include "tessera/quantizer_tune.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define RUN_MS 30u

struct block {
    struct tsr_conformance_case        *c;
    struct tsr_conformance_test_host   *slow; /* a trial takes RUN_MS, the first cancels; or NULL */
    const struct tsr_quantizer_tune_v1 *table;
    struct tsr_tune_block               shown;
    struct tsr_matrix                   w[LINEARS];
    const struct tsr_matrix            *list[LINEARS];
    struct tsr_tune_packed              packed[LINEARS];
    struct tsr_tune_packed             *packs[LINEARS];
    uint64_t                            code_bytes[LINEARS], meta_bytes[LINEARS];
    float                              *in, *out; /* [ROWS, HIDDEN] */
    bool                                open;     /* tune() runs */
    pthread_t                           thread;
    uint64_t trials, outside; /* that were run, and asked for at a wrong time */
    char     wrong[256];      /* the first request that no host takes */
};

/* ---- the block -------------------------------------------------------------------------- */

static void trial(const struct block *b, const uint64_t *sequence, uint64_t n,
                  const float *const w[LINEARS], struct tsr_tune_trial *t)
{
    double sum = 0.0, size = (double)(n * TOKENS * HIDDEN), y[HIDDEN], d[HIDDEN];
    float  inner[INNER];
    for (int i = 0; i < LINEARS; i++)
        if (t->gradients && t->gradients[i])
            memset(t->gradients[i], 0, HIDDEN * INNER * sizeof(float));
    for (uint64_t i = 0; i < n * TOKENS; i++) {
        uint64_t row = (sequence ? sequence[i / TOKENS] : i / TOKENS) * TOKENS + i % TOKENS;
        tune_block_forward(w, b->in + row * HIDDEN, inner, y);
        for (uint64_t k = 0; k < HIDDEN; k++) {
            double off = y[k] - (double)b->out[row * HIDDEN + k];
            sum += off * off;
            d[k] = 2.0 * off / size;
            if (t->output)
                t->output[i * HIDDEN + k] = (float)y[k];
        }
        if (t->gradients)
            tune_block_backward(w, b->in + row * HIDDEN, inner, d, t->gradients);
    }
    t->mse = sum / size;
}

/* The user stops in the first trial; that one and those after it take their time. */
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
        until = until ? until : now + RUN_MS;
    } while (now < until);
}

/* ---- what is asked for -------------------------------------------------------------------- */

static void note(struct block *b, const char *what, uint64_t i, uint64_t k)
{
    if (!b->wrong[0])
        (void)snprintf(b->wrong, sizeof b->wrong, what, (unsigned long long)i,
                       (unsigned long long)k);
}

static bool sequences_exist(struct block *b, const uint64_t *sequence, uint64_t n)
{
    bool ok = sequence ? n > 0 && n <= SEQUENCES : n == 0;
    if (!ok)
        note(b, "run() gets a list of %llu sequences, %llu are recorded", n, SEQUENCES);
    for (uint64_t i = 0; ok && sequence && i < n; i++)
        if (sequence[i] >= SEQUENCES) {
            note(b, "run() gets sequence %llu, %llu are recorded", sequence[i], SEQUENCES);
            ok = false;
        }
    return ok;
}

/* The weights of a trial; the original one in place of a matrix that does not fit. */
static const float *weights(struct block *b, const struct tsr_tune_trial *t, int i)
{
    const struct tsr_matrix *own = &b->w[i], *w = t->linears ? t->linears[i] : NULL;
    if (!w)
        return own->data;
    if (w->dtype == TSR_F32 && w->data && w->rows == own->rows && w->cols == own->cols &&
        w->row_stride == own->cols * sizeof(float))
        return w->data;
    note(b, "a trial has a matrix of %llux%llu that does not fit its linear", w->rows, w->cols);
    return own->data;
}

static tsr_status run(void *ctx, const uint64_t *sequence, uint64_t n,
                      struct tsr_tune_trial *const *trials, uint64_t n_trials, struct tsr_err *err)
{
    struct block *b = ctx;
    if (!b->open || !pthread_equal(pthread_self(), b->thread)) {
        b->outside++;
        return tsr_fail(err, TSR_E_INVAL, "run() outside of tune()");
    }
    bool exist = sequences_exist(b, sequence, n);
    for (uint64_t i = 0; i < n_trials; i++) {
        const float *w[LINEARS] = { weights(b, trials[i], UP), weights(b, trials[i], DOWN) };
        b->trials++;
        if (b->slow)
            stop_slowly(b->slow);
        trial(b, exist ? sequence : NULL, exist && sequence ? n : SEQUENCES, w, trials[i]);
    }
    return TSR_OK;
}

/* ---- a call of tune() ----------------------------------------------------------------------- */

static void *buffer(const char *name, uint64_t bytes, unsigned char fill, bool guard)
{
    return guard ? tsr_conformance_guarded(name, bytes, fill)
                 : tsr_conformance_roomy(name, bytes, fill);
}

static struct tsr_matrix linear(struct block *b, int i, bool guard)
{
    uint64_t          rows = i == UP ? INNER : HIDDEN, cols = i == UP ? HIDDEN : INNER;
    struct tsr_matrix w = tsr_conformance_quant_matrix(b->c, rows, cols, b->c->seed + (uint64_t)i);
    float            *v = buffer("weights", rows * cols * sizeof *v, 0, guard);
    for (uint64_t r = 0; r < rows; r++)
        memcpy(v + r * cols, tsr_conformance_quant_row(&w, r), cols * sizeof *v);
    w.data = v;
    w.row_stride = cols * sizeof *v;
    w.name = i == UP ? "model.layers.0.mlp.up_proj" : "model.layers.0.mlp.down_proj";
    return w;
}

static void record(struct block *b, bool guard)
{
    struct tsr_matrix x = tsr_conformance_quant_matrix(b->c, ROWS, HIDDEN, b->c->seed + 9);
    const float      *w[LINEARS] = { b->w[UP].data, b->w[DOWN].data };
    float             inner[INNER];
    double            y[HIDDEN];
    b->in = buffer("the inputs", ROWS * HIDDEN * sizeof *b->in, 0, guard);
    b->out = buffer("the outputs", ROWS * HIDDEN * sizeof *b->out, 0, guard);
    for (uint64_t i = 0; i < ROWS; i++) {
        memcpy(b->in + i * HIDDEN, tsr_conformance_quant_row(&x, i), HIDDEN * sizeof *b->in);
        tune_block_forward(w, b->in + i * HIDDEN, inner, y);
        for (uint64_t k = 0; k < HIDDEN; k++)
            b->out[i * HIDDEN + k] = (float)y[k];
    }
}

static void room(struct block *b, const void *self, int i, unsigned char fill, bool guard)
{
    struct tsr_quant_plan p;
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    if (tsr_quant_plan(b->c, self, &b->w[i], &p, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(b->c, "it packs no matrix of %llux%llu: %s",
                                  (unsigned long long)b->w[i].rows,
                                  (unsigned long long)b->w[i].cols, e.text);
    uint64_t unit = p.rows_per_unit ? p.rows_per_unit : b->w[i].rows;
    uint64_t units = (b->w[i].rows + unit - 1) / unit;
    b->code_bytes[i] = units * p.code_bytes;
    b->meta_bytes[i] = units * p.meta_bytes;
    b->packed[i] =
        (struct tsr_tune_packed){ .struct_size = sizeof b->packed[i],
                                  .codes = buffer("codes", b->code_bytes[i], fill, guard),
                                  .meta = buffer("meta", b->meta_bytes[i], fill, guard) };
    b->packs[i] = &b->packed[i];
}

/* Makes a block for the instance; skips the rule for one that packs none. */
static struct block *block_new(struct tsr_conformance_case *c, void *self, unsigned char fill,
                               bool guard)
{
    struct block *b = tsr_conformance_rule_memory(c, sizeof *b);
    b->c = c;
    b->table = tsr_conformance_quant_table(c, self, TSR_QUANTIZER_TUNE,
                                           TSR_CONFORMANCE_END(struct tsr_quantizer_tune_v1, tune));
    if (!b->table)
        tsr_conformance_rule_skip(c, "it packs no block with these options");
    if (!b->table->budget || !b->table->tune)
        tsr_conformance_rule_fail(c, "a function of its table %s is NULL", TSR_QUANTIZER_TUNE);
    for (int i = 0; i < LINEARS; i++) {
        b->w[i] = linear(b, i, guard);
        b->list[i] = &b->w[i];
        room(b, self, i, fill, guard);
    }
    record(b, guard);
    b->shown = (struct tsr_tune_block){ .struct_size = sizeof b->shown,
                                        .name = "model.layers.0",
                                        .n_linears = LINEARS,
                                        .linears = b->list,
                                        .sequences = SEQUENCES,
                                        .tokens = TOKENS,
                                        .hidden = HIDDEN,
                                        .inputs = b->in,
                                        .outputs = b->out,
                                        .budget = b->table->budget(self),
                                        .ctx = b,
                                        .run = run };
    return b;
}

static tsr_status tune(struct block *b, void *self, struct tsr_err *err)
{
    b->thread = pthread_self();
    b->open = true;
    tsr_status st = b->table->tune(self, &b->shown, b->packs, err);
    b->open = false;
    return st;
}

static void tune_must(struct block *b, void *self)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = tune(b, self, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_fail(b->c, "tune() answers %s: %s", tsr_conformance_status_name(st),
                                  e.text);
}

/* A whole life: create, tune, destroy. */
static struct block *tuned(struct tsr_conformance_case *c, unsigned char fill, bool guard)
{
    void         *self = tsr_conformance_quant_make(c);
    struct block *b = block_new(c, self, fill, guard);
    tune_must(b, self);
    tsr_conformance_quant_destroy(c, self);
    return b;
}

/* ---- rules ------------------------------------------------------------------------------------ */

void tsr_conformance_quant_tune_budget(struct tsr_conformance_case *c)
{
    const struct block *b = tuned(c, 0, false);
    if (b->trials > b->shown.budget)
        tsr_conformance_rule_fail(c, "tune() runs %llu trials, and budget() says %llu at most",
                                  (unsigned long long)b->trials,
                                  (unsigned long long)b->shown.budget);
}

void tsr_conformance_quant_tune_asks(struct tsr_conformance_case *c)
{
    const struct block *b = tuned(c, 0, false);
    if (b->wrong[0])
        tsr_conformance_rule_fail(c, "%s", b->wrong);
}

void tsr_conformance_quant_tune_window(struct tsr_conformance_case *c)
{
    const struct block *b = tuned(c, 0, false);
    if (b->outside)
        tsr_conformance_rule_fail(c,
                                  "%llu calls of run() come from another thread or after tune() "
                                  "has returned",
                                  (unsigned long long)b->outside);
}

/* From now on no byte of the block can be read. */
static void hide(const struct block *b)
{
    for (int i = 0; i < LINEARS; i++) {
        tsr_conformance_guarded_protect(b->w[i].data, false);
        tsr_conformance_guarded_protect(b->packed[i].codes, false);
        tsr_conformance_guarded_protect(b->packed[i].meta, false);
    }
    tsr_conformance_guarded_protect(b->in, false);
    tsr_conformance_guarded_protect(b->out, false);
}

/* What is read after its time crashes, and the crash names the buffer. */
void tsr_conformance_quant_tune_forgets(struct tsr_conformance_case *c)
{
    void         *self = tsr_conformance_quant_make(c);
    struct block *b[2];
    for (int i = 0; i < 2; i++) {
        b[i] = block_new(c, self, 0, false);
        tune_must(b[i], self);
        hide(b[i]);
    }
    tsr_conformance_quant_destroy(c, self);
}

static void same_numbers(const struct block *b, const float *now, const float *was, uint64_t n,
                         const char *what)
{
    if (memcmp(now, was, n * sizeof *now) != 0)
        tsr_conformance_rule_fail(b->c, "tune() changed %s", what);
}

/* A byte that keeps two different fills was not written. */
static void written(const struct block *a, const struct block *z, int i, bool meta)
{
    const unsigned char *x = meta ? a->packed[i].meta : a->packed[i].codes;
    const unsigned char *y = meta ? z->packed[i].meta : z->packed[i].codes;
    uint64_t             n = meta ? a->meta_bytes[i] : a->code_bytes[i];
    if (!tsr_conformance_guarded_intact(x))
        tsr_conformance_rule_fail(a->c, "tune() wrote past the end of the %s of %s",
                                  meta ? "meta" : "codes", a->w[i].name);
    for (uint64_t k = 0; k < n; k++)
        if (x[k] == 0xA5 && y[k] == 0x5A)
            tsr_conformance_rule_fail(a->c, "tune() does not write byte %llu of the %s of %s",
                                      (unsigned long long)k, meta ? "meta" : "codes", a->w[i].name);
}

void tsr_conformance_quant_tune_writes(struct tsr_conformance_case *c)
{
    const struct block *a = tuned(c, 0xA5, true), *z = tuned(c, 0x5A, true);
    void               *self = tsr_conformance_quant_make(c);
    const struct block *fresh = block_new(c, self, 0, false);
    for (int i = 0; i < LINEARS; i++) {
        written(a, z, i, false);
        written(a, z, i, true);
        same_numbers(a, a->w[i].data, fresh->w[i].data, HIDDEN * INNER, a->w[i].name);
    }
    same_numbers(a, a->in, fresh->in, ROWS * HIDDEN, "the recorded inputs");
    same_numbers(a, a->out, fresh->out, ROWS * HIDDEN, "the recorded outputs");
    tsr_conformance_quant_destroy(c, self);
}

void tsr_conformance_quant_tune_repeats(struct tsr_conformance_case *c)
{
    if (!(tsr_conformance_quant_iface(c)->promises & TSR_QUANT_DETERMINISTIC))
        tsr_conformance_rule_skip(c, "it does not promise to be deterministic");
    const struct block *a = tuned(c, 0, false);
    tsr_conformance_test_host_init(c->host, 4);
    const struct block *z = tuned(c, 0, false);
    for (int i = 0; i < LINEARS; i++)
        if (memcmp(a->packed[i].codes, z->packed[i].codes, a->code_bytes[i]) != 0 ||
            memcmp(a->packed[i].meta, z->packed[i].meta, a->meta_bytes[i]) != 0)
            tsr_conformance_rule_fail(c,
                                      "tune() packs %s to other bytes the second time, with four "
                                      "workers",
                                      a->w[i].name);
}

void tsr_conformance_quant_tune_cancel(struct tsr_conformance_case *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = tsr_conformance_quant_make(c);
    struct block     *b = block_new(c, self, 0, false);
    b->slow = c->host;
    tsr_status st = tune(b, self, &e.err);
    double     late = tsr_conformance_test_host_late_ms(c->host);
    tsr_conformance_quant_destroy(c, self);
    if (b->trials == 0)
        tsr_conformance_rule_skip(c, "it runs no trial");
    if (!(late <= 200.0 + RUN_MS)) /* the trial during which the user cancelled does not count */
        tsr_conformance_rule_fail(c,
                                  "tune() went on for %.0f ms of processor time and %llu trials "
                                  "after the user had asked to stop, and answered %s",
                                  late, (unsigned long long)b->trials,
                                  tsr_conformance_status_name(st));
    if (st != TSR_OK && st != TSR_E_CANCELLED)
        tsr_conformance_rule_fail(
            c, "when it was stopped it answered %s instead of TSR_E_CANCELLED: %s",
            tsr_conformance_status_name(st), e.text);
}
