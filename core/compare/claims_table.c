/* Claims as a table: our figures next to the paper's, then the orders. */
#include "compare/claims.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static double real_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void cell(FILE *to, int width, int digits, double v)
{
    char text[48] = "-";
    if (isfinite(v))
        (void)snprintf(text, sizeof text, "%.*f", digits, v);
    (void)fprintf(to, "  %*s", width, text);
}

/* "[-0.0123, -0.0100]", or "-" without an interval. */
static void range(FILE *to, int width, int digits, const json_t *d)
{
    char   text[96] = "-";
    double low = real_of(d, "low"), high = real_of(d, "high");
    if (isfinite(low) && isfinite(high))
        (void)snprintf(text, sizeof text, "[%.*f, %.*f]", digits, low, digits, high);
    (void)fprintf(to, "  %*s", width, text);
}

static int column_width(const json_t *columns, size_t i)
{
    size_t n = strnlen(json_string_value(json_array_get(columns, i)), 60);
    return n < 8 ? 8 : (int)n;
}

static void print_arms(const json_t *r, int name, FILE *to)
{
    const json_t *columns = json_object_get(r, "columns"), *a, *v;
    size_t        i, k;
    bool          increase = strcmp(text_of(r, "figure"), "increase") == 0;
    (void)fprintf(to, "%-*s  %8s  %11s  %22s  %9s", name, "arm", "bits",
                  increase ? "increase, %" : "perplexity", "interval", "mean KL");
    json_array_foreach (columns, k, v)
        (void)fprintf(to, "  %*s", column_width(columns, k), json_string_value(v));
    (void)fprintf(to, "\n");
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        (void)fprintf(to, "%-*s", name, text_of(a, "arm"));
        if (json_object_get(a, "failed")) {
            (void)fprintf(to, "  failed: %s\n", text_of(a, "failed"));
            continue;
        }
        cell(to, 8, 2, real_of(a, "bits_per_weight"));
        cell(to, 11, increase ? 2 : 4, real_of(a, "value"));
        range(to, 22, increase ? 2 : 4, a);
        cell(to, 9, 6, real_of(a, "kl"));
        json_array_foreach (json_object_get(a, "paper"), k, v)
            cell(to, column_width(columns, k), increase ? 2 : 3,
                 json_is_number(v) ? json_number_value(v) : (double)NAN);
        (void)fprintf(to, "\n");
    }
}

/* "yes no -": the values of the paper's own columns. */
static void paper_words(const json_t *list, char *out, size_t cap)
{
    const json_t *v;
    size_t        i, n = 0;
    out[0] = '\0';
    json_array_foreach (list, i, v) {
        const char *word = json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-";
        n = strlen(out);
        (void)snprintf(out + n, cap - n, "%s%s", i ? " " : "", word);
    }
}

static void print_orders(const json_t *r, FILE *to)
{
    const json_t *o;
    size_t        i;
    int           width = 5, words = 5;
    char          text[160];
    json_array_foreach (json_object_get(r, "orders"), i, o) {
        int n = (int)strnlen(text_of(o, "better"), 60) + (int)strnlen(text_of(o, "worse"), 60) + 3;
        width = n > width ? n : width;
        paper_words(json_object_get(o, "paper"), text, sizeof text);
        words = (int)strlen(text) > words ? (int)strlen(text) : words;
    }
    if (i == 0)
        return;
    (void)fprintf(to, "\n%-*s  %*s  %24s  %-12s  %24s  %s\n", width, "order", words, "paper",
                  "log-perplexity", "", "mean KL", "");
    json_array_foreach (json_object_get(r, "orders"), i, o) {
        const json_t *d = json_object_get(o, "delta"), *kl = json_object_get(o, "kl_delta");
        (void)snprintf(text, sizeof text, "%.60s < %.60s", text_of(o, "better"),
                       text_of(o, "worse"));
        (void)fprintf(to, "%-*s", width, text);
        paper_words(json_object_get(o, "paper"), text, sizeof text);
        (void)fprintf(to, "  %*s", words, text);
        range(to, 24, 6, d);
        (void)fprintf(to, "  %-12s", text_of(o, "verdict"));
        range(to, 24, 6, kl);
        (void)fprintf(to, "  %s\n", text_of(kl, "verdict"));
    }
    (void)
        fprintf(to,
                "\n%lld of %zu orders hold, %lld contradicted, %lld undecided: by the interval of "
                "the difference in\nlog-perplexity on the same tokens; paper: whether each of "
                "its columns has the order\n",
                (long long)json_integer_value(json_object_get(r, "held")),
                json_array_size(json_object_get(r, "orders")),
                (long long)json_integer_value(json_object_get(r, "contradicted")),
                (long long)json_integer_value(json_object_get(r, "undecided")));
}

void tsr_compare_claims_print(const json_t *r, FILE *to)
{
    const json_t *a;
    size_t        i;
    int           name = 8;
    json_array_foreach (json_object_get(r, "arms"), i, a) {
        int n = (int)strnlen(text_of(a, "arm"), 60);
        name = n > name ? n : name;
    }
    (void)fprintf(to, "\nBeside %s:\n", text_of(r, "source"));
    print_arms(r, name, to);
    print_orders(r, to);
}
