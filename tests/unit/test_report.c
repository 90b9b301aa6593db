/* The report: places that can be worked out by hand, markup that is whole whatever the results
 * hold, and a page that needs nothing else. */
#include "report/internal.h"

#include "base/json.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a page as text ------------------------------------------------------------------------ */

/* The writer is a file in memory: nothing here is about disks. */
static char *page(const json_t *results)
{
    char                  *text = NULL;
    size_t                 n = 0;
    struct tsr_writer      w = { .file = open_memstream(&text, &n) };
    struct tsr_report_head head = {
        .model = "a <model>", .seed = 7, .family = "llama", .hash = "xxh3:0", .parameters = 1234567
    };
    assert_non_null(w.file);
    tsr_report_page(&w, &head, results);
    assert_int_equal(w.error, 0);
    assert_int_equal(fclose(w.file), 0);
    return text;
}

static json_t *load(void)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j;
    if (tsr_json_load(&j, TEST_RESULTS, 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return j;
}

/* ---- markup --------------------------------------------------------------------------------- */

static bool is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "br") == 0;
}

/* One tag at s ("<" is read): its name, its end; quoted attributes only. */
static const char *tag(const char *s, char name[32], bool *closing, bool *empty)
{
    size_t n = 0;
    *closing = *s == '/';
    s += *closing;
    for (; isalnum((unsigned char)*s) && n < 31; s++)
        name[n++] = *s;
    name[n] = '\0';
    if (n == 0)
        return NULL;
    *empty = false;
    for (; *s && *s != '>'; s++) {
        if (*s == '<')
            return NULL;
        *empty = *s == '/';
        if (*s == '=' && s[1] != '"')
            return NULL;
        if (*s == '"')
            for (s++; *s && *s != '"'; s++)
                if (*s == '<')
                    return NULL;
    }
    return *s == '>' ? s : NULL;
}

/* Every element is closed in order, every "&" begins an entity. */
static void whole(const char *text)
{
    static char stack[64][32];
    int         depth = 0;
    const char *s = strstr(text, "<html");
    assert_non_null(s);
    for (; *s; s++) {
        char        name[32];
        bool        closing = false, empty = false;
        const char *at = s;
        if (*s == '&' &&
            strspn(s + 1, "abcdefghijklmnopqrstuvwxyz0123456789#") == strcspn(s + 1, ";"))
            continue;
        if (*s == '&' || *s == '>')
            fail_msg("stray '%c': %.60s", *s, s);
        if (*s != '<')
            continue;
        s = tag(s + 1, name, &closing, &empty);
        if (!s)
            fail_msg("not a tag: %.60s", at);
        if (closing && (depth == 0 || strcmp(stack[--depth], name) != 0))
            fail_msg("</%s> closes <%s>", name, stack[depth]);
        if (!closing && !empty && !is_void(name)) {
            assert_true(depth < 64);
            (void)snprintf(stack[depth++], 32, "%s", name);
        }
        if (!closing && strcmp(name, "style") == 0)
            s = strstr(s, "</style>") - 1;
        if (!closing && strcmp(name, "script") == 0)
            s = strstr(s, "</script>") - 1;
    }
    assert_int_equal(depth, 0);
}

/* Attributes with numbers hold finite ones. */
static void numbers_are_finite(const char *text)
{
    static const char *const bad[] = { "nan", "inf\"", "inf,", "\"inf", "=\"-nan", " nan" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *at = strstr(text, bad[i]);
        if (at)
            fail_msg("a number that is none: %.80s", at - 20);
    }
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *s = text; (s = strstr(s, what)); s++)
        n++;
    return n;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_page_is_whole_and_alone(void **state)
{
    json_t *j = load();
    char   *text = page(j);
    (void)state;
    whole(text);
    numbers_are_finite(text);
    static const char *const outside[] = { "http", "src=",   "url(",    "@import",  "<link",
                                           "href", "fetch(", "import(", "innerHTML" };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_null(strstr(text, outside[i]));
    assert_int_equal(count(text, "<script"), 1); /* the one that sorts tables */
    assert_non_null(strstr(text, "</body>"));
    assert_non_null(strstr(text, "prefers-color-scheme:dark"));
    assert_non_null(strstr(text, "a &lt;model&gt;"));
    assert_non_null(strstr(text, "mixed &lt;&amp;&quot;&gt;"));
    assert_null(strstr(text, "mixed <"));
    assert_non_null(strstr(text, "failed: layer 0: &lt;no&gt;"));
    assert_non_null(strstr(text, "tokens/s, act a8, f32 on 7 packed linears</title>"));
    /* KL against size, speed and bits, difference, spread, two speeds, two indicators (not random), bits */
    assert_int_equal(count(text, "<svg "), 10);
    assert_int_equal(count(text, "</svg>"), 10);
    free(text);
    json_decref(j);
}

/* int8 8.11 bits .0002, rtn4 4.24 .035, gptq4 4.24 .0196, mixed 5.5 .010: rtn4 is beaten. */
static void the_front(void **state)
{
    json_t *j = load();
    char   *text = page(j);
    (void)state;
    char *kl = strstr(text, "KL divergence from the reference, nats per token<"),
         *end = strstr(kl, "</svg>");
    const char *rtn = strstr(kl, "<title>rtn4: 4.24 bits, 0.0350 nats [0.0336, 0.0364]");
    const char *gptq = strstr(kl, "<title>gptq4: ");
    assert_true(rtn && rtn < end && gptq && gptq < end);
    assert_int_equal(strncmp(strstr(rtn, "<circle class="), "<circle class=\"beaten", 21), 0);
    assert_int_equal(strncmp(strstr(gptq, "<circle class="), "<circle class=\"mark", 19), 0);
    *end = '\0';
    assert_int_equal(count(kl, "class=\"mark\""), 3);
    assert_int_equal(count(kl, "class=\"beaten\""), 1);
    free(text);
    json_decref(j);
}

/* Against speed the better end is the right one: an arm is of the front if none is both faster and nearer. */
static void the_front_of_speed(void **state)
{
    static const struct {
        const char *name;
        double      speed, kl;
        bool        front;
    } arms[] = { { "slow-good", 10, 0.001, true },
                 { "slow-bad", 20, 0.1, false },
                 { "fast-fair", 30, 0.01, true },
                 { "same-speed", 30, 0.02, false },
                 { "fastest", 40, 0.5, true } };
    json_t *list = json_pack("[{s:s}]", "name", "original"), *j;
    (void)state;
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        assert_int_equal(
            json_array_append_new(list, json_pack("{s:s, s:{s:f}, s:{s:f}}", "name", arms[i].name,
                                                  "kl", "mean", arms[i].kl, "speed",
                                                  "decode_tokens_per_s", arms[i].speed)),
            0);
    j = json_pack("{s:{s:o}}", "compare", "arms", list);
    char *text = page(j);
    whole(text);
    char *chart = strstr(text, ", against decode speed"), *end = strstr(chart, "</svg>");
    *end = '\0';
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        char title[64];
        (void)snprintf(title, sizeof title, "<title>%s: %.0f tokens/s, ", arms[i].name,
                       arms[i].speed);
        const char *at = strstr(chart, title);
        assert_non_null(at);
        const char *circle = strstr(at, "<circle class=");
        const char *want = arms[i].front ? "<circle class=\"mark" : "<circle class=\"beaten";
        if (strncmp(circle, want, strlen(want)) != 0)
            fail_msg("%s: %.30s", arms[i].name, circle);
    }
    free(text);
    json_decref(j);
}

/* Verdicts, charts, arms with their conditions, figures, hashes: in this order, comparisons before other steps. */
static void order_of_a_page(void **state)
{
    static const char *const order[] = {
        "<h3>Verdicts</h3>",
        "against size",
        "<h3>Arms</h3>",
        "quantize: {use: rtn, bits: 4, rules: [{layers: 0-3, bits: 8}]}",
        "<span class=\"bad\">fails</span> <code>kl.mean &gt; 0.1</code>",
        "<h3>Conditions</h3>",
        "rtn4 0.200",
        "<h3>Figures</h3>",
        "<h2>calibrate</h2>",
        "<code>xxh3:0</code>"
    };
    json_t *j = json_pack(
        "{s:{s:s}, s:{s:[{s:s,s:s},{s:s,s:s,s:{s:s,s:i,s:[{s:s,s:i}]},s:f,s:{s:f},s:{s:s,s:s}}],"
        "s:{s:[{s:s,s:b,s:[{s:s,s:f}]}]}}}",
        "calibrate", "hash", "xxh3:1", "compare", "arms", "name", "original", "kind", "original",
        "name", "rtn4", "kind", "quantize", "options", "use", "rtn", "bits", 4, "rules", "layers",
        "0-3", "bits", 8, "bytes", 1e6, "kl", "mean", 0.2, "verdict", "quality", "worse", "text",
        "worse: x", "gate", "fail_if", "expression", "kl.mean > 0.1", "holds", 1, "violators",
        "arm", "rtn4", "value", 0.2);
    (void)state;
    assert_non_null(j);
    char       *text = page(j);
    const char *at = text;
    whole(text);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const char *next = strstr(at, order[i]);
        if (!next)
            fail_msg("%s is not there, or not in its place", order[i]);
        at = next;
    }
    free(text);
    json_decref(j);
}

/* A row for each metric and arm, and one for the pair. */
static void tasks_have_rows(void **state)
{
    json_t *j = load();
    char   *text = page(j);
    (void)state;
    assert_int_equal(count(text, "<tr><td>arc &lt;easy&gt;</td><td class=\"text\">acc</td>"), 5);
    assert_int_equal(count(text, "<tr><td>last</td><td class=\"text\">perplexity</td>"), 5);
    assert_non_null(strstr(text, "<td>55.34 %<br><span class=\"dim\">&plusmn; 1.57</span></td>"));
    assert_non_null(strstr(text, "<td>\xe2\x88\x92"
                                 "3.34<br><span class=\"dim\">[\xe2\x88\x92"
                                 "5.00, \xe2\x88\x92"
                                 "1.70]</span></td><td>20 : 53</td>"));
    assert_non_null(strstr(text, "<td class=\"text bad\">worse</td><td>3923</td>"));
    free(text);
    json_decref(j);
}

static void say(char **out, const char *what, const json_t *results)
{
    free(*out);
    *out = page(results);
    whole(*out);
    if (!strstr(*out, "</html>"))
        fail_msg("%s: the page has no end", what);
    numbers_are_finite(*out);
}

/* Each member of the tree in turn missing, null, text, a list, an empty map, far too large, or
 * negative: still a whole page without numbers that are none. */
static void sweep(json_t *root, json_t *at, char **out, unsigned *seen, unsigned every)
{
    const char *key;
    json_t     *v;
    void       *next;
    if (json_is_object(at)) {
        json_object_foreach_safe (at, next, key, v) {
            json_t  *kept = json_incref(v);
            json_t  *other[] = { NULL,          json_null(),      json_string("x"), json_array(),
                                 json_object(), json_real(1e300), json_integer(-3), json_real(0) };
            unsigned turn = (*seen)++ % every;
            for (unsigned i = 0; i < sizeof other / sizeof *other; i++) {
                if (turn == 0 && other[i]) {
                    json_object_set(at, key, other[i]);
                    say(out, key, root);
                }
                json_decref(other[i]);
            }
            json_object_set_new(at, key, kept);
            sweep(root, v, out, seen, every);
        }
    }
    if (json_is_array(at))
        for (size_t i = 0; i < json_array_size(at); i++)
            sweep(root, json_array_get(at, i), out, seen, every);
}

static void any_results_give_a_page(void **state)
{
    json_t     *j = load(), *c;
    char       *out = NULL;
    unsigned    seen = 0;
    const char *all = getenv("TSR_TEST_ALL");
    (void)state;
    sweep(j, j, &out, &seen, all ? 1 : 7);
    assert_true(seen > 300);
    /* what the sweep does not do: arms gone, nothing at all */
    c = json_object_get(j, "compare");
    json_array_clear(json_object_get(c, "arms"));
    say(&out, "no arms", j);
    json_object_clear(j);
    say(&out, "nothing", j);
    assert_int_equal(count(out, "<svg "), 0);
    free(out);
    json_decref(j);
}

static void axes(void **state)
{
    struct report_axis a = { .low = 0, .high = 10, .from = 100, .to = 200 };
    double             t[REPORT_TICKS];
    char               text[REPORT_NUMBER];
    (void)state;
    assert_true(report_axis_at(&a, 5) == 150);
    assert_true(report_axis_at(&a, -5) == 100 && report_axis_at(&a, 50) == 200);
    assert_true(report_axis_at(&a, (double)NAN) == 100);
    assert_int_equal(report_axis_ticks(&a, 5, t), 6); /* 0 2 4 6 8 10 */
    assert_true(t[1] == 2 && t[5] == 10);
    a = (struct report_axis){ .low = 1e-4, .high = 1, .from = 0, .to = 400, .log = true };
    assert_true(fabs(report_axis_at(&a, 1e-2) - 200) < 1e-9);
    assert_true(report_axis_at(&a, 0) == 0 && report_axis_at(&a, -1) == 0);
    assert_int_equal(report_axis_ticks(&a, 6, t), 5);
    assert_true(fabs(t[0] / 1e-4 - 1) < 1e-12 && fabs(t[4] - 1) < 1e-12);
    report_axis_fit(&a, 3, 3, false, 0, 1); /* one point has an axis too */
    assert_true(a.low < 3 && a.high > 3);
    report_axis_fit(&a, 0, 0, false, 0, 1);
    assert_true(a.low < 0 && a.high > 0);
    assert_string_equal(report_short(text, 0.0123), "0.0123");
    assert_string_equal(report_short(text, 1.2e-7), "1.2\xc2\xb7"
                                                    "10\xe2\x81\xbb\xe2\x81\xb7");
    assert_string_equal(report_short(text, 9.999e-4), "0.00100");
    assert_string_equal(report_short(text, 99.96), "100");
    assert_string_equal(report_short(text, 0), "0");
    assert_string_equal(report_fixed(text, -0.001, 2, true), "0.00");
    assert_string_equal(report_fixed(text, -1.5, 1, false), "\xe2\x88\x92"
                                                            "1.5");
    assert_string_equal(report_fixed(text, 1.5, 1, true), "+1.5");
}

/* Labels of points on one spot go to different places, and one that fits nowhere to none. */
static void labels_do_not_meet(void **state)
{
    struct report_box  taken[32] = { 0 }, frame = { 0, 0, 400, 200 };
    uint64_t           n = 0;
    double             x[20], y[20];
    enum report_anchor anchor;
    unsigned           placed = 0;
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        placed +=
            report_place(taken, &n, &frame, 200, 100, "name", &x[placed], &y[placed], &anchor);
    assert_true(placed >= 4 && placed < 20 && n == placed);
    for (unsigned i = 0; i < placed; i++)
        for (unsigned k = 0; k < i; k++)
            assert_false(taken[i].x1 < taken[k].x2 && taken[k].x1 < taken[i].x2 &&
                         taken[i].y1 < taken[k].y2 && taken[k].y1 < taken[i].y2);
    frame = (struct report_box){ 0, 0, 10, 10 };
    assert_false(report_place(taken, &n, &frame, 5, 5, "name", x, y, &anchor));
}

/* Ratios of any size end inside their drawing. */
static void ratios_have_room(void **state)
{
    (void)state;
    json_t *j =
        json_pack("{s:{s:[{s:s,s:{s:f,s:[f,f],s:s}},"
                  "{s:s,s:{s:f,s:[f,f],s:s,s:{s:f,s:f,s:f}}}]}}",
                  "compare", "arms", "name", "original", "speed", "decode_tokens_per_s", 10.0,
                  "decode_runs", 9.0, 11.0, "act", "f32", "name", "fast", "speed",
                  "decode_tokens_per_s", 123456.0, "decode_runs", 9.0, 123456.0, "act", "a8",
                  "decode_ratio", "median", 12345.67, "low", 0.001234, "high", 54321.98);
    const char *times = "\xc3\x97", *s, *open;
    assert_non_null(j);
    char *text = page(j);
    s = strstr(text, times);
    assert_non_null(s);
    for (open = s; *open != '<';)
        open--;
    const char *end = strchr(s, '<'), *x = strstr(open, " x=\"");
    assert_true(end && x && x < s);
    char label[200];
    assert_true(end - s < (ptrdiff_t)sizeof label);
    memcpy(label, s, (size_t)(end - s));
    label[end - s] = '\0';
    assert_true(strtod(x + 4, NULL) + report_text_width(label) <= REPORT_WIDTH);
    assert_null(strstr(s + 1, times));
    free(text);
    json_decref(j);
}

static void text_is_cut_between_characters(void **state)
{
    char out[16];
    (void)state;
    report_text_cut(out, sizeof out, "short", 400);
    assert_string_equal(out, "short");
    report_text_cut(out, sizeof out,
                    "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4"
                    "\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6",
                    4.5 * 0.56 * REPORT_EM);
    assert_string_equal(out, "\xc3\xa4\xc3\xb6\xc3\xbc\xe2\x80\xa6");
    report_text_cut(out, sizeof out, "0123456789abcdefghijklm", 4000); /* the room decides */
    assert_string_equal(out, "0123456789ab\xe2\x80\xa6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_whole_and_alone),
        cmocka_unit_test(the_front),
        cmocka_unit_test(the_front_of_speed),
        cmocka_unit_test(order_of_a_page),
        cmocka_unit_test(tasks_have_rows),
        cmocka_unit_test(any_results_give_a_page),
        cmocka_unit_test(axes),
        cmocka_unit_test(labels_do_not_meet),
        cmocka_unit_test(ratios_have_room),
        cmocka_unit_test(text_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
