/* Output of `tessera inspect` about plugins, read from their descriptors and files. */
#include "base/file.h"
#include "cli/inspect/facts.h"
#include "cli/inspect/inspect.h"
#include "config/config.h"
#include "plugin/elf.h"

#include <stdlib.h>

static json_t *component_json(const struct tsr_plugin_found *f)
{
    const struct tsr_plugin *p = f->info->plugin;
    char                     kind[64], abi[16], needs[32];
    tsr_inspect_kind(f->component->kind, kind);
    (void)snprintf(abi, sizeof abi, "%u.%u", p->abi_major, p->abi_minor);
    (void)snprintf(needs, sizeof needs, "%u.%u", p->abi_major, p->needs_minor);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "kind", kind,
                     "name", f->component->name, "summary", f->component->summary, "id", p->id,
                     "version", p->version, "abi", abi, "needs_abi", needs, "license", p->license,
                     "path", f->info->path, "hash", f->info->hash, "build", p->build);
}

tsr_status tsr_inspect_plugins(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    struct tsr_plugin_found f;
    json_t                 *all = json_array();
    bool                    ok = all != NULL;
    for (uint64_t i = 0; ok && tsr_plugin_registry_component(r, i, &f); i++)
        ok = json_array_append_new(all, component_json(&f)) == 0;
    *out = all;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of plugins");
}

tsr_status tsr_inspect_refused(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    const char *path, *why;
    json_t     *all = json_array();
    bool        ok = all != NULL;
    for (uint64_t i = 0; ok && tsr_plugin_registry_refused(r, i, &path, &why); i++)
        ok = json_array_append_new(all, json_pack("{s:s, s:s}", "path", path, "why", why)) == 0;
    *out = all;
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of refused plugins");
}

static json_t *value_json(const struct tsr_option *o, const union tsr_value *v)
{
    switch (o->type) {
    case TSR_OPT_BOOL:
        return json_boolean(v->i != 0);
    case TSR_OPT_INT:
        return json_integer(v->i);
    case TSR_OPT_REAL:
        return json_real(v->r);
    case TSR_OPT_ENUM:
        for (uint64_t i = 0; i < o->n_choices; i++)
            if (o->choices[i].value == v->i)
                return json_string(o->choices[i].name);
        return json_null();
    default:
        return json_string(v->s ? v->s : "");
    }
}

json_t *tsr_inspect_option(const struct tsr_option *declared)
{
    struct tsr_option as_yaml = *declared; /* what the user may write, not what the plugin gets */
    const struct tsr_option *o = &as_yaml;
    static const char *const types[] = { "?", "bool", "int", "real", "enum", "string" };
    char                     text[256];
    bool                     required = o->flags & TSR_OPT_REQUIRED, ok;
    if (o->type == TSR_OPT_STRING && o->flags & TSR_OPT_JSON)
        as_yaml.type = TSR_OPT_NODE;
    tsr_config_option_describe(o, text, sizeof text);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s?, s:b, s:b, s:s}", "name", o->name, "type",
                          o->type <= TSR_OPT_STRING ? types[o->type]
                          : o->type == TSR_OPT_NODE ? "yaml"
                                                    : "list",
                          "help", o->help, "unit", o->unit, "required", required, "advanced",
                          (o->flags & TSR_OPT_ADVANCED) != 0, "text", text);
    ok = j &&
         json_object_set_new(j, "default",
                             required || o->type > TSR_OPT_STRING ? json_null()
                                                                  : value_json(o, &o->def)) == 0;
    bool bounded = (o->type == TSR_OPT_INT && o->min.i != o->max.i) ||
                   (o->type == TSR_OPT_REAL && o->min.r < o->max.r);
    if (ok && bounded)
        ok = json_object_set_new(j, "min", value_json(o, &o->min)) == 0 &&
             json_object_set_new(j, "max", value_json(o, &o->max)) == 0;
    if (ok && o->replaced_by)
        ok = json_object_set_new(j, "replaced_by", json_string(o->replaced_by)) == 0;
    json_t *choices = ok && o->type == TSR_OPT_ENUM ? json_array() : NULL;
    for (uint64_t i = 0; choices && ok && i < o->n_choices; i++)
        ok = json_array_append_new(choices, json_pack("{s:s, s:s?}", "name", o->choices[i].name,
                                                      "help", o->choices[i].help)) == 0;
    if (ok && o->type == TSR_OPT_ENUM)
        ok = json_object_set_new(j, "choices", choices) == 0;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* The libraries that the loader loads with the file. */
static tsr_status add_libraries(const struct tsr_plugin_found *f, json_t *to, struct tsr_err *err)
{
    struct tsr_file file;
    char          **names = NULL;
    uint64_t        n = 0;
    TSR_TRY(tsr_file_open(&file, f->info->path, err));
    tsr_status st = tsr_plugin_elf_libraries(&file, &names, &n, err);
    tsr_file_close(&file);
    TSR_TRY(st);
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(list, json_string(names[i])) == 0;
    free(names);
    if (ok)
        ok = json_object_set(to, "libraries", list) == 0;
    json_decref(list);
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "the list of libraries");
}

tsr_status tsr_inspect_component(const struct tsr_plugin_found *f, json_t **out,
                                 struct tsr_err *err)
{
    json_t *j = component_json(f), *options = json_array();
    bool    ok = j && options && tsr_inspect_facts(f, j);
    for (uint64_t i = 0; ok && i < f->component->n_options; i++)
        ok = json_array_append_new(options, tsr_inspect_option(&f->component->options[i])) == 0;
    if (ok)
        ok = json_object_set(j, "options", options) == 0;
    json_decref(options);
    *out = j;
    return ok ? add_libraries(f, j, err) : tsr_fail_nomem(err, 0, f->component->name);
}
