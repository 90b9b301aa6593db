/* Model families as text. */
#include "cli/inspect/family_print.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 100

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* "NAME: a, b, c", broken at WIDTH; nothing for an empty list. */
static void print_list(const char *name, const json_t *list)
{
    size_t        i, at = 0;
    const json_t *v;
    json_array_foreach (list, i, v) {
        const char *s = json_string_value(v);
        size_t      n = strlen(s);
        if (i == 0)
            at = (size_t)printf("  %s: ", name);
        else if (at + n + 2 > WIDTH)
            at = (size_t)printf(",\n    ") - 2;
        else
            at += (size_t)printf(", ");
        at += (size_t)printf("%s", s);
    }
    if (json_array_size(list))
        (void)printf("\n");
}

static void print_value(const json_t *v)
{
    char          keys[200] = "";
    size_t        i, at = 0;
    const json_t *key, *def = json_object_get(v, "default");
    json_array_foreach (json_object_get(v, "keys"), i, key)
        if (at < sizeof keys)
            at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i ? ", " : "",
                                   json_string_value(key));
    (void)printf("  %-15s %-24s ", text_of(v, "name"), *keys ? keys : "-");
    if (json_is_string(def))
        (void)printf("%-18s", json_string_value(def));
    else if (json_is_number(def) && !*text_of(v, "form"))
        (void)printf("%-18.9g", json_number_value(def));
    else
        (void)printf("%-18s", *text_of(v, "form") ? text_of(v, "form") : "required");
    (void)printf(" %s\n", text_of(v, "help"));
}

/* "  q            layers.#.self_attn.q_proj", and the name in a GGUF file. */
static void print_parts(const json_t *parts)
{
    size_t        i;
    const json_t *p;
    (void)printf("\n  %-16s %-42s %s\n", "part", "tensor", "in a GGUF file");
    json_array_foreach (parts, i, p)
        (void)printf("  %-16s %-42s %s\n", text_of(p, "part"), text_of(p, "name"),
                     *text_of(p, "gguf") ? text_of(p, "gguf") : "-");
    (void)printf("\n");
}

void tsr_inspect_print_family(const json_t *f)
{
    size_t        i;
    const json_t *v;
    (void)printf("%s  %s\n  file: %s\n", text_of(f, "name"), text_of(f, "summary"),
                 text_of(f, "file"));
    print_list("architectures", json_object_get(f, "architectures"));
    print_list("model types", json_object_get(f, "model_types"));
    (void)printf("  norms: %s, %s; of queries and keys: %s\n", text_of(f, "norm"),
                 text_of(f, "norms"), text_of(f, "qk_norm"));
    (void)printf("  feed-forward: %s; positions: %s\n", text_of(f, "feed_forward"),
                 text_of(f, "positions"));
    if (json_object_get(f, "router"))
        (void)printf("  experts in place of it in some layers or all; their weights: %s\n",
                     text_of(f, "router"));
    if (*text_of(f, "shared"))
        (void)printf("  and an expert that every token takes, %s\n", text_of(f, "shared"));
    (void)printf("\n  value           key of config.json       default            meaning\n");
    json_array_foreach (json_object_get(f, "values"), i, v)
        print_value(v);
    print_parts(json_object_get(f, "parts"));
    print_list("GGUF files of", json_object_get(f, "gguf"));
}

/* A number, word, or the begin of a list. */
static void text_value(const json_t *v, char *text, size_t cap)
{
    size_t n = json_array_size(v);
    if (json_is_string(v))
        (void)snprintf(text, cap, "%.60s", json_string_value(v));
    else if (json_is_integer(v))
        (void)snprintf(text, cap, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        (void)snprintf(text, cap, "%.9g", json_real_value(v));
    else if (json_is_boolean(v))
        (void)snprintf(text, cap, "%s", json_is_true(v) ? "true" : "false");
    else if (n > 0) {
        char first[80] = "...";
        if (!json_is_array(json_array_get(v, 0)) && !json_is_object(json_array_get(v, 0)))
            text_value(json_array_get(v, 0), first, sizeof first);
        (void)snprintf(text, cap, n > 1 ? "[%.80s, ... %zu entries]" : "[%.80s]", first, n);
    } else {
        (void)snprintf(text, cap, "%s",
                       json_is_null(v)    ? "null"
                       : json_is_array(v) ? "[]"
                                          : "{...}");
    }
}

/* What a file says may hold control characters, which a terminal would obey. */
static const char *plain(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return text;
}

/* "key = value", of an object each member: "rope_scaling.factor = 8". */
static void print_under(const char *under, json_t *values)
{
    const char *key;
    json_t     *v;
    char        text[160], name[200];
    json_object_foreach (values, key, v) {
        (void)snprintf(name, sizeof name, "%.90s%s%.90s", under, *under ? "." : "", key);
        if (!*under && json_object_size(v) > 0) {
            print_under(key, v);
            continue;
        }
        text_value(v, text, sizeof text);
        (void)printf("    %s = %s\n", plain(name), plain(text));
    }
}

static void print_values(json_t *values)
{
    (void)printf("  config.json, used:\n");
    print_under("", values);
}

static void print_layers(const json_t *l)
{
    long long first = (long long)json_integer_value(json_object_get(l, "first")),
              last = (long long)json_integer_value(json_object_get(l, "last")),
              window = (long long)json_integer_value(json_object_get(l, "window"));
    double      part = json_number_value(json_object_get(l, "rotated"));
    const char *law = text_of(l, "scaling");
    if (first == last)
        (void)printf("  layer %lld: ", first);
    else
        (void)printf("  layers %lld-%lld: ", first, last);
    if (*text_of(l, "form"))
        (void)printf("%s", text_of(l, "form"));
    if (strcmp(text_of(l, "form"), "delta rule") == 0) {
        (void)printf("\n");
        return;
    }
    if (*text_of(l, "form"))
        (void)printf(", ");
    if (window)
        (void)printf("window %lld, ", window);
    else
        (void)printf("whole context, ");
    (void)printf("positions %s", text_of(l, "positions"));
    if (json_object_get(l, "theta"))
        (void)printf(", theta %.9g", json_number_value(json_object_get(l, "theta")));
    if (*law && strcmp(law, "none") != 0)
        (void)printf(", %s", law);
    if (part > 0 && part < 1)
        (void)printf(", %g of a head", part);
    (void)printf("\n");
}

void tsr_inspect_print_model_family(const json_t *m)
{
    size_t        i;
    const json_t *l, *c = json_object_get(m, "config");
    if (!c)
        return;
    (void)printf("family file: %s\n  norms: %s", text_of(m, "family_file"), text_of(m, "norms"));
    (void)printf("; of queries and keys: %s\n", text_of(m, "qk_norm"));
    json_array_foreach (json_object_get(m, "layer_forms"), i, l)
        print_layers(l);
    print_values(json_object_get(c, "values"));
    print_list("by default", json_object_get(c, "default"));
    print_list("not used", json_object_get(c, "ignored"));
}
