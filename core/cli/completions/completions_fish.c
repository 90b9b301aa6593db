/* tessera help --completions fish */
#include "cli/completions/completions.h"

#include <string.h>

static void quoted(FILE *to, const char *s)
{
    (void)fputc('\'', to);
    for (; *s; s++)
        (void)fprintf(to, "%s%c", *s == '\'' || *s == '\\' ? "\\" : "", *s);
    (void)fputc('\'', to);
}

static void option_of(FILE *to, const struct tsr_verb *v, const struct tsr_option *o)
{
    char flag[90], letter = tsr_cli_option_short(o->name);
    tsr_cli_completion_flag(o, flag, sizeof flag);
    (void)fprintf(to, "complete -c tessera -n '__fish_seen_subcommand_from %s' -l %s", v->name,
                  flag + 2);
    if (letter)
        (void)fprintf(to, " -s %c", letter);
    switch (tsr_cli_completion_kind(o)) {
    case TSR_CLI_VALUE_CHOICE:
        (void)fputs(" -x -a '", to);
        tsr_cli_completion_choices(o, to);
        (void)fputs("'", to);
        break;
    case TSR_CLI_VALUE_FILE:
        (void)fputs(" -r -F", to);
        break;
    case TSR_CLI_VALUE_FOLDER:
        (void)fputs(" -x -a '(__fish_complete_directories)'", to);
        break;
    case TSR_CLI_VALUE_OTHER:
        (void)fputs(" -x", to);
        break;
    default:
        break;
    }
    (void)fputs(" -d ", to);
    quoted(to, o->help ? o->help : "");
    (void)fputc('\n', to);
}

static void arguments_of(FILE *to, const struct tsr_verb *v)
{
    char        word[40];
    const char *s = v->args ? v->args : "", *gap = "";
    (void)fprintf(to, "complete -c tessera -n '__fish_seen_subcommand_from %s'%s", v->name,
                  tsr_cli_completion_takes_files(v) ? " -F" : " -f");
    (void)fputs(" -a '", to);
    while (tsr_cli_completion_word(&s, word, sizeof word)) {
        (void)fprintf(to, "%s%s", gap, word);
        gap = " ";
    }
    const struct tsr_verb *other;
    for (uint64_t i = 0; tsr_cli_completion_takes_verb(v) && (other = tsr_verb_at(i)); i++)
        (void)fprintf(to, "%s%s", i ? " " : "", other->name);
    (void)fputs("'\n", to);
}

void tsr_cli_completions_fish(FILE *to)
{
    const struct tsr_verb *v;
    (void)fputs("# fish completion of tessera, printed by: tessera help --completions fish\n"
                "complete -c tessera -n __fish_use_subcommand -f\n",
                to);
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        (void)fprintf(to, "complete -c tessera -n __fish_use_subcommand -a %s -d ", v->name);
        quoted(to, v->summary);
        (void)fputc('\n', to);
    }
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        arguments_of(to, v);
        for (uint64_t k = 0; k < v->n_options; k++)
            if (tsr_cli_completion_has(v, &v->options[k]))
                option_of(to, v, &v->options[k]);
        for (uint64_t k = 0; k < tsr_n_common_options; k++)
            if (tsr_cli_completion_has(v, &tsr_common_options[k]))
                option_of(to, v, &tsr_common_options[k]);
    }
}
