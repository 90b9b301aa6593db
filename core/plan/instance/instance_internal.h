/* plan/instance/instance_internal.h - declarations shared by the files that read an instance. */
#ifndef TSR_PLAN_INSTANCE_INSTANCE_INTERNAL_H
#define TSR_PLAN_INSTANCE_INSTANCE_INTERNAL_H

#include "base/json.h"
#include "plan/instance/instance.h"

#define TSR_INSTANCE_MAX_INT ((INT64_C(1) << 53) - 1)
/* No sum or product of numbers up to these is anywhere near the largest double: an objective is at
 * most layers x batch x tokens times a time, and theta x layers times an omega. */
#define TSR_INSTANCE_MAX_MS    1e18
#define TSR_INSTANCE_MAX_OMEGA 1e30

struct tsr_instance_block {
    struct tsr_instance_block *next;
    _Alignas(16) unsigned char data[];
};

enum tsr_instance_entry {
    TSR_INSTANCE_OMEGA,
    TSR_INSTANCE_MS,
    TSR_INSTANCE_MS_OR_NULL,
    TSR_INSTANCE_INTEGER
};

/* What a reading function needs to know. */
struct tsr_instance_reading {
    struct tsr_instance *inst;
    const char          *name;
    struct tsr_err      *err;
    int                  revision; /* of tessera.instance */
};

/* The place of an entry, "omega[3][1]": key, then up to three indices. */
struct tsr_instance_place {
    const char *key;
    unsigned    depth;
    uint64_t    at[3];
};

/* instance_tables.c */
void *tsr_instance_take(struct tsr_instance_reading *r, uint64_t n, uint64_t size, tsr_status *st);
tsr_status tsr_instance_need_array(struct tsr_instance_reading *r, const json_t *j, uint64_t n,
                                   const struct tsr_instance_place *p);
tsr_status tsr_instance_read_int(struct tsr_instance_reading *r, const json_t *j, int64_t max,
                                 uint64_t *v, const struct tsr_instance_place *p);
/* A table of `depth` dimensions into fresh memory, row-major.  Absent and not required: zeros. */
tsr_status tsr_instance_read_table(struct tsr_instance_reading *r, const json_t *o,
                                   const char *prefix, const char *key, bool required,
                                   enum tsr_instance_entry type, unsigned depth,
                                   const uint64_t *dims, const void **out);

/* instance_devices.c: pools, kinds, order. */
tsr_status tsr_instance_read_devices(struct tsr_instance_reading *r, const json_t *o);

#endif
