/* What a name on the command line of `tessera inspect` means: a plugin, its file, or a model. */
#include "cli/inspect/target.h"

#include "base/file.h"
#include "checkpoint/kind.h"
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether a component answers to X: its name, kind:name, id/name, its plugin's id, or, if real is
 * set, its file. */
static bool answers(const struct tsr_plugin_found *f, const char *x, const char *real)
{
    const char *name = f->component->name, *id = f->info->plugin->id, *kind = f->component->kind;
    if (real)
        return strcmp(real, f->info->path) == 0;
    if (strcmp(x, name) == 0 || strcmp(x, id) == 0)
        return true;
    const char *slash = strrchr(x, '/'), *colon = strchr(x, ':');
    if (slash && strcmp(slash + 1, name) == 0 && strlen(id) == (size_t)(slash - x) &&
        memcmp(id, x, strlen(id)) == 0)
        return true;
    const char *dot = strrchr(kind, '.'), *word = dot ? dot + 1 : kind;
    return colon && strcmp(colon + 1, name) == 0 && strcspn(word, "/") == (size_t)(colon - x) &&
           memcmp(word, x, (size_t)(colon - x)) == 0;
}

tsr_status tsr_inspect_not_known(struct tsr_registry *r, const char *x, struct tsr_err *err)
{
    static const char *const words[] = { "plugins", "formats", "models", "devices" };
    const char              *names[256];
    uint64_t                 n = 0;
    struct tsr_plugin_found  f;
    for (size_t i = 0; i < 4; i++)
        names[n++] = words[i];
    for (uint64_t i = 0; n < 256 && tsr_plugin_registry_component(r, i, &f); i++)
        names[n++] = f.component->name;
    const char *near = tsr_config_nearest(x, names, n);
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: no such file or folder, and no plugin of that name%s%s%s; `tessera inspect` lists "
        "what there is",
        x, near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Whether a bare word is a plugin's name, even if a folder has the same name. */
static tsr_status names_plugin(struct tsr_cli *c, const char *x, bool *yes, struct tsr_err *err)
{
    struct tsr_registry    *r = NULL;
    struct tsr_plugin_found f;
    *yes = false;
    if (tsr_model_is_name(x) || strchr(x, '/'))
        return TSR_OK;
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    for (uint64_t i = 0; !*yes && tsr_plugin_registry_component(r, i, &f); i++)
        *yes = answers(&f, x, NULL);
    return *yes ? TSR_OK : tsr_plugin_registry_ask(r, x, yes, err);
}

void tsr_inspect_target_close(struct tsr_inspect_target *t)
{
    free(t->real);
}

/* A file that ends in config.json: a model without weights. */
static bool is_config(const char *x)
{
    static const char end[] = "config.json";
    size_t            n = strlen(x);
    return n >= sizeof end - 1 && strcmp(x + n - (sizeof end - 1), end) == 0 && tsr_path_exists(x);
}

/* A name goes before a file, a folder or a GGUF file is a model. */
tsr_status tsr_inspect_target_open(struct tsr_cli *c, const char *x, struct tsr_inspect_target *t,
                                   struct tsr_err *err)
{
    size_t n = strlen(x);
    bool   name = false;
    *t = (struct tsr_inspect_target){ 0 };
    TSR_TRY(names_plugin(c, x, &name, err));
    enum tsr_checkpoint_kind kind = TSR_CHECKPOINT_OTHER;
    if (!name && !tsr_model_is_name(x))
        TSR_TRY(tsr_checkpoint_kind(x, &kind, err));
    t->model = !name && (tsr_model_is_name(x) || tsr_path_is_dir(x) ||
                         kind != TSR_CHECKPOINT_OTHER || is_config(x));
    if (t->model)
        return TSR_OK;
    bool so = n > 3 && strcmp(x + n - 3, ".so") == 0, file = !name && (so || tsr_path_exists(x));
    if (file && !so && !tsr_file_begins(x, "\177ELF", 4)) {
        tsr_status st = tsr_model_check(x, err);
        return st == TSR_OK ? tsr_fail(err, TSR_E_INPUT, "%s: is no plugin's .so file", x)
                            : tsr_err_append(err, st, "; nor is it a plugin's .so file");
    }
    TSR_TRY(tsr_cli_registry(c, &t->r, err));
    if (file) {
        t->real = realpath(x, NULL);
        if (!t->real && errno == ENOMEM)
            return tsr_fail_nomem(err, n, x);
        TSR_TRY(tsr_plugin_registry_add_path(t->r, x, err));
    }
    return tsr_plugin_registry_scan(t->r, err);
}

bool tsr_inspect_target_nth(const struct tsr_inspect_target *t, const char *x, uint64_t n,
                            struct tsr_plugin_found *f)
{
    for (uint64_t i = 0; tsr_plugin_registry_component(t->r, i, f); i++)
        if (answers(f, x, t->real) && n-- == 0)
            return true;
    return false;
}
