/* A component with its options as the text that opens it again. */
#include "plugin/spec.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char  *at;
    size_t length, room;
    bool   failed;
};

static void add(struct text *t, const char *s)
{
    size_t n = strlen(s);
    if (t->length + n + 1 > t->room) {
        size_t room = 2 * (t->length + n + 64);
        char  *at = tsr_renew(t->at, room, 1);
        t->failed = t->failed || !at;
        if (!at)
            return;
        t->at = at;
        t->room = room;
    }
    memcpy(t->at + t->length, s, n + 1);
    t->length += n;
}

static const char *choice_of(const struct tsr_option *o, int64_t value)
{
    for (uint64_t i = 0; i < o->n_choices; i++)
        if (o->choices[i].value == value)
            return o->choices[i].name;
    return "?";
}

/* The value of o in the struct; "" if it is a string that the default says already. */
static const char *value_of(const struct tsr_option *o, const void *options, char *room, size_t cap)
{
    const char *at = (const char *)options + o->offset;
    int32_t     flag;
    int64_t     i;
    double      r;
    const char *s;
    switch (o->type) {
    case TSR_OPT_BOOL:
        memcpy(&flag, at, sizeof flag);
        return flag ? "true" : "false";
    case TSR_OPT_ENUM:
        memcpy(&i, at, sizeof i);
        return choice_of(o, i);
    case TSR_OPT_REAL:
        memcpy(&r, at, sizeof r);
        (void)snprintf(room, cap, "%.17g", r);
        return room;
    case TSR_OPT_STRING:
        memcpy(&s, at, sizeof s);
        return !s || (o->def.s && strcmp(s, o->def.s) == 0) ? "" : s;
    default:
        memcpy(&i, at, sizeof i);
        (void)snprintf(room, cap, "%lld", (long long)i);
        return room;
    }
}

tsr_status tsr_plugin_spec_text(const struct tsr_plugin_found *f, const void *options, char **text,
                                struct tsr_err *err)
{
    const struct tsr_component *c = f->component;
    struct text                 t = { 0 };
    const char                 *sep = ":";
    add(&t, f->info->plugin->id);
    add(&t, "/");
    add(&t, c->name);
    for (uint64_t i = 0; i < c->n_options; i++) {
        const struct tsr_option *o =
            (const struct tsr_option *)(const void *)((const char *)c->options +
                                                      i * c->option_stride);
        char        room[40];
        const char *v = o->replaced_by ? "" : value_of(o, options, room, sizeof room);
        if (!*v)
            continue;
        if (strchr(v, ',')) {
            free(t.at);
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "option '%s' of %s is '%.80s': a value with a comma cannot be stored "
                            "with weights in the plugin's own format",
                            o->name, c->name, v);
        }
        add(&t, sep);
        add(&t, o->name);
        add(&t, "=");
        add(&t, v);
        sep = ",";
    }
    if (t.failed) {
        free(t.at);
        return tsr_fail_nomem(err, t.room, "a plugin's options");
    }
    *text = t.at;
    return TSR_OK;
}
