/* plugin/kv_sizes.h - which types of a KV cache are codecs of plugins, and the sizes of their units.
 *
 * The type of a cache is a number: a TSR_* of tessera/kv_cache.h, or, for a codec, the number of its text "NAME:key=value"
 * (config/names.h).  A codec may state that its units are those of a TSR_*: plans and engines then take that.  Sizes of a codec are known from the first tsr_plugin_kv_open() for the head dimension on, in the whole
 * process: whoever counts the bytes of a cache opens its codec first.
 */
#ifndef TSR_PLUGIN_KV_SIZES_H
#define TSR_PLUGIN_KV_SIZES_H

#include "base/err.h"
#include "config/names.h"
#include "tessera/kv.h"

/* Whether a type of a cache is the text of a codec, or its units are of the codec alone.  [any] */
static inline bool tsr_plugin_kv_is_text(int64_t kv)
{
    return kv >= TSR_CONFIG_NAMES_FIRST && kv < TSR_CONFIG_NAMES_FIRST + TSR_CONFIG_NAMES_MOST;
}

/* The type that backends keep for a codec that states one (tsr_kv_layout.type), known from the first tsr_plugin_kv_check() or
 * tsr_plugin_kv_open() on; kv itself where there is none.  [any] */
int64_t            tsr_plugin_kv_type(int64_t kv);
static inline bool tsr_plugin_kv_is_codec(int64_t kv)
{
    return tsr_plugin_kv_is_text(tsr_plugin_kv_type(kv));
}
/* Keeps the type that the layouts of a codec state.  [any] */
void tsr_plugin_kv_put_type(int64_t kv, const struct tsr_kv_layout layout[2]);

/* The two layouts of a codec that was opened for this head dimension (0: for any, which *dim is then; dim may be NULL), by
 * TSR_KV_KEYS and TSR_KV_VALUES.  false: it was not opened, or kv is no codec.  [any] */
bool tsr_plugin_kv_layouts(int64_t kv, uint64_t head_dim, uint64_t *dim,
                           struct tsr_kv_layout layout[2]);
/* Whether keys or values of a type are in blocks of TSR_KV_BLOCK positions; of a codec whose sizes are not known yet: true.
 * [any] */
bool tsr_plugin_kv_has_blocks(int64_t kv);

/* Keeps the layouts of a codec; `name` is for the error.  TSR_E_NOMEM: there are too many.  [any] */
tsr_status tsr_plugin_kv_remember(int64_t kv, uint64_t head_dim,
                                  const struct tsr_kv_layout layout[2], const char *name,
                                  struct tsr_err *err);

#endif
