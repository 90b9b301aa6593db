#include "pipeline/run_identity.h"

#include "base/json.h"
#include "pipeline/job.h"

#include <stdlib.h>
#include <string.h>

/* Whether a component of the plugin is named anywhere in the options. */
static bool named(const json_t *v, const char *component)
{
    const char *key;
    json_t     *one;
    size_t      i;
    if (json_is_string(v))
        return strcmp(json_string_value(v), component) == 0;
    json_object_foreach ((json_t *)(uintptr_t)v, key, one)
        if (strcmp(key, "numerics") != 0 && named(one, component)) /* exact is a solver too */
            return true;
    json_array_foreach ((json_t *)(uintptr_t)v, i, one)
        if (named(one, component))
            return true;
    return false;
}

static bool takes_part(const struct tsr_registry *r, const json_t *options, const char *id)
{
    struct tsr_found f;
    for (uint64_t i = 0; tsr_registry_component(r, i, &f); i++)
        if (strcmp(f.info->plugin->id, id) == 0 &&
            (strcmp(f.component->name, "cpu") == 0 || named(options, f.component->name)))
            return true;
    return false;
}

/* A plugin that lies in the folder and is not asked for changes nothing. */
static void strip_plugins(const struct tsr_registry *r, json_t *m)
{
    json_t *list = json_object_get(m, "plugins");
    for (size_t i = json_array_size(list); i-- > 0;) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        if (!id || !takes_part(r, json_object_get(m, "options"), id))
            (void)json_array_remove(list, i);
    }
}

void tsr_run_strip_ways(json_t *options)
{
    static const char *const ways[] = { "slots", "stall", "ranks", "threads" };
    json_t                  *step;
    size_t                   i;
    json_array_foreach (json_object_get(options, "pipeline"), i, step)
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
            (void)json_object_del(json_object_get(step, "run"), ways[k]);
}

/* Where things lie, and how they are run, makes no difference to an answer. */
static void strip(json_t *m)
{
    static const char *const ours[] = { "input",        "output",   "limit", "shard",
                                        "retry_errors", "deadline", "gantt" };
    json_t                  *keys = json_object_get(m, "options"), *step, *one;
    size_t                   i;
    (void)json_object_del(m, "machine");
    (void)json_object_del(m, "models");
    (void)json_object_del(m, "links"); /* what a run of this batch measured */
    (void)json_object_del(keys, "model");
    (void)json_object_del(json_object_get(m, "model"), "path");
    json_array_foreach (json_object_get(m, "inputs"), i, one)
        (void)json_object_del(one, "path");
    tsr_run_strip_ways(keys);
    json_array_foreach (json_object_get(keys, "pipeline"), i, step)
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            (void)json_object_del(json_object_get(step, "run"), ours[k]);
}

static tsr_status hash(const json_t *m, char **text, char out[TSR_HASH_TEXT], struct tsr_err *err)
{
    uint64_t len;
    TSR_TRY(tsr_json_text(m, JSON_COMPACT | JSON_SORT_KEYS, text, &len, err));
    tsr_hash_bytes(*text, len, out);
    return TSR_OK;
}

tsr_status tsr_run_identify(struct tsr_job *job, const struct tsr_records *r,
                            char id[TSR_HASH_TEXT], char base[TSR_HASH_TEXT], char **about,
                            struct tsr_err *err)
{
    json_t  *m = NULL;
    char    *whole = NULL;
    uint64_t last = r->first + r->n;
    TSR_TRY(tsr_manifest_make(job, true, &m, err));
    strip_plugins(job->registry, m);
    strip(m);
    bool ok = json_object_set_new(m, "format", json_string("tessera.batch/1")) == 0 &&
              json_object_set_new(m, "input", json_string(r->hash)) == 0;
    tsr_status st =
        ok ? hash(m, &whole, base, err) : tsr_fail_nomem(err, 256, "the identity of a batch");
    free(whole);
    if (st == TSR_OK) {
        ok = json_object_set_new(m, "records",
                                 json_pack("[I, I]", (json_int_t)r->first + 1, (json_int_t)last)) ==
             0;
        st = ok ? hash(m, about, id, err) : tsr_fail_nomem(err, 256, "the identity of a batch");
    }
    json_decref(m);
    return st;
}

tsr_status tsr_run_differs(const char *folder, const char *theirs, const char *ours,
                           struct tsr_err *err)
{
    json_t           *a = NULL, *b = NULL;
    char              keys[400] = "";
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_json_parse(&a, folder, theirs, strlen(theirs), 64, &e.err) == TSR_OK &&
        tsr_json_parse(&b, folder, ours, strlen(ours), 64, &e.err) == TSR_OK)
        tsr_manifest_differences(a, b, keys, sizeof keys);
    json_decref(a);
    json_decref(b);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: holds a batch of another job (%s); name another output, or remove the "
                    "folder",
                    folder, *keys ? keys : "it cannot be read");
}
