/* runtime/loader.h - packs a model while it is loaded, stored tensor by stored tensor.
 *
 *   disk --read piece i+2-->  quantize piece i+1  --place piece i--> device of the rank
 *
 * Reading and placing have one thread each, quantizing has two: if the next piece has been read before the
 * current one is done, the second thread begins it (unless the pool has one thread), so that no CPU waits
 * for a piece's last rows. A piece (model/pieces.h) is read into one of two rooms as large as the largest
 * piece. A room is free again when its linears are packed, or placed if they stay unpacked; a layer's
 * worth of packed pieces may wait to be placed. If several pieces cannot be packed, the error is the first
 * one's. The loader reads only this rank's part: the rows or columns of each linear, if the linear stays
 * unpacked or its quantizer promises the same result as for the whole (tsr_quantizer_alone()). Any other
 * linear is read and packed whole, and the engine cuts it.
 */
#ifndef TSR_RUNTIME_LOADER_H
#define TSR_RUNTIME_LOADER_H

#include "engine/engine.h"
#include "engine/share.h"
#include "quant/scheme.h"
#include "runtime/progress.h"

struct tsr_loader;

/* Bytes in host memory, and seconds of the parts of a load. */
struct tsr_runtime_loader_numbers {
    uint64_t peak;  /* of stored and packed pieces in host memory */
    uint64_t total; /* of them and of everything that the registry's plugins hold, including
                     * device memory */
    uint64_t read;  /* of the file */
    uint64_t layer; /* the largest layer read, as stored */
    uint64_t piece; /* the largest piece read */
    double   read_s, quantize_s,
        place_s;     /* each with its concurrent work; quantize_s: of any piece */
    double waited_s; /* for a piece that is not quantized yet */
};

/* Layers [first, end) of m (which must be streamed: else there is nothing to read) packed by a scheme, and
 * the head too if `head` and the scheme names it. share: loads only this rank's part, copied; NULL: all. A
 * scheme that requires statistics, or searches scales of whole layers, is TSR_E_INPUT, here or by the
 * source: quantize such a model first. progress: the load whose thread clocks it updates; or NULL. [setup] */
tsr_status tsr_runtime_loader_open(struct tsr_loader **l, const struct tsr_quant_scheme *s,
                                   struct tsr_registry *r, const struct tsr_model *m,
                                   uint64_t first, uint64_t end,
                                   const struct tsr_engine_share *share, bool head,
                                   struct tsr_runtime_progress *progress, struct tsr_err *err);
void       tsr_runtime_loader_close(struct tsr_loader *l); /* NULL is fine */

/* For tsr_engine_create(). */
const struct tsr_engine_source *tsr_runtime_loader_source(struct tsr_loader *l);
struct tsr_model_overlay       *tsr_runtime_loader_overlay(struct tsr_loader *l);
void tsr_runtime_loader_numbers(const struct tsr_loader *l, struct tsr_runtime_loader_numbers *n);

#endif
