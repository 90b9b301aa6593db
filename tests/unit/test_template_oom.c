/* Each allocation of a template fails once: it is reported, and nothing leaks or crashes. */
#include "template/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static long calls, fail_at = -1; /* -1: none */

static int fails(void)
{
    return calls++ == fail_at;
}
void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

static tsr_status once(const char *text, const json_t *input, struct tsr_err *err)
{
    struct tsr_template       *t;
    struct tsr_template_text   out;
    struct tsr_template_values v = { .input = input };
    TSR_TRY(tsr_template_compile(&t, "a template", text, strlen(text), err));
    tsr_status st = tsr_template_render(t, &v, &out, err);
    tsr_template_destroy(t);
    if (st == TSR_OK)
        assert_true(out.n > 100000);
    tsr_template_text_free(&out);
    return st;
}

static void each_allocation(void **state)
{
    static const char text[] =
        "{% macro m(a) %}{{ a | tojson(indent=2) }}{% endmacro %}{% set ns = namespace(s='') %}"
        "{% for x in messages[::-1] %}{% set ns.s = ns.s ~ m(x) ~ x.content.split(' ') | join('-') "
        "%}"
        "{% endfor %}{{ ns.s }}{{ messages | map(attribute='role') | unique | sort | list }}"
        "{{ 'x' * 100000 }}{{ range(2000) | list }}{% set y %}{{ ns.s | upper }}{% endset %}{{ y "
        "}}";
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t *input = json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "messages", "role", "user", "content",
                              "a b c", "role", "assistant", "content", "d e f");
    (void)state;
    for (long n = 0;; n++) {
        calls = 0;
        fail_at = n;
        tsr_status st = once(text, input, &e.err);
        bool       reached = calls > n;
        fail_at = -1;
        if (!reached) {
            assert_int_equal(st, TSR_OK);
            assert_in_range(n, 10, 500);
            break;
        }
        if (st != TSR_E_NOMEM)
            fail_msg("allocation %ld: status %d, %s", n, st, e.text);
    }
    json_decref(input);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_allocation) };
    return cmocka_run_group_tests_name("template_oom", tests, NULL, NULL);
}
