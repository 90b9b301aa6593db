/* The picture of a pipeline: whole, well-formed, every visit where it belongs, nothing of the names
 * taken for markup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "plan/simulate/gantt.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/tessera-gantt-XXXXXX";
static char path[64];

static const double pre[3] = { 10, 20, 15 }, dec[3] = { 2, 1, 3 }, link_pre[2] = { 4, 0 },
                    link_dec[2] = { 0.5, 0 }, none[2] = { 0, 0 };
static const char *const names[3] = { "T4 <1> & \"2\"",
                                      "a device with a name that is far too long \xc3\xa9",
                                      "V100" };

static char *draw(const struct tsr_plan_pipeline *p, tsr_status want)
{
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_plan_gantt g = { .title = "plan <x> & y", .names = names, .pipeline = p };
    char                 *text = NULL;
    uint64_t              len;
    tsr_status            st = tsr_plan_gantt_write(&g, path, &e.err);
    if (st != want)
        fail_msg("status %d: %s", st, e.text);
    if (st == TSR_OK)
        assert_int_equal(tsr_file_slurp(path, 1 << 24, &text, &len, &e.err), TSR_OK);
    return text;
}

static uint64_t count(const char *text, const char *what)
{
    uint64_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* Every tag that opens closes in order, attributes are quoted, entities are known. */
static void well_formed(const char *s)
{
    char     open[32][16];
    unsigned depth = 0;
    while (*s) {
        if (*s == '&') {
            assert_true(!strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4) ||
                        !strncmp(s, "&amp;", 5));
            s++;
        } else if (*s != '<') {
            assert_true((unsigned char)*s >= 0x20 || *s == '\n');
            s++;
        } else {
            bool        closes = s[1] == '/';
            const char *name = s + 1 + closes, *end = name;
            for (bool quoted = false; *end != '>' || quoted; end++) {
                assert_true(*end && (*end != '<'));
                quoted ^= *end == '"';
            }
            size_t n = strcspn(name, " >/");
            assert_in_range(n, 1, 15);
            if (closes) {
                assert_true(depth > 0 && strlen(open[depth - 1]) == n &&
                            !strncmp(open[--depth], name, n));
            } else if (end[-1] != '/') {
                assert_in_range(depth, 0, 31);
                memcpy(open[depth], name, n);
                open[depth++][n] = '\0';
            }
            s = end + 1;
        }
    }
    assert_int_equal(depth, 0);
}

static void test_picture(void **state)
{
    (void)state;
    struct tsr_plan_pipeline p = { 3,    8,    50, 2, 4,    pre, dec,  link_pre, link_dec,
                                   NULL, NULL, 0,  0, NULL, 0,   NULL, NULL };
    char                    *svg = draw(&p, TSR_OK);
    well_formed(svg);
    /* 4 prefill micro-batches on 3 stages and the one link that takes time */
    assert_int_equal(count(svg, "<title>prefill, micro-batch "), 4 * 4);
    /* 2 micro-batches, 3 rounds: each stage and the link see at least two whole ones */
    assert_in_range(count(svg, "<title>decode, micro-batch "), 2 * 2 * 4, 2 * 4 * 4);
    assert_int_equal(count(svg, "<title>decode, micro-batch 1, step 1: "), 4);
    assert_int_equal(count(svg, "<title>decode, micro-batch 3"), 0);
    assert_non_null(strstr(svg, "plan &lt;x&gt; &amp; y"));
    assert_non_null(strstr(svg, "T4 &lt;1&gt; &amp; \"2\""));
    assert_non_null(strstr(svg, "prefers-color-scheme:dark"));
    assert_non_null(strstr(svg, "prefill, micro-batch 1: 0 to 10 ms"));
    assert_int_equal(count(svg, "http"), 1); /* the namespace: nothing is loaded */
    free(svg);
}

static void test_edges(void **state)
{
    (void)state;
    /* no decode: two panels; no links: no rows for them */
    struct tsr_plan_pipeline p = { 3,    4,    1, 1, 2,    pre, dec,  none, none,
                                   NULL, NULL, 0, 0, NULL, 0,   NULL, NULL };
    char                    *svg = draw(&p, TSR_OK);
    well_formed(svg);
    assert_int_equal(count(svg, "<title>decode"), 0);
    assert_int_equal(count(svg, "class=\"row\""), 2 * 3);
    free(svg);
    /* more visits than a panel shows: it says so */
    struct tsr_plan_pipeline many = { 1,    5000, 3, 1, 1,    pre, dec,  NULL, NULL,
                                      NULL, NULL, 0, 0, NULL, 0,   NULL, NULL };
    svg = draw(&many, TSR_OK);
    well_formed(svg);
    assert_int_equal(count(svg, "<title>prefill, "), 3000);
    assert_non_null(strstr(svg, "the first 3000 of 5000 visits"));
    free(svg);
    /* no time at all */
    struct tsr_plan_pipeline zero = { 1,    1,    1, 1, 1,    none, none, NULL, NULL,
                                      NULL, NULL, 0, 0, NULL, 0,    NULL, NULL };
    assert_int_equal(unlink(path), 0);
    (void)draw(&zero, TSR_E_INPUT);
    assert_false(tsr_path_exists(path));
    /* a folder that is not there */
    (void)snprintf(path, sizeof path, "%s/none/x.svg", dir);
    (void)draw(&p, TSR_E_INPUT);
}

static int open_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/x.svg", dir);
    return 0;
}

static int close_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_picture),
                                        cmocka_unit_test(test_edges) };
    return cmocka_run_group_tests(tests, open_dir, close_dir);
}
