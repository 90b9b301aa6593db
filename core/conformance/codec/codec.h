/* conformance/codec/codec.h - declarations shared by the files of codec rules. */
#ifndef TSR_CONFORMANCE_CODEC_CODEC_H
#define TSR_CONFORMANCE_CODEC_CODEC_H

#include "conformance/helpers.h"
#include "tessera/codec.h"

/* Shapes without a common divisor: a block of any size has a tail in some of them. */
struct tsr_codec_shape {
    uint64_t rows, cols;
};
#define TSR_CODEC_SHAPES 10
extern const struct tsr_codec_shape tsr_codec_shapes[TSR_CODEC_SHAPES];

#define TSR_CODEC_SITES 4u /* that instances are calibrated for */

/* Shows the codec messages of every site; TSR_OK at once for one without calibration. */
tsr_status tsr_codec_calibrate(struct tsr_conformance_case *c, void *self, uint64_t cols,
                               struct tsr_err *err);

/* An instance that can encode rows of cols columns: calibrated, if it is of that kind. */
void *tsr_codec_made(struct tsr_conformance_case *c, uint64_t cols);

/* Wire bytes of a shape; false when the codec does not carry it. */
bool tsr_codec_bytes(struct tsr_conformance_case *c, const void *self, uint64_t rows, uint64_t cols,
                     uint64_t *bytes);
/* Skips the rule when `carried` shapes are none. */
void tsr_codec_some(struct tsr_conformance_case *c, uint64_t carried);

/* The message of a shape: normal numbers. */
float *tsr_codec_message(struct tsr_conformance_case *c, uint64_t stream, uint64_t rows,
                         uint64_t cols);

/* The message of a shape, without its numbers. */
struct tsr_codec_job tsr_codec_job_of(uint64_t rows, uint64_t cols, void *wire, uint64_t bytes);

/* Encodes a copy of x into `wire`, decodes a copy of `wire` into `dst`; a refusal fails the rule. */
void tsr_codec_encode(struct tsr_conformance_case *c, const void *self, uint64_t rows,
                      uint64_t cols, const float *x, void *wire, uint64_t bytes);
void tsr_codec_decode(struct tsr_conformance_case *c, const void *self, uint64_t rows,
                      uint64_t cols, const void *wire, uint64_t bytes, float *dst);

void tsr_codec_rule_exactness(struct tsr_conformance_case *c);
void tsr_codec_rule_wire_bytes(struct tsr_conformance_case *c);
void tsr_codec_rule_huge_shape(struct tsr_conformance_case *c);
void tsr_codec_rule_encode_writes(struct tsr_conformance_case *c);
void tsr_codec_rule_decode_writes(struct tsr_conformance_case *c);
void tsr_codec_rule_inputs_untouched(struct tsr_conformance_case *c);

/* rows.c */
void tsr_codec_rule_rows(struct tsr_conformance_case *c);

/* state.c */
void tsr_codec_rule_calibration_whole(struct tsr_conformance_case *c);
void tsr_codec_rule_state_exact(struct tsr_conformance_case *c);
void tsr_codec_rule_state_loads(struct tsr_conformance_case *c);
void tsr_codec_rule_state_damaged(struct tsr_conformance_case *c);
/* values.c */
#define TSR_CODEC_DAMAGES 40u
/* Damage number `kind` into n bytes: all bits set, none, the message `good` with one byte changed, or random bytes. */
void tsr_codec_damage(struct tsr_conformance_case *c, uint64_t kind, unsigned char *wire,
                      const unsigned char *good, uint64_t n);
/* stream.c */
void tsr_codec_rule_stream_state(struct tsr_conformance_case *c);
void tsr_codec_rule_stream_replay(struct tsr_conformance_case *c);
void tsr_codec_rule_stream_rows(struct tsr_conformance_case *c);
void tsr_codec_rule_stream_first(struct tsr_conformance_case *c);
void tsr_codec_rule_stream_damaged(struct tsr_conformance_case *c);
/* values.c */
void tsr_codec_rule_exact(struct tsr_conformance_case *c);
void tsr_codec_rule_nonfinite(struct tsr_conformance_case *c);
void tsr_codec_rule_tails(struct tsr_conformance_case *c);
void tsr_codec_rule_decode_add(struct tsr_conformance_case *c);
void tsr_codec_rule_repeats(struct tsr_conformance_case *c);
void tsr_codec_rule_ranks(struct tsr_conformance_case *c);
void tsr_codec_rule_threads(struct tsr_conformance_case *c);
void tsr_codec_rule_damaged(struct tsr_conformance_case *c);

#endif
