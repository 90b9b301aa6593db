/* Arms of a comparison's map: the overrides of each, and their errors. */
#include "base/mem.h"
#include "compare/compare.h"
#include "config/doc.h"
#include "plugin/kv_codec.h"

#include <stdlib.h>
#include <string.h>

#define ORIGINAL "original"
#define MAX_NAME 60u
#define HOW                                                                                        \
    "write {quantize: {use: rtn}}, {model: FOLDER}, {plan: FILE}, {rotate: {}}, {kv: int8} or "    \
    "{set: {KEY: VALUE}}"
#define QUANTIZE "quantize"

/* A map of the job's document with one more pair; replaces the value of an existing key. */
static bool put(struct compare *c, struct tsr_config_node *map, const char *key, size_t len,
                const struct tsr_config_mark *mark, const struct tsr_config_node *value)
{
    struct tsr_config_doc  *doc = c->job->doc;
    struct tsr_config_node *k = tsr_config_doc_node(doc, TSR_CONFIG_NODE_SCALAR, mark),
                           *v = tsr_config_doc_copy(doc, value);
    if (k)
        k->text = tsr_config_doc_strndup(doc, key, len);
    return k && k->text && v && tsr_config_doc_put(doc, map, k, v);
}

/* The map at a key of a map; created if absent, NULL if the value is not a map. */
static struct tsr_config_node *below(struct compare *c, struct tsr_config_node *map,
                                     const char *key, size_t len,
                                     const struct tsr_config_mark *mark, bool *nomem)
{
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; i < map->n; i++)
            if (strlen(map->keys[i]->text) == len && memcmp(map->keys[i]->text, key, len) == 0)
                return map->items[i]->kind == TSR_CONFIG_NODE_MAP ? map->items[i] : NULL;
        struct tsr_config_node empty = { .kind = TSR_CONFIG_NODE_MAP, .mark = *mark, .text = "" };
        if (!put(c, map, key, len, mark, &empty)) {
            *nomem = true;
            return NULL;
        }
    }
    return NULL;
}

/* "quantize.bits" with its value into the arm's map. */
static tsr_status override(struct compare *c, struct compare_arm *a,
                           const struct tsr_config_node *key, const struct tsr_config_node *value,
                           struct tsr_diag *d, struct tsr_err *err)
{
    const char *s = key->text;
    size_t      n = strcspn(s, ".");
    bool        nomem = false;
    if (n != strlen(QUANTIZE) || strncmp(s, QUANTIZE, n) != 0 || !s[n] || !s[n + 1]) {
        tsr_config_diag_error(
            d, &key->mark, "write quantize.KEY: VALUE",
            "'%.60s': an arm changes keys of 'quantize' alone; model, calibration and "
            "text are shared by all arms",
            s);
        return TSR_OK;
    }
    struct tsr_config_node *map = a->quantize;
    for (s += n + 1; map && s[n = strcspn(s, ".")]; s += n + 1)
        map = below(c, map, s, n, &key->mark, &nomem);
    if (nomem)
        return tsr_fail_nomem(err, 64, "an arm");
    if (!map || n == 0 || strchr(s, '['))
        tsr_config_diag_error(d, &key->mark, "give the list or the value above it as a whole",
                              "'%.60s' leads to no key of a map", key->text);
    else if (!put(c, map, s, n, &key->mark, value))
        return tsr_fail_nomem(err, 64, "an arm");
    return TSR_OK;
}

void compare_arm_what(char what[96], const char *name)
{
    (void)snprintf(what, 96, "arm '%.60s'", name);
}

bool compare_is_text(const struct tsr_config_node *n, const char *what, struct tsr_diag *d)
{
    if (n->kind == TSR_CONFIG_NODE_SCALAR && *n->text)
        return true;
    tsr_config_diag_error(d, &n->mark, NULL, "'%s' must be a path", what);
    return false;
}

/* What an arm has next to its weights. */
struct arm_tp {
    struct tsr_pipeline_tp_keys   k;
    int64_t                       kv, act_bits;
    const char                   *kv_layers;
    const struct tsr_config_node *rotate;
};

static const struct tsr_option tp_options[] = {
    TSR_OPTION_ENUM(struct arm_tp, kv, TSR_F32, tsr_kv_choices, "The KV cache."),
    TSR_OPTION_STRING(struct arm_tp, kv_layers, "", TSR_KV_LAYERS_HELP),
    TSR_OPTION_INT(struct arm_tp, act_bits, 0, 0, 8, NULL, "Bits of the inputs of linears."),
    TSR_OPTION_NODE(struct arm_tp, rotate,
                    "The original is rotated first: {kind, sites, online, seed}."),
    TSR_PIPELINE_TP_OPTIONS(struct arm_tp, k),
};

struct arm_rotation {
    struct tsr_pipeline_rotate_keys k;
};

static const struct tsr_option rotate_options[] = { TSR_PIPELINE_ROTATE_OPTIONS(struct arm_rotation,
                                                                                k) };

static bool is_tp(const char *key)
{
    for (size_t i = 0; i < sizeof tp_options / sizeof *tp_options; i++)
        if (strcmp(key, tp_options[i].name) == 0)
            return true;
    return false;
}

static void read_rotation(struct compare_arm *a, const struct tsr_config_node *map,
                          struct tsr_diag *d)
{
    struct arm_rotation      o = { 0 };
    struct tsr_config_optset set = { rotate_options, sizeof rotate_options / sizeof *rotate_options,
                                     sizeof *rotate_options, &o };
    char                     what[96];
    compare_arm_what(what, a->name);
    tsr_config_options_fill(&set, 1, NULL, map, what, d);
    a->rotated = true;
    a->rotation = o.k;
}

/* The arm's keys of simulated ranks, of the cache and of a rotation. */
static tsr_status read_tp(struct compare *c, struct compare_arm *a,
                          const struct tsr_config_node *map, struct tsr_diag *d,
                          struct tsr_err *err)
{
    struct arm_tp            o;
    struct tsr_config_optset set = { tp_options, sizeof tp_options / sizeof *tp_options,
                                     sizeof *tp_options, &o };
    struct tsr_config_node   part = *map;
    char                     what[96];
    uint64_t                 before = tsr_config_diag_errors(d);
    part.keys = tsr_new(map->n + 1, sizeof(struct tsr_config_node *));
    part.items = tsr_new(map->n + 1, sizeof(struct tsr_config_node *));
    if (!part.keys || !part.items) {
        free(part.keys);
        free(part.items);
        return tsr_fail_nomem(err, map->n * 16, "an arm");
    }
    part.n = 0;
    for (uint64_t i = 0; i < map->n; i++)
        if (is_tp(map->keys[i]->text)) {
            part.keys[part.n] = map->keys[i];
            part.items[part.n++] = map->items[i];
        }
    compare_arm_what(what, a->name);
    memset(&o, 0, sizeof o);
    tsr_config_options_fill(&set, 1, NULL, &part, what, d);
    a->tp = o.k;
    a->kv = (uint32_t)o.kv;
    a->kv_layers = o.kv_layers;
    a->act_bits = (uint32_t)o.act_bits;
    if (a->act_bits == 1)
        tsr_config_diag_error(d, &map->mark, "write act_bits: 4",
                              "'act_bits' of arm '%.60s' must be 0 or 2 to 8", a->name);
    struct tsr_errbuf e = TSR_ERRBUF(e); /* the layers are counted when the engine is made */
    if (tsr_config_diag_errors(d) == before &&
        tsr_plugin_kv_layers(a->kv_layers, 0, UINT64_MAX, NULL, &e.err) != TSR_OK)
        tsr_config_diag_error(d, &tsr_config_node_get(map, "kv_layers")->mark, NULL,
                              "arm '%.60s': %s", a->name, e.text);
    if (tsr_config_diag_errors(d) == before &&
        tsr_plugin_kv_check(c->job->registry, a->kv, &e.err) != TSR_OK)
        tsr_config_diag_error(d, &tsr_config_node_get(map, "kv")->mark, NULL, "arm '%.60s': %s",
                              a->name, e.text);
    if (tsr_config_diag_errors(d) == before &&
        tsr_plugin_kv_check_all(c->job->registry, TSR_F32, a->kv_layers, &e.err) != TSR_OK)
        tsr_config_diag_error(d, &tsr_config_node_get(map, "kv_layers")->mark, NULL,
                              "arm '%.60s': %s", a->name, e.text);
    if (o.rotate)
        read_rotation(a, o.rotate, d);
    if (tsr_config_diag_errors(d) == before)
        tsr_pipeline_tp_keys_check(c->job, &a->tp, false, &part, d);
    if (part.n && (a->tp.simulate_tp || a->act_bits) &&
        (c->keys.samples || (c->keys.measure && tsr_config_node_get(c->keys.measure, "speed"))))
        tsr_config_diag_error(d, &map->mark,
                              "leave `samples` and `measure.speed` to a separate comparison",
                              "arm '%.60s' simulates %s, which has neither texts nor a speed",
                              a->name, a->act_bits ? "inputs of few bits" : "ranks");
    free(part.keys);
    free(part.items);
    return TSR_OK;
}

static tsr_status read_pair(struct compare *c, struct compare_arm *a,
                            const struct tsr_config_node *key, const struct tsr_config_node *value,
                            struct tsr_diag *d, struct tsr_err *err)
{
    static const char *const names[] = { "model",       "plan",      QUANTIZE,   "set",
                                         "simulate_tp", "algorithm", "codec",    "codec_state",
                                         "kv",          "kv_layers", "act_bits", "rotate" };
    if (strcmp(key->text, "model") == 0) {
        a->path = compare_is_text(value, "model", d) ? value->text : "";
        return TSR_OK;
    }
    if (strcmp(key->text, QUANTIZE) == 0 || is_tp(key->text))
        return TSR_OK; /* taken first */
    if (strcmp(key->text, "plan") == 0) {
        a->kind = COMPARE_PLAN;
        if (compare_is_text(value, "plan", d) && !put(c, a->quantize, "plan", 4, &key->mark, value))
            return tsr_fail_nomem(err, 64, "an arm");
        return TSR_OK;
    }
    if (strcmp(key->text, "set") == 0 && value->kind == TSR_CONFIG_NODE_MAP) {
        for (uint64_t i = 0; i < value->n; i++)
            TSR_TRY(override(c, a, value->keys[i], value->items[i], d, err));
        return TSR_OK;
    }
    if (strcmp(key->text, "set") == 0) {
        tsr_config_diag_error(d, &value->mark, "write set: {quantize.bits: 3}",
                              "'set' must be a map");
        return TSR_OK;
    }
    if (strchr(key->text, '.'))
        return override(c, a, key, value, d, err);
    const char *near = tsr_config_nearest(key->text, names, sizeof names / sizeof *names);
    char        hint[80];
    (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
    tsr_config_diag_error(d, &key->mark, near ? hint : HOW, "unknown key '%.60s' in arm '%.60s'",
                          key->text, a->name);
    return TSR_OK;
}

/* What the arm's keys change: its own `quantize`, else that of the comparison, else nothing. */
static tsr_status start_map(struct compare *c, struct compare_arm *a,
                            const struct tsr_config_node *map, struct tsr_diag *d,
                            struct tsr_err *err)
{
    const struct tsr_config_node *own = tsr_config_node_get(map, QUANTIZE),
                                 *from = own ? own : c->keys.quantize;
    struct tsr_config_node empty = { .kind = TSR_CONFIG_NODE_MAP, .mark = map->mark, .text = "" };
    if (from && from->kind != TSR_CONFIG_NODE_MAP) {
        tsr_config_diag_error(d, &from->mark, "write quantize: {use: rtn}",
                              "'quantize' must be a map");
        from = NULL;
    }
    a->quantize = tsr_config_doc_copy(c->job->doc, from ? from : &empty);
    return a->quantize ? TSR_OK : tsr_fail_nomem(err, 64, "an arm");
}

static tsr_status read_arm(struct compare *c, struct compare_arm *a,
                           const struct tsr_config_node *map, struct tsr_diag *d,
                           struct tsr_err *err)
{
    uint64_t before = tsr_config_diag_errors(d);
    if (map->kind != TSR_CONFIG_NODE_MAP || map->n == 0) {
        tsr_config_diag_error(d, &map->mark, HOW, "arm '%.60s' does not say what it is", a->name);
        return TSR_OK;
    }
    a->kind = COMPARE_QUANTIZE;
    TSR_TRY(start_map(c, a, map, d, err));
    uint64_t others = map->n;
    TSR_TRY(read_tp(c, a, map, d, err));
    for (uint64_t i = 0; i < map->n; i++) {
        TSR_TRY(read_pair(c, a, map->keys[i], map->items[i], d, err));
        others -= is_tp(map->keys[i]->text);
    }
    if (tsr_config_diag_errors(d) != before)
        a->quantize = NULL; /* already reported */
    if (others == 0 && !c->keys.quantize) {
        a->kind = a->rotated          ? COMPARE_ROTATE
                  : a->tp.simulate_tp ? COMPARE_CODEC
                  : a->act_bits       ? COMPARE_INPUTS
                                      : COMPARE_CACHE;
        a->quantize = NULL;
    }
    if (!a->path)
        return TSR_OK;
    a->kind = COMPARE_MODEL;
    a->quantize = NULL;
    if (a->rotated && tsr_config_diag_errors(d) == before)
        tsr_config_diag_error(d, &map->mark, "`tessera rotate` writes a folder; name that one here",
                              "arm '%.60s' is a model on disk, and 'rotate' is about the original",
                              a->name);
    if (others > 1 && tsr_config_diag_errors(d) == before)
        tsr_config_diag_error(d, &map->mark, "quantize that model first, and name the result here",
                              "arm '%.60s' is a model on disk; next to 'model' you can write 'kv', "
                              "'kv_layers', 'act_bits', 'codec' and 'simulate_tp' alone",
                              a->name);
    return TSR_OK;
}

static void check_name(const struct tsr_config_node *key, struct tsr_diag *d)
{
    size_t n = strspn(key->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_-+");
    if (strcmp(key->text, ORIGINAL) == 0)
        tsr_config_diag_error(d, &key->mark, NULL,
                              "arm '" ORIGINAL "' is always there: the "
                              "model as it is; choose another name");
    else if (n == 0 || key->text[n] || n > MAX_NAME)
        tsr_config_diag_error(
            d, &key->mark, NULL,
            "an arm's name is made of at most 60 letters, digits, '_', '-' and '+', "
            "not '%.60s'",
            key->text);
}

tsr_status compare_read_arms(struct compare *c, struct tsr_diag *d, struct tsr_err *err)
{
    static const struct tsr_config_mark nowhere;
    const struct tsr_config_node       *map = c->keys.arms;
    uint64_t                            n = map && map->kind == TSR_CONFIG_NODE_MAP ? map->n : 0;
    if (map && map->kind != TSR_CONFIG_NODE_MAP)
        tsr_config_diag_error(d, &map->mark, "write arms: {name: {quantize: {use: rtn}}}",
                              "'arms' is not a map");
    c->arms = tsr_new(n + 1, sizeof *c->arms);
    if (!c->arms)
        return tsr_fail_nomem(err, (n + 1) * sizeof *c->arms, "arms");
    c->n = n + 1;
    for (uint64_t i = 0; i < c->n; i++) {
        c->arms[i].error = (struct tsr_errbuf)TSR_ERRBUF(c->arms[i].error);
        c->arms[i].mark = i ? &map->keys[i - 1]->mark : &nowhere;
    }
    c->arms[0].name = ORIGINAL;
    c->arms[0].kv = TSR_F32;
    c->arms[0].kv_layers = "";
    for (uint64_t i = 0; i < n; i++) {
        c->arms[i + 1].name = map->keys[i]->text;
        check_name(map->keys[i], d);
        TSR_TRY(read_arm(c, &c->arms[i + 1], map->items[i], d, err));
    }
    return TSR_OK;
}
