/* The command line: forms of options, refusals, and that no two tables quarrel. */
#include "../fixtures/error_is.h"
#include "cli/args.h"
#include "cli/help.h"
#include "pipeline/pipeline.h"
#include "pipeline/step.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* after what it needs */

static struct tsr_cli_args a;
static struct tsr_errbuf   e;

static tsr_status parse(const char *line)
{
    static char text[512], *argv[64];
    int         argc = 1;
    (void)snprintf(text, sizeof text, "%s", line);
    argv[0] = text + sizeof text - 1;
    /* words are separated by '|', so that they may hold blanks */
    for (char *s = text; s && *s;) {
        argv[argc++] = s;
        s = strchr(s, '|');
        if (s)
            *s++ = '\0';
    }
    e = (struct tsr_errbuf)TSR_ERRBUF(e);
    return tsr_cli_args_parse(&a, argc, argv, &e.err);
}

static void refused(const char *line, const char *about, const char *facts)
{
    tsr_status st = parse(line);
    assert_int_equal(st, TSR_E_INPUT);
    assert_true(error_is(&e.err, about, facts));
    tsr_cli_args_free(&a);
}

static void accepted(const char *line)
{
    tsr_status st = parse(line);
    if (st != TSR_OK)
        print_error("%s: %s\n", line, e.text);
    assert_int_equal(st, TSR_OK);
}

static void test_forms(void **state)
{
    (void)state;
    accepted("");
    assert_null(a.verb);
    tsr_cli_args_free(&a);
    accepted("-vv|--json|run|--threads=3|--plugin-path|p q|--plugin-path=r|job.yaml|-q|--set|a.b=c|"
             "--set=d=e|--out|x y");
    assert_string_equal(a.verb->name, "run");
    assert_int_equal(a.common.verbose, 2);
    assert_int_equal(a.common.json, 1);
    assert_int_equal(a.common.quiet, 1);
    assert_int_equal(a.common.threads, 3);
    assert_int_equal(a.common.plugin_path.n, 2);
    assert_string_equal(a.common.plugin_path.v[0], "p q");
    assert_string_equal(a.common.plugin_path.v[1], "r");
    assert_int_equal(a.common.set.n, 2);
    assert_string_equal(a.common.set.v[1], "d=e");
    assert_int_equal(a.n_args, 1);
    assert_string_equal(a.args[0], "job.yaml");
    tsr_cli_args_free(&a);
    accepted("run|--json|--no-json|--|--odd.yaml");
    assert_int_equal(a.common.json, 0);
    assert_string_equal(a.args[0], "--odd.yaml");
    tsr_cli_args_free(&a);
    accepted("config|check|-"); /* a lone dash is an argument */
    assert_int_equal(a.n_args, 2);
    tsr_cli_args_free(&a);
    accepted("run|--help"); /* without the argument that it needs */
    assert_int_equal(a.common.help, 1);
    tsr_cli_args_free(&a);
    accepted("run|j|--color|never|--threads|0");
    assert_int_equal(a.common.color, TSR_CLI_COLOR_NEVER);
    tsr_cli_args_free(&a);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("rnu", "rnu", NULL);
    refused("frobnicate", "frobnicate", "help");
    refused("run", "run", "JOB.yaml");
    refused("run|a|b", "run", "b");
    refused("run|a|--thread|1", "--thread", NULL);
    refused("run|a|--xyzzy", "--xyzzy", NULL);
    refused("run|a|-x", "-x", NULL);
    refused("run|a|--threads", "--threads", NULL);
    refused("run|a|--threads|many", "--threads", "0 256 many");
    refused("run|a|--threads=257", "--threads", "0 256");
    refused("run|a|--json=true", "--json", NULL);
    refused("run|a|--no-json=1", "--no-json", NULL);
    refused("run|a|--no-threads|1", "--no-threads", NULL);
    refused("run|a|--color|blue", "--color", "blue");
    refused("help|--set|a=b", "--set", "help");
    refused("--theads|1|run|a", "--theads", NULL);
}

/* Steps without a verb of their own: everything that is not common goes to the job. */
static void test_step_verb(void **state)
{
    const struct tsr_cli_strings *s;
    (void)state;
    accepted("quantize|--use|rtn|m|--bits=3|--json|--on-unsupported=keep");
    assert_non_null(a.verb->step);
    assert_int_equal(a.common.json, 1);
    assert_int_equal(a.n_args, 1);
    s = a.opts;
    assert_int_equal(s->n, 3);
    assert_string_equal(s->v[0], "use=rtn");
    assert_string_equal(s->v[1], "bits=3");
    assert_string_equal(s->v[2], "on_unsupported=keep");
    tsr_cli_args_free(&a);
    refused("quantize|m|--use", "--use", NULL);
}

static void test_ids(void **state)
{
    static const char *const bad[] = { "",    "1,", ",1",         "1,,2", "a",
                                       "1 2", "-1", "4294967296", "1,2x", "0x1" };
    uint32_t                *ids;
    uint64_t                 n;
    (void)state;
    e = (struct tsr_errbuf)TSR_ERRBUF(e);
    assert_int_equal(tsr_pipeline_step_ids("1, 5 ,4294967295", &ids, &n, &e.err), TSR_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 5);
    assert_true(ids[2] == UINT32_MAX);
    free(ids);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tsr_pipeline_step_ids(bad[i], &ids, &n, &e.err), TSR_E_INPUT);
        assert_true(error_is(&e.err, "", "item"));
    }
}

static bool is_common(const char *name)
{
    for (uint64_t i = 0; i < tsr_n_common_options; i++)
        if (strcmp(tsr_common_options[i].name, name) == 0)
            return true;
    return false;
}

static bool has_option(const struct tsr_verb *v, const char *name)
{
    for (uint64_t i = 0; i < v->n_renames; i++)
        if (strcmp(v->renames[i].key, name) == 0)
            name = v->renames[i].option;
    for (uint64_t i = 0; i < v->n_options; i++)
        if (strcmp(v->options[i].name, name) == 0)
            return true;
    return false;
}

/* A verb that is a step has all that the step takes, but for what every verb has. */
static void check_step(const struct tsr_verb *v)
{
    for (uint64_t i = 0; v->step && i < v->step->n_options; i++) {
        const char *name = v->step->options[i].name;
        if (!has_option(v, name) && !is_common(name))
            print_error("verb %s: option %s of its step is not there\n", v->name, name);
        assert_true(has_option(v, name) || is_common(name));
    }
}

/* What help promises: names, summaries and options of every verb are usable. */
static void test_tables(void **state)
{
    const struct tsr_verb *v;
    (void)state;
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        const char *near;
        assert_ptr_equal(tsr_verb_find(v->name, &near), v);
        assert_non_null(v->run);
        assert_true(v->summary && *v->summary && v->summary[strlen(v->summary) - 1] != '.');
        assert_true(v->min_args >= 0 && (v->max_args < 0 || v->max_args >= v->min_args));
        check_step(v);
        for (uint64_t k = 0; k < v->n_options; k++) {
            const struct tsr_option *o = &v->options[k];
            if (is_common(o->name))
                print_error("verb %s: option %s is everybody's\n", v->name, o->name);
            assert_false(is_common(o->name));
            assert_non_null(o->help);
            for (const char *s = o->name; *s; s++)
                assert_true(islower((unsigned char)*s) || isdigit((unsigned char)*s) || *s == '_');
            for (uint64_t j = 0; j < k; j++)
                assert_string_not_equal(o->name, v->options[j].name);
            if (!v->step)
                assert_true(o->offset + 4 <= v->options_size);
        }
    }
    /* an alias is in no list, and has the keys of the step */
    const struct tsr_verb *convert = tsr_verb_find("convert", NULL),
                          *other = tsr_verb_find("export", NULL);
    assert_non_null(convert);
    assert_non_null(other);
    assert_ptr_equal(other->shown, convert);
    assert_ptr_equal(other->step, convert->step);
    assert_ptr_equal(tsr_verb_find("export", NULL), other);
    check_step(other);
    assert_int_equal(other->n_renames, 0);
    assert_true(has_option(other, "format") && has_option(other, "to"));
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++)
        assert_string_not_equal(v->name, "export");
    for (uint64_t i = 0; i < tsr_n_steps; i++)
        assert_ptr_equal(tsr_pipeline_step_find(tsr_steps[i]->name), tsr_steps[i]);
}

static char *text_of(void (*print)(const struct tsr_verb *v, FILE *to), const struct tsr_verb *v)
{
    char  *text = NULL;
    size_t len = 0;
    FILE  *m = open_memstream(&text, &len);
    assert_non_null(m);
    print(v, m);
    assert_int_equal(fclose(m), 0);
    return text;
}

static void print_help(const struct tsr_verb *v, FILE *to)
{
    tsr_cli_help_verb(v, true, to);
}

/* Help and man page of a verb name every option of its table. */
static void test_help(void **state)
{
    const struct tsr_verb *v;
    (void)state;
    for (uint64_t i = 0; (v = tsr_verb_at(i)); i++) {
        char *help = text_of(print_help, v), *man = text_of(tsr_cli_man_page, v);
        assert_int_equal(strncmp(man, ".TH TESSERA", 11), 0);
        for (uint64_t k = 0; k < v->n_options; k++) {
            char flag[100], roff[200] = "", *r = roff;
            tsr_cli_option_flag(v->options[k].name, flag, sizeof flag);
            assert_non_null(strstr(help, flag));
            for (const char *s = flag; *s; s++) {
                if (*s == '-')
                    *r++ = '\\';
                *r++ = *s;
            }
            assert_non_null(strstr(man, roff));
        }
        free(help);
        free(man);
    }
    char *all = text_of(tsr_cli_man_page, NULL);
    assert_non_null(strstr(all, ".B run\n"));
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_step_verb), cmocka_unit_test(test_ids),
        cmocka_unit_test(test_tables),    cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
