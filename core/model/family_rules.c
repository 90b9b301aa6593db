/* Rules that say of which layers something holds. */
#include "model/family_internal.h"

#include <string.h>

static void rule_key(struct tsr_family_reading *r, const struct tsr_config_node *key,
                     const struct tsr_config_node *v, const char *what,
                     struct tsr_model_layer_rule *rule)
{
    static const struct {
        const char           *key;
        enum tsr_model_layers kind;
    } numbers[] = { { "from", TSR_MODEL_LAYERS_FROM },
                    { "every", TSR_MODEL_LAYERS_EVERY },
                    { "except_every", TSR_MODEL_LAYERS_EXCEPT_EVERY } };
    for (size_t i = 0; i < TSR_COUNT(numbers); i++)
        if (strcmp(key->text, numbers[i].key) == 0) {
            rule->kind = numbers[i].kind;
            rule->n = (struct tsr_model_value){ 0 };
            tsr_family_value(r, v, key->text, false, &rule->n);
            return;
        }
    if (strcmp(key->text, "listed") == 0 && v->kind == TSR_CONFIG_NODE_SCALAR)
        rule->list = v->text;
    else if (strcmp(key->text, "except") == 0 && v->kind == TSR_CONFIG_NODE_SCALAR)
        rule->except = v->text;
    else
        tsr_config_diag_error(r->d, &key->mark, "from, every, except_every, listed or except",
                              "unknown key '%s' in %s", key->text, what);
}

/* all, none, even, sliding, sliding_or_all, unrotated, {from: VALUE} or {except_every: VALUE}; `listed`: KEY in both maps. */
void tsr_family_rule(struct tsr_family_reading *r, const struct tsr_config_node *n,
                     const char *what, struct tsr_model_layer_rule *rule)
{
    static const struct tsr_choice words[] = {
        { "all", NULL, TSR_MODEL_LAYERS_ALL },
        { "none", NULL, TSR_MODEL_LAYERS_NONE },
        { "even", NULL, TSR_MODEL_LAYERS_EVEN },
        { "sliding", NULL, TSR_MODEL_LAYERS_SLIDING },
        { "sliding_or_all", NULL, TSR_MODEL_LAYERS_SLIDING_OR_ALL },
        { "unrotated", NULL, TSR_MODEL_LAYERS_UNROTATED },
    };
    int64_t kind = TSR_MODEL_LAYERS_ALL;
    rule->kind = TSR_MODEL_LAYERS_ALL;
    if (!n)
        return;
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        if (tsr_family_word(r, n, what, words, TSR_COUNT(words), &kind))
            rule->kind = (enum tsr_model_layers)kind;
        return;
    }
    for (uint64_t i = 0; i < n->n; i++)
        rule_key(r, n->keys[i], n->items[i], what, rule);
}
