/* conformance/quantizer/quantizer.h - one tensor through a quantizer, for its rules. */
#ifndef TSR_CONFORMANCE_QUANTIZER_QUANTIZER_H
#define TSR_CONFORMANCE_QUANTIZER_QUANTIZER_H

#include "conformance/any/any.h"
#include "tessera/quantizer_report.h"

/* The inputs and results of a run. The rule owns the buffers for the life of its process. */
struct tsr_conformance_quant_try {
    /* in; zero is the usual */
    struct tsr_matrix w;
    uint64_t          first_row;    /* argument of quantize() */
    uint64_t          run_units;    /* quantize() in runs of this many units, each in separate
                                     * buffers; 0: one run */
    bool              guard;        /* buffers that end at an inaccessible page; else roomy */
    bool              refuse_extra; /* TSR_NEED_IF_THERE statistics are missing */
    bool              read_only;    /* the plugin's memory is write-protected in quantize() */
    const void       *prepared;     /* of a prepare() that is open; NULL: there is one for this */
    /* not NULL: its quantize() in place of the quantizer's, into these (one number a row) */
    const struct tsr_quantizer_report_v1 *report;
    double                               *loss, *rtn_loss;
    unsigned char                         fill, scratch_fill; /* of codes and meta, of scratch */
    bool                                  no_decode;          /* stop after quantize() */
    bool timed; /* tsr_conformance_test_host_start() when only calls remain */
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

const struct tsr_quantizer_v1 *tsr_conformance_quant_iface(const struct tsr_conformance_case *c);

/* Rows that look like weights, in F32, by seed: normal numbers times 0.02, moved away from zero by
 * 0.01, so that also a group of one weight has a scale that F16 holds. */
struct tsr_matrix tsr_conformance_quant_matrix(struct tsr_conformance_case *c, uint64_t rows,
                                               uint64_t cols, uint64_t seed);
float            *tsr_conformance_quant_row(const struct tsr_matrix *w, uint64_t row);
/* plan() with the out-struct as a host prepares it. */
tsr_status tsr_quant_plan(const struct tsr_conformance_case *c, const void *self,
                          const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                          struct tsr_err *err);
/* plan, prepare, quantize, dequantize, unprepare. Returns the first failing status. */
tsr_status tsr_conformance_quant_run(struct tsr_conformance_case *c, void *self,
                                     struct tsr_conformance_quant_try *t, struct tsr_err *err);
/* create() and all of that; a negative status skips the rule with the reason, because the rule `works`
 * covers it. Returns the instance. */
void *tsr_conformance_quant_must(struct tsr_conformance_case      *c,
                                 struct tsr_conformance_quant_try *t);
/* create() or a skip. */
void *tsr_conformance_quant_make(struct tsr_conformance_case *c);
/* The rows of the smallest tensor of at least `rows` rows in whole units. */
uint64_t tsr_conformance_quant_rows(struct tsr_conformance_case *c, void *self, uint64_t rows,
                                    uint64_t cols);
/* Fails the rule where a and b differ, naming the place: "codes of row 3, byte 17". */
void tsr_conformance_quant_same(struct tsr_conformance_case            *c,
                                const struct tsr_conformance_quant_try *a,
                                const struct tsr_conformance_quant_try *b, const char *when);
/* Largest magnitude of a row, and the largest difference of two. */
double tsr_conformance_quant_largest(const float *row, uint64_t cols);

/* The kind's table for the rules of every plugin. */
tsr_status  tsr_conformance_quant_create(struct tsr_conformance_case *c, void **self,
                                         struct tsr_err *err);
void        tsr_conformance_quant_destroy(struct tsr_conformance_case *c, void *self);
const void *tsr_conformance_quant_extension(struct tsr_conformance_case *c, void *self,
                                            const char *id);
/* The same for a table whose functions up to byte `end` are required: a table that ends before fails the rule. */
const void *tsr_conformance_quant_table(struct tsr_conformance_case *c, void *self, const char *id,
                                        uint64_t end);
#define TSR_CONFORMANCE_END(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
tsr_status tsr_conformance_quant_exercise(struct tsr_conformance_case *c, bool long_run,
                                          struct tsr_err *err);

/* stats.c: inputs X with similar neighbouring columns: the parts that `need` requests, the rest NULL.
 * Values depend on cols alone, so that every row gets the same. */
void tsr_conformance_quant_stats_make(struct tsr_conformance_case *c, struct tsr_quant_stats *s,
                                      uint64_t need, uint64_t rows, uint64_t cols);

/* plan.c */
void tsr_conformance_quant_plan_answers(struct tsr_conformance_case *c);
void tsr_conformance_quant_plan_pure(struct tsr_conformance_case *c);
void tsr_conformance_quant_plan_data(struct tsr_conformance_case *c);
void tsr_conformance_quant_plan_odd_shapes(struct tsr_conformance_case *c);
void tsr_conformance_quant_format_size(struct tsr_conformance_case *c);
/* bytes.c */
void tsr_conformance_quant_writes_exactly(struct tsr_conformance_case *c);
void tsr_conformance_quant_writes_every_byte(struct tsr_conformance_case *c);
void tsr_conformance_quant_source_untouched(struct tsr_conformance_case *c);
void tsr_conformance_quant_scratch_dirty(struct tsr_conformance_case *c);
void tsr_conformance_quant_memory_dirty(struct tsr_conformance_case *c);
void tsr_conformance_quant_instance_unchanged(struct tsr_conformance_case *c);
void tsr_conformance_quant_row_stride(struct tsr_conformance_case *c);
void tsr_conformance_quant_dtypes(struct tsr_conformance_case *c);
void tsr_conformance_quant_instances(struct tsr_conformance_case *c);
void tsr_conformance_quant_prepare_shared(struct tsr_conformance_case *c);
/* values.c */
void tsr_conformance_quant_non_finite(struct tsr_conformance_case *c);
void tsr_conformance_quant_zero_rows(struct tsr_conformance_case *c);
void tsr_conformance_quant_constant_rows(struct tsr_conformance_case *c);
void tsr_conformance_quant_denormal_rows(struct tsr_conformance_case *c);
void tsr_conformance_quant_wide_range(struct tsr_conformance_case *c);
void tsr_conformance_quant_odd_columns(struct tsr_conformance_case *c);
void tsr_conformance_quant_fidelity(struct tsr_conformance_case *c);
void tsr_conformance_quant_decodes_as_format(struct tsr_conformance_case *c);
void tsr_conformance_quant_needs_optional(struct tsr_conformance_case *c);
/* damaged.c */
void tsr_conformance_quant_packed_damaged(struct tsr_conformance_case *c);
/* block.c */
void tsr_conformance_quant_block_answers(struct tsr_conformance_case *c);
void tsr_conformance_quant_block_transforms(struct tsr_conformance_case *c);
void tsr_conformance_quant_block_writes(struct tsr_conformance_case *c);
void tsr_conformance_quant_block_cancel(struct tsr_conformance_case *c);
/* tune.c */
void tsr_conformance_quant_tune_budget(struct tsr_conformance_case *c);
void tsr_conformance_quant_tune_asks(struct tsr_conformance_case *c);
void tsr_conformance_quant_tune_window(struct tsr_conformance_case *c);
void tsr_conformance_quant_tune_forgets(struct tsr_conformance_case *c);
void tsr_conformance_quant_tune_writes(struct tsr_conformance_case *c);
void tsr_conformance_quant_tune_repeats(struct tsr_conformance_case *c);
void tsr_conformance_quant_tune_cancel(struct tsr_conformance_case *c);
/* The sum of squared errors of what t decoded over the sum of squares. */
double tsr_conformance_quant_loss(const struct tsr_conformance_quant_try *t);
/* promises.c */
/* The largest error of what t decoded, in steps of max_error_steps() less what F32 adds; 0 if its layout has none. */
double tsr_conformance_quant_worst_steps(struct tsr_conformance_case            *c,
                                         const struct tsr_conformance_quant_try *t);
void   tsr_conformance_quant_rows_split(struct tsr_conformance_case *c);
void   tsr_conformance_quant_deterministic(struct tsr_conformance_case *c);
void   tsr_conformance_quant_report_same(struct tsr_conformance_case *c);
void   tsr_conformance_quant_idempotent(struct tsr_conformance_case *c);
void   tsr_conformance_quant_error_steps(struct tsr_conformance_case *c);
/* damaged.c */
#define TSR_CONFORMANCE_DAMAGES 48u
/* Damage number `kind` into n bytes: all bits set, none, the bytes of quantize() with one of them changed, or random ones. */
void tsr_conformance_quant_damage(const struct tsr_conformance_case *c, uint64_t kind,
                                  unsigned char *bytes, const unsigned char *good, uint64_t n);
/* kernel.c */
void tsr_conformance_quant_kernel_close(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_writes(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_alone(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_columns(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_threads(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_damaged(struct tsr_conformance_case *c);
/* kernel_made.c */
void tsr_conformance_quant_kernel_prepared(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_inputs(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_adds(struct tsr_conformance_case *c);
void tsr_conformance_quant_kernel_pairs(struct tsr_conformance_case *c);
/* device.c */
void tsr_conformance_quant_device_code(struct tsr_conformance_case *c);
void tsr_conformance_quant_device_launch(struct tsr_conformance_case *c);
void tsr_conformance_quant_device_same(struct tsr_conformance_case *c);
void tsr_conformance_quant_device_writes(struct tsr_conformance_case *c);
/* threads.c */
void tsr_conformance_quant_threads(struct tsr_conformance_case *c);
/* columns.c */
void tsr_conformance_quant_columns_alone(struct tsr_conformance_case *c);

#endif
