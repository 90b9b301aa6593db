/* conformance/wire.h - rows of a wire that is described as plain data (TSR_CODEC_WIRE), coded one number at a
 * time from docs/formats/codecs.md and mx.md: what codecs and devices are held to. */
#ifndef TSR_CONFORMANCE_WIRE_H
#define TSR_CONFORMANCE_WIRE_H

#include "conformance/rule.h"
#include "tessera/codec.h"

/* What is wrong with a description, a sentence; NULL: nothing. */
const char *tsr_wire_wrong(const struct tsr_codec_wire *w);
/* MX is encoded for scales by TSR_WIRE_SCALE_FLOOR alone; everything else, and decoding, is whole. */
bool tsr_wire_encodes(const struct tsr_codec_wire *w);
/* One row: x[cols], finite numbers, and row[row_bytes].  encode() clears the row first. */
void tsr_wire_encode(const struct tsr_codec_wire *w, const float *x, unsigned char *row);
void tsr_wire_decode(const struct tsr_codec_wire *w, const unsigned char *row, float *x);

/* codec_wire.c, backend_codec.c */
void tsr_codec_rule_wire(struct tsr_case *c);
void tsr_backend_rule_codec(struct tsr_case *c);
void tsr_backend_rule_codec_ranges(struct tsr_case *c);

#endif
