/* JSON Schema from the option tables, for editors. */
#include "cli/jobs.h"
#include "config/names.h"
#include "pipeline/job.h"

#include <jansson.h>
#include <string.h>

#define REAL_NO_LIMIT 1e300

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static bool put_range(json_t *j, const struct tsr_option *o)
{
    if (o->type == TSR_OPT_INT && o->min.i != o->max.i)
        return (o->min.i == INT64_MIN || put(j, "minimum", json_integer(o->min.i))) &&
               (o->max.i == INT64_MAX || put(j, "maximum", json_integer(o->max.i)));
    if (o->type == TSR_OPT_REAL && o->min.r < o->max.r)
        return (o->min.r <= -REAL_NO_LIMIT || put(j, "minimum", json_real(o->min.r))) &&
               (o->max.r >= REAL_NO_LIMIT || put(j, "maximum", json_real(o->max.r)));
    return true;
}

static json_t *default_of(const struct tsr_option *o)
{
    switch (o->type) {
    case TSR_OPT_BOOL:
        return json_boolean(o->def.i != 0);
    case TSR_OPT_INT:
        return json_integer(o->def.i);
    case TSR_OPT_REAL:
        return json_real(o->def.r);
    case TSR_OPT_STRING:
        return json_string(o->def.s ? o->def.s : "");
    default:
        for (uint64_t i = 0; i < o->n_choices; i++)
            if (o->choices[i].value == o->def.i)
                return json_string(o->choices[i].name);
        return json_null();
    }
}

static json_t *option_schema(const struct tsr_option *o)
{
    static const struct {
        uint32_t    type;
        const char *name;
    } types[] = {
        { TSR_OPT_BOOL, "boolean" }, { TSR_OPT_INT, "integer" },   { TSR_OPT_REAL, "number" },
        { TSR_OPT_ENUM, "string" },  { TSR_OPT_STRING, "string" },
    };
    json_t *j = json_object();
    bool    ok = j != NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == o->type)
            ok = ok && put(j, "type", json_string(types[i].name));
    if (o->flags & TSR_OPT_LIST)
        ok = ok && put(j, "type", json_pack("[s, s, s]", "string", "number", "array"));
    if (o->help)
        ok = ok && put(j, "description", json_string(o->help));
    if (o->type == TSR_OPT_ENUM) {
        json_t *list = json_array();
        bool    open = false; /* other texts may be plugins with options */
        for (uint64_t i = 0; i < o->n_choices; i++) {
            open = open || o->choices[i].value == TSR_CONFIG_OTHER;
            if (o->choices[i].value != TSR_CONFIG_OTHER)
                ok = ok && json_array_append_new(list, json_string(o->choices[i].name)) == 0;
        }
        ok = put(j, open ? "examples" : "enum", list) && ok;
        if (open)
            ok = put(j, "pattern", json_string("^[A-Za-z][!-~]*$")) && ok;
    }
    ok = ok && put_range(j, o);
    if (!(o->flags & TSR_OPT_REQUIRED) && o->type != TSR_OPT_NODE)
        ok = ok && put(j, "default", default_of(o));
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static json_t *table_schema(const struct tsr_option *o, uint64_t n, bool open)
{
    json_t *j = json_pack("{s:s}", "type", "object"), *props = json_object(), *req = json_array();
    bool    ok = j && props && req;
    for (uint64_t i = 0; i < n; i++) {
        ok = ok && put(props, o[i].name, option_schema(&o[i]));
        if (o[i].flags & TSR_OPT_REQUIRED)
            ok = ok && json_array_append_new(req, json_string(o[i].name)) == 0;
    }
    bool needs = req && json_array_size(req) > 0;
    ok = put(j, "properties", props) && ok;
    if (needs)
        ok = put(j, "required", req) && ok;
    else
        json_decref(req);
    ok = ok && put(j, "additionalProperties", json_boolean(open));
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

json_t *tsr_cli_schema_step(const struct tsr_pipeline_step *s)
{
    json_t *j = table_schema(s->options, s->n_options, s->open);
    if (j && put(j, "description", json_string(s->summary)))
        return j;
    json_decref(j);
    return NULL;
}

static bool add_step(json_t *names, json_t *any, const struct tsr_pipeline_step *s)
{
    return json_array_append_new(names, json_string(s->name)) == 0 &&
           json_array_append_new(any, json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object",
                                                "properties", s->name, tsr_cli_schema_step(s),
                                                "required", s->name, "additionalProperties", 0)) ==
               0;
}

/* Steps of plugins, but for those that have the name of one of ours, which a job does not use. */
static tsr_status add_plugin_steps(json_t *names, json_t *any, struct tsr_registry *r,
                                   struct tsr_err *err)
{
    const char *name;
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    for (uint64_t i = 0; (name = tsr_pipeline_external_name(r, i)); i++) {
        struct tsr_pipeline_external *x;
        if (tsr_pipeline_step_find(name))
            continue;
        TSR_TRY(tsr_pipeline_external_find(&x, r, name, err));
        bool ok = add_step(names, any, tsr_pipeline_external_step(x));
        tsr_pipeline_external_destroy(x);
        if (!ok)
            return tsr_fail_nomem(err, 256, "the schema");
    }
    return TSR_OK;
}

/* `name`, or one of `name: {options}` */
static tsr_status steps_schema(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    json_t *names = json_array(), *any = json_array();
    bool    ok = names && any;
    for (uint64_t i = 0; ok && i < tsr_n_steps; i++)
        ok = add_step(names, any, tsr_steps[i]);
    tsr_status st =
        ok ? add_plugin_steps(names, any, r, err) : tsr_fail_nomem(err, 256, "the schema");
    if (st != TSR_OK) {
        json_decref(names);
        json_decref(any);
        return st;
    }
    if (json_array_append_new(any, json_pack("{s:o}", "enum", names)) != 0) {
        json_decref(any);
        return tsr_fail_nomem(err, 256, "the schema");
    }
    *out = json_pack("{s:s, s:i, s:{s:o}}", "type", "array", "minItems", 1, "items", "anyOf", any);
    return *out ? TSR_OK : tsr_fail_nomem(err, 256, "the schema");
}

/* A path, paths, or a map of options. */
static json_t *plugins_schema(void)
{
    uint64_t                 n;
    const struct tsr_option *o = tsr_pipeline_job_plugins_options(&n);
    static const char       *path = "{s:[s, s, s], s:{s:s}}";
    json_t *map = table_schema(o, n, false), *props = json_object_get(map, "properties");
    if (!map ||
        !put(props, "paths",
             json_pack(path, "type", "string", "array", "null", "items", "type", "string"))) {
        json_decref(map);
        return NULL;
    }
    return json_pack("{s:s, s:[o, o]}", "description",
                     "Plugins or folders of plugins, searched first; or a map.", "anyOf",
                     json_pack(path, "type", "string", "array", "null", "items", "type", "string"),
                     map);
}

tsr_status tsr_cli_schema_job(struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    uint64_t n;
    json_t  *steps;
    TSR_TRY(steps_schema(r, &steps, err));
    const struct tsr_option *head = tsr_pipeline_job_head(&n);
    json_t                  *j = table_schema(head, n, false);
    json_t                  *props = json_object_get(j, "properties");
    bool                     ok = put(props, "pipeline", steps) &&
              put(json_object_get(props, "version"), "const", json_integer(1)) &&
              put(props, "plugins", plugins_schema()) &&
              put(j, "$schema", json_string("https://json-schema.org/draft/2020-12/schema")) &&
              put(j, "title", json_string("Tessera job"));
    if (!ok) {
        json_decref(j);
        return tsr_fail_nomem(err, 256, "the schema");
    }
    *out = j;
    return TSR_OK;
}
