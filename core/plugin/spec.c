#include "plugin/spec.h"

#include "base/mem.h"
#include "config/config.h"
#include "tessera/backend.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 1024u /* the registry's limit */

/* The component's struct with every default in it. */
static tsr_status make_options(struct tsr_plugin_spec *s, struct tsr_err *err)
{
    const struct tsr_component *c = s->found.component;
    s->options = tsr_new_aligned(1, c->options_size);
    if (!s->options)
        return tsr_fail_nomem(err, c->options_size, c->name);
    memset(s->options, 0, c->options_size);
    struct tsr_config_optset set = { c->options, c->n_options, c->option_stride, s->options };
    tsr_config_options_defaults(&set);
    return TSR_OK;
}

static tsr_status unknown(const struct tsr_component *c, const char *key, struct tsr_err *err)
{
    const char *names[MAX_OPTIONS];
    for (uint64_t i = 0; i < c->n_options; i++)
        names[i] = c->options[i].name;
    const char *near = tsr_config_nearest(key, names, c->n_options);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s has no option '%.80s'%s%s%s; `tessera inspect %s` lists them", c->name, key,
                    near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", c->name);
}

static tsr_status check_required(const struct tsr_component *c, const bool *given,
                                 struct tsr_err *err)
{
    for (uint64_t i = 0; i < c->n_options; i++)
        if ((c->options[i].flags & TSR_OPT_REQUIRED) && !given[i])
            return tsr_fail(err, TSR_E_INPUT, "%s: option '%s' must be given, as %s:%s=VALUE",
                            c->name, c->options[i].name, c->name, c->options[i].name);
    return TSR_OK;
}

static tsr_status set_all(struct tsr_plugin_spec *s, char *list, struct tsr_err *err)
{
    const struct tsr_component *c = s->found.component;
    bool                        given[MAX_OPTIONS] = { false };
    while (list && *list) {
        char *key = list, *comma = strchr(list, ','), *value;
        if (comma)
            *comma = '\0';
        list = comma ? comma + 1 : NULL;
        value = strchr(key, '=');
        if (!value)
            return tsr_fail(err, TSR_E_INPUT, "%s: '%.80s' is not of the form key=value", c->name,
                            key);
        *value++ = '\0';
        uint64_t i = 0;
        while (i < c->n_options && strcmp(c->options[i].name, key) != 0)
            i++;
        if (i == c->n_options)
            return unknown(c, key, err);
        if (given[i])
            return tsr_fail(err, TSR_E_INPUT, "%s: option '%s' is given twice", c->name, key);
        given[i] = true;
        tsr_status st = tsr_config_option_set(&c->options[i], s->options, value, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "%s", c->name);
    }
    return check_required(c, given, err);
}

tsr_status tsr_plugin_spec_open(struct tsr_plugin_spec *s, struct tsr_registry *r, const char *kind,
                                const char *text, struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    s->text = tsr_strdup(text);
    if (!s->text)
        return tsr_fail_nomem(err, strlen(text) + 1, "a plugin's options");
    char *list = strchr(s->text, ':');
    if (list)
        *list++ = '\0';
    TSR_TRY(tsr_plugin_registry_find(r, kind, s->text, &s->found, err));
    TSR_TRY(make_options(s, err));
    return set_all(s, list, err);
}

tsr_status tsr_plugin_spec_backend(struct tsr_plugin_spec *s, struct tsr_registry *r,
                                   const char *text, uint32_t numerics, struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    if (strstr(text, ":numerics=") || strstr(text, ",numerics="))
        return tsr_fail(err, TSR_E_INPUT,
                        "backend '%.80s': numerics is of the whole job; give it there, as "
                        "`numerics: fast` or --numerics",
                        text);
    TSR_TRY(tsr_plugin_spec_open(s, r, TSR_KIND_BACKEND, text, err));
    return tsr_plugin_backend_set_numerics(s->found.component, numerics, s->options, err);
}

static _Atomic bool made;

tsr_status tsr_plugin_spec_backend_create(const struct tsr_plugin_spec *s, struct tsr_registry *r,
                                          void **self, struct tsr_err *err)
{
    const struct tsr_backend_v1 *t = s->found.iface;
    const char                  *name = s->found.component->name;
    if (strcmp(name, TSR_PLUGIN_DEFAULT_BACKEND) != 0)
        atomic_store(&made, true); /* also one that fails may have started its driver */
    tsr_status st = t->create(tsr_plugin_registry_host(r), s->options, self, err);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "backend '%s'", name);
}

bool tsr_plugin_spec_backend_made(void)
{
    return atomic_load(&made);
}

tsr_status tsr_plugin_spec_defaults(struct tsr_plugin_spec *s, const struct tsr_plugin_found *found,
                                    struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    s->found = *found;
    TSR_TRY(make_options(s, err));
    return set_all(s, NULL, err);
}

tsr_status tsr_plugin_spec_start(struct tsr_plugin_spec *s, struct tsr_registry *r,
                                 const char *kind, const char *name, struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    TSR_TRY(tsr_plugin_registry_find(r, kind, name, &s->found, err));
    return make_options(s, err);
}

tsr_status tsr_plugin_spec_one(struct tsr_plugin_spec *s, struct tsr_registry *r, const char *kind,
                               const char *name, const char *key, const char *value,
                               struct tsr_err *err)
{
    TSR_TRY(tsr_plugin_spec_start(s, r, kind, name, err));
    const struct tsr_component *c = s->found.component;
    s->text = tsr_strdup(value);
    if (!s->text)
        return tsr_fail_nomem(err, strlen(value) + 1, "a plugin's options");
    for (uint64_t i = 0; i < c->n_options; i++)
        if (strcmp(c->options[i].name, key) == 0)
            return tsr_config_option_set(&c->options[i], s->options, s->text, err);
    return unknown(c, key, err);
}

void tsr_plugin_spec_close(struct tsr_plugin_spec *s)
{
    free(s->options);
    free(s->text);
    memset(s, 0, sizeof *s);
}
