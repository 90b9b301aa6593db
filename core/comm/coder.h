/* comm/coder.h - the arithmetic of a sum over ranks, without the ranks: which rank codes what, and the order
 * of additions. Groups (comm/group.h) and simulated groups run the same code.
 *
 * all-gather  every rank codes its whole partial sum; every rank decodes and adds all of them
 * two-step    columns are cut into one slice per rank, at multiples of 64; every rank codes each
 *             slice for its owner; the owner adds them to its own uncoded slice, codes the sum
 *             (second hop) and sends it to all ranks
 *
 * Sums are F32, a binary tree over the ranks in rank order: ((0+1)+(2+3))+((4+5)+(6+7)); an odd rank at the
 * end joins one level higher. With exact codecs, 1, 2, 4 and 8 ranks that hold the segments of
 * docs/decisions/numerics.md give bit-identical sums.
 *
 * Rows are sent in pieces, so that coding overlaps with the transfer. Pieces depend only on shape and
 * algorithm; a codec whose rows depend on each other (TSR_CODEC_COUPLED) gets the whole message.
 */
#ifndef TSR_COMM_CODER_H
#define TSR_COMM_CODER_H

#include "comm/streams.h"
#include "plugin/spec.h"
#include "tessera/codec.h"

#include <stdbool.h>

#define TSR_COMM_MAX_RANKS 64u
#define TSR_COMM_LEVELS    6u  /* of the tree over TSR_COMM_MAX_RANKS ranks */
#define TSR_COMM_BORDER    64u /* slices are cut at multiples */

enum tsr_comm_algorithm {
    TSR_COMM_ALL_GATHER,
    TSR_COMM_TWO_STEP,
    TSR_COMM_AUTO /* of a group: the faster one, tsr_comm_group_tune() */
};

/* "all-gather", "two-step", "auto", as plans and options write them; NULL for another value. */
const char *tsr_comm_algorithm_name(enum tsr_comm_algorithm a);
/* Another name is TSR_E_INPUT. */
tsr_status tsr_comm_algorithm_find(enum tsr_comm_algorithm *a, const char *name,
                                   struct tsr_err *err);

/* Frozen calibration of one codec instance, as its save() gave it. */
struct tsr_comm_state {
    const void *data;
    uint64_t    bytes;
};

/* How the sums of one phase travel. */
struct tsr_comm_way {
    const char             *codec; /* "plain:dtype=bf16"; NULL: "plain", exact */
    enum tsr_comm_algorithm algorithm;
    /* tsr_comm_instances() of them, or NULL for a codec without calibration */
    const struct tsr_comm_state *states;
    uint64_t                     n_states;
    uint64_t                     piece; /* F32 bytes of a piece; 0: tsr_comm_piece() */
    /* refuses a lossy codec whose rows depend on each other, and one with TSR_CODEC_ORDER_REQUIRED: the
     * result for a row would depend on the rows sent with it or before it */
    bool rows_alone;
};

/* "auto" or "auto:SPEC;SPEC;...", which a group fixes by tsr_comm_group_tune(). */
bool tsr_comm_is_auto(const char *codec);

/* Instances of a codec that a way has: all-gather 1; two-step one for each slice of the first hop,
 * in rank order, then one for each of the second.  An instance sees messages of its slice only. */
uint64_t tsr_comm_instances(enum tsr_comm_algorithm a, uint32_t ranks);

/* Columns [*first, *end) of rank r's slice; may be empty. */
void tsr_comm_slice(uint64_t cols, uint32_t ranks, uint32_t r, uint64_t *first, uint64_t *end);

/* Default F32 bytes of a piece. All-gather sends it whole: 256 KiB. Two-step sends slices of 128 KiB, so
 * that a message is worth its cost; at most 1 MiB in total, which stays in the caches. */
uint64_t tsr_comm_piece(enum tsr_comm_algorithm a, uint32_t ranks);

struct tsr_comm_coder {
    struct tsr_plugin_spec     spec;
    const struct tsr_codec_v1 *iface;
    enum tsr_comm_algorithm    algorithm;
    uint32_t                   ranks;
    bool                       coupled;
    uint64_t                   piece;
    void                     **self;    /* [instances] */
    uint32_t                   order;   /* TSR_CODEC_ORDER_*, 0 without a state */
    struct tsr_comm_streams   *streams; /* comm/streams.h; NULL: the codec keeps no state */
};

/* TSR_E_INPUT for a codec that does not exist, its options, or states that do not fit.  [setup] */
tsr_status tsr_comm_coder_open(struct tsr_comm_coder *c, struct tsr_registry *r,
                               const struct tsr_comm_way *way, uint32_t ranks, struct tsr_err *err);
void       tsr_comm_coder_close(struct tsr_comm_coder *c); /* also of a zeroed one */

bool tsr_comm_coder_exact(const struct tsr_comm_coder *c);
/* True if the codec declares TSR_CODEC_ORDER_REQUIRED. */
bool tsr_comm_coder_ordered(const struct tsr_comm_coder *c);

/* Rows of a piece of a [rows, cols] message; the last piece may have fewer. */
uint64_t tsr_comm_piece_rows(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols);

/* One instance: `second` and slice are 0 with all-gather. */
void *tsr_comm_instance(const struct tsr_comm_coder *c, bool second, uint32_t slice);

/* Wire bytes that each rank sends to others, all pieces of both hops: the bytes of `rank`, where every
 * message counts once for each receiver. */
tsr_status tsr_comm_sent_bytes(const struct tsr_comm_coder *c, uint32_t rank, uint64_t rows,
                               uint64_t cols, uint64_t *bytes, struct tsr_err *err);

/* 0 bytes for a message without elements; else the codec's answer. */
tsr_status tsr_comm_wire_bytes(const struct tsr_comm_coder *c, bool second, uint32_t slice,
                               uint64_t rows, uint64_t cols, uint64_t *bytes, struct tsr_err *err);

/* Encoding and decoding change the states of a codec that has some: for such a coder, [worker]. */
tsr_status tsr_comm_encode(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                           uint32_t source, const float *src, void *wire, struct tsr_err *err);
tsr_status tsr_comm_decode(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                           uint32_t source, const void *wire, float *dst, struct tsr_err *err);
/* dst = the tree sum over the messages of all ranks, which are `step` bytes apart. own: floats that
 * replace rank `self`'s message, or NULL. level: rows * cols floats for each level above the first, at
 * most TSR_COMM_LEVELS - 1 levels, level_floats apart. */
struct tsr_comm_leaves {
    const void  *wires;
    uint64_t     step;
    const float *own;
    uint32_t     self;
};
tsr_status tsr_comm_tree(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                         const struct tsr_comm_leaves *leaves, float *dst, float *level,
                         uint64_t level_floats, struct tsr_err *err);

/* Columns [first, first + cols) of `rows` rows of a matrix of `stride` columns, to and from dense. */
void tsr_comm_cut(float *dense, const float *x, uint64_t stride, uint64_t first, uint64_t rows,
                  uint64_t cols);
void tsr_comm_paste(float *x, const float *dense, uint64_t stride, uint64_t first, uint64_t rows,
                    uint64_t cols);

#endif
