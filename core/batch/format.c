#include "batch/format.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KEY "\"response_format\""

/* Reals in 15 digits where that is the same number: 0.1 and not 0.10000000000000001, since a constant of a schema is
 * written as it stands there. */
static tsr_status schema_text(const json_t *schema, char **text, struct tsr_err *err)
{
    json_t  *back = NULL;
    uint64_t n;
    TSR_TRY(tsr_json_text(schema, JSON_COMPACT | JSON_REAL_PRECISION(15), text, &n, err));
    tsr_status st = tsr_json_parse(&back, "schema", *text, n, 32, err);
    bool       same = st == TSR_OK && json_equal(back, (json_t *)(uintptr_t)schema);
    json_decref(back);
    if (same)
        return TSR_OK;
    free(*text);
    *text = NULL;
    TSR_TRY(st);
    return tsr_json_text(schema, JSON_COMPACT | JSON_REAL_PRECISION(17), text, &n, err);
}

static tsr_status only(const json_t *object, const char *where, const char *const *known,
                       struct tsr_err *err)
{
    const char *key;
    json_t     *v;
    json_object_foreach ((json_t *)(uintptr_t)object, key, v) {
        uint64_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return tsr_fail(err, TSR_E_INPUT, "\"%.60s\" is not a key of %s that is known", key,
                            where);
    }
    return TSR_OK;
}

/* "name", "description" and "strict" change nothing: a schema is always kept. */
static tsr_status schema_of(const json_t *format, char **text, struct tsr_err *err)
{
    static const char *const outer[] = { "type", "json_schema", NULL };
    static const char *const inner[] = { "name", "description", "strict", "schema", NULL };
    const json_t            *named = json_object_get(format, "json_schema");
    const json_t            *schema = json_object_get(named, "schema");
    TSR_TRY(only(format, KEY, outer, err));
    if (!json_is_object(named))
        return tsr_fail(err, TSR_E_INPUT,
                        KEY " of type json_schema needs \"json_schema\", an object");
    TSR_TRY(only(named, "\"json_schema\"", inner, err));
    if (!json_is_object(schema))
        return tsr_fail(err, TSR_E_INPUT, "\"json_schema\" needs \"schema\", an object");
    return schema_text(schema, text, err);
}

static tsr_status text_of(const json_t *format, char **text, struct tsr_err *err)
{
    const char *type = tsr_json_word(json_object_get(format, "type"));
    if (type && strcmp(type, "text") == 0)
        return TSR_OK;
    if (type && strcmp(type, "json_schema") == 0)
        return schema_of(format, text, err);
    if (!type || strcmp(type, "json_object") != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        KEY " needs a \"type\": \"text\", \"json_object\" or \"json_schema\"");
    *text = tsr_strdup("{\"type\":\"object\"}");
    return *text ? TSR_OK : tsr_fail_nomem(err, 64, "a schema");
}

static tsr_status add_grammar(struct tsr_engine_samplers **list, struct tsr_engine_samplers *every,
                              struct tsr_engine_sampler_maker *maker, const char *schema,
                              struct tsr_err *err)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plugin_spec spec;
    if (!maker)
        return tsr_fail(err, TSR_E_INPUT, KEY " can only be {\"type\": \"text\"} here");
    tsr_status st = tsr_plugin_spec_one(&spec, maker->registry, TSR_KIND_SAMPLER, "grammar",
                                        "schema", schema, &e.err);
    if (st == TSR_OK)
        st = tsr_engine_sampler_make(maker, list, &spec, every, &e.err);
    else
        tsr_plugin_spec_close(&spec);
    if (st == TSR_E_CONFIG || st == TSR_E_UNSUPPORTED || st == TSR_E_INPUT)
        return tsr_fail(err, TSR_E_INPUT, KEY ": %s", e.text);
    return st == TSR_OK ? st : tsr_err_copy(err, st, &e.err);
}

tsr_status tsr_batch_format_read(struct tsr_engine_samplers     **list,
                                 struct tsr_engine_samplers      *every,
                                 struct tsr_engine_sampler_maker *maker, const json_t *body,
                                 struct tsr_err *err)
{
    const json_t *format = json_object_get(body, "response_format");
    char         *schema = NULL;
    *list = NULL;
    if (format && !json_is_null(format))
        TSR_TRY(text_of(format, &schema, err));
    if (!schema) {
        *list = tsr_engine_samplers_hold(every);
        return TSR_OK;
    }
    tsr_status st = add_grammar(list, every, maker, schema, err);
    free(schema);
    return st;
}
