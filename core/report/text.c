/* Reading results and writing text: names come from job files and models, so all is escaped. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

#define MAX_DEPTH 16u

const json_t *report_get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

double report_real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double        d = json_is_number(v) ? json_number_value(v) : (double)NAN;
    return isfinite(d) ? d : (double)NAN;
}

const char *report_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

bool report_any(const json_t *list, const char *key)
{
    const json_t *a;
    size_t        i;
    json_array_foreach (list, i, a)
        if (report_get(a, key))
            return true;
    return false;
}

bool report_is_step(const char *key, const char *step)
{
    size_t n = strlen(step);
    return strncmp(key, step, n) == 0 && (key[n] == '\0' || key[n] == '[');
}

/* Control characters have no place in HTML. */
static void put_escaped(struct tsr_writer *w, const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, s++) {
        unsigned char c = (unsigned char)*s;
        const char   *entity = c == '<'                             ? "&lt;"
                               : c == '>'                           ? "&gt;"
                               : c == '&'                           ? "&amp;"
                               : c == '"'                           ? "&quot;"
                               : c == '\''                          ? "&#39;"
                               : c < 0x20 && c != '\n' && c != '\t' ? "&#xfffd;"
                                                                    : NULL;
        tsr_writer_put(w, entity ? entity : s, entity ? strlen(entity) : 1);
    }
}

void report_text(struct tsr_writer *w, const char *s)
{
    put_escaped(w, s, s ? strlen(s) : 0);
}

void report_json_text(struct tsr_writer *w, const json_t *v)
{
    put_escaped(w, json_string_value(v), json_string_length(v));
}

/* The sign is U+2212, as wide as a plus. */
static void put_sign(char out[REPORT_NUMBER], const char *digits, bool negative, bool plus)
{
    (void)snprintf(out, REPORT_NUMBER, "%s%.40s",
                   negative ? "\xe2\x88\x92"
                   : plus   ? "+"
                            : "",
                   digits);
}

const char *report_fixed(char out[REPORT_NUMBER], double v, int digits, bool sign)
{
    char text[REPORT_NUMBER];
    if (!isfinite(v)) {
        (void)snprintf(out, REPORT_NUMBER, "\xe2\x80\x93");
        return out;
    }
    if (!(fabs(v) < 1e15)) { /* more digits than a cell is for */
        (void)snprintf(out, REPORT_NUMBER, "%.3g", v);
        return out;
    }
    (void)snprintf(text, sizeof text, "%.*f", digits, fabs(v));
    bool zero = strspn(text, "0.") == strlen(text);
    put_sign(out, text, v < 0 && !zero, sign && !zero);
    return out;
}

static void put_power(char *out, size_t cap, int exponent)
{
    static const char *const digit[] = { "\xe2\x81\xb0", "\xc2\xb9",     "\xc2\xb2",
                                         "\xc2\xb3",     "\xe2\x81\xb4", "\xe2\x81\xb5",
                                         "\xe2\x81\xb6", "\xe2\x81\xb7", "\xe2\x81\xb8",
                                         "\xe2\x81\xb9" };
    char                     text[16];
    size_t                   n = 0;
    (void)snprintf(text, sizeof text, "%d", exponent < 0 ? -exponent : exponent);
    (void)snprintf(out, cap, "10%s", exponent < 0 ? "\xe2\x81\xbb" : "");
    for (const char *s = text; *s; s++) {
        n = strlen(out);
        (void)snprintf(out + n, cap - n, "%s", digit[*s - '0']);
    }
}

const char *report_short(char out[REPORT_NUMBER], double v)
{
    char   text[REPORT_NUMBER], power[REPORT_NUMBER];
    double size = fabs(v);
    if (!isfinite(v))
        return report_fixed(out, v, 0, false);
    if (size == 0 || (size >= 9.995e-4 && size < 99999.5)) {
        int digits = size == 0 || size >= 99.95 ? 0 : 2 - (int)floor(log10(size * 1.0005));
        return report_fixed(out, v, digits, false);
    }
    int exponent = (int)floor(log10(size));
    (void)snprintf(text, sizeof text, "%.3g", size / pow(10, exponent));
    if (strcmp(text, "10") == 0) {
        exponent++;
        (void)snprintf(text, sizeof text, "1");
    }
    put_power(power, sizeof power, exponent);
    (void)snprintf(out, REPORT_NUMBER, "%s%.8s%s%.24s", v < 0 ? "\xe2\x88\x92" : "",
                   strcmp(text, "1") == 0 ? "" : text, strcmp(text, "1") == 0 ? "" : "\xc2\xb7",
                   power);
    return out;
}

void report_grouped(char out[REPORT_NUMBER], uint64_t v)
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

void report_cell(struct tsr_writer *w, double v, int digits)
{
    char text[REPORT_NUMBER];
    tsr_writer_printf(w, "<td%s>%s</td>", isfinite(v) ? "" : " class=\"dim\"",
                      report_fixed(text, v, digits, false));
}

void report_interval_cell(struct tsr_writer *w, const json_t *d, const char *mean, double factor,
                          int digits, bool sign)
{
    char   a[REPORT_NUMBER], b[REPORT_NUMBER], c[REPORT_NUMBER];
    double low = factor * report_real(d, "low"), high = factor * report_real(d, "high");
    tsr_writer_printf(w, "<td>%s", report_fixed(a, factor * report_real(d, mean), digits, sign));
    if (isfinite(low) && isfinite(high))
        tsr_writer_printf(w, "<br><span class=\"dim\">[%s, %s]</span>",
                          report_fixed(b, low, digits, sign), report_fixed(c, high, digits, sign));
    tsr_writer_printf(w, "</td>");
}

void report_p_cell(struct tsr_writer *w, double p)
{
    char text[REPORT_NUMBER];
    tsr_writer_printf(w, "<td%s>%s</td>", isfinite(p) ? "" : " class=\"dim\"",
                      isfinite(p) && p < 1e-12 ? "&lt; 10\xe2\x81\xbb\xc2\xb9\xc2\xb2"
                                               : report_short(text, p));
}

const char *report_verdict_class(const char *quality)
{
    return strcmp(quality, "worse") == 0 ? "bad" : strcmp(quality, "better") == 0 ? "good" : "dim";
}

static void put_scalar(struct tsr_writer *w, const json_t *v)
{
    if (json_is_string(v))
        report_text(w, json_string_value(v));
    else if (json_is_integer(v))
        tsr_writer_printf(w, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        tsr_writer_printf(w, "%.6g", json_real_value(v));
    else
        tsr_writer_printf(w, "%s", json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "&ndash;");
}

void report_flow(struct tsr_writer *w, const json_t *v)
{
    const char   *key, *sep = "";
    json_t       *item;
    const json_t *one;
    size_t        i;
    if (json_is_object(v)) {
        tsr_writer_printf(w, "{");
        json_object_foreach ((json_t *)(uintptr_t)v, key, item) {
            tsr_writer_printf(w, "%s", sep);
            report_text(w, key);
            tsr_writer_printf(w, ": ");
            report_flow(w, item);
            sep = ", ";
        }
        tsr_writer_printf(w, "}");
    } else if (json_is_array(v)) {
        tsr_writer_printf(w, "[");
        json_array_foreach (v, i, one) {
            tsr_writer_printf(w, "%s", i ? ", " : "");
            report_flow(w, one);
        }
        tsr_writer_printf(w, "]");
    } else {
        put_scalar(w, v);
    }
}

void report_facts(struct tsr_writer *w, const char *title, const json_t *o)
{
    const char *key;
    json_t     *v;
    if (!json_is_object(o))
        return;
    tsr_writer_printf(w, "<p class=\"dim\">");
    report_text(w, title);
    json_object_foreach ((json_t *)(uintptr_t)o, key, v) {
        tsr_writer_printf(w, " &middot; ");
        report_text(w, key);
        tsr_writer_printf(w, " ");
        put_scalar(w, v);
    }
    tsr_writer_printf(w, "</p>\n");
}

/* Objects that all have the members of the first, scalars: rows of one table. */
static bool is_table(const json_t *list)
{
    const json_t *first = json_array_get(list, 0), *item;
    const char   *key;
    json_t       *v;
    size_t        i;
    if (json_array_size(list) < 2 || !json_is_object(first))
        return false;
    json_array_foreach (list, i, item) {
        if (!json_is_object(item) || json_object_size(item) != json_object_size(first))
            return false;
        json_object_foreach ((json_t *)(uintptr_t)item, key, v)
            if (json_is_object(v) || json_is_array(v) || !json_object_get(first, key))
                return false;
    }
    return true;
}

static void put_table(struct tsr_writer *w, const json_t *list)
{
    json_t       *first = json_array_get(list, 0), *v;
    const json_t *item;
    const char   *key;
    size_t        i, n = json_array_size(list);
    bool          many = n > 8; /* folded, so that a page is not mostly this */
    if (many)
        tsr_writer_printf(w, "<details><summary>%zu</summary>", n);
    tsr_writer_printf(w, "<table><tr>");
    json_object_foreach (first, key, v) {
        tsr_writer_printf(w, "<th>");
        report_text(w, key);
        tsr_writer_printf(w, "</th>");
    }
    tsr_writer_printf(w, "</tr>\n");
    json_array_foreach (list, i, item) {
        tsr_writer_printf(w, "<tr>");
        json_object_foreach (first, key, v) {
            tsr_writer_printf(w, "<td>");
            put_scalar(w, json_object_get(item, key));
            tsr_writer_printf(w, "</td>");
        }
        tsr_writer_printf(w, "</tr>\n");
    }
    tsr_writer_printf(w, "</table>%s", many ? "</details>" : "");
}

void report_value(struct tsr_writer *w, const json_t *v, unsigned depth)
{
    const char *key;
    json_t     *item;
    size_t      i;
    if (depth > MAX_DEPTH)
        return;
    if (json_is_object(v)) {
        tsr_writer_printf(w, "<table>");
        json_object_foreach ((json_t *)(uintptr_t)v, key, item) {
            tsr_writer_printf(w, "<tr><td>");
            report_text(w, key);
            tsr_writer_printf(w, "</td><td class=\"text\">");
            report_value(w, item, depth + 1);
            tsr_writer_printf(w, "</td></tr>\n");
        }
        tsr_writer_printf(w, "</table>");
    } else if (is_table(v)) {
        put_table(w, v);
    } else if (json_is_array(v)) {
        json_array_foreach (v, i, item) {
            if (i && !json_is_object(item))
                tsr_writer_printf(w, ", ");
            report_value(w, item, depth + 1);
        }
    } else {
        put_scalar(w, v);
    }
}
