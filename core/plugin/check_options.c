#include "plugin/internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS      1024u
#define MAX_CHOICES      4096u
#define MAX_OPTION_BYTES (UINT64_C(1) << 20)

/* Bytes that an option's value takes in the struct; 0 for an unknown type. */
static uint64_t width(uint32_t type)
{
    switch (type) {
    case TSR_OPT_BOOL:
        return 4;
    case TSR_OPT_INT:
    case TSR_OPT_REAL:
    case TSR_OPT_ENUM:
    case TSR_OPT_STRING:
        return 8;
    default:
        return 0;
    }
}

static bool good_key(const char *s)
{
    if (!s || *s < 'a' || *s > 'z')
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_'))
            return false;
    return true;
}

static tsr_status check_enum(const struct tsr_option *o, const char *at, struct tsr_err *err)
{
    if (!o->choices || o->n_choices == 0 || o->n_choices > MAX_CHOICES)
        return tsr_fail(err, TSR_E_INPUT, "%s: has no choices (%llu listed); list what it may be",
                        at, (unsigned long long)o->n_choices);
    bool found = false;
    for (uint64_t i = 0; i < o->n_choices; i++) {
        if (!o->choices[i].name || !*o->choices[i].name)
            return tsr_fail(err, TSR_E_INPUT, "%s: choice %llu has no name; name it", at,
                            (unsigned long long)i);
        if (!tsr_plugin_check_text(o->choices[i].name) ||
            (o->choices[i].help && !tsr_plugin_check_text(o->choices[i].help)))
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: choice %llu has a name or a help that is not UTF-8, or has control "
                "characters; correct it",
                at, (unsigned long long)i);
        for (uint64_t j = 0; j < i; j++)
            if (strcmp(o->choices[i].name, o->choices[j].name) == 0)
                return tsr_fail(err, TSR_E_INPUT, "%s: choice \"%s\" is listed twice; remove one",
                                at, o->choices[i].name);
        found |= o->choices[i].value == o->def.i;
    }
    if (!found && !(o->flags & TSR_OPT_REQUIRED))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the default %lld is not one of its choices; correct it", at,
                        (long long)o->def.i);
    return TSR_OK;
}

/* min == max means unbounded. */
static tsr_status check_value(const struct tsr_option *o, const char *at, struct tsr_err *err)
{
    bool required = o->flags & TSR_OPT_REQUIRED;
    switch (o->type) {
    case TSR_OPT_BOOL:
        if (!required && o->def.i != 0 && o->def.i != 1)
            return tsr_fail(err, TSR_E_INPUT, "%s: the default %lld is neither 0 nor 1; correct it",
                            at, (long long)o->def.i);
        return TSR_OK;
    case TSR_OPT_INT:
        if (o->min.i > o->max.i)
            return tsr_fail(err, TSR_E_INPUT, "%s: its range %lld to %lld is empty; correct it", at,
                            (long long)o->min.i, (long long)o->max.i);
        if (!required && o->min.i != o->max.i && (o->def.i < o->min.i || o->def.i > o->max.i))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the default %lld is not between %lld and %lld; correct it", at,
                            (long long)o->def.i, (long long)o->min.i, (long long)o->max.i);
        return TSR_OK;
    case TSR_OPT_REAL: {
        bool bounded = !(o->min.r == o->max.r);
        if (bounded && !(o->min.r < o->max.r))
            return tsr_fail(err, TSR_E_INPUT, "%s: its range %g to %g is empty; correct it", at,
                            o->min.r, o->max.r);
        if (!required && !isfinite(o->def.r))
            return tsr_fail(err, TSR_E_INPUT, "%s: the default %g is not a number; correct it", at,
                            o->def.r);
        if (!required && bounded && !(o->def.r >= o->min.r && o->def.r <= o->max.r))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the default %g is not between %g and %g; correct it", at, o->def.r,
                            o->min.r, o->max.r);
        return TSR_OK;
    }
    case TSR_OPT_ENUM:
        return check_enum(o, at, err);
    default:
        if (!required && !o->def.s)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: the default is NULL; use \"\" or make the option required", at);
        return TSR_OK;
    }
}

static tsr_status check_option(const struct tsr_option *o, uint64_t i,
                               const struct tsr_component *c, const struct tsr_option *earlier,
                               const char *where, struct tsr_err *err)
{
    if (!good_key(o->name))
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: option %llu has the name \"%.80s\", names are lower-case letters, digits and "
            "'_' and start with a letter; rename it",
            where, (unsigned long long)i, o->name ? o->name : "(NULL)");
    char at[1200];
    (void)snprintf(at, sizeof at, "%s: option \"%.80s\"", where, o->name);
    if (!o->help)
        return tsr_fail(err, TSR_E_INPUT, "%s: help is NULL; give one sentence", at);
    if (!tsr_plugin_check_text(o->help) || (o->unit && !tsr_plugin_check_text(o->unit)) ||
        (o->replaced_by && !tsr_plugin_check_text(o->replaced_by)) ||
        (o->type == TSR_OPT_STRING && o->def.s && !tsr_plugin_check_text(o->def.s)))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: a text of it is not UTF-8, or has control characters; correct it", at);
    uint64_t w = width(o->type), end;
    if (w == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: has type %u, this host knows 1 to 5; build the plugin for ABI %d.%d",
                        at, o->type, TSR_ABI_MAJOR, TSR_ABI_MINOR);
    if (!tsr_add(o->offset, w, &end) || end > c->options_size || o->offset % w != 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: offset %llu with %llu bytes does not fit the option struct of %llu bytes; "
            "use the TSR_OPTION macros",
            at, (unsigned long long)o->offset, (unsigned long long)w,
            (unsigned long long)c->options_size);
    for (uint64_t j = 0; j < i; j++) {
        const struct tsr_option *p = &earlier[j];
        if (strcmp(p->name, o->name) == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: is listed twice; rename one", at);
        if (o->offset < p->offset + width(p->type) && p->offset < end)
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: overlaps option \"%.80s\" in the option struct; use the TSR_OPTION "
                "macros",
                at, p->name);
    }
    return check_value(o, at, err);
}

tsr_status tsr_plugin_check_options(const struct tsr_component *c, const char *where,
                                    struct tsr_option **copy, struct tsr_err *err)
{
    *copy = NULL;
    if ((!c->options && c->n_options) || c->n_options > MAX_OPTIONS ||
        c->options_size > MAX_OPTION_BYTES)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: %llu options at %s in a struct of %llu bytes; at most %u options and %llu "
            "bytes are taken",
            where, (unsigned long long)c->n_options, c->options ? "an address" : "NULL",
            (unsigned long long)c->options_size, MAX_OPTIONS, (unsigned long long)MAX_OPTION_BYTES);
    if (c->n_options == 0)
        return TSR_OK;
    if (c->option_stride < sizeof(struct tsr_option))
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: option_stride is %u, ABI %d.0 needs at least %zu; set it to sizeof(struct "
            "tsr_option)",
            where, c->option_stride, TSR_ABI_MAJOR, sizeof(struct tsr_option));
    TSR_TRY(tsr_plugin_check_whole(c->option_stride, where, "option_stride", err));
    struct tsr_option *all = tsr_new(c->n_options, sizeof *all);
    if (!all)
        return tsr_fail_nomem(err, c->n_options * sizeof *all, where);
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; st == TSR_OK && i < c->n_options; i++) {
        memcpy(&all[i], (const char *)c->options + i * c->option_stride, sizeof all[i]);
        st = check_option(&all[i], i, c, all, where, err);
    }
    if (st != TSR_OK) {
        free(all);
        return st;
    }
    *copy = all;
    return TSR_OK;
}
