/* Codecs: the rules about the numbers that come out. */
#include "conformance/codec/codec.h"

#include "base/f16.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

static const struct tsr_codec_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

void tsr_codec_rule_repeats(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n;
        void    *self[2] = { tsr_codec_made(c, k), tsr_codec_made(c, k) };
        if (!tsr_codec_bytes(c, self[0], r, k, &n))
            continue;
        carried++;
        float *x = tsr_codec_message(c, i, r, k);
        void  *first = tsr_conformance_rule_room(n), *wire = tsr_conformance_rule_room(n);
        tsr_codec_encode(c, self[0], r, k, x, first, n);
        for (uint64_t again = 0; again < 4; again++) {
            tsr_codec_encode(c, self[again % 2], r, k, x, wire, n);
            uint64_t at = tsr_conformance_rule_differ(first, wire, n);
            if (at < n)
                tsr_conformance_rule_fail(
                    c,
                    "encode() of the same %llu x %llu numbers gives another byte %llu "
                    "the next time%s",
                    U(r), U(k), U(at), again % 2 ? ", in a second instance" : "");
        }
    }
    tsr_codec_some(c, carried);
}

/* Eight ranks: eight instances, each with a separate history. */
void tsr_codec_rule_ranks(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n, size = r * k * 4;
        void    *sender = tsr_codec_made(c, k);
        if (!tsr_codec_bytes(c, sender, r, k, &n))
            continue;
        carried++;
        void  *wire = tsr_conformance_rule_room(n), *other = tsr_conformance_rule_room(n);
        float *first = tsr_conformance_rule_room(size), *y = tsr_conformance_rule_room(size);
        tsr_codec_encode(c, sender, r, k, tsr_codec_message(c, i, r, k), wire, n);
        tsr_codec_decode(c, sender, r, k, wire, n, first);
        for (uint64_t rank = 1; rank < 8; rank++) {
            void *self = tsr_codec_made(c, k);
            for (uint64_t before = 0; before < rank % 3; before++)
                tsr_codec_encode(c, self, r, k, tsr_codec_message(c, 70 + rank, r, k), other, n);
            memset(y, 0, size); /* another rule covers unwritten bytes */
            tsr_codec_decode(c, self, r, k, wire, n, y);
            uint64_t at = tsr_conformance_rule_differ(first, y, size) / 4;
            if (at < r * k)
                tsr_conformance_rule_fail(
                    c,
                    "rank %llu decodes number %llu of %llu x %llu to %.9g where rank "
                    "0 has %.9g",
                    U(rank), U(at), U(r), U(k), (double)y[at], (double)first[at]);
        }
    }
    tsr_codec_some(c, carried);
}

/* ---- one instance, several threads ------------------------------------------ */

#define THREADS 4u
#define TURNS   16u
#define T_ROWS  UINT64_C(7)
#define T_COLS  UINT64_C(1009)

struct share {
    const struct tsr_codec_v1 *t;
    const void                *self;
    pthread_barrier_t         *start;
    struct tsr_codec_job       in, out; /* encode(), decode() */
    float                     *want;
    unsigned char             *alone;
    uint64_t                   wrong; /* turns that gave something else */
};

static void *take_turns(void *arg)
{
    struct share  *s = arg;
    const uint64_t size = T_ROWS * T_COLS * 4;
    for (uint64_t i = 0; i < TURNS; i++) {
        (void)pthread_barrier_wait(s->start);
        bool same = s->t->encode(s->self, &s->in, NULL) == TSR_OK &&
                    memcmp(s->in.wire, s->alone, s->in.wire_bytes) == 0;
        same &= s->t->decode(s->self, &s->out, NULL) == TSR_OK &&
                tsr_conformance_rule_differ(s->out.dst, s->want, size) == size;
        s->wrong += !same;
    }
    return NULL;
}

void tsr_codec_rule_threads(struct tsr_conformance_case *c)
{
    void             *self = tsr_codec_made(c, T_COLS);
    struct share      share[THREADS];
    pthread_t         id[THREADS];
    pthread_barrier_t start;
    uint64_t          n, size = T_ROWS * T_COLS * 4;
    if (!tsr_codec_bytes(c, self, T_ROWS, T_COLS, &n))
        tsr_codec_some(c, 0);
    if (pthread_barrier_init(&start, NULL, THREADS) != 0)
        tsr_conformance_rule_skip(c, "no barrier could be made");
    for (uint64_t i = 0; i < THREADS; i++) {
        float               *x = tsr_codec_message(c, 40 + i, T_ROWS, T_COLS);
        struct tsr_codec_job j = tsr_codec_job_of(T_ROWS, T_COLS, NULL, n);
        share[i] = (struct share){ .t = table(c),
                                   .self = self,
                                   .start = &start,
                                   .in = j,
                                   .out = j,
                                   .want = tsr_conformance_rule_room(size),
                                   .alone = tsr_conformance_rule_room(n) };
        share[i].in.src = x;
        share[i].in.wire = tsr_conformance_rule_room(n);
        share[i].out.dst = tsr_conformance_rule_room(size);
        share[i].out.wire = share[i].alone;
        tsr_codec_encode(c, self, T_ROWS, T_COLS, x, share[i].alone, n);
        tsr_codec_decode(c, self, T_ROWS, T_COLS, share[i].alone, n, share[i].want);
    }
    for (uint64_t i = 0; i < THREADS; i++)
        if (pthread_create(&id[i], NULL, take_turns, &share[i]) != 0)
            tsr_conformance_rule_skip(c, "no thread could be started");
    for (uint64_t i = 0; i < THREADS; i++)
        (void)pthread_join(id[i], NULL);
    for (uint64_t i = 0; i < THREADS; i++)
        if (share[i].wrong)
            tsr_conformance_rule_fail(
                c,
                "%llu of %u messages differ from those that are encoded and decoded "
                "alone when %u threads use the instance",
                U(share[i].wrong), TURNS, THREADS);
}

/* ---- values ------------------------------------------------------------------ */

/* Bit patterns of every class: zeros, denormals, normals, infinities, NaN with payloads. */
static float *every_class(struct tsr_conformance_case *c, uint64_t n)
{
    static const uint32_t special[] = { 0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000,
                                        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                                        0x7f800001, 0xffc12345, 0x3f800001, 0xbf7fffff };
    const uint64_t        m = sizeof special / sizeof special[0];
    float                *x = tsr_conformance_rule_room(n * sizeof *x);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)tsr_conformance_rule_below(c, 3, i, UINT64_C(1) << 32);
        if (i % 3 == 0)
            u = special[i / 3 % m];
        memcpy(x + i, &u, 4); /* through an integer: a signalling NaN stays one */
    }
    return x;
}

void tsr_codec_rule_exact(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    if (table(c)->exactness(tsr_codec_made(c, 64)) != TSR_CODEC_EXACT)
        tsr_conformance_rule_skip(c, "with these options the codec says TSR_CODEC_LOSSY");
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n, size = r * k * 4;
        void    *self = tsr_codec_made(c, k);
        if (!tsr_codec_bytes(c, self, r, k, &n))
            continue;
        carried++;
        float *x = every_class(c, r * k), *y = tsr_conformance_rule_room(size);
        void  *wire = tsr_conformance_rule_room(n);
        tsr_codec_encode(c, self, r, k, x, wire, n);
        tsr_codec_decode(c, self, r, k, wire, n, y);
        uint64_t at = tsr_conformance_rule_differ(x, y, size) / 4;
        if (at < r * k)
            tsr_conformance_rule_fail(
                c,
                "number %llu of %llu x %llu is %.9g (0x%08x) and comes back as %.9g "
                "(0x%08x), although the codec says TSR_CODEC_EXACT",
                U(at), U(r), U(k), (double)x[at], tsr_f32_bits(x[at]), (double)y[at],
                tsr_f32_bits(y[at]));
    }
    tsr_codec_some(c, carried);
}

void tsr_codec_rule_nonfinite(struct tsr_conformance_case *c)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    const uint64_t     r = 3, k = 130, size = r * k * 4;
    void              *self = tsr_codec_made(c, k);
    uint64_t           n;
    if (!tsr_codec_bytes(c, self, r, k, &n))
        tsr_codec_some(c, 0);
    for (uint64_t kind = 0; kind < 3; kind++)
        for (uint64_t many = 0; many < 2; many++) {
            float         *x = tsr_codec_message(c, kind, r, k);
            unsigned char *wire = tsr_conformance_rule_room(n),
                          *again = tsr_conformance_rule_room(n);
            unsigned char *a = tsr_conformance_rule_room(size),
                          *b = tsr_conformance_rule_room(size);
            struct tsr_errbuf e = TSR_ERRBUF(e);
            for (uint64_t i = 0; i < r * k; i += many ? 1 : 77)
                x[i] = bad[kind];
            struct tsr_codec_job j = tsr_codec_job_of(r, k, wire, n);
            j.src = x;
            tsr_status st = table(c)->encode(self, &j, &e.err);
            if (st != TSR_OK) {
                tsr_conformance_rule_refused(c, st, TSR_E_NUMERIC, &e,
                                             "encode() of a message with %f", (double)bad[kind]);
                continue;
            }
            tsr_codec_encode(c, self, r, k, x, again, n);
            if (tsr_conformance_rule_differ(wire, again, n) < n)
                tsr_conformance_rule_fail(
                    c,
                    "encode() of a message with %f gives another byte %llu the next "
                    "time",
                    (double)bad[kind], U(tsr_conformance_rule_differ(wire, again, n)));
            memset(b, 0xff, size);
            tsr_codec_decode(c, self, r, k, wire, n, (float *)(void *)a);
            tsr_codec_decode(c, self, r, k, wire, n, (float *)(void *)b);
            uint64_t at = tsr_conformance_rule_differ(a, b, size);
            if (at < size)
                tsr_conformance_rule_fail(
                    c, "a message with %f decodes to another number %llu the next time",
                    (double)bad[kind], U(at / 4));
        }
}

/* The decoded value of a message of ones; false when the codec does not carry the shape. */
static bool ones(struct tsr_conformance_case *c, uint64_t rows, uint64_t cols, float *y)
{
    void    *self = tsr_codec_made(c, cols);
    uint64_t n;
    bool     carried = tsr_codec_bytes(c, self, rows, cols, &n);
    if (carried) {
        float *x = tsr_conformance_rule_room(rows * cols * sizeof *x);
        void  *wire = tsr_conformance_rule_room(n);
        for (uint64_t i = 0; i < rows * cols; i++)
            x[i] = 1;
        tsr_codec_encode(c, self, rows, cols, x, wire, n);
        tsr_codec_decode(c, self, rows, cols, wire, n, y);
        tsr_conformance_guarded_free(x);
        tsr_conformance_guarded_free(wire);
    }
    table(c)->destroy(self);
    return carried;
}

/* With all numbers alike a code of even one bit can tell them from zero: what comes back as less
 * than a half was not carried. */
static bool is_one(float y)
{
    return fabsf(y - 1) < 0.5f;
}

void tsr_codec_rule_tails(struct tsr_conformance_case *c)
{
    const uint64_t r = 3, whole = 256;
    float         *y = tsr_conformance_rule_room(r * 512 * sizeof *y);
    uint64_t       carried = 0, good = 0;
    if (ones(c, r, whole, y))
        for (uint64_t i = 0; i < r * whole; i++)
            good += is_one(y[i]);
    if (good < r * whole)
        tsr_conformance_rule_skip(
            c, "%llu of %llu ones in rows of 256 come back: the codec leaves numbers out", U(good),
            U(r * whole));
    for (uint64_t k = 1; k <= 300; k += k < 70 ? 1 : 23) {
        if (!ones(c, r, k, y))
            continue;
        carried++;
        for (uint64_t i = 0; i < r * k; i++)
            if (!is_one(y[i]))
                tsr_conformance_rule_fail(
                    c,
                    "in a message of %llu x %llu ones row %llu, column %llu comes "
                    "back as %.9g",
                    U(r), U(k), U(i / k), U(i % k), (double)y[i]);
    }
    tsr_codec_some(c, carried);
}

void tsr_codec_rule_decode_add(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n, size = r * k * 4;
        void    *self = tsr_codec_made(c, k);
        if (!tsr_codec_bytes(c, self, r, k, &n))
            continue;
        carried++;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        float *y = tsr_conformance_rule_room(size), *before = tsr_codec_message(c, 60, r, k);
        float *sum = tsr_conformance_guarded("the message", size, 0);
        void  *wire = tsr_conformance_rule_room(n);
        tsr_codec_encode(c, self, r, k, tsr_codec_message(c, i, r, k), wire, n);
        tsr_codec_decode(c, self, r, k, wire, n, y);
        memcpy(sum, before, size);
        struct tsr_codec_job j = tsr_codec_job_of(r, k, wire, n);
        j.dst = sum;
        tsr_conformance_rule_ok(c, table(c)->decode_add(self, &j, &e.err), &e,
                                "decode_add() of %llu x %llu", U(r), U(k));
        if (!tsr_conformance_guarded_intact(sum))
            tsr_conformance_rule_fail(c, "decode_add() of %llu x %llu writes beyond its numbers",
                                      U(r), U(k));
        for (uint64_t at = 0; at < r * k; at++) {
            float want = before[at] + y[at];
            if (tsr_f32_bits(want) != tsr_f32_bits(sum[at]))
                tsr_conformance_rule_fail(
                    c,
                    "decode_add() of %llu x %llu: number %llu was %.9g, decodes to "
                    "%.9g and became %.9g, wanted %.9g",
                    U(r), U(k), U(at), (double)before[at], (double)y[at], (double)sum[at],
                    (double)want);
        }
    }
    tsr_codec_some(c, carried);
}

void tsr_codec_damage(struct tsr_conformance_case *c, uint64_t kind, unsigned char *wire,
                      const unsigned char *good, uint64_t n)
{
    memset(wire, kind ? 0x00 : 0xff, n);
    if (kind > 1 && kind < 20) {
        memcpy(wire, good, n);
        wire[tsr_conformance_rule_below(c, 700 + kind, 0, n)] ^=
            (unsigned char)(1 + tsr_conformance_rule_below(c, 700 + kind, 1, 255));
    }
    for (uint64_t i = 0; kind >= 20 && i < n; i++)
        wire[i] = (unsigned char)tsr_conformance_rule_below(c, 700 + kind, i, 256);
}

void tsr_codec_rule_damaged(struct tsr_conformance_case *c)
{
    const uint64_t r = 3, k = 130, size = r * k * 4;
    void          *self = tsr_codec_made(c, k);
    uint64_t       n;
    if (!tsr_codec_bytes(c, self, r, k, &n) || n == 0)
        tsr_codec_some(c, 0);
    unsigned char *good = tsr_conformance_rule_room(n);
    tsr_codec_encode(c, self, r, k, tsr_codec_message(c, 61, r, k), good, n);
    for (uint64_t kind = 0; kind < TSR_CODEC_DAMAGES; kind++) {
        struct tsr_errbuf    e = TSR_ERRBUF(e);
        unsigned char       *wire = tsr_conformance_guarded("the wire", n, 0);
        float               *y = tsr_conformance_guarded("the message", size, 0);
        float               *again = tsr_conformance_guarded("the message", size, 0xff);
        struct tsr_codec_job j = tsr_codec_job_of(r, k, wire, n);
        tsr_codec_damage(c, kind, wire, good, n);
        j.dst = y;
        tsr_status st = table(c)->decode(self, &j, &e.err);
        j.dst = again;
        tsr_status next = table(c)->decode(self, &j, NULL);
        if (st != TSR_OK)
            tsr_conformance_rule_refused(c, st, TSR_E_INVAL, &e,
                                         "decode() of bytes that no encode() wrote");
        if (!tsr_conformance_guarded_intact(y) || !tsr_conformance_guarded_intact(again))
            tsr_conformance_rule_fail(
                c, "decode() of bytes that no encode() wrote writes beyond its numbers");
        if (st != next || (st == TSR_OK && tsr_conformance_rule_differ(y, again, size) < size))
            tsr_conformance_rule_fail(
                c, "decode() of bytes that no encode() wrote gives something else the "
                   "next time");
        j.dst = y;
        (void)table(c)->decode_add(self, &j, NULL);
        if (!tsr_conformance_guarded_intact(y))
            tsr_conformance_rule_fail(
                c, "decode_add() of bytes that no encode() wrote writes beyond its "
                   "numbers");
        tsr_conformance_guarded_free(wire);
        tsr_conformance_guarded_free(y);
        tsr_conformance_guarded_free(again);
    }
}
