/* Where a rank of a plan stands: its stage and its node. */
#include "plan/file/plan_file.h"

#include <string.h>

static uint64_t ranks_each(const struct tsr_plan_file *p)
{
    uint64_t each = 0;
    for (uint64_t i = 0; i < p->n_stages; i++)
        each += (uint64_t)p->stages[i].tp;
    return each;
}

const struct tsr_plan_stage *tsr_plan_file_stage(const struct tsr_plan_file *p, uint32_t rank)
{
    uint64_t each = ranks_each(p), stage = 0;
    if (each == 0)
        return NULL;
    uint64_t at = rank % each;
    while (at >= (uint64_t)p->stages[stage].tp)
        at -= (uint64_t)p->stages[stage++].tp;
    return &p->stages[stage];
}

const char *tsr_plan_file_node(const struct tsr_plan_file *p, uint32_t rank)
{
    const struct tsr_plan_stage  *s = tsr_plan_file_stage(p, rank);
    uint64_t                      replica = s ? rank / ranks_each(p) : 0;
    const struct tsr_config_node *list = p->replica_nodes;
    if (!s || replica == 0 || replica >= (uint64_t)p->replicas || !s->node)
        return s && replica == 0 ? s->node : NULL;
    for (uint64_t i = 0; list && i < list->items[0]->n; i++)
        if (i < list->items[replica]->n && strcmp(list->items[0]->items[i]->text, s->node) == 0)
            return list->items[replica]->items[i]->text;
    return NULL;
}
