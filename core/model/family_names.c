/* Names of tensors: prefixes and patterns. */
#include "model/family.h"

#include <string.h>

size_t tsr_model_family_bare(const char *prefix)
{
    static const char inner[] = ".model.";
    size_t            n = strlen(prefix), k = sizeof inner - 1;
    return n > k && strcmp(prefix + n - k, inner) == 0 ? n - k + 1 : 0;
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
