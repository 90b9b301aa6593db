/* The component kinds that have rules. */
#include "conformance/internal.h"

#include <string.h>

extern const struct tsr_conformance_kind_rules tsr_quantizer_rules, tsr_codec_rules,
    tsr_transport_rules, tsr_solver_rules, tsr_backend_rules;

const struct tsr_conformance_kind_rules *const tsr_conformance_kind_rules[] = {
    &tsr_quantizer_rules, &tsr_codec_rules,   &tsr_transport_rules,
    &tsr_solver_rules,    &tsr_backend_rules,
};
const uint64_t tsr_n_kind_rules =
    sizeof tsr_conformance_kind_rules / sizeof *tsr_conformance_kind_rules;

const struct tsr_conformance_kind_rules *tsr_conformance_kind_rules_find(const char *kind)
{
    for (uint64_t i = 0; i < tsr_n_kind_rules; i++)
        if (strcmp(tsr_conformance_kind_rules[i]->kind, kind) == 0)
            return tsr_conformance_kind_rules[i];
    return NULL;
}

bool tsr_conformance_check_rule_at(uint64_t i, const struct tsr_conformance_rule **rule,
                                   const char **kind)
{
    if (i < tsr_n_any_rules) {
        *rule = &tsr_any_rules[i];
        *kind = NULL;
        return true;
    }
    i -= tsr_n_any_rules;
    for (uint64_t k = 0; k < tsr_n_kind_rules; i -= tsr_conformance_kind_rules[k++]->n_rules)
        if (i < tsr_conformance_kind_rules[k]->n_rules) {
            *rule = &tsr_conformance_kind_rules[k]->rules[i];
            *kind = tsr_conformance_kind_rules[k]->noun;
            return true;
        }
    return false;
}
