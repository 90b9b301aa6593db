/* Which arms are compared with each other: those of `pairs`, and all with `baseline`. */
#include "base/mem.h"
#include "compare/compare.h"

#include <stdlib.h>
#include <string.h>

static bool has_arm(const struct compare *c, const char *name)
{
    for (uint64_t i = 0; i < c->n; i++)
        if (strcmp(c->arms[i].name, name) == 0)
            return true;
    return false;
}

/* False, and an error: it is no pair of arms. */
static bool check_pair(const struct compare *c, const struct tsr_config_node *p, struct tsr_diag *d)
{
    if (p->kind != TSR_CONFIG_NODE_LIST || p->n != 2) {
        tsr_config_diag_error(d, &p->mark, NULL, "a pair must be a list of two arms");
        return false;
    }
    uint64_t before = tsr_config_diag_errors(d);
    for (int i = 0; i < 2; i++)
        if (p->items[i]->kind != TSR_CONFIG_NODE_SCALAR || !has_arm(c, p->items[i]->text))
            tsr_config_diag_error(d, &p->items[i]->mark, NULL,
                                  "a pair names arms, and '%.60s' is none",
                                  p->items[i]->text ? p->items[i]->text : "");
    if (p->items[0]->text && p->items[1]->text && strcmp(p->items[0]->text, p->items[1]->text) == 0)
        tsr_config_diag_error(d, &p->mark, NULL, "a pair is of two arms, and this is '%.60s' twice",
                              p->items[0]->text);
    return tsr_config_diag_errors(d) == before;
}

static void add(struct compare *c, const char *arm, const char *against)
{
    for (uint64_t i = 0; i < c->n_pairs; i++)
        if (strcmp(c->pairs[i].arm, arm) == 0 && strcmp(c->pairs[i].against, against) == 0)
            return;
    c->pairs[c->n_pairs++] = (struct compare_pair){ arm, against };
}

/* The baseline's name; NULL: there is none, or it is wrong. */
static const char *baseline_of(const struct compare *c, struct tsr_diag *d)
{
    const struct tsr_config_node *b = c->keys.baseline;
    if (!b || b->kind == TSR_CONFIG_NODE_NULL)
        return NULL;
    if (b->kind == TSR_CONFIG_NODE_SCALAR && has_arm(c, b->text))
        return b->text;
    tsr_config_diag_error(d, &b->mark, NULL, "'baseline' names an arm, and '%.60s' is none",
                          b->kind == TSR_CONFIG_NODE_SCALAR ? b->text : "");
    return NULL;
}

tsr_status compare_read_pairs(struct compare *c, struct tsr_diag *d, struct tsr_err *err)
{
    const struct tsr_config_node *p = c->keys.pairs;
    const char                   *baseline = baseline_of(c, d);
    bool                          list = p && p->kind == TSR_CONFIG_NODE_LIST;
    uint64_t                      most = (list ? p->n : 0) + c->n;
    if (p && !list)
        tsr_config_diag_error(d, &p->mark, NULL, "write pairs: [[rtn3, gptq3]]");
    if (!(c->pairs = tsr_new(most, sizeof *c->pairs)))
        return tsr_fail_nomem(err, most * sizeof *c->pairs, "pairs");
    for (uint64_t i = 0; list && i < p->n; i++)
        if (check_pair(c, p->items[i], d))
            add(c, p->items[i]->items[0]->text, p->items[i]->items[1]->text);
    /* the original as the baseline: every arm is compared with it anyway */
    for (uint64_t i = 0; baseline && strcmp(baseline, c->arms[0].name) != 0 && i < c->n; i++)
        if (strcmp(c->arms[i].name, baseline) != 0)
            add(c, c->arms[i].name, baseline);
    return TSR_OK;
}
