/* Plugins that were not built: the build's list next to its plugins, less the existing files. */
#include "base/file.h"
#include "cli/inspect/inspect.h"
#include "plugin/trust.h"

#include "base/json.h"
#include <stdlib.h>
#include <string.h>

#define LIST   "optional.json"
#define FORMAT "tessera.optional-plugins/1"
#define CAP    UINT64_C(65536)

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* One entry: the data of `inspect` if its file is missing from the folder. */
static tsr_status add_absent(const char *folder, const char *list, const json_t *entry, json_t *to,
                             struct tsr_err *err)
{
    const char *file = text_of(entry, "file"), *kind = text_of(entry, "kind");
    const char *name = text_of(entry, "name"), *package = text_of(entry, "package");
    if (!file || !kind || !name || !package)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: an entry lacks one of file, kind, name and package, each a string",
                        list);
    char *path = tsr_path_join(folder, file);
    if (!path)
        return tsr_fail_nomem(err, 1, list);
    bool there = tsr_path_exists(path);
    free(path);
    if (there)
        return TSR_OK;
    return json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:s*}", "kind", kind, "name", name,
                                               "package", package, "option",
                                               text_of(entry, "option"))) == 0
               ? TSR_OK
               : tsr_fail_nomem(err, 0, list);
}

static tsr_status read_list(const char *folder, const char *list, json_t *to, struct tsr_err *err)
{
    char    *data;
    uint64_t len;
    size_t   i;
    json_t  *entry;
    TSR_TRY(tsr_file_slurp(list, CAP, &data, &len, err));
    json_t    *j = NULL;
    tsr_status st = tsr_json_parse(&j, list, data, len, 8, err);
    free(data);
    const char   *format = text_of(j, "format");
    const json_t *all = json_object_get(j, "plugins");
    if (st == TSR_OK && (!format || strcmp(format, FORMAT) != 0 || !json_is_array(all)))
        st = tsr_fail(err, TSR_E_INPUT, "%s: is not a list of the format %s", list, FORMAT);
    json_array_foreach (all, i, entry)
        if (st == TSR_OK)
            st = add_absent(folder, list, entry, to, err);
    json_decref(j);
    return st;
}

tsr_status tsr_inspect_absent(const struct tsr_registry *r, json_t **out, struct tsr_err *err)
{
    const char *folder;
    *out = json_array();
    tsr_status st = *out ? TSR_OK : tsr_fail_nomem(err, 0, LIST);
    for (uint64_t i = 0; st == TSR_OK && tsr_plugin_registry_place(r, i, &folder); i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        /* a folder that anybody can write was refused before, with a warning */
        if (!tsr_path_is_dir(folder) || tsr_plugin_path_trusted(folder, &e.err) != TSR_OK)
            continue;
        char *list = tsr_path_join(folder, LIST);
        if (!list)
            st = tsr_fail_nomem(err, 1, folder);
        else if (tsr_path_exists(list))
            st = read_list(folder, list, *out, err);
        free(list);
    }
    return st;
}
