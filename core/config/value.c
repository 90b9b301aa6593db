#include "config/value.h"
#include "config/names.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t    factor;
};
static const struct unit sizes[] = {
    { "B", 1 },
    { "bytes", 1 },
    { "KiB", 1ull << 10 },
    { "MiB", 1ull << 20 },
    { "GiB", 1ull << 30 },
    { "TiB", 1ull << 40 },
    { "kB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
};

static uint64_t size_factor(const char *name)
{
    for (size_t i = 0; name && i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, name) == 0)
            return sizes[i].factor;
    return 0;
}

struct tsr_option tsr_config_option_at(const struct tsr_config_optset *set, uint64_t i)
{
    struct tsr_option o;
    memset(&o, 0, sizeof o);
    uint64_t n = set->stride < sizeof o ? set->stride : sizeof o;
    memcpy(&o, (const char *)set->options + i * set->stride, n);
    return o;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of a decimal number at s; 0 if there is none. */
static size_t number_length(const char *s, bool real)
{
    size_t i = s[0] == '-' || s[0] == '+' ? 1 : 0, digits = 0;
    for (; is_digit(s[i]); i++)
        digits++;
    if (!real)
        return digits ? i : 0;
    if (s[i] == '.')
        for (i++; is_digit(s[i]); i++)
            digits++;
    if (!digits)
        return 0;
    if (s[i] == 'e' || s[i] == 'E') {
        size_t j = i + 1;
        if (s[j] == '-' || s[j] == '+')
            j++;
        if (is_digit(s[j])) {
            while (is_digit(s[j]))
                j++;
            i = j;
        }
    }
    return i;
}

static bool parse_int(const struct tsr_option *o, const char *text, int64_t *v)
{
    size_t n = number_length(text, false);
    if (!n)
        return false;
    char *end;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (errno != 0 || end != text + n)
        return false;
    *v = x;
    while (*end == ' ')
        end++;
    if (!*end)
        return true;
    /* "4 GiB" if the unit of the option is bytes, MiB, ... */
    uint64_t from = size_factor(end), to = size_factor(o->unit);
    int64_t  scaled;
    if (!from || !to || __builtin_mul_overflow(x, (int64_t)from, &scaled) ||
        scaled % (int64_t)to != 0)
        return false;
    *v = scaled / (int64_t)to;
    return true;
}

static bool parse_real(const char *text, double *v)
{
    size_t n = number_length(text, true);
    if (!n || text[n])
        return false;
    *v = strtod(text, NULL);
    return isfinite(*v);
}

static bool truth_word(const char *text, bool *v)
{
    static const char *const yes[] = { "yes", "Yes", "YES",  "on",   "On", "ON",
                                       "y",   "Y",   "True", "TRUE", "1" };
    static const char *const no[] = { "no", "No", "NO",    "off",   "Off", "OFF",
                                      "n",  "N",  "False", "FALSE", "0" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (strcmp(text, yes[i]) == 0)
            return *v = true, true;
        if (strcmp(text, no[i]) == 0)
            return *v = false, true;
    }
    return false;
}

/* A plain scalar that a YAML reader may take for something else than its text. */
static bool ambiguous(const char *text)
{
    static const char *const words[] = { "true", "false", "null", "~",   "yes",  "no",
                                         "on",   "off",   "Yes",  "No",  "On",   "Off",
                                         "YES",  "NO",    "ON",   "OFF", "True", "False",
                                         "TRUE", "FALSE", "Null", "NULL" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static bool parse_bool(const char *text, enum tsr_value_form form, void *into,
                       char hint[TSR_VALUE_TEXT])
{
    int32_t v = strcmp(text, "true") == 0;
    bool    guess;
    if (form != TSR_CONFIG_FORM_QUOTED && (v || strcmp(text, "false") == 0)) {
        memcpy(into, &v, sizeof v);
        return true;
    }
    if (v || strcmp(text, "false") == 0)
        tsr_config_value_put(hint, TSR_VALUE_TEXT, "write it without quotes");
    else if (truth_word(text, &guess))
        tsr_config_value_put(hint, TSR_VALUE_TEXT, "write %s", guess ? "true" : "false");
    return false;
}

static bool parse_enum(const struct tsr_option *o, const char *text, void *into,
                       char hint[TSR_VALUE_TEXT])
{
    const char *names[64];
    uint64_t    n = 0;
    for (uint64_t i = 0; i < o->n_choices; i++) {
        if (strcmp(o->choices[i].name, text) == 0) {
            memcpy(into, &o->choices[i].value, sizeof(int64_t));
            return true;
        }
        if (n < 64)
            names[n++] = o->choices[i].name;
    }
    for (uint64_t i = 0; i < o->n_choices; i++)
        if (o->choices[i].value == TSR_CONFIG_OTHER) {
            int64_t number = tsr_config_name_number(text);
            memcpy(into, &number, sizeof number);
            return number >= 0;
        }
    const char *near = tsr_config_nearest(text, names, n);
    if (near)
        tsr_config_value_put(hint, TSR_VALUE_TEXT, "did you mean '%s'?", near);
    return false;
}

/* Puts a value into msg so that it cannot spoil a terminal or a line. */
static void put_text(char *buf, size_t cap, const char *text)
{
    tsr_config_value_put(buf, cap, "'");
    for (size_t i = 0; text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        if (i == 60) {
            tsr_config_value_put(buf, cap, "...");
            break;
        }
        if (c < 0x20 || c == 0x7f)
            tsr_config_value_put(buf, cap, "\\x%02x", c);
        else
            tsr_config_value_put(buf, cap, "%c", c);
    }
    tsr_config_value_put(buf, cap, "'");
}

bool tsr_config_value_parse(const struct tsr_option *o, const char *text, enum tsr_value_form form,
                            void *into, char msg[TSR_VALUE_TEXT], char hint[TSR_VALUE_TEXT])
{
    msg[0] = hint[0] = '\0';
    void *at = (char *)into + o->offset;
    bool  ok = false;
    if (form == TSR_CONFIG_FORM_QUOTED && (o->type == TSR_OPT_INT || o->type == TSR_OPT_REAL)) {
        int64_t i;
        double  r;
        if (parse_int(o, text, &i) || parse_real(text, &r))
            tsr_config_value_put(hint, TSR_VALUE_TEXT, "write it without quotes");
    } else if (o->type == TSR_OPT_INT) {
        int64_t v;
        ok = parse_int(o, text, &v) && (o->min.i == o->max.i || (v >= o->min.i && v <= o->max.i));
        if (ok)
            memcpy(at, &v, sizeof v);
    } else if (o->type == TSR_OPT_REAL) {
        double v;
        ok = parse_real(text, &v) && (!(o->min.r < o->max.r) || (v >= o->min.r && v <= o->max.r));
        if (ok)
            memcpy(at, &v, sizeof v);
    } else if (o->type == TSR_OPT_BOOL) {
        ok = parse_bool(text, form, at, hint);
    } else if (o->type == TSR_OPT_ENUM) {
        ok = parse_enum(o, text, at, hint);
    } else if (o->type == TSR_OPT_STRING) {
        ok = form != TSR_CONFIG_FORM_PLAIN || !ambiguous(text);
        if (ok)
            memcpy(at, &text, sizeof text);
        else
            tsr_config_value_put(hint, TSR_VALUE_TEXT, "write \"%s\" if you mean the word", text);
    }
    if (ok)
        return true;
    char want[TSR_VALUE_TEXT / 2];
    tsr_config_value_wanted(o, want, sizeof want);
    tsr_config_value_put(msg, TSR_VALUE_TEXT, "must be %s, not ", want);
    put_text(msg, TSR_VALUE_TEXT, text);
    return false;
}

tsr_status tsr_config_option_set(const struct tsr_option *o, void *into, const char *text,
                                 struct tsr_err *err)
{
    char msg[TSR_VALUE_TEXT], hint[TSR_VALUE_TEXT];
    if (o->type == TSR_OPT_NODE)
        return tsr_fail(err, TSR_E_INVAL, "option '%s' takes a YAML tree", o->name);
    if (tsr_config_value_parse(o, text, TSR_CONFIG_FORM_ARGUMENT, into, msg, hint))
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT, "'%s' %s%s%s", o->name, msg, *hint ? "; " : "", hint);
}

void tsr_config_options_defaults(const struct tsr_config_optset *set)
{
    for (uint64_t i = 0; i < set->n; i++) {
        struct tsr_option o = tsr_config_option_at(set, i);
        char             *at = (char *)set->into + o.offset;
        switch (o.type) {
        case TSR_OPT_BOOL: {
            int32_t v = o.def.i != 0;
            memcpy(at, &v, sizeof v);
            break;
        }
        case TSR_OPT_INT:
        case TSR_OPT_ENUM:
            memcpy(at, &o.def.i, sizeof o.def.i);
            break;
        case TSR_OPT_REAL:
            memcpy(at, &o.def.r, sizeof o.def.r);
            break;
        case TSR_OPT_STRING: {
            const char *s = o.def.s ? o.def.s : "";
            memcpy(at, &s, sizeof s);
            break;
        }
        default: { /* pointers to trees and lists start out empty in the zeroed struct */
            break;
        }
        }
    }
}
