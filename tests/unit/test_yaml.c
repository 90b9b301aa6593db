/* The YAML tree: marks, limits, refusals, aliases, overrides, and printing that reads back. */
#include "../fixtures/error_is.h"
#include "config/config.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h> /* after what it needs */

struct fixture {
    struct tsr_diag       *d;
    struct tsr_config_doc *doc;
    struct tsr_errbuf      e;
    tsr_status             st;
};

static void parse_n(struct fixture *f, const char *text, uint64_t n)
{
    memset(f, 0, sizeof *f);
    f->e = (struct tsr_errbuf)TSR_ERRBUF(f->e);
    assert_int_equal(tsr_config_diag_create(&f->d, &f->e.err), TSR_OK);
    f->st = tsr_config_doc_parse(&f->doc, "t.yaml", text, n, f->d, &f->e.err);
}

static void parse(struct fixture *f, const char *text)
{
    parse_n(f, text, strlen(text));
}

static void end(struct fixture *f)
{
    tsr_config_doc_destroy(f->doc);
    tsr_config_diag_destroy(f->d);
}

static const struct tsr_config_node *good(struct fixture *f, const char *text)
{
    parse(f, text);
    if (f->st != TSR_OK)
        print_error("%s\n", f->e.text);
    assert_int_equal(f->st, TSR_OK);
    assert_int_equal(tsr_config_diag_errors(f->d), 0);
    return tsr_config_doc_root(f->doc);
}

/* One error, at this place, with these facts. */
static void bad_n(const char *text, uint64_t n, uint32_t line, uint32_t column, const char *facts)
{
    struct fixture              f;
    struct tsr_config_diag_item v;
    parse_n(&f, text, n);
    assert_int_equal(f.st, TSR_E_INPUT);
    assert_null(f.doc);
    assert_int_equal(tsr_config_diag_errors(f.d), 1);
    assert_true(tsr_config_diag_at(f.d, 0, &v));
    assert_true(text_has(v.text, facts));
    assert_int_equal(v.line, line);
    assert_int_equal(v.column, column);
    end(&f);
}

static void bad(const char *text, uint32_t line, uint32_t column, const char *facts)
{
    bad_n(text, strlen(text), line, column, facts);
}

static void test_tree(void **state)
{
    struct fixture                f;
    const struct tsr_config_node *n,
        *root = good(&f, "a: 1\nb: \"2\"\nc: [x, 'y', ~]\nd:\n  e: |\n    t\nf:\n");
    (void)state;
    assert_int_equal(root->kind, TSR_CONFIG_NODE_MAP);
    assert_int_equal(root->n, 5);
    n = tsr_config_node_get(root, "a");
    assert_string_equal(n->text, "1");
    assert_false(n->quoted);
    assert_int_equal(n->mark.line, 1);
    assert_int_equal(n->mark.column, 4);
    n = tsr_config_node_get(root, "b");
    assert_true(n->quoted);
    assert_int_equal(n->mark.length, 3);
    n = tsr_config_node_get(root, "c");
    assert_int_equal(n->kind, TSR_CONFIG_NODE_LIST);
    assert_int_equal(n->n, 3);
    assert_int_equal(n->items[2]->kind, TSR_CONFIG_NODE_NULL);
    assert_int_equal(n->items[1]->mark.column, 8);
    n = tsr_config_node_get(tsr_config_node_get(root, "d"), "e");
    assert_string_equal(n->text, "t\n");
    assert_true(n->quoted);
    assert_int_equal(tsr_config_node_get(root, "f")->kind, TSR_CONFIG_NODE_NULL);
    assert_null(tsr_config_node_get(root, "g"));
    end(&f);
}

static void test_columns_count_characters(void **state)
{
    struct fixture                f;
    const struct tsr_config_node *root = good(&f, "k\xc3\xa4se: {\xe6\x97\xa5: x}\n");
    const struct tsr_config_node *map = tsr_config_node_get(root, "k\xc3\xa4se");
    (void)state;
    assert_int_equal(map->mark.column, 7);
    assert_int_equal(map->items[0]->mark.column, 11);
    end(&f);
}

static void test_refusals(void **state)
{
    (void)state;
    bad("", 1, 1, "empty");
    bad("# nothing\n", 1, 1, "empty");
    bad("- a\n", 1, 1, "list");
    bad("a: 1\na: 2\n", 2, 1, "1");
    bad("x: {b: 1, c: 2, b: 3}\n", 1, 17, "1");
    bad("a: !!str 1\n", 1, 4, "tags");
    bad("a: !x {}\n", 1, 4, "tags");
    bad("a: &x {k: 1}\nb:\n  <<: *x\n", 3, 3, NULL);
    bad("a: 1\n---\nb: 2\n", 2, 1, NULL);
    bad("a: *x\n", 1, 4, "&x");
    bad("a: &x [*x]\n", 1, 8, NULL);
    bad("[a]: 1\n", 1, 1, NULL);
    bad("a:\n\tb: 1\n", 2, 1, "tab");
    bad("a: [1, 2\n", 2, 1, "YAML");
    bad("a: b: c\n", 1, 5, "YAML");
    bad("\xef\xbb\xbf"
        "a: 1\n",
        1, 1, NULL);
    bad("\xff\xfe"
        "a",
        1, 1, "UTF-16");
    bad("a: 1\nb: \xff\n", 2, 4, "0xff");
    bad("a: 1\nb: \xed\xa0\x80\n", 2, 4, "0xed"); /* a lone surrogate */
    bad_n("a: 1\nb: \0\n", 10, 2, 4, "NUL");
    bad("a: \"x\\0y\"\n", 1, 4, "NUL");
    bad("a: \x1b[1m\n", 1, 4, "U+001B");
    bad("\"\": 1\n", 1, 1, NULL);
    bad("a: 1\r\nb: \x01\r\n", 2, 4, "U+0001");
}

static void test_all_errors_at_once(void **state)
{
    struct fixture              f;
    struct tsr_config_diag_item v;
    (void)state;
    parse(&f, "a: !t 1\nb: 1\nb: 2\n<<: x\n");
    assert_int_equal(f.st, TSR_E_INPUT);
    assert_int_equal(tsr_config_diag_errors(f.d), 3);
    for (uint64_t i = 0; i < 3; i++) {
        static const uint32_t line[] = { 1, 3, 4 };
        assert_true(tsr_config_diag_at(f.d, i, &v));
        assert_int_equal(v.line, line[i]);
    }
    assert_false(tsr_config_diag_at(f.d, 3, &v));
    end(&f);
}

/* text of depth d: a: [[[...]]] */
static char *nested(unsigned depth)
{
    char *s = malloc(2 * depth + 8);
    assert_non_null(s);
    size_t n = 0;
    n += (size_t)sprintf(s, "a: ");
    for (unsigned i = 0; i < depth; i++)
        s[n++] = '[';
    for (unsigned i = 0; i < depth; i++)
        s[n++] = ']';
    s[n++] = '\n';
    s[n] = '\0';
    return s;
}

static void test_limits(void **state)
{
    struct fixture f;
    (void)state;
    char *s = nested(31);
    (void)good(&f, s);
    end(&f);
    free(s);
    s = nested(32);
    bad(s, 1, 35, "32");
    free(s);
    s = nested(200000); /* libyaml alone takes quadratic time here */
    clock_t start = clock();
    bad(s, 1, 35, "32");
    assert_true(clock() - start < CLOCKS_PER_SEC);
    free(s);

    /* billion laughs */
    static const char laughs[] =
        "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
        "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    bad(laughs, 5, 29, "100,000");
    s = malloc(70 + 4 * 1002);
    assert_non_null(s);
    char *p = s + sprintf(s, "a: &a x\nb: [");
    for (int i = 0; i < 1000; i++)
        p += sprintf(p, "*a, ");
    (void)sprintf(p, "]\n");
    (void)good(&f, s);
    end(&f);
    (void)sprintf(p, "*a]\n");
    bad(s, 2, 4 + 1 + 4 * 1000, "1,000");
    free(s);
    /* depth through an alias: 20 levels named, then used 13 deep */
    bad("a: &a [[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]\nb: [[[[[[[[[[[[*a]]]]]]]]]]]]\n", 2, 16,
        "32");
    /* nodes */
    uint64_t n = 5 + 2 * 100001;
    s = malloc(n + 3);
    assert_non_null(s);
    p = s + sprintf(s, "a: [");
    for (int i = 0; i < 100001; i++) {
        *p++ = 'x';
        *p++ = ',';
    }
    *p++ = ']';
    *p = '\0';
    bad(s, 1, 4 + 1 + 2 * 99997, "100,000");
    free(s);
    /* many keys stay fast, and a duplicate among them is found */
    s = malloc(40000 * 12 + 20);
    assert_non_null(s);
    p = s;
    for (int i = 0; i < 40000; i++)
        p += sprintf(p, "k%05d: 1\n", i);
    (void)sprintf(p, "k00007: 2\n");
    start = clock();
    bad(s, 40001, 1, "8");
    assert_true(clock() - start < CLOCKS_PER_SEC * 3);
    free(s);
    /* size */
    s = malloc((1u << 20) + 2);
    assert_non_null(s);
    memset(s, '#', (1u << 20) + 1);
    parse_n(&f, s, (1u << 20) + 1);
    assert_int_equal(f.st, TSR_E_INPUT);
    assert_true(error_is(&f.e.err, "t.yaml", "limit"));
    end(&f);
    free(s);
}

static char *printed(const struct tsr_config_node *n, bool origin)
{
    char  *text = NULL;
    size_t len = 0;
    FILE  *m = open_memstream(&text, &len);
    assert_non_null(m);
    tsr_config_node_print(n, m, origin);
    assert_int_equal(fclose(m), 0);
    return text;
}

static void test_print_reads_back(void **state)
{
    static const char text[] = "version: 1\nmap: {a: -1.5e3, b: [], c: {}, d: ~}\n"
                               "strings: [\"true\", '#x', \"a: b\", \"\\x01\\n\\t\\\"\", - x, "
                               "http://a.b/c, \"\", \"\\u2028\","
                               " \"\\x85\", \"\\ufeff\"]\n"
                               "lists: [[1, [2]], [{x: 1, y: [z]}]]\nblock: |\n  two\n  "
                               "lines\n'quoted key': \"caf\xc3\xa9\"\n";
    struct fixture    f, g;
    (void)state;
    parse(&f, text);
    /* "- x" in a flow list is no plain scalar */
    assert_int_equal(f.st, TSR_E_INPUT);
    end(&f);
    char *fixed = strdup(text);
    assert_non_null(fixed);
    memcpy(strstr(fixed, "- x"), "-xy", 3);
    const struct tsr_config_node *root = good(&f, fixed);
    for (int origin = 0; origin < 2; origin++) {
        char   *out = printed(root, origin);
        json_t *a = tsr_config_node_json(root), *b = tsr_config_node_json(good(&g, out));
        assert_non_null(a);
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
        end(&g);
        free(out);
    }
    end(&f);
    free(fixed);
}

static void test_json_types(void **state)
{
    struct fixture f;
    json_t        *j = tsr_config_node_json(
               good(&f, "a: [1, -2, 1.5, 1e3, true, 'true', yes, ~, 9223372036854775808, 0x10]\n"));
    json_t *want = json_pack("{s:[i,i,f,f,b,s,s,n,f,s]}", "a", 1, -2, 1.5, 1000.0, 1, "true", "yes",
                             9223372036854775808.0, "0x10");
    (void)state;
    assert_true(json_equal(j, want));
    json_decref(j);
    json_decref(want);
    end(&f);
}

/* ---- overrides -------------------------------------------------------------- */

static const char job[] = "version: 1\nseed: 7\npipeline:\n  - report\n"
                          "  - quantize: {use: rtn, rules: [{bits: 3}, {bits: 4}]}\n"
                          "  - quantize: {use: int8}\n  - eval: {text: a}\n  - empty:\n";

static const struct tsr_config_node *step(const struct tsr_config_node *root, uint64_t i)
{
    return tsr_config_node_get(root, "pipeline")->items[i]->items[0];
}

static void test_set(void **state)
{
    struct fixture                f;
    const struct tsr_config_node *root, *n;
    char                          origin[64];
    (void)state;
    good(&f, job);
    static const char *const sets[] = {
        "seed=8",
        "name=new",
        "quantize[2].bits=3",
        "quantize[1].rules[2].bits=8",
        "eval.text=\"b\"",
        "eval.deep.er={x: [1]}",
        "report.html=r.html",
        "empty.k=1",
        "eval.e=",
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        assert_int_equal(tsr_config_doc_set(f.doc, sets[i], f.d, &f.e.err), TSR_OK);
    assert_int_equal(tsr_config_doc_set_text(f.doc, "--text [a", "report.text=[a: {#\xff", f.d,
                                             &f.e.err),
                     TSR_OK);
    root = tsr_config_doc_root(f.doc);
    n = tsr_config_node_get(root, "seed");
    assert_string_equal(n->text, "8");
    n = tsr_config_node_get(step(root, 0), "text"); /* as it is, whatever YAML would make of it */
    assert_string_equal(n->text, "[a: {#\xff");
    assert_true(n->quoted);
    tsr_config_mark_text(&n->mark, origin, sizeof origin);
    assert_string_equal(origin, "--text [a");
    n = tsr_config_node_get(root, "seed");
    tsr_config_mark_text(&n->mark, origin, sizeof origin);
    assert_string_equal(origin, "--set seed=8");
    assert_string_equal(tsr_config_node_get(root, "name")->text, "new");
    assert_string_equal(tsr_config_node_get(step(root, 2), "bits")->text, "3");
    assert_null(tsr_config_node_get(step(root, 1), "bits"));
    n = tsr_config_node_get(step(root, 1), "rules");
    assert_string_equal(tsr_config_node_get(n->items[1], "bits")->text, "8");
    assert_string_equal(tsr_config_node_get(n->items[0], "bits")->text, "3");
    assert_true(tsr_config_node_get(step(root, 3), "text")->quoted);
    n = tsr_config_node_get(tsr_config_node_get(step(root, 3), "deep"), "er");
    assert_string_equal(tsr_config_node_get(n, "x")->items[0]->text, "1");
    assert_string_equal(tsr_config_node_get(step(root, 0), "html")->text, "r.html");
    assert_string_equal(tsr_config_node_get(step(root, 4), "k")->text, "1");
    assert_int_equal(tsr_config_node_get(step(root, 3), "e")->kind, TSR_CONFIG_NODE_NULL);
    end(&f);
}

static void test_set_refusals(void **state)
{
    static const struct {
        const char *set, *facts;
        uint32_t    column;
    } cases[] = {
        { "quantize.bits=3", "2 quantize", 1 },
        { "quantize[3].bits=3", "3 2", 1 },
        { "quantize[0].bits=3", NULL, 1 },
        { "quantize[x].bits=3", NULL, 1 },
        { "quantize[1].rules[3].bits=3", "2", 13 },
        { "quantize[1].rules.bits=3", "list", 19 },
        { "quantize[1].use[1]=3", "list", 13 },
        { "seed.x=3", NULL, 6 },
        { "seed", "=", 1 },
        { "=3", NULL, 1 },
        { "a..b=3", NULL, 3 },
        { "a b=3", "_ -", 1 },
        { "seed=[1", "YAML", 8 },
        { "seed=!!int 3", "tags", 6 },
        { "seed=\xff", "0xff", 6 },
        { "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=3", "16", 33 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture              f;
        struct tsr_config_diag_item v;
        good(&f, job);
        assert_int_equal(tsr_config_doc_set(f.doc, cases[i].set, f.d, &f.e.err), TSR_E_INPUT);
        assert_int_equal(tsr_config_diag_errors(f.d), 1);
        assert_true(tsr_config_diag_at(f.d, 0, &v));
        if (v.column != cases[i].column)
            print_error("%s: column %u: %s\n", cases[i].set, v.column, v.text);
        assert_true(text_has(v.text, cases[i].facts));
        assert_int_equal(v.column, cases[i].column);
        assert_true(v.argument);
        end(&f);
    }
}

/* ---- the look of an error -------------------------------------------------------- */

static void test_caret(void **state)
{
    struct fixture f;
    char          *text = NULL;
    size_t         len = 0;
    (void)state;
    good(&f, "steps:\n  \xe6\x97\xa5\xe6\x9c\xac: {quantiser: gptq}\n");
    const struct tsr_config_node *map =
        tsr_config_node_get(tsr_config_doc_root(f.doc), "steps")->items[0];
    tsr_config_diag_error(f.d, &map->keys[0]->mark, "did you mean 'quantizer'?", "unknown key '%s'",
                          map->keys[0]->text);
    tsr_config_diag_error(f.d, NULL, NULL, "no place");
    FILE *m = open_memstream(&text, &len);
    assert_non_null(m);
    tsr_config_diag_print(f.d, m, false);
    assert_int_equal(fclose(m), 0);
    /* two wide characters take four columns of the terminal */
    assert_string_equal(text, "t.yaml:2:8: error: unknown key 'quantiser'\n"
                              "    2 |   \xe6\x97\xa5\xe6\x9c\xac: {quantiser: gptq}\n"
                              "      |          ^~~~~~~~~ did you mean 'quantizer'?\n"
                              "error: no place\n");
    free(text);
    assert_int_equal(tsr_config_diag_status(f.d, &f.e.err), TSR_E_INPUT);
    assert_string_equal(f.e.text, "t.yaml:2:8: unknown key 'quantiser'; did you mean 'quantizer'?; "
                                  "and no place");
    end(&f);
}

/* Whoever destroys a list unprinted still says every error: in the order of the file, warnings left out. */
static void test_status_of_several(void **state)
{
    struct fixture f;
    (void)state;
    good(&f, "a: 1\nb: 2\nc: 3\n");
    const struct tsr_config_node *map = tsr_config_doc_root(f.doc);
    tsr_config_diag_error(f.d, &map->keys[2]->mark, NULL, "last");
    tsr_config_diag_warning(f.d, &map->keys[0]->mark, NULL, "not this");
    tsr_config_diag_error(f.d, &map->keys[1]->mark, NULL, "first");
    tsr_config_diag_error(f.d, &map->keys[1]->mark, "a hint", "second");
    assert_int_equal(tsr_config_diag_status(f.d, &f.e.err), TSR_E_INPUT);
    assert_string_equal(f.e.text,
                        "t.yaml:2:1: first; and t.yaml:2:1: second; a hint; and t.yaml:3:1: last");
    const char *object;
    assert_int_equal(tsr_err_object(&f.e.err, &object), 6);
    assert_memory_equal(object, "t.yaml", 6);
    assert_int_equal(f.e.err.line, 2);
    assert_int_equal(f.e.err.column, 1);
    assert_int_equal(tsr_config_diag_status(f.d, NULL), TSR_E_INPUT);
    /* errors that the sentence has no room for are counted: 303 of them, of which 200 entries are kept */
    for (int i = 0; i < 300; i++)
        tsr_config_diag_error(f.d, &map->keys[2]->mark, NULL, "error %03d of many", i);
    assert_int_equal(tsr_config_diag_status(f.d, &f.e.err), TSR_E_INPUT);
    uint64_t listed = 0;
    for (const char *p = f.e.text; (p = strstr(p, "t.yaml:")); p++)
        listed++;
    const char *more = strstr(f.e.text, " more errors");
    assert_true(listed > 10 && strlen(f.e.text) < 1024 && more && !more[12]);
    while (more[-1] != ' ')
        more--;
    assert_int_equal(listed + strtoull(more, NULL, 10), 303);
    end(&f);
}

/* One long error leaves no room for the next. */
static void test_status_of_long(void **state)
{
    struct fixture f;
    char           text[900];
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    good(&f, "a: 1\n");
    tsr_config_diag_error(f.d, NULL, NULL, "%s", text);
    tsr_config_diag_error(f.d, NULL, NULL, "another");
    assert_int_equal(tsr_config_diag_status(f.d, &f.e.err), TSR_E_INPUT);
    assert_memory_equal(f.e.text, text, sizeof text - 1);
    assert_string_equal(f.e.text + sizeof text - 1, "; and 1 more error");
    end(&f);
}

static void test_status_of_one(void **state)
{
    struct fixture f;
    (void)state;
    parse(&f, "a: 1\na: 2\n");
    assert_string_equal(f.e.text, "t.yaml:2:1: key 'a' is already on line 1; remove one");
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),           cmocka_unit_test(test_columns_count_characters),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_all_errors_at_once),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_print_reads_back),
        cmocka_unit_test(test_json_types),     cmocka_unit_test(test_set),
        cmocka_unit_test(test_set_refusals),   cmocka_unit_test(test_caret),
        cmocka_unit_test(test_status_of_one),  cmocka_unit_test(test_status_of_several),
        cmocka_unit_test(test_status_of_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
