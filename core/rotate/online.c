/* The transforms that run with a rotated model, and config.json of one that has some. */
#include "rotate/online.h"

#include "base/mem.h"
#include "model/online.h"
#include "rotate/transform.h"

#include <stdlib.h>

static tsr_status no_run(const struct tsr_model *m, const char *what, uint64_t cols, uint64_t run,
                         struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: the input of %s cannot be rotated: no Hadamard matrix of at least %u rows "
                    "divides the segments of its %llu columns (the largest has %llu)",
                    m->path, what, TSR_ROTATE_LEAST, (unsigned long long)cols,
                    (unsigned long long)run);
}

static tsr_status down_of(const struct tsr_model *m, struct tsr_model_online *to,
                          struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &m->hp;
    bool                            dense = false;
    for (uint64_t l = 0; l < hp->layers; l++)
        dense = dense || !hp->sparse || !hp->sparse[l];
    const struct {
        const char *what;
        uint64_t    cols;
        uint32_t   *run;
    } inputs[] = { { "down_proj", dense ? hp->ffn : 0, &to->down },
                   { "the experts' down_proj", hp->experts ? hp->expert_ffn : 0, &to->expert },
                   { "the shared expert's down_proj", hp->shared_ffn, &to->shared } };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        uint64_t run = inputs[i].cols ? tsr_model_online_run(inputs[i].cols) : 0;
        if (inputs[i].cols && run < TSR_ROTATE_LEAST)
            return no_run(m, inputs[i].what, inputs[i].cols, run, err);
        *inputs[i].run = (uint32_t)run;
    }
    return TSR_OK;
}

static tsr_status keys_of(const struct tsr_model *m, struct tsr_model_online *to,
                          struct tsr_err *err)
{
    const char *why = tsr_rotate_no_keys(m);
    if (why)
        return tsr_fail(err, TSR_E_INPUT, "%s: keys cannot be rotated: %s", m->path, why);
    if (!tsr_model_online_known(m->hp.head_dim))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: keys cannot be rotated: no fast Hadamard transform of the %u columns "
                        "of a head is known here",
                        m->path, m->hp.head_dim);
    to->keys = m->hp.head_dim;
    return TSR_OK;
}

tsr_status tsr_rotate_online(const struct tsr_model *m, uint32_t sites, struct tsr_model_online *to,
                             struct tsr_err *err)
{
    *to = (struct tsr_model_online){ 0 };
    if (sites & TSR_ROTATE_KEYS)
        TSR_TRY(keys_of(m, to, err));
    return sites & TSR_ROTATE_DOWN ? down_of(m, to, err) : TSR_OK;
}

uint32_t tsr_rotate_run(const struct tsr_model_online *o, enum tsr_linear_id id)
{
    if (tsr_model_linear_kind(id) != TSR_MODEL_DOWN)
        return 0;
    return id >= TSR_MODEL_EXPERTS ? o->expert : id == TSR_MODEL_SHARED_DOWN ? o->shared : o->down;
}

/* Moves a key of the configuration into the rotation. */
static bool moved(json_t *config, json_t *rotation, const char *key, json_t *now)
{
    json_t *was = json_object_get(config, key);
    bool    ok = !was || json_object_set(rotation, key, was) == 0;
    return json_object_set_new(config, key, now) == 0 && ok;
}

tsr_status tsr_rotate_config(const struct tsr_model_online *o, json_t *config, struct tsr_err *err)
{
    const struct {
        const char *key;
        uint32_t    run;
    } runs[] = { { "keys", o->keys },
                 { "down", o->down },
                 { "expert_down", o->expert },
                 { "shared_down", o->shared } };
    json_t *rotation = json_pack("{s:s}", "format", TSR_MODEL_ROTATION_FORMAT);
    bool    ok = rotation &&
              moved(config, rotation, "architectures", json_pack("[s]", "TesseraRotated")) &&
              moved(config, rotation, "model_type", json_string("tessera_rotated"));
    for (size_t i = 0; ok && i < sizeof runs / sizeof *runs; i++)
        ok = !runs[i].run ||
             json_object_set_new(rotation, runs[i].key, json_integer(runs[i].run)) == 0;
    (void)json_object_del(config, "auto_map"); /* code for the model that it was */
    ok = json_object_set_new(config, TSR_MODEL_ROTATION, rotation) == 0 && ok;
    return ok ? TSR_OK : tsr_fail_nomem(err, 256, "config.json");
}
