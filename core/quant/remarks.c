#include "quant/remarks.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Without memory for it, a line is logged immediately. */
static void keep(void *ctx, int32_t level, const char *msg)
{
    struct tsr_quant_remarks *r = ctx;
    if (!r)
        return;
    for (uint64_t i = 0; i < r->n; i++)
        if (r->v[i].level == level && strcmp(r->v[i].text, msg) == 0)
            return;
    char                    *text = tsr_strdup(msg);
    struct tsr_quant_remark *v = text ? tsr_renew(r->v, r->n + 1, sizeof *v) : NULL;
    if (v) {
        r->v = v;
        r->v[r->n++] = (struct tsr_quant_remark){ .level = level, .text = text };
        return;
    }
    free(text);
    tsr_log_divert(NULL, NULL);
    tsr_log_line(level, msg);
    tsr_log_divert(keep, r);
}

tsr_status tsr_quant_remarks_open(struct tsr_quant_remarks *r, struct tsr_quantizer *q,
                                  struct tsr_registry           *registry,
                                  const struct tsr_plugin_found *found, const struct tsr_host *host,
                                  const void *options, struct tsr_err *err)
{
    tsr_log_divert(keep, r);
    tsr_status st = tsr_quantizer_open(q, registry, found, host, options, err);
    tsr_log_divert(NULL, NULL);
    return st;
}

void tsr_quant_remarks_say(struct tsr_quant_remarks *r)
{
    for (uint64_t i = 0; i < r->n; i++) {
        if (!r->v[i].said)
            tsr_log_line(r->v[i].level, r->v[i].text);
        r->v[i].said = true;
    }
}

void tsr_quant_remarks_free(struct tsr_quant_remarks *r)
{
    for (uint64_t i = 0; i < r->n; i++)
        free(r->v[i].text);
    free(r->v);
    *r = (struct tsr_quant_remarks){ 0 };
}
