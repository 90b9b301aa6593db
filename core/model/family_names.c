/* Names of tensors: prefixes and patterns. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

size_t tsr_model_family_bare(const char *prefix)
{
    static const char inner[] = ".model.";
    size_t            n = strlen(prefix), k = sizeof inner - 1;
    return n > k && strcmp(prefix + n - k, inner) == 0 ? n - k + 1 : 0;
}

bool tsr_model_role_in_layer(const struct tsr_model_hparams *hp, const struct tsr_model_role *r,
                             uint64_t layer)
{
    bool sparse = hp->sparse && layer < hp->layers && hp->sparse[layer];
    switch (r->part) {
    case TSR_MODEL_PART_LINEAR:
        return r->lin < TSR_GATE || sparse == (r->lin >= TSR_ROUTER);
    case TSR_MODEL_PART_GATE_UP_ROWS:
        return !sparse;
    case TSR_MODEL_PART_EXPERT:
    case TSR_MODEL_PART_EXPERTS:
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return sparse;
    default:
        return true;
    }
}

bool tsr_model_role_of_expert(const struct tsr_model_role *r, uint64_t expert,
                              char buf[TSR_FAMILY_NAME + 24], struct tsr_model_role *one)
{
    const char *at = strchr(r->name, '@');
    int         len = at ? (int)(at - r->name) : 0;
    int         n = snprintf(buf, TSR_FAMILY_NAME + 24, "%.*s%llu%s", len, r->name,
                             (unsigned long long)expert, at ? at + 1 : "");
    *one = *r;
    one->name = buf;
    one->part = TSR_MODEL_PART_LINEAR;
    one->lin = tsr_model_expert_linear(expert, r->lin);
    return at && n > 0 && n < TSR_FAMILY_NAME + 24;
}

bool tsr_model_tensor_name_matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*' && !pattern[1])
            return true;
        if (*pattern == '#') {
            if (*name < '0' || *name > '9')
                return false;
            while (*name >= '0' && *name <= '9')
                name++;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return *name == '\0';
}
