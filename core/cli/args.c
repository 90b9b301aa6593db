#include "cli/args.h"

#include "base/log.h"
#include "base/mem.h"
#include "pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

void tsr_cli_option_flag(const char *name, char *buf, size_t cap)
{
    size_t i = 0;
    for (; name[i] && i + 1 < cap; i++)
        buf[i] = name[i] == '_' ? '-' : name[i];
    buf[i] = '\0';
}

char tsr_cli_option_short(const char *name)
{
    static const struct {
        const char *name;
        char        letter;
    } shorts[] = {
        { "input", 'i' }, { "output", 'o' },  { "out", 'o' },
        { "quiet", 'q' }, { "verbose", 'v' }, { "help", 'h' },
    };
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++)
        if (strcmp(shorts[i].name, name) == 0)
            return shorts[i].letter;
    return 0;
}

/* Where an option is declared and where its value goes. */
struct target {
    const struct tsr_option *option;
    void                    *into;
};

/* Does flag, len letters with '-' between words, name the option? */
static bool same_name(const char *name, const char *flag, size_t len)
{
    if (strlen(name) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((name[i] == '_' ? '-' : name[i]) != flag[i])
            return false;
    return true;
}

static bool search(const struct tsr_option *o, uint64_t n, void *into, const char *flag, size_t len,
                   char letter, struct target *t)
{
    for (uint64_t i = 0; i < n; i++)
        if (letter ? tsr_cli_option_short(o[i].name) == letter : same_name(o[i].name, flag, len)) {
            *t = (struct target){ &o[i], into };
            return true;
        }
    return false;
}

/* The verb's own options first, then the common ones. */
static bool lookup(struct tsr_cli_args *a, const char *flag, size_t len, char letter,
                   struct target *t)
{
    const struct tsr_verb *v = a->verb;
    if (v && search(v->options, v->n_options, a->opts, flag, len, letter, t))
        return true;
    return search(tsr_common_options, tsr_n_common_options, &a->common, flag, len, letter, t);
}

static tsr_status unknown(const struct tsr_cli_args *a, const char *flag, size_t len,
                          struct tsr_err *err)
{
    char        names[128][40], word[40], given[64];
    const char *list[128];
    uint64_t    n = 0;
    for (uint64_t i = 0; a->verb && i < a->verb->n_options && n < 100; i++, n++)
        tsr_cli_option_flag(a->verb->options[i].name, names[n], sizeof names[n]);
    for (uint64_t i = 0; i < tsr_n_common_options; i++, n++)
        tsr_cli_option_flag(tsr_common_options[i].name, names[n], sizeof names[n]);
    for (uint64_t i = 0; i < n; i++)
        list[i] = names[i];
    (void)snprintf(word, sizeof word, "%.*s", (int)(len < 39 ? len : 39), flag);
    (void)snprintf(given, sizeof given, "--%.*s", (int)(len < 60 ? len : 60), flag);
    const char *near = tsr_config_nearest(word, list, n);
    if (near)
        return tsr_fail(err, TSR_E_INPUT, "unknown option '%s'; did you mean --%s?", given, near);
    return tsr_fail(err, TSR_E_INPUT, "unknown option '%s'; 'tessera help%s%s' lists them", given,
                    a->verb ? " " : "", a->verb ? a->verb->name : "");
}

static tsr_status append(struct tsr_cli_strings *s, const char *text, struct tsr_err *err)
{
    const char **v = tsr_renew(s->v, s->n + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, (s->n + 1) * sizeof *v, "the command line");
    s->v = v;
    v[s->n++] = text;
    return TSR_OK;
}

static tsr_status store(const struct target *t, const char *text, struct tsr_err *err)
{
    const struct tsr_option *o = t->option;
    char                     flag[80];
    tsr_cli_option_flag(o->name, flag, sizeof flag);
    if (o->type == TSR_OPT_REPEAT)
        return append((struct tsr_cli_strings *)(void *)((char *)t->into + o->offset), text, err);
    struct tsr_option named = *o;
    char              dashed[84];
    (void)snprintf(dashed, sizeof dashed, "--%s", flag);
    named.name = dashed;
    if (o->replaced_by)
        tsr_logf(TSR_LOG_WARN, "--%s is deprecated; use --%s", flag, o->replaced_by);
    return tsr_config_option_set(&named, t->into, text, err);
}

static void store_bool(const struct target *t, bool on)
{
    int32_t v;
    void   *at = (char *)t->into + t->option->offset;
    memcpy(&v, at, sizeof v);
    /* -v counts, everything else is 0 or 1 */
    v = !on ? 0 : strcmp(t->option->name, "verbose") == 0 ? v + 1 : 1;
    memcpy(at, &v, sizeof v);
}

/* Steps: any --key VALUE becomes "key=value" for the job; the step's table and the plugin's
 * check it there, with the same words as for a file. */
static tsr_status store_pair(struct tsr_cli_args *a, const char *flag, size_t len,
                             const char *value, struct tsr_err *err)
{
    uint64_t bytes = len + strlen(value) + 2;
    char    *pair = tsr_new(bytes, 1);
    if (!pair)
        return tsr_fail_nomem(err, bytes, "the command line");
    for (size_t i = 0; i < len; i++)
        pair[i] = flag[i] == '-' ? '_' : flag[i];
    (void)snprintf(pair + len, bytes - len, "=%s", value);
    tsr_status st = append(a->opts, pair, err);
    if (st != TSR_OK)
        free(pair);
    return st;
}

/* "--bits", "-o"; not "-1". */
static bool is_option(const char *arg)
{
    char c = arg[0] == '-' ? arg[1] : '\0';
    return c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static tsr_status long_option(struct tsr_cli_args *a, char **argv, int argc, int *i,
                              struct tsr_err *err)
{
    const char   *flag = argv[*i] + 2, *value = strchr(flag, '=');
    size_t        len = value ? (size_t)(value++ - flag) : strlen(flag);
    char          given[64];
    struct target t = { 0 };
    bool          step = a->verb && a->verb->step;
    bool          open = step && a->verb->step->open; /* a key outside all tables belongs to a
                                                       * plugin */
    bool own = step && search(a->verb->options, a->verb->n_options, NULL, flag, len, 0, &t);
    (void)snprintf(given, sizeof given, "--%.*s", (int)(len < 60 ? len : 60), flag);
    if (!own && step)
        (void)search(tsr_common_options, tsr_n_common_options, &a->common, flag, len, 0, &t);
    if (step && !t.option && len > 3 && strncmp(flag, "no-", 3) == 0 &&
        search(a->verb->options, a->verb->n_options, NULL, flag + 3, len - 3, 0, &t)) {
        if (t.option->type == TSR_OPT_BOOL) {
            if (value)
                return tsr_fail(err, TSR_E_INPUT, "%s takes no value", given);
            return store_pair(a, flag + 3, len - 3, "false", err);
        }
        t = (struct target){ 0 }; /* a plugin's, by that name */
    }
    if (step && !open && !t.option)
        return unknown(a, flag, len, err);
    if (!step && !lookup(a, flag, len, 0, &t)) {
        if (len > 3 && strncmp(flag, "no-", 3) == 0 && lookup(a, flag + 3, len - 3, 0, &t) &&
            t.option->type == TSR_OPT_BOOL) {
            if (value)
                return tsr_fail(err, TSR_E_INPUT, "%s takes no value", given);
            store_bool(&t, false);
            return TSR_OK;
        }
        return unknown(a, flag, len, err);
    }
    if (t.option && t.option->type == TSR_OPT_BOOL && !(own && value)) {
        if (value)
            return tsr_fail(err, TSR_E_INPUT, "%s takes no value; --no-%s switches it off", given,
                            given + 2);
        if (own)
            return store_pair(a, flag, len, "true", err);
        store_bool(&t, true);
        return TSR_OK;
    }
    /* a plugin's switches look like its options that take a value: --act-order --bits 3 */
    if (!value && step && !t.option && (*i + 1 >= argc || is_option(argv[*i + 1])))
        return store_pair(a, flag, len, "true", err);
    if (!value) {
        if (*i + 1 >= argc)
            return tsr_fail(err, TSR_E_INPUT, "%s needs a value", given);
        value = argv[++*i];
    }
    if (own || (step && !t.option))
        return store_pair(a, flag, len, value, err);
    if (!t.option)
        return unknown(a, flag, len, err);
    return store(&t, value, err);
}

static tsr_status short_options(struct tsr_cli_args *a, char **argv, int argc, int *i,
                                struct tsr_err *err)
{
    for (const char *s = argv[*i] + 1; *s; s++) {
        struct target t;
        const char    given[] = { '-', *s, '\0' };
        if (!lookup(a, NULL, 0, *s, &t))
            return tsr_fail(err, TSR_E_INPUT, "unknown option '%s'; 'tessera help%s%s' lists them",
                            given, a->verb ? " " : "", a->verb ? a->verb->name : "");
        if (t.option->type == TSR_OPT_BOOL) {
            store_bool(&t, true);
            continue;
        }
        if (!s[1] && *i + 1 >= argc)
            return tsr_fail(err, TSR_E_INPUT, "%s needs a value", given);
        const char *value = s[1] ? s + 1 : argv[++*i];
        if (a->verb && a->verb->step && t.into == a->opts)
            return store_pair(a, t.option->name, strlen(t.option->name), value, err);
        return store(&t, value, err);
    }
    return TSR_OK;
}

static tsr_status take_verb(struct tsr_cli_args *a, const char *name, struct tsr_err *err)
{
    const char *near;
    a->verb = tsr_verb_find(name, &near);
    if (!a->verb && near)
        return tsr_fail(err, TSR_E_INPUT, "unknown verb '%s'; did you mean '%s'?", name, near);
    if (!a->verb)
        return tsr_fail(err, TSR_E_INPUT, "unknown verb '%s'; 'tessera help' lists them", name);
    uint64_t size = a->verb->step ? sizeof(struct tsr_cli_strings) : a->verb->options_size;
    a->opts = tsr_new(size ? size : 1, 1);
    if (!a->opts)
        return tsr_fail_nomem(err, size, "options");
    if (!a->verb->step) {
        struct tsr_config_optset set = { a->verb->options, a->verb->n_options,
                                         sizeof(struct tsr_option), a->opts };
        tsr_config_options_defaults(&set);
    }
    return TSR_OK;
}

/* Was the option given?  Required ones have no default, so a second look at argv decides. */
static bool given(const struct tsr_option *o, int argc, char **argv)
{
    char letter = tsr_cli_option_short(o->name);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *s = argv[i];
        if (s[0] != '-')
            continue;
        if (s[1] == '-' && same_name(o->name, s + 2, strcspn(s + 2, "=")))
            return true;
        if (letter && s[1] == letter)
            return true;
    }
    return false;
}

static tsr_status check(const struct tsr_cli_args *a, int argc, char **argv, struct tsr_err *err)
{
    const struct tsr_verb *v = a->verb;
    if (a->n_args < v->min_args)
        return tsr_fail(err, TSR_E_INPUT, "%s needs %s; 'tessera help %s' explains", v->name,
                        v->args ? v->args : "an argument", v->name);
    if (v->max_args >= 0 && a->n_args > v->max_args)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s does not know what to do with '%s'; its form is: "
                        "tessera %s%s%s",
                        v->name, a->args[v->max_args], v->name, v->args && *v->args ? " " : "",
                        v->args ? v->args : "");
    if (a->common.set.n && !v->jobs)
        return tsr_fail(err, TSR_E_INPUT, "--set overrides keys of a job; %s runs none", v->name);
    /* a step's may be among the --set */
    for (uint64_t i = 0; !(v->step && (v->step->open || a->common.set.n)) && i < v->n_options;
         i++) {
        char flag[80];
        if (!(v->options[i].flags & TSR_OPT_REQUIRED) || given(&v->options[i], argc, argv))
            continue;
        tsr_cli_option_flag(v->options[i].name, flag, sizeof flag);
        return tsr_fail(err, TSR_E_INPUT, "%s needs --%s: %s", v->name, flag, v->options[i].help);
    }
    return TSR_OK;
}

tsr_status tsr_cli_args_parse(struct tsr_cli_args *a, int argc, char **argv, struct tsr_err *err)
{
    memset(a, 0, sizeof *a);
    struct tsr_config_optset common = { tsr_common_options, tsr_n_common_options,
                                        sizeof(struct tsr_option), &a->common };
    tsr_config_options_defaults(&common);
    a->args = tsr_new((uint64_t)(argc > 0 ? argc : 1), sizeof *a->args);
    if (!a->args)
        return tsr_fail_nomem(err, (uint64_t)argc * sizeof *a->args, "the command line");
    bool only_args = false;
    for (int i = 1; i < argc; i++) {
        char *s = argv[i];
        if (!only_args && strcmp(s, "--") == 0)
            only_args = true;
        else if (!only_args && s[0] == '-' && s[1] == '-')
            TSR_TRY(long_option(a, argv, argc, &i, err));
        else if (!only_args && s[0] == '-' && s[1])
            TSR_TRY(short_options(a, argv, argc, &i, err));
        else if (!a->verb)
            TSR_TRY(take_verb(a, s, err));
        else
            a->args[a->n_args++] = s;
    }
    if (!a->verb || a->common.help || a->common.help_all || a->common.version)
        return TSR_OK;
    return check(a, argc, argv, err);
}

void tsr_cli_args_free(struct tsr_cli_args *a)
{
    if (a->opts && a->verb && a->verb->step) {
        struct tsr_cli_strings *s = a->opts;
        for (uint64_t i = 0; i < s->n; i++)
            free((void *)(uintptr_t)s->v[i]);
        free(s->v);
    } else if (a->opts && a->verb) {
        for (uint64_t i = 0; i < a->verb->n_options; i++) {
            struct tsr_cli_strings s;
            if (a->verb->options[i].type != TSR_OPT_REPEAT)
                continue;
            memcpy(&s, (char *)a->opts + a->verb->options[i].offset, sizeof s);
            free(s.v);
        }
    }
    free(a->common.plugin_path.v);
    free(a->common.family.v);
    free(a->common.set.v);
    free(a->opts);
    free(a->args);
    memset(a, 0, sizeof *a);
}
