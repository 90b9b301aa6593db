/* Device profiles: YAML to struct tsr_plan_profile (docs/formats/device.md). */
#include "plan/cost/device_internal.h"

#include "base/mem.h"
#include "plan/cost/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "tessera.device/1"

const char *tsr_plan_basis_name(enum tsr_basis b)
{
    static const char *const names[] = { "measured", "fitted", "roofline" };
    return names[b];
}

/* ---- what the file may say --------------------------------------------------------------- */

struct head {
    const char                   *format, *name, *backend, *measured_on;
    const struct tsr_config_node *memory, *bandwidth, *host, *overhead, *knots, *kernels, *layers,
        *ends, *codecs;
};
struct memory {
    const char *total, *reserved, *paper, *source;
    double      usable;
};
struct bandwidth {
    const char *peak, *source;
};
struct overhead {
    const char *prefill, *decode, *source;
};
struct kernel {
    const char                   *kernel, *ops, *source;
    const struct tsr_config_node *prefill, *decode;
    double                        bytes_per_weight, convert;
    int64_t                       above;
};
struct reach {
    double compute, read;
};
static const struct tsr_option head_options[] = {
    PROFILE_TEXT(struct head, format, "\"" FORMAT "\"."),
    PROFILE_TEXT(struct head, name, "Name of the device, as clusters call it."),
    TSR_OPTION_STRING(struct head, backend, "", "Backend plugin that runs it; none: plans only."),
    TSR_OPTION_STRING(struct head, measured_on, "",
                      "Whose kernels the measured layers are of, and who measured them."),
    TSR_OPTION_NODE(struct head, memory, "What it holds."),
    TSR_OPTION_NODE(struct head, bandwidth, "How fast it reads its memory."),
    TSR_OPTION_NODE(struct head, host, "How fast it reads the host's memory."),
    TSR_OPTION_NODE(struct head, overhead, "Time of a layer compared with the roofline."),
    TSR_OPTION_NODE(struct head, knots, "Tokens at once where kernels change."),
    TSR_OPTION_NODE(struct head, kernels, "Kernels that it runs, with their roofline."),
    TSR_OPTION_NODE(struct head, layers, "Measured decoder layers."),
    TSR_OPTION_NODE(struct head, ends, "Measured embeddings and heads."),
    TSR_OPTION_NODE(struct head, codecs, "How fast codecs are."),
};
static const struct tsr_option memory_options[] = {
    PROFILE_TEXT(struct memory, total, "Memory of the device."),
    TSR_OPTION_STRING(struct memory, reserved, "0 B", "Taken by driver and runtime."),
    TSR_OPTION_STRING(struct memory, paper, "", "Total of `accounting: paper`."),
    TSR_OPTION_REAL(struct memory, usable, 1.0, 0.01, 1.0, NULL, "Share that a plan may use."),
    PROFILE_TEXT(struct memory, source, "Where the values come from."),
};
static const struct tsr_option bandwidth_options[] = {
    PROFILE_TEXT(struct bandwidth, peak, "Bytes a second."),
    PROFILE_TEXT(struct bandwidth, source, "Where the value comes from."),
};
static const struct tsr_option overhead_options[] = {
    TSR_OPTION_STRING(struct overhead, prefill, "0 us", "Of one layer and prefill call."),
    TSR_OPTION_STRING(struct overhead, decode, "0 us", "Of one layer and decode step."),
    PROFILE_TEXT(struct overhead, source, "Where the values come from."),
};
static const struct tsr_option kernel_options[] = {
    PROFILE_TEXT(struct kernel, kernel, "Name of a layout's kernel: f16, int4, llm8."),
    PROFILE_TEXT(struct kernel, ops, "Peak operations a second of the unit that it uses."),
    TSR_OPTION_NODE(struct kernel, prefill, "Shares of the peaks that prefill reaches."),
    TSR_OPTION_NODE(struct kernel, decode, "Shares of the peaks that decode reaches."),
    TSR_OPTION_REAL(struct kernel, bytes_per_weight, 0.0, 0.0, 8.0, "bytes",
                    "Read for a weight; 0: as it is packed."),
    TSR_OPTION_REAL(struct kernel, convert, 0.0, 0.0, 16.0, "bytes",
                    "Moved for a weight before the product begins."),
    TSR_OPTION_INT(struct kernel, above, 0, 0, 1 << 20, "tokens",
                   "For more tokens at once than that; an entry without it for fewer."),
    PROFILE_TEXT(struct kernel, source, "Where the values come from."),
};
static const struct tsr_option reach_options[] = {
    { .name = "compute",
      .help = "Share of ops.",
      .type = TSR_OPT_REAL,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct reach, compute, double),
      .min = { .r = 1e-4 },
      .max = { .r = 1 } },
    { .name = "read",
      .help = "Share of the bandwidth.",
      .type = TSR_OPT_REAL,
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct reach, read, double),
      .min = { .r = 1e-4 },
      .max = { .r = 1 } },
};

/* A quantity given as text; the key's node is for the place. */
static double quantity(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map,
                       const char *key, enum tsr_quantity what, double none)
{
    const struct tsr_config_node *n = map ? tsr_config_node_get(map, key) : NULL;
    double                        v = none;
    if (n && n->kind == TSR_CONFIG_NODE_SCALAR)
        (void)tsr_plan_quantity_node(n, key, what, &v, r->d);
    return v;
}

/* ---- the rest ------------------------------------------------------------------------------ */

static void one_kernel(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    struct kernel            k = { 0 };
    struct reach             reach[2] = { { 0 } };
    struct tsr_plan_profile *p = r->p;
    uint64_t                 before = tsr_config_diag_errors(r->d);
    PROFILE_FILL(r, kernel_options, map, "a kernel", &k);
    const struct tsr_config_node *of[2] = { k.prefill, k.decode };
    for (int i = 0; i < 2; i++)
        if (of[i])
            PROFILE_FILL(r, reach_options, of[i], i ? "'decode'" : "'prefill'", &reach[i]);
        else
            tsr_config_diag_error(r->d, &map->mark, "as in {compute: 0.5, read: 0.8}",
                                  "a kernel needs '%s'", i ? "decode" : "prefill");
    double ops = quantity(r, map, "ops", TSR_PLAN_QUANTITY_OPERATIONS, 0);
    if (!tsr_plan_profile_kernel_name(r, map, k.kernel) || tsr_config_diag_errors(r->d) != before)
        return;
    for (uint64_t i = 0; i < p->n_kernels; i++)
        if (strcmp(p->kernels[i].kernel, k.kernel) == 0 &&
            p->kernels[i].above == (uint64_t)k.above) {
            tsr_config_diag_error(r->d, &map->mark,
                                  "entries for other numbers of tokens say 'above'",
                                  "the kernel '%s' is there twice", k.kernel);
            return;
        }
    if (!(ops > 0)) {
        tsr_config_diag_error(r->d, &tsr_config_node_get(map, "ops")->mark, NULL,
                              "'ops' must be more than 0");
        return;
    }
    struct tsr_plan_kernel_speed *to = tsr_renew(p->kernels, p->n_kernels + 1, sizeof *to);
    if (!to) {
        r->nomem = true;
        return;
    }
    p->kernels = to;
    to += p->n_kernels++;
    *to = (struct tsr_plan_kernel_speed){ .ops = ops,
                                          .compute = { reach[0].compute, reach[1].compute },
                                          .read = { reach[0].read, reach[1].read },
                                          .bytes_per_weight = k.bytes_per_weight,
                                          .convert = k.convert,
                                          .above = (uint64_t)k.above,
                                          .source = k.source };
    (void)snprintf(to->kernel, sizeof to->kernel, "%s", k.kernel);
}

static void read_knots(struct tsr_plan_profile_reading *r, const struct tsr_config_node *map)
{
    static const char *const names[] = { "prefill", "decode" };
    struct tsr_plan_profile *p = r->p;
    if (!map || map->kind == TSR_CONFIG_NODE_NULL)
        return;
    if (map->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(r->d, &map->mark, NULL,
                              "'knots' must be {prefill: [...], decode: [...]}");
        return;
    }
    for (uint64_t i = 0; i < map->n; i++) {
        const struct tsr_config_node *list = map->items[i];
        int                           phase = strcmp(map->keys[i]->text, names[1]) == 0;
        uint64_t                      last = 0;
        bool                          ok = list->kind == TSR_CONFIG_NODE_LIST && list->n <= 8 &&
                  strcmp(map->keys[i]->text, names[phase]) == 0;
        for (uint64_t k = 0; ok && k < list->n; k++) {
            char    *end = NULL;
            uint64_t v = 0;
            if (list->items[k]->kind == TSR_CONFIG_NODE_SCALAR && *list->items[k]->text != '-')
                v = strtoull(list->items[k]->text, &end, 10);
            ok = end && *end == '\0' && v > last && v < UINT32_MAX;
            p->knots[phase][k] = last = v;
        }
        if (ok)
            p->n_knots[phase] = (uint32_t)list->n;
        else
            tsr_config_diag_error(r->d, &list->mark, NULL,
                                  "'knots' must be {prefill: [...], decode: [...]}, each at most 8 "
                                  "ascending numbers of tokens");
    }
}

static char *copy(struct tsr_plan_profile_reading *r, const char *text)
{
    char *c = tsr_strdup(text ? text : "");
    r->nomem = r->nomem || !c;
    return c;
}

static void read_head(struct tsr_plan_profile_reading *r, const struct tsr_config_node *root)
{
    struct tsr_plan_profile *p = r->p;
    struct head              h = { 0 };
    struct memory            m = { 0 };
    struct bandwidth         b = { 0 }, host = { 0 };
    struct overhead          o = { 0 };
    PROFILE_FILL(r, head_options, root, "a device profile", &h);
    const struct tsr_config_node *format = tsr_config_node_get(root, "format");
    if (format && strcmp(h.format, FORMAT) != 0)
        tsr_config_diag_error(r->d, &format->mark, NULL, "'format' must be \"" FORMAT "\"");
    if (!h.memory)
        tsr_config_diag_error(r->d, &root->mark, "as in {total: 16 GiB, source: ...}",
                              "a device profile needs 'memory'");
    else
        PROFILE_FILL(r, memory_options, h.memory, "'memory'", &m);
    if (!h.bandwidth)
        tsr_config_diag_error(r->d, &root->mark, "as in {peak: 320 GB/s, source: ...}",
                              "a device profile needs 'bandwidth'");
    else
        PROFILE_FILL(r, bandwidth_options, h.bandwidth, "'bandwidth'", &b);
    if (h.host)
        PROFILE_FILL(r, bandwidth_options, h.host, "'host'", &host);
    if (h.overhead)
        PROFILE_FILL(r, overhead_options, h.overhead, "'overhead'", &o);
    if (h.name && strlen(h.name) > 32)
        tsr_config_diag_error(r->d, &tsr_config_node_get(root, "name")->mark, NULL,
                              "'name' has more than 32 characters");
    double total = quantity(r, h.memory, "total", TSR_PLAN_QUANTITY_BYTES, 0);
    double reserved = quantity(r, h.memory, "reserved", TSR_PLAN_QUANTITY_BYTES, 0);
    p->usable = m.usable;
    p->bandwidth = quantity(r, h.bandwidth, "peak", TSR_PLAN_QUANTITY_RATE, 0);
    p->host_bandwidth = quantity(r, h.host, "peak", TSR_PLAN_QUANTITY_RATE, 0);
    p->memory_bytes = (uint64_t)fmin(total, 0x1p60);
    p->reserved_bytes = (uint64_t)fmin(reserved, 0x1p60);
    p->paper_bytes =
        (uint64_t)fmin(quantity(r, h.memory, "paper", TSR_PLAN_QUANTITY_BYTES, 0), 0x1p60);
    p->overhead_ms[TSR_PLAN_PREFILL] =
        quantity(r, h.overhead, "prefill", TSR_PLAN_QUANTITY_TIME, 0);
    p->overhead_ms[TSR_PLAN_DECODE] = quantity(r, h.overhead, "decode", TSR_PLAN_QUANTITY_TIME, 0);
    if (tsr_config_diag_errors(r->d) == r->before && (!(total > 0) || !(p->bandwidth > 0)))
        tsr_config_diag_error(r->d, &root->mark, NULL,
                              "the memory and the bandwidth of a device must be more than 0");
    if (tsr_config_diag_errors(r->d) == r->before && h.host && !(p->host_bandwidth > 0))
        tsr_config_diag_error(r->d, &h.host->mark, NULL, "'peak' of 'host' must be more than 0");
    p->name = copy(r, h.name);
    p->backend = h.backend && *h.backend ? copy(r, h.backend) : NULL;
    p->measured_on = h.measured_on ? h.measured_on : "";
    p->source_memory = copy(r, m.source);
    p->source_bandwidth = copy(r, b.source);
    read_knots(r, h.knots);
    tsr_plan_profile_each(r, h.kernels, "kernels", one_kernel);
    tsr_plan_profile_each(r, h.layers, "layers", tsr_plan_profile_layer);
    tsr_plan_profile_each(r, h.ends, "ends", tsr_plan_profile_end);
    tsr_plan_profile_each(r, h.codecs, "codecs", tsr_plan_profile_codec);
    if (tsr_config_diag_errors(r->d) == r->before && p->n_kernels + p->n_points == 0)
        tsr_config_diag_error(r->d, &root->mark, "list 'kernels' with their roofline, or 'layers'",
                              "this device runs nothing");
    const struct tsr_config_node *on = tsr_config_node_get(root, "measured_on");
    if (tsr_config_diag_errors(r->d) == r->before && on && p->n_points + p->n_ends == 0)
        tsr_config_diag_error(r->d, &on->mark, "leave it out of a roofline",
                              "'measured_on' is of measured layers, and there are none");
    else if (on && strlen(p->measured_on) >= TSR_PLAN_KERNELS_TEXT)
        tsr_config_diag_error(r->d, &on->mark, NULL, "'measured_on' has more than %d characters",
                              TSR_PLAN_KERNELS_TEXT - 1);
}

/* Takes doc. */
static tsr_status make(struct tsr_plan_profile **out, struct tsr_config_doc *doc,
                       struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_plan_profile_reading r = { .p = tsr_new(1, sizeof *r.p),
                                          .d = d,
                                          .before = tsr_config_diag_errors(d) };
    if (!r.p) {
        tsr_config_doc_destroy(doc);
        return tsr_fail_nomem(err, sizeof *r.p, "a device profile");
    }
    r.p->doc = doc;
    read_head(&r, tsr_config_doc_root(doc));
    r.p->path = copy(&r, tsr_config_doc_path(doc));
    tsr_status st =
        r.nomem ? tsr_fail_nomem(err, r.cap_points * sizeof *r.p->points, "a device profile")
                : TSR_OK;
    if (st == TSR_OK && tsr_config_diag_errors(d) == r.before)
        st = tsr_plan_fits_create(&r.p->fits, r.p, err);
    if (st != TSR_OK || tsr_config_diag_errors(d) != r.before) {
        tsr_plan_profile_destroy(r.p);
        return st;
    }
    *out = r.p;
    return TSR_OK;
}

tsr_status tsr_plan_profile_parse(struct tsr_plan_profile **p, const char *name, const char *text,
                                  uint64_t len, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_config_doc *doc = NULL;
    *p = NULL;
    tsr_status st = tsr_config_doc_parse(&doc, name, text, len, d, err);
    if (st == TSR_OK)
        return make(p, doc, d, err);
    return st == TSR_E_INPUT && tsr_config_diag_errors(d) ? TSR_OK : st;
}

tsr_status tsr_plan_profile_load(struct tsr_plan_profile **p, const char *path, struct tsr_diag *d,
                                 struct tsr_err *err)
{
    struct tsr_config_doc *doc = NULL;
    uint64_t               before = tsr_config_diag_errors(d);
    *p = NULL;
    tsr_status st = tsr_config_doc_load(&doc, path, d, err);
    if (st == TSR_OK)
        return make(p, doc, d, err);
    return st == TSR_E_INPUT && tsr_config_diag_errors(d) != before ? TSR_OK : st;
}

void tsr_plan_profile_destroy(struct tsr_plan_profile *p)
{
    if (!p)
        return;
    tsr_plan_fits_destroy(p->fits);
    free(p->name);
    free(p->path);
    free(p->backend);
    free(p->source_memory);
    free(p->source_bandwidth);
    free(p->kernels);
    free(p->points);
    free(p->ends);
    free(p->codecs);
    tsr_config_doc_destroy(p->doc);
    free(p);
}
