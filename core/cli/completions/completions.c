#include "cli/completions/completions.h"

#include "config/names.h"

#include <string.h>

enum tsr_value_kind tsr_cli_completion_kind(const struct tsr_option *o)
{
    const char *word = tsr_cli_option_word(o);
    if (!*word)
        return TSR_CLI_VALUE_NONE;
    if (o->type == TSR_OPT_ENUM)
        return TSR_CLI_VALUE_CHOICE;
    if (strcmp(word, "FOLDER") == 0)
        return TSR_CLI_VALUE_FOLDER;
    return strstr(word, "FILE") || strstr(word, "MODEL") || strstr(word, "PATH")
               ? TSR_CLI_VALUE_FILE
               : TSR_CLI_VALUE_OTHER;
}

bool tsr_cli_completion_has(const struct tsr_verb *v, const struct tsr_option *o)
{
    if (o->replaced_by || strcmp(o->name, "version") == 0)
        return false;
    return strcmp(o->name, "set") != 0 || v->jobs;
}

void tsr_cli_completion_flag(const struct tsr_option *o, char *buf, size_t cap)
{
    char flag[80];
    tsr_cli_option_flag(o->name, flag, sizeof flag);
    (void)snprintf(buf, cap, "--%s%s", o->type == TSR_OPT_BOOL && o->def.i ? "no-" : "", flag);
}

static const char *other = "";

void tsr_cli_completion_other(const char *names)
{
    other = names;
}

void tsr_cli_completion_choices(const struct tsr_option *o, FILE *to)
{
    for (uint64_t i = 0; i < o->n_choices; i++)
        if (o->choices[i].value != TSR_CONFIG_OTHER)
            (void)fprintf(to, "%s%s", i ? " " : "", o->choices[i].name);
        else
            (void)fputs(other, to);
}

/* The next piece of `args` between blanks, bars and brackets: its length, or 0 at the end. */
static size_t next_piece(const char **s)
{
    static const char between[] = " |[]";
    *s += strspn(*s, between);
    return strcspn(*s, between);
}

bool tsr_cli_completion_word(const char **s, char *buf, size_t cap)
{
    size_t n;
    while ((n = next_piece(s)) > 0) {
        const char *piece = *s;
        *s += n;
        if (n < cap && strspn(piece, "abcdefghijklmnopqrstuvwxyz0123456789-") >= n) {
            memcpy(buf, piece, n);
            buf[n] = '\0';
            return true;
        }
    }
    return false;
}

static bool takes(const struct tsr_verb *v, const char *const *names)
{
    size_t n;
    for (const char *s = v->args ? v->args : ""; (n = next_piece(&s)) > 0; s += n)
        for (const char *const *name = names; *name; name++)
            if (strncmp(s, *name, strlen(*name)) == 0)
                return true;
    return false;
}

bool tsr_cli_completion_takes_verb(const struct tsr_verb *v)
{
    static const char *const names[] = { "VERB", NULL };
    return takes(v, names);
}

bool tsr_cli_completion_takes_files(const struct tsr_verb *v)
{
    static const char *const names[] = { "FILE",    "FOLDER", "MODEL", "JOB",
                                         "CLUSTER", "OUTPUT", "IN.",   NULL };
    return takes(v, names);
}
