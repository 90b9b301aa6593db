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

/* Whether there is a plugin for kv and its options are right; TSR_OK where kv is no codec.  [setup] */
tsr_status tsr_plugin_kv_check(struct tsr_registry *r, int64_t kv, struct tsr_err *err);
/* Opens and closes, so that the sizes are known; TSR_OK where kv is no codec.  [setup] */
tsr_status tsr_plugin_kv_learn(struct tsr_registry *r, uint32_t kv, uint64_t head_dim,
                               struct tsr_err *err);

#endif
