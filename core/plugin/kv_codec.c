/* KV-cache codecs: opened by their text. */
#include "plugin/kv_codec.h"

#include <string.h>

static tsr_status ask(struct tsr_plugin_kv *c, uint32_t side, struct tsr_err *err)
{
    struct tsr_kv_layout *l = &c->layout[side];
    const char           *name = c->spec.found.component->name;
    *l = (struct tsr_kv_layout){ .struct_size = sizeof *l };
    tsr_status st = c->table->layout(c->self, side, c->head_dim, l, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "KV-cache codec '%s'", name);
    if ((l->positions != 1 && l->positions != TSR_KV_BLOCK) || l->bytes == 0 ||
        l->bytes > 4 * l->positions * c->head_dim + 64 || !(l->error >= 0 && l->error <= 1))
        return tsr_fail(err, TSR_E_PLUGIN,
                        "KV-cache codec '%s': a unit of %u positions, %llu bytes and an error of "
                        "%g; units are of 1 or %u positions, with at most 4 bytes for each of the "
                        "%llu elements of a head and 64 more, and an error of 0 to 1",
                        name, l->positions, (unsigned long long)l->bytes, l->error, TSR_KV_BLOCK,
                        (unsigned long long)c->head_dim);
    return TSR_OK;
}

/* The instance, without layouts. */
static tsr_status create(struct tsr_plugin_kv *c, struct tsr_registry *r, const char *text,
                         struct tsr_err *err)
{
    tsr_status st = tsr_plugin_spec_open(&c->spec, r, TSR_KIND_KV, text, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st,
                              "KV cache, whose types are " TSR_KV_NAMES
                              " and the codecs of plugins");
    c->table = c->spec.found.iface;
    st = c->table->create(c->spec.found.host, c->spec.options, &c->self, err);
    return st == TSR_OK
               ? st
               : tsr_err_prefix(err, st, "KV-cache codec '%s'", c->spec.found.component->name);
}

tsr_status tsr_plugin_kv_open(struct tsr_plugin_kv *c, struct tsr_registry *r, uint32_t kv,
                              uint64_t head_dim, struct tsr_err *err)
{
    const char *text = tsr_config_name_text(kv);
    *c = (struct tsr_plugin_kv){ .head_dim = head_dim };
    if (!text || head_dim == 0 || head_dim > 65536)
        return tsr_fail(err, TSR_E_INVAL, "KV cache: type %u and heads of %llu elements", kv,
                        (unsigned long long)head_dim);
    TSR_TRY(create(c, r, text, err));
    TSR_TRY(ask(c, TSR_KV_KEYS, err));
    TSR_TRY(ask(c, TSR_KV_VALUES, err));
    return tsr_plugin_kv_remember(kv, head_dim, c->layout, c->spec.found.component->name, err);
}

void tsr_plugin_kv_close(struct tsr_plugin_kv *c)
{
    if (c->self)
        c->table->destroy(c->self);
    tsr_plugin_spec_close(&c->spec);
    memset(c, 0, sizeof *c);
}

tsr_status tsr_plugin_kv_check(struct tsr_registry *r, int64_t kv, struct tsr_err *err)
{
    struct tsr_plugin_kv c = { 0 };
    const char          *text = tsr_config_name_text(kv);
    tsr_status           st = text ? create(&c, r, text, err) : TSR_OK;
    tsr_plugin_kv_close(&c);
    return st;
}

tsr_status tsr_plugin_kv_learn(struct tsr_registry *r, uint32_t kv, uint64_t head_dim,
                               struct tsr_err *err)
{
    struct tsr_plugin_kv c;
    if (!tsr_plugin_kv_is_codec(kv))
        return TSR_OK;
    tsr_status st = tsr_plugin_kv_open(&c, r, kv, head_dim, err);
    tsr_plugin_kv_close(&c);
    return st;
}
