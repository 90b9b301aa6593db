/* Backends: the rules about operations. */
#include "conformance/backend/backend.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

static void declined(struct tsr_conformance_case *c, uint32_t op)
{
    tsr_conformance_rule_skip(c, "the backend declines %s", tsr_conformance_op_name(op));
}

/* ---- one operation ------------------------------------------------------------- */

static void compare(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    double *got = tsr_conformance_rule_memory(d->c, t->n * sizeof *got);
    tsr_conformance_trial_values(t, tsr_conformance_grid_rows(d, &t->out), got);
    for (uint64_t i = 0; i < t->n; i++)
        if (!(fabs(got[i] - t->want[i]) <= t->room[i]))
            tsr_conformance_rule_fail(d->c,
                                      "%s: number %llu of the output is %.9g, wanted %.9g +- %.2g",
                                      t->what, U(i), got[i], t->want[i], t->room[i]);
}

static void operation(struct tsr_conformance_case *c, uint32_t op)
{
    struct tsr_conformance_device d;
    uint64_t                      taken = 0;
    tsr_conformance_device_make(&d, c);
    for (uint64_t v = 0; v < tsr_conformance_trial_count(op); v++) {
        struct tsr_conformance_trial t;
        if (!tsr_conformance_trial_make(&d, &t, op, v) || !tsr_conformance_trial_run(&d, &t))
            continue;
        taken++;
        compare(&d, &t);
    }
    if (taken == 0)
        declined(c, op);
}

void tsr_backend_rule_linear(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_LINEAR);
}
void tsr_backend_rule_embed(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_EMBED);
}
void tsr_backend_rule_norm(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_NORM);
}
void tsr_backend_rule_rope(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_ROPE);
}
void tsr_backend_rule_kv_store(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_KV_STORE);
}
void tsr_backend_rule_attention(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_ATTENTION);
}
void tsr_backend_rule_act_func(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_ACT);
}
void tsr_backend_rule_add(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_ADD);
}
void tsr_backend_rule_scale(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_SCALE);
}
void tsr_backend_rule_gather(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_GATHER);
}

void tsr_backend_rule_mix(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_MIX);
}
void tsr_backend_rule_columns(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_COLUMNS);
}
void tsr_backend_rule_hadamard(struct tsr_conformance_case *c)
{
    operation(c, TSR_OP_HADAMARD);
}

/* ---- all operations --------------------------------------------------------------- */

/* Runs look() after every trial that the device takes. */
static void every_trial(struct tsr_conformance_case *c,
                        void (*look)(struct tsr_conformance_device *d,
                                     struct tsr_conformance_trial *t, uint64_t variant))
{
    struct tsr_conformance_device d;
    uint64_t                      taken = 0;
    tsr_conformance_device_make(&d, c);
    for (uint32_t op = TSR_OP_LINEAR; op <= TSR_OP_HADAMARD; op++)
        for (uint64_t v = 0; v < tsr_conformance_trial_count(op); v++) {
            struct tsr_conformance_trial t;
            if (!tsr_conformance_trial_make(&d, &t, op, v) || !tsr_conformance_trial_run(&d, &t))
                continue;
            taken++;
            look(&d, &t, v);
        }
    if (taken == 0)
        tsr_conformance_rule_skip(c, "the backend declines every operation");
}

static void nothing_beside(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                           uint64_t variant)
{
    (void)variant;
    uint64_t at = tsr_conformance_grid_spoilt(d, &t->out);
    if (at < t->out.bytes)
        tsr_conformance_rule_fail(d->c,
                                  "%s writes byte %llu of the output's buffer, outside its rows",
                                  t->what, U(at));
    for (uint32_t i = 0; i < TSR_OP_INPUTS; i++) {
        if (!t->op.in[i])
            continue;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        unsigned char    *now = tsr_conformance_rule_memory(d->c, t->in[i].bytes);
        tsr_conformance_rule_ok(d->c,
                                d->t->download(d->self, t->in[i].t.buffer, 0, now, t->in[i].bytes,
                                               &e.err),
                                &e, "download()");
        at = tsr_conformance_rule_differ(now, t->in[i].image, t->in[i].bytes);
        if (at < t->in[i].bytes)
            tsr_conformance_rule_fail(d->c, "%s changes byte %llu of input %u", t->what, U(at), i);
    }
}

void tsr_backend_rule_writes(struct tsr_conformance_case *c)
{
    every_trial(c, nothing_beside);
}

/* The same operation once more, on threads; other rules check its result. */
static void again(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                  uint64_t variant)
{
    const struct tsr_tensor     *out = &t->out.t;
    uint64_t                     n = out->rows * out->cols * tsr_dtype_size(out->dtype);
    struct tsr_conformance_trial u;
    const char                  *first = tsr_conformance_grid_rows(d, &t->out);
    for (uint32_t i = 0; i < 3; i++) {
        d->c->host->workers = i == 0 ? 1 : 4;
        if (!tsr_conformance_trial_make(d, &u, t->op.kind, variant) ||
            !tsr_conformance_trial_run(d, &u))
            tsr_conformance_rule_fail(d->c, "%s is declined the second time", t->what);
        uint64_t at = tsr_conformance_rule_differ(first, tsr_conformance_grid_rows(d, &u.out), n);
        if (at < n)
            tsr_conformance_rule_fail(d->c,
                                      "%s gives another byte %llu the next time, with %u thread%s",
                                      t->what, U(at), d->c->host->workers,
                                      d->c->host->workers == 1 ? "" : "s");
    }
    d->c->host->workers = 1;
}

void tsr_backend_rule_repeats(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    tsr_conformance_device_make(&d, c);
    if (!d.exact)
        tsr_conformance_rule_skip(c, "the backend does not say that it is deterministic");
    every_trial(c, again);
}

static bool may_be_in_place(const struct tsr_op *op, uint32_t i)
{
    if (!op->in[i] || op->kind == TSR_OP_LINEAR)
        return false;
    if (op->kind == TSR_OP_ADD)
        return i < 2;
    return i == 0 &&
           (op->kind == TSR_OP_NORM || op->kind == TSR_OP_ROPE || op->kind == TSR_OP_ACT ||
            op->kind == TSR_OP_SCALE || op->kind == TSR_OP_HADAMARD);
}

static void same_in_place(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                          uint64_t variant)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct tsr_conformance_trial u;
        if (!may_be_in_place(&t->op, i) || !tsr_conformance_trial_make(d, &u, t->op.kind, variant))
            continue;
        u.op.out = &u.in[i].t;
        if (!tsr_conformance_trial_run(d, &u))
            tsr_conformance_rule_fail(d->c, "%s is declined with its output in place of input %u",
                                      t->what, i);
        const float *a = tsr_conformance_grid_rows(d, &t->out),
                    *b = tsr_conformance_grid_rows(d, &u.in[i]);
        for (uint64_t k = 0; k < t->n; k++)
            if (!(fabs((double)a[k] - (double)b[k]) <= t->room[k]))
                tsr_conformance_rule_fail(
                    d->c,
                    "%s: number %llu is %.9g, and %.9g with the output in place of "
                    "input %u",
                    t->what, U(k), (double)a[k], (double)b[k], i);
    }
}

void tsr_backend_rule_in_place(struct tsr_conformance_case *c)
{
    every_trial(c, same_in_place);
}

/* ---- the stream --------------------------------------------------------------------- */

#define CHAIN 19u

static void chain_step(struct tsr_conformance_device *d, const struct tsr_op *op)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = d->t->run(d->self, NULL, op, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        declined(d->c, op->kind);
    tsr_conformance_rule_ok(d->c, st, &e, "%s in a chain", tsr_conformance_op_name(op->kind));
}

/* y = 2 y + x again and again, from x: whole numbers, so that every step is exact in any arithmetic of F32,
 * and each step needs the one before. */
void tsr_backend_rule_order(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_conformance_grid   x, y, z;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    const uint64_t                n = 64;
    float                        *small = tsr_conformance_rule_memory(c, n * 4),
          *zero = tsr_conformance_rule_memory(c, n * 4);
    for (uint64_t i = 0; i < n; i++)
        small[i] = (float)(i % 15 + 1);
    tsr_conformance_device_make(&d, c);
    tsr_conformance_grid_make(&d, &x, TSR_F32, 1, n, small);
    tsr_conformance_grid_make(&d, &y, TSR_F32, 1, n, small);
    tsr_conformance_grid_make(&d, &z, TSR_F32, 1, n, zero);
    struct tsr_op twice = {
        .struct_size = sizeof twice, .kind = TSR_OP_SCALE, .out = &z.t, .in = { &y.t }, .scale = 2
    };
    struct tsr_op plus = {
        .struct_size = sizeof plus, .kind = TSR_OP_ADD, .out = &y.t, .in = { &z.t, &x.t }
    };
    /* one step, waited for: an error here is not one of order */
    for (uint32_t i = 0; i < 2; i++) {
        chain_step(&d, i ? &plus : &twice);
        tsr_conformance_rule_ok(c, d.t->sync(d.self, NULL, &e.err), &e, "sync()");
    }
    const float *got = tsr_conformance_grid_rows(&d, &y);
    for (uint64_t i = 0; i < n; i++)
        if (!(got[i] == 3 * small[i]))
            tsr_conformance_rule_skip(c, "SCALE or ADD alone is wrong, which their own rules say");
    for (uint32_t i = 0; i < 2 * (CHAIN - 1); i++)
        chain_step(&d, i % 2 ? &plus : &twice);
    tsr_conformance_rule_ok(c, d.t->sync(d.self, NULL, &e.err), &e, "sync()");
    got = tsr_conformance_grid_rows(&d, &y);
    for (uint64_t i = 0; i < n; i++) {
        float want = small[i] * (float)((2u << CHAIN) - 1); /* below 2^24 */
        if (!(got[i] == want))
            tsr_conformance_rule_fail(
                c, "behind %u times y = 2 y + x number %llu is %.9g, wanted %.9g", CHAIN, U(i),
                (double)got[i], (double)want);
    }
}

/* ---- refusals ------------------------------------------------------------------------ */

void tsr_backend_rule_unknown_op(struct tsr_conformance_case *c)
{
    static const uint32_t         kinds[] = { 0, 60001, UINT32_MAX };
    struct tsr_conformance_device d;
    float                         x[64] = { 0 };
    struct tsr_conformance_grid   in, out;
    tsr_conformance_device_make(&d, c);
    tsr_conformance_grid_make(&d, &in, TSR_F32, 1, 64, x);
    tsr_conformance_grid_make(&d, &out, TSR_F32, 1, 64, x);
    for (uint64_t i = 0; i < 3; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct tsr_op     op = {
                .struct_size = sizeof op, .kind = kinds[i], .out = &out.t, .in = { &in.t, &in.t }
        };
        tsr_conformance_rule_refused(c, d.t->run(d.self, NULL, &op, &e.err), TSR_E_UNSUPPORTED, &e,
                                     "run() of operation %u", kinds[i]);
    }
}

/* Makes a good operation bad in one way; false where it does not apply. */
static bool spoil(struct tsr_conformance_trial *t, uint32_t way, const char **what)
{
    struct tsr_op *op = &t->op;
    switch (way) {
    case 0:
        *what = "without its first input";
        op->in[0] = NULL;
        return true;
    case 1:
        *what = "with an output past the end of its buffer";
        t->out.t.offset = t->out.bytes;
        return true;
    case 2:
        *what = "with a first input of another dtype";
        t->in[0].t.dtype = op->kind == TSR_OP_EMBED ? TSR_F32 : TSR_BF16;
        return true;
    case 3:
        *what = "with a first input of one column too few";
        t->in[0].t.cols--;
        return t->in[0].t.cols > 0;
    case 4:
        *what = "with rows that overlap";
        t->in[0].t.row_stride = 4;
        return t->in[0].t.rows > 1 && t->in[0].t.cols > 1;
    case 5:
        *what = "with a second input of one column too few";
        t->in[1].t.cols--;
        return op->in[1] && (op->kind == TSR_OP_NORM || op->kind == TSR_OP_ADD);
    case 6:
        *what = "with an odd number of columns to turn";
        op->rotary_dim = 5;
        return op->kind == TSR_OP_ROPE;
    case 7:
        *what = "with heads that its KV heads do not divide";
        op->kv_heads = 3;
        return op->kind == TSR_OP_ATTENTION;
    case 8:
        *what = "with a norm that does not exist";
        op->norm = 99;
        return op->kind == TSR_OP_NORM;
    case 9:
        *what = "CLAMPED without its second input";
        op->func = TSR_FUNC_CLAMPED;
        op->softcap = 1;
        return op->kind == TSR_OP_ACT && !op->in[1];
    case 10:
        *what = "CLAMPED without a limit";
        op->func = TSR_FUNC_CLAMPED;
        op->softcap = 0;
        op->in[1] = op->in[0];
        return op->kind == TSR_OP_ACT;
    case 11:
        *what = "with runs that do not divide its columns";
        op->head_dim = 2048;
        return op->kind == TSR_OP_HADAMARD;
    case 12:
        *what = "with runs of three numbers";
        op->head_dim = 3;
        return op->kind == TSR_OP_HADAMARD;
    default:
        *what = "with a function that does not exist";
        op->func = 99;
        return op->kind == TSR_OP_ACT;
    }
}
#define WAYS 14u

static void refused(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                    uint64_t variant)
{
    for (uint32_t way = 0; variant == 0 && way < WAYS; way++) {
        struct tsr_errbuf            e = TSR_ERRBUF(e);
        struct tsr_conformance_trial u;
        const char                  *what;
        if (!tsr_conformance_trial_make(d, &u, t->op.kind, variant) || !spoil(&u, way, &what))
            continue;
        tsr_status st = d->t->run(d->self, NULL, &u.op, &e.err);
        if ((st != TSR_E_INVAL && st != TSR_E_UNSUPPORTED) || e.text[0] == '\0')
            tsr_conformance_rule_fail(d->c, "%s %s gave %s%s, wanted TSR_E_INVAL",
                                      tsr_conformance_op_name(t->op.kind), what,
                                      tsr_conformance_status_name(st),
                                      st < 0 ? " and no sentence" : "");
    }
}

void tsr_backend_rule_shapes(struct tsr_conformance_case *c)
{
    every_trial(c, refused);
}
