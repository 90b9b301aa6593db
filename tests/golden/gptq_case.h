/* gptq_case.h - the recorded cases of tests/golden/quant/gptq.json, and the plugin run on them. */
#ifndef TSR_TEST_GPTQ_CASE_H
#define TSR_TEST_GPTQ_CASE_H

#include "base/json.h"
#include "quant/quant.h"

/* The layout that the option table describes; the offsets are checked against it. */
struct gptq_options {
    int64_t bits, group;
    int32_t symmetric, mse, act_order, static_groups;
    double  damp;
    int64_t scale, params, refine, block, scale_bits;
    int32_t minimum;
    int64_t element; /* 0: int, 1: nvfp4, 2: mxfp4 */
    int32_t asymmetric;
    double  alpha;
};
enum { GPTQ_AUTO, GPTQ_RANGE };

extern struct tsr_registry    *gptq_registry; /* on a pool of 2 threads */
extern struct tsr_plugin_found gptq_found;
extern json_t                 *gptq_cases; /* the index */

int gptq_setup(void **state); /* for cmocka's group */
int gptq_teardown(void **state);

/* A recorded case with its inputs. */
struct gptq_case {
    const json_t       *c;
    const char         *name;
    uint64_t            rows, cols, groups, width;
    float              *w, *h;
    double              reference, rtn;
    struct gptq_options o; /* what was recorded, scale f32, the rest as by default */
};

struct gptq_result {
    tsr_status                   status;
    struct tsr_model_packed     *packed;
    float                       *dense;
    struct tsr_model_pack_report report;
    struct tsr_errbuf            err;
};

/* All fail the running test on errors that no test is about. */
struct gptq_options gptq_defaults(void);
struct gptq_case    gptq_case_open(const json_t *c);
struct gptq_case    gptq_case_named(const char *name);
void                gptq_case_close(struct gptq_case *p);
/* A tensor of the recorded file as F32; the caller frees it. */
float            *gptq_tensor(const char *name);
struct tsr_matrix gptq_matrix(const float *w, uint64_t rows, uint64_t cols);
void              gptq_must(tsr_status st, const struct tsr_errbuf *e);

/* w [rows, cols] under the Hessian h; the status is in the result. */
void gptq_quantize(struct gptq_result *r, const struct gptq_options *o, const float *w,
                   const float *h, uint64_t rows, uint64_t cols);
/* The same with the cross term of the inputs; NULL: none. */
void gptq_quantize_cross(struct gptq_result *r, const struct gptq_options *o, const float *w,
                         const float *h, const float *cross, uint64_t rows, uint64_t cols);
void gptq_result_free(struct gptq_result *r);
/* tr((W - Q) H (W - Q)^T) in double. */
double gptq_layer_error(const float *w, const float *q, const float *h, uint64_t rows,
                        uint64_t cols);

#endif
