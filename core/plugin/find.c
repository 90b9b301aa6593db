#include "plugin/internal.h"

#include "base/mem.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

/* "quantizer" of "tessera.quantizer/1". */
static const char *noun_of(const char *kind)
{
    const struct tsr_plugin_kind *k = tsr_plugin_kind_find(kind);
    return k ? k->noun : kind;
}

struct text {
    char  *at;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at, t->left, fmt, ap);
    va_end(ap);
    if (n > 0) {
        size_t step = (size_t)n < t->left ? (size_t)n : t->left ? t->left - 1 : 0;
        t->at += step;
        t->left -= step;
    }
}

static tsr_status not_found(const struct tsr_registry *r, const char *kind, const char *name,
                            struct tsr_err *err)
{
    char                    buf[1800];
    struct text             t = { buf, sizeof buf };
    struct tsr_plugin_found f;
    uint64_t                n = 0;
    const char             *path, *why;
    buf[0] = '\0';
    while (tsr_plugin_registry_component(r, n, &f))
        n++;
    const char **names = tsr_new(n, sizeof *names);
    if (!names)
        return tsr_fail_nomem(err, n * sizeof *names, "plugin names");
    uint64_t k = 0;
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++)
        if (strcmp(f.component->kind, kind) == 0)
            names[k++] = f.component->name;
    const char *near = tsr_config_nearest(name, names, k);
    if (near)
        put(&t, "; did you mean \"%s\"?", near);
    for (uint64_t i = 0; i < k; i++)
        put(&t, "%s%s", i == 0 ? (near ? " There are: " : "; there are: ") : ", ", names[i]);
    free(names);
    put(&t, "; searched:");
    for (uint64_t i = 0; tsr_plugin_registry_place(r, i, &path); i++)
        put(&t, "%s %s", i ? "," : "", path);
    if (!tsr_plugin_registry_place(r, 0, &path))
        put(&t,
            " nowhere, since there is no plugins/ next to the program, no ../lib/tessera and no "
            "installed plugin; use --plugin-path");
    for (uint64_t i = 0; tsr_plugin_registry_refused(r, i, &path, &why); i++)
        put(&t, "; refused: %s", why);
    return tsr_fail(err, TSR_E_INPUT, "no %s named \"%.80s\"%s", noun_of(kind), name, buf);
}

/* Among the loaded plugins; *have_one false: none has the name. */
static tsr_status find_loaded(struct tsr_registry *r, const char *kind, const char *name,
                              struct tsr_plugin_found *found, bool *have_one, struct tsr_err *err)
{
    const char             *slash = strrchr(name, '/');
    const char             *base = slash ? slash + 1 : name;
    size_t                  id_len = slash ? (size_t)(slash - name) : 0;
    bool                    have = false;
    struct tsr_plugin_found f;
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++) {
        const char *id = f.info->plugin->id;
        if (strcmp(f.component->kind, kind) != 0 || strcmp(f.component->name, base) != 0)
            continue;
        if (slash && (strlen(id) != id_len || memcmp(id, name, id_len) != 0))
            continue;
        if (have && (slash || strcmp(found->info->plugin->id, id) == 0))
            return tsr_fail(err, TSR_E_INPUT,
                            "\"%s\" names a %s of two files, %s and %s; remove one of them", name,
                            noun_of(kind), found->info->path, f.info->path);
        if (have)
            return tsr_fail(err, TSR_E_INPUT,
                            "\"%s\" names a %s of both %s and %s; write \"%s/%s\" or \"%s/%s\"",
                            name, noun_of(kind), found->info->path, f.info->path,
                            found->info->plugin->id, base, id, base);
        *found = f;
        have = true;
    }
    *have_one = have;
    return TSR_OK;
}

tsr_status tsr_plugin_registry_find(struct tsr_registry *r, const char *kind, const char *name,
                                    struct tsr_plugin_found *found, struct tsr_err *err)
{
    const char *slash = strrchr(name, '/');
    bool        have, more;
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    TSR_TRY(find_loaded(r, kind, name, found, &have, err));
    if (!have) {
        TSR_TRY(tsr_plugin_registry_ask(r, slash ? slash + 1 : name, &more, err));
        if (more)
            TSR_TRY(find_loaded(r, kind, name, found, &have, err));
    }
    return have ? TSR_OK : not_found(r, kind, name, err);
}
