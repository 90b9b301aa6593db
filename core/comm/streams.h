/* comm/streams.h - what codecs with TSR_CODEC_STREAM carry from message to message: one state for each
 * stream of a coder and each end of it, in the host's memory.
 *
 * A state begins as zero bytes: in a new coder; with TSR_CODEC_ORDER_PASS also at the first site of a pass,
 * which is one that does not ascend, and where the shape of the messages changes.
 */
#ifndef TSR_COMM_STREAMS_H
#define TSR_COMM_STREAMS_H

#include "tessera/codec.h"

#include <stdbool.h>

/* A message: rows x cols of a coder's instance (second, slice) at a site. */
struct tsr_comm_message {
    bool     second;
    uint32_t slice, site;
    uint64_t rows, cols, wire_bytes;
    uint64_t row; /* its first, of all rows of the sum */
};

struct tsr_comm_streams;

/* TSR_CODEC_ORDER_*; 0: the codec keeps no state. TSR_E_INVAL: its answer is no order. [any] */
tsr_status tsr_comm_codec_order(const struct tsr_codec_v1 *c, const void *self, uint32_t *order,
                                struct tsr_err *err);
/* TSR_E_INPUT for a codec that keeps a state, where `where` ("a link between stages") has none. [any] */
tsr_status tsr_comm_codec_stateless(const struct tsr_codec_v1 *c, const void *self,
                                    const char *where, struct tsr_err *err);

/* Of a codec that keeps states; table is its TSR_CODEC_STREAM. NULL: out of memory. [setup] */
struct tsr_comm_streams *tsr_comm_streams_new(const struct tsr_codec_stream_v1 *table,
                                              uint32_t                          order);
void                     tsr_comm_streams_free(struct tsr_comm_streams *s); /* NULL is fine */

/* The state for a message of `source` at one end (TSR_CODEC_ENCODES, ...); NULL: the end needs none. It is
 * valid until the next call. [worker] */
tsr_status tsr_comm_streams_state(struct tsr_comm_streams *s, const void *self,
                                  const struct tsr_comm_message *m, uint32_t source, uint32_t end,
                                  void **state, struct tsr_err *err);
/* Bytes of all states; 0 for NULL. */
uint64_t tsr_comm_streams_bytes(const struct tsr_comm_streams *s);

#endif
