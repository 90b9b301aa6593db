/* tessera help --completions bash */
#include "cli/completions/completions.h"

/* A pattern for "VERB FLAG"; verb NULL: any. */
static void pattern(FILE *to, const char *verb, const char *flag)
{
    if (verb)
        (void)fprintf(to, "'%s %s'", verb, flag);
    else
        (void)fprintf(to, "*' %s'", flag);
}

static void values_of(FILE *to, const char *verb, const struct tsr_option *o)
{
    static const char *const kinds[] = { [TSR_CLI_VALUE_FILE] = "file",
                                         [TSR_CLI_VALUE_FOLDER] = "folder",
                                         [TSR_CLI_VALUE_OTHER] = "value" };
    enum tsr_value_kind      kind = tsr_cli_completion_kind(o);
    char                     flag[90], letter[] = { '-', tsr_cli_option_short(o->name), '\0' };
    if (kind == TSR_CLI_VALUE_NONE)
        return;
    tsr_cli_completion_flag(o, flag, sizeof flag);
    (void)fputs("    ", to);
    pattern(to, verb, flag);
    if (letter[1]) {
        (void)fputs(" | ", to);
        pattern(to, verb, letter);
    }
    if (kind == TSR_CLI_VALUE_CHOICE) {
        (void)fputs(") words='", to);
        tsr_cli_completion_choices(o, to);
        (void)fputs("' kind='words' ;;\n", to);
    } else {
        (void)fprintf(to, ") kind='%s' ;;\n", kinds[kind]);
    }
}

static void flags_of(FILE *to, const struct tsr_verb *v, const struct tsr_option *o, uint64_t n)
{
    char flag[90];
    for (uint64_t i = 0; i < n; i++)
        if (tsr_cli_completion_has(v, &o[i])) {
            tsr_cli_completion_flag(&o[i], flag, sizeof flag);
            (void)fprintf(to, " %s", flag);
        }
}

static void verb_names(FILE *to)
{
    const struct tsr_verb *v;
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++)
        (void)fprintf(to, "%s%s", i ? " " : "", v->name);
}

static void arguments_of(FILE *to, const struct tsr_verb *v)
{
    char        word[40];
    const char *s = v->args ? v->args : "", *gap = "";
    (void)fprintf(to, "        %s) words='", v->name);
    while (tsr_cli_completion_word(&s, word, sizeof word)) {
        (void)fprintf(to, "%s%s", gap, word);
        gap = " ";
    }
    if (tsr_cli_completion_takes_verb(v))
        verb_names(to);
    (void)fprintf(to, "'%s ;;\n", tsr_cli_completion_takes_files(v) ? " kind='file'" : "");
}

static void find_verb(FILE *to)
{
    (void)fputs("    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        case ${COMP_WORDS[i]} in\n"
                "        ",
                to);
    const char *gap = "";
    char        flag[90];
    for (uint64_t i = 0; i < tsr_n_common_options; i++)
        if (tsr_cli_completion_kind(&tsr_common_options[i]) != TSR_CLI_VALUE_NONE) {
            tsr_cli_completion_flag(&tsr_common_options[i], flag, sizeof flag);
            (void)fprintf(to, "%s%s", gap, flag);
            gap = " | ";
        }
    (void)fputs(")\n"
                "            [ \"${COMP_WORDS[i + 1]}\" != = ] || i=$((i + 1))\n"
                "            i=$((i + 1))\n"
                "            ;;\n"
                "        -* | =) ;;\n"
                "        *) verb=${COMP_WORDS[i]}; break ;;\n"
                "        esac\n"
                "    done\n",
                to);
}

void tsr_cli_completions_bash(FILE *to)
{
    const struct tsr_verb *v;
    (void)fputs("# bash completion of tessera, printed by: tessera help --completions bash\n"
                "_tessera() {\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                "    local verb='' words='' kind='' i\n"
                "    COMPREPLY=()\n"
                "    # --flag=value is three words here\n"
                "    if [ \"$cur\" = = ]; then\n"
                "        cur=''\n"
                "    elif [ \"$prev\" = = ]; then\n"
                "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                "    fi\n",
                to);
    find_verb(to);
    (void)fputs("    # what the option in front of the cursor takes\n"
                "    case \"$verb $prev\" in\n",
                to);
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++)
        for (uint64_t k = 0; k < v->n_options; k++)
            if (tsr_cli_completion_has(v, &v->options[k]))
                values_of(to, v->name, &v->options[k]);
    for (uint64_t k = 0; k < tsr_n_common_options; k++)
        values_of(to, NULL, &tsr_common_options[k]);
    (void)fputs("    esac\n"
                "    if [ -n \"$kind\" ]; then\n"
                "        :\n"
                "    elif [[ $cur == -* ]]; then\n"
                "        case $verb in\n",
                to);
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        (void)fprintf(to, "        %s) words='", v->name);
        flags_of(to, v, v->options, v->n_options);
        flags_of(to, v, tsr_common_options, tsr_n_common_options);
        (void)fputs("' ;;\n", to);
    }
    (void)fputs("        '') words='--help --version' ;;\n"
                "        esac\n"
                "    elif [ -z \"$verb\" ]; then\n"
                "        words='",
                to);
    verb_names(to);
    (void)fputs("'\n"
                "    else\n"
                "        case $verb in\n",
                to);
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++)
        arguments_of(to, v);
    (void)fputs(
        "        esac\n"
        "    fi\n"
        "    [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
        "    case $kind in\n"
        "    file | folder)\n"
        "        compopt -o filenames 2>/dev/null || :\n"
        "        if [ \"$kind\" = folder ]; then i=-d; else i=-f; fi\n"
        "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen \"$i\" -- \"$cur\")\n"
        "        ;;\n"
        "    esac\n"
        "}\n"
        "complete -F _tessera tessera\n",
        to);
}
