/* What a quantizer's own kernel makes once, and its flags (tessera/kernel.h), held to its plain products. */
#include "conformance/quantizer/kernel_bench.h"
#include "tessera/f16.h"

#include <string.h>

/* Twice over other bytes. */
static void check_repeats(const struct bench *b, uint64_t bytes, const void *a, const void *z)
{
    if (!tsr_conformance_guarded_intact(a) || !tsr_conformance_guarded_intact(z))
        tsr_conformance_rule_fail(b->c, "prepare() wrote past the end of its bytes");
    for (uint64_t i = 0; i < bytes; i++)
        if (((const unsigned char *)a)[i] != ((const unsigned char *)z)[i])
            tsr_conformance_rule_fail(
                b->c,
                "byte %llu of %llu that prepare() writes differs from call to "
                "call",
                (unsigned long long)i, (unsigned long long)bytes);
}

/* All rows, and how many bytes. */
static void *prepare_all(const struct bench *b, unsigned fill, uint64_t *bytes)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct part              p = tsr_conformance_kernel_all(b);
    const struct tsr_kernel_weight w = tsr_conformance_kernel_weight(b, &p, b->t.codes, b->t.meta);
    tsr_conformance_rule_ok(b->c, b->k->prepared(b->self, &w, bytes, &e.err), &e, "prepared()");
    const uint64_t stored = b->t.code_bytes + b->t.meta_bytes;
    if (*bytes > stored)
        tsr_conformance_rule_fail(
            b->c, "prepared() states %llu bytes; codes and meta of the rows have %llu",
            (unsigned long long)*bytes, (unsigned long long)stored);
    void *to = tsr_conformance_guarded("prepared", *bytes, (unsigned char)fill);
    tsr_conformance_rule_ok(b->c, b->k->prepare(b->self, &w, to, &e.err), &e, "prepare()");
    return to;
}

/* Runs of rows of what was made of all of them. */
void tsr_conformance_quant_kernel_prepared(struct tsr_conformance_case *c)
{
    struct bench b;
    uint64_t     bytes = 0;
    tsr_conformance_kernel_setup(&b, c);
    if (!b.prepares)
        tsr_conformance_rule_skip(c, "its kernel has no prepare()");
    void *a = prepare_all(&b, 0x00, &bytes), *z = prepare_all(&b, 0xff, &bytes);
    check_repeats(&b, bytes, a, z);
    b.whole = tsr_conformance_kernel_all_of(&b);
    for (uint64_t i = 0; i < b.t.units; i += (b.t.units + 4) / 5) {
        struct part p = tsr_conformance_kernel_all(&b);
        p.prepared = a;
        p.begin = i;
        tsr_conformance_kernel_same(&b, &p);
        p.end = i + 1;
        tsr_conformance_kernel_same(&b, &p);
    }
    tsr_conformance_guarded_free(a);
    tsr_conformance_guarded_free(z);
    tsr_conformance_quant_destroy(c, b.self);
}

/* Some tokens of what was made of all of them. */
void tsr_conformance_quant_kernel_inputs(struct tsr_conformance_case *c)
{
    struct bench      b;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          bytes = 0;
    tsr_conformance_kernel_setup(&b, c);
    if (!b.encodes)
        tsr_conformance_rule_skip(c, "its kernel has no inputs()");
    struct part                    p = tsr_conformance_kernel_all(&b);
    const struct tsr_kernel_weight w = tsr_conformance_kernel_weight(&b, &p, b.t.codes, b.t.meta);
    const struct tsr_kernel_job    job = { .struct_size = sizeof job,
                                           .weight = &w,
                                           .n = BATCH,
                                           .in = b.x,
                                           .in_stride = COLS + GAP,
                                           .tokens = BATCH };
    tsr_conformance_rule_ok(c, b.k->input_bytes(b.self, &w, BATCH, &bytes, &e.err), &e,
                            "input_bytes()");
    void *made = tsr_conformance_guarded("inputs", bytes, 0x5A);
    tsr_conformance_rule_ok(c, b.k->inputs(b.self, &job, made, &e.err), &e, "inputs()");
    if (!tsr_conformance_guarded_intact(made))
        tsr_conformance_rule_fail(c, "inputs() wrote past the end of its bytes");
    b.whole = tsr_conformance_kernel_all_of(&b);
    p.inputs = made;
    for (p.first = 0; p.first < BATCH; p.first++)
        for (p.n = 1; p.first + p.n <= BATCH; p.n++)
            tsr_conformance_kernel_same(&b, &p);
    tsr_conformance_guarded_free(made);
    tsr_conformance_quant_destroy(c, b.self);
}

static void add(float *to, const float *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Segments that the kernel adds, and the tree of docs/decisions/numerics.md over each alone. */
void tsr_conformance_quant_kernel_adds(struct tsr_conformance_case *c)
{
    struct bench      b;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_conformance_kernel_setup(&b, c);
    if (!(b.flags & TSR_KERNEL_ADDS))
        tsr_conformance_rule_skip(c, "its kernel does not add segments");
    struct part p = tsr_conformance_kernel_all(&b);
    p.segment = 32;
    const uint64_t size = BATCH * b.t.w.rows, n = tsr_conformance_kernel_segments(&p);
    float         *each = tsr_conformance_rule_room(n * size * sizeof *each);
    float         *out = tsr_conformance_rule_room(size * sizeof *out);
    tsr_status     st =
        tsr_conformance_kernel_with(&b, &p, b.x, each, b.t.w.rows, b.t.codes, b.t.meta, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        tsr_conformance_rule_skip(c, "its kernel multiplies whole rows alone");
    tsr_conformance_rule_ok(c, st, &e, "linear() of some columns");
    p.at_once = true;
    st = tsr_conformance_kernel_with(&b, &p, b.x, out, b.t.w.rows, b.t.codes, b.t.meta, &e.err);
    tsr_conformance_rule_ok(c, st, &e, "linear()");
    for (uint64_t width = 1; width < n; width *= 2)
        for (uint64_t s = 0; s + width < n; s += 2 * width)
            add(each + s * size, each + (s + width) * size, size);
    for (uint64_t i = 0; i < size; i++)
        if (tsr_f32_bits(out[i]) != tsr_f32_bits(each[i] + 0.0f))
            tsr_conformance_rule_fail(c,
                                      "row %llu of token %llu is %.9g, and the tree over its "
                                      "segments is %.9g",
                                      (unsigned long long)(i % b.t.w.rows),
                                      (unsigned long long)(i / b.t.w.rows), (double)out[i],
                                      (double)(each[i] + 0.0f));
    tsr_conformance_quant_destroy(c, b.self);
}

/* The first half of the units, each with its like in the second half. */
void tsr_conformance_quant_kernel_pairs(struct tsr_conformance_case *c)
{
    struct bench      b;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          bytes = 0;
    tsr_conformance_kernel_setup(&b, c);
    const uint64_t rows = b.t.w.rows, half = b.t.units / 2, there = 2 * half * b.t.rows_per_unit;
    if (!(b.flags & TSR_KERNEL_PAIRS) || half == 0)
        tsr_conformance_rule_skip(c, "its kernel does not take two runs of rows");
    struct part p = tsr_conformance_kernel_all(&b);
    void       *prepared = b.prepares ? prepare_all(&b, 0, &bytes) : NULL;
    float      *out = tsr_conformance_rule_room(BATCH * rows * sizeof *out);
    b.whole = tsr_conformance_kernel_all_of(&b);
    p.end = half;
    p.apart = half * b.t.rows_per_unit;
    p.prepared = prepared;
    tsr_conformance_rule_ok(c,
                            tsr_conformance_kernel_with(&b, &p, b.x, out, rows, b.t.codes, b.t.meta,
                                                        &e.err),
                            &e, "linear() of two runs of rows");
    for (uint64_t i = 0; i < BATCH * rows; i++)
        if (i % rows < there && tsr_f32_bits(out[i]) != tsr_f32_bits(b.whole[i]))
            tsr_conformance_rule_fail(c,
                                      "row %llu of token %llu is %.9g in two runs, and %.9g in one",
                                      (unsigned long long)(i % rows),
                                      (unsigned long long)(i / rows), (double)out[i],
                                      (double)b.whole[i]);
    if (prepared)
        tsr_conformance_guarded_free(prepared);
    tsr_conformance_quant_destroy(c, b.self);
}
