/* Names of tensors: prefixes and patterns. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

const char *tsr_model_family_place(const struct tsr_model_family *f,
                                   const struct tsr_config_mark *at, char text[TSR_FAMILY_PLACE])
{
    const char *path = tsr_config_doc_path(f->doc);
    if (!*f->hash)
        (void)snprintf(text, TSR_FAMILY_PLACE, "the family %s", f->name);
    else if (at)
        (void)snprintf(text, TSR_FAMILY_PLACE, "%.370s:%u:%u", path, at->line, at->column);
    else
        (void)snprintf(text, TSR_FAMILY_PLACE, "%.390s", path);
    return text;
}

tsr_status tsr_model_family_fail(const struct tsr_model_family *f, const struct tsr_config_mark *at,
                                 struct tsr_err *err, const char *fmt, ...)
{
    char        text[300];
    const char *path = tsr_config_doc_path(f->doc);
    va_list     ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return at ? tsr_fail(err, TSR_E_INPUT, "%s:%u:%u: %s", path, at->line, at->column, text)
              : tsr_fail(err, TSR_E_INPUT, "%s: %s", path, text);
}

bool tsr_model_part_is_norm(enum tsr_model_part part)
{
    return part == TSR_MODEL_PART_EMBED_NORM || part == TSR_MODEL_PART_FINAL_NORM ||
           (part >= TSR_MODEL_PART_ATTN_IN && part <= TSR_MODEL_PART_K_NORM);
}

static size_t bare(const char *prefix)
{
    static const char inner[] = ".model.";
    size_t            n = strlen(prefix), k = sizeof inner - 1;
    return n > k && strcmp(prefix + n - k, inner) == 0 ? n - k + 1 : 0;
}

bool tsr_model_part_is_unsuffixed(enum tsr_model_part part)
{
    return part == TSR_MODEL_PART_DECAY || part == TSR_MODEL_PART_STEP;
}

unsigned tsr_model_fused(const struct tsr_model_hparams *hp, enum tsr_model_part part,
                         enum tsr_linear_id ids[TSR_MODEL_FUSED], uint32_t *groups)
{
    static const struct {
        enum tsr_model_part part;
        unsigned            n;
        enum tsr_linear_id  ids[TSR_MODEL_FUSED];
    } all[] = {
        { TSR_MODEL_PART_QKV_ROWS, 3, { TSR_MODEL_Q, TSR_MODEL_K, TSR_MODEL_V } },
        { TSR_MODEL_PART_QKV_HEADS, 3, { TSR_MODEL_Q, TSR_MODEL_K, TSR_MODEL_V } },
        { TSR_MODEL_PART_GATE_UP_ROWS, 2, { TSR_MODEL_GATE, TSR_MODEL_UP } },
        { TSR_MODEL_PART_QZ_HEADS, 2, { TSR_MODEL_Q, TSR_MODEL_Z } },
        { TSR_MODEL_PART_QKVZ_HEADS, 4, { TSR_MODEL_Q, TSR_MODEL_K, TSR_MODEL_V, TSR_MODEL_Z } },
        { TSR_MODEL_PART_BA_HEADS, 2, { TSR_MODEL_B, TSR_MODEL_A } },
    };
    bool of_heads = part == TSR_MODEL_PART_QKV_HEADS || part == TSR_MODEL_PART_QZ_HEADS;
    bool of_keys = part == TSR_MODEL_PART_QKVZ_HEADS || part == TSR_MODEL_PART_BA_HEADS;
    *groups = of_heads ? hp->heads : of_keys ? hp->delta.key_heads : 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].part == part) {
            memcpy(ids, all[i].ids, sizeof all[i].ids);
            return all[i].n;
        }
    return 0;
}

/* Parts of what stands in a layer's first sub-layer: attention, or the delta rule in its place. */
static bool attends(const struct tsr_model_role *r)
{
    switch (r->part) {
    case TSR_MODEL_PART_LINEAR:
        return tsr_model_linear_attends(r->lin);
    case TSR_MODEL_PART_QKV_ROWS:
    case TSR_MODEL_PART_QKV_HEADS:
    case TSR_MODEL_PART_QZ_HEADS:
    case TSR_MODEL_PART_QKVZ_HEADS:
    case TSR_MODEL_PART_BA_HEADS:
    case TSR_MODEL_PART_CONV:
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
    case TSR_MODEL_PART_DELTA_NORM:
    case TSR_MODEL_PART_Q_A_NORM:
    case TSR_MODEL_PART_KV_A_NORM:
    case TSR_MODEL_PART_Q_NORM:
    case TSR_MODEL_PART_K_NORM:
    case TSR_MODEL_PART_SINKS:
        return true;
    default:
        return false;
    }
}

bool tsr_model_role_in_layer(const struct tsr_model_hparams *hp, const struct tsr_model_role *r,
                             uint64_t layer)
{
    bool sparse = hp->sparse && layer < hp->layers && hp->sparse[layer];
    if (attends(r))
        return r->delta == tsr_model_is_recurrent(hp, layer);
    switch (r->part) {
    case TSR_MODEL_PART_LINEAR:
        return sparse == (r->lin >= TSR_MODEL_ROUTER);
    case TSR_MODEL_PART_GATE_UP_ROWS:
        return !sparse;
    case TSR_MODEL_PART_ROUTER_CORRECTION:
    case TSR_MODEL_PART_EXPERT:
    case TSR_MODEL_PART_EXPERTS:
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return sparse;
    default:
        return true;
    }
}

bool tsr_model_role_of_expert(const struct tsr_model_role *r, uint64_t expert,
                              char buf[TSR_FAMILY_NAME + 24], struct tsr_model_role *one)
{
    const char *at = strchr(r->name, '@');
    int         len = at ? (int)(at - r->name) : 0;
    int         n = snprintf(buf, TSR_FAMILY_NAME + 24, "%.*s%llu%s", len, r->name,
                             (unsigned long long)expert, at ? at + 1 : "");
    *one = *r;
    one->name = buf;
    one->part = TSR_MODEL_PART_LINEAR;
    one->lin = tsr_model_expert_linear(expert, r->lin);
    return at && n > 0 && n < TSR_FAMILY_NAME + 24;
}

bool tsr_model_role_each(const struct tsr_model_role *r, enum tsr_linear_id kind,
                         struct tsr_model_role *one)
{
    *one = *r;
    one->part = TSR_MODEL_PART_EXPERT;
    one->lin = kind;
    one->name = r->each[r->part == TSR_MODEL_PART_EXPERTS_GATE_UP && kind == TSR_MODEL_UP];
    one->interleaved = one->transposed = false;
    one->suffixes[0] = one->suffixes[1] = NULL;
    return r->each[0] && tsr_model_role_has_expert(r, kind);
}

void tsr_model_role_stacked(const struct tsr_model_role *r, enum tsr_linear_id kind,
                            struct tsr_model_role *one)
{
    static const char *const names[] = { "layers.#.experts.gate", "layers.#.experts.up",
                                         "layers.#.experts.down" };
    *one = *r;
    one->name = names[kind - TSR_MODEL_GATE];
    one->part = TSR_MODEL_PART_EXPERTS;
    one->lin = kind;
    one->gguf =
        r->part == TSR_MODEL_PART_EXPERTS_GATE_UP && kind == TSR_MODEL_UP ? r->gguf_up : r->gguf;
    one->bare = one->interleaved = one->transposed = false;
    one->suffixes[0] = one->suffixes[1] = NULL;
}

bool tsr_model_role_split(const struct tsr_model_role *r, unsigned i, struct tsr_model_role *one)
{
    *one = *r;
    if (r->part != TSR_MODEL_PART_QKVZ_HEADS || i > 1)
        return i == 0;
    one->part = i ? TSR_MODEL_PART_LINEAR : TSR_MODEL_PART_QKV_ROWS;
    one->lin = TSR_MODEL_Z;
    one->name = i ? "layers.#.delta.z" : "layers.#.delta.qkv";
    one->gguf = i ? r->gguf_up : r->gguf;
    one->bare = false;
    return true;
}

bool tsr_model_part_is_expert(enum tsr_model_part part)
{
    return part == TSR_MODEL_PART_EXPERT || part == TSR_MODEL_PART_EXPERTS ||
           part == TSR_MODEL_PART_EXPERTS_GATE_UP;
}

bool tsr_model_role_has_expert(const struct tsr_model_role *r, enum tsr_linear_id kind)
{
    return r->part == TSR_MODEL_PART_EXPERTS_GATE_UP
               ? kind == TSR_MODEL_GATE || kind == TSR_MODEL_UP
               : tsr_model_part_is_expert(r->part) && r->lin == kind;
}

const char *tsr_model_role_suffix(const struct tsr_model_role *r, const char *suffix)
{
    if (tsr_model_part_is_unsuffixed(r->part))
        return "";
    if (r->suffixes[0] && strcmp(suffix, ".weight") == 0)
        return r->suffixes[0];
    return r->suffixes[1] && strcmp(suffix, ".bias") == 0 ? r->suffixes[1] : suffix;
}

static bool fill(char *name, size_t cap, const char *prefix, size_t prefix_len, const char *pattern,
                 uint64_t layer, const char *suffix)
{
    const char *hash = strchr(pattern, '#');
    int         len = (int)prefix_len, n;
    if (hash)
        n = snprintf(name, cap, "%.*s%.*s%llu%s%s", len, prefix, (int)(hash - pattern), pattern,
                     (unsigned long long)layer, hash + 1, suffix);
    else
        n = snprintf(name, cap, "%.*s%s%s", len, prefix, pattern, suffix);
    return n > 0 && (size_t)n < cap;
}

bool tsr_model_tensor_name(char *name, size_t cap, const char *prefix, const char *pattern,
                           uint64_t layer, const char *suffix)
{
    return fill(name, cap, prefix, strlen(prefix), pattern, layer, suffix);
}

bool tsr_model_role_name(char *name, size_t cap, const struct tsr_model_role *r, const char *prefix,
                         uint64_t layer, const char *suffix)
{
    size_t len = r->bare ? bare(prefix) : strlen(prefix);
    return fill(name, cap, prefix, len, r->name, layer, suffix);
}

bool tsr_model_tensor_name_matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*' && !pattern[1])
            return true;
        if (*pattern == '#') {
            if (*name < '0' || *name > '9')
                return false;
            while (*name >= '0' && *name <= '9')
                name++;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return *name == '\0';
}
