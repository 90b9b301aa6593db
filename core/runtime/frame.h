/* runtime/frame.h - what ranks send about a micro-batch in addition to its rows: a head, then its tokens, the
 * slots that are emptied before it, and, of a result, an error.
 *
 * Rows follow on a separate link, coded and, with emulated devices, paced. Heads are small and are sent
 * uncoded.
 */
#ifndef TSR_RUNTIME_FRAME_H
#define TSR_RUNTIME_FRAME_H

#include "engine/engine.h"

enum tsr_frame_kind {
    TSR_RUNTIME_FRAME_WORK = 1,
    TSR_RUNTIME_FRAME_RESULT = 2, /* logits */
    TSR_RUNTIME_FRAME_STOP = 3,
    TSR_RUNTIME_FRAME_BACK =
        4, /* input of a result: the requested hidden rows after the last layer */
};

/* Fixed size; both ends are the same build on the same kind of machine (checked by the magic). */
struct tsr_runtime_frame {
    uint32_t magic, kind;
    uint32_t phase, piece;           /* enum tsr_phase; the coordinator's number, returned with
                                      * the result */
    uint32_t tokens, resets, wanted; /* counts; wanted: rows of logits */
    int32_t  status;                 /* of a result: TSR_OK or why it has no rows */
    uint32_t site;                   /* of the rows: 2 * layer + 1 of the last computed step */
    uint32_t slot_set;               /* of the replica, for people */
    uint64_t number;                 /* micro-batches of this replica so far */
    uint64_t sent_ns; /* CLOCK_MONOTONIC when it was sent: ranks of one machine alone compare it */
};

/* What a slot has before the tokens of a micro-batch: its first `keep` positions; 0: it is empty. */
struct tsr_runtime_reset {
    uint32_t slot, keep;
};

/* One micro-batch on its way through a rank. */
struct tsr_runtime_micro_batch {
    struct tsr_runtime_micro_batch *next;
    struct tsr_runtime_frame        head;
    struct tsr_engine_token        *token; /* [head.tokens] */
    struct tsr_runtime_reset       *reset; /* [head.resets] */
    uint64_t                        cols;  /* of rows, while they travel */
    float              *rows; /* hidden [tokens, hidden]; of a result logits [wanted, vocab], on the
                            * way back hidden [wanted, hidden] */
    float              *logits; /* [wanted, vocab], on the rank with the head */
    uint64_t            cap_token, cap_reset, cap_rows, cap_logits;
    struct tsr_err_sent why; /* of a result, or rows back, that is none */
    unsigned char      *body;
    uint64_t            cap_body;
};

/* Most that a head may ask for. */
struct tsr_runtime_frame_limits {
    uint32_t tokens, slots;
    uint64_t hidden, vocab;
};

void tsr_runtime_frame_make(struct tsr_runtime_frame *f, enum tsr_frame_kind kind);
/* TSR_E_DEVICE for a head that no rank of ours sends. */
tsr_status tsr_runtime_frame_check(const struct tsr_runtime_frame        *f,
                                   const struct tsr_runtime_frame_limits *l, struct tsr_err *err);
/* Bytes after the head. */
uint64_t tsr_runtime_frame_body(const struct tsr_runtime_frame *f);

/* Reserves room for the sizes in the head; rows 0 or 1: whether rows are needed, the same for logits. */
tsr_status tsr_runtime_micro_batch_reserve(struct tsr_runtime_micro_batch        *b,
                                           const struct tsr_runtime_frame_limits *l, bool rows,
                                           bool logits, struct tsr_err *err);
/* Tokens, resets and the error, to and from b->body.  unpack checks ids and slots. */
tsr_status tsr_runtime_micro_batch_pack(struct tsr_runtime_micro_batch *b, struct tsr_err *err);
tsr_status tsr_runtime_micro_batch_unpack(struct tsr_runtime_micro_batch        *b,
                                          const struct tsr_runtime_frame_limits *l,
                                          struct tsr_err                        *err);
tsr_status tsr_runtime_micro_batch_copy(struct tsr_runtime_micro_batch        *to,
                                        const struct tsr_runtime_micro_batch  *from,
                                        const struct tsr_runtime_frame_limits *l,
                                        struct tsr_err                        *err);
void       tsr_runtime_micro_batch_free(struct tsr_runtime_micro_batch *b); /* NULL is fine */

#endif
