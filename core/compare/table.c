/* What a comparison found, as a table. */
#include "compare/compare.h"

#include <math.h>
#include <string.h>

#define CACHE_TEXT 64 /* of a type and the types of some layers, which may be cut */

/* ---- text output: printed from the result, so that a finished job prints the same -------- */

static double real_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static uint64_t int_of(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* 1234567 as "1,234,567". */
static void grouped(char out[32], uint64_t v)
{
    char     digits[24];
    int      n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    unsigned o = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            out[o++] = ',';
        out[o++] = digits[i];
    }
    out[o] = '\0';
}

/* "-" if there is no number. */
static void cell(FILE *to, int width, int digits, double v, const char *unit)
{
    char text[48] = "-";
    if (isfinite(v))
        (void)snprintf(text, sizeof text, "%.*f%s", digits, v, unit);
    (void)fprintf(to, "  %*s", width, text);
}

static bool has_a8(const json_t *r)
{
    return json_is_true(json_object_get(json_object_get(r, "perplexity_of"), "a8"));
}

/* Some arm has the key, with another text than `but`. */
static bool some_arm(const json_t *r, const char *key, const char *but)
{
    const json_t *a;
    size_t        i;
    json_array_foreach (json_object_get(r, "arms"), i, a)
        if (json_object_get(a, key) && strcmp(text_of(a, key), but) != 0)
            return true;
    return false;
}

/* Some arm has another KV cache than the original. */
static bool has_cache(const json_t *r)
{
    return some_arm(r, "cache", "-") && (some_arm(r, "kv", "f32") || some_arm(r, "kv_layers", ""));
}

/* "int4", or with other types of some layers "int4, 0-1=int8". */
static void cache_type(const json_t *arm, char *text, size_t n)
{
    const char *some = json_object_get(arm, "kv_layers") ? text_of(arm, "kv_layers") : "";
    (void)snprintf(text, n, "%s%s%s", text_of(arm, "kv"), *some ? ", " : "", some);
}

/* The longest of them. */
static int cache_width(const json_t *r)
{
    const json_t *a;
    size_t        i;
    int           width = 4;
    char          text[CACHE_TEXT];
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        cache_type(a, text, sizeof text);
        width = (int)strlen(text) > width ? (int)strlen(text) : width;
    }
    return width;
}

static void print_arm(const json_t *r, const json_t *a, int name, FILE *to)
{
    char bytes[32], type[CACHE_TEXT];
    (void)fprintf(to, "%-*s", name, text_of(a, "name"));
    if (json_object_get(a, "failed")) {
        (void)fprintf(to, "  failed: %s\n", text_of(a, "failed"));
        return;
    }
    grouped(bytes, int_of(a, "bytes"));
    (void)fprintf(to, "  %10.2f  %12s", real_of(a, "bits_per_weight"), bytes);
    if (some_arm(r, "resident_bytes", "-")) {
        grouped(bytes, int_of(a, "resident_bytes"));
        (void)fprintf(to, "  %12s", json_object_get(a, "resident_bytes") ? bytes : "-");
    }
    if (has_cache(r)) {
        grouped(bytes, int_of(json_object_get(a, "cache"), "bytes"));
        cache_type(a, type, sizeof type);
        (void)fprintf(to, "  %*s %12s", cache_width(r), type, bytes);
    }
    if (json_object_get(r, "perplexity_of")) {
        cell(to, 16, 4, real_of(a, "perplexity"), "");
        cell(to, 9, 6, real_of(json_object_get(a, "kl"), "mean"), "");
        cell(to, 9, 2, 100 * real_of(a, "top1"), " %");
        if (has_a8(r))
            cell(to, 10, 4, real_of(json_object_get(a, "a8"), "perplexity"), "");
    }
    if (json_object_get(r, "speed_of")) {
        const json_t *s = json_object_get(a, "speed");
        cell(to, 9, 0, real_of(s, "prefill_tokens_per_s"), "");
        cell(to, 9, 0, real_of(s, "decode_tokens_per_s"), "");
    }
    (void)fprintf(to, "\n");
}

static void print_head(const json_t *r, int name, FILE *to)
{
    const json_t *p = json_object_get(r, "perplexity_of"), *s = json_object_get(r, "speed_of");
    (void)fprintf(to, "%-*s  %10s  %12s", name, "", "bits per", "bytes");
    if (some_arm(r, "resident_bytes", "-"))
        (void)fprintf(to, "  %12s", "bytes");
    if (has_cache(r))
        (void)fprintf(to, "  %*s", cache_width(r) + 13, "KV cache");
    if (p)
        (void)fprintf(to, "  %16s  %9s  %9s", "perplexity", "mean KL", "top-1");
    if (has_a8(r))
        (void)fprintf(to, "  %10s", "perplexity");
    if (s)
        (void)fprintf(to, "  %9s  %9s", "prefill", "decode");
    (void)fprintf(to, "\n%-*s  %10s  %12s", name, "arm", "weight", "stored");
    if (some_arm(r, "resident_bytes", "-"))
        (void)fprintf(to, "  %12s", "in memory");
    if (has_cache(r))
        (void)fprintf(to, "  %*s %12s", cache_width(r), "type", "bytes");
    if (p)
        (void)fprintf(to, "  %16s  %9s  %9s", text_of(p, "protocol"), "(nats)", "agreement");
    if (has_a8(r))
        (void)fprintf(to, "  %10s", "act a8");
    if (s)
        (void)fprintf(to, "  %9s  %9s", "tokens/s", "tokens/s");
    (void)fprintf(to, "\n");
}

/* Names the arms whose packed linears used F32 instead of the requested act, by their value at `key`; `head` is
 * the prefix.  Returns whether there is one. */
static bool print_others(const json_t *r, const char *key, const char *asked, const char *head,
                         FILE *to)
{
    const json_t *arms = json_object_get(r, "arms"), *a;
    size_t        i;
    bool          any = false;
    json_array_foreach (arms, i, a) {
        const json_t *ran = json_object_get(json_object_get(a, key), "packed_linears");
        if (strcmp(asked, "f32") == 0 || int_of(ran, "f32") == 0)
            continue;
        (void)fprintf(to, "%s, f32 on %llu of '%s'", any ? "" : head,
                      (unsigned long long)int_of(ran, "f32"), text_of(a, "name"));
        any = true;
    }
    return any;
}

static void print_speed(const json_t *r, const json_t *s, FILE *to)
{
    (void)fprintf(to,
                  "speed:       one sequence, prompt %llu, generate %llu, median of %llu "
                  "interleaved runs, act %s on packed weights",
                  (unsigned long long)int_of(s, "prompt"),
                  (unsigned long long)int_of(s, "generate"),
                  (unsigned long long)int_of(s, "repeats"), text_of(s, "act"));
    (void)print_others(r, "speed", text_of(s, "act"), "", to);
    (void)fprintf(to, ", %llu threads, %s\n", (unsigned long long)int_of(s, "threads"),
                  text_of(s, "device"));
}

/* An arm's sizes are of more than the decoder's linears. */
static bool packs_ends(const json_t *r)
{
    const json_t *a;
    size_t        i;
    json_array_foreach (json_object_get(r, "arms"), i, a)
        if (int_of(a, "weights") > int_of(r, "weights"))
            return true;
    return false;
}

/* Names arms whose formats the device cannot read: these weights are F32. */
static void print_widened(const json_t *r, FILE *to)
{
    const json_t *a;
    size_t        i;
    char          text[32];
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        if (int_of(a, "widened") == 0)
            continue;
        grouped(text, int_of(a, "resident_bytes"));
        (void)
            fprintf(to,
                    "memory:      the device does not read the format of %llu linears of '%s' and "
                    "has them as F32; its linears take %s bytes there\n",
                    (unsigned long long)int_of(a, "widened"), text_of(a, "name"), text);
    }
}

/* Arms whose bits are well above those that their schemes name. */
static void print_remarks(const json_t *r, FILE *to)
{
    const json_t *a;
    size_t        i;
    json_array_foreach (json_object_get(r, "arms"), i, a)
        if (json_object_get(a, "remark"))
            (void)fprintf(to, "bits:        '%s': %s\n", text_of(a, "name"), text_of(a, "remark"));
}

static void print_notes(const json_t *r, FILE *to)
{
    const json_t *p = json_object_get(r, "perplexity_of"), *s = json_object_get(r, "speed_of");
    char          text[32];
    grouped(text, int_of(r, "weights"));
    (void)fprintf(to,
                  "\nbits, bytes: the %s weights of the decoder's linears, with their scales%s%s\n",
                  text, packs_ends(r) ? "; head and embedding where an arm packs them" : "",
                  some_arm(r, "resident_bytes", "-")
                      ? "; in memory: the linears as the device has them"
                      : "");
    print_remarks(r, to);
    print_widened(r, to);
    if (has_cache(r))
        (void)fprintf(to, "KV cache:    of one sequence of %llu tokens\n",
                      (unsigned long long)int_of(
                          json_object_get(json_array_get(json_object_get(r, "arms"), 0), "cache"),
                          "positions"));
    bool kl = json_is_true(json_object_get(p, "kl"));
    if (p) {
        grouped(text, int_of(p, "tokens"));
        (void)fprintf(to, "perplexity:  %s on %s, %s %s, window %llu, BOS %s, act %s%s%s%s\n",
                      text_of(p, "protocol"), text_of(p, "text"), text, text_of(p, "counted"),
                      (unsigned long long)int_of(p, "window"), text_of(p, "bos"), text_of(p, "act"),
                      kl ? "; KL and top-1 against '" : "", kl ? text_of(r, "reference") : "",
                      kl ? "'" : "");
    }
    if (has_a8(r) && print_others(r, "a8", "a8", "act a8:      int8 on packed weights", to))
        (void)fprintf(to, "\n");
    if (s)
        print_speed(r, s, to);
}

static void print_samples(const json_t *r, FILE *to)
{
    const json_t *arms = json_object_get(r, "arms"), *of = json_object_get(r, "samples_of"), *a;
    size_t        n = json_array_size(json_object_get(json_array_get(arms, 0), "samples")), k;
    if (!of)
        return;
    (void)fprintf(to, "samples:     %s, act %s on packed weights",
                  real_of(of, "temperature") > 0 ? "drawn with the job's seed" : "greedy",
                  text_of(of, "act"));
    (void)print_others(r, "samples_act", text_of(of, "act"), "", to);
    (void)fprintf(to, "\n");
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(to, "\n");
        json_array_foreach (arms, k, a) {
            const json_t *t = json_array_get(json_object_get(a, "samples"), i);
            if (!t)
                continue;
            const json_t *text = json_object_get(t, "text"); /* which may hold a NUL character */
            (void)fprintf(to, "[%s] %s", text_of(a, "name"), text_of(t, "prompt"));
            (void)fwrite(json_string_value(text), 1, json_string_length(text), to);
            (void)fputc('\n', to);
        }
    }
}

/* ---- differences ------------------------------------------------------------------------ */

static void print_differences(const json_t *r, int name, FILE *to)
{
    const json_t *arms = json_object_get(r, "arms"), *a;
    bool          head = false;
    size_t        i;
    json_array_foreach (arms, i, a) {
        const json_t *d = json_object_get(a, "delta"), *kl = json_object_get(a, "kl");
        char          text[96] = "-", interval[96] = "-";
        if (!d)
            continue;
        if (!head)
            (void)fprintf(to, "\n%-*s  %30s  %9s  %21s  %9s  %9s\n", name, "against the reference",
                          name > 21 ? "" : "ln perplexity, interval", "p (Holm)", "KL mean +- SE",
                          "KL 99.9 %", "label p");
        head = true;
        if (isfinite(real_of(d, "low")))
            (void)snprintf(text, sizeof text, "%+.5f [%+.5f, %+.5f]", real_of(d, "mean"),
                           real_of(d, "low"), real_of(d, "high"));
        else
            (void)snprintf(text, sizeof text, "%+.5f", real_of(d, "mean"));
        if (isfinite(real_of(kl, "se")))
            (void)snprintf(interval, sizeof interval, "%.6f +- %.6f", real_of(kl, "mean"),
                           real_of(kl, "se"));
        else if (isfinite(real_of(kl, "mean"))) /* of a single window */
            (void)snprintf(interval, sizeof interval, "%.6f", real_of(kl, "mean"));
        (void)fprintf(to, "%-*s  %30s", name, text_of(a, "name"), text);
        if (isfinite(real_of(d, "p_holm")))
            (void)fprintf(to, "  %9.2g", real_of(d, "p_holm"));
        else
            (void)fprintf(to, "  %9s", "-");
        (void)fprintf(to, "  %21s", interval);
        cell(to, 9, 4, real_of(json_object_get(kl, "percentiles"), "99.9"), "");
        cell(to, 9, 5, real_of(json_object_get(a, "delta_p"), "mean"), "");
        (void)fprintf(to, "\n");
    }
}

/* The verdicts of single texts, below those of all together. */
static void print_texts(const json_t *r, int name, FILE *to)
{
    const json_t *a, *t;
    size_t        i, k;
    json_array_foreach (json_object_get(r, "arms"), i, a)
        json_array_foreach (json_object_get(a, "texts"), k, t)
            (void)fprintf(to, "%-*s  %s: %s\n", name, text_of(a, "name"), text_of(t, "text"),
                          text_of(json_object_get(t, "verdict"), "text"));
}

static void print_verdicts(const json_t *r, int name, FILE *to)
{
    const json_t *a, *p;
    size_t        i;
    bool          some = false;
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        const char *text = text_of(json_object_get(a, "verdict"), "text");
        if (!*text)
            continue;
        (void)fprintf(to, "%s%-*s  %s\n", some ? "" : "\n", name, text_of(a, "name"), text);
        some = true;
    }
    print_texts(r, name, to);
    json_array_foreach (json_object_get(r, "pairs"), i, p)
        (void)fprintf(to, "%s against %s  %s\n", text_of(p, "arm"), text_of(p, "against"),
                      json_object_get(p, "failed")
                          ? text_of(p, "failed")
                          : text_of(json_object_get(p, "verdict"), "text"));
    if (some && json_object_get(r, "perplexity_of"))
        (void)fprintf(to,
                      "verdicts:    intervals and tests by windows, %g %%, corrected over the "
                      "arms, and over the pairs; "
                      "they are about this text\n",
                      100 * (1 - real_of(r, "alpha")));
}

static void print_condition(const json_t *g, FILE *to)
{
    const json_t *v;
    size_t        i;
    bool          holds = json_is_true(json_object_get(g, "holds"));
    (void)fprintf(to, "fail_if:     %s: %s", text_of(g, "expression"),
                  holds ? "holds" : "does not hold");
    json_array_foreach (json_object_get(g, "violators"), i, v)
        (void)fprintf(to, "%s %s", i ? "," : " for", text_of(v, "arm"));
    (void)fprintf(to, "\n");
}

static void print_gate(const json_t *r, FILE *to)
{
    const json_t *g;
    size_t        i;
    json_array_foreach (json_object_get(json_object_get(r, "gate"), "fail_if"), i, g)
        print_condition(g, to);
}

void compare_print(const json_t *r, FILE *to)
{
    const json_t *arms = json_object_get(r, "arms"), *a;
    int           name = 8;
    size_t        i;
    json_array_foreach (arms, i, a) {
        int n = (int)strnlen(text_of(a, "name"), 60);
        name = n > name ? n : name;
    }
    print_head(r, name, to);
    json_array_foreach (arms, i, a)
        print_arm(r, a, name, to);
    print_notes(r, to);
    print_differences(r, name, to);
    print_verdicts(r, name, to);
    compare_print_choices(r, name, to);
    compare_print_tasks(r, name, to);
    print_gate(r, to);
    print_samples(r, to);
}
