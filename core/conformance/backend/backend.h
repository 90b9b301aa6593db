/* conformance/backend/backend.h - shared by the files of backend rules: a device, grids of numbers on it,
 * and trials, which are operations with their expected results. */
#ifndef TSR_CONFORMANCE_BACKEND_BACKEND_H
#define TSR_CONFORMANCE_BACKEND_BACKEND_H

#include "conformance/helpers.h"
#include "tessera/backend.h"

struct tsr_conformance_device {
    struct tsr_conformance_case *c;
    const struct tsr_backend_v1 *t;
    void                        *self;
    bool                         exact; /* promises to keep docs/decisions/numerics.md */
    /* Of the terms that make a number: how far a result may be from the reference in double.
     * An exact device adds at most 300 of them in F32, in any of its steps one rounding of 2^-24;
     * another may round factors to BF16, 2^-8 each. */
    double eps;
};
void tsr_conformance_device_make(struct tsr_conformance_device *d, struct tsr_conformance_case *c);

/* A matrix in a separate buffer: the row stride is the row length plus 64 bytes, the first row is 64 bytes
 * into the buffer, and TSR_GRID_MARGIN fills everything between and around the rows. */
#define TSR_GRID_MARGIN 0x5a
struct tsr_conformance_grid {
    struct tsr_tensor t;
    uint64_t          bytes; /* of the buffer */
    unsigned char    *image; /* the uploaded bytes */
};
/* data: rows of cols elements, dense. */
void tsr_conformance_grid_make(struct tsr_conformance_device *d, struct tsr_conformance_grid *g,
                               uint32_t dtype, uint64_t rows, uint64_t cols, const void *data);
/* The current rows, dense. */
void *tsr_conformance_grid_rows(struct tsr_conformance_device     *d,
                                const struct tsr_conformance_grid *g);
/* The first overwritten margin byte, or g->bytes. */
uint64_t tsr_conformance_grid_spoilt(struct tsr_conformance_device     *d,
                                     const struct tsr_conformance_grid *g);
void     tsr_backend_rule_properties(struct tsr_conformance_case *c);
void     tsr_backend_rule_zeroed(struct tsr_conformance_case *c);
void     tsr_backend_rule_copies(struct tsr_conformance_case *c);
void     tsr_backend_rule_ranges(struct tsr_conformance_case *c);
void     tsr_backend_rule_free_null(struct tsr_conformance_case *c);

/* One operation on numbers of the rule's seed. */
struct tsr_conformance_trial {
    char                        what[96]; /* "NORM layer, 3 x 130" */
    struct tsr_op               op;       /* points into this struct */
    struct tsr_conformance_grid out, in[TSR_OP_INPUTS];
    uint64_t                    n;    /* numbers in out */
    double                     *want; /* [n] */
    double                     *room; /* [n] how far a result may be away */
    /* the host's copies that the reference works on */
    float                 *x[TSR_OP_INPUTS], *w; /* w: [w_rows][w_cols] */
    uint32_t              *ids;
    uint64_t               w_rows, w_cols;
    struct tsr_format      format;
    struct tsr_weight_desc weight;
};

/* Trials of an operation (TSR_OP_*), as many as tsr_conformance_trial_count(). */
uint64_t tsr_conformance_trial_count(uint32_t op);
/* False when the device does not take the weights. */
bool tsr_conformance_trial_make(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                                uint32_t op, uint64_t variant);
/* False when the device declines. */
bool tsr_conformance_trial_run(struct tsr_conformance_device *d, struct tsr_conformance_trial *t);
/* The numbers in out, also those of a cache of F16 or I8. */
void        tsr_conformance_trial_values(const struct tsr_conformance_trial *t, const void *rows,
                                         double *v);
const char *tsr_conformance_op_name(uint32_t op);

/* reference.c: fills want and room, in double. */
void tsr_conformance_trial_reference(struct tsr_conformance_device *d,
                                     struct tsr_conformance_trial  *t);
/* A cache of that dtype from, and as, its numbers [rows][kv_heads * head_dim]. */
void tsr_conformance_cache_encode(uint32_t dtype, uint64_t rows, uint32_t kv_heads,
                                  uint32_t head_dim, const float *x, void *cache);
void tsr_conformance_cache_decode(uint32_t dtype, uint64_t rows, uint32_t kv_heads,
                                  uint32_t head_dim, const void *cache, double *x);

/* weights_random.c: with sane scales, in format f. */
void tsr_conformance_weight_random(struct tsr_conformance_case *c, uint64_t stream,
                                   const struct tsr_format *f, uint64_t rows, uint64_t cols,
                                   struct tsr_weight_desc *w);
/* weights.c */
/* weight_load(); false when the device does not read the format. */
bool tsr_conformance_weight_load(struct tsr_conformance_device *d, const struct tsr_weight_desc *w,
                                 void **weight);
/* [rows][cols] by the core's decoder. */
float *tsr_conformance_weight_dense(struct tsr_conformance_case  *c,
                                    const struct tsr_weight_desc *w);
void   tsr_backend_rule_formats(struct tsr_conformance_case *c);
void   tsr_backend_rule_unknown_format(struct tsr_conformance_case *c);
void   tsr_backend_rule_borrowed(struct tsr_conformance_case *c);
void   tsr_backend_rule_weight_bytes(struct tsr_conformance_case *c);
void   tsr_backend_rule_act(struct tsr_conformance_case *c);

/* layout.c */
void tsr_backend_rule_layout(struct tsr_conformance_case *c);
void tsr_backend_rule_layout_borrow(struct tsr_conformance_case *c);
void tsr_backend_rule_layout_ranges(struct tsr_conformance_case *c);

/* candidates.c */
void tsr_backend_rule_candidates(struct tsr_conformance_case *c);
void tsr_backend_rule_candidates_ranges(struct tsr_conformance_case *c);

/* ops.c */
void tsr_backend_rule_linear(struct tsr_conformance_case *c);
void tsr_backend_rule_embed(struct tsr_conformance_case *c);
void tsr_backend_rule_norm(struct tsr_conformance_case *c);
void tsr_backend_rule_rope(struct tsr_conformance_case *c);
void tsr_backend_rule_kv_store(struct tsr_conformance_case *c);
void tsr_backend_rule_attention(struct tsr_conformance_case *c);
void tsr_backend_rule_act_func(struct tsr_conformance_case *c);
void tsr_backend_rule_add(struct tsr_conformance_case *c);
void tsr_backend_rule_scale(struct tsr_conformance_case *c);
void tsr_backend_rule_gather(struct tsr_conformance_case *c);
void tsr_backend_rule_mix(struct tsr_conformance_case *c);
void tsr_backend_rule_columns(struct tsr_conformance_case *c);
void tsr_backend_rule_hadamard(struct tsr_conformance_case *c);
void tsr_backend_rule_writes(struct tsr_conformance_case *c);
void tsr_backend_rule_in_place(struct tsr_conformance_case *c);
void tsr_backend_rule_repeats(struct tsr_conformance_case *c);
void tsr_backend_rule_order(struct tsr_conformance_case *c);
void tsr_backend_rule_unknown_op(struct tsr_conformance_case *c);
void tsr_backend_rule_shapes(struct tsr_conformance_case *c);

/* segments.c */
void tsr_backend_rule_segments(struct tsr_conformance_case *c);

/* exact.c */
void tsr_backend_rule_numerics(struct tsr_conformance_case *c);

#endif
