/* The configuration of a GPTQ checkpoint: bits, groups, version of zero points, rules by module. */
#include "checkpoint/import/gptq.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define UNSET INT64_MIN

/* One of several names for the same key. */
static tsr_status get_int(struct tsr_import *im, const json_t *j, const char *const *keys,
                          bool required, int64_t lo, int64_t hi, int64_t *v)
{
    const char *key = keys[0];
    for (unsigned i = 0; keys[i]; i++)
        if (json_object_get(j, keys[i]))
            key = keys[i];
    return tsr_json_int(j, im->where, key, required, lo, hi, v, im->err);
}

static tsr_status get_bits(struct tsr_import *im, const json_t *j, bool required, int64_t *bits)
{
    static const char *const keys[] = { "bits", "w_bit", "wbits", NULL };
    TSR_TRY(get_int(im, j, keys, required, 2, 8, bits));
    if (*bits == UNSET || *bits == 2 || *bits == 3 || *bits == 4 || *bits == 8)
        return TSR_OK;
    return tsr_fail(im->err, TSR_E_INPUT,
                    "%s: %lld bits; GPTQ checkpoints of 2, 3, 4 and 8 bits can be read", im->where,
                    (long long)*bits);
}

static tsr_status get_group(struct tsr_import *im, const json_t *j, int64_t *group)
{
    static const char *const keys[] = { "group_size", "q_group_size", NULL };
    TSR_TRY(get_int(im, j, keys, false, -1, INT64_C(1) << 40, group));
    if (*group == 0)
        return tsr_fail(im->err, TSR_E_INPUT, "%s: \"group_size\" is 0; -1 means the whole row",
                        im->where);
    return TSR_OK;
}

static tsr_status get_format(struct tsr_import *im, struct tsr_import_gptq *g)
{
    const char *format = NULL, *pack = NULL;
    TSR_TRY(tsr_json_str(im->config, im->where, "format", false, &format, im->err));
    TSR_TRY(tsr_json_str(im->config, im->where, "checkpoint_format", false, &format, im->err));
    TSR_TRY(tsr_json_str(im->config, im->where, "pack_dtype", false, &pack, im->err));
    if (pack && strcmp(pack, "int32") != 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"pack_dtype\": \"%.40s\"; codes packed into int32 can be read",
                        im->where, pack);
    if (format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"checkpoint_format\": \"%.40s\" cannot be read; \"gptq\" and "
                        "\"gptq_v2\" can",
                        im->where, format);
    g->v2 = format && strcmp(format, "gptq_v2") == 0;
    return TSR_OK;
}

/* "gptqmodel:7.7.0", or a list of such. */
static bool made_by(const json_t *config, const char *who)
{
    const json_t *q = json_object_get(json_object_get(config, "meta"), "quantizer");
    size_t        n = json_is_array(q) ? json_array_size(q) : 1;
    for (size_t i = 0; i < n; i++) {
        const char *s = tsr_json_word(json_is_array(q) ? json_array_get(q, i) : q);
        if (s && strncmp(s, who, strlen(who)) == 0)
            return true;
    }
    return false;
}

static tsr_status read_rule(struct tsr_import *im, struct tsr_import_gptq_rule *o,
                            const char *pattern, const json_t *v)
{
    o->bits = o->group = UNSET;
    o->skip = strncmp(pattern, "-:", 2) == 0;
    if (o->skip || strncmp(pattern, "+:", 2) == 0)
        pattern += 2;
    TSR_TRY(tsr_import_rule_init(im, &o->rule, pattern, true));
    if (!json_is_object(v))
        return tsr_fail(im->err, TSR_E_INPUT, "%s: \"dynamic\": \"%.100s\" is not an object",
                        im->where, pattern);
    TSR_TRY(get_bits(im, v, false, &o->bits));
    TSR_TRY(get_group(im, v, &o->group));
    o->has_sym = json_is_boolean(json_object_get(v, "sym"));
    return tsr_json_bool(v, im->where, "sym", false, &o->sym, im->err);
}

static tsr_status read_rules(struct tsr_import *im, struct tsr_import_gptq *g)
{
    json_t       *dynamic = NULL, *v;
    const char   *pattern;
    const json_t *d = json_object_get(im->config, "dynamic");
    if (!d || json_is_null(d) || json_is_false(d))
        return TSR_OK;
    TSR_TRY(tsr_json_sub(im->config, im->where, "dynamic", true, JSON_OBJECT, &dynamic, im->err));
    g->rules = tsr_new(json_object_size(dynamic), sizeof *g->rules);
    if (!g->rules)
        return tsr_fail_nomem(im->err, json_object_size(dynamic) * sizeof *g->rules, "rules");
    json_object_foreach (dynamic, pattern, v)
        TSR_TRY(read_rule(im, &g->rules[g->n_rules++], pattern, v));
    return TSR_OK;
}

tsr_status tsr_import_gptq_open(struct tsr_import *im)
{
    struct tsr_import_gptq *g = im->own = tsr_new(1, sizeof *g);
    if (!g)
        return tsr_fail_nomem(im->err, sizeof *g, im->where);
    g->scheme = (struct tsr_import_gptq_scheme){ .bits = 0, .group = -1, .sym = true };
    TSR_TRY(get_bits(im, im->config, true, &g->scheme.bits));
    TSR_TRY(get_group(im, im->config, &g->scheme.group));
    TSR_TRY(tsr_json_bool(im->config, im->where, "sym", false, &g->scheme.sym, im->err));
    TSR_TRY(get_format(im, g));
    g->by_word = made_by(im->config, "gptqmodel");
    if (!g->scheme.sym && !json_object_get(im->config, "checkpoint_format") &&
        !json_object_get(im->config, "format") && !g->by_word)
        tsr_logf(TSR_LOG_WARN,
                 "%s: does not say how zero points are stored; they are taken for v1 (one less "
                 "than they are), as all early writers have them",
                 im->where);
    return read_rules(im, g);
}

void tsr_import_gptq_close(void *own)
{
    struct tsr_import_gptq *g = own;
    for (uint64_t i = 0; i < g->n_rules; i++)
        tsr_import_rule_free(&g->rules[i].rule);
    free(g->rules);
    free(g);
}

/* What holds for a module: the first rule that matches it. */
tsr_status tsr_import_gptq_scheme_of(struct tsr_import *im, const char *name,
                                     struct tsr_import_gptq_scheme *s)
{
    const struct tsr_import_gptq *g = im->own;
    *s = g->scheme;
    for (uint64_t i = 0; i < g->n_rules; i++) {
        const struct tsr_import_gptq_rule *o = &g->rules[i];
        bool                               yes;
        TSR_TRY(tsr_import_rule_match(im, &o->rule, name, &yes));
        if (!yes)
            continue;
        if (o->skip)
            return tsr_fail(im->err, TSR_E_INPUT,
                            "%s: \"%.200s\" is left out by \"dynamic\", but it is stored quantized",
                            im->where, name);
        s->bits = o->bits == UNSET ? s->bits : o->bits;
        s->group = o->group == UNSET ? s->group : o->group;
        s->sym = o->has_sym ? o->sym : s->sym;
        return TSR_OK;
    }
    return TSR_OK;
}
