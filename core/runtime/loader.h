/* runtime/loader.h - a model that is packed while it is loaded, stored tensor by stored tensor.
 *
 *   disk --read piece i+2-->  quantize piece i+1  --place piece i--> device of the rank
 *
 * Reading and placing have a thread each, quantizing two: a second piece is begun where it was read before
 * the first is done (not where the pool has one thread), so that no CPU waits for a piece's last rows.  A
 * piece (model/pieces.h) is read into one of two places as large as the largest, which is free again when its
 * linears are packed, or placed where they stay as they are; a layer's worth of packed pieces may wait to be
 * placed.  Of pieces that cannot be packed the first one's sentence comes.  What a rank does not have
 * is not read: of each linear its rows or columns alone, where the linear stays as it is or its quantizer
 * promises that they become what they become in the whole (tsr_quantizer_alone()).  Any other
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
struct tsr_loader_numbers {
    uint64_t peak;  /* of stored and packed pieces in host memory */
    uint64_t total; /* of them and of all that the registry's plugins hold, the device's part too */
    uint64_t read;  /* of the file */
    uint64_t layer; /* the largest layer as it is stored, of what is read */
    uint64_t piece; /* the largest piece, of what is read */
    double   read_s, quantize_s,
        place_s;     /* each with what runs beside it; quantize_s: of any piece */
    double waited_s; /* for a piece that is not quantized yet */
};

/* Layers [first, end) of m (streamed: else there is nothing to read) as a scheme packs them, and the head
 * too if `head` and the scheme names it.  share: of them this rank's part alone, copied; NULL: all.  A scheme that asks for statistics, or searches scales of whole
 * layers, is TSR_E_INPUT, here or by the source: such a model is quantized first.  progress: whose load it is,
 * for the clocks of its threads; or NULL.  [setup] */
tsr_status tsr_loader_open(struct tsr_loader **l, const struct tsr_scheme *s,
                           struct tsr_registry *r, const struct tsr_model *m, uint64_t first,
                           uint64_t end, const struct tsr_share *share, bool head,
                           struct tsr_progress *progress, struct tsr_err *err);
void       tsr_loader_close(struct tsr_loader *l); /* NULL is fine */

/* For tsr_engine_create(). */
const struct tsr_engine_source *tsr_loader_source(struct tsr_loader *l);
struct tsr_overlay             *tsr_loader_overlay(struct tsr_loader *l);
void tsr_loader_numbers(const struct tsr_loader *l, struct tsr_loader_numbers *n);

#endif
