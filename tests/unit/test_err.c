/* base/err.h: the object and the position of an error, as fields beside the sentence. */
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct tsr_err *e, const char *object, uint32_t line, uint32_t column)
{
    const char *o;
    uint32_t    n = tsr_err_object(e, &o);
    assert_int_equal(n, strlen(object));
    assert_true(n == 0 || memcmp(o, object, n) == 0);
    assert_int_equal(e->line, line);
    assert_int_equal(e->column, column);
}

static void objects(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_fail(&e.err, TSR_E_INPUT, "%s: cannot open", "a b"), TSR_E_INPUT);
    expect(&e.err, "a b", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%s:%d:%d: not valid JSON: %s", "x.json", 12, 3, "y");
    expect(&e.err, "x.json", 12, 3);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%s:%d: short", "x.json", 12);
    expect(&e.err, "x.json", 12, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%s needs %s", "generate", "MODEL");
    expect(&e.err, "generate", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "unknown key '%s'", "quantise");
    expect(&e.err, "quantise", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "no %s named \"%s\" in %s", "solver", "ilp", "here");
    expect(&e.err, "ilp", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "100%% of '%s'", "it");
    expect(&e.err, "it", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "the name '%.3s' is too long", "abcdef");
    expect(&e.err, "abc", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "--m: '%s' is not a number", "x");
    expect(&e.err, "--m", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%d of '%s'", 3, "it"); /* after what is not read */
    expect(&e.err, "", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%s", "a: b");
    expect(&e.err, "", 0, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "nothing");
    expect(&e.err, "", 0, 0);
}

static void prefixes_and_copies(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e), f = TSR_ERRBUF(f);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%s:%d: short", "x.json", 12);
    (void)tsr_err_prefix(&e.err, TSR_E_INPUT, "step '%s'", "eval");
    assert_string_equal(e.text, "step 'eval': x.json:12: short");
    expect(&e.err, "x.json", 12, 0);
    assert_int_equal(tsr_err_copy(&f.err, TSR_E_IO, &e.err), TSR_E_IO);
    assert_string_equal(f.text, e.text);
    expect(&f.err, "x.json", 12, 0);
    assert_int_equal(tsr_err_append(&e.err, TSR_E_IO, "; %s is\nnot written", "out"), TSR_E_IO);
    assert_string_equal(e.text, "step 'eval': x.json:12: short; out is?not written");
    expect(&e.err, "x.json", 12, 0);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "nothing");
    (void)tsr_err_prefix(&e.err, TSR_E_INPUT, "%s", "file"); /* names what the sentence did not */
    expect(&e.err, "file", 0, 0);
}

/* What another process left in shared memory: neither its text nor its numbers are believed. */
static void received(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e), from = TSR_ERRBUF(from);
    (void)tsr_fail(&from.err, TSR_E_INPUT, "%s:%d:%d: damaged", "x.json", 12, 3);
    assert_int_equal(tsr_err_receive(&e.err, TSR_E_IO, &from), TSR_E_IO);
    assert_string_equal(e.text, "x.json:12:3: damaged");
    expect(&e.err, "x.json", 12, 3);
    from.err.text = NULL;
    from.err.cap = from.err.object_at = UINT32_MAX;
    (void)tsr_err_receive(&e.err, TSR_E_IO, &from);
    assert_string_equal(e.text, "x.json:12:3: damaged");
    expect(&e.err, "", 12, 3);
    memset(from.text, 'a', sizeof from.text); /* without an end */
    (void)tsr_err_receive(&e.err, TSR_E_IO, &from);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    from.text[0] = '\0';
    (void)tsr_err_receive(&e.err, TSR_E_IO, &from);
    assert_string_equal(e.text, "it failed with no message");
    expect(&e.err, "", 0, 0);
}

/* An error of another rank: the sentence begins with the rank, and the object is found in it again. */
static void sent(void **state)
{
    (void)state;
    struct tsr_errbuf   e = TSR_ERRBUF(e), from = TSR_ERRBUF(from);
    struct tsr_err_sent s;
    (void)tsr_fail(&from.err, TSR_E_INPUT, "%s:%d:%d: damaged", "x.json", 12, 3);
    tsr_err_send(&s, TSR_E_FULL, &from.err);
    assert_int_equal(tsr_err_arrive(&e.err, &s, "rank 2 on b: "), TSR_E_FULL);
    assert_string_equal(e.text, "rank 2 on b: x.json:12:3: damaged");
    expect(&e.err, "x.json", 12, 3);
    s.object_at = UINT32_MAX; /* what arrives is not believed */
    (void)tsr_err_arrive(&e.err, &s, "");
    assert_string_equal(e.text, "x.json:12:3: damaged");
    expect(&e.err, "", 0, 0);
    s.object_at = 1;
    s.object_bytes = UINT32_MAX;
    (void)tsr_err_arrive(&e.err, &s, "rank 2: ");
    expect(&e.err, "", 0, 0);
    memset(s.text, 'a', sizeof s.text); /* without an end */
    (void)tsr_err_arrive(&e.err, &s, "");
    assert_int_equal(strlen(e.text), sizeof s.text);
    (void)tsr_fail(&from.err, TSR_E_INPUT, "nothing"); /* the rank is no object */
    tsr_err_send(&s, TSR_E_INPUT, &from.err);
    (void)tsr_err_arrive(&e.err, &s, "rank 2: ");
    expect(&e.err, "", 0, 0);
    char path[1500]; /* an object beyond what is sent */
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    (void)tsr_fail(&from.err, TSR_E_INPUT, "%s: damaged", path);
    tsr_err_send(&s, TSR_E_INPUT, &from.err);
    (void)tsr_err_arrive(&e.err, &s, "");
    assert_int_equal(strlen(e.text), sizeof s.text - 1);
    expect(&e.err, "", 0, 0);
}

static void what_a_plugin_wrote(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)tsr_fail(&e.err, TSR_E_INPUT, "%s: x", "a");
    e.err.object_at = 4;
    expect(&e.err, "", 0, 0); /* past the end of the text */
    e.err.object_at = 0xffffffffu;
    e.err.object_bytes = 2;
    expect(&e.err, "", 0, 0);
    char           text[8];
    struct tsr_err small = { .struct_size = sizeof small, .cap = sizeof text, .text = text };
    (void)tsr_fail(&small, TSR_E_INPUT, "%s: x", "longer than that");
    assert_string_equal(text, "longer ");
    expect(&small, "", 0, 0);
    struct tsr_err first = { .struct_size = 16, .cap = sizeof text, .text = text, .line = 7 };
    (void)tsr_fail(&first, TSR_E_INPUT, "%s:%d: x", "a", 1); /* a host of ABI 1.0 */
    assert_int_equal(first.line, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects),
        cmocka_unit_test(prefixes_and_copies),
        cmocka_unit_test(received),
        cmocka_unit_test(sent),
        cmocka_unit_test(what_a_plugin_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
