/* Axes: data to drawing, and round numbers along them. */
#include "report/internal.h"

#include <math.h>
#include <string.h>

void report_axis_fit(struct report_axis *a, double low, double high, bool log, double from,
                     double to)
{
    *a = (struct report_axis){ .log = log, .from = from, .to = to };
    if (log) {
        double l = log10(low), h = log10(high), room = 0.06 * (h - l);
        room = room > 0.08 ? room : 0.08; /* one point has room too */
        a->low = pow(10, l - room);
        a->high = pow(10, h + room);
        return;
    }
    double room = 0.06 * (high - low);
    if (!(room > 1e-12 * (fabs(low) + fabs(high))))
        room = high == 0 ? 1 : 0.05 * fabs(high);
    a->low = low - room;
    a->high = high + room;
}

double report_axis_at(const struct report_axis *a, double v)
{
    double t;
    if (a->log)
        t = v > 0 ? (log10(v) - log10(a->low)) / (log10(a->high) - log10(a->low)) : 0;
    else
        t = (v - a->low) / (a->high - a->low);
    t = t > 1 ? 1 : t > 0 ? t : 0; /* NaN: 0 */
    return a->from + t * (a->to - a->from);
}

static unsigned linear_ticks(const struct report_axis *a, unsigned want, double *tick)
{
    double   raw = (a->high - a->low) / want, unit = pow(10, floor(log10(raw)));
    double   step = raw <= unit       ? unit
                    : raw <= 2 * unit ? 2 * unit
                    : raw <= 5 * unit ? 5 * unit
                                      : 10 * unit;
    double   first = ceil(a->low / step);
    unsigned n = 0;
    for (; n < REPORT_TICKS && (first + n) * step <= a->high; n++)
        tick[n] = (first + n) * step;
    return n;
}

/* 1, 2, 5 of each decade if few decades are shown, else every decade, or every second, ... */
static unsigned log_ticks(const struct report_axis *a, unsigned want, double *tick)
{
    static const double part[] = { 1, 2, 5 };
    double              decades = log10(a->high) - log10(a->low);
    int                 first = (int)floor(log10(a->low)), last = (int)floor(log10(a->high));
    bool                fine = decades < want / 2.5;
    int                 stride = fine ? 1 : (int)ceil(decades / want);
    unsigned            n = 0;
    for (int e = first; e <= last; e++)
        for (unsigned k = 0; k < (fine ? 3u : 1u); k++) {
            double v = part[k] * pow(10, e);
            if (n < REPORT_TICKS && v >= a->low && v <= a->high && (e - first) % stride == 0)
                tick[n++] = v;
        }
    return n;
}

unsigned report_axis_ticks(const struct report_axis *a, unsigned want, double tick[REPORT_TICKS])
{
    if (!(a->high > a->low) || !isfinite(a->high - a->low))
        return 0;
    return a->log ? log_ticks(a, want, tick) : linear_ticks(a, want, tick);
}

void report_axis_label(char out[REPORT_NUMBER], const struct report_axis *a, const double *tick,
                       unsigned n, unsigned i)
{
    if (a->log && tick[i] >= 0.99e-4 && tick[i] < 1e6) { /* 0.1, not 0.100 */
        (void)snprintf(out, REPORT_NUMBER, "%g", tick[i]);
        return;
    }
    if (a->log || n < 2) {
        (void)report_short(out, tick[i]);
        return;
    }
    /* enough digits to distinguish neighbours */
    double step = tick[1] - tick[0];
    int    digits = step >= 0.999 ? 0 : (int)ceil(-log10(step) - 1e-9);
    if (digits > 6)
        (void)report_short(out, fabs(tick[i]) < step / 2 ? 0 : tick[i]);
    else
        (void)report_fixed(out, tick[i], digits, false);
}
