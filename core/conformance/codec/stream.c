/* Codecs: the rules about a state that goes from message to message (TSR_CODEC_STREAM). */
#include "conformance/codec/codec.h"

#include <string.h>

#define U(x)     ((unsigned long long)(x))
#define MESSAGES 6u
#define LARGEST  (UINT64_C(1) << 30) /* a state of more bytes is a mistake */

static const struct tsr_codec_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

static const struct tsr_codec_stream_v1 *streams(struct tsr_conformance_case *c, const void *self)
{
    const struct tsr_codec_stream_v1 *t =
        table(c)->extension ? table(c)->extension(self, TSR_CODEC_STREAM) : NULL;
    if (!t)
        tsr_conformance_rule_skip(c, "the codec has no \"" TSR_CODEC_STREAM "\"");
    if (!TSR_HAS(struct tsr_codec_stream_v1, t, order) ||
        !TSR_HAS(struct tsr_codec_stream_v1, t, state_bytes))
        tsr_conformance_rule_fail(c, "a function of the table \"" TSR_CODEC_STREAM "\" is missing");
    return t;
}

static uint64_t bytes_of(struct tsr_conformance_case *c, const void *self, uint32_t end,
                         uint64_t rows, uint64_t cols)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n = 0;
    tsr_conformance_rule_ok(c, streams(c, self)->state_bytes(self, end, rows, cols, &n, &e.err), &e,
                            "state_bytes() of %llu x %llu", U(rows), U(cols));
    if (n > LARGEST)
        tsr_conformance_rule_fail(c, "state_bytes() of %llu x %llu is %llu, wanted at most 2^30",
                                  U(rows), U(cols), U(n));
    return n;
}

/* One end of a stream of messages of one shape. */
struct end {
    const void *self;
    uint32_t    which, site;
    bool        steps; /* along the sites */
    uint64_t    rows, cols, wire_bytes, bytes;
    void       *state; /* NULL: none is needed, or none is given */
};

static struct end open_end(struct tsr_conformance_case *c, const void *self, uint32_t which,
                           uint64_t rows, uint64_t cols, uint64_t wire_bytes, bool guarded)
{
    struct end s = { .self = self,
                     .which = which,
                     .steps = streams(c, self)->order(self) == TSR_CODEC_ORDER_PASS,
                     .rows = rows,
                     .cols = cols,
                     .wire_bytes = wire_bytes,
                     .bytes = bytes_of(c, self, which, rows, cols) };
    if (s.bytes)
        s.state = guarded ? tsr_conformance_guarded("the state of a stream", s.bytes, 0)
                          : tsr_conformance_roomy("the state of a stream", s.bytes, 0);
    return s;
}

static struct tsr_codec_job next_job(struct end *s, const void *wire)
{
    struct tsr_codec_job j = { .struct_size = sizeof j,
                               .source = 1,
                               .site = s->site,
                               .rows = s->rows,
                               .cols = s->cols,
                               .wire = (void *)(uintptr_t)wire,
                               .wire_bytes = s->wire_bytes,
                               .state = s->state };
    s->site = s->steps ? (s->site + 1) % TSR_CODEC_SITES : 0;
    return j;
}

static void encode(struct tsr_conformance_case *c, struct end *s, const float *x, void *wire)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = next_job(s, wire);
    j.src = x;
    tsr_conformance_rule_ok(c, table(c)->encode(s->self, &j, &e.err), &e,
                            "encode() of %llu x %llu with a state", U(s->rows), U(s->cols));
}

static void decode(struct tsr_conformance_case *c, struct end *s, const void *wire, float *y,
                   bool add)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = next_job(s, wire);
    j.dst = y;
    tsr_status st =
        add ? table(c)->decode_add(s->self, &j, &e.err) : table(c)->decode(s->self, &j, &e.err);
    tsr_conformance_rule_ok(c, st, &e, "%s() of %llu x %llu with a state",
                            add ? "decode_add" : "decode", U(s->rows), U(s->cols));
}

void tsr_codec_rule_stream_state(struct tsr_conformance_case *c)
{
    uint64_t carried = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t r = tsr_codec_shapes[i].rows, k = tsr_codec_shapes[i].cols, n;
        void    *a = tsr_codec_made(c, k), *b = tsr_codec_made(c, k);
        uint32_t order = streams(c, a)->order(a);
        if (order != TSR_CODEC_ORDER_PASS && order != TSR_CODEC_ORDER_REQUIRED)
            tsr_conformance_rule_fail(
                c, "order() is %u, wanted TSR_CODEC_ORDER_PASS or TSR_CODEC_ORDER_REQUIRED", order);
        if (streams(c, b)->order(b) != order)
            tsr_conformance_rule_fail(c, "order() is %u, and %u of a second instance", order,
                                      streams(c, b)->order(b));
        if (!tsr_codec_bytes(c, a, r, k, &n))
            continue;
        carried++;
        for (uint32_t end = 0; end < 2; end++) {
            uint64_t one = bytes_of(c, a, end, r, k), two = bytes_of(c, b, end, r, k);
            uint64_t more = bytes_of(c, a, end, r + 1, k);
            if (one != two || one != bytes_of(c, a, end, r, k))
                tsr_conformance_rule_fail(c,
                                          "state_bytes() of %llu x %llu is %llu, and %llu of a "
                                          "second instance",
                                          U(r), U(k), U(one), U(two));
            if (order == TSR_CODEC_ORDER_REQUIRED && one != more)
                tsr_conformance_rule_fail(c,
                                          "state_bytes() is %llu for %llu rows and %llu for one "
                                          "more; it must not depend on rows",
                                          U(one), U(r), U(more));
        }
        struct end     s = open_end(c, a, TSR_CODEC_ENCODES, r, k, n, true);
        struct end     t = open_end(c, a, TSR_CODEC_DECODES, r, k, n, true);
        unsigned char *wire = tsr_conformance_rule_room(n);
        float         *y = tsr_conformance_rule_room(r * k * sizeof *y);
        for (uint32_t m = 0; m < 2; m++) {
            encode(c, &s, tsr_codec_message(c, i, r, k), wire);
            decode(c, &t, wire, y, false);
        }
        if ((s.state && !tsr_conformance_guarded_intact(s.state)) ||
            (t.state && !tsr_conformance_guarded_intact(t.state)))
            tsr_conformance_rule_fail(c,
                                      "%llu x %llu: bytes beyond those of state_bytes() are "
                                      "written",
                                      U(r), U(k));
    }
    tsr_codec_some(c, carried);
}

/* Six messages: their bytes, and what comes out of them. */
struct run {
    unsigned char *wire[MESSAGES];
    float         *y[MESSAGES];
};

/* moved: both states go elsewhere on the way, and another stream of the same instance is between. */
static struct run play(struct tsr_conformance_case *c, const void *self, const void *other,
                       const struct tsr_codec_shape *p, uint64_t n, bool moved, bool add)
{
    struct end s = open_end(c, self, TSR_CODEC_ENCODES, p->rows, p->cols, n, false);
    struct end t = open_end(c, other, TSR_CODEC_DECODES, p->rows, p->cols, n, false);
    struct end u = open_end(c, self, TSR_CODEC_ENCODES, p->rows, p->cols, n, false);
    void      *spare = tsr_conformance_rule_room(n);
    uint64_t   size = p->rows * p->cols * sizeof(float);
    struct run z = { { 0 }, { 0 } };
    for (uint32_t m = 0; m < MESSAGES; m++) {
        float *x = tsr_codec_message(c, 40 + m, p->rows, p->cols);
        z.wire[m] = tsr_conformance_rule_room(n);
        z.y[m] = tsr_conformance_rule_room(size);
        if (moved) {
            struct end *both[] = { &s, &t };
            encode(c, &u, tsr_codec_message(c, 70 + m, p->rows, p->cols), spare);
            for (uint32_t i = 0; i < 2; i++) {
                void *to = tsr_conformance_roomy("the state of a stream", both[i]->bytes, 0);
                if (!both[i]->state)
                    continue;
                memcpy(to, both[i]->state, both[i]->bytes);
                memset(both[i]->state, 0xa5, both[i]->bytes);
                both[i]->state = to;
            }
        }
        encode(c, &s, x, z.wire[m]);
        decode(c, &t, z.wire[m], z.y[m], add);
        for (uint64_t i = 0; !add && i < p->rows * p->cols; i++)
            z.y[m][i] += 0; /* as decode_add() to 0, which makes 0 of -0 */
    }
    return z;
}

static void same(struct tsr_conformance_case *c, const struct run *a, const struct run *b,
                 const struct tsr_codec_shape *p, uint64_t n, const char *how)
{
    uint64_t size = p->rows * p->cols * sizeof(float);
    for (uint32_t m = 0; m < MESSAGES; m++) {
        uint64_t at = tsr_conformance_rule_differ(a->wire[m], b->wire[m], n);
        uint64_t i = tsr_conformance_rule_differ(a->y[m], b->y[m], size) / sizeof(float);
        if (at < n)
            tsr_conformance_rule_fail(c,
                                      "message %u of a stream of %llu x %llu has another byte %llu "
                                      "%s",
                                      m, U(p->rows), U(p->cols), U(at), how);
        if (i < p->rows * p->cols)
            tsr_conformance_rule_fail(c,
                                      "message %u of a stream of %llu x %llu decodes to %.9g in "
                                      "place %llu, and to %.9g %s",
                                      m, U(p->rows), U(p->cols), (double)a->y[m][i], U(i),
                                      (double)b->y[m][i], how);
    }
}

void tsr_codec_rule_stream_replay(struct tsr_conformance_case *c)
{
    uint64_t carried = 0, n = 0;
    for (uint64_t i = 4; i < TSR_CODEC_SHAPES; i += 3) {
        const struct tsr_codec_shape *p = &tsr_codec_shapes[i];
        void *a = tsr_codec_made(c, p->cols), *b = tsr_codec_made(c, p->cols);
        (void)streams(c, a);
        if (!tsr_codec_bytes(c, a, p->rows, p->cols, &n))
            continue;
        carried++;
        struct run first = play(c, a, a, p, n, false, false);
        struct run again = play(c, a, b, p, n, false, false);
        same(c, &first, &again, p, n, "when the stream begins again with a state of zero bytes");
        again = play(c, b, a, p, n, false, true);
        same(c, &first, &again, p, n, "in a second instance, by decode_add()");
        again = play(c, a, a, p, n, true, false);
        same(c, &first, &again, p, n, "when the states are copied and another stream is between");
    }
    tsr_codec_some(c, carried);
}

/* A stream of rows, and each of its rows in messages of its own. */
void tsr_codec_rule_stream_rows(struct tsr_conformance_case *c)
{
    const uint64_t rows = 3, cols = 130, size = cols * sizeof(float);
    void          *self = tsr_codec_made(c, cols);
    uint64_t       n = 0, each = 0;
    bool           pass = streams(c, self)->order(self) == TSR_CODEC_ORDER_PASS;
    if (table(c)->extension(self, TSR_CODEC_COUPLED))
        tsr_conformance_rule_skip(c, "rows of a message depend on each other");
    if (!tsr_codec_bytes(c, self, rows, cols, &n) || !tsr_codec_bytes(c, self, 1, cols, &each)) {
        tsr_codec_some(c, 0);
        return;
    }
    struct end s = open_end(c, self, TSR_CODEC_ENCODES, rows, cols, n, false);
    struct end t = open_end(c, self, TSR_CODEC_DECODES, rows, cols, n, false);
    struct end one[2][3];
    for (uint32_t r = 0; r < 3; r++) {
        one[0][r] = open_end(c, self, TSR_CODEC_ENCODES, 1, cols, each, false);
        one[1][r] = open_end(c, self, TSR_CODEC_DECODES, 1, cols, each, false);
    }
    void  *wire = tsr_conformance_rule_room(n), *part = tsr_conformance_rule_room(each);
    float *y = tsr_conformance_rule_room(rows * size), *z = tsr_conformance_rule_room(size);
    for (uint32_t m = 0; m < MESSAGES; m++) {
        const float *x = tsr_codec_message(c, 40 + m, rows, cols);
        encode(c, &s, x, wire);
        decode(c, &t, wire, y, false);
        for (uint32_t r = 0; r < 3; r++) { /* all rows are one stream, or each has its own */
            encode(c, &one[0][pass ? r : 0], x + r * cols, part);
            decode(c, &one[1][pass ? r : 0], part, z, false);
            uint64_t i = tsr_conformance_rule_differ(z, y + r * cols, size) / sizeof(float);
            if (i < cols)
                tsr_conformance_rule_fail(c,
                                          "message %u: column %llu of row %u decodes to %.9g, and "
                                          "to %.9g in a message of its own",
                                          m, U(i), r, (double)y[r * cols + i], (double)z[i]);
        }
    }
}

void tsr_codec_rule_stream_first(struct tsr_conformance_case *c)
{
    uint64_t carried = 0, n;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        uint64_t k = tsr_codec_shapes[i].cols, size = k * sizeof(float);
        void    *self = tsr_codec_made(c, k);
        (void)streams(c, self);
        if (!tsr_codec_bytes(c, self, 1, k, &n))
            continue;
        carried++;
        const float *x = tsr_codec_message(c, i, 1, k);
        void        *wire[2] = { tsr_conformance_rule_room(n), tsr_conformance_rule_room(n) };
        float       *y[2] = { tsr_conformance_rule_room(size), tsr_conformance_rule_room(size) };
        for (uint32_t without = 0; without < 2; without++) {
            struct end s = open_end(c, self, TSR_CODEC_ENCODES, 1, k, n, false);
            struct end t = open_end(c, self, TSR_CODEC_DECODES, 1, k, n, false);
            if (without)
                s.state = t.state = NULL;
            encode(c, &s, x, wire[without]);
            decode(c, &t, wire[without], y[without], false);
        }
        if (tsr_conformance_rule_differ(wire[0], wire[1], n) < n ||
            tsr_conformance_rule_differ(y[0], y[1], size) < size)
            tsr_conformance_rule_fail(c,
                                      "the first row of a stream, of %llu columns, is coded in "
                                      "another way without a state",
                                      U(k));
    }
    tsr_codec_some(c, carried);
}

/* A good message, so that the state is no longer zero, then one that is damaged. */
void tsr_codec_rule_stream_damaged(struct tsr_conformance_case *c)
{
    const uint64_t r = 3, k = 130, size = r * k * sizeof(float);
    void          *self = tsr_codec_made(c, k);
    uint64_t       n;
    (void)streams(c, self);
    if (!tsr_codec_bytes(c, self, r, k, &n) || n == 0)
        tsr_codec_some(c, 0);
    unsigned char *good = tsr_conformance_rule_room(n);
    float         *x = tsr_codec_message(c, 62, r, k);
    for (uint64_t kind = 0; kind < TSR_CODEC_DAMAGES; kind++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        struct end        s = open_end(c, self, TSR_CODEC_ENCODES, r, k, n, false);
        struct end        t = open_end(c, self, TSR_CODEC_DECODES, r, k, n, true);
        unsigned char    *wire = tsr_conformance_guarded("the wire", n, 0);
        float            *y = tsr_conformance_guarded("the message", size, 0);
        encode(c, &s, x, good);
        decode(c, &t, good, y, false);
        encode(c, &s, x, good);
        tsr_codec_damage(c, kind, wire, good, n);
        struct tsr_codec_job j = next_job(&t, wire);
        j.dst = y;
        tsr_status st = table(c)->decode(self, &j, &e.err);
        if (st != TSR_OK)
            tsr_conformance_rule_refused(c, st, TSR_E_INVAL, &e,
                                         "decode() with a state of bytes that no encode() wrote");
        if (!tsr_conformance_guarded_intact(y) ||
            (t.state && !tsr_conformance_guarded_intact(t.state)))
            tsr_conformance_rule_fail(c, "decode() with a state of bytes that no encode() wrote "
                                         "writes beyond its numbers or its state");
        tsr_conformance_guarded_free(wire);
        tsr_conformance_guarded_free(y);
    }
}
