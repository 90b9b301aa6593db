/* Values of a GGUF file, as keys of config.json. */
#include "checkpoint/gguf/config_internal.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_gguf_config_put(struct tsr_gguf_config_out *o, const char *key, json_t *v)
{
    return v && json_object_set_new(o->j, key, v) == 0 ? TSR_OK : tsr_fail_nomem(o->err, 64, key);
}

const char *tsr_gguf_config_key(const struct tsr_gguf_config_out *o, const char *key, char buf[128])
{
    (void)snprintf(buf, 128, "%s.%s", o->arch, key);
    return buf;
}

tsr_status tsr_gguf_config_int(struct tsr_gguf_config_out *o, const char *key, bool required,
                               int64_t *v)
{
    char name[128];
    return tsr_gguf_int(o->g, tsr_gguf_config_key(o, key, name), required, 0, INT64_C(1) << 40, v,
                        o->err);
}

tsr_status tsr_gguf_config_real(struct tsr_gguf_config_out *o, const char *key, bool required,
                                double *v)
{
    char name[128];
    return tsr_gguf_real(o->g, tsr_gguf_config_key(o, key, name), required, -1e30, 1e30, v, o->err);
}

/* Stored as F32, meant as the decimal number that it came from: 1e-05, not 9.99999974e-06.  Engines
 * compute with the F32 value, which this text restores. */
json_t *tsr_gguf_config_shortest(double v)
{
    char buf[40];
    for (int digits = 1; digits < 9; digits++) {
        (void)snprintf(buf, sizeof buf, "%.*g", digits, v);
        if ((float)strtod(buf, NULL) == (float)v)
            return json_real(strtod(buf, NULL));
    }
    return json_real(v);
}

bool tsr_gguf_config_has(const struct tsr_gguf_config_out *o, const char *tensor)
{
    return tsr_gguf_find(o->g, tensor) != NULL;
}

bool tsr_gguf_config_gives(const struct tsr_gguf_config_out *o, const char *name)
{
    for (unsigned i = 0; i < o->f->gguf.n_values; i++)
        if (strcmp(o->f->gguf.value[i].name, name) == 0)
            return true;
    return false;
}

bool tsr_gguf_config_takes(const struct tsr_gguf_config_out *o, const char *key)
{
    for (unsigned i = 0; i < o->f->gguf.n_values; i++)
        if (o->f->gguf.value[i].key && strcmp(o->f->gguf.value[i].key, key) == 0)
            return true;
    return false;
}

tsr_status tsr_gguf_config_put_value(struct tsr_gguf_config_out *o, const struct tsr_model_value *v,
                                     json_t *j)
{
    if (v->n_keys && !tsr_gguf_config_gives(o, v->keys[0]))
        return tsr_gguf_config_put(o, v->keys[0], j);
    json_decref(j);
    return TSR_OK;
}
