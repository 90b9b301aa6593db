/* The plan's text output: codecs that were chosen, and what solvers did not consider. */
#include "planning/table.h"

#include <string.h>

#define CELL     TSR_TABLE_CELL
#define SENTENCE TSR_TABLE_SENTENCE

/* What a solver did not know, after `lead`; 0: nothing. */
size_t tsr_planning_table_ignored(const json_t *plan, const char *lead, char *text, size_t cap)
{
    const json_t *one;
    size_t        i, at = 0;
    json_array_foreach (json_object_get(plan, "ignored"), i, one)
        if (at < cap)
            at += (size_t)snprintf(text + at, cap - at, "%s%s", i ? ", " : lead,
                                   json_string_value(one));
    return at;
}

/* "codecs     0 to 1: mx:format=e2m1, sums of 1: plain": where there was a choice. */
void tsr_planning_table_codecs(const json_t *r, const json_t *list, FILE *to)
{
    static const struct {
        const char *list, *key;
    } keys[] = { { "codecs", "send" }, { "sums", "collective" } };
    char   text[SENTENCE] = "";
    size_t at = 0, i;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *s;
        if (!json_object_get(r, keys[k].list))
            continue;
        json_array_foreach (list, i, s) {
            const json_t *names = json_object_get(s, keys[k].key);
            if (!names || at >= sizeof text)
                continue;
            at += k ? (size_t)snprintf(text + at, sizeof text - at, "%ssums of stage %zu by %.100s",
                                       at ? ", " : "", i, tsr_planning_table_text(names, "decode"))
                    : (size_t)snprintf(text + at, sizeof text - at, "%sstage %zu to %zu by %.100s",
                                       at ? ", " : "", i, i + 1,
                                       tsr_planning_table_text(names, "decode"));
        }
    }
    if (*text)
        tsr_planning_table_wrap(to, "codecs", text);
}

/* "uniform, het do not consider mixed widths" */
void tsr_planning_table_not_considered(const json_t *list, FILE *to)
{
    char          text[SENTENCE] = "", one[CELL], what[CELL] = "";
    const json_t *b;
    size_t        at = 0, i;
    json_array_foreach (list, i, b) {
        if (!tsr_planning_table_ignored(b, "", one, sizeof one) || at >= sizeof text)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? ", " : "",
                               tsr_planning_table_text(b, "solver"));
        (void)snprintf(what, sizeof what, "%s", one);
    }
    if (at && at < sizeof text)
        (void)snprintf(text + at, sizeof text - at, " do not consider %s", what);
    if (at)
        tsr_planning_table_wrap(to, "left out", text);
}
