/* Backends: the rules about weights that leave a device as bytes and come back
 * (tessera/backend_layout.h). */
#include "conformance/backend/backend.h"

#include "quant/quant.h"
#include "tessera/backend_layout.h"

#include <string.h>

#define U(x) ((unsigned long long)(x))
#define ROWS UINT64_C(34)
#define COLS UINT64_C(148)

/* The table, whole; a backend need not have one. */
static const struct tsr_backend_layout_v1 *layouts(struct tsr_conformance_device *d)
{
    const struct tsr_backend_layout_v1 *t =
        d->t->extension ? d->t->extension(d->self, TSR_BACKEND_LAYOUT) : NULL;
    if (!t)
        tsr_conformance_rule_skip(d->c, "the backend keeps its layouts to itself: it has no "
                                        "\"" TSR_BACKEND_LAYOUT "\"");
    if (!TSR_HAS(struct tsr_backend_layout_v1, t, weight_borrow) || !t->weight_layout ||
        !t->weight_read || !t->weight_borrow)
        tsr_conformance_rule_fail(d->c,
                                  "a function of the table \"" TSR_BACKEND_LAYOUT "\" is missing");
    return t;
}

/* As a host that has the bytes alone describes it. */
static struct tsr_weight_desc bare(const struct tsr_weight_desc *w)
{
    return (struct tsr_weight_desc){ .struct_size = sizeof *w,
                                     .name = w->name,
                                     .format = w->format,
                                     .rows = w->rows,
                                     .cols = w->cols };
}

static struct tsr_weight_layout layout_of(struct tsr_conformance_device      *d,
                                          const struct tsr_backend_layout_v1 *t,
                                          const struct tsr_weight_desc       *w)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_weight_desc   desc = bare(w);
    struct tsr_weight_layout l = { .struct_size = sizeof l };
    tsr_conformance_rule_ok(d->c, t->weight_layout(d->self, &desc, &l, &e.err), &e,
                            "weight_layout()");
    return l;
}

static unsigned char *bytes_of(struct tsr_conformance_device      *d,
                               const struct tsr_backend_layout_v1 *t, const void *weight,
                               const struct tsr_weight_layout *l)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          align = l->align ? l->align : 1;
    char             *room = tsr_conformance_rule_memory(d->c, l->bytes + align);
    unsigned char    *p = (unsigned char *)room + (align - (uintptr_t)room % align) % align;
    tsr_conformance_rule_ok(d->c, t->weight_read(d->self, weight, 0, p, l->bytes, &e.err), &e,
                            "weight_read() of all %llu bytes", U(l->bytes));
    return p;
}

/* Every kind of format once; next() is false past the last. */
static bool next(uint64_t i, struct tsr_format *f)
{
    static const struct tsr_format all[] = {
        { .struct_size = sizeof *f, .id = TSR_FORMAT_FLOAT, .dtype = TSR_F32 },
        { .struct_size = sizeof *f, .id = TSR_FORMAT_FLOAT, .dtype = TSR_BF16 },
        { .struct_size = sizeof *f, .id = TSR_FORMAT_INT, .bits = 8, .scale_dtype = TSR_F32 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_INT,
          .bits = 4,
          .group = 32,
          .zero = TSR_ZERO_STORED,
          .scale_dtype = TSR_F16 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_INT,
          .bits = 3,
          .group = 64,
          .scale_dtype = TSR_F16 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_AFFINE,
          .bits = 5,
          .group = 32,
          .scale_bits = 6 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_AFFINE,
          .bits = 4,
          .group = 32,
          .scale_dtype = TSR_F16 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_TABLE,
          .bits = 4,
          .group = 32,
          .scale_bits = 6,
          .table = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 } },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_LUT,
          .bits = 4,
          .outliers = 3,
          .scale_dtype = TSR_F16 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_MX,
          .element = TSR_MX_FP4_E2M1,
          .bits = 4,
          .group = 32,
          .scale_bits = 8 },
        { .struct_size = sizeof *f,
          .id = TSR_FORMAT_MX,
          .element = TSR_MX_FP8_E4M3,
          .bits = 8,
          .group = 32,
          .scale_bits = 8 },
    };
    if (i >= sizeof all / sizeof all[0])
        return false;
    *f = all[i];
    return true;
}

void tsr_backend_rule_layout(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_format             f;
    const char                   *id = NULL;
    uint32_t                      revision = 0;
    tsr_conformance_device_make(&d, c);
    const struct tsr_backend_layout_v1 *t = layouts(&d);
    for (uint64_t i = 0; next(i, &f); i++) {
        struct tsr_weight_desc w;
        void                  *weight = NULL, *again = NULL;
        char                   name[128];
        tsr_model_format_name(&f, name, sizeof name);
        tsr_conformance_weight_random(c, 620 + i, &f, ROWS, COLS, &w);
        if (!tsr_conformance_weight_load(&d, &w, &weight))
            continue;
        struct tsr_weight_layout l = layout_of(&d, t, &w);
        if (!l.id || !*l.id || l.bytes == 0 || l.align == 0 || l.align > 4096 ||
            (l.align & (l.align - 1)) != 0)
            tsr_conformance_rule_fail(
                c, "weight_layout() of %s: id '%s', %llu bytes on a multiple of %llu", name,
                l.id ? l.id : "NULL", U(l.bytes), U(l.align));
        if (id && (strcmp(id, l.id) != 0 || revision != l.revision))
            tsr_conformance_rule_fail(
                c,
                "weight_layout() of %s is %s revision %u, of another format %s "
                "revision %u: a backend has one layout",
                name, l.id, l.revision, id, revision);
        id = l.id;
        revision = l.revision;
        unsigned char *a = bytes_of(&d, t, weight, &l), *b;
        if (!tsr_conformance_weight_load(&d, &w, &again))
            tsr_conformance_rule_fail(c, "weight_load() of %s works once and is declined then",
                                      name);
        b = bytes_of(&d, t, again, &l);
        for (uint64_t k = 0; k < l.bytes; k++)
            if (a[k] != b[k])
                tsr_conformance_rule_fail(
                    c, "%s: byte %llu of %llu differs when the same weight is loaded again", name,
                    U(k), U(l.bytes));
        d.t->weight_free(d.self, weight);
        d.t->weight_free(d.self, again);
    }
}

/* What LINEAR gives on a weight, or NULL where it declines. */
static const unsigned char *product(struct tsr_conformance_device *d, const void *weight,
                                    const float *x, uint32_t act)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_conformance_grid in, out;
    tsr_conformance_grid_make(d, &in, TSR_F32, 3, COLS, x);
    tsr_conformance_grid_make(d, &out, TSR_F32, 3, ROWS,
                              tsr_conformance_rule_memory(d->c, 3 * ROWS * 4));
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &out.t,
                         .in = { &in.t },
                         .weight = weight,
                         .act = act };
    tsr_status    st = d->t->run(d->self, NULL, &op, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        return NULL;
    tsr_conformance_rule_ok(d->c, st, &e, "LINEAR");
    tsr_conformance_rule_ok(d->c, d->t->sync(d->self, NULL, &e.err), &e, "sync()");
    return tsr_conformance_grid_rows(d, &out);
}

void tsr_backend_rule_layout_borrow(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_format             f;
    uint64_t                      ran = 0;
    float                        *x = tsr_conformance_rule_memory(c, 3 * COLS * 4);
    tsr_conformance_rule_normal(c, 640, x, 3 * COLS);
    tsr_conformance_device_make(&d, c);
    const struct tsr_backend_layout_v1 *t = layouts(&d);
    for (uint64_t i = 0; next(i, &f); i++) {
        struct tsr_errbuf      e = TSR_ERRBUF(e);
        struct tsr_weight_desc w;
        void                  *weight = NULL, *over = NULL;
        char                   name[128];
        tsr_model_format_name(&f, name, sizeof name);
        tsr_conformance_weight_random(c, 650 + i, &f, ROWS, COLS, &w);
        if (!tsr_conformance_weight_load(&d, &w, &weight))
            continue;
        struct tsr_weight_layout l = layout_of(&d, t, &w);
        struct tsr_weight_desc   desc = bare(&w);
        unsigned char           *p = bytes_of(&d, t, weight, &l);
        unsigned char           *kept = tsr_conformance_rule_memory(c, l.bytes);
        memcpy(kept, p, l.bytes);
        tsr_conformance_rule_ok(c, t->weight_borrow(d.self, &desc, p, l.bytes, &over, &e.err), &e,
                                "weight_borrow() of %s from the bytes of weight_read()", name);
        for (uint32_t act = TSR_ACT_F32; act <= TSR_ACT_A8; act++) {
            const unsigned char *a = product(&d, weight, x, act), *b = product(&d, over, x, act);
            if (!a && !b)
                continue;
            if (!a || !b)
                tsr_conformance_rule_fail(
                    c, "%s, act %u: LINEAR runs on one of a weight and its bytes only", name, act);
            if (memcmp(a, b, 3 * ROWS * 4) != 0)
                tsr_conformance_rule_fail(
                    c, "%s, act %u: LINEAR over borrowed bytes gives other numbers", name, act);
            ran++;
        }
        unsigned char *again = bytes_of(&d, t, over, &l);
        if (memcmp(again, kept, l.bytes) != 0)
            tsr_conformance_rule_fail(c, "%s: weight_read() of a borrowed weight gives other bytes",
                                      name);
        d.t->weight_free(d.self, over);
        if (memcmp(p, kept, l.bytes) != 0)
            tsr_conformance_rule_fail(c, "%s: the borrowed bytes were written", name);
        d.t->weight_free(d.self, weight);
    }
    if (ran == 0)
        tsr_conformance_rule_skip(c,
                                  "the backend declines LINEAR, so its weights cannot be compared");
}

void tsr_backend_rule_layout_ranges(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_weight_desc        w;
    void                         *weight = NULL, *over = NULL;
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    tsr_conformance_device_make(&d, c);
    const struct tsr_backend_layout_v1 *t = layouts(&d);
    tsr_conformance_weight_random(c, 660, &f, ROWS, COLS, &w);
    if (!tsr_conformance_weight_load(&d, &w, &weight))
        tsr_conformance_rule_skip(c, "the backend does not read F32");
    struct tsr_weight_layout l = layout_of(&d, t, &w);
    struct tsr_weight_desc   desc = bare(&w);
    unsigned char           *p = bytes_of(&d, t, weight, &l);
    unsigned char           *to = tsr_conformance_rule_memory(c, l.bytes + 64);
    const struct {
        uint64_t at, bytes;
    } outside[] = { { l.bytes, 1 }, { 1, l.bytes }, { 0, l.bytes + 1 }, { UINT64_MAX, 2 } };
    for (uint64_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_conformance_rule_refused(c,
                                     t->weight_read(d.self, weight, outside[i].at, to,
                                                    outside[i].bytes, &e.err),
                                     TSR_E_INVAL, &e, "weight_read() of %llu bytes at %llu of %llu",
                                     U(outside[i].bytes), U(outside[i].at), U(l.bytes));
    }
    const uint64_t lengths[] = { 0, l.bytes - 1, l.bytes + 1 };
    for (uint64_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_conformance_rule_refused(c,
                                     t->weight_borrow(d.self, &desc, p, lengths[i], &over, &e.err),
                                     TSR_E_INVAL, &e,
                                     "weight_borrow() of %llu bytes where it takes %llu",
                                     U(lengths[i]), U(l.bytes));
    }
    struct tsr_errbuf e = TSR_ERRBUF(e);
    f.id = "org.example.unheard-of/1";
    tsr_conformance_rule_refused(c, t->weight_layout(d.self, &desc, &l, &e.err), TSR_E_UNSUPPORTED,
                                 &e, "weight_layout() of format \"%s\"", f.id);
}
