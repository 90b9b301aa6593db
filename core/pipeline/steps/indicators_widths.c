/* The schemes of a list of widths: the user's map with `bits` added. */
#include "base/mem.h"
#include "pipeline/steps/indicators_step.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "step 'indicators'"

void tsr_step_widths_close(struct indicator_widths *w)
{
    for (uint32_t i = 0; w && i < TSR_INDICATOR_BITS; i++) {
        tsr_quant_scheme_destroy(w->scheme[i]);
        free(w->lists[i]);
    }
    free(w);
}

/* "3,4,8,16" */
static bool read_bits(struct indicator_widths *w, const char *text)
{
    for (const char *s = text;; s++) {
        char *end;
        if (*s < '0' || *s > '9' || w->n == TSR_INDICATOR_BITS)
            return false;
        unsigned long v = strtoul(s, &end, 10);
        if (!((v >= 2 && v <= 8) || v == 16) || (w->n && v <= w->bits[w->n - 1]))
            return false;
        w->bits[w->n++] = (uint32_t)v;
        s = end;
        if (*s == '\0')
            return true;
        if (*s != ',')
            return false;
    }
}

static struct tsr_config_node scalar(const struct tsr_config_node *at, const char *text)
{
    return (
        struct tsr_config_node){ .kind = TSR_CONFIG_NODE_SCALAR, .mark = at->mark, .text = text };
}

/* The map of width i; from NULL: {use: rtn}. */
static tsr_status make_map(struct indicator_widths *w, uint32_t i,
                           const struct tsr_config_node *from, const struct tsr_config_node *at,
                           struct tsr_err *err)
{
    uint64_t n = from ? from->n : 1;
    w->lists[i] = tsr_new(2 * (n + 1), sizeof(struct tsr_config_node *));
    if (!w->lists[i])
        return tsr_fail_nomem(err, 2 * (n + 1) * sizeof(struct tsr_config_node *), WHAT);
    struct tsr_config_node **keys = w->lists[i], **items = keys + n + 1;
    for (uint64_t k = 0; from && k < n; k++) {
        keys[k] = from->keys[k];
        items[k] = from->items[k];
    }
    if (!from) {
        keys[0] = &w->use_key;
        items[0] = &w->use_value;
    }
    (void)snprintf(w->text[i], sizeof w->text[i], "%u", w->bits[i]);
    w->value[i] = scalar(at, w->text[i]);
    keys[n] = &w->key;
    items[n] = &w->value[i];
    w->map[i] = (struct tsr_config_node){
        .kind = TSR_CONFIG_NODE_MAP, .mark = at->mark, .n = n + 1, .items = items, .keys = keys
    };
    return TSR_OK;
}

/* Errors go to d. w must not move while its schemes live. */
tsr_status tsr_step_widths_read(struct indicator_widths *w, struct tsr_pipeline_job *job,
                                const struct indicators_options *o,
                                const struct tsr_config_node *node, struct tsr_diag *d,
                                struct tsr_err *err)
{
    const struct tsr_config_node *map = o->quantize, *at = tsr_config_node_get(node, "bits");
    if (!read_bits(w, o->bits)) {
        tsr_config_diag_error(
            d, at ? &at->mark : &node->mark, "write bits: \"3,4,8,16\"",
            "'bits' is not an ascending list of at most %d widths of 2 to 8 or 16",
            TSR_INDICATOR_BITS);
        return TSR_OK;
    }
    if (map && map->kind == TSR_CONFIG_NODE_NULL)
        map = NULL;
    if (map && map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &map->mark, "write quantize: {use: rtn}",
                              "'quantize' is not a map");
        return TSR_OK;
    }
    const struct tsr_config_node *bits = map ? tsr_config_node_get(map, "bits") : NULL;
    if (bits) {
        tsr_config_diag_error(d, &bits->mark, "the widths are the step's own 'bits'",
                              "'bits' inside 'quantize'");
        return TSR_OK;
    }
    const struct tsr_config_node *mark = map ? map : node;
    w->key = scalar(mark, "bits");
    w->use_key = scalar(mark, "use");
    w->use_value = scalar(mark, "rtn");
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t before = tsr_config_diag_errors(d);
        if (w->bits[i] == 16)
            continue;
        TSR_TRY(make_map(w, i, map, mark, err));
        TSR_TRY(
            tsr_quant_scheme_create(&w->scheme[i], job->registry, &w->map[i], NULL, WHAT, d, err));
        if (tsr_config_diag_errors(d) != before)
            break; /* the other bit widths would report the same */
    }
    return TSR_OK;
}

tsr_status tsr_step_widths_open(struct indicator_widths **out, struct tsr_pipeline_job *job,
                                const struct indicators_options *o,
                                const struct tsr_config_node *node, struct tsr_err *err)
{
    struct indicator_widths *w = tsr_new(1, sizeof *w);
    struct tsr_diag         *d = NULL;
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, WHAT);
    tsr_status st = tsr_config_diag_create(&d, err);
    if (st == TSR_OK)
        st = tsr_step_widths_read(w, job, o, node, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    tsr_config_diag_destroy(d);
    if (st != TSR_OK) {
        tsr_step_widths_close(w);
        return st;
    }
    *out = w;
    return TSR_OK;
}
