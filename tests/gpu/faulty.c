/* faulty.c - the kernels of faulty.cu as C. */
#include "faulty.cu"
