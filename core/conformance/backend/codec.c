/* Backends: the rules about messages that are coded on a device (tessera/backend_codec.h). */
#include "conformance/backend/backend.h"
#include "conformance/wire.h"

#include "base/f16.h"
#include "tessera/backend_codec.h"
#include "tessera/format.h"

#include <string.h>

#define U(x)   ((unsigned long long)(x))
#define ROWS   UINT64_C(3)
#define MOST   UINT64_C(259) /* columns */
#define MARGIN 0x5a
#define BESIDE UINT64_C(48) /* bytes before and after a message */

/* The table, whole; a backend need not have one. */
static const struct tsr_backend_codec_v1 *codecs(struct tsr_conformance_device *d)
{
    const struct tsr_backend_codec_v1 *t =
        d->t->extension ? d->t->extension(d->self, TSR_BACKEND_CODEC) : NULL;
    if (!t)
        tsr_conformance_rule_skip(d->c,
                                  "the backend codes no messages: it has no \"" TSR_BACKEND_CODEC
                                  "\"");
    if (!TSR_HAS(struct tsr_backend_codec_v1, t, decode) || !t->stream_open || !t->stream_close ||
        !t->stream_behind || !t->address || !t->place || !t->wire_load || !t->wire_free ||
        !t->encode)
        tsr_conformance_rule_fail(d->c,
                                  "a function of the table \"" TSR_BACKEND_CODEC "\" is missing");
    return t;
}

/* ---- wires ------------------------------------------------------------------------ */

struct lists {
    uint32_t feature[MOST], place[MOST];
    float    inv[MOST], scale[MOST];
};

/* Every third column is kept; the scales of the others differ. */
static void scaled(struct tsr_codec_wire *w, struct lists *l, uint32_t bits)
{
    uint64_t kept = 0, coded = 0;
    for (uint64_t k = 0; k < w->cols; k++)
        if (k % 3 == 2)
            l->feature[kept++] = (uint32_t)k;
        else
            l->place[coded++] = (uint32_t)k;
    for (uint64_t i = 0; i < coded; i++) {
        l->scale[i] = 3.1f / (float)((1 << (bits - 1)) - 1) * (1 + (float)(i % 7) / 8);
        l->inv[i] = 1 / l->scale[i];
    }
    w->kind = TSR_WIRE_SCALED;
    w->bits = bits;
    w->kept = kept;
    w->feature = l->feature;
    w->place = l->place;
    w->inv = l->inv;
    w->scale = l->scale;
    w->row_bytes = 2 * kept + (coded * bits + 7) / 8;
}

static void mx(struct tsr_codec_wire *w, uint32_t element, uint32_t bits, uint64_t block,
               uint32_t scale_bits, uint32_t rounding)
{
    uint64_t blocks = (w->cols + block - 1) / block;
    w->kind = TSR_WIRE_MX;
    w->element = element;
    w->block = block;
    w->scale_bits = scale_bits;
    w->rounding = rounding;
    w->row_bytes = (blocks * scale_bits + 7) / 8 + (w->cols * bits + 7) / 8;
}

static void plain(struct tsr_codec_wire *w, uint32_t dtype)
{
    w->kind = TSR_WIRE_PLAIN;
    w->dtype = dtype;
    w->row_bytes = w->cols * (dtype == TSR_F32 ? 4 : 2);
}

/* The i-th wire of `cols` columns; false past the last. */
static bool next(uint64_t i, uint64_t cols, struct tsr_codec_wire *w, struct lists *l)
{
    *w = (struct tsr_codec_wire){ .struct_size = sizeof *w, .cols = cols, .same = 1 };
    switch (i) {
    case 0:
        plain(w, TSR_F32);
        return true;
    case 1:
        plain(w, TSR_BF16);
        return true;
    case 2:
        plain(w, TSR_F16);
        return true;
    case 3:
        mx(w, TSR_MX_FP4_E2M1, 4, 32, 8, TSR_WIRE_EVEN);
        return true;
    case 4:
        mx(w, TSR_MX_FP8_E4M3, 8, 16, 8, TSR_WIRE_NEAREST);
        return true;
    case 5:
        mx(w, TSR_MX_FP5_E2M2, 5, 24, 5, TSR_WIRE_FLOOR);
        return true;
    case 6:
        mx(w, TSR_MX_INT(6), 6, 64, 8, TSR_WIRE_EVEN);
        return true;
    case 7:
        scaled(w, l, 4);
        return true;
    case 8:
        scaled(w, l, 3);
        return true;
    default:
        return false;
    }
}

/* ---- one message ------------------------------------------------------------------- */

struct message {
    struct tsr_conformance_device     *d;
    const struct tsr_backend_codec_v1 *t;
    const struct tsr_codec_wire       *w;
    void                              *stream, *wire, *buffer;
    uint64_t                           n, bytes; /* numbers; of the message */
    char                               what[64];
};

static void *buffer(struct tsr_conformance_device *d, uint64_t bytes, const void *image)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *b = NULL;
    tsr_conformance_rule_ok(d->c, d->t->buffer_alloc(d->self, bytes, &b, &e.err), &e,
                            "buffer_alloc()");
    tsr_conformance_rule_ok(d->c, d->t->upload(d->self, b, 0, image, bytes, &e.err), &e,
                            "upload()");
    return b;
}

/* Work on the stream follows earlier uploads. */
static void follow(struct message *m)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(m->d->c, m->t->stream_behind(m->d->self, m->stream, NULL, &e.err), &e,
                            "stream_behind()");
}

static void wait(struct message *m)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(m->d->c, m->d->t->sync(m->d->self, m->stream, &e.err), &e,
                            "sync() of a stream");
}

/* Frames are judged by the numbers that they hold: a zero of an element has two codes. */
static void check_encode(struct message *m, const struct tsr_conformance_grid *x, const float *want)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    unsigned char    *p = tsr_conformance_rule_memory(m->d->c, m->bytes + 2 * BESIDE);
    float            *mine = tsr_conformance_rule_memory(m->d->c, m->w->cols * 4);
    follow(m);
    tsr_conformance_rule_ok(m->d->c,
                            m->t->encode(m->d->self, m->stream, m->wire, &x->t, m->buffer, BESIDE,
                                         &e.err),
                            &e, "encode() of %s", m->what);
    wait(m);
    tsr_conformance_rule_ok(m->d->c,
                            m->d->t->download(m->d->self, m->buffer, 0, p, m->bytes + 2 * BESIDE,
                                              &e.err),
                            &e, "download()");
    for (uint64_t r = 0; r < ROWS; r++) {
        tsr_conformance_wire_decode(m->w, p + BESIDE + r * m->w->row_bytes, mine);
        uint64_t i = tsr_conformance_rule_differ(mine, want + r * m->w->cols, m->w->cols * 4) / 4;
        if (i < m->w->cols)
            tsr_conformance_rule_fail(
                m->d->c,
                "encode() of %s: row %llu, column %llu travels as %.9g, wanted "
                "%.9g",
                m->what, U(r), U(i), (double)mine[i], (double)want[r * m->w->cols + i]);
    }
    for (uint64_t i = 0; i < BESIDE; i++)
        if (p[i] != MARGIN || p[BESIDE + m->bytes + i] != MARGIN)
            tsr_conformance_rule_fail(m->d->c, "encode() of %s writes outside the message",
                                      m->what);
}

static void check_decode(struct message *m, struct tsr_conformance_grid *out, const float *before,
                         const float *want, int32_t add)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    follow(m);
    tsr_conformance_rule_ok(m->d->c,
                            m->t->decode(m->d->self, m->stream, m->wire, m->buffer, BESIDE, &out->t,
                                         add, &e.err),
                            &e, "decode() of %s", m->what);
    wait(m);
    const float *got = tsr_conformance_grid_rows(m->d, out);
    for (uint64_t i = 0; i < m->n; i++) {
        float sum = add ? before[i] + want[i] : want[i];
        if (tsr_f32_bits(got[i]) != tsr_f32_bits(sum))
            tsr_conformance_rule_fail(
                m->d->c,
                "decode() of %s%s: row %llu, column %llu is %.9g, wanted %.9g, to the "
                "bit",
                m->what, add ? " with add" : "", U(i / m->w->cols), U(i % m->w->cols),
                (double)got[i], (double)sum);
    }
    if (tsr_conformance_grid_spoilt(m->d, out) < out->bytes)
        tsr_conformance_rule_fail(m->d->c, "decode() of %s writes outside its rows", m->what);
}

/* One wire, there and back; false: the device does not code it. */
static bool travel(struct message *m, uint64_t stream)
{
    struct tsr_conformance_case *c = m->d->c;
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    tsr_status                   st = m->t->wire_load(m->d->self, m->w, &m->wire, &e.err);
    if (st == TSR_E_UNSUPPORTED) {
        tsr_conformance_rule_refused(c, st, TSR_E_UNSUPPORTED, &e, "wire_load() of %s", m->what);
        return false;
    }
    tsr_conformance_rule_ok(c, st, &e, "wire_load() of %s", m->what);
    float *x = tsr_conformance_rule_memory(c, m->n * 4),
          *want = tsr_conformance_rule_memory(c, m->n * 4);
    float *before = tsr_conformance_rule_memory(c, m->n * 4);
    tsr_conformance_rule_normal(c, stream, x, m->n);
    tsr_conformance_rule_normal(c, stream + 1, before, m->n);
    m->bytes = ROWS * m->w->row_bytes;
    unsigned char *frame = tsr_conformance_rule_memory(c, m->bytes + 2 * BESIDE);
    memset(frame, MARGIN, m->bytes + 2 * BESIDE);
    m->buffer = buffer(m->d, m->bytes + 2 * BESIDE, frame);
    for (uint64_t r = 0; r < ROWS; r++) {
        unsigned char *row = frame + BESIDE + r * m->w->row_bytes;
        tsr_conformance_wire_encode(m->w, x + r * m->w->cols, row);
        tsr_conformance_wire_decode(m->w, row, want + r * m->w->cols);
    }
    struct tsr_conformance_grid in, out;
    tsr_conformance_grid_make(m->d, &in, TSR_F32, ROWS, m->w->cols, x);
    check_encode(m, &in, want);
    tsr_conformance_rule_ok(c,
                            m->d->t->upload(m->d->self, m->buffer, 0, frame, m->bytes + 2 * BESIDE,
                                            &e.err),
                            &e, "upload()");
    for (int32_t add = 0; add < 2; add++) {
        tsr_conformance_grid_make(m->d, &out, TSR_F32, ROWS, m->w->cols, before);
        check_decode(m, &out, before, want, add);
    }
    m->t->wire_free(m->d->self, m->wire);
    m->d->t->buffer_free(m->d->self, m->buffer);
    return true;
}

void tsr_conformance_backend_rule_codec(struct tsr_conformance_case *c)
{
    static const uint64_t         widths[] = { 1, 64, 131, MOST };
    struct tsr_conformance_device d;
    struct tsr_codec_wire         w;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct lists                 *l = tsr_conformance_rule_memory(c, sizeof *l);
    uint64_t                      coded = 0;
    tsr_conformance_device_make(&d, c);
    struct message m = { .d = &d, .t = codecs(&d), .w = &w };
    tsr_conformance_rule_ok(c, m.t->stream_open(d.self, &m.stream, &e.err), &e, "stream_open()");
    for (uint64_t k = 0; k < sizeof widths / sizeof *widths; k++)
        for (uint64_t i = 0; next(i, widths[k], &w, l); i++) {
            (void)snprintf(m.what, sizeof m.what, "wire %llu, %llu x %llu", U(i), U(ROWS),
                           U(w.cols));
            m.n = ROWS * w.cols;
            coded += travel(&m, 700 + 20 * k + 2 * i);
        }
    m.t->wire_free(d.self, NULL);
    m.t->stream_close(d.self, m.stream);
    m.t->stream_close(d.self, NULL);
    if (coded == 0)
        tsr_conformance_rule_skip(c, "the device codes none of the wires that were tried");
}

void tsr_conformance_backend_rule_codec_ranges(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_codec_wire         w;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct lists                 *l = tsr_conformance_rule_memory(c, sizeof *l);
    struct tsr_conformance_grid   x;
    void                         *wire = NULL, *none = NULL;
    unsigned char                *zero = tsr_conformance_rule_memory(c, 4 * ROWS * 64);
    tsr_conformance_device_make(&d, c);
    const struct tsr_backend_codec_v1 *t = codecs(&d);
    (void)next(0, 64, &w, l);
    w.kind = 77;
    tsr_conformance_rule_refused(c, t->wire_load(d.self, &w, &none, &e.err), TSR_E_UNSUPPORTED, &e,
                                 "wire_load() of a kind that is not one of TSR_WIRE_*");
    (void)next(0, 64, &w, l);
    tsr_status st = t->wire_load(d.self, &w, &wire, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        tsr_conformance_rule_skip(c, "the device does not code F32");
    tsr_conformance_rule_ok(c, st, &e, "wire_load()");
    const uint64_t bytes = ROWS * w.row_bytes;
    void          *b = buffer(&d, bytes, zero);
    tsr_conformance_grid_make(&d, &x, TSR_F32, ROWS, 64, zero);
    const uint64_t offsets[] = { 1, bytes, UINT64_MAX - 7 };
    for (uint64_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        e = (struct tsr_errbuf)TSR_ERRBUF(e);
        tsr_conformance_rule_refused(c, t->encode(d.self, NULL, wire, &x.t, b, offsets[i], &e.err),
                                     TSR_E_INVAL, &e, "encode() to %llu bytes at %llu of %llu",
                                     U(bytes), U(offsets[i]), U(bytes));
        tsr_conformance_rule_refused(c,
                                     t->decode(d.self, NULL, wire, b, offsets[i], &x.t, 0, &e.err),
                                     TSR_E_INVAL, &e, "decode() of %llu bytes at %llu of %llu",
                                     U(bytes), U(offsets[i]), U(bytes));
    }
    struct tsr_tensor wide = x.t, far = x.t;
    wide.cols = 65;
    far.offset = x.bytes - 4;
    const struct tsr_tensor *views[] = { &wide, &far };
    for (uint64_t i = 0; i < 2; i++)
        tsr_conformance_rule_refused(c, t->encode(d.self, NULL, wire, views[i], b, 0, &e.err),
                                     TSR_E_INVAL, &e, "encode() of %s",
                                     i ? "a view that does not lie inside its buffer"
                                       : "65 columns over a wire of 64");
}
