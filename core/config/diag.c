#include "config/doc.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_KEPT         200u /* errors beyond are only counted */
#define LINE_MAX_COLUMNS 100u
/* Bytes of a sentence with several errors; struct tsr_err_sent has 1024. */
#define SENTENCE_MAX 800u

/* Owns copies of everything, so that it can be printed when the doc is gone. */
struct item {
    struct tsr_config_diag_item view;
    char                       *file, *text, *hint, *line, *object;
    uint64_t                    order; /* files in order of first mention */
};

struct tsr_diag {
    struct item *items;
    uint64_t     n, cap, errors;
    bool         nomem;
};

void tsr_config_diag_nomem(struct tsr_diag *d)
{
    d->nomem = true;
}

tsr_status tsr_config_diag_create(struct tsr_diag **d, struct tsr_err *err)
{
    *d = tsr_new(1, sizeof **d);
    return *d ? TSR_OK : tsr_fail_nomem(err, sizeof **d, "diagnostics");
}

static void item_free(struct item *it)
{
    free(it->file);
    free(it->text);
    free(it->hint);
    free(it->line);
    free(it->object);
}

void tsr_config_diag_destroy(struct tsr_diag *d)
{
    if (!d)
        return;
    for (uint64_t i = 0; i < d->n; i++)
        item_free(&d->items[i]);
    free(d->items);
    free(d);
}

/* The line-th line of a source; breaks are LF, CR and CRLF as for libyaml. */
static char *source_line(const struct tsr_config_source *s, uint32_t line)
{
    const char *p = s->text, *end = s->text + s->len;
    for (uint32_t i = 1; i < line && p < end; i++) {
        while (p < end && *p != '\n' && *p != '\r')
            p++;
        if (p < end)
            p += p + 1 < end && p[0] == '\r' && p[1] == '\n' ? 2 : 1;
    }
    const char *q = p;
    while (q < end && *q != '\n' && *q != '\r')
        q++;
    return tsr_strndup(p, (size_t)(q - p));
}

static struct item *add(struct tsr_diag *d)
{
    if (d->n >= MAX_KEPT)
        return NULL;
    if (d->n == d->cap) {
        uint64_t     cap = d->cap ? 2 * d->cap : 8;
        struct item *v = tsr_renew(d->items, cap, sizeof *v);
        if (!v) {
            d->nomem = true;
            return NULL;
        }
        d->items = v;
        d->cap = cap;
    }
    struct item *it = &d->items[d->n];
    memset(it, 0, sizeof *it);
    return it;
}

/* tsr_fail() with a va_list. */
static void write_text(struct tsr_err *err, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    (void)vsnprintf(err->text, err->cap, fmt, ap);
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    tsr_err_find_object_(err, fmt, again);
    va_end(again);
}

static void record(struct tsr_diag *d, const struct tsr_config_mark *at, const char *hint,
                   bool warning, const struct tsr_err *why)
{
    const char *object;
    uint32_t    n = tsr_err_object(why, &object);
    if (!warning)
        d->errors++;
    struct item *it = add(d);
    if (!it)
        return;
    const struct tsr_config_source *s = at ? at->source : NULL;
    it->text = tsr_strdup(why->text);
    it->object = n ? tsr_strndup(object, n) : NULL;
    it->file = tsr_strdup(s ? s->name : "");
    it->hint = hint && *hint ? tsr_strdup(hint) : NULL;
    it->line = s ? source_line(s, at->line) : NULL;
    if (!it->text || !it->file || (hint && *hint && !it->hint) || (s && !it->line) ||
        (n && !it->object)) {
        item_free(it);
        d->nomem = true;
        return;
    }
    it->view = (struct tsr_config_diag_item){
        .file = it->file,
        .text = it->text,
        .hint = it->hint,
        .object = it->object,
        .line_text = it->line,
        .line = s ? at->line : 0,
        .column = s ? at->column : 0,
        .length = s ? at->length : 0,
        .warning = warning,
        .argument = s && s->argument,
    };
    it->order = d->n;
    for (uint64_t i = 0; i < d->n; i++)
        if (strcmp(d->items[i].file, it->file) == 0) {
            it->order = d->items[i].order;
            break;
        }
    d->n++;
}

void tsr_config_diag_error(struct tsr_diag *d, const struct tsr_config_mark *at, const char *hint,
                           const char *fmt, ...)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    va_list           ap;
    va_start(ap, fmt);
    write_text(&e.err, fmt, ap);
    va_end(ap);
    record(d, at, hint, false, &e.err);
}

void tsr_config_diag_failure(struct tsr_diag *d, const struct tsr_config_mark *at,
                             const struct tsr_err *why)
{
    record(d, at, NULL, false, why);
}

void tsr_config_diag_warning(struct tsr_diag *d, const struct tsr_config_mark *at, const char *hint,
                             const char *fmt, ...)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    va_list           ap;
    va_start(ap, fmt);
    write_text(&e.err, fmt, ap);
    va_end(ap);
    record(d, at, hint, true, &e.err);
}

uint64_t tsr_config_diag_errors(const struct tsr_diag *d)
{
    return d->errors;
}

static bool before(const struct item *a, const struct item *b)
{
    if (a->order != b->order)
        return a->order < b->order;
    if (a->view.line != b->view.line)
        return a->view.line < b->view.line;
    return a->view.column < b->view.column;
}

/* Insertion sort: few items, mostly in order, and equal places keep theirs. */
static void sort(struct tsr_diag *d)
{
    for (uint64_t i = 1; i < d->n; i++) {
        struct item it = d->items[i];
        uint64_t    j = i;
        for (; j > 0 && before(&it, &d->items[j - 1]); j--)
            d->items[j] = d->items[j - 1];
        d->items[j] = it;
    }
}

bool tsr_config_diag_at(struct tsr_diag *d, uint64_t i, struct tsr_config_diag_item *item)
{
    if (i == 0)
        sort(d);
    if (i >= d->n)
        return false;
    *item = d->items[i].view;
    return true;
}

/* One character of a line; what could move the cursor becomes '?'. */
static size_t show(FILE *to, const char *s, int *width)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &c);
    *width = 1;
    if (n <= 0 || c < 0x20 || c == 0x7f || (c >= 0x80 && c < 0xa0)) {
        if (to)
            (void)fputc(c == '\t' && n > 0 ? ' ' : '?', to);
        return 1;
    }
    *width = utf8proc_charwidth(c);
    if (to)
        (void)fwrite(s, 1, (size_t)n, to);
    return (size_t)n;
}

static void print_source(const struct tsr_config_diag_item *v, FILE *to, bool colour)
{
    char        number[16] = "";
    const char *s = v->line_text;
    uint32_t    first = v->column > LINE_MAX_COLUMNS - 30 ? v->column - 40 : 1, col = 1;
    int         width, pad = 0;
    if (!v->argument)
        (void)snprintf(number, sizeof number, "%u", v->line);
    (void)fprintf(to, "%5s | %s", number, first > 1 ? "..." : "");
    for (; *s && col < first; col++)
        s += show(NULL, s, &width);
    if (first > 1)
        pad = 3;
    for (; *s && col < first + LINE_MAX_COLUMNS; col++) {
        s += show(to, s, &width);
        if (col < v->column)
            pad += width;
    }
    (void)fprintf(to, "%s\n      | %*s%s^", *s ? "..." : "", pad, "", colour ? "\033[1;32m" : "");
    for (uint32_t i = 1; i < v->length && v->column + i < first + LINE_MAX_COLUMNS; i++)
        (void)fputc('~', to);
    (void)fprintf(to, "%s%s%s\n", colour ? "\033[0m" : "", v->hint ? " " : "",
                  v->hint ? v->hint : "");
}

void tsr_config_diag_print(struct tsr_diag *d, FILE *to, bool colour)
{
    struct tsr_config_diag_item v;
    for (uint64_t i = 0; tsr_config_diag_at(d, i, &v); i++) {
        const char *word = v.warning ? "warning" : "error";
        const char *on = !colour ? "" : v.warning ? "\033[1;35m" : "\033[1;31m";
        if (v.argument || !v.line_text)
            (void)fprintf(to, "%s%s", v.file, *v.file ? ": " : "");
        else
            (void)fprintf(to, "%s:%u:%u: ", v.file, v.line, v.column);
        (void)fprintf(to, "%s%s:%s %s%s%s\n", on, word, colour ? "\033[0m" : "", v.text,
                      !v.line_text && v.hint ? "; " : "", !v.line_text && v.hint ? v.hint : "");
        if (v.line_text)
            print_source(&v, to, colour);
    }
    if (d->errors > MAX_KEPT)
        (void)fprintf(to, "and %llu more\n", (unsigned long long)(d->errors - MAX_KEPT));
}

/* The first error after `last` in the order of printing; NULL for last: the first of all. */
static const struct item *next_error(const struct tsr_diag *d, const struct item *last)
{
    const struct item *next = NULL;
    for (uint64_t i = 0; i < d->n; i++) {
        const struct item *it = &d->items[i];
        bool passed = last && (it == last || before(it, last) || (!before(last, it) && it < last));
        if (!it->view.warning && !passed && (!next || before(it, next)))
            next = it;
    }
    return next;
}

/* "FILE:LINE:COLUMN: text; hint" */
static tsr_status fail_of(const struct tsr_config_diag_item *v, struct tsr_err *err)
{
    const char *semi = v->hint ? "; " : "", *hint = v->hint ? v->hint : "";
    if (!v->line_text || v->argument)
        return tsr_fail(err, TSR_E_INPUT, "%s%s%s%s%s", v->file, *v->file ? ": " : "", v->text,
                        semi, hint);
    return tsr_fail(err, TSR_E_INPUT, "%s:%u:%u: %s%s%s", v->file, v->line, v->column, v->text,
                    semi, hint);
}

tsr_status tsr_config_diag_status(const struct tsr_diag *d, struct tsr_err *err)
{
    if (d->nomem)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: diagnostics");
    if (d->errors == 0)
        return TSR_OK;
    const struct item *it = next_error(d, NULL);
    if (!it) /* after 200 warnings */
        return tsr_fail(err, TSR_E_INPUT, "%llu errors", (unsigned long long)d->errors);
    tsr_status st = fail_of(&it->view, err);
    uint64_t   rest = d->errors - 1;
    while (rest > 0 && err && err->cap && (it = next_error(d, it))) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        (void)fail_of(&it->view, &e.err);
        if (strlen(err->text) + strlen(e.text) > SENTENCE_MAX)
            break;
        (void)tsr_err_append(err, st, "; and %s", e.text);
        rest--;
    }
    return rest == 0 ? st
                     : tsr_err_append(err, st, "; and %llu more error%s", (unsigned long long)rest,
                                      rest == 1 ? "" : "s");
}

void tsr_config_mark_text(const struct tsr_config_mark *m, char *buf, size_t cap)
{
    if (!m->source)
        (void)snprintf(buf, cap, "default");
    else if (m->source->argument)
        (void)snprintf(buf, cap, "%s", m->source->name);
    else
        (void)snprintf(buf, cap, "%s:%u", m->source->name, m->line);
}
