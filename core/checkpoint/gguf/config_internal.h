/* checkpoint/gguf/config_internal.h - metadata of a GGUF file as config.json: config.c is the whole,
 * config_family.c what each architecture says, config_values.c how values are read and written. */
#ifndef TSR_GGUF_CONFIG_INTERNAL_H
#define TSR_GGUF_CONFIG_INTERNAL_H

#include "base/json.h"
#include "checkpoint/gguf/gguf.h"

struct tsr_gguf_config_out {
    const struct tsr_gguf *g;
    const char            *arch; /* "llama" */
    json_t                *j;    /* config.json as it grows */
    struct tsr_err        *err;
};

struct tsr_gguf_config_family {
    const char *arch, *architecture; /* of the file; of config.json */
    tsr_status (*config)(struct tsr_gguf_config_out *o);
    bool scales; /* has multipliers */
};
/* NULL: not supported. */
const struct tsr_gguf_config_family *tsr_gguf_config_family(const char *arch);

/* "llama.rope.freq_base": a key of the architecture; returns buf. */
const char *tsr_gguf_config_key(const struct tsr_gguf_config_out *o, const char *key,
                                char buf[128]);
/* Takes v over; NULL is out of memory. */
tsr_status tsr_gguf_config_put(struct tsr_gguf_config_out *o, const char *key, json_t *v);
/* A key of the architecture; *v stays if it is absent and not required. */
tsr_status tsr_gguf_config_int(struct tsr_gguf_config_out *o, const char *key, bool required,
                               int64_t *v);
tsr_status tsr_gguf_config_real(struct tsr_gguf_config_out *o, const char *key, bool required,
                                double *v);
/* A required key, under its name in config.json. */
tsr_status tsr_gguf_config_copy_int(struct tsr_gguf_config_out *o, const char *from,
                                    const char *to);
tsr_status tsr_gguf_config_copy_real(struct tsr_gguf_config_out *o, const char *from,
                                     const char *to);
/* The decimal number that an F32 came from. */
json_t *tsr_gguf_config_shortest(double v);
bool    tsr_gguf_config_has(const struct tsr_gguf_config_out *o, const char *tensor);
/* Base, scaling and rotated part. */
tsr_status tsr_gguf_config_rope(struct tsr_gguf_config_out *o, int64_t head_dim);

#endif
