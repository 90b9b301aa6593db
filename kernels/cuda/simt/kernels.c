/* kernels.c - all kernels, as C (k.h). */
#include "../codec.cu"
#include "../dense.cu"
#include "../elem.cu"
#include "../gemm.cu"
#include "../kv.cu"
#include "../linear.cu"
#include "../quantize.cu"
#include "../step.cu"
