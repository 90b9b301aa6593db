/* Codecs: a row is coded alone, unless the codec says that rows depend on each other. */
#include "conformance/codec/codec.h"

#define U(x) ((unsigned long long)(x))

/* x through the codec, from one source, whatever the shape is. */
static void carry(struct tsr_conformance_case *c, const void *self, uint64_t rows, uint64_t cols,
                  const float *x, float *back)
{
    const struct tsr_codec_v1 *t = c->iface;
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    uint64_t                   bytes = 0;
    (void)tsr_codec_bytes(c, self, rows, cols, &bytes);
    struct tsr_codec_job j = tsr_codec_job_of(rows, cols, tsr_conformance_rule_room(bytes), bytes);
    j.source = 0;
    j.src = x;
    tsr_conformance_rule_ok(c, t->encode(self, &j, &e.err), &e, "encode() of %llu x %llu", U(rows),
                            U(cols));
    j.src = NULL;
    j.dst = back;
    tsr_conformance_rule_ok(c, t->decode(self, &j, &e.err), &e, "decode() of %llu x %llu", U(rows),
                            U(cols));
}

/* Each row of a message, and the same in a message of its own. */
static void compare(struct tsr_conformance_case *c, const void *self,
                    const struct tsr_codec_shape *s, uint64_t stream)
{
    const uint64_t size = s->cols * sizeof(float);
    const float   *x = tsr_codec_message(c, stream, s->rows, s->cols);
    float         *all = tsr_conformance_rule_room(s->rows * size);
    float         *one = tsr_conformance_rule_room(size);
    carry(c, self, s->rows, s->cols, x, all);
    for (uint64_t r = 0; r < s->rows; r++) {
        carry(c, self, 1, s->cols, x + r * s->cols, one);
        const uint64_t i = tsr_conformance_rule_differ(one, all + r * s->cols, size) / sizeof *one;
        if (i < s->cols)
            tsr_conformance_rule_fail(
                c,
                "%llu x %llu: column %llu of row %llu decodes to %.9g, and to %.9g in a message of "
                "its own; a codec whose rows depend on each other states \"" TSR_CODEC_COUPLED "\"",
                U(s->rows), U(s->cols), U(i), U(r), (double)all[r * s->cols + i], (double)one[i]);
    }
}

void tsr_codec_rule_rows(struct tsr_conformance_case *c)
{
    const struct tsr_codec_v1 *t = c->iface;
    uint64_t                   carried = 0, bytes = 0, each = 0;
    for (uint64_t i = 0; i < TSR_CODEC_SHAPES; i++) {
        const struct tsr_codec_shape *s = &tsr_codec_shapes[i];
        void                         *self = tsr_codec_made(c, s->cols);
        if (t->extension && t->extension(self, TSR_CODEC_COUPLED))
            tsr_conformance_rule_skip(c, "it states that rows of a message depend on each other");
        if (s->rows == 1 || !tsr_codec_bytes(c, self, s->rows, s->cols, &bytes) ||
            !tsr_codec_bytes(c, self, 1, s->cols, &each))
            continue;
        carried++;
        compare(c, self, s, 70 + i);
    }
    tsr_codec_some(c, carried);
}
