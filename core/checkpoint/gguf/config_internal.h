/* checkpoint/gguf/config_internal.h - metadata of a GGUF file as config.json: config.c is the whole,
 * config_family.c what its family says, config_values.c how values are read and written, config_rope.c rope. */
#ifndef TSR_GGUF_CONFIG_INTERNAL_H
#define TSR_GGUF_CONFIG_INTERNAL_H

#include "base/json.h"
#include "checkpoint/gguf/gguf.h"
#include "config/config.h"
#include "model/family.h"

struct tsr_gguf_config_out {
    const struct tsr_gguf         *g;
    const char                    *arch; /* of the file: its keys begin with it */
    const struct tsr_model_family *f;
    json_t                        *j; /* config.json as it grows */
    struct tsr_err                *err;
};

/* "ARCHITECTURE.rope.freq_base": a key of the architecture; returns buf. */
const char *tsr_gguf_config_key(const struct tsr_gguf_config_out *o, const char *key,
                                char buf[128]);
/* Takes v over; NULL is out of memory. */
tsr_status tsr_gguf_config_put(struct tsr_gguf_config_out *o, const char *key, json_t *v);
/* The same under the family's key of this value, unless the family gives that key otherwise or has none. */
tsr_status tsr_gguf_config_put_value(struct tsr_gguf_config_out *o, const struct tsr_model_value *v,
                                     json_t *j);
/* A key of the architecture; *v stays if it is absent and not required. */
tsr_status tsr_gguf_config_int(struct tsr_gguf_config_out *o, const char *key, bool required,
                               int64_t *v);
tsr_status tsr_gguf_config_real(struct tsr_gguf_config_out *o, const char *key, bool required,
                                double *v);
/* The decimal number that an F32 came from. */
json_t *tsr_gguf_config_shortest(double v);
bool    tsr_gguf_config_has(const struct tsr_gguf_config_out *o, const char *tensor);
/* Whether the family gives that key of config.json itself, or takes a value from that key of the metadata. */
bool tsr_gguf_config_gives(const struct tsr_gguf_config_out *o, const char *name);
bool tsr_gguf_config_takes(const struct tsr_gguf_config_out *o, const char *key);

/* Sizes of the model; *head_dim of a head, or of the part that rotates under latent attention. */
tsr_status tsr_gguf_config_sizes(struct tsr_gguf_config_out *o, int64_t *heads, int64_t *head_dim);
/* What the family's section says beyond the rules. */
tsr_status tsr_gguf_config_family(struct tsr_gguf_config_out *o, int64_t heads, int64_t head_dim);
/* Sizes and layers of the gated delta rule. */
tsr_status tsr_gguf_config_delta(struct tsr_gguf_config_out *o);
/* Base, scaling and rotated part. */
tsr_status tsr_gguf_config_rope(struct tsr_gguf_config_out *o, int64_t head_dim);

#endif
