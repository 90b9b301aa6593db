#include "cli/help.h"

#include "cli/args.h"
#include "pipeline/pipeline.h"

#include <string.h>

#define WIDTH  88
#define COLUMN 26

#define STR2(x) #x
#define STR(x)  STR2(x)

const char *tsr_version_line(void)
{
    return "tessera " TSR_VERSION " (ABI " STR(TSR_ABI_MAJOR) "." STR(TSR_ABI_MINOR) " draft)";
}

/* "-o, --output STRING" */
static void option_form(const struct tsr_option *o, char *buf, size_t cap)
{
    char        flag[80], letter = tsr_option_short(o->name);
    const char *value = "";
    /* a switch that is on is one to switch off */
    const char *no = o->type == TSR_OPT_BOOL && o->def.i ? "no-" : "";
    tsr_option_flag(o->name, flag, sizeof flag);
    switch (o->type) {
    case TSR_OPT_INT:
        value = " N";
        break;
    case TSR_OPT_REAL:
        value = " X";
        break;
    case TSR_OPT_ENUM:
        value = " NAME";
        break;
    case TSR_OPT_STRING:
        value = strcmp(o->name, "output") == 0 || strcmp(o->name, "input") == 0 ? " FILE" : " TEXT";
        break;
    case TSR_OPT_NODE:
        value = " YAML";
        break;
    case TSR_OPT_REPEAT:
        value = NULL;
        break;
    default:
        break;
    }
    char own[40];
    if (!value) {
        (void)snprintf(own, sizeof own, " %s", o->unit ? o->unit : "TEXT");
        value = own;
    }
    if (letter)
        (void)snprintf(buf, cap, "-%c, --%s%s%s", letter, no, flag, value);
    else
        (void)snprintf(buf, cap, "--%s%s%s", no, flag, value);
}

/* "help (int 2..8, default 4 bits)" */
static void option_text(const struct tsr_option *o, char *buf, size_t cap)
{
    char what[400];
    what[0] = '\0';
    if (o->type != TSR_OPT_BOOL && o->type != TSR_OPT_REPEAT && o->type != TSR_OPT_NODE)
        tsr_option_describe(o, what, sizeof what);
    else if (o->type == TSR_OPT_NODE && (o->flags & TSR_OPT_REQUIRED))
        (void)snprintf(what, sizeof what, "required");
    if (strcmp(what, "string") == 0)
        what[0] = '\0';
    (void)snprintf(buf, cap, "%s%s%s%s%s%s", o->help ? o->help : "", *what ? " (" : "", what,
                   *what ? ")" : "", o->replaced_by ? "; deprecated, use " : "",
                   o->replaced_by ? o->replaced_by : "");
}

/* Two columns, the right one wrapped. */
static void columns(FILE *to, const char *left, const char *right)
{
    size_t at = strlen(left) + 2;
    (void)fprintf(to, "  %s", left);
    if (at + 2 > COLUMN) {
        (void)fputc('\n', to);
        at = 0;
    }
    (void)fprintf(to, "%*s", (int)(COLUMN - at), "");
    size_t col = COLUMN;
    for (const char *s = right; *s;) {
        size_t n = strcspn(s, " ");
        if (col > COLUMN && col + n + 1 > WIDTH) {
            (void)fprintf(to, "\n%*s", COLUMN, "");
            col = COLUMN;
        } else if (col > COLUMN) {
            (void)fputc(' ', to);
            col++;
        }
        (void)fprintf(to, "%.*s", (int)n, s);
        col += n;
        s += n;
        while (*s == ' ')
            s++;
    }
    (void)fputc('\n', to);
}

static bool shown(const struct tsr_option *o, const struct tsr_verb *v, bool all)
{
    if (!all && (o->flags & TSR_OPT_ADVANCED))
        return false;
    if (v && strcmp(o->name, "set") == 0 && !v->jobs)
        return false;
    return !(v && strcmp(o->name, "version") == 0);
}

static void options(FILE *to, const struct tsr_option *o, uint64_t n, const struct tsr_verb *v,
                    bool all)
{
    for (uint64_t i = 0; i < n; i++) {
        char left[160], right[1200];
        if (!shown(&o[i], v, all))
            continue;
        option_form(&o[i], left, sizeof left);
        option_text(&o[i], right, sizeof right);
        columns(to, left, right);
    }
}

void tsr_help_program(FILE *to)
{
    (void)fprintf(to,
                  "%s - plans, quantizes and runs language models on the machines there are\n\n"
                  "usage: tessera VERB [OPTION...] [ARGUMENT...]\n\nverbs:\n",
                  tsr_version_line());
    const struct tsr_verb *v;
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++)
        columns(to, v->name, v->summary);
    (void)fprintf(to, "\noptions of every verb:\n");
    options(to, tsr_common_options, tsr_n_common_options, NULL, false);
    (void)fprintf(to, "\n'tessera help VERB' explains one.  Data goes to standard output, talk to "
                      "standard error.\n"
                      "Exit codes: 0 ok, 1 failed, 2 bad input or usage, 3 infeasible, 4 out of "
                      "memory or\ndisk, 5 fail_if, 6 device or peer, 70 a bug of ours, 75 "
                      "interrupted: run again to go on.\n");
}

void tsr_help_verb(const struct tsr_verb *v, bool all, FILE *to)
{
    (void)fprintf(to, "usage: tessera %s%s%s%s\n\n%s.\n", v->name,
                  v->n_options ? " [OPTION...]" : "", v->args && *v->args ? " " : "",
                  v->args ? v->args : "", v->summary);
    if (v->details)
        (void)fprintf(to, "\n%s%s", v->details,
                      *v->details && v->details[strlen(v->details) - 1] == '\n' ? "" : "\n");
    if (v->n_options) {
        (void)fprintf(to, "\noptions:\n");
        options(to, v->options, v->n_options, v, all);
    }
    (void)fprintf(to, "\noptions of every verb:\n");
    options(to, tsr_common_options, tsr_n_common_options, v, all);
}

/* ---- man(7) -------------------------------------------------------------- */

static void roff(FILE *to, const char *s)
{
    bool start = true;
    for (; *s; s++) {
        if (start && (*s == '.' || *s == '\''))
            (void)fputs("\\&", to);
        start = *s == '\n';
        if (*s == '\\')
            (void)fputs("\\e", to);
        else if (*s == '-')
            (void)fputs("\\-", to);
        else
            (void)fputc(*s, to);
    }
}

static void roff_options(FILE *to, const struct tsr_option *o, uint64_t n, const struct tsr_verb *v)
{
    for (uint64_t i = 0; i < n; i++) {
        char left[160], right[1200];
        if (!shown(&o[i], v, true))
            continue;
        option_form(&o[i], left, sizeof left);
        option_text(&o[i], right, sizeof right);
        (void)fputs(".TP\n.B ", to);
        roff(to, left);
        (void)fputc('\n', to);
        roff(to, right);
        (void)fputc('\n', to);
        for (uint64_t k = 0; k < o[i].n_choices; k++) {
            if (!o[i].choices[k].help)
                continue;
            (void)fputs(".br\n\\fI", to);
            roff(to, o[i].choices[k].name);
            (void)fputs("\\fR: ", to);
            roff(to, o[i].choices[k].help);
            (void)fputc('\n', to);
        }
    }
}

void tsr_man_page(const struct tsr_verb *v, FILE *to)
{
    (void)fprintf(to, ".TH TESSERA%s%s 1 \"\" \"%s\"\n.SH NAME\ntessera%s%s \\- ", v ? "\\-" : "",
                  v ? v->name : "", tsr_version_line(), v ? "\\-" : "", v ? v->name : "");
    roff(to,
         v ? v->summary : "plans, quantizes and runs language models on the machines there are");
    (void)fputs("\n.SH SYNOPSIS\n.B tessera ", to);
    roff(to, v ? v->name : "VERB");
    (void)fputs("\n[OPTION...] ", to);
    roff(to, v ? (v->args ? v->args : "") : "[ARGUMENT...]");
    (void)fputc('\n', to);
    if (v && v->details) {
        (void)fputs(".SH DESCRIPTION\n.nf\n", to);
        roff(to, v->details);
        (void)fputs("\n.fi\n", to);
    }
    if (!v) {
        const struct tsr_verb *w;
        (void)fputs(".SH VERBS\n", to);
        for (uint64_t i = 0; (w = tsr_verb_at(i)); i++) {
            (void)fprintf(to, ".TP\n.B %s\n", w->name);
            roff(to, w->summary);
            (void)fputc('\n', to);
        }
    }
    if (v && v->n_options) {
        (void)fputs(".SH OPTIONS\n", to);
        roff_options(to, v->options, v->n_options, v);
    }
    (void)fputs(".SH COMMON OPTIONS\n", to);
    roff_options(to, tsr_common_options, tsr_n_common_options, v);
    (void)fputs(".SH EXIT STATUS\n", to);
    static const char *const codes[][2] = {
        { "0", "ok" },
        { "1", "the run failed" },
        { "2", "bad input or usage" },
        { "3", "infeasible, or does not fit" },
        { "4", "out of memory or disk" },
        { "5", "fail_if holds" },
        { "6", "device, transport or peer" },
        { "70", "a bug of Tessera" },
        { "75", "interrupted; the same command goes on" },
        { "130", "interrupted twice" },
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        (void)fprintf(to, ".TP\n.B %s\n%s\n", codes[i][0], codes[i][1]);
    (void)fputs(".SH ENVIRONMENT\nTSR_LOG (debug, info, warn), TSR_ISA, NO_COLOR.\n", to);
}
