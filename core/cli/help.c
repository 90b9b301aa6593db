#include "cli/help.h"

#include "cli/args.h"
#include "pipeline/pipeline.h"

#include <ctype.h>
#include <string.h>

#define WIDTH        80u /* of a terminal */
#define COLUMN       26u
#define USAGE_INDENT 15   /* of the text after the verb */
#define SOFT         110u /* a line of `details` up to this long continues in the next */
#define KEYS         24u  /* columns of a table's keys in `details` */

#define PURPOSE "plans, quantizes and runs LLMs on mixed hardware"

#define STR2(x) #x
#define STR(x)  STR2(x)

const char *tsr_cli_version_line(void)
{
    return "tessera " TSR_VERSION " (ABI " STR(TSR_ABI_MAJOR) "." STR(TSR_ABI_MINOR) ")";
}

const char *tsr_cli_option_word(const struct tsr_option *o)
{
    switch (o->type) {
    case TSR_OPT_BOOL:
        return "";
    case TSR_OPT_INT:
        return "N";
    case TSR_OPT_REAL:
        return "X";
    case TSR_OPT_ENUM:
        return "NAME";
    case TSR_OPT_NODE:
        return "YAML";
    default:
        return o->unit ? o->unit : "TEXT";
    }
}

/* "-o, --output FILE" */
static void option_form(const struct tsr_option *o, char *buf, size_t cap)
{
    char        flag[80], letter = tsr_cli_option_short(o->name);
    const char *word = tsr_cli_option_word(o);
    /* a switch that is on is one to switch off */
    const char *no = o->type == TSR_OPT_BOOL && o->def.i ? "no-" : "";
    tsr_cli_option_flag(o->name, flag, sizeof flag);
    if (letter)
        (void)snprintf(buf, cap, "-%c, --%s%s%s%s", letter, no, flag, *word ? " " : "", word);
    else
        (void)snprintf(buf, cap, "--%s%s%s%s", no, flag, *word ? " " : "", word);
}

/* "help (int 2..8, default 4 bits)" */
static void option_text(const struct tsr_option *o, char *buf, size_t cap)
{
    char what[400];
    what[0] = '\0';
    if (o->type != TSR_OPT_BOOL && o->type != TSR_OPT_REPEAT && o->type != TSR_OPT_NODE)
        tsr_config_option_describe(o, what, sizeof what);
    else if (o->type == TSR_OPT_NODE && (o->flags & TSR_OPT_REQUIRED))
        (void)snprintf(what, sizeof what, "required");
    if (strcmp(what, "string") == 0)
        what[0] = '\0';
    (void)snprintf(buf, cap, "%s%s%s%s%s%s", o->help ? o->help : "", *what ? " (" : "", what,
                   *what ? ")" : "", o->replaced_by ? "; deprecated, use " : "",
                   o->replaced_by ? o->replaced_by : "");
}

/* Prints words from column *col on and sets *col to the column after the last; further lines start at
 * `indent`. A word that is too long for a line is cut after a '|' or a ','. */
static void wrap(FILE *to, const char *s, size_t len, size_t indent, size_t *col)
{
    bool first = true;
    for (size_t i = 0; i < len;) {
        size_t n = 0, room;
        while (i + n < len && s[i + n] != ' ' && s[i + n] != '\n')
            n++;
        if (!first && *col > indent && *col + 1 + n > WIDTH) {
            (void)fprintf(to, "\n%*s", (int)indent, "");
            *col = indent;
        } else if (!first && n > 0) {
            (void)fputc(' ', to);
            ++*col;
        }
        room = WIDTH > *col ? WIDTH - *col : 0;
        size_t cut = n;
        for (size_t k = n > room ? room : 0; k > 0 && cut == n; k--)
            if (s[i + k - 1] == '|' || s[i + k - 1] == ',')
                cut = k;
        (void)fprintf(to, "%.*s", (int)cut, s + i);
        *col += cut;
        i += cut;
        first = cut < n;
        if (first) {
            (void)fprintf(to, "\n%*s", (int)indent, "");
            *col = indent;
        }
        while (i < len && (s[i] == ' ' || s[i] == '\n'))
            i++;
    }
}

static void wrap_line(FILE *to, const char *s, size_t len, size_t indent)
{
    size_t col = 0;
    wrap(to, s, len, indent, &col);
    (void)fputc('\n', to);
}

/* Two columns, the right one wrapped. */
static void columns(FILE *to, const char *left, const char *right)
{
    size_t at = strlen(left) + 2, col = COLUMN;
    (void)fprintf(to, "  %s", left);
    if (at + 2 > COLUMN) {
        (void)fputc('\n', to);
        at = 0;
    }
    (void)fprintf(to, "%*s", (int)(COLUMN - at), "");
    wrap(to, right, strlen(right), COLUMN, &col);
    (void)fputc('\n', to);
}

/* Where the text of a line "key   text" starts; 0: the line has no key. */
static size_t key_column(const char *s, size_t len)
{
    for (size_t i = 1; i < len && i < KEYS; i++) {
        size_t n = strspn(s + i, " ");
        if (n > 1 && i + n < len && *s != ' ' && !ispunct((unsigned char)s[i - 1]))
            return i + n;
    }
    return 0;
}

/* Length of the line at s, and where the next one starts. */
static size_t line_at(const char *s, const char **next)
{
    size_t len = strcspn(s, "\n");
    *next = s[len] ? s + len + 1 : s + len;
    return len;
}

/* `details` of a verb: lines with a key hang from their text's column, lines that start with a blank stay
 * unchanged, and all others are wrapped up to a line that ends early enough to end a paragraph. */
static void paragraphs(FILE *to, const char *s)
{
    const char *next, *more;
    for (; *s; s = next) {
        size_t len = line_at(s, &next), key = key_column(s, len), col = key;
        if (len == 0 || *s == ' ') {
            (void)fprintf(to, "%.*s\n", (int)len, s);
            continue;
        }
        (void)fprintf(to, "%.*s", (int)key, s);
        for (size_t last = len;;) {
            size_t longer = line_at(next, &more);
            bool   hangs = key > 0 && longer > key && strspn(next, " ") == key;
            bool   flows = key == 0 && last <= SOFT && longer > 0 && *next != ' ' &&
                         key_column(next, longer) == 0;
            if (!hangs && !flows)
                break;
            len = (size_t)(next - s) + longer;
            next = more;
            last = longer;
        }
        wrap(to, s + key, len - key, key, &col);
        (void)fputc('\n', to);
    }
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

void tsr_cli_help_program(FILE *to)
{
    (void)fprintf(to, "%s - " PURPOSE "\n\nusage: tessera VERB [OPTION...] [ARGUMENT...]\n",
                  tsr_cli_version_line());
    const struct tsr_verb_group *g;
    for (uint64_t i = 0; (g = tsr_verb_group_at(i)); i++) {
        (void)fprintf(to, "\n%s:\n", g->name);
        for (uint64_t k = 0; k < TSR_CLI_GROUP_VERBS && g->verbs[k]; k++) {
            const struct tsr_verb *v = tsr_verb_find(g->verbs[k], NULL);
            if (v)
                columns(to, v->name, v->summary);
        }
    }
    (void)fprintf(to, "\noptions of every verb:\n");
    options(to, tsr_common_options, tsr_n_common_options, NULL, false);
    (void)fprintf(
        to, "\n'tessera help VERB' explains one.  Results go to stdout, diagnostics to stderr.\n"
            "Exit codes: 0 ok, 1 failed, 2 bad input or usage, 3 infeasible, 4 out of memory\n"
            "or disk, 5 fail_if, 6 device or peer, 70 a bug of Tessera, 75 interrupted: the\n"
            "same command goes on.\n");
}

void tsr_cli_help_verb(const struct tsr_verb *v, bool all, FILE *to)
{
    size_t col;
    if (v->shown)
        v = v->shown;
    col = (size_t)fprintf(to, "usage: tessera %s%s", v->name, v->n_options ? " [OPTION...]" : "");
    if (v->args && *v->args) {
        if (col + 1 + strcspn(v->args, " ") > WIDTH)
            col = (size_t)fprintf(to, "\n%*s", USAGE_INDENT, "") - 1;
        else
            col += (size_t)fprintf(to, " ");
        wrap(to, v->args, strlen(v->args), USAGE_INDENT, &col);
    }
    (void)fputs("\n\n", to);
    char summary[200];
    (void)snprintf(summary, sizeof summary, "%s.", v->summary);
    wrap_line(to, summary, strlen(summary), 0);
    if (v->details) {
        (void)fputc('\n', to);
        paragraphs(to, v->details);
    }
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

void tsr_cli_man_page(const struct tsr_verb *v, FILE *to)
{
    if (v && v->shown)
        v = v->shown;
    (void)fprintf(to, ".TH TESSERA%s%s 1 \"\" \"%s\"\n.SH NAME\ntessera%s%s \\- ", v ? "\\-" : "",
                  v ? v->name : "", tsr_cli_version_line(), v ? "\\-" : "", v ? v->name : "");
    roff(to, v ? v->summary : PURPOSE);
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
