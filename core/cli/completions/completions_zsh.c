/* tessera help --completions zsh */
#include "cli/completions/completions.h"

#include <string.h>

/* Inside '...' of the shell; a backslash before the special characters of _arguments and _describe. */
static void quoted(FILE *to, const char *s, const char *special)
{
    for (; *s; s++) {
        if (*s == '\'')
            (void)fputs("'\\''", to);
        else
            (void)fprintf(to, "%s%c", strchr(special, *s) ? "\\" : "", *s);
    }
}

static void option_of(FILE *to, const struct tsr_option *o)
{
    enum tsr_value_kind kind = tsr_cli_completion_kind(o);
    char                flag[90], letter = tsr_cli_option_short(o->name);
    bool                many = o->type == TSR_OPT_REPEAT || strcmp(o->name, "verbose") == 0;
    tsr_cli_completion_flag(o, flag, sizeof flag);
    (void)fputs(" \\\n        ", to);
    if (letter && many)
        (void)fprintf(to, "'*'{-%c,%s}", letter, flag);
    else if (letter)
        (void)fprintf(to, "'(-%c %s)'{-%c,%s%s}", letter, flag, letter, flag,
                      kind == TSR_CLI_VALUE_NONE ? "" : "=");
    else
        (void)fprintf(to, "%s%s%s", many ? "'*'" : "", flag, kind == TSR_CLI_VALUE_NONE ? "" : "=");
    (void)fputs("'[", to);
    quoted(to, o->help ? o->help : "", "[]:\\");
    (void)fputs("]", to);
    if (kind != TSR_CLI_VALUE_NONE) {
        (void)fputs(":", to);
        quoted(to, tsr_cli_option_word(o), "[]:\\");
        (void)fputs(":", to);
    }
    if (kind == TSR_CLI_VALUE_CHOICE) {
        (void)fputs("(", to);
        tsr_cli_completion_choices(o, to);
        (void)fputs(")", to);
    } else if (kind == TSR_CLI_VALUE_FILE || kind == TSR_CLI_VALUE_FOLDER) {
        (void)fprintf(to, "_files%s", kind == TSR_CLI_VALUE_FOLDER ? " -/" : "");
    }
    (void)fputs("'", to);
}

static void arguments_of(FILE *to, const struct tsr_verb *v)
{
    char        word[40];
    const char *s = v->args ? v->args : "";
    if (!*s)
        return;
    (void)fputs(" \\\n        '*:argument:{", to);
    if (tsr_cli_completion_takes_verb(v))
        (void)fputs(" _describe -t verbs verb verbs;", to);
    if (tsr_cli_completion_word(&s, word, sizeof word)) {
        (void)fprintf(to, " compadd -- %s", word);
        while (tsr_cli_completion_word(&s, word, sizeof word))
            (void)fprintf(to, " %s", word);
        (void)fputs(";", to);
    }
    if (tsr_cli_completion_takes_files(v))
        (void)fputs(" _files;", to);
    (void)fputs(" }'", to);
}

void tsr_cli_completions_zsh(FILE *to)
{
    const struct tsr_verb *v;
    (void)fputs("#compdef tessera\n"
                "# zsh completion of tessera, printed by: tessera help --completions zsh\n"
                "_tessera() {\n"
                "    local -a verbs=(\n",
                to);
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        (void)fprintf(to, "        '%s:", v->name);
        quoted(to, v->summary, ":\\");
        (void)fputs("'\n", to);
    }
    (void)fputs("    )\n"
                "    if (( CURRENT == 2 )); then\n"
                "        _describe -t verbs verb verbs\n"
                "        return\n"
                "    fi\n"
                "    local verb=$words[2]\n"
                "    shift words\n"
                "    (( CURRENT-- ))\n"
                "    case $verb in\n",
                to);
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        (void)fprintf(to, "    %s)\n        _arguments -s", v->name);
        for (uint64_t k = 0; k < v->n_options; k++)
            if (tsr_cli_completion_has(v, &v->options[k]))
                option_of(to, &v->options[k]);
        for (uint64_t k = 0; k < tsr_n_common_options; k++)
            if (tsr_cli_completion_has(v, &tsr_common_options[k]))
                option_of(to, &tsr_common_options[k]);
        arguments_of(to, v);
        (void)fputs("\n        ;;\n", to);
    }
    (void)fputs("    esac\n"
                "}\n"
                "_tessera \"$@\"\n",
                to);
}
