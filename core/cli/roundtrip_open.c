/* What `tessera roundtrip` is asked for: a plugin with options, and the matrices of a file. */
#include "cli/roundtrip.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *const suffixes[] = { ".hessian",  ".absmax",      ".mean",   ".var",
                                        ".mean_abs", ".sensitivity", ".inputs", ".calibration" };

static const struct tsr_option *option_at(const struct tsr_component *c, uint64_t i)
{
    return (const struct tsr_option *)(const void *)((const char *)c->options +
                                                     i * c->option_stride);
}

static tsr_status unknown_key(const struct tsr_component *c, const char *key, struct tsr_err *err)
{
    const char **names = tsr_new(c->n_options, sizeof *names);
    if (!names)
        return tsr_fail_nomem(err, c->n_options * sizeof *names, "option names");
    for (uint64_t i = 0; i < c->n_options; i++)
        names[i] = option_at(c, i)->name;
    const char *near = tsr_nearest(key, names, c->n_options);
    tsr_status  st = tsr_fail(err, TSR_E_INPUT, "'%s' has no option '%s'%s%s%s", c->name, key,
                             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    free(names);
    return st;
}

static tsr_status set_option(struct roundtrip *rt, char *text, bool *given, struct tsr_err *err)
{
    const struct tsr_component *c = rt->found.component;
    char                       *eq = strchr(text, '=');
    if (!eq)
        return tsr_fail(err, TSR_E_INPUT, "'%s' in the plugin's options is not key=value", text);
    *eq = '\0';
    for (uint64_t i = 0; i < c->n_options; i++) {
        if (strcmp(option_at(c, i)->name, text) != 0)
            continue;
        if (given[i])
            return tsr_fail(err, TSR_E_INPUT, "option '%s' is given twice", text);
        given[i] = true;
        return tsr_option_set(option_at(c, i), rt->options, eq + 1, err);
    }
    return unknown_key(c, text, err);
}

static tsr_status set_options(struct roundtrip *rt, char *list, struct tsr_err *err)
{
    const struct tsr_component *c = rt->found.component;
    bool                       *given = tsr_new(c->n_options, sizeof *given);
    if (!given)
        return tsr_fail_nomem(err, c->n_options, "options");
    tsr_status st = TSR_OK;
    while (list && *list && st == TSR_OK) {
        char *comma = strchr(list, ',');
        if (comma)
            *comma = '\0';
        st = set_option(rt, list, given, err);
        list = comma ? comma + 1 : NULL;
    }
    for (uint64_t i = 0; i < c->n_options && st == TSR_OK; i++)
        if (option_at(c, i)->flags & TSR_OPT_REQUIRED && !given[i])
            st = tsr_fail(err, TSR_E_INPUT, "'%s' needs option '%s'; write %s:%s=...", c->name,
                          option_at(c, i)->name, c->name, option_at(c, i)->name);
    free(given);
    return st;
}

static tsr_status open_plugin(struct roundtrip *rt, const char *spec, struct tsr_err *err)
{
    rt->spec = tsr_strdup(spec);
    if (!rt->spec)
        return tsr_fail_nomem(err, strlen(spec) + 1, "the plugin's options");
    char *list = strchr(rt->spec, ':');
    if (list)
        *list++ = '\0';
    TSR_TRY(tsr_registry_find(rt->registry, rt->codec ? TSR_KIND_CODEC : TSR_KIND_QUANTIZER,
                              rt->spec, &rt->found, err));
    const struct tsr_component *c = rt->found.component;
    rt->options = tsr_new_aligned(1, c->options_size);
    if (!rt->options)
        return tsr_fail_nomem(err, c->options_size, "the plugin's options");
    memset(rt->options, 0, c->options_size);
    struct tsr_optset set = { c->options, c->n_options, c->option_stride, rt->options };
    tsr_options_defaults(&set);
    return set_options(rt, list, err);
}

static bool is_statistic(const struct tsr_st *st, const char *name)
{
    for (uint64_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(name), s = strlen(suffixes[i]);
        char   base[TSR_ST_MAX_NAME + 1];
        if (n <= s || n - s > TSR_ST_MAX_NAME || strcmp(name + n - s, suffixes[i]) != 0)
            continue;
        memcpy(base, name, n - s);
        base[n - s] = '\0';
        if (tsr_st_find(st, base))
            return true;
    }
    return false;
}

static tsr_status list_items(struct roundtrip *rt, const char *path, struct tsr_err *err)
{
    rt->items = tsr_new(rt->in.n, sizeof *rt->items);
    if (!rt->items)
        return tsr_fail_nomem(err, rt->in.n * sizeof *rt->items, "the list of tensors");
    for (uint64_t i = 0; i < rt->in.n; i++) {
        const struct tsr_st_tensor *t = &rt->in.tensors[i];
        if (t->rank != 2 || is_statistic(&rt->in, t->name))
            continue;
        if (t->dtype != TSR_F32 && t->dtype != TSR_F16 && t->dtype != TSR_BF16)
            return tsr_fail(err, TSR_E_INPUT, "%s: tensor '%s' is %s; F32, F16 or BF16 was wanted",
                            path, t->name, t->dtype_name);
        rt->items[rt->n++] = (struct roundtrip_item){
            .name = t->name, .tensor = t, .rows = t->shape[0], .cols = t->shape[1]
        };
    }
    if (rt->n == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s holds no 2-D tensor", path);
    return TSR_OK;
}

tsr_status roundtrip_open(struct roundtrip *rt, const char *spec, const char *path,
                          struct tsr_err *err)
{
    TSR_TRY(open_plugin(rt, spec, err));
    TSR_TRY(tsr_st_open(&rt->in, path, err));
    rt->in_open = true;
    return list_items(rt, path, err);
}

void roundtrip_close(struct roundtrip *rt)
{
    if (rt->in_open)
        tsr_st_close(&rt->in);
    free(rt->items);
    free(rt->options);
    free(rt->spec);
}
