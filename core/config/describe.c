/* What an option takes, in words: for messages, help and reference pages. */
#include "config/value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tsr_config_value_put(char *buf, size_t cap, const char *fmt, ...)
{
    size_t  n = strnlen(buf, cap);
    va_list ap;
    va_start(ap, fmt);
    if (n < cap)
        (void)vsnprintf(buf + n, cap - n, fmt, ap);
    va_end(ap);
}

static void wanted_range(const struct tsr_option *o, char *buf, size_t cap)
{
    bool lo, hi;
    char a[32], b[32];
    if (o->type == TSR_OPT_INT) {
        if (o->min.i == o->max.i)
            return;
        lo = o->min.i != INT64_MIN;
        hi = o->max.i != INT64_MAX;
        (void)snprintf(a, sizeof a, "%lld", (long long)o->min.i);
        (void)snprintf(b, sizeof b, "%lld", (long long)o->max.i);
    } else {
        if (!(o->min.r < o->max.r))
            return;
        lo = o->min.r > -TSR_VALUE_NO_LIMIT;
        hi = o->max.r < TSR_VALUE_NO_LIMIT;
        (void)snprintf(a, sizeof a, "%g", o->min.r);
        (void)snprintf(b, sizeof b, "%g", o->max.r);
    }
    if (lo && hi)
        tsr_config_value_put(buf, cap, " from %s to %s", a, b);
    else if (lo)
        tsr_config_value_put(buf, cap, " of at least %s", a);
    else if (hi)
        tsr_config_value_put(buf, cap, " of at most %s", b);
}

void tsr_config_value_wanted(const struct tsr_option *o, char *buf, size_t cap)
{
    buf[0] = '\0';
    switch (o->type) {
    case TSR_OPT_BOOL:
        tsr_config_value_put(buf, cap, "true or false");
        break;
    case TSR_OPT_INT:
        tsr_config_value_put(buf, cap, "an integer");
        wanted_range(o, buf, cap);
        break;
    case TSR_OPT_REAL:
        tsr_config_value_put(buf, cap, "a number");
        wanted_range(o, buf, cap);
        break;
    case TSR_OPT_ENUM:
        if (o->n_choices > 1)
            tsr_config_value_put(buf, cap, "one of ");
        for (uint64_t i = 0; i < o->n_choices; i++)
            tsr_config_value_put(buf, cap, "%s%s", i ? ", " : "", o->choices[i].name);
        break;
    case TSR_OPT_STRING:
        tsr_config_value_put(buf, cap,
                             o->flags & TSR_OPT_LIST
                                 ? "a list of values without commas, or a string "
                                   "of them with commas between"
                                 : "a string");
        break;
    default:
        tsr_config_value_put(buf, cap, "a value");
        break;
    }
}

void tsr_config_option_describe(const struct tsr_option *o, char *buf, size_t cap)
{
    bool        word = o->type == TSR_OPT_STRING; /* its unit is the word for its value */
    const char *unit = o->unit && !word ? o->unit : "";
    const char *gap = *unit ? " " : "";
    char        def[64] = "";
    buf[0] = '\0';
    switch (o->type) {
    case TSR_OPT_BOOL:
        tsr_config_value_put(buf, cap, "true or false");
        (void)snprintf(def, sizeof def, "%s", o->def.i ? "true" : "false");
        break;
    case TSR_OPT_INT:
        tsr_config_value_put(buf, cap, "int");
        if (o->min.i != o->max.i) {
            if (o->max.i == INT64_MAX)
                tsr_config_value_put(buf, cap, " >= %lld", (long long)o->min.i);
            else if (o->min.i == INT64_MIN)
                tsr_config_value_put(buf, cap, " <= %lld", (long long)o->max.i);
            else
                tsr_config_value_put(buf, cap, " %lld..%lld", (long long)o->min.i,
                                     (long long)o->max.i);
        }
        (void)snprintf(def, sizeof def, "%lld", (long long)o->def.i);
        break;
    case TSR_OPT_REAL:
        tsr_config_value_put(buf, cap, "number");
        if (o->min.r < o->max.r) {
            if (o->max.r >= TSR_VALUE_NO_LIMIT)
                tsr_config_value_put(buf, cap, " >= %g", o->min.r);
            else if (o->min.r <= -TSR_VALUE_NO_LIMIT)
                tsr_config_value_put(buf, cap, " <= %g", o->max.r);
            else
                tsr_config_value_put(buf, cap, " %g..%g", o->min.r, o->max.r);
        }
        (void)snprintf(def, sizeof def, "%g", o->def.r);
        break;
    case TSR_OPT_ENUM:
        (void)snprintf(def, sizeof def, "%lld", (long long)o->def.i);
        for (uint64_t i = 0; i < o->n_choices; i++) {
            tsr_config_value_put(buf, cap, "%s%s", i ? "|" : "", o->choices[i].name);
            if (o->choices[i].value == o->def.i)
                (void)snprintf(def, sizeof def, "%s", o->choices[i].name);
        }
        break;
    case TSR_OPT_STRING:
        tsr_config_value_put(buf, cap, "string");
        if (o->def.s && *o->def.s)
            (void)snprintf(def, sizeof def, "%s", o->def.s);
        break;
    case TSR_OPT_NODE:
        tsr_config_value_put(buf, cap, "mapping or list");
        break;
    default:
        tsr_config_value_put(buf, cap, "repeatable");
        break;
    }
    if (o->flags & TSR_OPT_REQUIRED)
        tsr_config_value_put(buf, cap, "%s%s, required", gap, unit);
    else if (*def)
        tsr_config_value_put(buf, cap, ", default %s%s%s", def, gap, unit);
    else
        tsr_config_value_put(buf, cap, "%s%s", gap, unit);
}
