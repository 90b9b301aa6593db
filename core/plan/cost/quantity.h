/* plan/cost/quantity.h - numbers with units in YAML: "15 GiB", "320 GB/s", "800 Gbit/s", "10 us". */
#ifndef TSR_PLAN_COST_QUANTITY_H
#define TSR_PLAN_COST_QUANTITY_H

#include "config/config.h"

enum tsr_quantity {
    TSR_PLAN_QUANTITY_BYTES, /* B, KB, MB, GB, TB, KiB, MiB, GiB, TiB */
    TSR_PLAN_QUANTITY_RATE, /* bytes a second: the same with /s, and bit/s, Kbit/s, Mbit/s, Gbit/s, Tbit/s */
    TSR_PLAN_QUANTITY_TIME, /* ms: ns, us, ms, s */
    TSR_PLAN_QUANTITY_OPERATIONS /* operations a second, a multiply-add is two: MFLOP/s to PFLOP/s, GOP/s, TOP/s */
};

/* The number in bytes, bytes/s, ms or operations/s: finite, >= 0, at most 1e21. A unit must follow it.
 * False with the user's message in why. */
bool tsr_plan_quantity_read(const char *text, enum tsr_quantity what, double *v, char *why,
                            size_t cap);

/* The same of a node: false with an error at its place, "'bandwidth' must be ...". */
bool tsr_plan_quantity_node(const struct tsr_config_node *n, const char *key,
                            enum tsr_quantity what, double *v, struct tsr_diag *d);

/* "12 GB/s", "10 us": text that reads back as the same number to 6 digits. Returns buf. */
char *tsr_plan_quantity_text(double v, enum tsr_quantity what, char *buf, size_t cap);
#define TSR_PLAN_QUANTITY_TEXT 32

#endif
