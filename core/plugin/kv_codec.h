/* plugin/kv_codec.h - KV-cache codecs of plugins (tessera/kv.h), opened by the number of their text. */
#ifndef TSR_PLUGIN_KV_CODEC_H
#define TSR_PLUGIN_KV_CODEC_H

#include "plugin/kv_sizes.h"
#include "plugin/spec.h"

/* A codec of one engine.  layout: by TSR_KV_KEYS and TSR_KV_VALUES. */
struct tsr_plugin_kv {
    struct tsr_plugin_spec  spec;
    const struct tsr_kv_v1 *table;
    void                   *self;
    uint64_t                head_dim;
    struct tsr_kv_layout    layout[2];
};

/* The codec of a type that is one, and its layouts for a head dimension.  TSR_E_INPUT: no plugin has the name, or an option is
 * wrong; TSR_E_PLUGIN: a layout is not allowed.  After a failure too close() is allowed.  [setup] */
tsr_status tsr_plugin_kv_open(struct tsr_plugin_kv *c, struct tsr_registry *r, uint32_t kv,
                              uint64_t head_dim, struct tsr_err *err);
void       tsr_plugin_kv_close(struct tsr_plugin_kv *c);

/* Whether there is a plugin for kv and its options are right; then tsr_plugin_kv_type() is known.  TSR_OK where kv is no text.
 * [setup] */
tsr_status tsr_plugin_kv_check(struct tsr_registry *r, int64_t kv, struct tsr_err *err);
/* The same of kv and of the types of a text of tsr_plugin_kv_layers(); NULL: no text.  [setup] */
tsr_status tsr_plugin_kv_check_all(struct tsr_registry *r, int64_t kv, const char *layers,
                                   struct tsr_err *err);
/* The type that plans and engines take for the n bytes of a name: f32, f16, or of a codec, which must be there.  TSR_E_INPUT.
 * [setup] */
tsr_status tsr_plugin_kv_resolve(struct tsr_registry *r, const char *name, size_t n, uint32_t *kv,
                                 struct tsr_err *err);
/* Whether a codec of this registry has the name of a type of tessera/kv_cache.h and its units.  [setup] */
bool tsr_plugin_kv_is_there(struct tsr_registry *r, uint32_t type);
/* Opens and closes, so that type and sizes are known; TSR_OK where kv is no text.  [setup] */
tsr_status tsr_plugin_kv_learn(struct tsr_registry *r, uint32_t kv, uint64_t head_dim,
                               struct tsr_err *err);

#endif
