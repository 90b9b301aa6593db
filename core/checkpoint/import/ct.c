/* compressed-tensors (llm-compressor, vLLM): which config group a linear belongs to. */
#include "checkpoint/import/ct.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct target {
    struct tsr_import_rule rule;
    bool                   is_class; /* "Linear" */
    uint64_t               group;
};

struct ct {
    struct tsr_import_ct_scheme *groups;
    uint64_t                     n_groups;
    struct target               *targets;
    uint64_t                     n_targets;
    struct tsr_import_rule      *ignore;
    uint64_t                     n_ignore;
};

static tsr_status check_format(struct tsr_import *im, const json_t *j)
{
    static const char *const known[] = { "pack-quantized",       "int-quantized",
                                         "float-quantized",      "naive-quantized",
                                         "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                                         "mxfp8-quantized",      "mixed-precision" };
    const char              *format = NULL;
    TSR_TRY(tsr_json_str(j, im->where, "format", false, &format, im->err));
    for (size_t i = 0; format && i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i]) == 0)
            format = NULL;
    if (!format)
        return TSR_OK;
    return tsr_fail(im->err, TSR_E_INPUT,
                    "%s: \"format\": \"%.60s\" cannot be read; pack-, int-, float- and "
                    "naive-quantized, nvfp4- and mxfp4-pack-quantized, mxfp8-quantized and "
                    "mixed-precision can",
                    im->where, format);
}

static tsr_status check_status(struct tsr_import *im)
{
    const char *status = NULL, *sparsity = NULL;
    TSR_TRY(tsr_json_str(im->config, im->where, "quantization_status", false, &status, im->err));
    if (status && strcmp(status, "compressed") != 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"quantization_status\" is \"%.40s\"; a checkpoint that is "
                        "\"compressed\" can be read",
                        im->where, status);
    const json_t *s = json_object_get(im->config, "sparsity_config");
    if (json_is_object(s))
        TSR_TRY(tsr_json_str(s, im->where, "format", false, &sparsity, im->err));
    if (sparsity && strcmp(sparsity, "dense") != 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"sparsity_config\": \"%.40s\": sparse weights cannot be read",
                        im->where, sparsity);
    if (json_object_size(json_object_get(im->config, "transform_config")) > 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"transform_config\": weights that are transformed cannot be read",
                        im->where);
    return check_format(im, im->config);
}

static tsr_status read_block(struct tsr_import *im, const json_t *w, struct tsr_import_ct_scheme *s)
{
    json_t *b = NULL;
    TSR_TRY(tsr_json_sub(w, im->where, "block_structure", true, JSON_ARRAY, &b, im->err));
    for (size_t i = 0; i < 2; i++) {
        json_int_t v = json_integer_value(json_array_get(b, i));
        if (json_array_size(b) != 2 || v < 1 || v > INT64_C(1) << 40)
            return tsr_fail(im->err, TSR_E_INPUT, "%s: \"block_structure\" is not [rows, columns]",
                            im->where);
        s->block[i] = (uint64_t)v;
    }
    return TSR_OK;
}

static tsr_status read_strategy(struct tsr_import *im, const json_t *w,
                                struct tsr_import_ct_scheme *s)
{
    static const struct {
        const char          *name;
        enum tsr_ct_strategy strategy;
    } all[] = { { "tensor", TSR_IMPORT_CT_TENSOR },
                { "channel", TSR_IMPORT_CT_CHANNEL },
                { "group", TSR_IMPORT_CT_GROUP },
                { "tensor_group", TSR_IMPORT_CT_GROUP },
                { "block", TSR_IMPORT_CT_BLOCK } };
    int64_t     group = -1;
    const char *name = NULL;
    TSR_TRY(tsr_json_int(w, im->where, "group_size", false, -1, INT64_C(1) << 40, &group, im->err));
    TSR_TRY(tsr_json_str(w, im->where, "strategy", false, &name, im->err));
    if (!name)
        name = group > 0 ? "group"
               : group < 0 && json_object_get(w, "group_size") &&
                       json_is_integer(json_object_get(w, "group_size"))
                   ? "channel"
                   : "tensor";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i].name) != 0)
            continue;
        s->strategy = all[i].strategy;
        s->group = group > 0 ? (uint64_t)group : 0;
        if (s->strategy == TSR_IMPORT_CT_GROUP && group <= 0)
            return tsr_fail(im->err, TSR_E_INPUT,
                            "%s: strategy \"%s\" needs a \"group_size\" of 1 or more", im->where,
                            name);
        return s->strategy == TSR_IMPORT_CT_BLOCK ? read_block(im, w, s) : TSR_OK;
    }
    return tsr_fail(im->err, TSR_E_INPUT, "%s: \"strategy\": \"%.40s\" of weights cannot be read",
                    im->where, name);
}

static tsr_status read_weights(struct tsr_import *im, const json_t *w,
                               struct tsr_import_ct_scheme *s)
{
    int64_t       bits = 8;
    const char   *type = "int";
    const json_t *order = json_object_get(w, "actorder");
    const char   *how = tsr_json_word(order);
    s->symmetric = true;
    TSR_TRY(tsr_json_int(w, im->where, "num_bits", true, 2, 8, &bits, im->err));
    TSR_TRY(tsr_json_str(w, im->where, "type", false, &type, im->err));
    TSR_TRY(tsr_json_bool(w, im->where, "symmetric", false, &s->symmetric, im->err));
    s->bits = (uint32_t)bits;
    s->is_float = strcmp(type, "float") == 0;
    s->by_order =
        json_is_true(order) || (how && (strcmp(how, "group") == 0 || strcmp(how, "dynamic") == 0));
    if (s->is_float ? bits != 4 && bits != 8 : strcmp(type, "int") != 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: weights of type \"%.20s\" with %lld bits cannot be read; int of 2 to "
                        "8 and float of 4 and 8 can",
                        im->where, type, (long long)bits);
    return read_strategy(im, w, s);
}

static tsr_status add_target(struct tsr_import *im, struct ct *c, const json_t *t)
{
    const char *text = tsr_json_word(t);
    if (!text)
        return tsr_fail(im->err, TSR_E_INPUT, "%s: \"targets\" is not a list of strings",
                        im->where);
    struct target *v = tsr_renew(c->targets, c->n_targets + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(im->err, (c->n_targets + 1) * sizeof *v, "targets");
    c->targets = v;
    v = &v[c->n_targets++];
    *v = (struct target){ .is_class = strcmp(text, "Linear") == 0, .group = c->n_groups };
    bool regex = strncmp(text, "re:", 3) == 0;
    return tsr_import_rule_init(im, &v->rule, regex ? text + 3 : text, regex);
}

static tsr_status read_group(struct tsr_import *im, struct ct *c, const json_t *g, const char *key)
{
    json_t *targets = NULL, *weights = NULL;
    if (!json_is_object(g))
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"config_groups\": \"%.60s\" is not an object; a preset's name alone "
                        "cannot be read",
                        im->where, key);
    TSR_TRY(check_format(im, g));
    TSR_TRY(tsr_json_sub(g, im->where, "weights", false, JSON_OBJECT, &weights, im->err));
    if (!weights)
        return TSR_OK; /* activations alone: nothing is stored otherwise */
    TSR_TRY(tsr_json_sub(g, im->where, "targets", true, JSON_ARRAY, &targets, im->err));
    for (size_t i = 0; i < json_array_size(targets); i++)
        TSR_TRY(add_target(im, c, json_array_get(targets, i)));
    TSR_TRY(read_weights(im, weights, &c->groups[c->n_groups]));
    c->n_groups++;
    return TSR_OK;
}

static tsr_status read_ignore(struct tsr_import *im, struct ct *c)
{
    json_t *list = NULL;
    TSR_TRY(tsr_json_sub(im->config, im->where, "ignore", false, JSON_ARRAY, &list, im->err));
    size_t n = json_array_size(list);
    c->ignore = tsr_new(n, sizeof *c->ignore);
    if (!c->ignore)
        return tsr_fail_nomem(im->err, n * sizeof *c->ignore, "\"ignore\"");
    for (size_t i = 0; i < n; i++) {
        const char *text = tsr_json_word(json_array_get(list, i));
        if (!text)
            return tsr_fail(im->err, TSR_E_INPUT, "%s: \"ignore\" is not a list of strings",
                            im->where);
        bool regex = strncmp(text, "re:", 3) == 0;
        c->n_ignore++;
        TSR_TRY(tsr_import_rule_init(im, &c->ignore[i], regex ? text + 3 : text, regex));
    }
    return TSR_OK;
}

static tsr_status ct_open(struct tsr_import *im)
{
    struct ct  *c = im->own = tsr_new(1, sizeof *c);
    json_t     *groups = NULL, *g;
    const char *key;
    if (!c)
        return tsr_fail_nomem(im->err, sizeof *c, im->where);
    TSR_TRY(check_status(im));
    TSR_TRY(
        tsr_json_sub(im->config, im->where, "config_groups", true, JSON_OBJECT, &groups, im->err));
    c->groups = tsr_new(json_object_size(groups), sizeof *c->groups);
    if (!c->groups)
        return tsr_fail_nomem(im->err, json_object_size(groups) * sizeof *c->groups, "groups");
    json_object_foreach (groups, key, g)
        TSR_TRY(read_group(im, c, g, key));
    return read_ignore(im, c);
}

static void ct_close(void *own)
{
    struct ct *c = own;
    for (uint64_t i = 0; i < c->n_targets; i++)
        tsr_import_rule_free(&c->targets[i].rule);
    for (uint64_t i = 0; i < c->n_ignore; i++)
        tsr_import_rule_free(&c->ignore[i]);
    free(c->targets);
    free(c->ignore);
    free(c->groups);
    free(c);
}

/* Exact names go before patterns, patterns (in the order of their text) before classes, as in the
 * package's match_targets(). */
static int rank_of(const struct target *t)
{
    return t->is_class ? 2 : t->rule.code ? 1 : 0;
}

static bool goes_before(const struct target *a, const struct target *b)
{
    return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b)
                                    : strcmp(a->rule.text, b->rule.text) < 0;
}

static tsr_status find_scheme(struct tsr_import *im, const char *name,
                              const struct tsr_import_ct_scheme **out)
{
    const struct ct     *c = im->own;
    const struct target *best = NULL;
    bool                 yes;
    for (uint64_t i = 0; i < c->n_targets; i++) {
        const struct target *t = &c->targets[i];
        yes = t->is_class;
        if (!yes)
            TSR_TRY(tsr_import_rule_match(im, &t->rule, name, &yes));
        if (yes && (!best || goes_before(t, best)))
            best = t;
    }
    for (uint64_t i = 0; best && i < c->n_ignore; i++) {
        TSR_TRY(tsr_import_rule_match(im, &c->ignore[i], name, &yes));
        if (yes)
            return tsr_fail(im->err, TSR_E_INPUT,
                            "%s: \"%.200s\" is to be ignored, but it is stored quantized",
                            im->where, name);
    }
    if (!best)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\" is stored quantized, but no config group has it as a "
                        "target",
                        im->where, name);
    *out = &c->groups[best->group];
    return TSR_OK;
}

void tsr_import_ct_leave_activations(struct tsr_import *im, const char *name)
{
    static const char *const own[] = { "input_scale", "input_zero_point", "input_global_scale",
                                       "output_scale", "output_zero_point" };
    static const char *const cache[] = { "k_scale", "v_scale", "q_scale" };
    char                     attn[TSR_BIND_NAME];
    const char              *dot = strrchr(name, '.');
    (void)snprintf(attn, sizeof attn, "%.*s", dot ? (int)(dot - name) : 0, name);
    for (size_t i = 0; i < sizeof own / sizeof *own + sizeof cache / sizeof *cache; i++) {
        size_t                        k = i - sizeof own / sizeof *own;
        struct tsr_checkpoint_stored *e = i < sizeof own / sizeof *own
                                              ? tsr_import_find(im, name, own[i])
                                              : tsr_import_find(im, attn, cache[k]);
        if (!e || e->imported)
            continue;
        tsr_import_take(im, e);
        tsr_import_note(im, "scales of activations or of the KV cache are stored, which are not "
                            "used; the command says how activations run");
    }
}

void tsr_import_ct_free(struct tsr_import_ct_linear *l)
{
    free(l->scales);
    free(l->zeros);
    free(l->bytes_of_scale);
    free(l->order);
    free(l->data);
}

/* A linear that is stored quantized. */
static tsr_status read_linear(struct tsr_import *im, const struct tsr_import_ct_scheme *s,
                              const char *name, uint64_t rows, uint64_t cols,
                              struct tsr_model_packed **out)
{
    struct tsr_import_ct_linear l = { .s = s, .name = name, .rows = rows, .cols = cols };
    tsr_status                  st;
    if (s->is_float)
        st = s->bits == 4 ? tsr_import_ct_fp4(im, &l, out) : tsr_import_ct_fp8(im, &l, out);
    else
        st = tsr_import_ct_int(im, &l, out);
    tsr_import_ct_free(&l);
    return st;
}

static tsr_status ct_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                          struct tsr_model_packed **out)
{
    const struct tsr_import_ct_scheme *s = NULL;
    if (!tsr_import_find(im, name, "weight_packed") && !tsr_import_find(im, name, "weight_scale"))
        return TSR_OK;
    TSR_TRY(find_scheme(im, name, &s));
    tsr_import_ct_leave_activations(im, name);
    return read_linear(im, s, name, rows, cols, out);
}

const struct tsr_importer tsr_importer_ct = {
    .method = "compressed-tensors",
    .summary = "compressed-tensors: int of 2 to 8 bits, FP8, MXFP8, MXFP4, NVFP4, mixed groups",
    .open = ct_open,
    .close = ct_close,
    .read = ct_read,
};
