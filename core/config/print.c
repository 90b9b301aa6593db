#include "config/doc.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void quoted(const char *s, FILE *to)
{
    (void)fputc('"', to);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            (void)fprintf(to, "\\%c", c);
        else if (c == '\n')
            (void)fputs("\\n", to);
        else if (c == '\t')
            (void)fputs("\\t", to);
        else if (c < 0x20 || c == 0x7f)
            (void)fprintf(to, "\\x%02x", c);
        else if (c == 0xc2 && (unsigned char)s[1] < 0xa0) /* C1 controls */
            (void)fprintf(to, "\\x%02x", (unsigned char)*++s);
        else if (c == 0xe2 && (unsigned char)s[1] == 0x80 && ((unsigned char)s[2] & 0xfe) == 0xa8) {
            (void)fprintf(to, "\\u20%02x", (unsigned char)s[2] - 0x80); /* line separators */
            s += 2;
        } else if (c == 0xef && (unsigned char)s[1] == 0xbb && (unsigned char)s[2] == 0xbf) {
            (void)fputs("\\ufeff", to);
            s += 2;
        } else if (c == 0xef && (unsigned char)s[1] == 0xbf && (unsigned char)s[2] >= 0xbe) {
            (void)fprintf(to, "\\uff%02x", (unsigned char)s[2] + 0x40); /* U+FFFE, U+FFFF */
            s += 2;
        } else {
            (void)fputc(c, to);
        }
    }
    (void)fputc('"', to);
}

/* A plain scalar was plain in its source; only line breaks and a few characters that are special at
 * the start of a block line need care. */
static void scalar(const struct tsr_config_node *n, FILE *to)
{
    if (n->quoted || strpbrk(n->text, "\n\t#:") || strchr("-?!&*|>%@`[]{},\"'", n->text[0])) {
        /* numbers such as -1 are unchanged */
        bool number = !n->quoted && n->text[0] == '-' &&
                      strspn(n->text + 1, "0123456789.eE+-") == strlen(n->text + 1) && n->text[1];
        if (!number) {
            quoted(n->text, to);
            return;
        }
    }
    (void)fputs(n->text, to);
}

/* Drops the part of a character at the end of a text that was cut off. */
static void end_whole(char *text)
{
    size_t n = strlen(text), lead = n;
    while (lead && ((unsigned char)text[lead - 1] & 0xc0) == 0x80)
        lead--;
    if (!lead)
        return;
    unsigned char c = (unsigned char)text[lead - 1];
    size_t        whole = c < 0x80 ? 1u : c < 0xe0 ? 2u : c < 0xf0 ? 3u : 4u;
    if (n - (lead - 1) < whole)
        text[lead - 1] = '\0';
}

static void origin_of(const struct tsr_config_node *n, FILE *to, bool origin)
{
    if (origin) {
        char text[300];
        tsr_config_mark_text(&n->mark, text, sizeof text);
        end_whole(text);
        for (char *c = text; *c; c++)
            if ((unsigned char)*c < 0x20)
                *c = ' ';
        (void)fprintf(to, "  # %s", text);
    }
    (void)fputc('\n', to);
}

static void value(const struct tsr_config_node *n, FILE *to, bool origin, unsigned indent,
                  bool inline_map, unsigned depth);

static void map(const struct tsr_config_node *n, FILE *to, bool origin, unsigned indent,
                bool inline_map, unsigned depth)
{
    for (uint64_t i = 0; i < n->n; i++) {
        if (i > 0 || !inline_map)
            (void)fprintf(to, "%*s", (int)indent, "");
        scalar(n->keys[i], to);
        (void)fputc(':', to);
        value(n->items[i], to, origin, indent + 2, false, depth + 1);
    }
}

/* After "key:" or "-": a scalar on the same line, or a block below. */
static void value(const struct tsr_config_node *n, FILE *to, bool origin, unsigned indent,
                  bool inline_map, unsigned depth)
{
    if (depth > TSR_TREE_DEPTH)
        return;
    if (n->kind == TSR_CONFIG_NODE_NULL || n->kind == TSR_CONFIG_NODE_SCALAR || n->n == 0) {
        (void)fputc(' ', to);
        if (n->kind == TSR_CONFIG_NODE_SCALAR)
            scalar(n, to);
        else
            (void)fputs(n->kind == TSR_CONFIG_NODE_NULL   ? "null"
                        : n->kind == TSR_CONFIG_NODE_LIST ? "[]"
                                                          : "{}",
                        to);
        origin_of(n, to, origin);
    } else if (n->kind == TSR_CONFIG_NODE_MAP) {
        (void)fputc(inline_map ? ' ' : '\n', to);
        map(n, to, origin, indent, inline_map, depth);
    } else {
        (void)fputc('\n', to);
        for (uint64_t i = 0; i < n->n; i++) {
            (void)fprintf(to, "%*s-", (int)indent, "");
            value(n->items[i], to, origin, indent + 2, true, depth + 1);
        }
    }
}

void tsr_config_node_print(const struct tsr_config_node *n, FILE *to, bool origin)
{
    if (n->kind == TSR_CONFIG_NODE_MAP && n->n > 0)
        map(n, to, origin, 0, false, 0);
    else
        value(n, to, origin, 0, false, 0);
}

static json_t *scalar_json(const struct tsr_config_node *n)
{
    char     *end;
    long long i;
    double    r;
    if (n->quoted)
        return json_string(n->text);
    if (strcmp(n->text, "true") == 0 || strcmp(n->text, "false") == 0)
        return json_boolean(n->text[0] == 't');
    if (strspn(n->text, "+-0123456789.eE") != strlen(n->text))
        return json_string(n->text);
    errno = 0;
    i = strtoll(n->text, &end, 10);
    if (!*end && end != n->text && errno == 0)
        return json_integer(i);
    r = strtod(n->text, &end);
    if (!*end && end != n->text && isfinite(r))
        return json_real(r);
    return json_string(n->text);
}

static json_t *to_json(const struct tsr_config_node *n, unsigned depth)
{
    if (depth > TSR_TREE_DEPTH)
        return NULL;
    if (n->kind == TSR_CONFIG_NODE_NULL)
        return json_null();
    if (n->kind == TSR_CONFIG_NODE_SCALAR)
        return scalar_json(n);
    json_t *j = n->kind == TSR_CONFIG_NODE_LIST ? json_array() : json_object();
    for (uint64_t i = 0; j && i < n->n; i++) {
        json_t *v = to_json(n->items[i], depth + 1);
        int     bad =
            !v || (n->kind == TSR_CONFIG_NODE_LIST ? json_array_append_new(j, v)
                                                   : json_object_set_new(j, n->keys[i]->text, v));
        if (bad) {
            json_decref(j);
            return NULL;
        }
    }
    return j;
}

json_t *tsr_config_node_json(const struct tsr_config_node *n)
{
    return to_json(n, 0);
}
