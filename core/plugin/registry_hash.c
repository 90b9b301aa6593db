#include "plugin/registry_hash.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

tsr_status tsr_plugin_registry_hash(struct tsr_registry *r, char text[TSR_HASH_TEXT],
                                    struct tsr_err *err)
{
    struct tsr_hasher *h;
    TSR_TRY(tsr_plugin_registry_scan(r, err));
    uint64_t     n = tsr_plugin_registry_count(r);
    const char **all = tsr_new(n, sizeof *all);
    if (!all)
        return tsr_fail_nomem(err, n * sizeof *all, "plugins");
    for (uint64_t i = 0; i < n; i++)
        all[i] = tsr_plugin_registry_plugin(r, i)->hash;
    qsort(all, n, sizeof *all, by_text);
    tsr_status st = tsr_hasher_create(&h, err);
    for (uint64_t i = 0; st == TSR_OK && i < n; i++)
        tsr_hasher_update(h, all[i], strlen(all[i]));
    if (st == TSR_OK)
        tsr_hasher_finish(h, text);
    free(all);
    return st;
}
