/* runtime/edge.h - one direction between two ranks: heads of micro-batches and their rows.
 *
 * An edge has two worlds of two ranks each, 0 the sender and 1 the receiver: heads are never paced.
 * Each end belongs to one thread.
 */
#ifndef TSR_RUNTIME_EDGE_H
#define TSR_RUNTIME_EDGE_H

#include "comm/link.h"
#include "runtime/frame.h"

#define TSR_MPI_NAME 64 /* "mpi:first=3,stride=-3,tag=12" */

enum tsr_edge_kind {
    TSR_RUNTIME_EDGE_TOKENS, /* the coordinator to the first stage of another replica: no rows */
    TSR_RUNTIME_EDGE_ROWS,   /* hidden rows */
    TSR_RUNTIME_EDGE_RESULT, /* logits to the coordinator */
    TSR_RUNTIME_EDGE_BACK,   /* requested hidden rows to a head on the first stage */
};

struct tsr_runtime_edge {
    uint32_t              from, to; /* ranks of the job */
    enum tsr_edge_kind    kind;
    const char           *heads_over, *rows_over; /* transports */
    const char           *codec[2];               /* of rows, by phase; NULL: exact */
    char                  mpi[2][TSR_MPI_NAME];   /* those transports' specifications under MPI */
    uint64_t              epoch;                  /* of the group that talks over it */
    struct tsr_comm_world heads, rows;
};

/* Memory of both worlds.  [setup] */
tsr_status tsr_runtime_edge_create(struct tsr_runtime_edge *e, struct tsr_registry *r,
                                   struct tsr_err *err);
void       tsr_runtime_edge_free(struct tsr_runtime_edge *e);

struct tsr_runtime_edge_end {
    const struct tsr_runtime_edge *edge;
    struct tsr_comm_link          *heads, *rows; /* rows NULL: there are none */
    uint64_t                       deadline_us;
    double encode_ms; /* that an emulated device takes for the rows of the next send */
};

/* sender: the from side. deadline_us: longest time without a piece (comm/flow.h) of a message that the
 * other side has begun; 0: 10 s. A message that advances has no time limit. pieces: counts completed
 * pieces; or NULL. */
tsr_status tsr_runtime_edge_open(struct tsr_runtime_edge_end *n, const struct tsr_runtime_edge *e,
                                 bool sender, uint64_t deadline_us, _Atomic uint64_t *pieces,
                                 struct tsr_registry *r, struct tsr_err *err);
void       tsr_runtime_edge_close(struct tsr_runtime_edge_end *n); /* also of a zeroed one */
/* Ends every wait on both sides soon.  [any] */
void tsr_runtime_edge_abort(struct tsr_runtime_edge_end *n);

/* Sleeps so long. */
void tsr_runtime_edge_pause(double ms);

/* Sends head, body and rows; returns when they have left. TSR_E_DEVICE names the late rank, how much of
 * the message had moved and the setting that allows more time. */
tsr_status tsr_runtime_edge_send(struct tsr_runtime_edge_end *n, struct tsr_runtime_micro_batch *b,
                                 struct tsr_err *err);
/* Waits for the next head without a deadline (the caller that waits for results has one), then for the
 * rest of the frame. Rows go into b->rows. */
tsr_status tsr_runtime_edge_recv(struct tsr_runtime_edge_end *n, struct tsr_runtime_micro_batch *b,
                                 const struct tsr_runtime_frame_limits *l, struct tsr_err *err);

#endif
