/* Every number of an instance file, replaced by the numbers at the edges: refused with a sentence that
 * names its key, or solved, with a finite answer that the host recomputes. */
#include "../fixtures/error_is.h"
#include "solver_fixture.h"

static const char *const edges[] = { "1e308",
                                     "1.7976931348623157e308",
                                     "1e300",
                                     "1e31",
                                     "1e19",
                                     "1e18",
                                     "1e-308",
                                     "5e-324",
                                     "-0.0",
                                     "-1",
                                     "9007199254740991",
                                     "9007199254740993",
                                     "9223372036854775807",
                                     "99999999999999999999",
                                     "1e400" };
#define EDGES (sizeof edges / sizeof *edges)

static unsigned refused, solved;

/* Where a number stands: the text before and after it. */
struct hole {
    const char *text;
    size_t      from, to;
    char        key[64]; /* the last key before it */
};

static bool is_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The next number behind `at` that stands outside of strings. */
static bool next_number(const char *text, size_t *at, struct hole *h)
{
    h->text = text;
    for (size_t i = *at; text[i]; i++) {
        if (text[i] == '"') {
            size_t from = ++i;
            while (text[i] != '"')
                i++;
            if (text[i + 1] == ':')
                (void)snprintf(h->key, sizeof h->key, "%.*s", (int)(i - from), text + from);
            continue;
        }
        if ((text[i] >= '0' && text[i] <= '9') || text[i] == '-') {
            h->from = i;
            while (is_number(text[i]))
                i++;
            h->to = *at = i;
            return true;
        }
    }
    return false;
}

static void ask(const char *spec, const struct tsr_instance *inst, const char *what)
{
    struct tsr_solver_solution *s = solve(spec, inst, what);
    if (s->status <= TSR_SOLVED_FEASIBLE && !isfinite(s->objective))
        fail_msg("%s: %s answers %g", what, spec, s->objective);
    if (isnan(s->bound) || s->bound == INFINITY)
        fail_msg("%s: the bound of %s is %g", what, spec, s->bound);
    solved++;
    free(s);
}

static void try_number(const struct hole *h, const char *edge, bool all)
{
    static const char *const solvers[] = { "exact", "uniform", "het", "pipeedge", "adabits" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_instance     *inst = NULL;
    char                     what[160], text[16384];
    int n = snprintf(text, sizeof text, "%.*s%s%s", (int)h->from, h->text, edge, h->text + h->to);
    assert_true(n > 0 && (size_t)n < sizeof text);
    (void)snprintf(what, sizeof what, "%s as %s", h->key, edge);
    tsr_status st = tsr_instance_parse(&inst, "file", text, (uint64_t)n, &e.err);
    if (st != TSR_OK) {
        const bool grammar = e.err.line > 0; /* jansson's own limits */
        if (st != TSR_E_INPUT || (!grammar && !text_has(e.text, h->key)))
            fail_msg("%s: status %d, %s", what, (int)st, e.text);
        refused++;
        return;
    }
    inst->in.deadline_us = 500000;
    for (size_t i = 0; i < (all ? sizeof solvers / sizeof *solvers : 1); i++)
        ask(solvers[i], inst, what);
    tsr_instance_destroy(inst);
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const names[] = { "kitchen-sink-1", "max-omega-2", "comm-1" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *j = NULL;
        char    path[1024];
        (void)snprintf(path, sizeof path, "%s/%s.json", TSR_GOLDEN_PLANNER, names[i]);
        if (tsr_json_load(&j, path, 1 << 20, 16, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        char       *text = json_dumps(j, JSON_COMPACT);
        struct hole h = { .text = text };
        uint64_t    n = 0, at = 0;
        assert_non_null(text);
        for (; next_number(text, &at, &h); n++)
            for (size_t k = 0; k < EDGES; k++)
                if (all_of_them || (n + k + seed) % 3 == 0)
                    try_number(&h, edges[k], all_of_them || (n + k) % 5 == 0);
        assert_true(n > 40);
        free(text);
        json_decref(j);
    }
    assert_true(refused > 300 && solved > 300);
}

/* The issue's own case, and what the sentence names. */
static void test_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *key, *facts;
    } cases[] = {
        { "\"theta\":", "theta 1e308 0 1e+30" },
        { "\"omega\":[[", "omega[0][0] 0 1e+30" },
        { "\"pre_ms\":[[[", "options[0].pre_ms[0][0][0] 0 1e+18" },
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    if (tsr_json_load(&j, TSR_GOLDEN_PLANNER "/example-steady.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    char *text = json_dumps(j, JSON_COMPACT);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_instance *inst = NULL;
        char                 with[16384];
        const char          *at = strstr(text, cases[i].key);
        assert_non_null(at);
        at += strlen(cases[i].key);
        size_t n = strcspn(at, ",]}");
        (void)snprintf(with, sizeof with, "%.*s1e308%s", (int)(at - text), text, at + n);
        assert_int_equal(tsr_instance_parse(&inst, "file", with, strlen(with), &e.err),
                         TSR_E_INPUT);
        assert_true(error_is(&e.err, "file", cases[i].facts));
    }
    free(text);
    json_decref(j);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers),
                                        cmocka_unit_test(test_sentence) };
    return run_solver_tests("numbers of instances", tests, argc, argv);
}
