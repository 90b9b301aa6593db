/* site.h - the parts of LINEAR and of compensation that one loop over the threads runs together. */
#ifndef TSR_CPU_SITE_H
#define TSR_CPU_SITE_H

#include "backend.h"
#include "compensate.h"
#include "product.h"

/* compensate.c.  A selection that can be made. */
struct tsr_cpu_choosing {
    const struct tsr_cpu_compensate_kernels *k;
    struct tsr_view                          x, rows, list;
    uint64_t                                 n;   /* lists */
    uint64_t                                 per; /* of 1024 */
    float                                    below[TSR_COMPENSATE_BUCKETS];
};

tsr_status tsr_cpu_choosing_view(const struct tsr_cpu *c, const struct tsr_select_op *op,
                                 struct tsr_cpu_choosing *s, struct tsr_err *err);
/* Lists [begin,end). */
void tsr_cpu_choose(const struct tsr_cpu_choosing *s, uint64_t begin, uint64_t end);

/* Linears that are compensated over one input. */
struct tsr_cpu_adding {
    const struct tsr_cpu_compensate_kernels *k;
    const struct tsr_compensate_op          *op;
    struct tsr_view                          x, rows, list, out[TSR_COMPENSATE_LINEARS];
    uint64_t                                 n;    /* tokens */
    uint64_t                                 wide; /* outputs of a piece */
    uint64_t pieces[TSR_COMPENSATE_LINEARS + 1];   /* of one token, before each linear */
};

/* Checks everything except the lists. together: pieces run concurrently with panels of weights, which
 * threads without a piece take instead; so pieces are as wide as there are outputs, up to
 * COMPENSATE_PIECE. */
tsr_status tsr_cpu_adding_view(const struct tsr_cpu *c, const struct tsr_compensate_op *op,
                               int together, struct tsr_cpu_adding *a, struct tsr_err *err);
/* Gathers linears with contiguous rows together: links g[0..n) and recounts the pieces. */
void tsr_cpu_adding_join(struct tsr_cpu_adding *a, struct tsr_cpu_gather *g);
/* The gather of entry t of the lists and linear j, and its channels; requires that the list is complete. */
void tsr_cpu_adding_gather(const struct tsr_cpu_adding *a, uint64_t t, uint64_t j,
                           struct tsr_cpu_gather *g);
void tsr_cpu_adding_list(const struct tsr_cpu_adding *a, uint64_t t, struct tsr_cpu_gather *g);
tsr_status tsr_cpu_select_op(void *self, void *stream, const struct tsr_select_op *op,
                             struct tsr_err *err);
tsr_status tsr_cpu_compensate_op(void *self, void *stream, const struct tsr_compensate_op *op,
                                 struct tsr_err *err);

/* site.c, residual.c: of the table of tessera/draft/compensate.h. */
tsr_status tsr_cpu_site(void *self, void *stream, const struct tsr_site_op *op,
                        struct tsr_err *err);
tsr_status tsr_cpu_residual_load(void *self, const struct tsr_residual_desc *d, void **out,
                                 struct tsr_err *err);
void       tsr_cpu_residual_free(void *self, void *handle);

struct tsr_cpu_residual {
    struct tsr_cpu_gather base; /* of one token: without x, list and out */
    uint64_t              inputs, scale_bytes;
    uint16_t             *scales;
};

#endif
