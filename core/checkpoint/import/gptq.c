/* GPTQ (AutoGPTQ, GPTQModel): codes packed along the inputs, a column for each output.
 *
 *   qweight I32 [K*bits/32, N]   qzeros I32 [groups, N*bits/32]   scales [groups, N]   g_idx I32 [K]
 *
 * A column of qweight, word after word, is the bit stream of an output's row, also for 3 bits.
 * Zero points come in two versions: v1 stores one less than v2. */
#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/import/import.h"

#include <stdlib.h>
#include <string.h>

#define UNSET        INT64_MIN
#define SAMPLE       UINT64_C(65536) /* codes whose mean is known to a twentieth of a step */
#define SAMPLE_ROWS  64u             /* of a matrix */
#define SAMPLE_WORDS 4096u           /* of a row */

/* Of the whole checkpoint, or of the modules of a rule. */
struct scheme {
    int64_t bits, group;
    bool    sym;
};

struct override {
    struct tsr_import_rule rule;
    bool                   skip, has_sym, sym;
    int64_t                bits, group; /* UNSET: as the checkpoint */
};

struct gptq {
    struct scheme    scheme;
    bool             v2, said, by_word; /* by_word: v1 was made by subtracting from whole words */
    struct override *rules;
    uint64_t         n_rules;
    double           sum; /* of code - zero over a sample of an asymmetric checkpoint */
    uint64_t         n;
};

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

static tsr_status get_format(struct tsr_import *im, struct gptq *g)
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

static tsr_status read_rule(struct tsr_import *im, struct override *o, const char *pattern,
                            const json_t *v)
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

static tsr_status read_rules(struct tsr_import *im, struct gptq *g)
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

static tsr_status gptq_open(struct tsr_import *im)
{
    struct gptq *g = im->own = tsr_new(1, sizeof *g);
    if (!g)
        return tsr_fail_nomem(im->err, sizeof *g, im->where);
    g->scheme = (struct scheme){ .bits = 0, .group = -1, .sym = true };
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

static void gptq_close(void *own)
{
    struct gptq *g = own;
    for (uint64_t i = 0; i < g->n_rules; i++)
        tsr_import_rule_free(&g->rules[i].rule);
    free(g->rules);
    free(g);
}

/* What holds for a module: the first rule that matches it. */
static tsr_status scheme_of(struct tsr_import *im, const char *name, struct scheme *s)
{
    const struct gptq *g = im->own;
    *s = g->scheme;
    for (uint64_t i = 0; i < g->n_rules; i++) {
        const struct override *o = &g->rules[i];
        bool                   yes;
        TSR_TRY(tsr_import_rule_match(im, &o->rule, name, &yes));
        if (!yes)
            continue;
        s->bits = o->bits == UNSET ? s->bits : o->bits;
        s->group = o->group == UNSET ? s->group : o->group;
        s->sym = o->has_sym ? o->sym : s->sym;
        return TSR_OK;
    }
    return TSR_OK;
}

/* ---- zero points ---------------------------------------------------------------------- */

/* Adds 1 to every field of a row of words, each word on its own and modulo 2^32: what undoes a
 * subtraction that was done so. */
static void add_by_word(uint32_t *words, uint64_t n, uint32_t bits)
{
    for (uint64_t w = 0; w < n; w++) {
        uint32_t one = 0;
        for (uint32_t i = 0; i < 32; i++)
            if ((32 * w + i) % bits == 0)
                one |= 1u << i;
        words[w] += one;
    }
}

/* How many fields of the raw zero points have a value. */
static void count_fields(const uint8_t *raw, uint64_t n, uint32_t bits, uint64_t *middle,
                         uint64_t *below, uint64_t *ones)
{
    uint8_t mid = (uint8_t)(1u << (bits - 1)), all = (uint8_t)((1u << bits) - 1u);
    *middle = *below = *ones = 0;
    for (uint64_t i = 0; i < n; i++) {
        *middle += raw[i] == mid;
        *below += raw[i] == mid - 1;
        *ones += raw[i] == all;
    }
}

/* Which version these are.  The data of a symmetric matrix say it; otherwise the header does. */
static bool is_v2(struct tsr_import *im, const struct scheme *s,
                  const struct tsr_checkpoint_stored *e, uint64_t n, uint64_t middle,
                  uint64_t below)
{
    struct gptq *g = im->own;
    bool         known = s->sym && (middle == n || below == n), v2 = known ? middle == n : g->v2;
    if (g->said || (known ? v2 == g->v2 : !s->sym))
        return v2;
    if (known)
        tsr_logf(TSR_LOG_WARN,
                 "%s says that zero points are stored as %s, but those of \"%s\" are %s; the data "
                 "are believed",
                 im->where, g->v2 ? "v2" : "v1", e->t->name, v2 ? "v2" : "v1");
    else
        tsr_logf(TSR_LOG_WARN,
                 "%s says that the weights are symmetric, but zero points of \"%s\" differ; they "
                 "are read as they are stored",
                 im->where, e->t->name);
    g->said = true;
    return v2;
}

/* words [groups, N*bits/32] -> zeros [N, groups] */
static void read_zeros(struct tsr_import *im, const struct scheme *s,
                       const struct tsr_checkpoint_stored *e, uint32_t *words, uint64_t groups,
                       uint64_t rows, uint8_t *raw, uint8_t *zeros)
{
    const struct gptq *g = im->own;
    uint32_t           bits = (uint32_t)s->bits, mask = (1u << bits) - 1u;
    uint64_t           width = rows * bits / 32, middle, below, ones;
    for (uint64_t i = 0; i < groups; i++)
        tsr_import_unpack(words + i * width, 0, bits, rows, raw + i * rows);
    count_fields(raw, groups * rows, bits, &middle, &below, &ones);
    uint32_t add = is_v2(im, s, e, groups * rows, middle, below) ? 0 : 1;
    if (add && ones) { /* a zero point of 0 went below 0: into its neighbour, or round */
        tsr_import_note(im, g->by_word
                                ? "zero points of 0 were stored by subtracting from whole words "
                                  "(GPTQModel, v1); the words are restored"
                                : "zero points of 0 were stored as all ones (v1); they are read "
                                  "field by field");
        for (uint64_t i = 0; g->by_word && i < groups; i++) {
            add_by_word(words + i * width, width, bits);
            tsr_import_unpack(words + i * width, 0, bits, rows, raw + i * rows);
        }
        add = g->by_word ? 0 : 1;
    }
    for (uint64_t i = 0; i < groups; i++)
        for (uint64_t n = 0; n < rows; n++)
            zeros[n * groups + i] = (uint8_t)((raw[i * rows + n] + add) & mask);
}

/* ---- a matrix ------------------------------------------------------------------------- */

struct parts {
    uint32_t *words;  /* qweight */
    uint32_t *zwords; /* qzeros */
    uint8_t  *raw, *zeros;
    float    *stored, *scales;
    int32_t  *g_idx;
    uint32_t *order;
    uint64_t  rows, height; /* columns and rows of qweight */
};

static void parts_free(struct parts *p)
{
    free(p->words);
    free(p->zwords);
    free(p->raw);
    free(p->zeros);
    free(p->stored);
    free(p->scales);
    free(p->g_idx);
    free(p->order);
}

static void columns(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                    uint64_t stride)
{
    const struct parts *p = source;
    for (uint64_t w = 0; w < p->height; w++)
        for (uint64_t i = 0; i < n; i++)
            memcpy(dst + i * stride + 4 * w, &p->words[w * p->rows + first + i], 4);
}

/* The group of each column.  order stays NULL if it is k / group. */
static tsr_status read_order(struct tsr_import *im, const char *name, struct parts *p,
                             uint64_t cols, uint64_t group, uint64_t groups)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, name, "g_idx");
    bool                          plain = true;
    if (!e)
        return TSR_OK;
    TSR_TRY(tsr_import_need(im, name, "g_idx", "I32", 1, &cols, &e));
    TSR_TRY(tsr_import_bytes(im, e, (void **)&p->g_idx));
    if (!(p->order = tsr_new(cols, sizeof *p->order)))
        return tsr_fail_nomem(im->err, cols * sizeof *p->order, name);
    for (uint64_t k = 0; k < cols; k++) {
        int64_t g = p->g_idx[k];
        g += g < 0 ? (int64_t)groups : 0;
        if (g < 0 || (uint64_t)g >= groups)
            return tsr_import_fail(im, e, "has group %d for column %llu; there are %llu groups",
                                   p->g_idx[k], (unsigned long long)k, (unsigned long long)groups);
        p->order[k] = (uint32_t)g;
        plain = plain && (uint64_t)g == k / group;
    }
    if (plain) {
        free(p->order);
        p->order = NULL;
    }
    return TSR_OK;
}

static tsr_status read_parts(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             const struct scheme *s, struct parts *p, struct tsr_import_int *t)
{
    uint64_t bits = (uint64_t)s->bits, group = s->group < 0 ? cols : (uint64_t)s->group;
    uint64_t groups = cols / group + (cols % group != 0);
    if (cols * bits % 32 || rows * bits % 32)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\" is [%llu, %llu], which %llu bits do not fill whole words "
                        "with; GPTQ cannot hold it",
                        im->where, name, (unsigned long long)rows, (unsigned long long)cols,
                        (unsigned long long)bits);
    const uint64_t shape[2] = { cols * bits / 32, rows };
    const uint64_t zshape[2] = { groups, rows * bits / 32 }, sshape[2] = { groups, rows };
    struct tsr_checkpoint_stored *w, *z, *c;
    TSR_TRY(tsr_import_need(im, name, "qweight", "I32", 2, shape, &w));
    TSR_TRY(tsr_import_need(im, name, "qzeros", "I32", 2, zshape, &z));
    TSR_TRY(tsr_import_need(im, name, "scales", "F16 BF16 F32", 2, sshape, &c));
    p->rows = rows;
    p->height = shape[0];
    TSR_TRY(read_order(im, name, p, cols, group, groups));
    TSR_TRY(tsr_import_bytes(im, z, (void **)&p->zwords));
    TSR_TRY(tsr_import_floats(im, c, &p->stored));
    p->raw = tsr_new(groups * rows, 1);
    p->zeros = tsr_new(groups * rows, 1);
    p->scales = tsr_new(groups * rows, sizeof *p->scales);
    if (!p->raw || !p->zeros || !p->scales)
        return tsr_fail_nomem(im->err, groups * rows * 6, name);
    read_zeros(im, s, z, p->zwords, groups, rows, p->raw, p->zeros);
    for (uint64_t g = 0; g < groups; g++)
        for (uint64_t n = 0; n < rows; n++)
            p->scales[n * groups + g] = p->stored[g * rows + n];
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, w, (void **)&p->words));
    *t = (struct tsr_import_int){ .bits = (uint32_t)bits,
                                  .group = group,
                                  .scales = p->scales,
                                  .f16 = c->t->dtype == TSR_F16,
                                  .zeros = p->zeros,
                                  .order = p->order,
                                  .rows = columns,
                                  .source = p };
    return TSR_OK;
}

/* Weights average 0.  Zero points of the other version would move all of them by a step, which no
 * header can be believed against in silence. */
static void watch_mean(struct tsr_import *im, const struct scheme *s, const struct parts *p,
                       uint64_t cols, uint64_t groups, uint8_t *codes)
{
    struct gptq *g = im->own;
    uint64_t     before = g->n, group = s->group < 0 ? cols : (uint64_t)s->group;
    uint32_t     column[SAMPLE_WORDS];
    if (im->again || s->sym || !p->words || p->order || p->height > SAMPLE_WORDS)
        return;
    for (uint64_t n = 0; n < p->rows; n += 1 + p->rows / SAMPLE_ROWS) {
        for (uint64_t w = 0; w < p->height; w++)
            column[w] = p->words[w * p->rows + n];
        tsr_import_unpack(column, 0, (uint32_t)s->bits, cols, codes);
        for (uint64_t k = 0; k < cols; k++) {
            uint64_t at = n * groups + k / group;
            g->sum += (double)codes[k] - (double)p->zeros[at];
        }
        g->n += cols;
    }
    double mean = g->sum / (double)g->n;
    if (before < SAMPLE && g->n >= SAMPLE && (g->v2 ? mean > 0.5 : mean < -0.5))
        tsr_logf(TSR_LOG_WARN,
                 "%s: with zero points of %s the weights average %+.2f steps, with those of %s "
                 "%+.2f; if the model talks nonsense, \"checkpoint_format\" is wrong",
                 im->where, g->v2 ? "v2" : "v1", mean, g->v2 ? "v1" : "v2",
                 g->v2 ? mean - 1 : mean + 1);
}

static tsr_status gptq_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                            struct tsr_model_packed **out)
{
    struct scheme         s;
    struct parts          p = { 0 };
    struct tsr_import_int t;
    if (!tsr_import_find(im, name, "qweight") && tsr_import_find(im, name, "weight"))
        return TSR_OK; /* left as it was */
    TSR_TRY(scheme_of(im, name, &s));
    uint8_t   *codes = tsr_new(cols, 1);
    tsr_status st =
        codes ? read_parts(im, name, rows, cols, &s, &p, &t) : tsr_fail_nomem(im->err, cols, name);
    if (st == TSR_OK)
        watch_mean(im, &s, &p, cols, cols / t.group + (cols % t.group != 0), codes);
    if (st == TSR_OK)
        st = tsr_import_put_int(im, name, rows, cols, &t, out);
    free(codes);
    parts_free(&p);
    return st;
}

const struct tsr_importer tsr_importer_gptq = {
    .method = "gptq",
    .summary = "GPTQ v1 and v2 (AutoGPTQ, GPTQModel): 2, 3, 4 and 8 bits, g_idx, dynamic rules",
    .open = gptq_open,
    .close = gptq_close,
    .read = gptq_read,
};
