/* KV-cache codecs: opened by their text. */
#include "plugin/kv_codec.h"

#include "plugin/choices.h"
#include "plugin/kv_layers.h"

#include <string.h>

#define ANY_HEAD 128u /* elements, where the model is not known yet */

static tsr_status ask(struct tsr_plugin_kv *c, uint32_t side, struct tsr_err *err)
{
    struct tsr_kv_layout *l = &c->layout[side];
    const char           *name = c->spec.found.component->name;
    *l = (struct tsr_kv_layout){ .struct_size = sizeof *l };
    tsr_status st = c->table->layout(c->self, side, c->head_dim, l, err);
    if (st != TSR_OK)
        return tsr_err_prefix(err, st, "KV-cache codec '%s'", name);
    if ((l->positions != 1 && l->positions != TSR_KV_BLOCK) || l->bytes == 0 ||
        l->bytes > (uint64_t)4 * l->positions * c->head_dim + 64 ||
        !(l->error >= 0 && l->error <= 1))
        return tsr_fail(err, TSR_E_PLUGIN,
                        "KV-cache codec '%s': a unit of %u positions, %llu bytes and an error of "
                        "%g; units are of 1 or %u positions, with at most 4 bytes for each of the "
                        "%llu elements of a head and 64 more, and an error of 0 to 1",
                        name, l->positions, (unsigned long long)l->bytes, l->error, TSR_KV_BLOCK,
                        (unsigned long long)c->head_dim);
    uint64_t positions = l->type == TSR_Q4_CHANNEL ? TSR_KV_BLOCK : 1;
    uint64_t bytes = positions * tsr_kv_head_bytes(l->type, c->head_dim);
    if (l->type && (l->positions != positions || l->bytes != bytes ||
                    (l->type == TSR_Q4_CHANNEL && side == TSR_KV_VALUES)))
        return tsr_fail(err, TSR_E_PLUGIN,
                        "KV-cache codec '%s': units of %s are of type %u, with %u positions and "
                        "%llu bytes; that is no type of a cache, or its units have %llu positions "
                        "and %llu bytes",
                        name, side == TSR_KV_KEYS ? "keys" : "values", l->type, l->positions,
                        (unsigned long long)l->bytes, (unsigned long long)positions,
                        (unsigned long long)bytes);
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
                              " and the KV-cache codecs of plugins");
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
    tsr_plugin_kv_put_type(kv, c->layout);
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
    struct tsr_plugin_kv c = { .head_dim = ANY_HEAD };
    const char          *text = tsr_config_name_text(kv);
    tsr_status           st = text ? create(&c, r, text, err) : TSR_OK;
    if (st == TSR_OK && text) {
        st = ask(&c, TSR_KV_KEYS, err);
        st = st == TSR_OK ? ask(&c, TSR_KV_VALUES, err) : st;
        if (st == TSR_OK)
            tsr_plugin_kv_put_type(kv, c.layout);
        st = st == TSR_E_UNSUPPORTED ? TSR_OK : st; /* the model's heads may be others */
    }
    tsr_plugin_kv_close(&c);
    return st;
}

tsr_status tsr_plugin_kv_check_all(struct tsr_registry *r, int64_t kv, const char *layers,
                                   struct tsr_err *err)
{
    uint32_t of;
    TSR_TRY(tsr_plugin_kv_check(r, kv, err));
    while (layers && tsr_plugin_kv_layers_next(&layers, &of))
        TSR_TRY(tsr_plugin_kv_check(r, of, err));
    return TSR_OK;
}

tsr_status tsr_plugin_kv_resolve(struct tsr_registry *r, const char *name, size_t n, uint32_t *kv,
                                 struct tsr_err *err)
{
    char    text[257];
    int64_t number;
    (void)snprintf(text, sizeof text, "%.*s", (int)(n < 256 ? n : 256), name);
    number = tsr_plugin_kv_number(text);
    if (number < 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "'%.40s' is not a type of the KV cache: " TSR_KV_NAMES
                        " or a KV-cache codec of a plugin",
                        text);
    TSR_TRY(tsr_plugin_kv_check(r, number, err));
    *kv = (uint32_t)tsr_plugin_kv_type(number);
    return TSR_OK;
}

bool tsr_plugin_kv_is_there(struct tsr_registry *r, uint32_t type)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    const char       *name = tsr_plugin_kv_name(type);
    uint32_t          kv = 0;
    return tsr_plugin_kv_resolve(r, name, strlen(name), &kv, &e.err) == TSR_OK && kv == type;
}

tsr_status tsr_plugin_kv_learn(struct tsr_registry *r, uint32_t kv, uint64_t head_dim,
                               struct tsr_err *err)
{
    struct tsr_plugin_kv c;
    if (!tsr_plugin_kv_is_text(kv))
        return TSR_OK;
    tsr_status st = tsr_plugin_kv_open(&c, r, kv, head_dim, err);
    tsr_plugin_kv_close(&c);
    return st;
}
