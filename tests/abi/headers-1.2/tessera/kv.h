/* tessera/kv.h - KV-cache codec: how the keys and values of a cache are stored.  The component kind is "tessera.kv/1", and a job
 * names the component as its KV cache: kv: NAME, or kv: "NAME:key=value,key=value".
 *
 * The plugin implements struct tsr_kv_v1.  The cache of one head is a list of units of one size: the unit of a position, or of
 * TSR_KV_BLOCK positions (tessera/kv_cache.h), which lets a codec scale each channel.  The host owns the units.  It stores a unit
 * once, copies it to other sequences (prompts that begin alike), moves it, drops it (drafts that were not drawn) and stores
 * another one in its place.  So a unit depends on its own elements alone, and holds neither a pointer nor its position.
 *
 *   create -> layout for keys and values -> encode, decode, score, mix, on several threads at once -> destroy
 *
 * With units of TSR_KV_BLOCK positions the host keeps the newest positions of a sequence as F16, until a block is full.  A block
 * is encoded from those F16.  A token sees its own block as F16, and the earlier ones as the codec decodes them.
 *
 * An element that is NaN or infinite, or too large for the codec, decodes to NaN or an infinity; other elements of its unit may
 * do so too.  The engine then ends the request with TSR_E_NUMERIC.
 *
 * Example: encode() of a codec that keeps the upper halves of F32, units of one position, 2 * head_dim bytes.
 *
 *     #include <string.h>
 *     static tsr_status encode(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
 *                              const float *x, void *units, struct tsr_err *err)
 *     {
 *         unsigned char *p = (unsigned char *)units;
 *         (void)self, (void)err, (void)(side == TSR_KV_KEYS);
 *         for (uint64_t i = 0; i < n * head_dim; i++) {
 *             uint32_t bits;
 *             memcpy(&bits, x + i, 4);
 *             p[2 * i] = (unsigned char)(bits >> 16);
 *             p[2 * i + 1] = (unsigned char)(bits >> 24);
 *         }
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_KV_H
#define TSR_KV_H

#include "tessera/kv_cache.h"
#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_KV "tessera.kv/1"

/* side */
#define TSR_KV_KEYS   0u
#define TSR_KV_VALUES 1u

struct tsr_kv_layout {
    uint32_t struct_size;
    uint32_t
        positions;  /* of a unit: 1 or TSR_KV_BLOCK                                            */
    uint64_t bytes; /* of a unit of one head, exactly: 1 to 4 * positions * head_dim + 64      */
    /* Largest |decoded - given| of an element, as a part of the largest |given| of its unit, where that is between 2^-6 and 2^6:
     * 1.0 / 254 for codes of 8 bits that are rounded to nearest.  At least 0 and at most 1. */
    double error;
    /* Type of tessera/kv_cache.h whose bytes a unit has: those that KV_STORE writes for the same elements, to which decode() gives
     * the same elements as ATTENTION reads, and the positions and bytes of that type.  0: units of the codec alone.  A function of
     * the options and side.  With TSR_I8, TSR_E4M3, TSR_F16 or TSR_F32 on both sides, or TSR_Q4_CHANNEL for keys and TSR_Q4 for
     * values, backends keep the cache and run kernels of the type.  Since minor 1. */
    uint32_t type;
    uint32_t reserved; /* 0 */
};

struct tsr_kv_v1 {
    uint32_t struct_size;
    uint32_t reserved;

    /* opts: the option struct of the component, already checked.  destroy() accepts NULL.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* The units of keys or values for a head of head_dim elements, 1 to 65536.  The caller zeroes l and sets struct_size.  A
     * function of the options, side and head_dim.  TSR_E_UNSUPPORTED: not for this head_dim, with the reason.  [any] */
    tsr_status (*layout)(const void *self, uint32_t side, uint64_t head_dim,
                         struct tsr_kv_layout *l, struct tsr_err *err);

    /* n units from x, F32 [n * positions, head_dim]: writes each of n * bytes bytes.  The bytes are a function of the options and
     * the elements of the unit: equal each time, on each thread, and whatever other units the call has.  units has no alignment.
     * [any] */
    tsr_status (*encode)(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const float *x, void *units, struct tsr_err *err);

    /* The way back: x F32 [n * positions, head_dim].  Bytes that encode() did not write, of a damaged memory, decode to any
     * elements; the call stays inside units and x.  [any] */
    tsr_status (*decode)(const void *self, uint32_t side, uint64_t head_dim, uint64_t n,
                         const void *units, float *x, struct tsr_err *err);

    /* May be NULL: the host decodes.  out[p] = query . key of position p, [n * positions]; the same as with decode() but for
     * rounding.  Not with other bytes than those of keys.  [any] */
    tsr_status (*score)(const void *self, uint64_t head_dim, const float *query, uint64_t n,
                        const void *units, float *out, struct tsr_err *err);

    /* May be NULL: the host decodes.  sum[d] += weights[p] * value of position p, weights [n * positions], in the order of
     * positions.  A unit of one position with weight 0 adds nothing, not even NaN.  [any] */
    tsr_status (*mix)(const void *self, uint64_t head_dim, const float *weights, uint64_t n,
                      const void *units, float *sum, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif
