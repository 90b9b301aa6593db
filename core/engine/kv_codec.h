/* engine/kv_codec.h - layers whose keys and values a plugin's codec stores (tessera/kv.h).
 *
 * Their cache is in host memory, and so is their attention: kv_attend.c.  The backend runs everything else.  Units of a head
 * lie one after the other, by slot and then by head; the newest block of a slot, with units of TSR_KV_BLOCK positions, is F16.
 */
#ifndef TSR_ENGINE_KV_CODEC_H
#define TSR_ENGINE_KV_CODEC_H

#include "engine/internal.h"
#include "plugin/kv_codec.h"

#define TSR_ENGINE_KV_TOKENS 32u /* that cross to the host at once           */
#define TSR_ENGINE_KV_TILE   8u  /* tokens of a slot that share what is decoded */

/* Cache of a layer.  By side. */
struct tsr_engine_kv_store {
    const struct tsr_plugin_kv *codec;
    uint64_t                    rows;     /* of a slot */
    unsigned char              *units[2]; /* [slots][kv heads][rows / positions] units */
    uint16_t
        *tail[2]; /* F16 [slots][kv heads][TSR_KV_BLOCK][head_dim]; NULL: units of one position */
};

/* Codecs and caches of an engine's layers. */
struct tsr_engine_kv_codecs {
    struct tsr_plugin_kv *codecs; /* [n] */
    uint64_t              n;
    struct tsr_engine_kv_store
            *stores;        /* [layers of the model]; codec NULL: the backend has the cache */
    float   *q, *k, *v, *a; /* [TSR_ENGINE_KV_TOKENS, ...] rows of all heads */
    float   *work;          /* [kv heads][work_each] */
    uint64_t work_each;
    float   *slopes, *sinks; /* [heads] or NULL, of a layer with sinks in turn */
};

/* The cache's type in each layer: that of backends, where a codec states one.  [setup] */
tsr_status tsr_engine_kv_choose(struct tsr_engine *e, const struct tsr_engine_options *opt,
                                struct tsr_err *err);
/* Opens the codecs of all layers; nothing where no layer has one.  TSR_E_UNSUPPORTED: the backend is not the default one.
 * [setup] */
tsr_status tsr_engine_kv_codecs_open(struct tsr_engine *e, struct tsr_err *err);
/* The cache of a layer with a codec, of `rows` rows for each slot.  [setup] */
tsr_status tsr_engine_kv_store_create(struct tsr_engine *e, uint64_t layer, uint64_t rows,
                                      struct tsr_err *err);
void       tsr_engine_kv_codecs_destroy(struct tsr_engine *e);

/* The cache of a layer, or NULL: the backend has it. */
static inline struct tsr_engine_kv_store *tsr_engine_kv_store_of(const struct tsr_engine *e,
                                                                 uint64_t                 layer)
{
    return e->kv_codecs && e->kv_codecs->stores[layer].codec ? &e->kv_codecs->stores[layer] : NULL;
}

/* Positions [from, from + n) of one slot to position `to` of another or the same; all are multiples of a unit's positions.
 * Rows of a slot move to its front, so the order of copies is rising. */
void tsr_engine_kv_store_copy(const struct tsr_engine *e, const struct tsr_engine_kv_store *s,
                              uint64_t from_slot, uint64_t from, uint64_t to_slot, uint64_t to,
                              uint64_t n);

/* Stores k and v of the chunk's tokens and writes their attention to out; all of them rows of the device.  [worker] */
tsr_status tsr_engine_kv_attend(struct tsr_engine *e, uint64_t layer, const struct tsr_tensor *q,
                                const struct tsr_tensor *k, const struct tsr_tensor *v,
                                const struct tsr_tensor *out, struct tsr_err *err);

#endif
