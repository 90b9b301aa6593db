/* Codecs: the rule about a wire as plain data (TSR_CODEC_WIRE): the description makes the codec's own
 * messages. */
#include "conformance/wire.h"
#include "conformance/codec/codec.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))

static const struct tsr_codec_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

/* The table of an instance; a codec need not have one. */
static const struct tsr_codec_wire_v1 *wires(struct tsr_conformance_case *c, const void *self)
{
    const struct tsr_codec_wire_v1 *t =
        table(c)->extension ? table(c)->extension(self, TSR_CODEC_WIRE) : NULL;
    if (!t)
        tsr_conformance_rule_skip(c, "the codec has no \"" TSR_CODEC_WIRE "\"");
    if (!TSR_HAS(struct tsr_codec_wire_v1, t, wire))
        tsr_conformance_rule_fail(c, "the function of the table \"" TSR_CODEC_WIRE "\" is missing");
    return t;
}

/* False where these options have no wire that can be described. */
static bool describe(struct tsr_conformance_case *c, const void *self, uint32_t site,
                     uint32_t source, uint64_t cols, struct tsr_codec_wire *w)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *w = (struct tsr_codec_wire){ .struct_size = sizeof *w };
    tsr_status st = wires(c, self)->wire(self, site, source, cols, w, &e.err);
    if (st == TSR_E_UNSUPPORTED) {
        tsr_conformance_rule_refused(c, st, TSR_E_UNSUPPORTED, &e, "wire() of %llu columns",
                                     U(cols));
        return false;
    }
    tsr_conformance_rule_ok(c, st, &e, "wire() of %llu columns", U(cols));
    return true;
}

/* Rows of a message by the description, and by the codec. */
static void compare(struct tsr_conformance_case *c, const void *self,
                    const struct tsr_codec_shape *s, uint64_t stream,
                    const struct tsr_codec_wire *w)
{
    uint64_t bytes = s->rows * w->row_bytes, cols = s->cols;
    float   *x = tsr_codec_message(c, stream, s->rows, cols);
    float   *back = tsr_conformance_rule_room(s->rows * cols * sizeof *back);
    float   *mine = tsr_conformance_rule_room(cols * sizeof *mine),
          *again = tsr_conformance_rule_room(cols * sizeof *mine);
    unsigned char *wire = tsr_conformance_rule_room(bytes),
                  *row = tsr_conformance_rule_room(w->row_bytes);
    tsr_codec_encode(c, self, s->rows, cols, x, wire, bytes);
    tsr_codec_decode(c, self, s->rows, cols, wire, bytes, back);
    for (uint64_t r = 0; r < s->rows; r++) {
        tsr_conformance_wire_decode(w, wire + r * w->row_bytes, mine);
        uint64_t i = tsr_conformance_rule_differ(mine, back + r * cols, cols * 4) / 4;
        if (i < cols)
            tsr_conformance_rule_fail(
                c,
                "%llu x %llu: the wire that is described makes row %llu, column %llu "
                "%.9g of encode()'s bytes, decode() makes it %.9g",
                U(s->rows), U(cols), U(r), U(i), (double)mine[i], (double)back[r * cols + i]);
        if (!tsr_conformance_wire_encodes(w))
            continue;
        tsr_conformance_wire_encode(w, x + r * cols, row);
        tsr_conformance_wire_decode(w, row, again);
        i = tsr_conformance_rule_differ(again, mine, cols * 4) / 4;
        if (i < cols)
            tsr_conformance_rule_fail(
                c,
                "%llu x %llu: the wire that is described carries row %llu, column %llu, "
                "%.9g, as %.9g, encode() as %.9g",
                U(s->rows), U(cols), U(r), U(i), (double)x[r * cols + i], (double)again[i],
                (double)mine[i]);
    }
}

/* `same` promises one wire for all sites and sources. */
static void check_same(struct tsr_conformance_case *c, const void *self,
                       const struct tsr_codec_wire *w)
{
    struct tsr_codec_wire other;
    if (!w->same)
        return;
    if (!describe(c, self, 1, 1, w->cols, &other) || memcmp(w, &other, sizeof other) != 0)
        tsr_conformance_rule_fail(
            c,
            "wire() of %llu columns says that all sites and sources have the same, "
            "and describes another one for site 1, source 1",
            U(w->cols));
}

void tsr_conformance_codec_rule_wire(struct tsr_conformance_case *c)
{
    uint64_t described = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        const struct tsr_codec_shape *s = &tsr_codec_shapes[i];
        struct tsr_codec_job          j = tsr_codec_job_of(s->rows, s->cols, NULL, 0);
        struct tsr_codec_wire         w;
        void                         *self = tsr_codec_made(c, s->cols);
        uint64_t                      bytes;
        (void)wires(c, self);
        bool carried = tsr_codec_bytes(c, self, s->rows, s->cols, &bytes);
        if (!describe(c, self, j.site, j.source, s->cols, &w))
            continue;
        if (!carried)
            tsr_conformance_rule_fail(
                c, "wire() describes %llu columns, which wire_bytes() does not carry", U(s->cols));
        const char *wrong =
            w.cols == s->cols ? tsr_conformance_wire_wrong(&w) : "cols is another number";
        if (wrong)
            tsr_conformance_rule_fail(c, "wire() of %llu columns: %s", U(s->cols), wrong);
        if (w.row_bytes * s->rows != bytes)
            tsr_conformance_rule_fail(
                c,
                "wire() of %llu columns has rows of %llu bytes, wire_bytes() of %llu x "
                "%llu is %llu",
                U(s->cols), U(w.row_bytes), U(s->rows), U(s->cols), U(bytes));
        compare(c, self, s, i, &w);
        check_same(c, self, &w);
        described++;
    }
    if (described == 0)
        tsr_conformance_rule_skip(c, "no wire of these options is described");
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_codec_wire w = { .struct_size = sizeof w };
    void                 *self = tsr_codec_made(c, 64);
    uint64_t              huge = UINT64_MAX / 2, bytes;
    if (table(c)->wire_bytes(self, 1, huge, &bytes, &e.err) != TSR_OK &&
        wires(c, self)->wire(self, 0, 0, huge, &w, &e.err) == TSR_OK)
        tsr_conformance_rule_fail(c, "wire() describes %llu columns, which wire_bytes() refuses",
                                  U(huge));
}
