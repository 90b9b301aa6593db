/* model/config_internal.h - reading of config.json: config.c says what, the others how. */
#ifndef TSR_MODEL_CONFIG_INTERNAL_H
#define TSR_MODEL_CONFIG_INTERNAL_H

#include "model/config.h"

/* Far above any model that exists; products of two stay within 64 bits. */
#define MAX_VOCAB     (INT64_C(1) << 24)
#define MAX_WIDTH     (INT64_C(1) << 22)
#define MAX_LAYERS    (INT64_C(1) << 14)
#define MAX_HEADS     (INT64_C(1) << 14)
#define MAX_POSITIONS (INT64_C(1) << 31)
#define MAX_EXPERTS   (INT64_C(1) << 12)
#define MAX_STATE     (INT64_C(1) << 12) /* rows, columns of a state */
#define MAX_KERNEL    (INT64_C(1) << 6)

struct tsr_model_config_source {   /* config.json while it is read */
    const json_t            *json; /* the object with the text model's keys */
    const char              *name; /* the file, for messages */
    struct tsr_model_config *config;
    struct tsr_err          *err;
};

/* Remembers what became of a key. */
void tsr_model_config_note(const struct tsr_model_config_source *s, const char *key,
                           enum tsr_model_key_use use);

/* config_values.c: a value from the key that is there, or by its default.  lo and hi bound what config.json
 * may say; the form of the value comes after that. */
tsr_status tsr_model_config_integer(const struct tsr_model_config_source *s,
                                    const struct tsr_model_value *v, int64_t lo, int64_t hi,
                                    int64_t *out);
tsr_status tsr_model_config_size(const struct tsr_model_config_source *s,
                                 const struct tsr_model_value *v, int64_t most, uint64_t *out);
tsr_status tsr_model_config_real(const struct tsr_model_config_source *s,
                                 const struct tsr_model_value *v, double lo, double hi,
                                 double *out);
tsr_status tsr_model_config_float(const struct tsr_model_config_source *s,
                                  const struct tsr_model_value *v, double lo, double hi,
                                  float *out);
tsr_status tsr_model_config_truth(const struct tsr_model_config_source *s,
                                  const struct tsr_model_value *v, bool *out);
tsr_status tsr_model_config_activation(const struct tsr_model_config_source *s,
                                       const struct tsr_model_value *v, uint32_t *func);
/* A key that is true, false or absent; *v has the default. */
tsr_status tsr_model_config_bool(const struct tsr_model_config_source *s, const char *key, bool *v);
/* The same of a flag, whose key may be one of two words. */
tsr_status tsr_model_config_flag(const struct tsr_model_config_source *s,
                                 const struct tsr_model_flag *f, bool *v);

/* config_rope.c: rotary embedding from both styles of config; head_dim and max_positions are set. */
tsr_status tsr_model_config_rope(const struct tsr_model_config_source *s);
/* config_latent.c: latent attention; *head_dim: columns of a head in attention and cache. */
tsr_status tsr_model_config_latent(const struct tsr_model_config_source *s, uint64_t *head_dim);
/* config_experts.c: the experts of a family that has some, and their router. */
tsr_status tsr_model_config_experts(const struct tsr_model_config_source *s);
/* config_online.c: the object that says what runs with a rotated model, NULL: nothing does; and its content. */
tsr_status tsr_model_config_rotation(const struct tsr_model_config_source *s, json_t **rotation);
tsr_status tsr_model_config_online(const struct tsr_model_config_source *s, const json_t *rotation);
/* config_layers.c: the window and the rope of each layer. */
tsr_status tsr_model_config_layers(const struct tsr_model_config_source *s);

#endif
