/* What --explain found, as text. */
#include "planning/table.h"

#include <math.h>
#include <string.h>

void tsr_planning_table_explained(const json_t *r, const json_t *plan, FILE *to)
{
    const json_t *e = json_object_get(r, "explain"), *one;
    size_t        i;
    char          ms[TSR_TABLE_CELL];
    if (!e)
        return;
    (void)fputc('\n', to);
    json_array_foreach (json_object_get(e, "binds"), i, one)
        tsr_planning_table_wrap(to, i ? "" : "bottleneck", json_string_value(one));
    double now = tsr_planning_table_real(e, "omega_in_time");
    bool   rough = false;
    (void)fprintf(to, "\n%-42s %9s %9s %9s\n", "solved again with", "time", "change", "omega in");
    (void)fprintf(to, "%-42s %9s %9s %9s\n", "", "", "", "this time");
    if (isfinite(now))
        (void)fprintf(to, "  %-40.60s %9s %9s %9.4g\n", "no change",
                      tsr_planning_table_time(tsr_planning_table_real(plan, "latency_ms"), ms), "",
                      now);
    json_array_foreach (json_object_get(e, "buys"), i, one) {
        double t = tsr_planning_table_real(one, "latency_ms"),
               omega = tsr_planning_table_real(one, "omega_in_time");
        const char *reason = tsr_planning_table_text(one, "reason");
        char        least[TSR_TABLE_CELL] = "";
        bool        proved = json_is_true(json_object_get(one, "proved"));
        if (isfinite(omega))
            (void)snprintf(least, sizeof least, " %9.4g", omega);
        else
            (void)snprintf(least, sizeof least, " %9s", "-");
        rough = rough || (isfinite(t) && !proved);
        if (isfinite(t))
            (void)fprintf(to, "  %-40.60s %9s %+7.1f %%%s%s\n",
                          tsr_planning_table_text(one, "what"), tsr_planning_table_time(t, ms),
                          100 * tsr_planning_table_real(one, "change"), least, proved ? "" : " ~");
        else
            (void)fprintf(to, "  %-40.60s %9s\n", tsr_planning_table_text(one, "what"),
                          *reason ? "not known" : "no plan");
        if (*reason)
            tsr_planning_table_wrap(to, "", reason);
        if (*tsr_planning_table_text(one, "with"))
            tsr_planning_table_wrap(to, "", tsr_planning_table_text(one, "with"));
    }
    if (rough)
        tsr_planning_table_wrap(to, "~", "not proved: searched roughly, in a few solves' time");
}
