/* The rules of KV-cache codecs. */
#include "conformance/kv/kv.h"

#include <math.h>
#include <string.h>

typedef struct tsr_conformance_case kv_case;

/* ---- layouts ------------------------------------------------------------------ */

static bool is_same(const struct tsr_kv_layout *a, const struct tsr_kv_layout *b)
{
    return a->struct_size == b->struct_size && a->positions == b->positions &&
           a->bytes == b->bytes && a->error == b->error && a->type == b->type &&
           a->reserved == b->reserved;
}

static void in_range(kv_case *c, struct tsr_kv_trial *k)
{
    struct tsr_kv_layout l;
    if (k->l.positions != 1 && k->l.positions != TSR_KV_BLOCK)
        tsr_conformance_rule_fail(c, "layout() of %s gives units of %u positions, not of 1 or %u",
                                  tsr_kv_text(k), k->l.positions, TSR_KV_BLOCK);
    if (!(k->l.error >= 0 && k->l.error <= 1))
        tsr_conformance_rule_fail(c, "layout() of %s gives an error of %g, not of 0 to 1",
                                  tsr_kv_text(k), k->l.error);
    void *other = tsr_kv_made(c);
    for (int i = 0; i < 2; i++)
        if (!tsr_kv_layout_of(c, i ? other : k->self, k->side, k->dim, &l) || !is_same(&l, &k->l))
            tsr_conformance_rule_fail(c, "layout() of %s differs %s", tsr_kv_text(k),
                                      i ? "in another instance" : "in a second call");
    k->t->destroy(other);
}

void tsr_kv_rule_layout(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), in_range);
}

/* ---- writes ------------------------------------------------------------------- */

static void *kept(kv_case *c, const void *from, uint64_t bytes)
{
    void *copy = tsr_conformance_rule_memory(c, bytes);
    memcpy(copy, from, bytes);
    return copy;
}

static void encode_writes(kv_case *c, struct tsr_kv_trial *k)
{
    uint64_t       n = TSR_KV_UNITS * k->each * sizeof(float);
    void          *x = kept(c, k->x, n);
    unsigned char *to = tsr_conformance_guarded("units", k->bytes, 0xa5);
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, to);
    if (!tsr_conformance_guarded_intact(to))
        tsr_conformance_rule_fail(c, "encode() of %s writes outside of its units", tsr_kv_text(k));
    if (memcmp(x, k->x, n) != 0)
        tsr_conformance_rule_fail(c, "encode() of %s changes its elements", tsr_kv_text(k));
    tsr_conformance_guarded_free(to);
}

void tsr_kv_rule_encode_writes(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), encode_writes);
}

/* The optional function of a side, over all units: score() or mix() with `in` [dim or positions] into `out`. */
static bool other_way(kv_case *c, const struct tsr_kv_trial *k, const float *in, float *out,
                      const void *units)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (k->side == TSR_KV_KEYS ? !k->t->score : !k->t->mix)
        return false;
    tsr_status st = k->side == TSR_KV_KEYS
                        ? k->t->score(k->self, k->dim, in, TSR_KV_UNITS, units, out, &e.err)
                        : k->t->mix(k->self, k->dim, in, TSR_KV_UNITS, units, out, &e.err);
    tsr_conformance_rule_ok(c, st, &e, "%s() of %s", k->side == TSR_KV_KEYS ? "score" : "mix",
                            tsr_kv_text(k));
    return true;
}

static uint64_t ins(const struct tsr_kv_trial *k)
{
    return k->side == TSR_KV_KEYS ? k->dim : (uint64_t)TSR_KV_UNITS * k->l.positions;
}

static uint64_t outs(const struct tsr_kv_trial *k)
{
    return k->side == TSR_KV_KEYS ? (uint64_t)TSR_KV_UNITS * k->l.positions : k->dim;
}

static void decode_writes(kv_case *c, struct tsr_kv_trial *k)
{
    uint64_t n = TSR_KV_UNITS * k->each * sizeof(float);
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
    void  *units = kept(c, k->units, k->bytes);
    float *to = tsr_conformance_guarded("elements", n, 0),
          *out = tsr_conformance_guarded("output", outs(k) * sizeof(float), 0),
          *in = tsr_conformance_rule_room(ins(k) * sizeof(float));
    tsr_conformance_rule_normal(c, 99, in, ins(k));
    void *was = kept(c, in, ins(k) * sizeof(float));
    tsr_kv_decode(c, k, TSR_KV_UNITS, k->units, to);
    (void)other_way(c, k, in, out, k->units);
    if (!tsr_conformance_guarded_intact(to) || !tsr_conformance_guarded_intact(out))
        tsr_conformance_rule_fail(c, "%s: a function writes outside of its output", tsr_kv_text(k));
    if (memcmp(units, k->units, k->bytes) != 0 || memcmp(was, in, ins(k) * sizeof(float)) != 0)
        tsr_conformance_rule_fail(c, "%s: a function changes what it reads", tsr_kv_text(k));
    tsr_conformance_guarded_free(to);
    tsr_conformance_guarded_free(out);
    tsr_conformance_guarded_free(in);
}

void tsr_kv_rule_decode_writes(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), decode_writes);
}

static void every_byte(kv_case *c, struct tsr_kv_trial *k)
{
    unsigned char *other = tsr_conformance_rule_room(k->bytes);
    memset(k->units, 0x00, k->bytes);
    memset(other, 0xff, k->bytes);
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, other);
    uint64_t at = tsr_conformance_rule_differ(k->units, other, k->bytes);
    if (at < k->bytes)
        tsr_conformance_rule_fail(
            c, "encode() of %s: byte %llu of %llu of a unit depends on what was there before",
            tsr_kv_text(k), (unsigned long long)(at % k->l.bytes), (unsigned long long)k->l.bytes);
    tsr_conformance_guarded_free(other);
}

void tsr_kv_rule_every_byte(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), every_byte);
}

/* ---- the same each time ---------------------------------------------------------- */

static void same(kv_case *c, const struct tsr_kv_trial *k, const void *a, const void *b,
                 uint64_t bytes, const char *what)
{
    uint64_t at = tsr_conformance_rule_differ(a, b, bytes);
    if (at < bytes)
        tsr_conformance_rule_fail(c, "%s: byte %llu differs %s", tsr_kv_text(k),
                                  (unsigned long long)at, what);
}

static void repeats(kv_case *c, struct tsr_kv_trial *k)
{
    uint64_t            n = TSR_KV_UNITS * k->each * sizeof(float);
    struct tsr_kv_trial o = *k;
    unsigned char      *again = tsr_conformance_rule_room(k->bytes);
    float              *back = tsr_conformance_rule_room(n);
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
    tsr_kv_decode(c, k, TSR_KV_UNITS, k->units, k->back);
    o.self = tsr_kv_made(c);
    for (int i = 0; i < 2; i++) {
        const char *what = i ? "in another instance" : "in a second call";
        tsr_kv_encode(c, i ? &o : k, TSR_KV_UNITS, k->x, again);
        same(c, k, k->units, again, k->bytes, what);
        tsr_kv_decode(c, i ? &o : k, TSR_KV_UNITS, k->units, back);
        same(c, k, k->back, back, n, what);
    }
    k->t->destroy(o.self);
    tsr_conformance_guarded_free(again);
    tsr_conformance_guarded_free(back);
}

void tsr_kv_rule_repeats(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), repeats);
}

/* Units one at a time, in the other order, and from and to an odd address. */
static void alone(kv_case *c, struct tsr_kv_trial *k)
{
    unsigned char *one = tsr_conformance_rule_room(k->l.bytes + 1);
    float         *back = tsr_conformance_rule_room(k->each * sizeof(float));
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
    tsr_kv_decode(c, k, TSR_KV_UNITS, k->units, k->back);
    for (uint64_t u = TSR_KV_UNITS; u-- > 0;) {
        tsr_kv_encode(c, k, 1, k->x + u * k->each, one + 1);
        same(c, k, k->units + u * k->l.bytes, one + 1, k->l.bytes, "in a unit that is alone");
        tsr_kv_decode(c, k, 1, one + 1, back);
        same(c, k, k->back + u * k->each, back, k->each * sizeof(float),
             "in the elements of a unit that is alone");
    }
    tsr_conformance_guarded_free(one);
    tsr_conformance_guarded_free(back);
}

void tsr_kv_rule_alone(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), alone);
}

/* ---- what comes back ------------------------------------------------------------- */

static float largest(const float *x, uint64_t n)
{
    float top = 0;
    for (uint64_t i = 0; i < n; i++)
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    return top;
}

static void near(kv_case *c, struct tsr_kv_trial *k)
{
    static const float sizes[] = { 0.03125f, 1.0f, 8.0f };
    double             worst = 0;
    for (size_t s = 0; s < 3; s++) {
        for (uint64_t i = 0; i < TSR_KV_UNITS * k->each; i++) {
            k->x[i] *= sizes[s];
            if (i < k->each) /* a unit of one number, which has no range */
                k->x[i] = sizes[s];
        }
        tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
        tsr_kv_decode(c, k, TSR_KV_UNITS, k->units, k->back);
        for (uint64_t i = 0; i < TSR_KV_UNITS * k->each; i++) {
            float  top = largest(k->x + i / k->each * k->each, k->each);
            double off = fabs((double)k->back[i] - (double)k->x[i]) / (double)top;
            if (!(top >= 0x1p-6f && top <= 0x1p6f))
                continue;
            if (!(off <= k->l.error * (1 + 1e-5) + 1e-6))
                tsr_conformance_rule_fail(c,
                                          "%s: element %llu is %g and decodes to %g, off by %.3g "
                                          "of the largest; layout() says %.3g",
                                          tsr_kv_text(k), (unsigned long long)(i % k->each),
                                          (double)k->x[i], (double)k->back[i], off, k->l.error);
            worst = off > worst ? off : worst;
        }
        for (uint64_t i = 0; i < TSR_KV_UNITS * k->each; i++)
            k->x[i] /= sizes[s];
    }
    if (k->dim == 128)
        tsr_conformance_rule_figure(c,
                                    k->side == TSR_KV_KEYS ? "largest error of a key"
                                                           : "largest error of a value",
                                    worst, "of the largest element");
}

void tsr_kv_rule_error(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), near);
}

static void not_finite(kv_case *c, struct tsr_kv_trial *k)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t b = 0; b < 3; b++)
        for (int last = 0; last < 2; last++) {
            uint64_t at = last ? k->each - 1 : 0;
            float    was = k->x[at];
            k->x[at] = bad[b];
            tsr_kv_encode(c, k, 1, k->x, k->units);
            tsr_kv_decode(c, k, 1, k->units, k->back);
            if (isfinite(k->back[at]))
                tsr_conformance_rule_fail(c, "%s: element %llu is %g and decodes to %g",
                                          tsr_kv_text(k), (unsigned long long)at, (double)bad[b],
                                          (double)k->back[at]);
            k->x[at] = was;
        }
}

void tsr_kv_rule_not_finite(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), not_finite);
}

/* Bytes of four kinds: all zeros, all ones, random, and good ones with a few changed. */
static void damaged(kv_case *c, struct tsr_kv_trial *k)
{
    unsigned char *units = tsr_conformance_guarded("units", k->bytes, 0);
    float *to = tsr_conformance_guarded("elements", TSR_KV_UNITS * k->each * sizeof(float), 0),
          *out = tsr_conformance_guarded("output", outs(k) * sizeof(float), 0),
          *in = tsr_conformance_rule_room(ins(k) * sizeof(float));
    tsr_conformance_rule_normal(c, 98, in, ins(k));
    for (uint64_t way = 0; way < 24; way++) {
        tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, units);
        for (uint64_t i = 0; i < k->bytes; i++) {
            uint64_t r = tsr_conformance_rule_below(c, 500 + way, i, UINT64_C(256) * 16);
            if (way < 2)
                units[i] = way ? 0xff : 0x00;
            else if (way < 8 || r < 256)
                units[i] = (unsigned char)r;
        }
        tsr_kv_decode(c, k, TSR_KV_UNITS, units, to);
        (void)other_way(c, k, in, out, units);
        if (!tsr_conformance_guarded_intact(to) || !tsr_conformance_guarded_intact(out))
            tsr_conformance_rule_fail(c, "%s: damaged bytes make a function write elsewhere",
                                      tsr_kv_text(k));
    }
    tsr_conformance_guarded_free(units);
    tsr_conformance_guarded_free(to);
    tsr_conformance_guarded_free(out);
    tsr_conformance_guarded_free(in);
}

void tsr_kv_rule_damaged(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), damaged);
}

/* ---- products over units ----------------------------------------------------------- */

static void score(kv_case *c, struct tsr_kv_trial *k)
{
    if (k->side != TSR_KV_KEYS)
        return;
    float *q = tsr_conformance_rule_room(ins(k) * sizeof(float)),
          *out = tsr_conformance_rule_room(outs(k) * sizeof(float));
    tsr_conformance_rule_normal(c, 97, q, k->dim);
    tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
    tsr_kv_decode(c, k, TSR_KV_UNITS, k->units, k->back);
    if (!other_way(c, k, q, out, k->units))
        tsr_conformance_rule_skip(c, "score() is NULL");
    for (uint64_t p = 0; p < outs(k); p++) {
        double want = 0, size = 0;
        float  top = largest(k->back + p / k->l.positions * k->each, k->each);
        for (uint64_t d = 0; d < k->dim; d++) {
            want += (double)q[d] * (double)k->back[p * k->dim + d];
            size += fabs((double)q[d]) * (double)top;
        }
        if (!(fabs((double)out[p] - want) <= 1e-4 * size + 1e-6))
            tsr_conformance_rule_fail(c, "score() of %s gives %g at position %llu, not %g",
                                      tsr_kv_text(k), (double)out[p], (unsigned long long)p, want);
    }
    tsr_conformance_guarded_free(q);
    tsr_conformance_guarded_free(out);
}

void tsr_kv_rule_score(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), score);
}

/* Every third position has the weight 0; in a second pass the values of the last such position are NaN. */
static void mix(kv_case *c, struct tsr_kv_trial *k)
{
    if (k->side != TSR_KV_VALUES)
        return;
    uint64_t n = ins(k);
    float   *w = tsr_conformance_rule_room(n * sizeof(float)),
          *out = tsr_conformance_rule_room(k->dim * sizeof(float));
    tsr_conformance_rule_normal(c, 96, w, n);
    for (uint64_t p = 2; p < n; p += 3)
        w[p] = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t d = 0; d < k->dim; d++) {
            out[d] = 1;
            if (pass && k->l.positions == 1) /* of a block the other positions may be lost too */
                k->x[2 * k->dim + d] = NAN;
        }
        tsr_kv_encode(c, k, TSR_KV_UNITS, k->x, k->units);
        tsr_kv_decode(c, k, TSR_KV_UNITS, k->units, k->back);
        if (!other_way(c, k, w, out, k->units))
            tsr_conformance_rule_skip(c, "mix() is NULL");
        for (uint64_t d = 0; d < k->dim; d++) {
            double want = 1, size = 1;
            for (uint64_t p = 0; p < n; p++)
                if (w[p] != 0) {
                    want += (double)w[p] * (double)k->back[p * k->dim + d];
                    size += fabs((double)w[p]) * 8;
                }
            if (!(fabs((double)out[d] - want) <= 1e-4 * size))
                tsr_conformance_rule_fail(c, "mix() of %s gives %g at element %llu, not %g",
                                          tsr_kv_text(k), (double)out[d], (unsigned long long)d,
                                          want);
        }
    }
    tsr_conformance_guarded_free(w);
    tsr_conformance_guarded_free(out);
}

void tsr_kv_rule_mix(kv_case *c)
{
    tsr_kv_each(c, tsr_kv_made(c), mix);
}
