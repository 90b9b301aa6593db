/* What the readers of a device profile's parts share. */
#include "plan/cost/device_internal.h"

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
