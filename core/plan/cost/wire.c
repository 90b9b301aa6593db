/* Bytes of activations on links, from codec plugins. */
#include "base/mem.h"
#include "plan/cost/cluster.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_plan_wire_open(struct tsr_plan_wire *w, struct tsr_registry *r, const char *text,
                              struct tsr_err *err)
{
    *w = (struct tsr_plan_wire){ 0 };
    if (!text || !*text)
        return TSR_OK;
    w->text = tsr_strdup(text);
    if (!w->text)
        return tsr_fail_nomem(err, strlen(text), "a codec's name");
    tsr_status st = tsr_plugin_spec_open(&w->spec, r, TSR_KIND_CODEC, text, err);
    if (st == TSR_OK) {
        const struct tsr_codec_v1 *iface = w->spec.found.iface;
        st = iface->create(w->spec.found.host, w->spec.options, &w->self, err);
        if (st == TSR_OK)
            w->iface = iface;
        else
            st = tsr_err_prefix(err, st == TSR_E_CONFIG ? TSR_E_INPUT : st, "codec '%s'", text);
    }
    if (st != TSR_OK)
        tsr_plan_wire_close(w);
    return st;
}

void tsr_plan_wire_close(struct tsr_plan_wire *w)
{
    if (w->iface)
        w->iface->destroy(w->self);
    tsr_plugin_spec_close(&w->spec);
    free(w->text);
    *w = (struct tsr_plan_wire){ 0 };
}

tsr_status tsr_plan_wire_bytes(const struct tsr_plan_wire *w, uint64_t rows, uint64_t cols,
                               uint64_t *bytes, struct tsr_err *err)
{
    if (w && w->iface)
        return w->iface->wire_bytes(w->self, rows, cols, bytes, err);
    uint64_t n, element = w && w->element ? w->element : sizeof(float);
    if (!tsr_mul(rows, cols, &n) || !tsr_mul(n, element, bytes))
        return tsr_fail(err, TSR_E_INPUT, "a message of %llu x %llu activations is too large",
                        (unsigned long long)rows, (unsigned long long)cols);
    return TSR_OK;
}
