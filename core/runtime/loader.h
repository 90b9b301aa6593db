/* runtime/loader.h - a model that is packed while it is loaded, layer by layer.
 *
 *   disk --read layer i+1-->  quantize layer i+1  --place layer i--> device of the rank
 *
 * Reading, quantizing and placing have a thread each: while a layer is placed the next one is
 * quantized, and the one behind it is read as soon as the first is on the device.  So at most two
 * layers are in memory as they are stored, and the last one is quantized when it alone is.  What a
 * rank does not have is not read.
 */
#ifndef TSR_RUNTIME_LOADER_H
#define TSR_RUNTIME_LOADER_H

#include "engine/engine.h"
#include "quant/scheme.h"

struct tsr_loader;

/* Bytes in host memory, and seconds of the parts of a load. */
struct tsr_loader_numbers {
    uint64_t peak;  /* of stored and packed layers in host memory */
    uint64_t total; /* of them and of all that the registry's plugins hold, the device's part too */
    uint64_t layer; /* the largest layer as it is stored */
    double   read_s, quantize_s, place_s; /* each with what runs beside it */
    double   waited_s;                    /* for a layer that is not quantized yet */
};

/* Layers [first, end) of m (streamed: else there is nothing to read) as a scheme packs them.  A scheme
 * that asks for statistics is TSR_E_INPUT: such a model is quantized first.  [setup] */
tsr_status tsr_loader_open(struct tsr_loader **l, const struct tsr_scheme *s,
                           struct tsr_registry *r, const struct tsr_model *m, uint64_t first,
                           uint64_t end, struct tsr_err *err);
void       tsr_loader_close(struct tsr_loader *l); /* NULL is fine */

/* For tsr_engine_create(): layers are asked for in order. */
const struct tsr_engine_source *tsr_loader_source(struct tsr_loader *l);
struct tsr_overlay             *tsr_loader_overlay(struct tsr_loader *l);
/* Packs the head too, if the scheme names it. */
tsr_status tsr_loader_head(struct tsr_loader *l, struct tsr_err *err);
void       tsr_loader_numbers(const struct tsr_loader *l, struct tsr_loader_numbers *n);

#endif
