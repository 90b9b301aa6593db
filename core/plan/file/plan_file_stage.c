/* A stage of a plan file: its layers, schemes, compensation and ways. */
#include "plan/file/plan_file_internal.h"

#include "base/mem.h"
#include "quant/scheme.h"

#include <string.h>

struct stage_map {
    const char                   *layers, *node, *device;
    int64_t                       tp, experts;
    const struct tsr_config_node *cpu_experts, *schemes, *compensation, *send, *collective,
        *predicted;
};
struct phases {
    const struct tsr_config_node *prefill, *decode;
};
struct channels {
    const char *layers, *tensors;
    int64_t     k, blocks;
};

#define SAID_BYTES(f, h)                                                                           \
    TSR_OPTION_INT(struct tsr_plan_stage_said, f, -1, -1, TSR_PLAN_BYTES, "bytes", h)

static const struct tsr_choice experts_choices[2] = {
    { "rows", "some rows of every expert", TSR_PLAN_EXPERTS_ROWS },
    { "whole", "some experts, whole", TSR_PLAN_EXPERTS_WHOLE },
};
static const struct tsr_option stage_options[] = {
    REQUIRED_TEXT(struct stage_map, layers, "Layers, such as 0-10."),
    TSR_OPTION_STRING(struct stage_map, node, "", "A node of the cluster."),
    TSR_OPTION_STRING(struct stage_map, device, "", "A device profile."),
    TSR_OPTION_INT(struct stage_map, tp, 1, 1, 1024, NULL, "Devices that share each layer."),
    TSR_OPTION_ENUM(struct stage_map, experts, TSR_PLAN_EXPERTS_ROWS, experts_choices,
                    "What of the experts each device has."),
    TSR_OPTION_NODE(struct stage_map, cpu_experts,
                    "Layers whose experts the CPU of the node runs; true: all of the stage."),
    TSR_OPTION_NODE(struct stage_map, schemes, "Rules for the stage's layers."),
    TSR_OPTION_NODE(struct stage_map, compensation, "Channels that are compensated."),
    TSR_OPTION_NODE(struct stage_map, send, "How a stage sends to the next."),
    TSR_OPTION_NODE(struct stage_map, collective, "How the devices of a stage add up."),
    TSR_OPTION_NODE(struct stage_map, predicted, "What is expected of the stage."),
};
static const struct tsr_option phase_options[] = {
    TSR_OPTION_NODE(struct phases, prefill, "In prefill."),
    TSR_OPTION_NODE(struct phases, decode, "In decode."),
};
static const struct tsr_option sum_options[] = {
    TSR_OPTION_STRING(struct tsr_plan_way, codec, "", "The codec, or auto."),
    TSR_OPTION_STRING(struct tsr_plan_way, algorithm, "", "How the parts travel, or auto."),
    TSR_OPTION_STRING(struct tsr_plan_way, state, "", "The codec's calibration."),
};
static const struct tsr_option way_options[] = {
    TSR_OPTION_STRING(struct tsr_plan_way, codec, "", "The codec."),
    TSR_OPTION_STRING(struct tsr_plan_way, algorithm, "", "How the parts travel."),
};
static const struct tsr_option channel_options[] = {
    TSR_OPTION_STRING(struct channels, layers, "", "Layers, such as 0-10."),
    TSR_OPTION_STRING(struct channels, tensors, "", "A pattern for names."),
    REQUIRED_INT(struct channels, k, 0, TSR_PLAN_CHANNELS,
                 "Channels of 1,024 that are compensated."),
    TSR_OPTION_INT(struct channels, blocks, 0, 0, 65535, NULL,
                   "Thread blocks that read residuals; 0: the device chooses."),
};
static const struct tsr_option stage_said_options[] = {
    SAID_BYTES(weights, "Weights."),
    SAID_BYTES(kv, "The cache."),
    SAID_BYTES(ends, "Embedding and head."),
    SAID_BYTES(workspace, "What the kernels need."),
    SAID_BYTES(capacity, "What the device has for all that."),
    SAID_BYTES(host, "Experts in the memory of the node's CPU."),
    SAID_BYTES(host_capacity, "What the stage has of that memory."),
    SAID_MS(struct tsr_plan_stage_said, prefill_ms, "A prefill micro-batch."),
    SAID_MS(struct tsr_plan_stage_said, decode_ms, "A decode step of a micro-batch."),
    TSR_OPTION_REAL(struct tsr_plan_stage_said, busy, NAN, 0, 1, NULL, "Share of the time."),
    SAID_BYTES(residuals, "What compensation keeps in the node's memory."),
};

const char *tsr_plan_linear(uint64_t layer, int linear, char buf[TSR_PLAN_LINEAR_TEXT])
{
    (void)snprintf(buf, TSR_PLAN_LINEAR_TEXT, "model.layers.%llu.%s.%s", (unsigned long long)layer,
                   tsr_model_linear_attends((enum tsr_linear_id)linear) ? "self_attn" : "mlp",
                   tsr_model_linear_name((enum tsr_linear_id)linear));
    return buf;
}

void tsr_plan_fill(const struct tsr_plan_reading *r, const struct tsr_option *o, uint64_t n,
                   void *into, const struct tsr_config_node *map, const char *what)
{
    struct tsr_config_optset set = { o, n, sizeof *o, into };
    tsr_config_options_fill(&set, 1, NULL, map, what, r->d);
}

bool tsr_plan_is_list(const struct tsr_config_node *n, const struct tsr_config_mark *at,
                      const char *what, struct tsr_diag *d)
{
    if (n && n->kind == TSR_CONFIG_NODE_LIST && n->n)
        return true;
    tsr_config_diag_error(d, n ? &n->mark : at, NULL, "%s is not a list of at least one map", what);
    return false;
}

/* "3-7", the value of a key of the map, into in[]; false after a diagnostic. */
static bool read_range(const struct tsr_plan_reading *r, const char *text, const char *key,
                       const struct tsr_config_node *map)
{
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    const struct tsr_config_node *at = tsr_config_node_get(map, key);
    if (tsr_config_parse_ranges(text, r->p->layers, r->in, &e.err) == TSR_OK)
        return true;
    tsr_config_diag_error(r->d, at ? &at->mark : &map->mark, NULL, "%s: %s", key, e.text);
    return false;
}

static bool read_layers(const struct tsr_plan_reading *r, const char *text,
                        const struct tsr_config_node *map)
{
    return read_range(r, text, "layers", map);
}

/* false after a diagnostic: in[] names a layer that is not of this stage. */
static bool inside(const struct tsr_plan_reading *r, const struct tsr_config_mark *at,
                   uint64_t first, uint64_t end)
{
    for (uint64_t l = 0; l < r->p->layers; l++)
        if (r->in[l] && (l < first || l >= end)) {
            tsr_config_diag_error(r->d, at, NULL, "layer %llu is not in this stage",
                                  (unsigned long long)l);
            return false;
        }
    return true;
}

static void read_entry(struct tsr_plan_reading *r, struct tsr_config_node *entry, uint64_t first,
                       uint64_t end)
{
    const struct tsr_config_node *layers =
        entry->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(entry, "layers") : NULL;
    if (!layers || layers->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(r->d, &entry->mark, "write {layers: 0-10, bits: 4}",
                              "an entry of schemes does not say which layers");
        return;
    }
    if (!read_layers(r, layers->text, entry) || !inside(r, &layers->mark, first, end))
        return;
    for (uint64_t l = first; l < end; l++)
        r->covered[l] = r->covered[l] || r->in[l];
    r->p->entries[r->p->n_entries++] = entry;
}

static tsr_status take_entries(struct tsr_plan_reading *r, const struct tsr_config_node *list,
                               uint64_t first, uint64_t end, struct tsr_err *err)
{
    struct tsr_plan_file    *p = r->p;
    struct tsr_config_node **v =
        tsr_renew(p->entries, p->n_entries + list->n, sizeof(struct tsr_config_node *));
    if (!v)
        return tsr_fail_nomem(err, list->n * sizeof(struct tsr_config_node *),
                              "the rules of a plan");
    p->entries = v;
    for (uint64_t i = 0; i < list->n; i++)
        read_entry(r, list->items[i], first, end);
    for (uint64_t l = first; l < end; l++)
        if (!r->covered[l] && !tsr_plan_failed(r))
            tsr_config_diag_error(r->d, &list->mark, NULL, "no entry of schemes is for layer %llu",
                                  (unsigned long long)l);
    return TSR_OK;
}

static void read_ways(const struct tsr_plan_reading *r, const struct tsr_config_node *map,
                      const char *what, struct tsr_plan_way way[TSR_PLAN_PHASES])
{
    struct phases                 p = { 0 };
    const struct tsr_config_node *of[TSR_PLAN_PHASES];
    if (map)
        TSR_PLAN_FILL(r, phase_options, &p, map, what);
    of[TSR_PLAN_PREFILL] = p.prefill;
    of[TSR_PLAN_DECODE] = p.decode;
    for (int i = 0; i < TSR_PLAN_PHASES; i++) {
        way[i].state = "";
        if (strcmp(what, "collective") == 0)
            TSR_PLAN_FILL(r, sum_options, &way[i], of[i], what);
        else
            TSR_PLAN_FILL(r, way_options, &way[i], of[i], what);
    }
}

/* false after a diagnostic: a layer has no linear of that name. */
static bool names_linear(const struct tsr_plan_reading *r, const struct tsr_config_node *entry,
                         const char *tensors, uint64_t layer)
{
    const struct tsr_config_node *at = tsr_config_node_get(entry, "tensors");
    char                          name[TSR_PLAN_LINEAR_TEXT];
    for (int i = 0; i < TSR_MODEL_EXPERTS; i++) /* of any family; routers keep their error */
        if (i != TSR_MODEL_ROUTER && i != TSR_MODEL_SHARED_ROUTER &&
            (!*tensors || tsr_quant_name_matches(tensors, tsr_plan_linear(layer, i, name))))
            return true;
    tsr_config_diag_error(r->d, at ? &at->mark : &entry->mark, "as in \"*.down_proj\"",
                          "no linear of layer %llu is called '%.80s'", (unsigned long long)layer,
                          tensors);
    return false;
}

/* true, false, or layers of the stage. */
static void read_cpu_experts(const struct tsr_plan_reading *r, const struct tsr_config_node *n,
                             struct tsr_plan_stage *s)
{
    uint64_t end = s->first + s->count;
    if (!n || n->kind == TSR_CONFIG_NODE_NULL)
        return;
    if (n->kind != TSR_CONFIG_NODE_SCALAR) {
        tsr_config_diag_error(r->d, &n->mark, "write true, or layers as in \"0-10\"",
                              "cpu_experts is not a value");
        return;
    }
    bool all = strcmp(n->text, "true") == 0;
    if (strcmp(n->text, "false") == 0 || (!all && (!read_range(r, n->text, "cpu_experts", s->map) ||
                                                   !inside(r, &n->mark, s->first, end))))
        return;
    for (uint64_t l = s->first; l < end; l++)
        r->p->cpu_experts[l] = all || r->in[l];
    s->cpu_experts = true;
}

static void read_compensation(const struct tsr_plan_reading *r, const struct tsr_config_node *list,
                              struct tsr_plan_stage *s)
{
    if (!list || !tsr_plan_is_list(list, &list->mark, "compensation", r->d))
        return;
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_config_node *entry = list->items[i];
        struct channels               c = { 0 };
        uint64_t                      l = s->first;
        TSR_PLAN_FILL(r, channel_options, &c, entry, "an entry of compensation");
        if (tsr_plan_failed(r))
            return;
        if (*c.layers) {
            if (!read_layers(r, c.layers, entry) ||
                !inside(r, &entry->mark, s->first, s->first + s->count))
                return;
            while (!r->in[l]) /* of what it names, the first */
                l++;
        }
        if (!names_linear(r, entry, c.tensors, l))
            return;
        s->compensated = s->compensated || c.k > 0;
    }
}

tsr_status tsr_plan_read_stage(struct tsr_plan_reading *r, const struct tsr_config_node *n,
                               struct tsr_err *err)
{
    struct stage_map       m = { 0 };
    struct tsr_plan_stage *s = &r->p->stages[r->p->n_stages];
    uint64_t               end, count = 0;
    if (n->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(r->d, &n->mark, NULL, "a stage is not a map");
        return TSR_OK;
    }
    TSR_PLAN_FILL(r, stage_options, &m, n, "a stage");
    if (tsr_plan_failed(r) || !read_layers(r, m.layers, n) ||
        !tsr_plan_is_list(m.schemes, &n->mark, "schemes", r->d))
        return TSR_OK;
    for (end = r->next; end < r->p->layers && r->in[end]; end++)
        ;
    for (uint64_t l = 0; l < r->p->layers; l++)
        count += r->in[l];
    if (end == r->next || count != end - r->next) {
        tsr_config_diag_error(r->d, &tsr_config_node_get(n, "layers")->mark, NULL,
                              "a stage's layers are not one run that begins with layer %llu",
                              (unsigned long long)r->next);
        return TSR_OK;
    }
    *s = (struct tsr_plan_stage){ .first = r->next,
                                  .count = end - r->next,
                                  .node = m.node,
                                  .device = m.device,
                                  .tp = m.tp,
                                  .experts = m.experts,
                                  .map = n };
    r->p->n_stages++;
    r->next = end;
    read_ways(r, m.send, "send", s->send);
    read_ways(r, m.collective, "collective", s->collective);
    TSR_PLAN_FILL(r, stage_said_options, &s->said, m.predicted, "predicted");
    read_compensation(r, m.compensation, s);
    read_cpu_experts(r, m.cpu_experts, s);
    return take_entries(r, m.schemes, s->first, end, err);
}
