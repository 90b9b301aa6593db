/* The devices of an instance: pools, kinds and a fixed order. */
#include "plan/instance/instance_internal.h"

#include <string.h>

#define MAX_DEVICES 1000000

static tsr_status read_pools(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    json_t                     *pools = NULL;
    const void                 *table;
    TSR_TRY(tsr_json_sub(o, r->name, "pools", false, JSON_ARRAY, &pools, r->err));
    if (!pools)
        return TSR_OK;
    in->n_pools = json_array_size(pools);
    if (in->n_pools == 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: pools is empty, a number of devices is expected",
                        r->name);
    TSR_TRY(tsr_instance_read_table(r, o, "", "pools", true, TSR_INSTANCE_INTEGER, 1, &in->n_pools,
                                    &table));
    in->pool_devices = table;
    for (uint64_t g = 0; g < in->n_pools; g++) {
        if (in->pool_devices[g] < 1 || in->pool_devices[g] > MAX_DEVICES)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: pools[%llu] is not an integer from 1 to %d",
                            r->name, (unsigned long long)g, MAX_DEVICES);
        r->inst->devices += in->pool_devices[g];
        if (r->inst->devices > MAX_DEVICES)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: pools: more than %d devices", r->name,
                            MAX_DEVICES);
    }
    return TSR_OK;
}

/* What a kind takes of which pool: with pools both keys are required, and the count follows. */
static tsr_status read_taking(struct tsr_instance_reading *r, const json_t *j, const char *where,
                              struct tsr_solver_kind *kind)
{
    const struct tsr_solver_instance *in = &r->inst->in;
    int64_t                           pool = 0, takes = 0, count = 0;
    TSR_TRY(tsr_json_int(j, where, "pool", true, 0, (int64_t)in->n_pools - 1, &pool, r->err));
    uint64_t have = in->pool_devices[pool];
    TSR_TRY(tsr_json_int(j, where, "takes", true, 1, (int64_t)have, &takes, r->err));
    count = (int64_t)(have / (uint64_t)takes);
    TSR_TRY(tsr_json_int(j, where, "count", false, count, count, &count, r->err));
    kind->pool = (uint64_t)pool;
    kind->takes = (uint64_t)takes;
    kind->count = (uint32_t)count;
    return TSR_OK;
}

static tsr_status read_kind(struct tsr_instance_reading *r, const json_t *j, const char *where,
                            struct tsr_solver_kind *kind)
{
    const char *name = "";
    int64_t     count = 0, capacity = 0, host = 0;
    tsr_status  st;
    if (!json_is_object(j))
        return tsr_fail(r->err, TSR_E_INPUT, "%s is not an object", where);
    TSR_TRY(tsr_json_str(j, where, "name", true, &name, r->err));
    if (r->inst->in.n_pools)
        TSR_TRY(read_taking(r, j, where, kind));
    else {
        TSR_TRY(tsr_json_int(j, where, "count", true, 1, MAX_DEVICES, &count, r->err));
        kind->count = (uint32_t)count;
        r->inst->devices += (uint64_t)count;
        if (r->inst->devices > MAX_DEVICES)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: more than %d devices", where, MAX_DEVICES);
    }
    TSR_TRY(
        tsr_json_int(j, where, "capacity_bytes", true, 0, TSR_INSTANCE_MAX_INT, &capacity, r->err));
    TSR_TRY(tsr_json_int(j, where, "host_capacity_bytes", false, 0, TSR_INSTANCE_MAX_INT, &host,
                         r->err));
    char *copy = tsr_instance_take(r, strlen(name) + 1, 1, &st);
    if (!copy)
        return st;
    memcpy(copy, name, strlen(name) + 1);
    kind->struct_size = sizeof *kind;
    kind->name = copy;
    kind->capacity_bytes = (uint64_t)capacity;
    kind->host_capacity_bytes = (uint64_t)host;
    return TSR_OK;
}

static tsr_status read_kinds(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    json_t                     *kinds = NULL;
    tsr_status                  st;
    TSR_TRY(tsr_json_sub(o, r->name, "kinds", true, JSON_ARRAY, &kinds, r->err));
    in->n_kinds = json_array_size(kinds);
    if (in->n_kinds == 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: kinds is empty", r->name);
    const struct tsr_solver_kind **list = tsr_instance_take(r, in->n_kinds, sizeof(void *), &st);
    if (!list)
        return st;
    in->kinds = list;
    for (uint64_t k = 0; k < in->n_kinds; k++) {
        char where[512];
        (void)snprintf(where, sizeof where, "%.440s: kinds[%llu]", r->name, (unsigned long long)k);
        struct tsr_solver_kind *kind = tsr_instance_take(r, 1, sizeof *kind, &st);
        if (!kind)
            return st;
        TSR_TRY(read_kind(r, json_array_get(kinds, k), where, kind));
        list[k] = kind;
    }
    return TSR_OK;
}

/* Kinds in their order, each as often as it has devices; with pools, pools. */
static tsr_status read_order(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    const json_t               *j = json_object_get(o, "order");
    struct tsr_instance_place   p = { "order", 0, { 0 } };
    uint64_t                    n = in->n_pools ? in->n_pools : in->n_kinds;
    const char                 *what = in->n_pools ? "pool" : "kind";
    tsr_status                  st;
    if (!j || (json_is_string(j) && strcmp(json_string_value(j), "free") == 0))
        return TSR_OK;
    if (!json_is_array(j))
        return tsr_fail(r->err, TSR_E_INPUT, "%s: order is neither \"free\" nor a list", r->name);
    TSR_TRY(tsr_instance_need_array(r, j, r->inst->devices, &p));
    uint32_t *order = tsr_instance_take(r, r->inst->devices, sizeof *order, &st);
    uint64_t *seen = order ? tsr_instance_take(r, n, sizeof *seen, &st) : NULL;
    if (!seen)
        return st;
    for (p.depth = 1; p.at[0] < r->inst->devices; p.at[0]++) {
        uint64_t k;
        TSR_TRY(tsr_instance_read_int(r, json_array_get(j, p.at[0]), (int64_t)n - 1, &k, &p));
        uint64_t most = in->n_pools ? in->pool_devices[k] : in->kinds[k]->count;
        order[p.at[0]] = (uint32_t)k;
        if (++seen[k] > most)
            return tsr_fail(r->err, TSR_E_INPUT,
                            "%s: order[%llu] names %s %llu once more than its count of %llu",
                            r->name, (unsigned long long)p.at[0], what, (unsigned long long)k,
                            (unsigned long long)most);
    }
    in->order = order;
    in->order_len = r->inst->devices;
    return TSR_OK;
}

tsr_status tsr_instance_read_devices(struct tsr_instance_reading *r, const json_t *o)
{
    TSR_TRY(read_pools(r, o));
    TSR_TRY(read_kinds(r, o));
    return read_order(r, o);
}
