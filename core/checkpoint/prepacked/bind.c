/* A prepacked file as a model: every part by its name, checked against what config.json says. */
#include "model/bind.h"
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/prepacked/prepacked.h"

#include <stdlib.h>
#include <string.h>

struct bind {
    struct tsr_prepacked *p;
    struct tsr_model     *m;
    bool                  headers_only;
    uint64_t              used; /* requested weights of the index */
};

/* The place of a part's weight; NULL for a vector. */
static struct tsr_prepacked_mapped_weight *slot_of(struct tsr_prepacked                  *p,
                                                   const struct tsr_prepacked_model_part *part)
{
    if (!part->w)
        return NULL;
    switch (part->part) {
    case TSR_MODEL_PART_EMBED:
        return &p->embed;
    case TSR_MODEL_PART_POSITIONS:
        return &p->positions;
    case TSR_MODEL_PART_PROJECT_IN:
        return &p->project_in;
    case TSR_MODEL_PART_PROJECT_OUT:
        return &p->project_out;
    case TSR_MODEL_PART_HEAD:
        return &p->head;
    default:
        return &p->lin[part->layer][part->lin];
    }
}

static tsr_status absent(const struct bind *b, const char *name, struct tsr_err *err)
{
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: its index has no \"%s\", which a %s model has as its config.json describes "
        "it; convert the model again",
        b->p->path, name, b->m->family);
}

/* n words of 32 bits among the vectors. */
static tsr_status find_vector(const struct bind *b, const char *name, uint64_t n,
                              const void **words, struct tsr_err *err)
{
    const json_t *j = json_object_get(json_object_get(b->p->vectors, "names"), name);
    json_int_t    at = json_integer_value(j);
    uint64_t      all, end;
    if (!j)
        return absent(b, name, err);
    struct tsr_prepacked_place v = tsr_prepacked_place(b->p->vectors);
    all = v.bytes / 4;
    if (!json_is_integer(j) || at < 0 || !tsr_add((uint64_t)at, n, &end) || end > all)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: index: \"%s\": %llu words from word %lld do not lie in the %llu of "
                        "\"vectors\"",
                        b->p->path, name, (unsigned long long)n, (long long)at,
                        (unsigned long long)all);
    *words = b->p->data + v.at + 4 * (uint64_t)at;
    return TSR_OK;
}

static void set_shape(struct tsr_matrix *w, uint32_t dtype, uint64_t rows, uint64_t cols)
{
    w->struct_size = sizeof *w;
    w->dtype = dtype;
    w->rows = rows;
    w->cols = cols;
    w->row_stride = cols * tsr_dtype_size(dtype);
}

static tsr_status read_dtype(const char *where, const json_t *j, const char *key, uint32_t *dtype,
                             struct tsr_err *err)
{
    static const uint32_t all[] = { TSR_F32, TSR_F16, TSR_BF16 };
    const char           *text = "";
    TSR_TRY(tsr_json_str(j, where, key, true, &text, err));
    for (unsigned i = 0; i < 3; i++)
        if (strcmp(text, tsr_dtype_name(all[i])) == 0) {
            *dtype = all[i];
            return TSR_OK;
        }
    return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\": \"%.40s\" is not F32, F16 or BF16", where, key,
                    text);
}

/* The place of a packed matrix in the overlay, which is made with the first one. */
static tsr_status packed_slot(struct bind *b, const struct tsr_prepacked_model_part *part,
                              struct tsr_model_packed ***slot, struct tsr_err *err)
{
    struct tsr_model *m = b->m;
    if (!m->packed)
        TSR_TRY(tsr_model_overlay_create(&m->packed, m->hp.layers, m->hp.linears, err));
    *slot = part->part == TSR_MODEL_PART_HEAD    ? &m->packed->head
            : part->part == TSR_MODEL_PART_EMBED ? &m->packed->embed
                                                 : &m->packed->lin[part->layer][part->lin];
    return TSR_OK;
}

/* The order of a packed matrix's columns, which is stored among the vectors. */
static tsr_status read_order(struct bind *b, const struct tsr_prepacked_model_part *part,
                             struct tsr_model_packed *p, struct tsr_err *err)
{
    char           name[TSR_MODEL_PART_NAME + 8];
    const void    *words = NULL;
    unsigned char *seen = NULL;
    (void)snprintf(name, sizeof name, "%s.order", part->name);
    TSR_TRY(find_vector(b, name, p->cols, &words, err));
    if (b->headers_only)
        return TSR_OK;
    p->order = tsr_new(p->cols, sizeof *p->order);
    seen = p->order ? tsr_new(p->cols, 1) : NULL;
    if (!seen)
        return tsr_fail_nomem(err, p->cols * sizeof *p->order, name);
    memcpy(p->order, words, p->cols * sizeof *p->order);
    const char *wrong = tsr_model_packed_order_check(p, seen);
    free(seen);
    return wrong ? tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" %s", b->p->path, name, wrong) : TSR_OK;
}

/* What was packed: formats and shapes; its codes are in the file as the backend has them. */
static tsr_status read_packed(struct bind *b, const struct tsr_prepacked_model_part *part,
                              const char *where, const json_t *j,
                              const struct tsr_model_packed **out, struct tsr_err *err)
{
    struct tsr_model_packed **slot = NULL;
    TSR_TRY(packed_slot(b, part, &slot, err));
    struct tsr_model_packed *p = *slot = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(err, sizeof *p, "packed weights");
    TSR_TRY(tsr_packed_understand_json(p, where, j, err));
    p->rows = part->rows;
    if (p->cols != part->cols)
        return tsr_fail(err, TSR_E_INPUT, "%s: has %llu columns, config.json asks for %llu", where,
                        (unsigned long long)p->cols, (unsigned long long)part->cols);
    *out = p;
    return p->ordered ? read_order(b, part, p, err) : TSR_OK;
}

static tsr_status bind_matrix(struct bind *b, const struct tsr_prepacked_model_part *part,
                              struct tsr_err *err)
{
    struct tsr_prepacked_mapped_weight *w = slot_of(b->p, part);
    const struct tsr_model_packed      *packed = NULL;
    json_t  *j = json_object_get(b->p->weights, part->name), *kind, *described = NULL;
    uint32_t dtype = TSR_F32;
    bool     widened = false;
    char     where[400];
    (void)snprintf(where, sizeof where, "%s: index: \"%s\"", b->p->path, part->name);
    if (!j && part->optional) { /* the head is the embedding */
        set_shape(part->w, b->m->embed.dtype, part->rows, part->cols);
        if (b->m->packed) /* it comes first */
            b->m->packed->head = b->m->packed->embed;
        return TSR_OK;
    }
    if (!j)
        return absent(b, part->name, err);
    kind = json_array_get(b->p->kinds, tsr_prepacked_kind(j));
    if (!json_is_object(kind))
        return tsr_fail(err, TSR_E_INPUT, "%s: \"kind\": is not an object", where);
    TSR_TRY(tsr_json_sub(kind, where, "packed", false, JSON_OBJECT, &described, err));
    TSR_TRY(tsr_json_bool(kind, where, "widened", false, &widened, err));
    if (described && part->part != TSR_MODEL_PART_LINEAR && part->part != TSR_MODEL_PART_HEAD &&
        part->part != TSR_MODEL_PART_EMBED)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"packed\": only linears, head and embedding can be",
                        where);
    if (described)
        TSR_TRY(read_packed(b, part, where, described, &packed, err));
    else
        TSR_TRY(read_dtype(where, kind, "dtype", &dtype, err));
    set_shape(part->w, packed ? packed->source_dtype : dtype, part->rows, part->cols);
    struct tsr_prepacked_place at = tsr_prepacked_place(j);
    w->data = b->headers_only ? NULL : b->p->data + at.at;
    w->bytes = at.bytes;
    w->rows = part->rows;
    w->cols = part->cols;
    /* a layout of a plugin's own, and one that the backend declined, are there as F32 */
    if (packed && !widened && tsr_model_format_known(&packed->format))
        w->format = packed->format;
    else
        w->format = (struct tsr_format){ .struct_size = sizeof w->format,
                                         .dtype = packed || widened ? TSR_F32 : dtype,
                                         .id = TSR_FORMAT_FLOAT };
    b->used++;
    b->m->parameters += part->rows * part->cols;
    b->m->bytes += at.bytes;
    return TSR_OK;
}

static tsr_status bind_vector(struct bind *b, const struct tsr_prepacked_model_part *part,
                              struct tsr_err *err)
{
    const void *words = NULL;
    TSR_TRY(find_vector(b, part->name, part->n, &words, err));
    if (!b->headers_only)
        *part->values = words;
    b->m->parameters += part->n;
    b->m->bytes += part->n * sizeof(float);
    return TSR_OK;
}

static tsr_status bind_part(void *ctx, const struct tsr_prepacked_model_part *part,
                            struct tsr_err *err)
{
    return part->w ? bind_matrix(ctx, part, err) : bind_vector(ctx, part, err);
}

bool tsr_prepacked_own_head(const struct tsr_prepacked *p)
{
    json_t *j = json_object_get(p->weights, "lm_head");
    json_t *kind = j ? json_array_get(p->kinds, tsr_prepacked_kind(j)) : NULL;
    return kind && !json_object_get(kind, "packed");
}

tsr_status tsr_prepacked_bind(struct tsr_prepacked *p, struct tsr_model *m, bool headers_only,
                              struct tsr_err *err)
{
    struct bind b = { .p = p, .m = m, .headers_only = headers_only };
    uint64_t    n = json_object_size(p->weights);
    p->layers = m->hp.layers;
    p->lin = tsr_new_rows(p->layers, m->hp.linears, sizeof **p->lin);
    if (!p->lin)
        return tsr_fail_nomem(err, p->layers * m->hp.linears * sizeof **p->lin, "layers");
    if (!headers_only)
        TSR_TRY(tsr_prepacked_check_vectors(p, err));
    TSR_TRY(tsr_prepacked_model_parts(m, p->layers, bind_part, &b, err));
    for (uint64_t l = 0; l < p->layers; l++)
        TSR_TRY(tsr_prepacked_model_parts(m, l, bind_part, &b, err));
    if (b.used != n)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its index has %llu weights, a %s model has %llu as its config.json "
                        "describes it; convert the model again",
                        p->path, (unsigned long long)n, m->family, (unsigned long long)b.used);
    return TSR_OK;
}
