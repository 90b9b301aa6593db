/* Whether a candidate is the scheme that a file of indicators names. */
#include "base/mem.h"
#include "config/value.h"
#include "plan/cost/quality_internal.h"

#include <stdlib.h>
#include <string.h>

static bool same_value(const struct tsr_option *o, const unsigned char *a, const unsigned char *b)
{
    if (o->type == TSR_OPT_STRING) {
        const char *x, *y;
        memcpy(&x, a + o->offset, sizeof x);
        memcpy(&y, b + o->offset, sizeof y);
        return x && y ? strcmp(x, y) == 0 : x == y;
    }
    return memcmp(a + o->offset, b + o->offset, o->type == TSR_OPT_BOOL ? 4 : 8) == 0;
}

/* "bits=4,group=128" over the defaults; false for an option that is not there or wrong. */
static bool set_options(const struct tsr_config_optset *set, char *list)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_config_options_defaults(set);
    while (list && *list) {
        char *key = list, *comma = strchr(list, ','), *value;
        bool  found = false;
        if (comma)
            *comma = '\0';
        list = comma ? comma + 1 : NULL;
        value = strchr(key, '=');
        if (!value)
            return false;
        *value++ = '\0';
        for (uint64_t i = 0; i < set->n && !found; i++) {
            struct tsr_option o = tsr_config_option_at(set, i);
            found = strcmp(o.name, key) == 0;
            if (found && tsr_config_option_set(&o, set->into, value, &e.err) != TSR_OK)
                return false;
        }
        if (!found)
            return false;
    }
    return true;
}

bool tsr_quality_is_scheme(const struct tsr_plan_candidate *c, const char *text)
{
    const struct tsr_component *of = c->spec.found.component;
    const char                 *list = strchr(text, ':');
    size_t                      n = list ? (size_t)(list - text) : strlen(text);
    if (strlen(c->scheme) != n || strncmp(c->scheme, text, n) != 0)
        return false;
    if (strcmp(c->options, list ? list + 1 : "") == 0)
        return true;
    char          *copy = of ? tsr_strdup(list ? list + 1 : "") : NULL;
    unsigned char *into = of ? tsr_new_aligned(1, of->options_size) : NULL;
    bool           same = copy && into;
    if (same) {
        struct tsr_config_optset set = { of->options, of->n_options, of->option_stride, into };
        memset(into, 0, of->options_size);
        same = set_options(&set, copy);
        for (uint64_t i = 0; i < of->n_options && same; i++) {
            struct tsr_option o = tsr_config_option_at(&set, i);
            same = same_value(&o, into, c->spec.options);
        }
    }
    free(into);
    free(copy);
    return same;
}
