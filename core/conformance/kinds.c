/* The component kinds that have rules. */
#include "conformance/internal.h"

#include <string.h>

extern const struct tsr_conformance_kind_rules tsr_quantizer_rules, tsr_codec_rules,
    tsr_transport_rules, tsr_solver_rules, tsr_backend_rules, tsr_sampler_rules, tsr_step_rules,
    tsr_kv_rules, tsr_family_rules, tsr_task_rules;

static const struct tsr_conformance_kind_rules *const kinds[] = {
    &tsr_quantizer_rules, &tsr_codec_rules,   &tsr_transport_rules, &tsr_solver_rules,
    &tsr_backend_rules,   &tsr_sampler_rules, &tsr_step_rules,      &tsr_kv_rules,
    &tsr_family_rules,    &tsr_task_rules,
};
static const uint64_t n_kinds = sizeof kinds / sizeof *kinds;

const struct tsr_conformance_kind_rules *tsr_conformance_kind_rules_find(const char *kind)
{
    for (uint64_t i = 0; i < n_kinds; i++)
        if (strcmp(kinds[i]->kind, kind) == 0)
            return kinds[i];
    return NULL;
}

const struct tsr_conformance_kind_rules *tsr_conformance_noun_rules_find(const char *noun)
{
    for (uint64_t i = 0; i < n_kinds; i++)
        if (strcmp(kinds[i]->noun, noun) == 0)
            return kinds[i];
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
    for (uint64_t k = 0; k < n_kinds; i -= kinds[k++]->n_rules)
        if (i < kinds[k]->n_rules) {
            *rule = &kinds[k]->rules[i];
            *kind = kinds[k]->noun;
            return true;
        }
    return false;
}
