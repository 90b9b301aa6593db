/* tessera/dtype.h - dtype: the type of the elements of a matrix, a tensor or a wire.
 *
 * These are constants; there is nothing to implement.  The host and plugins store them in members
 * named dtype, src_dtypes and scale_dtype.  A dtype of 0 is invalid unless a member says otherwise.
 *
 * Example: the size of a row.
 *
 *     static uint64_t row_bytes(uint32_t dtype, uint64_t cols)
 *     {
 *         switch (dtype) {
 *         case TSR_F32:
 *         case TSR_U32:
 *             return cols * 4;
 *         case TSR_F16:
 *         case TSR_BF16:
 *             return cols * 2;
 *         default:
 *             return dtype == TSR_U8 || dtype == TSR_I8 ? cols : 0;
 *         }
 *     }
 */
#ifndef TSR_DTYPE_H
#define TSR_DTYPE_H

#include <stdint.h>

/* Elements are little-endian.  Files store these values, so a value never changes. */
#define TSR_F32        1u /* IEEE 754 binary32                  */
#define TSR_F16        2u /* IEEE 754 binary16                  */
#define TSR_BF16       3u /* the upper 16 bits of a binary32    */
#define TSR_U8         4u
#define TSR_U32        5u
#define TSR_I8         6u
#define TSR_E4M3       7u /* FP8 of 4 exponent bits, no infinity; KV caches only, kv_cache.h */
#define TSR_Q4         8u /* groups of 4-bit codes; KV caches only, kv_cache.h               */
#define TSR_Q4_CHANNEL 9u /* 4-bit codes by channel; caches of keys only, kv_cache.h */

#endif
