/* Chat templates: what Jinja2 renders (tests/golden/template), what is refused and where, the limits, and which
 * text counts as input.  With a file of cases as argument: those alone. */
#include "template/template.h"

#include "../fixtures/error_is.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER TSR_SOURCE_ROOT "/tests/golden/template/"

static json_t *load(const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    if (tsr_json_load(&j, path, 16 << 20, 32, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return j;
}

static tsr_status run(const char *text, uint64_t n, const json_t *input, const json_t *own,
                      struct tsr_template_text *out, struct tsr_err *err)
{
    struct tsr_template       *t;
    struct tsr_template_values v = { .input = input, .own = own };
    *out = (struct tsr_template_text){ 0 };
    assert_true(tsr_template_date("2024-07-26", &v.date));
    TSR_TRY(tsr_template_compile(&t, "template", text, n, err));
    tsr_status st = tsr_template_render(t, &v, out, err);
    tsr_template_destroy(t);
    return st;
}

/* ---- recorded cases ----------------------------------------------------- */

/* What this program refuses on purpose: docs/decisions/chat-templates.md. */
static bool is_known(const char *message)
{
    static const char *const known[] = {
        "64 bits",      "has no text",     "supported",   "MiB",
        "levels",       "generator",       "use 'join'",  "is not a key",
        "places",       "negative number", "real number", "more than",
        "has no items", "to iterate over", "no slices",   "power"
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(message, known[i]))
            return true;
    return false;
}

static char *file_text(const char *name, size_t *n)
{
    char  path[300];
    char *text = malloc(1 << 16);
    (void)snprintf(path, sizeof path, FOLDER "templates/%s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(text);
    assert_non_null(f);
    *n = fread(text, 1, 1 << 16, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static const json_t *context(const json_t *all, const char *name)
{
    const json_t *one;
    size_t        i;
    json_array_foreach ((json_t *)(uintptr_t)all, i, one)
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            return json_object_get(one, "values");
    fail_msg("no context %s", name);
    return NULL;
}

/* Whether the case comes out as recorded; *refused: only this program refuses it. */
static bool same(const json_t *c, const json_t *values, const json_t *own, bool *refused)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_template_text out;
    const char              *file = json_string_value(json_object_get(c, "file"));
    const json_t            *t = json_object_get(c, "template"), *want = json_object_get(c, "text");
    const char              *says = json_string_value(json_object_get(c, "refuses"));
    size_t                   n = json_string_length(t);
    char                    *text = file ? file_text(file, &n) : NULL;
    tsr_status st = run(text ? text : json_string_value(t), n, values, own, &out, &e.err);
    free(text);
    bool ok = want ? st == TSR_OK && out.n == json_string_length(want) &&
                         memcmp(out.s, json_string_value(want), out.n) == 0
                   : st == TSR_E_INPUT && (!says || strstr(e.text, says));
    *refused = want && st == TSR_E_INPUT && is_known(e.text);
    if (!ok && !*refused)
        print_message("%s: %s\n  got  %s\n  want %s\n",
                      json_string_value(json_object_get(c, "name")), t ? json_string_value(t) : "",
                      st == TSR_OK ? out.s : e.text,
                      want   ? json_string_value(want)
                      : says ? says
                             : json_string_value(json_object_get(c, "fails")));
    if (st == TSR_E_INPUT)
        assert_true(e.err.line > 0 && e.err.column > 0);
    tsr_template_text_free(&out);
    return ok;
}

static uint64_t check_all(const char *path, uint64_t *n, uint64_t *n_refused)
{
    json_t  *all = load(path), *contexts = load(FOLDER "contexts.json"), *c;
    size_t   i;
    uint64_t differ = 0;
    *n = *n_refused = 0;
    json_array_foreach (json_object_get(all, "cases"), i, c) {
        const char   *name = json_string_value(json_object_get(c, "context"));
        const json_t *values = name ? context(contexts, name) : json_object_get(all, "values");
        bool          refused;
        bool          ok = same(c, values, json_object_get(all, "own"), &refused);
        *n_refused += refused;
        differ += !ok && !refused;
        ++*n;
    }
    json_decref(all);
    json_decref(contexts);
    return differ;
}

static void as_jinja2_does(void **state)
{
    uint64_t n, refused;
    (void)state;
    assert_int_equal(check_all(FOLDER "cases.json", &n, &refused), 0);
    assert_int_equal(refused, 0);
    assert_true(n > 280);
}

/* ---- refusals ----------------------------------------------------------- */

static unsigned wrong;

static void refuses(const char *text, const char *says, unsigned line, unsigned column)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_template_text out;
    if (run(text, strlen(text), NULL, NULL, &out, &e.err) != TSR_E_INPUT)
        fail_msg("%s: not refused", text);
    if (!strstr(e.text, says) || e.err.line != line || e.err.column != column) {
        print_message("%s: \"%s\", line %u, column %u, does not say \"%s\", line %u, column %u\n",
                      text, e.text, e.err.line, e.err.column, says, line, column);
        wrong++;
    }
    assert_null(out.s);
    if (strstr(text, "raise_exception")) /* without the place */
        assert_string_equal(out.raised, says);
    else
        assert_null(out.raised);
    tsr_template_text_free(&out);
}

static void says_where(void **state)
{
    (void)state;
    refuses("{{ 'a' | pprint }}", "'pprint' is not a filter that is supported", 1, 10);
    refuses("a\n{% include 'b' %}", "'include' is not a statement that is supported", 2, 4);
    refuses("{% extends 'b' %}", "'extends' is not a statement", 1, 4);
    refuses("{% import 'b' as b %}", "'import' is not a statement", 1, 4);
    refuses("{% for x in [] recursive %}{% endfor %}", "'recursive' is not supported", 1, 16);
    refuses("{{ 0x10 }}", "numbers are decimal", 1, 4);
    refuses("{{ '{:>5}'.format(1) }}", "'format' supports no more", 1, 11);
    refuses("{{ 1\n + 1 }}{{\n y + x }}", "'y' is undefined", 3, 2);
    refuses("{{ 9223372036854775807 + 1 }}", "64 bits", 1, 4);
    refuses("{{ 99999999999999999999 }}", "64 bits", 1, 4);
    refuses("{{ messages[0].content }}", "'messages' is undefined", 1, 12);
    refuses("\n\n  {{ raise_exception('Turns go back and forth') }}", "Turns go back and forth", 3,
            6);
    refuses("{% if 1 %}", "the end of the template is not 'elif'", 1, 11);
    refuses("{{ '\\N{DASH}' }}", "\\N", 1, 4);
    refuses("{{ [1] | map('upper') }}", "a generator has no text", 1, 4);
    refuses("{{ lipsum() }}", "'lipsum' is undefined", 1, 4);
    refuses("{{ ''.__class__.x }}", "has no attribute", 1, 16);
    refuses("\xff", "not UTF-8", 1, 1);
    assert_int_equal(wrong, 0);
}

static void has_limits(void **state)
{
    char *deep = malloc(20001);
    (void)state;
    assert_non_null(deep);
    refuses("{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
            "memory", 1, 51);
    refuses("{% set r = range(100000) %}{% for a in r %}{% if r == r %}{% endif %}{% endfor %}",
            "steps", 1, 50);
    refuses(
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s "
        "%}{% endfor %}",
        "MiB", 1, 86);
    refuses("{% set s = 'x' * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}", "MiB", 1,
            56);
    refuses("{{ 'x' * 9999999999 }}", "steps", 1, 4);
    refuses("{{ range(1000000000) }}", "a range has more than 100000", 1, 4);
    refuses("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels of nesting", 1, 20);
    refuses(
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l }}",
        "levels of nesting", 1, 95);
    refuses(
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l == ns.l }}",
        "levels of nesting", 1, 97);
    assert_int_equal(wrong, 0);
    for (int i = 0; i < 4; i++) { /* a text of nested signs, brackets and so on */
        memset(deep, "([-{"[i], 20000);
        memcpy(deep, "{{", 2);
        deep[2] = ' ';
        deep[20000] = '\0';
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_template_text out;
        assert_int_equal(run(deep, 20000, NULL, NULL, &out, &e.err), TSR_E_INPUT);
    }
    free(deep);
}

/* ---- what counts as input ----------------------------------------------- */

/* Renders with {"messages": [{"role": ROLE, "content": "<|x|> Q"}]}; own texts between spans are marked "[...]". */
static void marks(const char *text, const char *role, const char *want)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_template_text out;
    char                     got[500];
    size_t                   n = 0, span = 0;
    json_t *input = json_pack("{s:[{s:s, s:s}]}", "messages", "role", role, "content", "<|x|> Q"),
           *own = json_pack("{s:s}", "bos_token", "<s>");
    if (run(text, strlen(text), input, own, &out, &e.err) != TSR_OK)
        fail_msg("%s: %s", text, e.text);
    for (size_t i = 0; i <= out.n; i++) {
        if (span < out.n_spans && i == out.spans[span].end) {
            got[n++] = ']';
            span++;
        }
        if (span < out.n_spans && i == out.spans[span].begin)
            got[n++] = '[';
        got[n++] = out.s[i];
    }
    assert_string_equal(got, want);
    tsr_template_text_free(&out);
    json_decref(input);
    json_decref(own);
}

static void input_is_marked(void **state)
{
    (void)state;
    marks("{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}!", "user",
          "<s><|user|>[<|x|> Q]!");
    marks("{{ messages[0].role }}", "<s>", "[<s>]"); /* a name alone is trusted */
    marks("{% set m = messages[0] %}{{ '<a>' + m.content + '<b>' ~ m.content[1:3] }}", "user",
          "<a>[<|x|> Q]<b>[|x]");
    marks("{{ (' <a> ' + messages[0].content).strip() | upper }}", "user", "<A> [<|X|> Q]");
    marks("{{ messages[0].content.split('|')[1] }}{{ messages[0].content | replace('Q', '<b>') }}",
          "user", "[x<|x|> ]<b>");
    marks("{{ messages | tojson }}", "user",
          "[{\"[role]\": \"user\", \"[content]\": \"[<|x|> Q]\"}]");
    marks("{{ messages }}", "user", "[{'[role]': 'user', '[content]': '[<|x|> Q]'}]");
    marks("{% set x %}{{ messages[0].content }}.{% endset %}{{ x }}{% filter trim %} {{ x }} {% "
          "endfilter %}",
          "user", "[<|x|> Q].[<|x|> Q].");
    marks("{{ '%s|' % messages[0].content }}{{ [messages[0].content, 'a'] | join('-') }}", "user",
          "[<|x|> Q]|[<|x|> Q]-a");
    marks("{% for c in messages[0].content[:3] | reverse %}{{ c }}.{% endfor %}", "user",
          "[x].[|].[<].");
    marks("{{ messages[0].content | indent(1) ~ '{}<'.format(messages[0].content[0]) }}", "user",
          "[<|x|> Q<]<");
}

static void dates(void **state)
{
    int64_t at;
    (void)state;
    assert_true(tsr_template_date("1970-01-02", &at));
    assert_int_equal(at, 86400);
    assert_true(tsr_template_date("2024-02-29", &at));
    assert_false(tsr_template_date("2023-02-29", &at));
    assert_false(tsr_template_date("2024-7-26", &at));
    assert_false(tsr_template_date("26 Jul 2024", &at));
    assert_false(tsr_template_date("2024-07-26 ", &at));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_jinja2_does), cmocka_unit_test(says_where),
        cmocka_unit_test(has_limits),     cmocka_unit_test(input_is_marked),
        cmocka_unit_test(dates),
    };
    if (argc > 1) {
        uint64_t n, refused, differ = check_all(argv[1], &n, &refused);
        print_message("%s: %llu cases, %llu refused here only, %llu differ\n", argv[1],
                      (unsigned long long)n, (unsigned long long)refused,
                      (unsigned long long)differ);
        return differ != 0;
    }
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
