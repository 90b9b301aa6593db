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
    (void)printf("\n  value           key of config.json       default            meaning\n");
    json_array_foreach (json_object_get(f, "values"), i, v)
        print_value(v);
    (void)printf("\n");
    print_list("tensors", json_object_get(f, "tensors"));
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
    print_list("config.json, used", json_object_get(c, "used"));
    print_list("by default", json_object_get(c, "default"));
    print_list("not used", json_object_get(c, "ignored"));
}
