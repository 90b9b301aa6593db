/* Numbers and tables of an instance, with the place of one that is wrong. */
#include "plan/instance/instance_internal.h"

#include "base/mem.h"

#include <math.h>

void *tsr_instance_take(struct tsr_instance_reading *r, uint64_t n, uint64_t size, tsr_status *st)
{
    uint64_t                   bytes;
    struct tsr_instance_block *b = NULL;
    if (tsr_mul(n, size, &bytes) && tsr_add(bytes, sizeof *b, &bytes))
        b = tsr_new(bytes, 1);
    if (!b) {
        *st = tsr_fail_nomem(r->err, bytes, r->name);
        return NULL;
    }
    b->next = r->inst->blocks;
    r->inst->blocks = b;
    *st = TSR_OK;
    return b->data;
}

static const char *place_text(const struct tsr_instance_place *p, char buf[160])
{
    int n = snprintf(buf, 160, "%.60s", p->key);
    for (unsigned i = 0; i < p->depth && n > 0 && n < 130; i++)
        n += snprintf(buf + n, 160 - (size_t)n, "[%llu]", (unsigned long long)p->at[i]);
    return buf;
}

tsr_status tsr_instance_need_array(struct tsr_instance_reading *r, const json_t *j, uint64_t n,
                                   const struct tsr_instance_place *p)
{
    char buf[160];
    if (json_is_array(j) && json_array_size(j) == n)
        return TSR_OK;
    return tsr_fail(r->err, TSR_E_INPUT, "%s: %s is %s, a list of %llu is needed", r->name,
                    place_text(p, buf),
                    json_is_array(j) ? "a list of another length" : "not a list",
                    (unsigned long long)n);
}

static tsr_status read_real(struct tsr_instance_reading *r, const json_t *j, bool null_ok,
                            double max, double *v, const struct tsr_instance_place *p)
{
    char buf[160];
    if (null_ok && json_is_null(j)) {
        *v = NAN;
        return TSR_OK;
    }
    *v = json_is_number(j) ? json_number_value(j) : NAN;
    if (!(*v >= 0 && *v <= max))
        return tsr_fail(r->err, TSR_E_INPUT, "%s: %s is not a number from 0 to %g%s", r->name,
                        place_text(p, buf), max, null_ok ? " or null" : "");
    *v += 0.0; /* -0.0 is 0 */
    return TSR_OK;
}

tsr_status tsr_instance_read_int(struct tsr_instance_reading *r, const json_t *j, int64_t max,
                                 uint64_t *v, const struct tsr_instance_place *p)
{
    char buf[160];
    if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > max)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: %s is not an integer from 0 to %lld", r->name,
                        place_text(p, buf), (long long)max);
    *v = (uint64_t)json_integer_value(j);
    return TSR_OK;
}

tsr_status tsr_instance_read_table(struct tsr_instance_reading *r, const json_t *o,
                                   const char *prefix, const char *key, bool required,
                                   enum tsr_instance_entry type, unsigned depth,
                                   const uint64_t *dims, const void **out)
{
    char                      full[64];
    struct tsr_instance_place p = { full, 0, { 0 } };
    const json_t             *j = json_object_get(o, key), *at[3] = { j, NULL, NULL };
    uint64_t                  n = 1;
    tsr_status                st;
    (void)snprintf(full, sizeof full, "%s%s", prefix, key);
    if (depth == 0 || depth > sizeof at / sizeof *at)
        return tsr_fail(r->err, TSR_E_BUG, "%s: a table of depth %u", full, depth);
    for (unsigned d = 0; d < depth; d++)
        if (!tsr_mul(n, dims[d], &n))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: %s is too large", r->name, full);
    if ((!j || json_is_null(j)) && required)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: %s is missing", r->name, full);
    if (j && !json_is_null(j)) /* before the memory: a small file cannot ask for much */
        TSR_TRY(tsr_instance_need_array(r, j, dims[0], &p));
    double *v = tsr_instance_take(r, n, sizeof *v, &st);
    if (!v)
        return st;
    *out = v;
    if (!j || json_is_null(j))
        return TSR_OK;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i;
        for (unsigned d = depth; d-- > 0; rest /= dims[d])
            p.at[d] = rest % dims[d];
        for (unsigned d = 1; d < depth; d++)
            if (p.at[depth - 1] == 0) { /* a new row: its lists are unchecked */
                p.depth = d;
                at[d] = json_array_get(at[d - 1], p.at[d - 1]);
                TSR_TRY(tsr_instance_need_array(r, at[d], dims[d], &p));
            }
        p.depth = depth;
        const json_t *e = json_array_get(at[depth - 1], p.at[depth - 1]);
        if (type == TSR_INSTANCE_INTEGER)
            TSR_TRY(
                tsr_instance_read_int(r, e, TSR_INSTANCE_MAX_INT, (uint64_t *)(void *)v + i, &p));
        else
            TSR_TRY(
                read_real(r, e, type == TSR_INSTANCE_MS_OR_NULL,
                          type == TSR_INSTANCE_OMEGA ? TSR_INSTANCE_MAX_OMEGA : TSR_INSTANCE_MAX_MS,
                          &v[i], &p));
    }
    return TSR_OK;
}
