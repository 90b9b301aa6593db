#include "pipeline/run_identity.h"

#include "base/json.h"
#include "base/json_differ.h"
#include "batch/run.h"
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
    struct tsr_plugin_found f;
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++)
        if (strcmp(f.info->plugin->id, id) == 0 &&
            (strcmp(f.component->name, "cpu") == 0 || strcmp(f.component->name, "grammar") == 0 ||
             named(options, f.component->name)))
            return true;
    return false;
}

/* An unused plugin in the folder does not change the identity. */
static void strip_plugins(const struct tsr_registry *r, json_t *m)
{
    json_t *list = json_object_get(m, "plugins");
    for (size_t i = json_array_size(list); i-- > 0;) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        if (!id || !takes_part(r, json_object_get(m, "options"), id))
            (void)json_array_remove(list, i);
    }
}

/* A plugin's option of that name may be another thing. */
static bool has_threads(const char *name)
{
    const struct tsr_pipeline_step *s = tsr_pipeline_step_find(name);
    for (uint64_t i = 0; s && i < s->n_options; i++)
        if (strcmp(s->options[i].name, "threads") == 0)
            return true;
    return false;
}

void tsr_pipeline_run_strip_ways(json_t *options)
{
    static const char *const ways[] = { "slots", "stall", "ranks", "chunk", "fail_on_errors" };
    json_t                  *step, *keys;
    const char              *name;
    size_t                   i;
    (void)json_object_del(options, "threads");
    json_array_foreach (json_object_get(options, "pipeline"), i, step) {
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
            (void)json_object_del(json_object_get(step, "run"), ways[k]);
        json_object_foreach (step, name, keys)
            if (has_threads(name))
                (void)json_object_del(keys, "threads");
    }
}

/* Paths and run settings do not change an answer. */
static void strip(json_t *m)
{
    static const char *const ours[] = { "input",        "output",   "limit", "shard",
                                        "retry_errors", "deadline", "gantt" };
    json_t                  *keys = json_object_get(m, "options"), *step, *one;
    size_t                   i;
    (void)json_object_del(m, "models");
    (void)json_object_del(m, "links"); /* measurements of a run of this batch */
    (void)json_object_del(keys, "model");
    (void)json_object_del(keys, "plugins"); /* paths; the plugins in use are identified by hash */
    (void)json_object_del(json_object_get(m, "model"), "path");
    json_array_foreach (json_object_get(m, "inputs"), i, one)
        (void)json_object_del(one, "path");
    tsr_pipeline_run_strip_ways(keys);
    json_array_foreach (json_object_get(keys, "pipeline"), i, step)
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            (void)json_object_del(json_object_get(step, "run"), ours[k]);
}

/* With numerics that another machine does not repeat, the machine is a part of the batch. */
static void strip_machine(bool exact, json_t *m)
{
    if (exact)
        (void)json_object_del(m, "machine");
    else
        (void)json_object_del(json_object_get(m, "machine"), "threads");
}

static tsr_status hash(const json_t *m, char out[TSR_HASH_TEXT], struct tsr_err *err)
{
    char    *text = NULL;
    uint64_t len;
    TSR_TRY(tsr_json_text(m, JSON_COMPACT | JSON_SORT_KEYS, &text, &len, err));
    tsr_hash_bytes(text, len, out);
    free(text);
    return TSR_OK;
}

/* Takes the reference. */
static tsr_status put(json_t *m, const char *key, json_t *v, struct tsr_err *err)
{
    return json_object_set_new(m, key, v) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 256, "the identity of a batch");
}

static tsr_status finish(json_t *m, const struct tsr_batch_records *r, json_t *kept,
                         char id[TSR_HASH_TEXT], char base[TSR_HASH_TEXT], char **about,
                         struct tsr_err *err)
{
    uint64_t len, last = r->first + r->n;
    TSR_TRY(put(m, "format", json_string("tessera.batch/2"), err));
    TSR_TRY(put(m, "input", json_string(r->hash), err));
    TSR_TRY(hash(m, base, err));
    TSR_TRY(
        put(m, "records", json_pack("[I, I]", (json_int_t)r->first + 1, (json_int_t)last), err));
    TSR_TRY(hash(m, id, err));
    TSR_TRY(put(m, TSR_BATCH_KEPT, json_incref(kept), err));
    return tsr_json_text(m, JSON_COMPACT | JSON_SORT_KEYS, about, &len, err);
}

tsr_status tsr_pipeline_run_identify(struct tsr_pipeline_job *job, bool exact,
                                     const struct tsr_batch_records *r, json_t *kept,
                                     char id[TSR_HASH_TEXT], char base[TSR_HASH_TEXT], char **about,
                                     struct tsr_err *err)
{
    json_t *m = NULL;
    TSR_TRY(tsr_pipeline_manifest_make(job, true, &m, err));
    strip_plugins(job->registry, m);
    strip(m);
    strip_machine(exact, m);
    tsr_status st = finish(m, r, kept, id, base, about, err);
    json_decref(m);
    return st;
}

tsr_status tsr_pipeline_run_differs(const char *folder, const char *theirs, const char *ours,
                                    struct tsr_err *err)
{
    json_t                *a = NULL, *b = NULL;
    struct tsr_differences d = { 0 };
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    if (tsr_json_parse(&a, folder, theirs, strlen(theirs), 64, &e.err) == TSR_OK &&
        tsr_json_parse(&b, folder, ours, strlen(ours), 64, &e.err) == TSR_OK) {
        (void)json_object_del(a, TSR_BATCH_KEPT); /* not part of a batch's identity */
        (void)json_object_del(b, TSR_BATCH_KEPT);
        tsr_differences_add(&d, "", a, b);
    }
    json_decref(a);
    json_decref(b);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: holds a batch of another job (%s); name another output, or remove the "
                    "folder",
                    folder, d.n ? tsr_differences_text(&d) : "its header cannot be read");
}
