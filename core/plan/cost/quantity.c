#include "plan/cost/quantity.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1e21

struct unit {
    const char *name;
    double      factor;
};

static const struct unit bytes[] = { { "B", 1 },        { "KB", 1e3 },     { "MB", 1e6 },
                                     { "GB", 1e9 },     { "TB", 1e12 },    { "KiB", 0x1p10 },
                                     { "MiB", 0x1p20 }, { "GiB", 0x1p30 }, { "TiB", 0x1p40 } };
static const struct unit rates[] = {
    { "B/s", 1 },           { "KB/s", 1e3 },       { "MB/s", 1e6 },       { "GB/s", 1e9 },
    { "TB/s", 1e12 },       { "KiB/s", 0x1p10 },   { "MiB/s", 0x1p20 },   { "GiB/s", 0x1p30 },
    { "bit/s", 0.125 },     { "Kbit/s", 0.125e3 }, { "Mbit/s", 0.125e6 }, { "Gbit/s", 0.125e9 },
    { "Tbit/s", 0.125e12 },
};
static const struct unit times[] = { { "ns", 1e-6 }, { "us", 1e-3 }, { "ms", 1 }, { "s", 1e3 } };
static const struct unit operations[] = {
    { "GFLOP/s", 1e9 }, { "TFLOP/s", 1e12 }, { "PFLOP/s", 1e15 }, { "MFLOP/s", 1e6 },
    { "GOP/s", 1e9 },   { "TOP/s", 1e12 },   { "POP/s", 1e15 },
};

#define N(t) (sizeof(t) / sizeof *(t))
static const struct {
    const struct unit *units;
    size_t             n;
    const char        *wanted;
} kinds[] = {
    { bytes, N(bytes), "bytes, as in 15 GiB" },
    { rates, N(rates), "bytes or bits a second, as in 320 GB/s or 100 Gbit/s" },
    { times, N(times), "a time, as in 10 us" },
    { operations, N(operations), "operations a second, as in 65 TFLOP/s or 130 TOP/s" },
};

bool tsr_plan_quantity_read(const char *text, enum tsr_quantity what, double *v, char *why,
                            size_t cap)
{
    char  *end = NULL;
    double number = isdigit((unsigned char)*text) ? strtod(text, &end) : NAN;
    if (!end || !(number >= 0) || !isfinite(number)) { /* NaN, a sign, words, hexadecimal zero */
        (void)snprintf(why, cap, "must be %s, not '%.40s'", kinds[what].wanted, text);
        return false;
    }
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < kinds[what].n; i++)
        if (strcmp(end, kinds[what].units[i].name) == 0) {
            *v = number * kinds[what].units[i].factor;
            if (*v <= MOST)
                return true;
            (void)snprintf(why, cap, "is larger than anything there is: '%.40s'", text);
            return false;
        }
    if (*end)
        (void)snprintf(why, cap, "must be %s; '%.20s' is no such unit", kinds[what].wanted, end);
    else
        (void)snprintf(why, cap, "must be %s; the unit is missing", kinds[what].wanted);
    return false;
}

bool tsr_plan_quantity_node(const struct tsr_config_node *n, const char *key,
                            enum tsr_quantity what, double *v, struct tsr_diag *d)
{
    char why[160];
    if (n->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(d, &n->mark, NULL, "'%s' must be %s", key, kinds[what].wanted);
        return false;
    }
    if (tsr_plan_quantity_read(n->text, what, v, why, sizeof why))
        return true;
    tsr_config_diag_error(d, &n->mark, NULL, "'%s' %s", key, why);
    return false;
}

char *tsr_plan_quantity_text(double v, enum tsr_quantity what, char *buf, size_t cap)
{
    static const char *const bases[][5] = { { "B", "KB", "MB", "GB", "TB" },
                                            { "B/s", "KB/s", "MB/s", "GB/s", "TB/s" },
                                            { "ns", "us", "ms", "s", "s" },
                                            { "MFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s",
                                              "PFLOP/s" } };
    static const double      first[] = { 1, 1, 1e-6, 1e3 };
    double                   scale = first[what];
    int                      i = 0, last = what == TSR_PLAN_QUANTITY_TIME ? 3 : 4;
    if (what == TSR_PLAN_QUANTITY_OPERATIONS) {
        scale = 1e6;
        i = 1;
    }
    for (; i < last && v >= scale * 1000; i++)
        scale *= 1000;
    (void)snprintf(buf, cap, "%.6g %s", v / scale, bases[what][i]);
    return buf;
}
