/* Plans and device profiles as text. */
#include "cli/inspect/written_print.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A value of a YAML file, in its own words; "" where there is none. */
static const char *value(const json_t *v, char buf[64])
{
    if (json_is_string(v))
        return json_string_value(v);
    if (json_is_integer(v))
        (void)snprintf(buf, 64, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        (void)snprintf(buf, 64, "%.4g", json_real_value(v));
    else
        (void)snprintf(buf, 64, "%s", json_is_true(v) ? "true" : json_is_false(v) ? "false" : "");
    return buf;
}

/* "memory  total 24564 MiB, reserved 600 MiB", without the key `without`, which --json has. */
static void print_keys(const char *name, const json_t *object, const char *without)
{
    const char   *key, *gap = "";
    const json_t *v;
    char          buf[64];
    if (!json_is_object(object))
        return;
    (void)printf("  %-13s ", name);
    json_object_foreach ((json_t *)(uintptr_t)object, key, v) {
        if (strcmp(key, without) == 0 || json_is_object(v) || json_is_array(v))
            continue;
        (void)printf("%s%s %s", gap, key, value(v, buf));
        gap = ", ";
    }
    (void)putchar('\n');
}

/* "rtn bits=4 group=128", or the whole rule of a part of the linears. */
static void print_scheme(const json_t *rule)
{
    const char   *key, *use = json_string_value(json_object_get(rule, "use"));
    const json_t *v;
    char          buf[64];
    (void)printf("%s", use ? use : "original");
    json_object_foreach ((json_t *)(uintptr_t)rule, key, v)
        if (strcmp(key, "use") != 0 && strcmp(key, "layers") != 0 && strcmp(key, "keep") != 0 &&
            !json_is_object(v) && !json_is_array(v))
            (void)printf(" %s=%s", key, value(v, buf));
}

/* "691 ms, prompts done after 536.3 ms, 138.9 tokens/s, omega 0.07498, KL 0.06398", of these what there is */
static void print_predicted(const json_t *said)
{
    static const struct {
        const char *key, *before, *after;
    } parts[] = { { "latency_ms", "", "" },
                  { "ttft_ms", "prompts done after ", "" },
                  { "tokens_per_second", "", " tokens/s" },
                  { "omega", "omega ", "" },
                  { "kl", "KL ", "" } };
    const char *gap = "";
    char        buf[64];
    if (!json_is_object(said))
        return;
    (void)printf("  %-13s ", "predicted");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *v = json_object_get(said, parts[i].key);
        if (!json_is_number(v))
            continue;
        double ms = json_number_value(v);
        if (strstr(parts[i].key, "_ms"))
            (void)snprintf(buf, sizeof buf, ms < 1e3 ? "%.4g ms" : "%.4g s",
                           ms < 1e3 ? ms : ms / 1e3);
        (void)printf("%s%s%s%s", gap, parts[i].before,
                     strstr(parts[i].key, "_ms") ? buf : value(v, buf), parts[i].after);
        gap = ", ";
    }
    (void)putchar('\n');
}

void tsr_inspect_print_plan(const json_t *p)
{
    const json_t *stages = json_object_get(p, "stages"), *s, *rule;
    char          a[64], b[64];
    size_t        i, k;
    size_t        n = json_array_size(stages);
    (void)printf("%s  a plan of %s layers in %zu stage%s", value(json_object_get(p, "path"), a),
                 value(json_object_get(p, "layers"), b), n, n == 1 ? "" : "s");
    if (json_object_get(p, "replicas"))
        (void)printf(", %s copies of the model", value(json_object_get(p, "replicas"), a));
    (void)putchar('\n');
    print_keys("workload", json_object_get(p, "workload"), "");
    print_keys("micro-batches", json_object_get(p, "micro_batches"), "");
    print_keys("quality", json_object_get(p, "quality"), "hash");
    print_predicted(json_object_get(p, "predicted"));
    json_array_foreach (stages, i, s) {
        const json_t *tp = json_object_get(s, "tp");
        (void)printf("  stage %-7zu layers %s", i + 1, value(json_object_get(s, "layers"), a));
        if (json_object_get(s, "node"))
            (void)printf(" on %s of %s", value(json_object_get(s, "device"), a),
                         value(json_object_get(s, "node"), b));
        if (json_integer_value(tp) > 1)
            (void)printf(", %lld devices each", (long long)json_integer_value(tp));
        (void)putchar('\n');
        json_array_foreach (json_object_get(s, "schemes"), k, rule) {
            (void)printf("    %-11s ", value(json_object_get(rule, "layers"), a));
            print_scheme(rule);
            (void)putchar('\n');
        }
    }
}

/* The names in a list of objects, each once. */
static void print_names(const char *title, const json_t *list, const char *key)
{
    const char   *last = "";
    const json_t *v;
    size_t        i;
    if (json_array_size(list) == 0)
        return;
    (void)printf("  %-13s ", title);
    json_array_foreach (list, i, v) {
        const char *name = json_string_value(json_object_get(v, key));
        if (!name || strcmp(name, last) == 0)
            continue;
        (void)printf("%s%s", *last ? ", " : "", name);
        last = name;
    }
    (void)putchar('\n');
}

void tsr_inspect_print_profile(const json_t *p)
{
    char      a[64], b[64];
    long long points = (long long)json_integer_value(json_object_get(p, "points"));
    (void)printf("%s  a device profile, %s\n", value(json_object_get(p, "name"), a),
                 value(json_object_get(p, "path"), b));
    print_keys("memory", json_object_get(p, "memory"), "source");
    print_keys("bandwidth", json_object_get(p, "bandwidth"), "source");
    print_keys("host", json_object_get(p, "host"), "source");
    print_names("kernels", json_object_get(p, "kernels"), "kernel");
    print_names("codecs", json_object_get(p, "codecs"), "codec");
    (void)printf("  %-13s %s", "measured", value(json_object_get(p, "measured"), a));
    if (points)
        (void)printf(", %lld times of layers", points);
    (void)putchar('\n');
}
