/* device_simt.h - the emulated device, between its files. */
#ifndef TSR_DEVICE_SIMT_H
#define TSR_DEVICE_SIMT_H

#include <time.h>

#include "../device.h"
#include "simt.h"

struct device {
    const struct tsr_host *host;
    uint64_t               seed;
    struct timespec        marks[2];
};

tsr_status tsr_simt_launch(void *device, void *stream, const struct tsr_cuda_launch *l,
                           struct tsr_err *err);

/* graph_simt.c */
tsr_status tsr_simt_graph_make(void *device, const struct tsr_cuda_launch *l, uint64_t n,
                               void **graph, struct tsr_err *err);
tsr_status tsr_simt_graph_run(void *device, void *graph, struct tsr_err *err);
void       tsr_simt_graph_free(void *device, void *graph);

/* blas_simt.c: by the book, in double */
tsr_status tsr_simt_blas_find(void *device, struct tsr_err *err);
tsr_status tsr_simt_blas_work(void *device, const struct tsr_cuda_blas *b, uint64_t *bytes,
                              struct tsr_err *err);
tsr_status tsr_simt_blas(void *device, const struct tsr_cuda_blas *b, struct tsr_err *err);

#endif
