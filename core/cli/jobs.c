#include "cli/jobs.h"

#include <string.h>

tsr_status tsr_cli_check_job(struct tsr_cli *c, struct tsr_job *job, struct tsr_diag *d,
                             struct tsr_err *err)
{
    struct tsr_registry *r;
    TSR_TRY(tsr_cli_registry_bare(c, &r, err));
    TSR_TRY(tsr_job_plugins(job, r, d, err));
    TSR_TRY(tsr_cli_registry(c, &r, err));
    TSR_TRY(tsr_job_check(job, r, d, err));
    return TSR_OK;
}

static const char *quantizer_of(const struct tsr_step *step, const struct tsr_strings *pairs)
{
    const char *use = "";
    for (uint64_t i = 0; i < step->n_options; i++)
        if (strcmp(step->options[i].name, "use") == 0 && step->options[i].type == TSR_OPT_STRING)
            use = step->options[i].def.s;
    for (uint64_t i = 0; i < pairs->n; i++)
        if (strncmp(pairs->v[i], "use=", 4) == 0)
            use = pairs->v[i] + 4;
    return use;
}

static const struct tsr_option *option_of(const struct tsr_component *c, const char *name,
                                          size_t len)
{
    for (uint64_t i = 0; i < c->n_options; i++)
        if (strlen(c->options[i].name) == len && strncmp(c->options[i].name, name, len) == 0)
            return &c->options[i];
    return NULL;
}

static tsr_status switch_off(const struct tsr_component *c, char *pair, struct tsr_err *err)
{
    size_t                   len = strcspn(pair, "=");
    const struct tsr_option *o = option_of(c, pair + 3, len - 3);
    char                     name[80];
    if (option_of(c, pair, len) || !o || o->type != TSR_OPT_BOOL)
        return TSR_OK;
    tsr_option_flag(o->name, name, sizeof name);
    if (strcmp(pair + len, "=true") != 0)
        return tsr_fail(err, TSR_E_INPUT, "--no-%s takes no value; '%.100s' stands behind it", name,
                        pair + len + 1);
    memmove(pair, pair + 3, len - 3);
    memcpy(pair + len - 3, "=false", sizeof "=false"); /* of "no_" and "=true" */
    return TSR_OK;
}

tsr_status tsr_cli_switches(struct tsr_cli *c, const struct tsr_step *step,
                            const struct tsr_strings *pairs, struct tsr_err *err)
{
    struct tsr_registry *r;
    struct tsr_found     found;
    const char          *use = quantizer_of(step, pairs);
    bool                 any = false;
    for (uint64_t i = 0; i < pairs->n; i++)
        any = any || strncmp(pairs->v[i], "no_", 3) == 0;
    if (!any || !use || !*use)
        return TSR_OK;
    TSR_TRY(tsr_cli_registry(c, &r, err));
    if (tsr_registry_find(r, TSR_KIND_QUANTIZER, use, &found, NULL) != TSR_OK)
        return TSR_OK; /* said where the step is checked */
    for (uint64_t i = 0; i < pairs->n; i++)
        if (strncmp(pairs->v[i], "no_", 3) == 0) /* the pairs are args.c's, not argv's */
            TSR_TRY(switch_off(found.component, (char *)(uintptr_t)pairs->v[i], err));
    return TSR_OK;
}

tsr_status tsr_cli_diag(const struct tsr_cli *c, struct tsr_diag *d, const char *what,
                        struct tsr_err *err)
{
    uint64_t n = tsr_diag_errors(d);
    tsr_diag_print(d, stderr, c->colour);
    tsr_status st = tsr_diag_status(d, err);
    if (st == TSR_E_INPUT)
        (void)tsr_fail(err, st, "%s: %llu error%s", what, (unsigned long long)n, n == 1 ? "" : "s");
    return st;
}
