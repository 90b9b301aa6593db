/* The checker is checked: a plugin with one fault fails the rule that is about it and no other, one
 * without a fault fails none, and every rule has a plugin that breaks it.
 *
 *   test_bad TESSERA FOLDER KINDS NAME...
 *
 * FOLDER/bad_NAME.so breaks the rule NAME; KINDS ("any,quantizer") are those whose every rule is
 * among the names.  Each plugin is held to its own rule; to all others those that TSR_TEST_SEED
 * picks, or all with TSR_TEST_ALL. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SHARE 10 /* one of so many is held to all rules */

static const char *tessera, *folder, *kinds;
static char      **names;
static int         n_names;

static json_t *run(const char *arguments)
{
    char command[2048];
    (void)snprintf(command, sizeof command, "'%s' plugin check --no-model --json %s", tessera,
                   arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    json_error_t e;
    json_t      *j = json_loadf(f, 0, &e);
    int          rc = pclose(f);
    if (!j)
        fail_msg("%s: %s (exit status %d)", command, e.text, rc);
    return j;
}

/* Exactly `rule` (NULL: none) is broken, or is advice that is not followed. */
static void expect(const char *path, const char *rule, const char *arguments)
{
    char    line[1024], wrong[2048] = "";
    bool    found = false;
    size_t  i;
    json_t *r;
    (void)snprintf(line, sizeof line, "%s '%s'", arguments, path);
    json_t *report = run(line);
    json_array_foreach (json_object_get(report, "rules"), i, r) {
        const char *name = json_string_value(json_object_get(r, "rule"));
        const char *verdict = json_string_value(json_object_get(r, "verdict"));
        const char *text = json_string_value(json_object_get(r, "text"));
        if (strcmp(verdict, "passed") == 0 || strcmp(verdict, "skipped") == 0)
            continue;
        if (rule && strcmp(name, rule) == 0) {
            found = true;
            continue;
        }
        size_t at = strlen(wrong);
        (void)snprintf(wrong + at, sizeof wrong - at, "\n  %s %s: %s", verdict, name,
                       text ? text : "");
    }
    if (json_array_size(json_object_get(report, "rules")) == 0)
        fail_msg("%s: no rule ran", path);
    if (rule && !found)
        fail_msg("%s does not break %s", path, rule);
    if (*wrong)
        fail_msg("%s breaks more than %s:%s", path, rule ? rule : "nothing", wrong);
    json_decref(report);
}

static void plugin_path(char *buf, size_t cap, const char *name)
{
    (void)snprintf(buf, cap, "%s/bad_%s.so", folder, name);
}

static void breaks_its_rule(void **state)
{
    (void)state;
    for (int i = 0; i < n_names; i++) {
        char path[1024], only[128];
        plugin_path(path, sizeof path, names[i]);
        (void)snprintf(only, sizeof only, "--only %s", names[i]);
        expect(path, names[i], only);
    }
}

static void breaks_no_other(void **state)
{
    (void)state;
    const char *seed_text = getenv("TSR_TEST_SEED");
    bool        all = getenv("TSR_TEST_ALL") != NULL;
    unsigned    seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : (unsigned)time(NULL);
    print_message("TSR_TEST_SEED=%u\n", seed);
    for (int i = 0; i < n_names; i++) {
        char path[1024];
        if (!all && ((unsigned)i + seed) % SHARE != 0)
            continue;
        plugin_path(path, sizeof path, names[i]);
        expect(path, names[i], "");
    }
}

static void a_good_one_breaks_none(void **state)
{
    (void)state;
    char path[1024];
    plugin_path(path, sizeof path, "none");
    expect(path, NULL, "");
}

static void every_rule_has_one(void **state)
{
    (void)state;
    json_t *list = run("--list"), *r;
    size_t  i;
    json_array_foreach (list, i, r) {
        const char *kind = json_string_value(json_object_get(r, "kind"));
        const char *name = json_string_value(json_object_get(r, "rule"));
        bool        found = false;
        if (!strstr(kinds, kind ? kind : "any") || strcmp(name, "loads") == 0)
            continue; /* tests/unit/test_registry.c has the files that do not load */
        if (strncmp(name, "device-", 7) == 0)
            continue; /* device.sh has a device, and a plugin for each */
        for (int k = 0; k < n_names && !found; k++)
            found = strcmp(names[k], name) == 0;
        if (!found)
            fail_msg("no plugin breaks the rule %s", name);
    }
    json_decref(list);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        (void)fprintf(stderr, "usage: test_bad TESSERA FOLDER KINDS NAME...\n");
        return 2;
    }
    tessera = argv[1];
    folder = argv[2];
    kinds = argv[3];
    names = argv + 4;
    n_names = argc - 4;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_has_one),
        cmocka_unit_test(a_good_one_breaks_none),
        cmocka_unit_test(breaks_its_rule),
        cmocka_unit_test(breaks_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
