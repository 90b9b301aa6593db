/* Backends: a device, grids of numbers on it, and the rules about its memory. */
#include "conformance/backend/backend.h"

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

void tsr_backend_rule_properties(struct tsr_conformance_case *c)
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
void tsr_backend_rule_zeroed(struct tsr_conformance_case *c)
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

void tsr_backend_rule_copies(struct tsr_conformance_case *c)
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

void tsr_backend_rule_ranges(struct tsr_conformance_case *c)
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

void tsr_backend_rule_free_null(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    tsr_conformance_device_make(&d, c);
    d.t->buffer_free(d.self, NULL);
    d.t->weight_free(d.self, NULL);
}
