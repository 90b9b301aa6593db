/* conformance/quantizer.h - one tensor through a quantizer, for its rules. */
#ifndef TSR_CONFORMANCE_QUANTIZER_H
#define TSR_CONFORMANCE_QUANTIZER_H

#include "conformance/any.h"
#include "tessera/quantizer_report.h"

/* What to do, and what came of it.  Buffers are the rule's for the life of its process. */
struct tsr_quant_try {
    /* in; zero is the usual */
    struct tsr_matrix w;
    uint64_t          first_row;    /* that quantize() is told */
    uint64_t          run_units;    /* quantize() in runs of so many units, each in buffers of its
                                     * own; 0: one run */
    bool              guard;        /* buffers that end at an inaccessible page; else roomy */
    bool              refuse_extra; /* TSR_NEED_IF_THERE statistics are not there */
    bool              read_only;    /* what the plugin holds is protected in quantize() */
    const void       *prepared;     /* of a prepare() that is open; NULL: there is one for this */
    /* not NULL: its quantize() in place of the quantizer's, into these (one number a row) */
    const struct tsr_quantizer_report_v1 *report;
    double                               *loss, *rtn_loss;
    unsigned char                         fill, scratch_fill; /* of codes and meta, of scratch */
    bool                                  no_decode;          /* stop after quantize() */
    bool timed; /* tsr_test_host_start() once nothing but calls is left */
    /* out */
    struct tsr_quant_plan  plan;
    struct tsr_quant_stats stats;
    uint64_t               units, rows_per_unit;
    unsigned char         *codes, *meta; /* of all units */
    uint64_t               code_bytes, meta_bytes;
    float                 *dense; /* [rows, cols] as the plugin decodes it */
    struct tsr_errbuf      err;
    bool                   decoded;
};

const struct tsr_quantizer_v1 *tsr_quant_iface(const struct tsr_case *c);

/* Rows that look like weights, in F32, by seed: normal numbers times 0.02, moved away from zero by
 * 0.01, so that also a group of one weight has a scale that F16 holds. */
struct tsr_matrix tsr_quant_matrix(struct tsr_case *c, uint64_t rows, uint64_t cols, uint64_t seed);
float            *tsr_quant_row(const struct tsr_matrix *w, uint64_t row);
/* plan() with the out-struct as a host prepares it. */
tsr_status tsr_quant_plan(const struct tsr_case *c, const void *self, const struct tsr_matrix *w,
                          struct tsr_quant_plan *plan, struct tsr_err *err);
/* plan, prepare, quantize, dequantize, unprepare.  The status of what failed first. */
tsr_status tsr_quant_run(struct tsr_case *c, void *self, struct tsr_quant_try *t,
                         struct tsr_err *err);
/* create() and all of that; a negative status ends the rule with a skip that says why: `works` is
 * the rule about it.  Returns the instance. */
void *tsr_quant_must(struct tsr_case *c, struct tsr_quant_try *t);
/* create() or a skip. */
void *tsr_quant_make(struct tsr_case *c);
/* The rows of the smallest tensor of at least `rows` rows in whole units. */
uint64_t tsr_quant_rows(struct tsr_case *c, void *self, uint64_t rows, uint64_t cols);
/* Fails the rule where a and b differ, naming the place: "codes of row 3, byte 17". */
void tsr_quant_same(struct tsr_case *c, const struct tsr_quant_try *a,
                    const struct tsr_quant_try *b, const char *when);
/* Largest magnitude of a row, and the largest difference of two. */
double tsr_quant_largest(const float *row, uint64_t cols);

/* The kind's table for the rules of every plugin. */
tsr_status  tsr_quant_create(struct tsr_case *c, void **self, struct tsr_err *err);
void        tsr_quant_destroy(struct tsr_case *c, void *self);
const void *tsr_quant_extension(struct tsr_case *c, void *self, const char *id);
tsr_status  tsr_quant_exercise(struct tsr_case *c, bool long_run, struct tsr_err *err);

/* quantizer_stats.c: inputs X with neighbouring columns alike: what of `need` is asked for, the
 * rest NULL.  Values depend on cols alone, so that any row asks for the same. */
void tsr_quant_stats_make(struct tsr_case *c, struct tsr_quant_stats *s, uint64_t need,
                          uint64_t rows, uint64_t cols);

/* quantizer_plan.c */
void tsr_quant_plan_answers(struct tsr_case *c);
void tsr_quant_plan_pure(struct tsr_case *c);
void tsr_quant_plan_data(struct tsr_case *c);
void tsr_quant_plan_odd_shapes(struct tsr_case *c);
void tsr_quant_format_size(struct tsr_case *c);
/* quantizer_bytes.c */
void tsr_quant_writes_exactly(struct tsr_case *c);
void tsr_quant_writes_every_byte(struct tsr_case *c);
void tsr_quant_source_untouched(struct tsr_case *c);
void tsr_quant_scratch_dirty(struct tsr_case *c);
void tsr_quant_memory_dirty(struct tsr_case *c);
void tsr_quant_instance_unchanged(struct tsr_case *c);
void tsr_quant_row_stride(struct tsr_case *c);
void tsr_quant_dtypes(struct tsr_case *c);
void tsr_quant_instances(struct tsr_case *c);
void tsr_quant_prepare_shared(struct tsr_case *c);
/* quantizer_values.c */
void tsr_quant_non_finite(struct tsr_case *c);
void tsr_quant_zero_rows(struct tsr_case *c);
void tsr_quant_constant_rows(struct tsr_case *c);
void tsr_quant_denormal_rows(struct tsr_case *c);
void tsr_quant_wide_range(struct tsr_case *c);
void tsr_quant_odd_columns(struct tsr_case *c);
void tsr_quant_fidelity(struct tsr_case *c);
void tsr_quant_decodes_as_format(struct tsr_case *c);
void tsr_quant_needs_optional(struct tsr_case *c);
/* quantizer_block.c */
void tsr_quant_block_answers(struct tsr_case *c);
void tsr_quant_block_writes(struct tsr_case *c);
void tsr_quant_block_cancel(struct tsr_case *c);
/* quantizer_promises.c */
void tsr_quant_rows_split(struct tsr_case *c);
void tsr_quant_deterministic(struct tsr_case *c);
void tsr_quant_report_same(struct tsr_case *c);
void tsr_quant_idempotent(struct tsr_case *c);
void tsr_quant_error_steps(struct tsr_case *c);
/* quantizer_columns.c */
void tsr_quant_columns_alone(struct tsr_case *c);

#endif
