/* What --explain found, as text. */
#include "planning/table.h"

#include <math.h>
#include <string.h>

/* How far an answer may be from the best one: "proved", what the change buys at most, "not known". */
static void at_most(const json_t *one, char text[TSR_TABLE_CELL])
{
    double most = tsr_planning_table_real(one, "at_most");
    if (json_is_true(json_object_get(one, "proved")))
        (void)snprintf(text, TSR_TABLE_CELL, "proved");
    else if (isfinite(most))
        (void)snprintf(text, TSR_TABLE_CELL, "%+.1f %%", 100 * most);
    else
        (void)snprintf(text, TSR_TABLE_CELL, "not known");
}

/* "0.5977", with " ~" where it may be less; "-": there is none. */
static bool omega_in_time(const json_t *one, char text[TSR_TABLE_CELL])
{
    double omega = tsr_planning_table_real(one, "omega_in_time");
    bool   rough = isfinite(omega) && !json_is_true(json_object_get(one, "omega_proved"));
    if (isfinite(omega))
        (void)snprintf(text, TSR_TABLE_CELL, "%9.4g%s", omega, rough ? " ~" : "");
    else
        (void)snprintf(text, TSR_TABLE_CELL, "%9s", "-");
    return rough;
}

void tsr_planning_table_explained(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *e = json_object_get(r, "explain"), *one;
    size_t        i;
    char          ms[TSR_TABLE_CELL], most[TSR_TABLE_CELL], omega[TSR_TABLE_CELL];
    bool          bound = false, rough;
    if (!e)
        return;
    (void)fputc('\n', to);
    json_array_foreach (json_object_get(e, "binds"), i, one)
        tsr_planning_table_wrap(to, i ? "" : "bottleneck", json_string_value(one));
    (void)fprintf(to, "\n%-38s %9s %9s %9s %9s\n", "solved again with", "time", "change", "at most",
                  "omega in");
    (void)fprintf(to, "%-38s %9s %9s %9s %9s\n", "", "", "", "", "this time");
    rough = omega_in_time(e, omega);
    if (isfinite(tsr_planning_table_real(e, "omega_in_time")))
        (void)fprintf(to, "  %-36.60s %9s %9s %9s %s\n", "no change",
                      tsr_planning_table_time(tsr_planning_table_real(plan, "latency_ms"), ms), "",
                      "", omega);
    json_array_foreach (json_object_get(e, "buys"), i, one) {
        double      t = tsr_planning_table_real(one, "latency_ms");
        const char *reason = tsr_planning_table_text(one, "reason");
        at_most(one, most);
        bool also = omega_in_time(one, omega);
        rough = rough || also;
        bound = bound || isfinite(t);
        if (isfinite(t))
            (void)fprintf(to, "  %-36.60s %9s %+7.1f %% %9s %s\n",
                          tsr_planning_table_text(one, "what"), tsr_planning_table_time(t, ms),
                          100 * tsr_planning_table_real(one, "change"), most, omega);
        else
            (void)fprintf(to, "  %-36.60s %9s\n", tsr_planning_table_text(one, "what"),
                          *reason ? "not known" : "no plan");
        if (*reason)
            tsr_planning_table_wrap(to, "", reason);
        if (*tsr_planning_table_text(one, "with"))
            tsr_planning_table_wrap(to, "", tsr_planning_table_text(one, "with"));
    }
    if (bound)
        tsr_planning_table_wrap(
            to, "at most",
            "no plan with the change is faster than that; proved: nor than its time");
    if (rough)
        tsr_planning_table_wrap(to, "~", "a plan with less omega in this time is not ruled out");
}
