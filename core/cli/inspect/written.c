/* The YAML files that describe something: plans and device profiles, read and checked as the planner reads them. */
#include "cli/inspect/inspect.h"

#include "base/file.h"
#include "config/config.h"
#include "plan/cost/device.h"
#include "plan/file/plan_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file's keys as JSON, with its path. */
static json_t *keys_of(const struct tsr_config_doc *doc, const char *path)
{
    json_t *j = tsr_config_node_json(tsr_config_doc_root(doc));
    if (!j || json_object_set_new(j, "path", json_string(path)) == 0)
        return j;
    json_decref(j);
    return NULL;
}

static tsr_status plan_of(const char *path, struct tsr_diag *d, json_t **out, struct tsr_err *err)
{
    struct tsr_plan_file f;
    tsr_status           st = tsr_plan_file_load(&f, path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK && !(*out = keys_of(f.doc, path)))
        st = tsr_fail_nomem(err, 64, path);
    tsr_plan_file_free(&f);
    return st;
}

static tsr_status profile_of(const char *path, struct tsr_diag *d, json_t **out,
                             struct tsr_err *err)
{
    struct tsr_plan_profile *p = NULL;
    char                     text[TSR_PLAN_KERNELS_TEXT];
    tsr_status               st = tsr_plan_profile_load(&p, path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK) {
        tsr_plan_profile_kernels(p, text);
        *out = keys_of(p->doc, path);
        if (!*out || json_object_set_new(*out, "measured", json_string(text)) != 0 ||
            json_object_set_new(*out, "points", json_integer((json_int_t)p->n_points)) != 0)
            st = tsr_fail_nomem(err, 64, path);
    }
    if (st != TSR_OK) {
        json_decref(*out);
        *out = NULL;
    }
    tsr_plan_profile_destroy(p);
    return st;
}

static tsr_status checked(tsr_status (*read)(const char *, struct tsr_diag *, json_t **,
                                             struct tsr_err *),
                          const char *path, json_t **out, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    *out = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = read(path, d, out, err);
    tsr_config_diag_destroy(d);
    return st;
}

bool tsr_inspect_is_written(const char *x)
{
    const char *dot = strrchr(x, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0) && tsr_path_exists(x) &&
           !tsr_path_is_dir(x);
}

/* What the file says that it is; "" where it says nothing, or is no YAML. */
static tsr_status format_of(const char *path, char format[40], struct tsr_err *err)
{
    struct tsr_config_doc *doc = NULL;
    struct tsr_diag       *d = NULL;
    format[0] = '\0';
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_config_doc_load(&doc, path, d, err);
    if (st == TSR_OK && doc && tsr_config_doc_root(doc)) {
        const struct tsr_config_node *n = tsr_config_node_get(tsr_config_doc_root(doc), "format");
        if (n && n->kind == TSR_CONFIG_NODE_SCALAR)
            (void)snprintf(format, 40, "%s", n->text);
    }
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
    return st;
}

tsr_status tsr_inspect_written(const char *path, const char **key, json_t **out,
                               struct tsr_err *err)
{
    char format[40];
    TSR_TRY(format_of(path, format, err));
    *key = strcmp(format, "tessera.device/1") == 0 ? "device" : "plan";
    if (strcmp(format, "tessera.device/1") == 0)
        return checked(profile_of, path, out, err);
    if (strcmp(format, TSR_PLAN_FORMAT) == 0)
        return checked(plan_of, path, out, err);
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: is neither a plan (format: " TSR_PLAN_FORMAT
        ") nor a device profile (tessera.device/1); `tessera config check` checks a job",
        path);
}

tsr_status tsr_inspect_profile(const char *name, json_t **out, struct tsr_err *err)
{
    char *path = NULL;
    TSR_TRY(tsr_plan_profile_find(&path, name, ".", err));
    tsr_status st = checked(profile_of, path, out, err);
    free(path);
    return st;
}
