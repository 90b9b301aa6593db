#include "cli/cli.h"

#include <string.h>

/* One line per verb, in the order of `tessera help`. */
extern const struct tsr_verb tsr_verb_help;

static const struct tsr_verb *const verbs[] = {
    &tsr_verb_help,
};

const struct tsr_verb *tsr_verb_at(uint64_t i)
{
    return i < sizeof verbs / sizeof *verbs ? verbs[i] : NULL;
}

const struct tsr_verb *tsr_verb_find(const char *name, const char **near)
{
    const char *names[128];
    uint64_t    n = 0;
    for (const struct tsr_verb *v; n < 128 && (v = tsr_verb_at(n)); n++) {
        if (strcmp(v->name, name) == 0)
            return v;
        names[n] = v->name;
    }
    *near = tsr_nearest(name, names, n);
    return NULL;
}
