/* conformance/wire.h - rows of a wire that is described as plain data (TSR_CODEC_WIRE), coded one number
 * at a time from docs/formats/codecs.md and mx.md: the reference for codecs and devices. */
#ifndef TSR_CONFORMANCE_WIRE_H
#define TSR_CONFORMANCE_WIRE_H

#include "conformance/rule.h"
#include "tessera/codec.h"

/* The error in a description, as a sentence; NULL: none. */
const char *tsr_conformance_wire_wrong(const struct tsr_codec_wire *w);
/* MX is encoded for scales by TSR_WIRE_SCALE_FLOOR alone; everything else, and decoding, is whole. */
bool tsr_conformance_wire_encodes(const struct tsr_codec_wire *w);
/* One row: x[cols], finite numbers, and row[row_bytes].  encode() clears the row first. */
void tsr_conformance_wire_encode(const struct tsr_codec_wire *w, const float *x,
                                 unsigned char *row);
void tsr_conformance_wire_decode(const struct tsr_codec_wire *w, const unsigned char *row,
                                 float *x);

/* conformance/codec/wire.c, conformance/backend/codec.c */
void tsr_conformance_codec_rule_wire(struct tsr_conformance_case *c);
void tsr_conformance_backend_rule_codec(struct tsr_conformance_case *c);
void tsr_conformance_backend_rule_codec_ranges(struct tsr_conformance_case *c);

#endif
