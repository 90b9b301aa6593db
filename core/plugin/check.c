#include "plugin/internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* All checks here read the plugin's static data and call none of its functions. */

#define MAX_COMPONENTS 1024u
#define MAX_NAME       64u

tsr_status tsr_plugin_check_head(const unsigned char *head, const char *path, struct tsr_err *err)
{
    uint64_t magic;
    uint32_t size;
    uint16_t version[2];
    memcpy(&magic, head, sizeof magic);
    memcpy(&size, head + 8, sizeof size);
    memcpy(version, head + 12, sizeof version);
    if (magic != TSR_PLUGIN_MAGIC)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: plugin descriptor starts with %016llx, not with the magic number %016llx; "
            "fill it with TSR_PLUGIN_HEADER",
            path, (unsigned long long)magic, (unsigned long long)TSR_PLUGIN_MAGIC);
    if (version[0] != TSR_ABI_MAJOR)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: built for ABI %u.%u, this host offers %d.0 to %d.%d; rebuild it with this "
            "host's headers",
            path, version[0], version[1], TSR_ABI_MAJOR, TSR_ABI_MAJOR, TSR_ABI_MINOR);
    if (size < sizeof(struct tsr_plugin))
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: plugin descriptor says %u bytes, ABI %d.0 needs at least %zu; fill it with "
            "TSR_PLUGIN_HEADER",
            path, size, TSR_ABI_MAJOR, sizeof(struct tsr_plugin));
    return tsr_plugin_check_whole(size, path, "plugin descriptor", err);
}

/* [a-z][a-z0-9]* with the characters of `also` inside, at most MAX_NAME - 1 bytes. */
static bool good_name(const char *s, const char *also)
{
    if (!s || *s < 'a' || *s > 'z')
        return false;
    size_t n = strnlen(s, MAX_NAME);
    for (size_t i = 1; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || strchr(also, s[i])))
            return false;
    return n < MAX_NAME;
}

/* Copies a table that may be shorter (older) or longer (newer) than ours. */
static void copy_table(void *dst, uint64_t dst_size, const void *src, uint64_t src_size)
{
    uint32_t size = (uint32_t)dst_size;
    memset(dst, 0, dst_size);
    memcpy(dst, src, src_size < dst_size ? src_size : dst_size);
    memcpy(dst, &size, sizeof size); /* struct_size comes first in every table but the descriptor */
}

static tsr_status check_iface(const struct tsr_plugin_kind *k, const struct tsr_component *c,
                              const char *where, void **copy, struct tsr_err *err)
{
    if (!c->iface)
        return tsr_fail(err, TSR_E_INPUT, "%s: iface is NULL, it must point to the %s table", where,
                        k->noun);
    uint32_t size;
    memcpy(&size, c->iface, sizeof size);
    TSR_TRY(tsr_plugin_check_whole(size, where, "its table", err));
    for (uint64_t i = 0; i < k->n_required; i++) {
        const struct tsr_plugin_slot *s = &k->required[i];
        const void                   *fn = NULL;
        if (size < s->offset + sizeof fn)
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: its table says %u bytes and ends before the required %s(), this host "
                "needs %llu; set struct_size to the table's sizeof",
                where, size, s->name, (unsigned long long)k->size);
        memcpy(&fn, (const char *)c->iface + s->offset, sizeof fn);
        if (!fn)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: required function %s() is NULL; a %s must provide it", where,
                            s->name, k->noun);
    }
    void *t = tsr_new(1, k->size);
    if (!t)
        return tsr_fail_nomem(err, k->size, where);
    copy_table(t, k->size, c->iface, size);
    *copy = t;
    return TSR_OK;
}

static tsr_status check_component(const struct tsr_component *c, uint64_t i,
                                  const struct tsr_plugin *p, const char *path,
                                  struct tsr_plugin_loaded *l, struct tsr_err *err)
{
    if (!c)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: component %llu of %llu is NULL; correct n_components", path,
                        (unsigned long long)i, (unsigned long long)p->n_components);
    if (c->struct_size < sizeof *c)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: component %llu says %u bytes, ABI %d.0 needs at least %zu; set struct_size "
            "to sizeof(struct tsr_component)",
            path, (unsigned long long)i, c->struct_size, TSR_ABI_MAJOR, sizeof *c);
    char which[64];
    (void)snprintf(which, sizeof which, "component %llu", (unsigned long long)i);
    TSR_TRY(tsr_plugin_check_whole(c->struct_size, path, which, err));
    if (!c->kind || !*c->kind)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: component %llu names no kind; give one such as \"tessera.quantizer/1\"", path,
            (unsigned long long)i);
    const struct tsr_plugin_kind *k = tsr_plugin_kind_find(c->kind);
    if (!k) {
        tsr_logf(TSR_LOG_DEBUG, "%s: component %llu (%s) skipped: unknown kind \"%s\"", path,
                 (unsigned long long)i, c->name ? c->name : "?", c->kind);
        return TSR_OK;
    }
    if (!good_name(c->name, "_-"))
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: %s %llu has the name \"%.80s\", names are lower-case letters, digits, '_' and "
            "'-', start with a letter and have at most %u bytes; rename it",
            path, k->noun, (unsigned long long)i, c->name ? c->name : "(NULL)", MAX_NAME - 1);
    char where[1024];
    (void)snprintf(where, sizeof where, "%s: %s \"%s\"", path, k->noun, c->name);
    if (!tsr_plugin_check_text(c->summary))
        return tsr_fail(err, TSR_E_INPUT, "%s: summary is %s; give one sentence in UTF-8", where,
                        c->summary ? "no clean text" : "NULL");
    struct tsr_plugin_entry *e = &l->entries[l->n];
    for (uint64_t j = 0; j < l->n; j++)
        if (strcmp(l->entries[j].component.kind, c->kind) == 0 &&
            strcmp(l->entries[j].component.name, c->name) == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: appears twice in this plugin; rename one",
                            where);
    tsr_status st = check_iface(k, c, where, &e->iface, err);
    if (st == TSR_OK)
        st = tsr_plugin_check_options(c, where, &e->options, err);
    if (st != TSR_OK) {
        free(e->iface);
        e->iface = NULL;
        return st;
    }
    copy_table(&e->component, sizeof e->component, c, c->struct_size);
    e->component.option_stride = sizeof(struct tsr_option);
    e->component.options = e->options;
    e->component.iface = e->iface;
    e->source = c;
    l->n++;
    return TSR_OK;
}

tsr_status tsr_plugin_check_plugin(const struct tsr_plugin *p, const char *path,
                                   struct tsr_plugin_loaded *l, struct tsr_err *err)
{
    unsigned char head[16];
    memcpy(head, p, sizeof head);
    TSR_TRY(tsr_plugin_check_head(head, path, err));
    if (p->needs_minor > TSR_ABI_MINOR)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: needs ABI %d.%u or newer, this host offers %d.%d; update tessera or use an "
            "older version of the plugin",
            path, TSR_ABI_MAJOR, p->needs_minor, TSR_ABI_MAJOR, TSR_ABI_MINOR);
    if (!good_name(p->id, ".-_") || !strchr(p->id, '.'))
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: plugin id \"%.80s\" is not of the form \"org.example.name\" (at most %u "
            "bytes); correct .id",
            path, p->id ? p->id : "(NULL)", MAX_NAME - 1);
    if (!tsr_plugin_check_text(p->version) || !tsr_plugin_check_text(p->license) ||
        !tsr_plugin_check_text(p->build))
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: plugin %s leaves %s NULL or fills it with what is not text; set it in UTF-8", path,
            p->id,
            !tsr_plugin_check_text(p->version)   ? "version"
            : !tsr_plugin_check_text(p->license) ? "license"
                                                 : "build");
    if (!p->components || p->n_components == 0 || p->n_components > MAX_COMPONENTS)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: plugin %s has %llu components at %s, 1 to %u are needed; correct components "
            "and n_components",
            path, p->id, (unsigned long long)p->n_components, p->components ? "an address" : "NULL",
            MAX_COMPONENTS);
    l->entries = tsr_new(p->n_components, sizeof *l->entries);
    if (!l->entries)
        return tsr_fail_nomem(err, p->n_components * sizeof *l->entries, path);
    for (uint64_t i = 0; i < p->n_components; i++)
        TSR_TRY(check_component(p->components[i], i, p, path, l, err));
    memcpy(&l->plugin, p, sizeof l->plugin);
    return TSR_OK;
}
