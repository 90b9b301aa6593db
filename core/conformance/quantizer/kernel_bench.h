/* kernel_bench.h - products of a quantizer's own kernel (tessera/kernel.h) for the rules: a packed matrix, inputs, and parts of
 * their product. */
#ifndef TSR_CONFORMANCE_KERNEL_BENCH_H
#define TSR_CONFORMANCE_KERNEL_BENCH_H

#include "conformance/helpers.h"
#include "conformance/quantizer/quantizer.h"
#include "tessera/kernel.h"

#define ROWS  UINT64_C(70)
#define COLS  UINT64_C(198) /* no multiple of what vectors take */
#define BATCH UINT64_C(5)
#define GAP   UINT64_C(3) /* numbers between rows of inputs and of results */

struct bench {
    struct tsr_conformance_case          *c;
    void                                 *self;
    const struct tsr_quantizer_kernel_v1 *k;
    bool                                  prepares, encodes; /* it has these functions */
    uint64_t                              flags;
    struct tsr_conformance_quant_try      t;
    const float                          *x; /* [BATCH, COLS + GAP] */
    const float *whole; /* [BATCH, rows]: of with(), a segment after the other */
};

/* A part of a product. */
struct part {
    uint64_t begin, end; /* units  */
    uint64_t first, n;   /* tokens */
    uint64_t col, cols, segment;
    /* of all rows, and of all tokens; NULL: with() makes those of the part */
    const void *prepared, *inputs;
    uint64_t    apart;   /* rows */
    bool        at_once; /* segments that the kernel adds are not taken one by one */
};

/* A packed matrix, and inputs.  Skips a quantizer without a kernel. */
void tsr_conformance_kernel_setup(struct bench *b, struct tsr_conformance_case *c);
/* The product of all rows and tokens. */
struct part tsr_conformance_kernel_all(const struct bench *b);
uint64_t    tsr_conformance_kernel_segments(const struct part *p);
/* Of a part; codes and meta are those of its units. */
struct tsr_kernel_weight tsr_conformance_kernel_weight(const struct bench *b, const struct part *p,
                                                       const void *codes, const void *meta);
/* x [BATCH, COLS + GAP] and the units' bytes, into out [segments, n, rows of the units] by rows of `stride`. */
tsr_status tsr_conformance_kernel_with(const struct bench *b, const struct part *p, const float *x,
                                       float *out, uint64_t stride, const void *codes,
                                       const void *meta, struct tsr_err *err);
/* The same of b's matrix and inputs. */
float *tsr_conformance_kernel_all_of(const struct bench *b);
/* Results of a part are those of b->whole, which has all rows and tokens, bit by bit. */
void tsr_conformance_kernel_same(const struct bench *b, const struct part *p);

#endif
