/* Two results of a benchmark, row by row. */
#include "cli/bench/diff.h"

#include "base/json.h"
#include "cli/bench/ratio.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_ROWS  4096u
#define MOST_BYTES (UINT64_C(16) << 20)

enum { SAME, UNDECIDED, FASTER, SLOWER, VOID, VERDICTS };
static const char *const verdicts[VERDICTS] = { "same", "undecided", "faster", "slower", "void" };

/* What a row is about. */
static const char *const keys[] = { "what", "format", "act", "unit", "rows", "cols", "m", "group" };
#define KEYS (sizeof keys / sizeof *keys)

static bool same_row(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < KEYS; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
            return false;
    return true;
}

static const json_t *find(const json_t *list, const json_t *row)
{
    size_t        i;
    const json_t *one;
    json_array_foreach (list, i, one)
        if (same_row(one, row))
            return one;
    return NULL;
}

static tsr_status check_row(const char *path, const json_t *list, size_t i, struct tsr_err *err)
{
    const json_t *row = json_array_get(list, i), *rounds = json_object_get(row, "rounds"), *one;
    size_t        k, n = json_array_size(rounds);
    bool ok = n >= 1 && n <= BENCH_MOST_ROUNDS && json_is_boolean(json_object_get(row, "counts")) &&
              json_is_string(json_object_get(row, "device"));
    json_array_foreach (rounds, k, one)
        ok = ok && json_is_number(one) && json_number_value(one) >= 0;
    for (k = 0; k < KEYS; k++) {
        one = json_object_get(row, keys[k]);
        ok = ok && (k < 4 ? json_is_string(one) : json_is_integer(one));
    }
    if (!ok)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: row %zu is not one of `tessera bench --json` with its rounds (1 to %u)", path,
            i + 1, BENCH_MOST_ROUNDS);
    if (find(list, row) != row)
        return tsr_fail(err, TSR_E_INPUT, "%s: row %zu is there twice", path, i + 1);
    return TSR_OK;
}

static tsr_status load(json_t **list, const char *path, struct tsr_err *err)
{
    TSR_TRY(tsr_json_load(list, path, MOST_BYTES, 8, err));
    tsr_status st = TSR_OK;
    if (!json_is_array(*list) || json_array_size(*list) < 1 || json_array_size(*list) > MOST_ROWS)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: expected a list of 1 to %u rows, as `tessera bench --json` prints it",
                      path, MOST_ROWS);
    for (size_t i = 0; st == TSR_OK && i < json_array_size(*list); i++)
        st = check_row(path, *list, i, err);
    return st;
}

static double value_of(const json_t *row)
{
    return json_number_value(json_object_get(row, "value"));
}

/* The rounds of a row; false if one is 0, of which there is no quotient. */
static bool rounds_of(const json_t *row, double *v, uint64_t *n)
{
    const json_t *rounds = json_object_get(row, "rounds");
    bool          ok = json_is_true(json_object_get(row, "counts"));
    *n = json_array_size(rounds);
    for (uint64_t i = 0; i < *n; i++) {
        v[i] = json_number_value(json_array_get(rounds, i));
        ok = ok && v[i] > 0;
    }
    return ok;
}

static tsr_status compare(const json_t *a, const json_t *b, double tolerance, struct bench_ratio *r,
                          int *verdict, struct tsr_err *err)
{
    double   x[BENCH_MOST_ROUNDS], y[BENCH_MOST_ROUNDS];
    uint64_t n, m;
    bool     first = rounds_of(a, x, &n), second = rounds_of(b, y, &m);
    *r = (struct bench_ratio){ NAN, NAN, NAN };
    *verdict = VOID;
    if (!first || !second)
        return TSR_OK;
    TSR_TRY(bench_ratio_of(x, n, y, m, r, err));
    *verdict = r->high < 1 - tolerance                               ? SLOWER
               : r->low > 1 + tolerance                              ? FASTER
               : r->low >= 1 - tolerance && r->high <= 1 + tolerance ? SAME
                                                                     : UNDECIDED;
    return TSR_OK;
}

static json_t *real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *row_of(const json_t *a, const json_t *b, const struct bench_ratio *r, int verdict)
{
    json_t *o = json_object();
    for (size_t i = 0; i < KEYS; i++)
        tsr_json_set(&o, keys[i], tsr_json_copy(json_object_get(a, keys[i])));
    tsr_json_set(&o, "first", real(value_of(a)));
    tsr_json_set(&o, "second", real(value_of(b)));
    tsr_json_set(&o, "ratio", real(r->mid));
    tsr_json_set(&o, "low", real(r->low));
    tsr_json_set(&o, "high", real(r->high));
    tsr_json_set(&o, "verdict", json_string(verdicts[verdict]));
    return o;
}

static void print_row(const json_t *a, const json_t *b, const struct bench_ratio *r, int verdict)
{
    char interval[48] = "-", mid[24] = "-";
    if (isfinite(r->mid))
        (void)snprintf(mid, sizeof mid, "%.3f", r->mid);
    if (isfinite(r->high))
        (void)snprintf(interval, sizeof interval, "%.3f to %.3f", r->low, r->high);
    else if (isfinite(r->mid))
        (void)snprintf(interval, sizeof interval, "too few rounds");
    printf("| %s | %s | %s | %lld x %lld | %lld | %lld | %.2f | %.2f | %s | %s | %s | %s |\n",
           json_string_value(json_object_get(a, "what")),
           json_string_value(json_object_get(a, "format")),
           json_string_value(json_object_get(a, "act")),
           (long long)json_integer_value(json_object_get(a, "rows")),
           (long long)json_integer_value(json_object_get(a, "cols")),
           (long long)json_integer_value(json_object_get(a, "group")),
           (long long)json_integer_value(json_object_get(a, "m")), value_of(a), value_of(b),
           json_string_value(json_object_get(a, "unit")), mid, interval, verdicts[verdict]);
}

/* Rows of one side alone. */
static uint64_t alone(const json_t *list, const json_t *other, const char *path, json_t **names)
{
    uint64_t      n = 0;
    size_t        i;
    const json_t *row;
    json_array_foreach (list, i, row)
        if (!find(other, row)) {
            n++;
            tsr_json_add(names, tsr_json_copy(json_object_get(row, "format")));
            if (path)
                printf("only in %s: %s of %s\n", path,
                       json_string_value(json_object_get(row, "what")),
                       json_string_value(json_object_get(row, "format")));
        }
    return n;
}

struct count {
    uint64_t of[VERDICTS];
    char     slower[64]; /* the first of them */
};

static tsr_status each(const json_t *first, const json_t *second, double tolerance, json_t **rows,
                       bool print, struct count *n, struct tsr_err *err)
{
    size_t        i;
    const json_t *a;
    json_array_foreach (first, i, a) {
        const json_t      *b = find(second, a);
        struct bench_ratio r;
        int                verdict;
        if (!b)
            continue;
        TSR_TRY(compare(a, b, tolerance, &r, &verdict, err));
        if (verdict == SLOWER && !n->of[SLOWER])
            (void)snprintf(n->slower, sizeof n->slower, "%.20s of %.20s",
                           json_string_value(json_object_get(a, "what")),
                           json_string_value(json_object_get(a, "format")));
        n->of[verdict]++;
        tsr_json_add(rows, row_of(a, b, &r, verdict));
        if (print)
            print_row(a, b, &r, verdict);
    }
    return TSR_OK;
}

static tsr_status print_json(json_t **rows, json_t **before, json_t **after, struct tsr_err *err)
{
    json_t *o = json_object();
    tsr_json_set(&o, "format", json_string(BENCH_DIFF_FORMAT));
    tsr_json_set(&o, "rows", *rows);
    tsr_json_set(&o, "only_first", *before);
    tsr_json_set(&o, "only_second", *after);
    *rows = *before = *after = NULL;
    return tsr_cli_print_json(o, err);
}

tsr_status bench_diff(const char *first, const char *second, double tolerance, bool json,
                      struct tsr_err *err)
{
    json_t *a = NULL, *b = NULL, *rows = json_array(), *before = json_array(),
           *after = json_array();
    struct count n = { { 0 }, "" };
    tsr_status   st = load(&a, first, err);
    if (st == TSR_OK)
        st = load(&b, second, err);
    if (st == TSR_OK && !json)
        printf("| what | format | act | rows x cols | group | m | first | second | unit | ratio | "
               "95 %% | "
               "verdict |\n|---|---|---|---:|---:|---:|---:|---:|---|---:|---|---|\n");
    if (st == TSR_OK)
        st = each(a, b, tolerance, &rows, !json, &n, err);
    if (st == TSR_OK && !json)
        printf("\n");
    if (st == TSR_OK) {
        (void)alone(a, b, json ? NULL : first, &before);
        (void)alone(b, a, json ? NULL : second, &after);
        const char *x = json_string_value(json_object_get(json_array_get(a, 0), "device")),
                   *y = json_string_value(json_object_get(json_array_get(b, 0), "device"));
        if (!json && strcmp(x, y) != 0)
            printf("devices: %s; %s\n", x, y);
        if (!json)
            printf("%llu same, %llu faster, %llu slower, %llu undecided, %llu void; a ratio is of "
                   "shares "
                   "of the peak, or of values without one\n",
                   (unsigned long long)n.of[SAME], (unsigned long long)n.of[FASTER],
                   (unsigned long long)n.of[SLOWER], (unsigned long long)n.of[UNDECIDED],
                   (unsigned long long)n.of[VOID]);
        st = json ? print_json(&rows, &before, &after, err) : tsr_cli_flush(err);
    }
    if (st == TSR_OK && n.of[SLOWER])
        st = tsr_fail(err, TSR_E_CHECK, "%llu row%s slower by more than %.3g %%, the first is %s",
                      (unsigned long long)n.of[SLOWER], n.of[SLOWER] == 1 ? " is" : "s are",
                      100 * tolerance, n.slower);
    json_decref(a);
    json_decref(b);
    json_decref(rows);
    json_decref(before);
    json_decref(after);
    return st;
}
