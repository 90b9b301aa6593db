/* Products of a quantizer's own kernel on a device (tessera/draft/kernel_device.h), held to those of linear().  The device
 * is that of a backend whose plugin --on names. */
#include "conformance/helpers.h"
#include "conformance/on.h"
#include "conformance/quantizer/quantizer.h"
#include "tessera/draft/launch.h"
#include "tessera/f16.h"

#include <string.h>

#define ROWS  UINT64_C(70)
#define COLS  UINT64_C(198)
#define BATCH UINT64_C(5)
#define GAP   UINT64_C(3) /* numbers between rows of inputs and of results */
#define GUARD UINT64_C(4096)
#define FILL  0x5a

struct bench {
    struct tsr_conformance_case                 *c;
    void                                        *self;
    const struct tsr_quantizer_kernel_v1        *k;
    const struct tsr_quantizer_kernel_device_v1 *d;
    struct tsr_conformance_quant_try             t;
    float                                       *x; /* [BATCH, COLS + GAP] */
    const struct tsr_backend_v1                 *b; /* the device */
    void                                        *dev, *loaded;
    const struct tsr_backend_launch_v1          *launch;
};

/* ---- the device ------------------------------------------------------------------------- */

/* code() for that device; a rule of its own looks at it. */
static const struct tsr_device_code *code_of(struct bench *b)
{
    const struct tsr_device_code *code = NULL;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    tsr_status                    st = b->d->code(b->self, b->launch->target, &code, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        tsr_conformance_rule_skip(b->c, "it has no code for %s", b->launch->target);
    tsr_conformance_rule_ok(b->c, st, &e, "code()");
    return code;
}

/* A packed matrix, inputs, and a device that may have the code. */
static void setup(struct bench *b, struct tsr_conformance_case *c, bool loaded)
{
    *b = (struct bench){ .c = c, .self = tsr_conformance_quant_make(c) };
    b->d = tsr_conformance_quant_table(c, b->self, TSR_QUANTIZER_KERNEL_DEVICE,
                                       TSR_CONFORMANCE_END(struct tsr_quantizer_kernel_device_v1,
                                                           launch));
    if (!b->d)
        tsr_conformance_rule_skip(c, "it has no table %s", TSR_QUANTIZER_KERNEL_DEVICE);
    b->k = tsr_conformance_quant_table(c, b->self, TSR_QUANTIZER_KERNEL,
                                       TSR_CONFORMANCE_END(struct tsr_quantizer_kernel_v1, linear));
    if (!b->k)
        tsr_conformance_rule_fail(c, "it has the table %s without %s", TSR_QUANTIZER_KERNEL_DEVICE,
                                  TSR_QUANTIZER_KERNEL);
    if (!TSR_HAS(struct tsr_quantizer_kernel_device_v1, b->d, launch) || !b->d->code ||
        !b->d->scratch)
        tsr_conformance_rule_fail(c, "a function of its table %s is NULL",
                                  TSR_QUANTIZER_KERNEL_DEVICE);
    uint64_t rows = tsr_conformance_quant_rows(c, b->self, ROWS, COLS);
    tsr_conformance_quant_destroy(c, b->self);
    b->t.w = tsr_conformance_quant_matrix(c, rows, COLS, c->seed);
    b->self = tsr_conformance_quant_must(c, &b->t);
    b->x = tsr_conformance_rule_memory(c, BATCH * (COLS + GAP) * sizeof *b->x);
    tsr_conformance_rule_normal(c, 901, b->x, BATCH * (COLS + GAP));
    b->b = tsr_conformance_on(c, &b->dev);
    b->launch = b->b->extension ? b->b->extension(b->dev, TSR_BACKEND_LAUNCH) : NULL;
    if (!b->launch)
        tsr_conformance_rule_skip(c, "--on %s: it launches no kernels of other plugins", c->o->on);
    const struct tsr_device_code *code = code_of(b);
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    if (loaded && (!code || b->launch->load(b->dev, code, &b->loaded, &e.err) != TSR_OK))
        tsr_conformance_rule_skip(c, "its code does not load; the rule device-code says why");
}

/* ---- a product --------------------------------------------------------------------------- */

struct part {
    uint64_t begin; /* the first unit; all others follow */
    uint64_t first, n;
    uint64_t col, cols, segment;
};

static uint64_t segments_of(const struct part *p)
{
    return (p->cols + p->segment - 1) / p->segment;
}

static struct tsr_kernel_weight weight_of(const struct bench *b, const struct part *p)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    const uint64_t                          from = p->begin * t->rows_per_unit;
    return (struct tsr_kernel_weight){ .struct_size = sizeof(struct tsr_kernel_weight),
                                       .dtype = t->w.dtype,
                                       .rows = t->w.rows,
                                       .cols = t->w.cols,
                                       .first_row = from,
                                       .n_rows = t->w.rows - from,
                                       .first_col = p->col,
                                       .n_cols = p->cols,
                                       .segment = p->segment };
}

/* Numbers of out: segments of tokens of rows, with gaps after each of them but the last. */
static uint64_t floats_of(const struct part *p, uint64_t rows)
{
    return segments_of(p) * p->n * (rows + GAP) - GAP;
}

/* What linear() wants to be made of w and of job's inputs. */
static void make(const struct bench *b, struct tsr_kernel_weight *w, struct tsr_kernel_job *job)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          bytes = 0;
    if (TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, prepare)) {
        tsr_conformance_rule_ok(b->c, b->k->prepared(b->self, w, &bytes, &e.err), &e, "prepared()");
        void *to = tsr_conformance_rule_room(bytes);
        tsr_conformance_rule_ok(b->c, b->k->prepare(b->self, w, to, &e.err), &e, "prepare()");
        w->prepared = to;
        w->prepared_row = w->first_row;
        w->prepared_rows = w->n_rows;
        w->codes = w->meta = NULL;
    }
    if (TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, inputs)) {
        tsr_conformance_rule_ok(b->c, b->k->input_bytes(b->self, w, job->n, &bytes, &e.err), &e,
                                "input_bytes()");
        void *to = tsr_conformance_rule_room(bytes);
        tsr_conformance_rule_ok(b->c, b->k->inputs(b->self, job, to, &e.err), &e, "inputs()");
        job->inputs = to;
    }
}

/* Whether linear() and the device take these columns; want: results of linear(). */
static bool expect(const struct bench *b, const struct part *p, float *want)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    struct tsr_kernel_weight                w = weight_of(b, p);
    struct tsr_errbuf                       e = TSR_ERRBUF(e);
    uint64_t                                bytes = 0;
    if (b->k->scratch(b->self, &w, p->n, &bytes, &e.err) != TSR_OK)
        return false;
    if (TSR_HAS(struct tsr_quantizer_kernel_v1, b->k, flags) && (b->k->flags & TSR_KERNEL_ADDS) &&
        p->cols > p->segment)
        return false; /* the device gives sums of segments */
    w.codes = t->codes + p->begin * t->plan.code_bytes;
    w.meta = t->meta + p->begin * t->plan.meta_bytes;
    struct tsr_kernel_weight of = w;
    struct tsr_kernel_job    job = { .struct_size = sizeof job,
                                     .weight = &of,
                                     .n = p->n,
                                     .in = b->x + p->first * (COLS + GAP) + p->col,
                                     .in_stride = COLS + GAP,
                                     .out = want,
                                     .out_stride = w.n_rows + GAP,
                                     .out_segment = p->n * (w.n_rows + GAP),
                                     .scratch = tsr_conformance_rule_room(bytes),
                                     .tokens = p->n };
    make(b, &of, &job);
    tsr_conformance_rule_ok(b->c, b->k->linear(b->self, &job, &e.err), &e, "linear()");
    tsr_status st = b->d->scratch(b->self, &w, p->n, &bytes, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        return false;
    tsr_conformance_rule_ok(b->c, st, &e, "scratch() for a device");
    return true;
}

/* Device memory between two guards. */
struct room {
    void    *buffer;
    uint64_t bytes, address; /* of what is inside */
};

static struct room room_new(const struct bench *b, uint64_t bytes, const void *from)
{
    struct room       r = { .bytes = bytes };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const uint64_t    all = bytes + 2 * GUARD;
    unsigned char    *with = tsr_conformance_rule_room(all);
    memset(with, FILL, all);
    if (from)
        memcpy(with + GUARD, from, bytes);
    tsr_status st = b->b->buffer_alloc(b->dev, all, &r.buffer, &e.err);
    if (st == TSR_OK)
        st = b->b->upload(b->dev, r.buffer, 0, with, all, &e.err);
    if (st != TSR_OK)
        tsr_conformance_rule_skip(b->c, "the device: %s", e.text);
    r.address = b->launch->address(b->dev, r.buffer) + GUARD;
    return r;
}

/* What is there now, with the guards, of which the rule about writes says what is wrong. */
static unsigned char *room_read(const struct bench *b, const struct room *r)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const uint64_t    all = r->bytes + 2 * GUARD;
    unsigned char    *got = tsr_conformance_rule_room(all);
    if (b->b->download(b->dev, r->buffer, 0, got, all, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(b->c, "the device: %s", e.text);
    return got;
}

struct product {
    struct room              codes, meta, in, out, scratch;
    struct tsr_kernel_weight w;
    struct tsr_device_job    job;
};

static void make_product(const struct bench *b, const struct part *p, struct product *x)
{
    const struct tsr_conformance_quant_try *t = &b->t;
    struct tsr_errbuf                       e = TSR_ERRBUF(e);
    const uint64_t code = p->begin * t->plan.code_bytes, meta = p->begin * t->plan.meta_bytes;
    uint64_t       bytes = 0;
    x->w = weight_of(b, p);
    tsr_conformance_rule_ok(b->c, b->d->scratch(b->self, &x->w, p->n, &bytes, &e.err), &e,
                            "scratch() for a device");
    x->codes = room_new(b, t->code_bytes - code, t->codes + code);
    x->meta = room_new(b, t->meta_bytes - meta, t->meta_bytes ? t->meta + meta : NULL);
    x->in = room_new(b, BATCH * (COLS + GAP) * sizeof(float), b->x);
    x->out = room_new(b, floats_of(p, x->w.n_rows) * sizeof(float), NULL);
    x->scratch = room_new(b, bytes, NULL);
    x->job = (struct tsr_device_job){
        .struct_size = sizeof x->job,
        .weight = &x->w,
        .n = p->n,
        .codes = x->codes.address,
        .meta = t->meta_bytes ? x->meta.address : 0,
        .in = x->in.address + (p->first * (COLS + GAP) + p->col) * sizeof(float),
        .out = x->out.address,
        .scratch = x->scratch.address,
        .in_stride = COLS + GAP,
        .out_stride = x->w.n_rows + GAP,
        .out_segment = p->n * (x->w.n_rows + GAP),
    };
}

static void run_product(const struct bench *b, const struct part *p, struct product *x)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_device_launch l = { .struct_size = sizeof l };
    make_product(b, p, x);
    tsr_conformance_rule_ok(b->c, b->d->launch(b->self, &x->job, &l, &e.err), &e, "launch()");
    tsr_status st = b->launch->launch(b->dev, NULL, b->loaded, &l, &e.err);
    if (st == TSR_OK)
        st = b->b->sync(b->dev, NULL, &e.err);
    if (st == TSR_E_INVAL)
        tsr_conformance_rule_skip(b->c, "a launch is out of range; the rule device-launch says so");
    tsr_conformance_rule_ok(b->c, st, &e, "the launch");
}

static void free_product(const struct bench *b, struct product *x)
{
    const struct room *const all[] = { &x->codes, &x->meta, &x->in, &x->out, &x->scratch };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        b->b->buffer_free(b->dev, all[i]->buffer);
}

/* ---- rules ------------------------------------------------------------------------------------ */

void tsr_conformance_quant_device_code(struct tsr_conformance_case *c)
{
    struct bench                  b;
    const struct tsr_device_code *again;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    setup(&b, c, false);
    const struct tsr_device_code *code = code_of(&b);
    if (!code)
        tsr_conformance_rule_fail(c, "code() returns TSR_OK and no code");
    if (b.d->code(b.self, b.launch->target, &again, &e.err) != TSR_OK || again != code)
        tsr_conformance_rule_fail(c, "code() does not give the same the second time");
    tsr_conformance_rule_ok(c, b.launch->load(b.dev, code, &b.loaded, &e.err), &e,
                            "loading its code");
}

/* Products of few and many tokens, of all columns and of some, from the first row and from a later one. */
static const struct part parts[] = {
    { 0, 0, 1, 0, COLS, COLS },     { 0, 0, BATCH, 0, COLS, COLS },
    { 0, 3, 2, 0, COLS, COLS },     { 0, 0, BATCH, 0, COLS, 32 },
    { 0, 1, 3, 64, COLS - 64, 64 }, { 1, 0, BATCH, 0, COLS, COLS },
    { 1, 4, 1, 96, 64, 32 },        { 0, 0, BATCH, 192, COLS - 192, 32 },
};
#define PARTS (sizeof parts / sizeof *parts)

static bool has_units(const struct bench *b, const struct part *p)
{
    return p->begin < b->t.units;
}

void tsr_conformance_quant_device_launch(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c, true);
    for (unsigned i = 0; i < PARTS; i++) {
        const struct part       *p = &parts[i];
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_device_launch l[2] = { { .struct_size = sizeof *l },
                                          { .struct_size = sizeof *l } };
        struct product           x;
        if (!has_units(&b, p) ||
            !expect(&b, p, tsr_conformance_rule_room(floats_of(p, b.t.w.rows) * sizeof(float))))
            continue;
        make_product(&b, p, &x);
        for (int k = 0; k < 2; k++)
            tsr_conformance_rule_ok(c, b.d->launch(b.self, &x.job, &l[k], &e.err), &e, "launch()");
        if (memcmp(&l[0], &l[1], sizeof l[0]) != 0)
            tsr_conformance_rule_fail(c, "launch() gives another launch for the same job");
        tsr_conformance_rule_ok(c, b.launch->launch(b.dev, NULL, b.loaded, &l[0], &e.err), &e,
                                "the launch");
        free_product(&b, &x);
    }
}

void tsr_conformance_quant_device_same(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c, true);
    for (unsigned i = 0; i < PARTS; i++) {
        const struct part *p = &parts[i];
        struct product     x;
        float *want = tsr_conformance_rule_room(floats_of(p, b.t.w.rows) * sizeof *want);
        if (!has_units(&b, p) || !expect(&b, p, want))
            continue;
        run_product(&b, p, &x);
        const uint64_t stride = x.job.out_stride;
        const float   *got = (const float *)(const void *)(room_read(&b, &x.out) + GUARD);
        for (uint64_t k = 0; k < floats_of(p, x.w.n_rows); k++) {
            const uint64_t row = k % stride, token = k / stride;
            if (row < x.w.n_rows && tsr_f32_bits(got[k]) != tsr_f32_bits(want[k]))
                tsr_conformance_rule_fail(
                    c,
                    "row %llu of the units from %llu, token %llu of %llu, segment %llu, is %.9g on "
                    "the device and %.9g by linear()",
                    (unsigned long long)row, (unsigned long long)p->begin,
                    (unsigned long long)token % p->n, (unsigned long long)p->n,
                    (unsigned long long)token / p->n, (double)got[k], (double)want[k]);
        }
        free_product(&b, &x);
    }
}

/* Fails unless the guards are whole, and from, if there, is what is between them. */
static void check_room(const struct bench *b, const struct room *r, const void *from,
                       const char *what)
{
    const unsigned char *got = room_read(b, r);
    for (uint64_t i = 0; i < r->bytes + 2 * GUARD; i++)
        if ((i < GUARD || i >= GUARD + r->bytes) && got[i] != FILL)
            tsr_conformance_rule_fail(b->c, "the kernel wrote %s %s, at byte %lld of %llu",
                                      i < GUARD ? "before" : "behind", what, (long long)(i - GUARD),
                                      (unsigned long long)r->bytes);
    if (from && memcmp(got + GUARD, from, r->bytes) != 0)
        tsr_conformance_rule_fail(b->c, "the kernel wrote to %s", what);
}

void tsr_conformance_quant_device_writes(struct tsr_conformance_case *c)
{
    struct bench b;
    setup(&b, c, true);
    for (unsigned i = 0; i < PARTS; i++) {
        const struct part *p = &parts[i];
        struct product     x;
        if (!has_units(&b, p) ||
            !expect(&b, p, tsr_conformance_rule_room(floats_of(p, b.t.w.rows) * sizeof(float))))
            continue;
        run_product(&b, p, &x);
        check_room(&b, &x.codes, b.t.codes + p->begin * b.t.plan.code_bytes, "codes");
        check_room(&b, &x.meta, b.t.meta_bytes ? b.t.meta + p->begin * b.t.plan.meta_bytes : NULL,
                   "meta");
        check_room(&b, &x.in, b.x, "its inputs");
        check_room(&b, &x.scratch, NULL, "scratch");
        check_room(&b, &x.out, NULL, "out");
        const unsigned char *got = room_read(&b, &x.out) + GUARD;
        for (uint64_t k = 0; k < x.out.bytes; k++)
            if (k / sizeof(float) % x.job.out_stride >= x.w.n_rows && got[k] != FILL)
                tsr_conformance_rule_fail(
                    c, "the kernel wrote between the rows of out, behind token %llu",
                    (unsigned long long)k / sizeof(float) / x.job.out_stride);
        free_product(&b, &x);
    }
}
