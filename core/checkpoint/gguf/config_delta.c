/* What a GGUF file says of layers of the gated delta rule, as keys of config.json. */
#include "checkpoint/gguf/config_internal.h"

/* The form of each layer, or every how many layers one has attention. */
static tsr_status put_layers(struct tsr_gguf_config_out *o)
{
    const struct tsr_model_layer_rule *rule = &o->f->delta.layers;
    const struct tsr_gguf_key         *k = NULL;
    int64_t                            interval = 4, layers = 0;
    char                               name[128];
    TSR_TRY(tsr_gguf_array(o->g, tsr_gguf_config_key(o, "attention.recurrent_layers", name), false,
                           TSR_GGUF_BOOL, &k, o->err));
    TSR_TRY(tsr_gguf_config_int(o, "full_attention_interval", false, &interval));
    TSR_TRY(tsr_gguf_config_int(o, "block_count", true, &layers));
    if (!k && rule->kind == TSR_MODEL_LAYERS_EXCEPT_EVERY)
        return tsr_gguf_config_put_value(o, &rule->n, json_integer(interval));
    if (!o->f->delta.types || interval <= 0 || (k && k->n != (uint64_t)layers))
        return tsr_fail(o->err, TSR_E_INPUT,
                        "%s: %llu forms of layers, or every %lld layers; a model of %lld layers of "
                        "the family %s has one for each",
                        o->g->path, (unsigned long long)(k ? k->n : 0), (long long)interval,
                        (long long)layers, o->f->name);
    json_t *types = json_array();
    for (int64_t l = 0; l < layers; l++) {
        bool recurrent = k ? o->g->header[k->at + (uint64_t)l] != 0 : (l + 1) % interval != 0;
        tsr_json_add(&types, json_string(recurrent ? "linear_attention" : "full_attention"));
    }
    return tsr_gguf_config_put(o, o->f->delta.types, types);
}

/* Sections of the rotated columns, each of which follows a position of its own: a text has three that are alike, and a
 * fourth that is 0. */
static tsr_status check_sections(struct tsr_gguf_config_out *o)
{
    const struct tsr_gguf_key *k = NULL;
    char                       name[128];
    uint64_t                   all = 0, of[3] = { 0 };
    int64_t                    rotated = 0;
    TSR_TRY(tsr_gguf_array(o->g, tsr_gguf_config_key(o, "rope.dimension_sections", name), false,
                           TSR_GGUF_I32, &k, o->err));
    TSR_TRY(tsr_gguf_config_int(o, "rope.dimension_count", true, &rotated));
    if (!k)
        return TSR_OK;
    for (uint64_t i = 0; i < k->n && i < 4; i++) {
        uint32_t n = tsr_gguf_item32(o->g, k, i) & INT32_MAX;
        all += n;
        if (i < 3)
            of[i] = n;
    }
    for (int64_t c = 0; c < rotated / 2; c++)
        if (all == 0 || (uint64_t)c % all >= 3 * of[(uint64_t)c % all % 3])
            return tsr_fail(o->err, TSR_E_INPUT,
                            "%s: \"%s\" leaves column %lld of %lld without a position of the text",
                            o->g->path, name, (long long)c, (long long)rotated / 2);
    return TSR_OK;
}

tsr_status tsr_gguf_config_delta(struct tsr_gguf_config_out *o)
{
    const struct tsr_model_family *f = o->f;
    int64_t                        kernel = 0, dim = 0, keys = 0, heads = 0, inner = 0;
    if (f->gguf.sections)
        TSR_TRY(check_sections(o));
    if (!f->delta.is)
        return TSR_OK;
    TSR_TRY(tsr_gguf_config_int(o, "ssm.conv_kernel", true, &kernel));
    TSR_TRY(tsr_gguf_config_int(o, "ssm.state_size", true, &dim));
    TSR_TRY(tsr_gguf_config_int(o, "ssm.group_count", true, &keys));
    TSR_TRY(tsr_gguf_config_int(o, "ssm.time_step_rank", true, &heads));
    TSR_TRY(tsr_gguf_config_int(o, "ssm.inner_size", true, &inner));
    if (heads <= 0 || inner % heads != 0)
        return tsr_fail(o->err, TSR_E_INPUT, "%s: values of %lld in %lld heads", o->g->path,
                        (long long)inner, (long long)heads);
    TSR_TRY(tsr_gguf_config_put_value(o, &f->delta.kernel, json_integer(kernel)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->delta.key_dim, json_integer(dim)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->delta.key_heads, json_integer(keys)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->delta.value_heads, json_integer(heads)));
    TSR_TRY(tsr_gguf_config_put_value(o, &f->delta.value_dim, json_integer(inner / heads)));
    return put_layers(o);
}
