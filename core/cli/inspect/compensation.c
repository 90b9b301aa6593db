/* Where a device compensates: for each input of packed linears, whether reading their weights takes long enough. */
#include "cli/inspect/inspect.h"

#include "compensate/compensation.h"
#include "compensate/tune.h"
#include "config/config.h"
#include "model/model.h"
#include "plan/cost/device.h"

#include <string.h>

/* A run of layers whose linears of an input take the same bytes. */
struct run {
    uint64_t      first, last, bytes;
    enum tsr_site site;
};

/* Of the packed linears of a site, which have residuals. */
static uint64_t bytes_of(const struct tsr_model *m, uint64_t layer, enum tsr_site site)
{
    struct tsr_compensation_linears of = tsr_compensation_linears(m, layer, site);
    uint64_t                        sum = 0;
    for (uint32_t i = 0; i < of.n && m->packed; i++)
        if (m->packed->lin[layer][of.id[i]])
            sum += tsr_model_packed_bytes(m->packed->lin[layer][of.id[i]]);
    return sum;
}

/* Whether the residuals are read over a bus, so that short linears hide nothing of it. */
static bool is_over_bus(const struct tsr_plan_profile *p)
{
    return !p->backend || strcmp(p->backend, "cpu") != 0;
}

static json_t *run_json(const struct run *r, const struct tsr_plan_profile *p)
{
    char    why[96] = "no device is named; --profile FILE gives one";
    json_t *j = json_pack("{s:I, s:I, s:s, s:I}", "first", (json_int_t)r->first, "last",
                          (json_int_t)r->last, "site", TSR_MODEL_SITE_NAME(r->site), "bytes",
                          (json_int_t)r->bytes);
    json_t *used = json_null();
    bool    ok = j != NULL;
    if (p) {
        double us = tsr_compensate_own_us(r->bytes, p->bandwidth);
        double least = is_over_bus(p) ? TSR_COMPENSATE_LEAST_US : 0;
        bool   skipped = tsr_compensate_is_skipped(us, least);
        used = json_boolean(!skipped);
        if (least > 0)
            (void)snprintf(why, sizeof why, "reading its weights takes %.3g us, %s %g us", us,
                           skipped ? "less than" : "at least", least);
        else
            (void)snprintf(why, sizeof why, "the device's own memory has its residuals");
        ok = ok && json_object_set_new(j, "us", json_real(us)) == 0;
    }
    ok = json_object_set_new(j, "used", used) == 0 && ok;
    ok = ok && json_object_set_new(j, "why", json_string(why)) == 0;
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

/* All experts of a layer are alike: the first stands for them. */
static bool is_listed(enum tsr_site site)
{
    return site < TSR_MODEL_SITE_EXPERTS || tsr_model_site_expert(site) == 0;
}

static json_t *runs_json(const struct tsr_model *m, const struct tsr_plan_profile *p)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint64_t s = 0; s < m->hp.sites && ok; s++) {
        struct run r = { .site = (enum tsr_site)s };
        if (!is_listed(r.site))
            continue;
        for (uint64_t l = 0; l < m->hp.layers && ok; l++) {
            uint64_t now = bytes_of(m, l, r.site);
            if (now != r.bytes)
                r = (struct run){ .first = l, .bytes = now, .site = r.site };
            r.last = l;
            if (r.bytes && (l + 1 == m->hp.layers || bytes_of(m, l + 1, r.site) != r.bytes))
                ok = json_array_append_new(list, run_json(&r, p)) == 0;
        }
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static tsr_status put(const struct tsr_model *m, const struct tsr_plan_profile *p, uint32_t bits,
                      json_t *to, struct tsr_err *err)
{
    json_t *sites = runs_json(m, p), *j = json_pack("{s:I}", "bits", (json_int_t)bits);
    bool    ok = sites && j && json_object_set(j, "sites", sites) == 0;
    if (ok && p)
        ok = json_object_set_new(j, "device", json_string(p->name)) == 0;
    if (ok && p && is_over_bus(p))
        ok = json_object_set_new(j, "least_us", json_real(TSR_COMPENSATE_LEAST_US)) == 0;
    ok = ok && json_object_set(to, "compensation", j) == 0;
    json_decref(sites);
    json_decref(j);
    return ok ? TSR_OK : tsr_fail_nomem(err, 0, "error compensation");
}

static tsr_status load(const char *path, struct tsr_plan_profile **p, struct tsr_err *err)
{
    struct tsr_diag *d = NULL;
    TSR_TRY(tsr_config_diag_create(&d, err));
    tsr_status st = tsr_plan_profile_load(p, path, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    return st;
}

tsr_status tsr_inspect_compensation(const struct tsr_model *m, const char *profile, json_t *to,
                                    struct tsr_err *err)
{
    struct tsr_plan_profile *p = NULL;
    uint32_t                 bits = 0;
    if (m->packed)
        TSR_TRY(tsr_compensation_bits(m->path, &bits, err));
    if (!bits)
        return *profile ? tsr_fail(err, TSR_E_INPUT,
                                   "%s: has no residuals, so --profile has nothing to compare; run "
                                   "compensate first",
                                   m->path)
                        : TSR_OK;
    if (*profile)
        TSR_TRY(load(profile, &p, err));
    tsr_status st = put(m, p, bits, to, err);
    tsr_plan_profile_destroy(p);
    return st;
}
