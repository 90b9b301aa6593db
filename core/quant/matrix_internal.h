/* quant/matrix_internal.h - quantizing one matrix: matrix.c plans it, matrix_run.c
 * runs it, matrix_prepare.c prepares it. */
#ifndef TSR_QUANT_MATRIX_INTERNAL_H
#define TSR_QUANT_MATRIX_INTERNAL_H

#include "quant/matrix.h"
#include "quant/quant.h"
#include "tessera/quantizer_report.h"

#include <pthread.h>

/* Runs start at multiples of this many units, so that their codes and meta stay aligned. */
#define TSR_QUANT_UNIT_STEP 64u

#define TSR_QUANT_RUN_WEIGHTS (UINT64_C(1) << 16)

struct tsr_quant_matrix_work {
    const struct tsr_quantizer           *q;
    const struct tsr_matrix              *w;     /* these rows */
    const struct tsr_matrix              *whole; /* the shape of the whole, as stored */
    uint64_t                              row;   /* of the whole, the first of w */
    const struct tsr_quant_stats         *stats;
    const void                           *prepared;
    struct tsr_quant_plan                 plan;
    struct tsr_model_packed              *p;
    const float                          *theirs; /* quant_verify(): decoded elsewhere; or NULL */
    uint64_t                              unit;   /* rows in a unit */
    double                               *row_error;
    const struct tsr_quantizer_report_v1 *report;   /* NULL: the plugin has none */
    double                               *row_loss; /* [2][rows]: loss, rtn's loss */
    pthread_mutex_t                       lock;     /* guards the three below */
    uint64_t                              failed_at;
    tsr_status                            failed;
    struct tsr_err                       *err;
};

/* The plan of k->whole, checked. */
tsr_status tsr_quant_matrix_plan(struct tsr_quant_matrix_work *k, struct tsr_err *err);
/* Keeps the message of the earliest rows, independent of worker timing.  Runs are taken in
 * ascending order, so the message is deterministic. */
tsr_status tsr_quant_matrix_fail_run(struct tsr_quant_matrix_work *k, uint64_t at, tsr_status st,
                                     const struct tsr_err *why);
/* Compares the plugin's own dequantization (NULL: compared elsewhere) with that of the declared
 * layout, and sums the squared errors of each row. */
tsr_status tsr_quant_matrix_check_run(struct tsr_quant_matrix_work *k, uint64_t first,
                                      uint64_t rows, const float *theirs, struct tsr_err *err);
tsr_status tsr_quant_matrix_run_body(void *arg, uint64_t begin, uint64_t end);

#endif
