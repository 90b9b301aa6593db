/* Instances: JSON to struct tsr_instance (docs/formats/instance.md). */
#include "plan/instance/instance_internal.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE   (UINT64_C(256) << 20)
#define MAX_DEPTH  16
#define MAX_LAYERS 100000
#define MAX_LINKS  64

/* ---- parts of the file -------------------------------------------------- */

/* Refuses the keys in a file of revision 1, which has no meaning for them. */
static tsr_status only_2(struct tsr_instance_reading *r, const json_t *o, const char *where,
                         const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n && r->revision == 1; i++)
        if (json_object_get(o, keys[i]))
            return tsr_fail(r->err, TSR_E_INPUT,
                            "%s: \"%s\" needs \"format\": \"tessera.instance/2\"", where, keys[i]);
    return TSR_OK;
}

static tsr_status read_head(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    const char                 *format = NULL, *objective = NULL, *name = "";
    int64_t                     layers = 0, batch = 0, tokens = 0;
    double                      theta = 0, max_omega = -1, max_first = 0;
    bool                        unused = true;
    if (!json_is_object(o))
        return tsr_fail(r->err, TSR_E_INPUT, "%s: is not a JSON object", r->name);
    TSR_TRY(tsr_json_str(o, r->name, "format", true, &format, r->err));
    if (strcmp(format, "tessera.instance/1") != 0 && strcmp(format, "tessera.instance/2") != 0)
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: \"format\" is \"%.60s\", not \"tessera.instance/1\" or "
                        "\"tessera.instance/2\"",
                        r->name, format);
    r->revision = format[strlen(format) - 1] == '1' ? 1 : 2;
    static const char *const new_keys[] = { "pools", "kind_omega", "links", "link_omega",
                                            "max_first_ms" };
    TSR_TRY(only_2(r, o, r->name, new_keys, sizeof new_keys / sizeof *new_keys));
    TSR_TRY(tsr_json_str(o, r->name, "name", false, &name, r->err));
    TSR_TRY(tsr_json_str(o, r->name, "objective", true, &objective, r->err));
    if (strcmp(objective, "steady") == 0)
        in->objective = TSR_OBJECTIVE_STEADY;
    else if (strcmp(objective, "paper") == 0)
        in->objective = TSR_OBJECTIVE_PAPER;
    else
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: \"objective\" is \"%.60s\", not \"steady\" or \"paper\"", r->name,
                        objective);
    TSR_TRY(tsr_json_int(o, r->name, "layers", true, 1, MAX_LAYERS, &layers, r->err));
    TSR_TRY(tsr_json_int(o, r->name, "batch", true, 1, TSR_INSTANCE_MAX_INT, &batch, r->err));
    TSR_TRY(tsr_json_int(o, r->name, "tokens", true, 1, TSR_INSTANCE_MAX_INT, &tokens, r->err));
    TSR_TRY(tsr_json_real(o, r->name, "theta", false, 0, TSR_INSTANCE_MAX_OMEGA, &theta, r->err));
    TSR_TRY(tsr_json_real(o, r->name, "max_omega", false, 0, 1e300, &max_omega, r->err));
    TSR_TRY(tsr_json_real(o, r->name, "max_first_ms", false, 0, 1e300, &max_first, r->err));
    TSR_TRY(tsr_json_bool(o, r->name, "allow_unused", false, &unused, r->err));
    in->layers = (uint64_t)layers;
    in->batch = (uint64_t)batch;
    in->tokens = (uint64_t)tokens;
    in->theta = theta;
    in->max_omega = max_omega;
    in->max_first_ms = max_first;
    in->allow_unused = unused;
    int64_t embed = 0, head = 0;
    TSR_TRY(
        tsr_json_int(o, r->name, "embed_bytes", false, 0, TSR_INSTANCE_MAX_INT, &embed, r->err));
    TSR_TRY(tsr_json_int(o, r->name, "head_bytes", false, 0, TSR_INSTANCE_MAX_INT, &head, r->err));
    in->embed_bytes = (uint64_t)embed;
    in->head_bytes = (uint64_t)head;
    r->inst->name = tsr_strdup(name);
    return r->inst->name ? TSR_OK : tsr_fail_nomem(r->err, strlen(name), r->name);
}

static tsr_status read_layers(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    json_t                     *bits = NULL, *bytes = NULL, *classes = NULL;
    tsr_status                  st;
    TSR_TRY(tsr_json_sub(o, r->name, "bits", true, JSON_ARRAY, &bits, r->err));
    TSR_TRY(tsr_json_sub(o, r->name, "layer_bytes", true, JSON_ARRAY, &bytes, r->err));
    TSR_TRY(tsr_json_sub(o, r->name, "layer_class", false, JSON_ARRAY, &classes, r->err));
    in->bits = json_array_size(bits);
    in->classes = json_array_size(bytes);
    if (in->bits == 0 || in->classes == 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: %s is empty", r->name,
                        in->bits == 0 ? "bits" : "layer_bytes");
    const char **names = tsr_instance_take(r, in->bits, sizeof *names, &st);
    if (!names)
        return st;
    in->bit_names = names;
    for (uint64_t q = 0; q < in->bits; q++) {
        const char *s = tsr_json_word(json_array_get(bits, q));
        if (!s)
            return tsr_fail(r->err, TSR_E_INPUT, "%s: bits[%llu] is not a string", r->name,
                            (unsigned long long)q);
        char *copy = tsr_instance_take(r, strlen(s) + 1, 1, &st);
        if (!copy)
            return st;
        memcpy(copy, s, strlen(s) + 1);
        names[q] = copy;
    }
    const void    *table = NULL;
    const uint64_t cq[2] = { in->classes, in->bits }, lq[2] = { in->layers, in->bits };
    TSR_TRY(tsr_instance_read_table(r, o, "", "layer_bytes", true, TSR_INSTANCE_INTEGER, 2, cq,
                                    &table));
    in->layer_bytes = table;
    if (json_object_get(o, "host_bytes")) {
        TSR_TRY(tsr_instance_read_table(r, o, "", "host_bytes", true, TSR_INSTANCE_INTEGER, 2, cq,
                                        &table));
        in->host_bytes = table;
    }
    TSR_TRY(tsr_instance_read_table(r, o, "", "omega", true, TSR_INSTANCE_OMEGA, 2, lq, &table));
    in->omega = table;
    struct tsr_instance_place p = { "layer_class", 0, { 0 } };
    if (classes)
        TSR_TRY(tsr_instance_need_array(r, classes, in->layers, &p));
    uint32_t *cls = tsr_instance_take(r, in->layers, sizeof *cls, &st);
    if (!cls)
        return st;
    in->layer_class = cls;
    for (p.depth = 1; classes && p.at[0] < in->layers; p.at[0]++) {
        uint64_t c;
        TSR_TRY(tsr_instance_read_int(r, json_array_get(classes, p.at[0]), (int64_t)in->classes - 1,
                                      &c, &p));
        cls[p.at[0]] = (uint32_t)c;
    }
    return TSR_OK;
}

/* Codecs of links by their names, which say how many there are, and what kinds and codecs add to omega. */
static tsr_status read_links(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    json_t                     *links = NULL;
    const void                 *table;
    const uint64_t              kl[2] = { in->n_kinds, in->layers };
    TSR_TRY(tsr_json_sub(o, r->name, "links", false, JSON_ARRAY, &links, r->err));
    in->n_links = json_array_size(links);
    if (links && (in->n_links == 0 || in->n_links > MAX_LINKS))
        return tsr_fail(r->err, TSR_E_INPUT, "%s: links is a list of %llu codecs, not of 1 to %d",
                        r->name, (unsigned long long)in->n_links, MAX_LINKS);
    for (uint64_t v = 0; v < in->n_links; v++)
        if (!tsr_json_word(json_array_get(links, v)))
            return tsr_fail(r->err, TSR_E_INPUT, "%s: links[%llu] is not a string", r->name,
                            (unsigned long long)v);
    if (json_object_get(o, "kind_omega")) {
        TSR_TRY(tsr_instance_read_table(r, o, "", "kind_omega", true, TSR_INSTANCE_OMEGA, 2, kl,
                                        &table));
        in->kind_omega = table;
    }
    if (json_object_get(o, "link_omega")) {
        const uint64_t vl[2] = { in->n_links ? in->n_links : 1, in->layers };
        TSR_TRY(tsr_instance_read_table(r, o, "", "link_omega", true, TSR_INSTANCE_OMEGA, 2, vl,
                                        &table));
        in->link_omega = table;
    }
    return TSR_OK;
}

/* What an option brings for the ends: bytes and omega. */
static tsr_status read_ends(struct tsr_instance_reading *r, const json_t *j, const char *where,
                            struct tsr_solver_option *o)
{
    static const char *const keys[] = { "embed_bytes", "head_bytes", "omega" };
    int64_t                  embed = 0, head = 0;
    TSR_TRY(only_2(r, j, where, keys, sizeof keys / sizeof *keys));
    TSR_TRY(tsr_json_int(j, where, keys[0], false, 0, TSR_INSTANCE_MAX_INT, &embed, r->err));
    TSR_TRY(tsr_json_int(j, where, keys[1], false, 0, TSR_INSTANCE_MAX_INT, &head, r->err));
    TSR_TRY(tsr_json_real(j, where, keys[2], false, 0, TSR_INSTANCE_MAX_OMEGA, &o->omega, r->err));
    o->embed_bytes = (uint64_t)embed;
    o->head_bytes = (uint64_t)head;
    return TSR_OK;
}

/* prefill_jobs: at least one for each prefill micro-batch. */
static tsr_status read_jobs(struct tsr_instance_reading *r, const json_t *j, const char *where,
                            struct tsr_solver_option *o)
{
    const json_t *v = json_object_get(j, "prefill_jobs");
    double        least = ceil((double)r->inst->in.batch / (double)o->prefill_mb),
           n = json_number_value(v);
    if (!v)
        return TSR_OK;
    if (!json_is_number(v) || !(n >= least && n <= (double)TSR_INSTANCE_MAX_INT))
        return tsr_fail(r->err, TSR_E_INPUT,
                        "%s: prefill_jobs is not a number of at least %.0f, the prefill "
                        "micro-batches",
                        where, least);
    o->prefill_jobs = n;
    return TSR_OK;
}

static tsr_status read_option(struct tsr_instance_reading *r, const json_t *j, uint64_t i,
                              struct tsr_solver_option *o)
{
    const struct tsr_solver_instance *in = &r->inst->in;
    const uint64_t                    kcq[3] = { in->n_kinds, in->classes, in->bits };
    const uint64_t                    vkk[3] = { in->n_links, in->n_kinds, in->n_kinds };
    const uint64_t                   *kk = vkk + 1, *comm = in->n_links ? vkk : kk;
    unsigned                          depth = in->n_links ? 3 : 2;
    char                              prefix[40], where[512];
    int64_t                           pre = 0, dec = 0;
    (void)snprintf(prefix, sizeof prefix, "options[%llu].", (unsigned long long)i);
    (void)snprintf(where, sizeof where, "%.440s: options[%llu]", r->name, (unsigned long long)i);
    if (!json_is_object(j))
        return tsr_fail(r->err, TSR_E_INPUT, "%s is not an object", where);
    TSR_TRY(tsr_json_int(j, where, "decode_mb", true, 1, (int64_t)in->batch, &dec, r->err));
    TSR_TRY(tsr_json_int(j, where, "prefill_mb", true, 1, dec, &pre, r->err));
    o->struct_size = sizeof *o;
    o->prefill_mb = (uint64_t)pre;
    o->decode_mb = (uint64_t)dec;
    TSR_TRY(read_ends(r, j, where, o));
    const struct {
        const char             *key;
        bool                    required;
        enum tsr_instance_entry type;
        unsigned                depth;
        const uint64_t         *dims;
        const double          **to;
    } tables[] = {
        { "pre_ms", true, TSR_INSTANCE_MS_OR_NULL, 3, kcq, &o->pre_ms },
        { "dec_ms", true, TSR_INSTANCE_MS_OR_NULL, 3, kcq, &o->dec_ms },
        { "embed_pre_ms", false, TSR_INSTANCE_MS, 1, kk, &o->embed_pre_ms },
        { "embed_dec_ms", false, TSR_INSTANCE_MS, 1, kk, &o->embed_dec_ms },
        { "head_pre_ms", false, TSR_INSTANCE_MS, 1, kk, &o->head_pre_ms },
        { "head_dec_ms", false, TSR_INSTANCE_MS, 1, kk, &o->head_dec_ms },
        { "comm_pre_ms", false, TSR_INSTANCE_MS, depth, comm, &o->comm_pre_ms },
        { "comm_dec_ms", false, TSR_INSTANCE_MS, depth, comm, &o->comm_dec_ms },
    };
    const void *table;
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        TSR_TRY(tsr_instance_read_table(r, j, prefix, tables[t].key, tables[t].required,
                                        tables[t].type, tables[t].depth, tables[t].dims, &table));
        *tables[t].to = table;
    }
    TSR_TRY(tsr_instance_read_table(r, j, prefix, "workspace_bytes", false, TSR_INSTANCE_INTEGER, 1,
                                    kk, &table));
    o->workspace_bytes = table;
    return read_jobs(r, j, where, o);
}

static tsr_status read_options(struct tsr_instance_reading *r, const json_t *o)
{
    struct tsr_solver_instance *in = &r->inst->in;
    json_t                     *options = NULL;
    tsr_status                  st;
    TSR_TRY(tsr_json_sub(o, r->name, "options", true, JSON_ARRAY, &options, r->err));
    in->n_options = json_array_size(options);
    if (in->n_options == 0)
        return tsr_fail(r->err, TSR_E_INPUT, "%s: options is empty", r->name);
    const struct tsr_solver_option **list =
        tsr_instance_take(r, in->n_options, sizeof(void *), &st);
    if (!list)
        return st;
    in->options = list;
    for (uint64_t i = 0; i < in->n_options; i++) {
        struct tsr_solver_option *opt = tsr_instance_take(r, 1, sizeof *opt, &st);
        if (!opt)
            return st;
        TSR_TRY(read_option(r, json_array_get(options, i), i, opt));
        list[i] = opt;
    }
    return TSR_OK;
}

/* ---- whole --------------------------------------------------------------- */

static tsr_status from_json(struct tsr_instance **out, const char *name, const json_t *o,
                            struct tsr_err *err)
{
    struct tsr_instance *inst = tsr_new(1, sizeof *inst);
    if (!inst)
        return tsr_fail_nomem(err, sizeof *inst, name);
    struct tsr_instance_reading r = { inst, name, err, 0 };
    inst->in.struct_size = sizeof inst->in;
    inst->in.gap = 1e-4;
    inst->in.cutoff = INFINITY;
    tsr_status st = read_head(&r, o);
    if (st == TSR_OK)
        st = read_layers(&r, o);
    if (st == TSR_OK)
        st = tsr_instance_read_devices(&r, o);
    if (st == TSR_OK)
        st = read_links(&r, o);
    if (st == TSR_OK)
        st = read_options(&r, o);
    if (st != TSR_OK) {
        tsr_instance_destroy(inst);
        return st;
    }
    inst->features = tsr_instance_features(&inst->in);
    *out = inst;
    return TSR_OK;
}

tsr_status tsr_instance_parse(struct tsr_instance **inst, const char *name, const char *text,
                              uint64_t len, struct tsr_err *err)
{
    json_t *o = NULL;
    TSR_TRY(tsr_json_parse(&o, name, text, len, MAX_DEPTH, err));
    tsr_status st = from_json(inst, name, o, err);
    json_decref(o);
    return st;
}

tsr_status tsr_instance_load(struct tsr_instance **inst, const char *path, struct tsr_err *err)
{
    char    *text;
    uint64_t len;
    TSR_TRY(tsr_file_slurp(path, MAX_FILE, &text, &len, err));
    tsr_status st = tsr_instance_parse(inst, path, text, len, err);
    free(text);
    return st;
}

void tsr_instance_destroy(struct tsr_instance *inst)
{
    if (!inst)
        return;
    for (struct tsr_instance_block *b = inst->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(inst->name);
    free(inst);
}
