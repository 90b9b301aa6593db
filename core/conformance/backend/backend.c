/* Backends: a device, the rules about its memory, and the table of all. */
#include "conformance/backend/backend.h"
#include "conformance/wire.h"

#include "base/f16.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))

static const struct tsr_backend_v1 *table(const struct tsr_conformance_case *c)
{
    return c->iface;
}

void tsr_conformance_device_make(struct tsr_conformance_device *d, struct tsr_conformance_case *c)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_backend_props p = { .struct_size = sizeof p };
    *d = (struct tsr_conformance_device){ .c = c, .t = table(c) };
    tsr_conformance_rule_ok(c, d->t->create(c->host->give, c->options, &d->self, &e.err), &e,
                            "create()");
    tsr_conformance_rule_ok(c, d->t->properties(d->self, &p, &e.err), &e, "properties()");
    d->exact = p.deterministic == 1;
    d->eps = d->exact ? 2e-5 : 1e-2;
}

/* ---- grids ---------------------------------------------------------------------- */

static void *buffer(struct tsr_conformance_device *d, uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *b = NULL;
    tsr_conformance_rule_ok(d->c, d->t->buffer_alloc(d->self, bytes, &b, &e.err), &e,
                            "buffer_alloc() of %llu bytes", U(bytes));
    return b;
}

static void put(struct tsr_conformance_device *d, void *b, uint64_t offset, const void *src,
                uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(d->c, d->t->upload(d->self, b, offset, src, bytes, &e.err), &e,
                            "upload() of %llu bytes at %llu", U(bytes), U(offset));
}

static void get(struct tsr_conformance_device *d, const void *b, uint64_t offset, void *dst,
                uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_rule_ok(d->c, d->t->download(d->self, b, offset, dst, bytes, &e.err), &e,
                            "download() of %llu bytes at %llu", U(bytes), U(offset));
}

void tsr_conformance_grid_make(struct tsr_conformance_device *d, struct tsr_conformance_grid *g,
                               uint32_t dtype, uint64_t rows, uint64_t cols, const void *data)
{
    uint64_t row = cols * tsr_dtype_size(dtype);
    g->t = (struct tsr_tensor){ .struct_size = sizeof g->t,
                                .dtype = dtype,
                                .offset = 64,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = row + 64 };
    g->bytes = 64 + rows * g->t.row_stride;
    g->image = tsr_conformance_rule_memory(d->c, g->bytes);
    memset(g->image, TSR_GRID_MARGIN, g->bytes);
    for (uint64_t r = 0; r < rows; r++)
        memcpy(g->image + 64 + r * g->t.row_stride, (const char *)data + r * row, row);
    g->t.buffer = buffer(d, g->bytes);
    put(d, g->t.buffer, 0, g->image, g->bytes);
}

static unsigned char *whole(struct tsr_conformance_device *d, const struct tsr_conformance_grid *g)
{
    unsigned char *p = tsr_conformance_rule_memory(d->c, g->bytes);
    get(d, g->t.buffer, 0, p, g->bytes);
    return p;
}

void *tsr_conformance_grid_rows(struct tsr_conformance_device     *d,
                                const struct tsr_conformance_grid *g)
{
    uint64_t       row = g->t.cols * tsr_dtype_size(g->t.dtype);
    unsigned char *p = whole(d, g), *rows = tsr_conformance_rule_memory(d->c, g->t.rows * row);
    for (uint64_t r = 0; r < g->t.rows; r++)
        memcpy(rows + r * row, p + 64 + r * g->t.row_stride, row);
    return rows;
}

uint64_t tsr_conformance_grid_spoilt(struct tsr_conformance_device     *d,
                                     const struct tsr_conformance_grid *g)
{
    uint64_t       row = g->t.cols * tsr_dtype_size(g->t.dtype);
    unsigned char *p = whole(d, g);
    for (uint64_t i = 0; i < g->bytes; i++) {
        bool inside = i >= 64 && (i - 64) % g->t.row_stride < row;
        if (!inside && p[i] != TSR_GRID_MARGIN)
            return i;
    }
    return g->bytes;
}

/* ---- memory ---------------------------------------------------------------------- */

static void rule_properties(struct tsr_conformance_case *c)
{
    const struct tsr_backend_v1 *t = table(c);
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_backend_props     p = { .struct_size = sizeof p };
    void                        *self = NULL;
    tsr_conformance_rule_ok(c, t->create(c->host->give, c->options, &self, &e.err), &e, "create()");
    tsr_conformance_rule_ok(c, t->properties(self, &p, &e.err), &e, "properties()");
    if (p.struct_size != sizeof p)
        tsr_conformance_rule_fail(c, "properties() changes struct_size to %u", p.struct_size);
    if (!p.device || !*p.device)
        tsr_conformance_rule_fail(c, "properties() names no device");
    if (p.deterministic > 1)
        tsr_conformance_rule_fail(c, "properties() has deterministic %u, wanted 0 or 1",
                                  p.deterministic);
    if (p.free_bytes > p.memory_bytes)
        tsr_conformance_rule_fail(c, "properties() has %llu free of %llu bytes", U(p.free_bytes),
                                  U(p.memory_bytes));
}

static const uint64_t buffer_sizes[] = { 1, 63, 64, 4095, 4097, 100003 };
#define BUFFERS (sizeof buffer_sizes / sizeof buffer_sizes[0])

/* Buffers are dirtied and freed in between, so that memory is reused. */
static void rule_zeroed(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    tsr_conformance_device_make(&d, c);
    for (uint64_t round = 0; round < 4; round++)
        for (uint64_t i = 0; i < BUFFERS; i++) {
            uint64_t       n = buffer_sizes[i];
            unsigned char *p = tsr_conformance_rule_room(n);
            void          *b = buffer(&d, n);
            get(&d, b, 0, p, n);
            for (uint64_t j = 0; j < n; j++)
                if (p[j] != 0)
                    tsr_conformance_rule_fail(
                        c,
                        "byte %llu of a fresh buffer of %llu bytes is 0x%02x, wanted "
                        "0",
                        U(j), U(n), p[j]);
            memset(p, 0xa5, n);
            put(&d, b, 0, p, n);
            d.t->buffer_free(d.self, b);
        }
}

static void rule_copies(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    tsr_conformance_device_make(&d, c);
    for (uint64_t i = 0; i < BUFFERS; i++) {
        uint64_t       n = buffer_sizes[i], from = n / 3, m = n - from - n / 5;
        void          *b = buffer(&d, n), *other = buffer(&d, n);
        unsigned char *p = tsr_conformance_rule_room(n), *q = tsr_conformance_rule_room(n);
        for (uint64_t j = 0; j < n; j++)
            p[j] = (unsigned char)(j * 7 + j / 251 + i);
        put(&d, b, 0, p, n);
        memset(q, 0xee, n);
        put(&d, other, 0, q, n); /* writing another buffer does not change the first */
        memset(p + from, 0x11, m);
        put(&d, b, from, p + from, m);
        get(&d, b, 0, q, n);
        if (tsr_conformance_rule_differ(p, q, n) < n)
            tsr_conformance_rule_fail(
                c,
                "a buffer of %llu bytes with %llu of them uploaded again at %llu has "
                "another byte %llu",
                U(n), U(m), U(from), U(tsr_conformance_rule_differ(p, q, n)));
        unsigned char *part = tsr_conformance_roomy("a download", m, 0xee);
        get(&d, b, from, part, m);
        if (tsr_conformance_rule_differ(p + from, part, m) < m ||
            !tsr_conformance_guarded_intact(part))
            tsr_conformance_rule_fail(
                c,
                "download() of %llu bytes at %llu gives other bytes than lie there, or "
                "more",
                U(m), U(from));
    }
}

static void rule_ranges(struct tsr_conformance_case *c)
{
    static const struct {
        uint64_t offset, bytes;
    } bad[] = { { 0, 101 },         { 100, 1 },        { 50, 51 },
                { 101, 0 },         { UINT64_MAX, 1 }, { UINT64_MAX - 10, 20 },
                { 10, UINT64_MAX }, { 1, UINT64_MAX }, { UINT64_C(1) << 40, 8 } };
    struct tsr_conformance_device d;
    unsigned char                *p = tsr_conformance_rule_room(200);
    tsr_conformance_device_make(&d, c);
    void *b = buffer(&d, 100);
    put(&d, b, 100, p, 0); /* zero bytes at the very end are inside */
    get(&d, b, 100, p, 0);
    for (uint64_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        uint64_t          at = bad[i].offset, n = bad[i].bytes;
        tsr_conformance_rule_refused(c, d.t->upload(d.self, b, at, p, n, &e.err), TSR_E_INVAL, &e,
                                     "upload() of %llu bytes at %llu into a buffer of 100", U(n),
                                     U(at));
        e.text[0] = '\0';
        tsr_conformance_rule_refused(c, d.t->download(d.self, b, at, p, n, &e.err), TSR_E_INVAL, &e,
                                     "download() of %llu bytes at %llu from a buffer of 100", U(n),
                                     U(at));
    }
}

static void rule_free_null(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    tsr_conformance_device_make(&d, c);
    d.t->buffer_free(d.self, NULL);
    d.t->weight_free(d.self, NULL);
}

/* ---- the kind ---------------------------------------------------------------------- */

static tsr_status make(struct tsr_conformance_case *c, void **self, struct tsr_err *err)
{
    return table(c)->create(c->host->give, c->options, self, err);
}

static void unmake(struct tsr_conformance_case *c, void *self)
{
    table(c)->destroy(self);
}

static const void *extension(struct tsr_conformance_case *c, void *self, const char *id)
{
    return table(c)->extension ? table(c)->extension(self, id) : NULL;
}

#define LONG_RUN 10000 /* operations of a device whose waiting takes no processor time */

/* x [T,K] by a matrix of ones [N,K]; an operation that the device declines counts as done. A long run is
 * what an engine does: operation after operation, until the host cancels. Most devices cannot stop inside
 * a single operation, so its size lets even an emulated device finish in a third of the time that the rule
 * allows. */
static tsr_status traffic(struct tsr_conformance_case *c, void *self, uint64_t T, uint64_t K,
                          uint64_t N, bool long_run, struct tsr_err *err)
{
    const struct tsr_backend_v1 *t = table(c);
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    uint64_t          widest = N > T ? N * K : T * K;
    float            *ones = tsr_conformance_rule_room(4 * (widest > T * N ? widest : T * N));
    for (uint64_t i = 0; i < widest; i++)
        ones[i] = 1;
    struct tsr_weight_desc w = { .struct_size = sizeof w,
                                 .name = "w",
                                 .format = &f,
                                 .rows = N,
                                 .cols = K,
                                 .codes = ones,
                                 .code_stride = 4 * K };
    void                  *in = NULL, *out = NULL, *weight = NULL;
    tsr_status             st = t->buffer_alloc(self, 4 * T * K, &in, err);
    if (st == TSR_OK)
        st = t->buffer_alloc(self, 4 * T * N, &out, err);
    if (st == TSR_OK)
        st = t->upload(self, in, 0, ones, 4 * T * K, err);
    if (st == TSR_OK)
        st = t->weight_load(self, &w, &weight, err);
    if (st == TSR_OK) {
        struct tsr_tensor x = { sizeof x, TSR_F32, in, 0, T, K, 4 * K };
        struct tsr_tensor y = { sizeof y, TSR_F32, out, 0, T, N, 4 * N };
        struct tsr_op     op = { .struct_size = sizeof op,
                                 .kind = TSR_OP_LINEAR,
                                 .out = &y,
                                 .in = { &x },
                                 .weight = weight };
        if (long_run)
            tsr_conformance_test_host_start(c->host);
        bool last = !long_run; /* also run one operation after the host's stop */
        for (int i = 0; i < LONG_RUN && st == TSR_OK; i++) {
            st = t->run(self, NULL, &op, err);
            if (st == TSR_OK)
                st = t->sync(self, NULL, err);
            if (last)
                break;
            last = tsr_conformance_test_host_late_ms(c->host) > 0.0;
        }
    }
    if (st == TSR_OK)
        st = t->download(self, out, 0, ones, 4 * T * N, err);
    if (weight) /* another rule tests that NULL is accepted */
        t->weight_free(self, weight);
    if (out)
        t->buffer_free(self, out);
    if (in)
        t->buffer_free(self, in);
    tsr_conformance_guarded_free(ones);
    return st == TSR_E_UNSUPPORTED ? TSR_OK : st;
}

static tsr_status exercise(struct tsr_conformance_case *c, bool long_run, struct tsr_err *err)
{
    void      *self = NULL;
    tsr_status st = make(c, &self, err);
    if (st != TSR_OK)
        return st;
    st = long_run ? traffic(c, self, 16, 512, 512, true, err)
                  : traffic(c, self, 3, 130, 20, false, err);
    unmake(c, self);
    return st;
}

#define OPERATION(rule, op, function)                                                              \
    {                                                                                              \
        .name = "backend-" rule,                                                                   \
        .text = op " gives what tessera/backend.h says, within the rounding of the device's "      \
                   "arithmetic, or is declined.",                                                  \
        .run = function                                                                            \
    }

static const struct tsr_conformance_rule rules[] = {
    { .name = "backend-properties",
      .text = "properties() names the device, has deterministic 0 or 1, and no more free memory "
              "than there is.",
      .run = rule_properties },
    { .name = "backend-buffers-zeroed",
      .text = "A buffer is zeroed, also when its memory was used before.",
      .run = rule_zeroed },
    { .name = "backend-copies",
      .text = "upload() and download() copy exactly the range that they are given.",
      .run = rule_copies },
    { .name = "backend-ranges",
      .text = "A range that does not lie inside the buffer is TSR_E_INVAL.",
      .run = rule_ranges },
    { .name = "backend-free-null",
      .text = "buffer_free() and weight_free() accept NULL.",
      .run = rule_free_null },
    { .name = "backend-weight-formats",
      .text = "Weights of every format are read as docs/formats has it, or TSR_E_UNSUPPORTED.",
      .limit_s = 60,
      .run = tsr_backend_rule_formats },
    { .name = "backend-unknown-format",
      .text = "A format of another name is TSR_E_UNSUPPORTED.",
      .run = tsr_backend_rule_unknown_format },
    { .name = "backend-weights-borrowed",
      .text = "weight_load() keeps no pointer into the host's matrix.",
      .run = tsr_backend_rule_borrowed },
    { .name = "backend-weight-bytes",
      .text = "weight_bytes() of a loaded matrix is more than zero and of its size.",
      .run = tsr_backend_rule_weight_bytes },
    { .name = "backend-layout",
      .text =
          "weight_layout() states one id and revision, and sizes and alignments; the same weight "
          "has the same bytes each time.",
      .run = tsr_backend_rule_layout },
    { .name = "backend-layout-borrow",
      .text =
          "A weight over the bytes of weight_read() gives what the loaded one gives, to the bit, "
          "and does not write to them.",
      .run = tsr_backend_rule_layout_borrow },
    { .name = "backend-layout-ranges",
      .text = "A range outside of a weight's bytes, and bytes of another length, are TSR_E_INVAL.",
      .run = tsr_backend_rule_layout_ranges },
    { .name = "backend-codec",
      .text = "Messages that are coded on the device hold the numbers that the wire's description "
              "makes, and are decoded and added to the bit, on a stream, or the wire is declined.",
      .run = tsr_conformance_backend_rule_codec },
    { .name = "backend-codec-ranges",
      .text =
          "A message or a view that does not lie inside its buffer is TSR_E_INVAL, a wire of an "
          "unknown kind TSR_E_UNSUPPORTED.",
      .run = tsr_conformance_backend_rule_codec_ranges },
    OPERATION("linear", "LINEAR", tsr_backend_rule_linear),
    { .name = "backend-linear-act",
      .text = "LINEAR with act a16 or a8 differs from f32 by the rounding of the activations only, "
              "or is declined.",
      .run = tsr_backend_rule_act },
    { .name = "backend-segments",
      .text = "Parts of a matrix that was cut at its segments add up to the whole's LINEAR, to the "
              "bit, where the backend says deterministic.",
      .run = tsr_backend_rule_segments },
    OPERATION("embed", "EMBED", tsr_backend_rule_embed),
    OPERATION("norm", "NORM", tsr_backend_rule_norm),
    OPERATION("rope", "ROPE", tsr_backend_rule_rope),
    OPERATION("kv-store", "KV_STORE", tsr_backend_rule_kv_store),
    OPERATION("attention", "ATTENTION", tsr_backend_rule_attention),
    OPERATION("act", "ACT", tsr_backend_rule_act_func),
    OPERATION("add", "ADD", tsr_backend_rule_add),
    OPERATION("scale", "SCALE", tsr_backend_rule_scale),
    OPERATION("gather", "GATHER", tsr_backend_rule_gather),
    { .name = "backend-writes",
      .text = "An operation writes the rows of its output and nothing else, and leaves its "
              "inputs alone.",
      .run = tsr_backend_rule_writes },
    { .name = "backend-in-place",
      .text = "Where backend.h allows the output in place of an input, the result is the same.",
      .run = tsr_backend_rule_in_place },
    { .name = "backend-order",
      .text = "Operations on a stream run in order, and sync() waits for all of them.",
      .run = tsr_backend_rule_order },
    { .name = "backend-unknown-op",
      .text = "An operation that the backend does not know is TSR_E_UNSUPPORTED.",
      .run = tsr_backend_rule_unknown_op },
    { .name = "backend-shapes",
      .text = "A shape or dtype that backend.h does not allow, or a view outside of its buffer, is "
              "TSR_E_INVAL.",
      .run = tsr_backend_rule_shapes },
    { .name = "backend-repeats",
      .text =
          "A backend that says deterministic gives the same bytes each time, whatever the number "
          "of threads.",
      .run = tsr_backend_rule_repeats },
    { .name = "backend-numerics",
      .text = "A backend that says deterministic keeps the order of operations of "
              "docs/decisions/numerics.md, to the bit.",
      .run = tsr_backend_rule_numerics },
};

const struct tsr_conformance_kind_rules tsr_backend_rules = {
    .kind = TSR_KIND_BACKEND,
    .noun = "backend",
    .make = make,
    .unmake = unmake,
    .extension = extension,
    .exercise = exercise,
    .rules = rules,
    .n_rules = sizeof rules / sizeof rules[0],
};
