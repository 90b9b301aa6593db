/* backend_options.c - what a backend's create() is given: its defaults, and numerics. */
#include "plugin/registry.h"

#include "base/mem.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

const struct tsr_choice tsr_numerics_choices[2] = {
    { "exact", "the same bytes on every machine", TSR_NUMERICS_EXACT },
    { "fast", "also instructions that only some machines have", TSR_NUMERICS_FAST },
};

/* The component's option `numerics`, if it can be `fast`. */
static const struct tsr_option *fast_option(const struct tsr_component *c)
{
    for (uint64_t i = 0; i < c->n_options; i++) {
        const struct tsr_option *o =
            (const struct tsr_option *)(const void *)((const char *)c->options +
                                                      i * c->option_stride);
        if (strcmp(o->name, "numerics") != 0 || o->type != TSR_OPT_ENUM)
            continue;
        for (uint64_t k = 0; k < o->n_choices; k++)
            if (strcmp(o->choices[k].name, "fast") == 0)
                return o;
    }
    return NULL;
}

tsr_status tsr_backend_set_numerics(const struct tsr_component *c, uint32_t numerics, void *block,
                                    struct tsr_err *err)
{
    if (numerics != TSR_NUMERICS_FAST)
        return TSR_OK;
    const struct tsr_option *fast = fast_option(c);
    if (!fast)
        return tsr_fail(err, TSR_E_CONFIG,
                        "backend '%s' has no numerics: fast; use numerics: exact", c->name);
    return tsr_option_set(fast, block, "fast", err);
}

tsr_status tsr_backend_options(const struct tsr_component *c, uint32_t numerics, void **block,
                               struct tsr_err *err)
{
    *block = tsr_new(1, c->options_size ? c->options_size : 1);
    if (!*block)
        return tsr_fail_nomem(err, c->options_size, "backend options");
    struct tsr_optset set = {
        .options = c->options, .n = c->n_options, .stride = c->option_stride, .into = *block
    };
    if (set.n)
        tsr_options_defaults(&set);
    tsr_status st = tsr_backend_set_numerics(c, numerics, *block, err);
    if (st != TSR_OK) {
        free(*block);
        *block = NULL;
    }
    return st;
}
