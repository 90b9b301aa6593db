/* What a plan file says of a layer. */
#include "base/mem.h"
#include "plan/file/plan_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tsr_status tsr_plan_file_covers(const struct tsr_plan_file *p, const struct tsr_config_node *entry,
                                uint64_t layer, bool *yes, struct tsr_err *err)
{
    bool *in = tsr_new(p->layers, sizeof *in);
    if (!in)
        return tsr_fail_nomem(err, p->layers, "the layers of a plan");
    tsr_status st =
        tsr_config_parse_ranges(tsr_config_node_get(entry, "layers")->text, p->layers, in, err);
    *yes = st == TSR_OK && in[layer];
    free(in);
    return st;
}

tsr_status tsr_plan_file_layer(const struct tsr_plan_file *p, uint64_t layer, char *buf, size_t cap,
                               struct tsr_err *err)
{
    size_t at = 0;
    buf[0] = '\0';
    for (uint64_t i = 0; i < p->n_entries; i++) {
        const struct tsr_config_node *e = p->entries[i];
        bool                          yes = false, first = true;
        TSR_TRY(tsr_plan_file_covers(p, e, layer, &yes, err));
        for (uint64_t k = 0; yes && k < e->n && at < cap; k++) {
            if (strcmp(e->keys[k]->text, "layers") == 0)
                continue;
            at += (size_t)snprintf(buf + at, cap - at, "%s%.60s: %.200s",
                                   !first ? ", "
                                   : at   ? "; "
                                          : "",
                                   e->keys[k]->text,
                                   e->items[k]->kind == TSR_CONFIG_NODE_SCALAR ? e->items[k]->text
                                                                               : "?");
            first = false;
        }
    }
    return TSR_OK;
}
