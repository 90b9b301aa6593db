/* rows_cxx.h - what the C++ half offers the C half. */
#ifndef ROWS_CXX_H
#define ROWS_CXX_H

#include <tessera/quantizer.h>

struct rows_options {
    int64_t bits;
};

#ifdef __cplusplus
extern "C" {
#endif
tsr_status rows_create(const struct tsr_host *host, const void *opts, void **self,
                       struct tsr_err *err);
void       rows_destroy(void *self);
tsr_status rows_plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                     struct tsr_err *err);
tsr_status rows_quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err);
tsr_status rows_dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err);
#ifdef __cplusplus
}
#endif
#endif
