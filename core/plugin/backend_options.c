/* backend_options.c - the options of a backend's create(): its defaults, and numerics. */
#include "plugin/registry.h"

#include "base/mem.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

/* The component's option `numerics`, if it has the choice. */
static const struct tsr_option *option_with(const struct tsr_component *c, const char *choice)
{
    for (uint64_t i = 0; i < c->n_options; i++) {
        const struct tsr_option *o =
            (const struct tsr_option *)(const void *)((const char *)c->options +
                                                      i * c->option_stride);
        if (strcmp(o->name, "numerics") != 0 || o->type != TSR_OPT_ENUM)
            continue;
        for (uint64_t k = 0; k < o->n_choices; k++)
            if (strcmp(o->choices[k].name, choice) == 0)
                return o;
    }
    return NULL;
}

bool tsr_plugin_backend_has_auto(const struct tsr_component *c)
{
    return option_with(c, "auto") != NULL;
}

tsr_status tsr_plugin_backend_set_numerics(const struct tsr_component *c, uint32_t numerics,
                                           void *block, struct tsr_err *err)
{
    if (numerics == TSR_NUMERICS_EXACT)
        return TSR_OK;
    const char              *name = numerics == TSR_NUMERICS_FAST ? "fast" : "auto";
    const struct tsr_option *option = option_with(c, name);
    if (!option && numerics == TSR_NUMERICS_AUTO)
        return TSR_OK;
    if (!option)
        return tsr_fail(err, TSR_E_CONFIG,
                        "backend '%s' has no numerics: fast; use numerics: exact", c->name);
    return tsr_config_option_set(option, block, name, err);
}
