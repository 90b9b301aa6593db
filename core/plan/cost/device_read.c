/* What the readers of a device profile's parts share, whose kernels it says they are, and whose a scheme takes. */
#include "plan/cost/device_internal.h"

#include <stdio.h>
#include <string.h>

void tsr_plan_profile_fill(struct tsr_plan_profile_reading *r, const struct tsr_option *o,
                           uint64_t n, const struct tsr_config_node *node, const char *what,
                           void *into)
{
    struct tsr_config_optset set = { o, n, sizeof *o, into };
    tsr_config_options_fill(&set, 1, NULL, node, what, r->d);
}

/* Items of a list of maps, each through one. */
void tsr_plan_profile_each(struct tsr_plan_profile_reading *r, const struct tsr_config_node *list,
                           const char *what,
                           void (*one)(struct tsr_plan_profile_reading *,
                                       const struct tsr_config_node *))
{
    if (!list || list->kind == TSR_CONFIG_NODE_NULL)
        return;
    if (list->kind != TSR_CONFIG_NODE_LIST) {
        tsr_config_diag_error(r->d, &list->mark, NULL, "'%s' must be a list", what);
        return;
    }
    for (uint64_t i = 0; i < list->n; i++)
        if (list->items[i]->kind == TSR_CONFIG_NODE_MAP)
            one(r, list->items[i]);
        else
            tsr_config_diag_error(r->d, &list->items[i]->mark, NULL,
                                  "an entry of '%s' must be a map", what);
}

/* A kernel's name that fits where names are kept. */
bool tsr_plan_profile_kernel_name(struct tsr_plan_profile_reading *r,
                                  const struct tsr_config_node *map, const char *name)
{
    const struct tsr_config_node *n = tsr_config_node_get(map, "kernel");
    if (*name && strlen(name) < TSR_PLAN_KERNEL_TEXT)
        return true;
    if (n)
        tsr_config_diag_error(r->d, &n->mark, NULL, "'kernel' must have 1 to %d characters",
                              TSR_PLAN_KERNEL_TEXT - 1);
    return false;
}

void tsr_plan_profile_scheme_kernel(const struct tsr_plan_profile *p, const char *scheme,
                                    char kernel[TSR_PLAN_KERNEL_TEXT])
{
    char own[TSR_PLAN_KERNEL_TEXT];
    int  n = snprintf(own, sizeof own, "%s/%s", scheme ? scheme : "", kernel);
    if (scheme && n > 0 && n < (int)sizeof own && tsr_plan_profile_runs(p, own))
        memcpy(kernel, own, (size_t)n + 1);
}

void tsr_plan_profile_kernels(const struct tsr_plan_profile *p, char text[TSR_PLAN_KERNELS_TEXT])
{
    static const char ours[] = "tessera profile"; /* cli/profile writes it */
    const char *source = p->n_points ? p->points[0].source : p->n_ends ? p->ends[0].source : NULL;
    if (!source)
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "not measured");
    else if (*p->measured_on)
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "%s", p->measured_on);
    else if (strncmp(source, ours, strlen(ours)) == 0)
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "Tessera's own");
    else {
        size_t n = strcspn(source, ",;(");
        while (n && source[n - 1] == ' ')
            n--;
        (void)snprintf(text, TSR_PLAN_KERNELS_TEXT, "others': %.*s", (int)(n < 64 ? n : 64),
                       source);
    }
}
