/* Codecs: the life of one, and the rules about bytes. */
#include "conformance/codec/codec.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))

const struct tsr_codec_shape tsr_codec_shapes[TSR_CODEC_SHAPES] = {
    { 1, 1 },   { 1, 7 },   { 3, 31 },  { 2, 33 },  { 5, 64 },
    { 1, 127 }, { 4, 128 }, { 3, 130 }, { 1, 257 }, { 7, 1009 },
};

static const struct tsr_codec_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

float *tsr_codec_message(struct tsr_conformance_case *c, uint64_t stream, uint64_t rows,
                         uint64_t cols)
{
    float *x = tsr_conformance_rule_room(rows * cols * sizeof *x);
    tsr_conformance_rule_normal(c, stream, x, rows * cols);
    return x;
}

tsr_status tsr_codec_calibrate(struct tsr_conformance_case *c, void *self, uint64_t cols,
                               struct tsr_err *err)
{
    const struct tsr_codec_v1 *t = table(c);
    if (!t->observe || !t->freeze)
        return TSR_OK;
    uint64_t   rows = 8;
    float     *x = tsr_conformance_rule_room(rows * cols * sizeof *x);
    tsr_status st = TSR_OK;
    for (uint32_t site = 0; st == TSR_OK && site < TSR_CODEC_SITES; site++)
        for (uint32_t source = 0; st == TSR_OK && source < 2; source++) {
            tsr_conformance_rule_normal(c, 900 + 2 * site + source, x, rows * cols);
            for (uint64_t i = 0; i < cols; i++) { /* calibrates every feature on the messages'
                                                   * values */
                x[i] = 3;
                x[cols + i] = -3;
            }
            struct tsr_codec_job j = { .struct_size = sizeof j,
                                       .source = source,
                                       .site = site,
                                       .rows = rows,
                                       .cols = cols,
                                       .src = x };
            st = t->observe(self, &j, err);
        }
    tsr_conformance_guarded_free(x);
    return st == TSR_OK ? t->freeze(self, err) : st;
}

void *tsr_codec_made(struct tsr_conformance_case *c, uint64_t cols)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = NULL;
    tsr_conformance_rule_ok(c, table(c)->create(c->host->give, c->options, &self, &e.err), &e,
                            "create()");
    tsr_conformance_rule_ok(c, tsr_codec_calibrate(c, self, cols, &e.err), &e,
                            "calibration on 8 x %llu", U(cols));
    return self;
}

bool tsr_codec_bytes(struct tsr_conformance_case *c, const void *self, uint64_t rows, uint64_t cols,
                     uint64_t *bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *bytes = 0;
    tsr_status st = table(c)->wire_bytes(self, rows, cols, bytes, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        return false;
    tsr_conformance_rule_ok(c, st, &e, "wire_bytes() of %llu x %llu", U(rows), U(cols));
    /* of a shape of at most some thousand numbers */
    if (*bytes > UINT64_C(1) << 30)
        tsr_conformance_rule_fail(c,
                                  "wire_bytes() of %llu x %llu is %llu, more than a message can be",
                                  U(rows), U(cols), U(*bytes));
    return true;
}

void tsr_codec_some(struct tsr_conformance_case *c, uint64_t carried)
{
    if (carried == 0)
        tsr_conformance_rule_skip(c, "the codec carries none of the shapes that were tried");
}

/* Sites and sources take turns with the shapes. */
struct tsr_codec_job tsr_codec_job_of(uint64_t rows, uint64_t cols, void *wire, uint64_t bytes)
{
    return (struct tsr_codec_job){ .struct_size = sizeof(struct tsr_codec_job),
                                   .source = (uint32_t)(rows % 2),
                                   .site = (uint32_t)(cols % TSR_CODEC_SITES),
                                   .rows = rows,
                                   .cols = cols,
                                   .wire = wire,
                                   .wire_bytes = bytes };
}

static void encode(struct tsr_conformance_case *c, const void *self, uint64_t rows, uint64_t cols,
                   const float *x, void *wire, uint64_t bytes)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = tsr_codec_job_of(rows, cols, wire, bytes);
    j.src = x;
    tsr_conformance_rule_ok(c, table(c)->encode(self, &j, &e.err), &e, "encode() of %llu x %llu",
                            U(rows), U(cols));
}

static void decode(struct tsr_conformance_case *c, const void *self, uint64_t rows, uint64_t cols,
                   void *wire, uint64_t bytes, float *dst)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = tsr_codec_job_of(rows, cols, wire, bytes);
    j.dst = dst;
    tsr_conformance_rule_ok(c, table(c)->decode(self, &j, &e.err), &e, "decode() of %llu x %llu",
                            U(rows), U(cols));
}

void tsr_codec_encode(struct tsr_conformance_case *c, const void *self, uint64_t rows,
                      uint64_t cols, const float *x, void *wire, uint64_t bytes)
{
    float *copy = tsr_conformance_rule_room(rows * cols * sizeof *copy);
    memcpy(copy, x, rows * cols * sizeof *copy);
    encode(c, self, rows, cols, copy, wire, bytes);
    tsr_conformance_guarded_free(copy);
}

void tsr_codec_decode(struct tsr_conformance_case *c, const void *self, uint64_t rows,
                      uint64_t cols, const void *wire, uint64_t bytes, float *dst)
{
    void *copy = tsr_conformance_rule_room(bytes);
    memcpy(copy, wire, bytes);
    decode(c, self, rows, cols, copy, bytes, dst);
    tsr_conformance_guarded_free(copy);
}

/* ---- the rules about bytes ------------------------------------------------ */

void tsr_codec_rule_exactness(struct tsr_conformance_case *c)
{
    void    *a = tsr_codec_made(c, 64), *b = tsr_codec_made(c, 64);
    uint32_t x = table(c)->exactness(a), y = table(c)->exactness(a), z = table(c)->exactness(b);
    if (x > TSR_CODEC_LOSSY)
        tsr_conformance_rule_fail(c, "exactness() is %u, wanted TSR_CODEC_EXACT or TSR_CODEC_LOSSY",
                                  x);
    if (x != y || x != z)
        tsr_conformance_rule_fail(
            c,
            "exactness() is %u, then %u, and %u of a second instance with the same "
            "options, wanted the same each time",
            x, y, z);
}

void tsr_codec_rule_wire_bytes(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t          r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n = 0, again;
        struct tsr_errbuf e = TSR_ERRBUF(e);
        void             *a = tsr_codec_made(c, k), *b = tsr_codec_made(c, k);
        tsr_status        st = table(c)->wire_bytes(a, r, k, &n, &e.err);
        if (st != TSR_OK) {
            tsr_conformance_rule_refused(c, st, TSR_E_UNSUPPORTED, &e,
                                         "wire_bytes() of %llu x %llu", U(r), U(k));
            continue;
        }
        carried++;
        if (!tsr_codec_bytes(c, b, r, k, &again) || again != n)
            tsr_conformance_rule_fail(
                c, "wire_bytes() of %llu x %llu is %llu, and %llu of a second instance", U(r), U(k),
                U(n), U(again));
        void *wire = tsr_conformance_rule_room(n);
        tsr_codec_encode(c, a, r, k, tsr_codec_message(c, i, r, k), wire, n);
        if (!tsr_codec_bytes(c, a, r, k, &again) || again != n)
            tsr_conformance_rule_fail(
                c, "wire_bytes() of %llu x %llu is %llu, and %llu after an encode()", U(r), U(k),
                U(n), U(again));
    }
    tsr_codec_some(c, carried);
}

void tsr_codec_rule_huge_shape(struct tsr_conformance_case *c)
{
    static const struct tsr_codec_shape huge[] = { { UINT64_MAX, UINT64_MAX },
                                                   { UINT64_C(1) << 32, UINT64_C(1) << 32 },
                                                   { UINT64_C(1) << 62, 4 },
                                                   { UINT64_MAX / 3, 7 } };
    void                               *self = tsr_codec_made(c, 64);
    for (uint64_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        uint64_t          n = 0, rows = huge[i].rows;
        tsr_status        st = table(c)->wire_bytes(self, rows, huge[i].cols, &n, &e.err);
        if (st != TSR_OK)
            tsr_conformance_rule_refused(c, st, TSR_E_UNSUPPORTED, &e,
                                         "wire_bytes() of %llu x %llu", U(rows), U(huge[i].cols));
        else if (n < rows / 8) /* not even a bit for each row */
            tsr_conformance_rule_fail(
                c,
                "wire_bytes() of %llu x %llu is %llu: the product has overflowed; "
                "wanted TSR_E_UNSUPPORTED",
                U(rows), U(huge[i].cols), U(n));
    }
}

void tsr_codec_rule_encode_writes(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i <= TSR_CODEC_SHAPES; i++) {
        bool     empty = i == TSR_CODEC_SHAPES;
        uint64_t r = empty ? 0 : tsr_codec_shapes[i].rows,
                 k = empty ? 64 : tsr_codec_shapes[i].cols;
        uint64_t n;
        void    *self = tsr_codec_made(c, k);
        if (!tsr_codec_bytes(c, self, r, k, &n))
            continue;
        carried++;
        float         *x = tsr_codec_message(c, i, r, k);
        unsigned char *a = tsr_conformance_guarded("the wire", n, 0x00),
                      *b = tsr_conformance_guarded("the wire", n, 0xff);
        tsr_codec_encode(c, self, r, k, x, a, n);
        tsr_codec_encode(c, self, r, k, x, b, n);
        if (!tsr_conformance_guarded_intact(a) || !tsr_conformance_guarded_intact(b))
            tsr_conformance_rule_fail(c,
                                      "encode() of %llu x %llu writes beyond the %llu bytes that "
                                      "wire_bytes() declared",
                                      U(r), U(k), U(n));
        for (uint64_t j = 0; j < n; j++)
            if (a[j] == 0x00 && b[j] == 0xff)
                tsr_conformance_rule_fail(
                    c, "encode() of %llu x %llu leaves byte %llu of %llu unwritten", U(r), U(k),
                    U(j), U(n));
    }
    tsr_codec_some(c, carried);
}

void tsr_codec_rule_decode_writes(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n;
        uint64_t size = r * k * sizeof(float);
        void    *self = tsr_codec_made(c, k);
        if (!tsr_codec_bytes(c, self, r, k, &n))
            continue;
        carried++;
        void *wire = tsr_conformance_rule_room(n);
        tsr_codec_encode(c, self, r, k, tsr_codec_message(c, i, r, k), wire, n);
        unsigned char *a = tsr_conformance_guarded("the message", size, 0x00),
                      *b = tsr_conformance_guarded("the message", size, 0xff);
        tsr_codec_decode(c, self, r, k, wire, n, (float *)(void *)a);
        tsr_codec_decode(c, self, r, k, wire, n, (float *)(void *)b);
        if (!tsr_conformance_guarded_intact(a) || !tsr_conformance_guarded_intact(b))
            tsr_conformance_rule_fail(c, "decode() of %llu x %llu writes beyond its %llu numbers",
                                      U(r), U(k), U(r * k));
        for (uint64_t j = 0; j < size; j++)
            if (a[j] == 0x00 && b[j] == 0xff)
                tsr_conformance_rule_fail(c, "decode() of %llu x %llu leaves number %llu unwritten",
                                          U(r), U(k), U(j / 4));
    }
    tsr_codec_some(c, carried);
}

void tsr_codec_rule_inputs_untouched(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n;
        void    *self = tsr_codec_made(c, k);
        if (!tsr_codec_bytes(c, self, r, k, &n))
            continue;
        carried++;
        float *x = tsr_codec_message(c, i, r, k), *same = tsr_codec_message(c, i, r, k);
        void  *wire = tsr_conformance_rule_room(n), *kept = tsr_conformance_rule_room(n);
        encode(c, self, r, k, x, wire, n);
        if (tsr_conformance_rule_differ(x, same, r * k * 4) < r * k * 4)
            tsr_conformance_rule_fail(c, "encode() of %llu x %llu changes number %llu of its input",
                                      U(r), U(k),
                                      U(tsr_conformance_rule_differ(x, same, r * k * 4) / 4));
        memcpy(kept, wire, n);
        decode(c, self, r, k, wire, n, x);
        if (tsr_conformance_rule_differ(wire, kept, n) < n)
            tsr_conformance_rule_fail(c, "decode() of %llu x %llu changes byte %llu of the wire",
                                      U(r), U(k), U(tsr_conformance_rule_differ(wire, kept, n)));
    }
    tsr_codec_some(c, carried);
}
