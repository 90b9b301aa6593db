/* Option tables: every type, every refusal, several sets in one mapping, hints, ranges. */
#include "../fixtures/error_is.h"
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* after what it needs */

enum { EVEN, ZERO };
struct opts {
    int64_t                       bits, rounding, limit, any;
    double                        ratio;
    int32_t                       flag;
    const char                   *name, *must;
    const struct tsr_config_node *tree;
};
static const struct tsr_choice roundings[] = { { "even", NULL, EVEN }, { "zero", NULL, ZERO } };
static const struct tsr_option table[] = {
    TSR_OPTION_INT(struct opts, bits, 4, 2, 8, "bits", "width"),
    TSR_OPTION_ENUM(struct opts, rounding, ZERO, roundings, "how"),
    TSR_OPTION_INT(struct opts, limit, 1, 1, INT64_MAX, "MiB", "memory"),
    TSR_OPTION_INT(struct opts, any, -3, 0, 0, NULL, "unbounded"),
    TSR_OPTION_REAL(struct opts, ratio, 0.5, 0.0, 1.0, NULL, "part"),
    TSR_OPTION_BOOL(struct opts, flag, 1, "switch"),
    TSR_OPTION_STRING(struct opts, name, NULL, "word"),
    { .name = "must",
      .help = "needed",
      .type = TSR_OPT_STRING,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct opts, must, const char *) },
    TSR_OPTION_NODE(struct opts, tree, "anything"),
};
#define N (sizeof table / sizeof *table)

struct filled {
    struct opts            o;
    struct tsr_diag       *d;
    struct tsr_config_doc *doc;
    uint64_t               errors;
};

static void fill(struct filled *f, const char *yaml)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    memset(f, 0, sizeof *f);
    assert_int_equal(tsr_config_diag_create(&f->d, &e.err), TSR_OK);
    assert_int_equal(tsr_config_doc_parse(&f->doc, "o.yaml", yaml, strlen(yaml), f->d, &e.err),
                     TSR_OK);
    struct tsr_config_optset set = { table, N, sizeof *table, &f->o };
    tsr_config_options_fill(&set, 1, NULL, tsr_config_doc_root(f->doc), "step 'x'", f->d);
    f->errors = tsr_config_diag_errors(f->d);
}

static void end(struct filled *f)
{
    tsr_config_doc_destroy(f->doc);
    tsr_config_diag_destroy(f->d);
}

static void test_defaults(void **state)
{
    struct filled f;
    (void)state;
    fill(&f, "must: m\n");
    assert_int_equal(f.errors, 0);
    assert_int_equal(f.o.bits, 4);
    assert_int_equal(f.o.rounding, ZERO);
    assert_int_equal(f.o.any, -3);
    assert_true(f.o.ratio == 0.5);
    assert_int_equal(f.o.flag, 1);
    assert_string_equal(f.o.name, ""); /* never NULL */
    assert_null(f.o.tree);
    end(&f);
}

static void test_values(void **state)
{
    struct filled f;
    (void)state;
    fill(&f, "must: 7\nbits: 8\nrounding: even\nlimit: 2 GiB\nany: -9223372036854775808\n"
             "ratio: 1e-1\nflag: false\nname: \"yes\"\ntree: {a: 1}\n");
    assert_int_equal(f.errors, 0);
    assert_string_equal(f.o.must, "7");
    assert_int_equal(f.o.bits, 8);
    assert_int_equal(f.o.rounding, EVEN);
    assert_int_equal(f.o.limit, 2048);
    assert_true(f.o.any == INT64_MIN);
    assert_true(f.o.ratio == 0.1);
    assert_int_equal(f.o.flag, 0);
    assert_string_equal(f.o.name, "yes");
    assert_int_equal(f.o.tree->kind, TSR_CONFIG_NODE_MAP);
    end(&f);
}

/* Items by commas may be a list, whose items are single values. */
static void test_lists(void **state)
{
    static const struct tsr_option items = TSR_OPTION_LIST(struct opts, name, "1", "items");
    static const struct {
        const char *yaml, *text; /* NULL: refused */
    } cases[] = { { "x: 1", "1" },
                  { "name: [3]", "3" },
                  { "name: [3, \"none\", 4.5]", "3,none,4.5" },
                  { "name: \"3,4\"", "3,4" },
                  { "name: 3", "3" },
                  { "name: []", NULL },
                  { "name: [3, [4]]", NULL },
                  { "name: [\"3,4\"]", NULL },
                  { "name: {a: 1}", NULL },
                  { "name:", NULL } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const also[] = { "x", NULL };
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct filled            f = { 0 };
        struct tsr_config_optset set = { &items, 1, sizeof items, &f.o };
        assert_int_equal(tsr_config_diag_create(&f.d, &e.err), TSR_OK);
        assert_int_equal(tsr_config_doc_parse(&f.doc, "o.yaml", cases[i].yaml,
                                              strlen(cases[i].yaml), f.d, &e.err),
                         TSR_OK);
        tsr_config_options_fill(&set, 1, also, tsr_config_doc_root(f.doc), "step 'x'", f.d);
        assert_int_equal(tsr_config_diag_errors(f.d), cases[i].text ? 0 : 1);
        if (cases[i].text)
            assert_string_equal(f.o.name, cases[i].text);
        end(&f);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *yaml, *facts, *hint;
    } cases[] = {
        { "bits: 9", "bits 2 8 9", NULL },
        { "bits: 1", "bits 2 8 1", NULL },
        { "bits: 4.0", "bits 2 8 4.0", NULL },
        { "bits: 0x4", "bits 2 8 0x4", NULL },
        { "bits: 99999999999999999999", "bits 2 8 99999999999999999999", NULL },
        { "bits: \"4\"", "bits 2 8 4", "write it without quotes" },
        { "bits: [4]", "bits list", NULL },
        { "bits: {}", "bits mapping", NULL },
        { "bits:", "bits 2 8", NULL },
        { "limit: 0", "limit 1 0", NULL },
        { "limit: 1 KiB", "limit 1 KiB", NULL }, /* no whole MiB */
        { "limit: 1 parsec", "limit 1 parsec", NULL },
        { "bits: 4 MiB", "bits 2 8 MiB", NULL }, /* bits are no size */
        { "any: 9223372036854775808", "any 9223372036854775808", NULL },
        { "ratio: 1.5", "ratio 0 1 1.5", NULL },
        { "ratio: .nan", "ratio 0 1 nan", NULL },
        { "ratio: nan", "ratio 0 1 nan", NULL },
        { "ratio: inf", "ratio 0 1 inf", NULL },
        { "ratio: 1e999", "ratio 0 1 1e999", NULL },
        { "ratio: 0x1p-1", "ratio 0 1 0x1p-1", NULL },
        { "ratio: \"0.5\"", "ratio 0 1 0.5", "write it without quotes" },
        { "flag: yes", "flag true false yes", "write true" },
        { "flag: Off", "flag true false Off", "write false" },
        { "flag: 1", "flag true false 1", "write true" },
        { "flag: \"true\"", "flag true false", "write it without quotes" },
        { "name: no", "name no string", "write \"no\" if you mean the word" },
        { "name: true", "name true string", "write \"true\" if you mean the word" },
        { "rounding: evne", "rounding even zero evne", "did you mean 'even'?" },
        { "rounding: up", "rounding even zero up", NULL },
        { "bit: 4", "bit x", "did you mean 'bits'?" },
        { "quark: 4", "quark x",
          "known: bits, rounding, limit, any, ratio, flag, name, must, tree" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct filled               f;
        struct tsr_config_diag_item v;
        char                        yaml[200];
        (void)snprintf(yaml, sizeof yaml, "must: m\n%s\n", cases[i].yaml);
        fill(&f, yaml);
        if (f.errors != 1)
            print_error("%s: %d errors\n", cases[i].yaml, (int)f.errors);
        assert_int_equal(f.errors, 1);
        assert_true(tsr_config_diag_at(f.d, 0, &v));
        assert_true(text_has(v.text, cases[i].facts));
        assert_int_equal(v.line, 2);
        if (cases[i].hint)
            assert_string_equal(v.hint, cases[i].hint);
        else
            assert_null(v.hint);
        end(&f);
    }
}

static void test_required_and_all_at_once(void **state)
{
    struct filled               f;
    struct tsr_config_diag_item v;
    (void)state;
    fill(&f, "bits: 1\nnope: 2\nratio: x\n");
    assert_int_equal(f.errors, 4);
    assert_true(tsr_config_diag_at(f.d, 0, &v));
    bool found = false;
    for (uint64_t i = 0; tsr_config_diag_at(f.d, i, &v); i++)
        found = found || strcmp(v.text, "step 'x' needs 'must'") == 0;
    assert_true(found);
    end(&f);
}

struct own {
    const char *use;
    int64_t     group;
};
static const struct tsr_option own[] = {
    TSR_OPTION_STRING(struct own, use, "", "plugin"),
    TSR_OPTION_INT(struct own, group, 1, 1, 9, NULL, "clash"),
};
/* As a later header compiled it: bigger, with the same beginning. */
struct later_option {
    struct tsr_option option;
    uint64_t          more[3];
};
struct plug {
    int64_t group, bits;
};

static void test_two_sets(void **state)
{
    static const struct later_option plugin[] = {
        { TSR_OPTION_INT(struct plug, group, 64, 1, 128, NULL, "columns"), { 1, 2, 3 } },
        { TSR_OPTION_INT(struct plug, bits, 4, 2, 8, NULL, "width"), { 1, 2, 3 } },
    };
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_diag            *d;
    struct tsr_config_doc      *doc;
    struct tsr_config_diag_item v;
    struct own                  o = { 0 };
    struct plug                 p = { 0 };
    static const char           yaml[] = "use: rtn\nbits: 3\nrules: []\n", clash[] = "group: 2\n";
    static const char *const    also[] = { "rules", NULL };
    (void)state;
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_config_doc_parse(&doc, "o", yaml, strlen(yaml), d, &e.err), TSR_OK);
    struct tsr_config_optset sets[] = {
        { own, 2, sizeof *own, &o },
        { (const struct tsr_option *)(const void *)plugin, 2, sizeof *plugin, &p },
    };
    tsr_config_options_fill(sets, 2, also, tsr_config_doc_root(doc), "step", d);
    assert_int_equal(tsr_config_diag_errors(d), 0);
    assert_string_equal(o.use, "rtn");
    assert_int_equal(p.bits, 3);
    assert_int_equal(p.group, 64);
    tsr_config_doc_destroy(doc);
    assert_int_equal(tsr_config_doc_parse(&doc, "o", clash, strlen(clash), d, &e.err), TSR_OK);
    tsr_config_options_fill(sets, 2, also, tsr_config_doc_root(doc), "step", d);
    assert_int_equal(tsr_config_diag_errors(d), 1);
    assert_true(tsr_config_diag_at(d, 0, &v));
    assert_true(text_has(v.text, "group"));
    tsr_config_doc_destroy(doc);
    tsr_config_diag_destroy(d);
}

static void test_complete(void **state)
{
    struct filled     f;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              text[64];
    (void)state;
    fill(&f, "must: m\nbits: 3\n");
    struct tsr_config_optset      set = { table, N, sizeof *table, &f.o };
    const struct tsr_config_node *root = tsr_config_doc_root(f.doc), *n;
    assert_int_equal(tsr_config_doc_complete(f.doc, root, &set, 1, &e.err), TSR_OK);
    assert_string_equal(tsr_config_node_get(root, "bits")->text, "3");
    n = tsr_config_node_get(root, "rounding");
    assert_string_equal(n->text, "zero");
    tsr_config_mark_text(&n->mark, text, sizeof text);
    assert_string_equal(text, "default");
    assert_null(tsr_config_node_get(root, "tree"));
    /* what was completed fills to the same values */
    struct opts again = { 0 };
    set.into = &again;
    tsr_config_options_fill(&set, 1, NULL, root, "x", f.d);
    assert_int_equal(tsr_config_diag_errors(f.d), 0);
    assert_int_equal(again.rounding, f.o.rounding);
    assert_true(again.ratio == f.o.ratio);
    assert_int_equal(again.flag, f.o.flag);
    end(&f);
}

static void test_set_text(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct opts       o = { 0 };
    (void)state;
    assert_int_equal(tsr_config_option_set(&table[0], &o, "3", &e.err), TSR_OK);
    assert_int_equal(o.bits, 3);
    assert_int_equal(tsr_config_option_set(&table[0], &o, "9", &e.err), TSR_E_INPUT);
    assert_string_equal(e.text, "'bits' must be an integer from 2 to 8, not '9'");
    assert_int_equal(o.bits, 3);
    assert_int_equal(tsr_config_option_set(&table[6], &o, "no", &e.err),
                     TSR_OK); /* an argument is text */
    assert_string_equal(o.name, "no");
    assert_int_equal(tsr_config_option_set(&table[5], &o, "maybe", &e.err), TSR_E_INPUT);
}

static void test_describe(void **state)
{
    static const char *const want[] = {
        "int 2..8, default 4 bits",
        "even|zero, default zero",
        "int >= 1, default 1 MiB",
        "int, default -3",
        "number 0..1, default 0.5",
        "true or false, default true",
        "string",
        "string, required",
        "mapping or list",
    };
    char buf[100];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        tsr_config_option_describe(&table[i], buf, sizeof buf);
        assert_string_equal(buf, want[i]);
    }
    tsr_config_option_describe(&table[0], buf, 8); /* cut, never beyond */
    assert_string_equal(buf, "int 2..");
}

static void test_nearest(void **state)
{
    static const char *const names[] = { "quantize", "eval", "group", "run", "on" };
    static const struct {
        const char *word, *near;
    } cases[] = {
        { "quantise", "quantize" },
        { "quantzie", "quantize" },
        { "evla", "eval" },
        { "gruop", "group" },
        { "grp", NULL },
        { "rn", "run" },
        { "ran", "run" },
        { "rnu", "run" },
        { "xyz", NULL },
        { "", NULL },
        { "quantization", NULL },
        { "a", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *near = tsr_config_nearest(cases[i].word, names, 5);
        if (cases[i].near)
            assert_string_equal(near, cases[i].near);
        else
            assert_null(near);
    }
}

static void test_ranges(void **state)
{
    static const struct {
        const char *text, *layers;
    } good[] = {
        { "0", "1000000000" },       { "0-3,7", "1111000100" },
        { "9", "0000000001" },       { " 1 - 2 , 4", "0110100000" },
        { "1,1-1", "0100000000" },   { "0%-33%", "1110000000" },
        { "33%-67%", "0001111000" }, { "67% - 100% ", "0000000111" },
        { "0%-100%", "1111111111" }, { "0%-10%,9", "1000000001" },
    };
    static const char *const bad[] = { "",
                                       "a",
                                       "1-",
                                       "-1",
                                       "3-1",
                                       "10",
                                       "0-10",
                                       "1,,2",
                                       "1;2",
                                       "1-2-3",
                                       "99999999999999999999",
                                       "1,",
                                       "0%",
                                       "0%-5",
                                       "0-5%",
                                       "0%-101%",
                                       "50%-40%",
                                       "50%-50%",
                                       "1%-2%",
                                       "%-5%",
                                       "0%-%",
                                       "0%-18446744073709551615%" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    bool                     in[10];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(tsr_config_parse_ranges(good[i].text, 10, in, &e.err), TSR_OK);
        for (size_t k = 0; k < 10; k++)
            assert_int_equal(in[k], good[i].layers[k] == '1');
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e.text[0] = '\0';
        assert_int_equal(tsr_config_parse_ranges(bad[i], 10, in, &e.err), TSR_E_INPUT);
        assert_true(e.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_required_and_all_at_once),
        cmocka_unit_test(test_two_sets),
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_set_text),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
