/* tensor.h - checks of the tensors that an operation is given: shared by the backends, whose buffers
 * differ.  All of them give TSR_E_INVAL and a sentence with the operation's name. */
#ifndef TSR_TENSOR_H
#define TSR_TENSOR_H

#include "tessera/backend.h"

/* Bytes of an element. */
uint64_t tsr_tensor_element(uint32_t dtype);
/* Bytes from a tensor's first element to the end of its last. */
uint64_t tsr_tensor_span(const struct tsr_tensor *t);
/* t is of `dtype`, of rows and cols (0: any except none), aligned to its elements, and inside its buffer
 * of buffer_bytes. *stride: bytes from row to row. */
tsr_status tsr_tensor_check(const struct tsr_tensor *t, uint64_t buffer_bytes, const char *op,
                            const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                            uint64_t *stride, struct tsr_err *err);
/* Out shares no bytes with `in`, unless `same` is set and they are the same view. */
tsr_status tsr_tensor_apart(const struct tsr_tensor *out, const struct tsr_tensor *in, int same,
                            const char *op, struct tsr_err *err);
/* A cache of op's heads in F32, F16 or I8: *whole is t with the columns for tsr_tensor_check(), in *cols.
 * An I8 cache may be described by its elements alone; its row_stride then includes their scales. */
tsr_status tsr_tensor_cache(const struct tsr_tensor *t, const struct tsr_op *op, const char *name,
                            const char *what, struct tsr_tensor *whole, uint64_t *cols,
                            struct tsr_err *err);
/* op's kv_heads and head_dim are 1 to 65535 and 1 to 65536: the launch limits of all devices. */
tsr_status tsr_tensor_heads(const struct tsr_op *op, const char *name, struct tsr_err *err);
/* `bytes` at `offset` are inside a buffer of buffer_bytes. */
tsr_status tsr_tensor_range(uint64_t buffer_bytes, uint64_t offset, uint64_t bytes,
                            const char *what, struct tsr_err *err);

#endif
