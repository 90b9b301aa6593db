/* The matrices of a GGUF file that a packed layout holds to the last bit. */
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUN (UINT64_C(1) << 20) /* bytes of the file that are read at once, or one row */

struct pack {
    const struct tsr_gguf *g;
    const struct tsr_file *file;
    struct tsr_model      *m;
    bool                   headers_only;
    struct tsr_hasher     *hash;
    struct tsr_err        *err;
    uint64_t               packed; /* matrices */
};

/* Rows of a tensor that are one matrix of the model: from `first` on, or a part of each of `groups` groups. */
struct part {
    const struct tsr_gguf_tensor *t;
    struct tsr_gguf_map           map;
    uint64_t                      first, rows, cols;
    uint64_t                      groups, group_rows; /* group_rows: of all matrices in a group */
};

static uint64_t row_of(const struct part *a, uint64_t r)
{
    if (a->groups) {
        uint64_t own = a->rows / a->groups;
        return r / own * a->group_rows + a->first + r % own;
    }
    return a->first + (a->map.columns ? r : tsr_gguf_row(&a->map, a->rows, r));
}

static tsr_status put_rows(struct pack *k, const struct part *a, struct tsr_model_packed *p,
                           unsigned char *raw)
{
    uint64_t bytes = a->t->bytes / tsr_gguf_rows(a->t);
    bool     plain = !a->groups && (a->map.order == TSR_GGUF_PLAIN || a->map.columns);
    uint64_t run = plain && bytes < RUN ? RUN / bytes : 1;
    for (uint64_t r = 0; r < a->rows; r += run) {
        uint64_t n = a->rows - r < run ? a->rows - r : run;
        uint64_t from = row_of(a, r);
        TSR_TRY(tsr_file_read(k->file, a->t->at + from * bytes, raw, n * bytes, k->err));
        if (k->hash)
            tsr_hasher_update(k->hash, raw, n * bytes);
        for (uint64_t i = 0; i < n; i++) {
            const char *wrong =
                tsr_gguf_pack_row(a->t->type, raw + i * bytes, a->cols,
                                  (unsigned char *)p->codes + (r + i) * p->code_stride,
                                  (unsigned char *)p->meta + (r + i) * p->meta_stride);
            if (wrong)
                return tsr_fail(k->err, TSR_E_INPUT,
                                "%s: tensor \"%s\": row %llu %s; the file is damaged", k->g->path,
                                a->t->name, (unsigned long long)from + i, wrong);
        }
    }
    return TSR_OK;
}

static tsr_status put_order(const struct pack *k, const struct part *a, struct tsr_model_packed *p)
{
    p->order = tsr_new(p->cols, sizeof *p->order);
    if (!p->order)
        return tsr_fail_nomem(k->err, p->cols * sizeof *p->order, a->t->name);
    for (uint64_t c = 0; c < p->cols; c++)
        p->order[c] = (uint32_t)tsr_gguf_row_back(&a->map, p->cols, c);
    return TSR_OK;
}

static tsr_status put_bytes(struct pack *k, const struct part *a, struct tsr_model_packed *p)
{
    uint64_t       codes, meta, row = a->t->bytes / tsr_gguf_rows(a->t);
    unsigned char *raw = tsr_new_aligned(row > RUN ? row : RUN, 1);
    if (!tsr_mul(p->rows, p->code_stride, &codes) || !tsr_mul(p->rows, p->meta_stride, &meta)) {
        free(raw);
        return tsr_fail(k->err, TSR_E_INPUT, "%s: tensor \"%s\" is too large", k->g->path,
                        a->t->name);
    }
    p->codes = tsr_new_aligned(codes, 1);
    p->meta = tsr_new_aligned(meta, 1);
    tsr_status st = raw && p->codes && p->meta ? put_rows(k, a, p, raw)
                                               : tsr_fail_nomem(k->err, codes + meta, a->t->name);
    if (st == TSR_OK && p->ordered)
        st = put_order(k, a, p);
    free(raw);
    return st;
}

static tsr_status describe(struct pack *k, const struct part *a, struct tsr_model_packed *p)
{
    char type[16];
    p->rows = a->rows;
    p->cols = a->cols;
    p->code_stride = tsr_model_format_code_bytes(&p->format, a->cols);
    p->meta_stride = tsr_model_format_meta_bytes(&p->format, a->cols);
    p->source_dtype = TSR_F32;
    p->squared_error = 0; /* relative to the file's values, the only known ones */
    p->report =
        (struct tsr_model_pack_report){ (double)NAN, (double)NAN, (double)NAN, (double)NAN, 0 };
    p->ordered = a->map.columns; /* the codes stay where they are */
    p->format_id = tsr_strdup(p->format.id);
    p->format.id = p->format_id;
    p->plugin = tsr_strdup(tsr_gguf_type_name(a->t->type, type));
    return p->format_id && p->plugin ? TSR_OK : tsr_fail_nomem(k->err, sizeof *p, a->t->name);
}

/* *out stays NULL for floats, which are no blocks, and for a shape that is not the model's, which binding
 * then says. */
static tsr_status pack(struct pack *k, const struct part *a, struct tsr_model_packed **out)
{
    struct tsr_format f;
    if (!a->t || a->t->dims[0] != a->cols)
        return TSR_OK;
    if (!tsr_gguf_format(a->t->type, &f))
        return TSR_OK;
    struct tsr_model_packed *p = *out = tsr_new(1, sizeof *p);
    if (!p)
        return tsr_fail_nomem(k->err, sizeof *p, a->t->name);
    k->packed++;
    p->format = f;
    TSR_TRY(describe(k, a, p));
    if (k->hash) {
        tsr_hasher_update(k->hash, a->t->name, strlen(a->t->name) + 1);
        tsr_hasher_update(k->hash, &a->t->type, sizeof a->t->type);
        tsr_hasher_update(k->hash, &a->first, sizeof a->first);
        tsr_hasher_update(k->hash, a->t->dims, a->t->rank * sizeof *a->t->dims);
    }
    return k->headers_only ? TSR_OK : put_bytes(k, a, p);
}

/* Rows [first, first + rows) of a tensor that should have `all`. */
static void cut(struct part *a, const struct tsr_gguf_tensor *t, uint64_t first, uint64_t all)
{
    a->t = t && t->rank == 2 && t->dims[1] == all ? t : NULL;
    a->first = first;
    memset(&a->map, 0, sizeof a->map);
}

/* The matrix of one expert: a slice of the tensor of all of them, or a tensor. */
static void find_expert(const struct pack *k, uint64_t layer, enum tsr_linear_id id, struct part *a)
{
    const struct tsr_model_hparams *hp = &k->m->hp;
    const struct tsr_model_family  *f = k->m->storage->family;
    enum tsr_linear_id              kind = tsr_model_linear_kind(id);
    uint64_t expert = (uint64_t)(id - TSR_MODEL_EXPERTS) / TSR_EXPERT_LINEARS;
    for (uint32_t i = 0; i < f->n_roles && !a->t; i++) {
        struct tsr_model_role one;
        if (!tsr_model_role_has_expert(&f->roles[i], kind))
            continue;
        tsr_model_role_stacked(&f->roles[i], kind, &one);
        const struct tsr_gguf_tensor *t = tsr_gguf_of_role(k->g, &one, layer);
        if (!t) {
            cut(a, tsr_gguf_of_expert(k->g, &f->roles[i], layer, expert), 0, a->rows);
        } else if (t->rank == 3 && t->dims[1] == a->rows && t->dims[2] == hp->experts) {
            a->t = t;
            a->first = expert * a->rows;
        }
    }
}

/* Whether a role has a linear of a layer, alone or with others, and its rows among theirs. */
static bool has_linear(const struct tsr_model_hparams *hp, const struct tsr_model_role *r,
                       uint64_t layer, enum tsr_linear_id id, struct part *a, uint64_t *all)
{
    enum tsr_linear_id ids[TSR_MODEL_FUSED] = { r->lin };
    uint32_t           groups = 0;
    unsigned           n = tsr_model_fused(hp, r->part, ids, &groups), at = 0;
    if ((!n && r->part != TSR_MODEL_PART_LINEAR) || !tsr_model_role_in_layer(hp, r, layer))
        return false;
    n = n ? n : 1;
    while (at < n && ids[at] != id)
        at++;
    /* those of QKV_HEADS are ordered by q, k and v, and then by head */
    a->groups = r->part == TSR_MODEL_PART_QKV_HEADS ? 0 : groups;
    a->first = *all = 0;
    for (unsigned k = 0; k < n; k++) {
        uint64_t rows, cols;
        tsr_model_bind_shape(hp, layer, ids[k], &rows, &cols);
        a->first += k < at ? rows : 0;
        *all += rows;
    }
    a->first /= a->groups ? a->groups : 1;
    a->group_rows = a->groups ? *all / a->groups : 0;
    return at < n;
}

static bool find_role(const struct pack *k, uint64_t layer, enum tsr_linear_id id,
                      struct tsr_model_role *one, struct part *a, uint64_t *all)
{
    const struct tsr_model_family *f = k->m->storage->family;
    for (uint32_t i = 0; i < f->n_roles; i++)
        for (unsigned s = 0; tsr_model_role_split(&f->roles[i], s, one); s++)
            if (has_linear(&k->m->hp, one, layer, id, a, all))
                return true;
    return false;
}

/* A separate linear, or its rows of a tensor shared by several. */
static void find_linear(struct pack *k, uint64_t layer, enum tsr_linear_id id, struct part *a)
{
    struct tsr_model_role r;
    uint64_t              all = 0;
    tsr_model_bind_shape(&k->m->hp, layer, id, &a->rows, &a->cols);
    if (id >= TSR_MODEL_EXPERTS) {
        find_expert(k, layer, id, a);
        return;
    }
    if (!find_role(k, layer, id, &r, a, &all))
        return;
    cut(a, tsr_gguf_of_role(k->g, &r, layer), a->first, all);
    bool values = r.part == TSR_MODEL_PART_QKV_ROWS && id == TSR_MODEL_V;
    if (a->t && (values || r.part == TSR_MODEL_PART_LINEAR))
        tsr_gguf_order_of(k->m->storage->family, &k->m->hp, &r, &a->map);
    a->map.first = 0; /* of the values' rows alone */
}

static tsr_status pack_layer(struct pack *k, uint64_t l)
{
    for (uint64_t i = 0; i < k->m->hp.linears; i++) {
        struct part a = { 0 };
        find_linear(k, l, (enum tsr_linear_id)i, &a);
        TSR_TRY(pack(k, &a, &k->m->packed->lin[l][i]));
    }
    return TSR_OK;
}

/* The embedding or the head. */
static tsr_status pack_end(struct pack *k, enum tsr_model_part part, struct tsr_model_packed **out)
{
    const struct tsr_model *m = k->m;
    struct part             a = { .rows = m->hp.vocab, .cols = m->hp.embed_dim };
    cut(&a, tsr_gguf_of_role(k->g, tsr_gguf_role(m->storage->family, part), 0), 0, m->hp.vocab);
    return pack(k, &a, out);
}

static tsr_status pack_all(struct pack *k, bool keep)
{
    struct tsr_model *m = k->m;
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        TSR_TRY(pack_layer(k, l));
        for (uint64_t i = 0; !keep && i < m->hp.linears; i++)
            tsr_model_packed_drop(m->packed->lin[l][i]);
    }
    TSR_TRY(pack_end(k, TSR_MODEL_PART_EMBED, &m->packed->embed));
    if (!m->hp.tied)
        return pack_end(k, TSR_MODEL_PART_HEAD, &m->packed->head);
    m->packed->head = m->packed->embed;
    return TSR_OK;
}

/* A layer whose matrices are there without their bytes. */
static tsr_status read_again(void *self, uint64_t layer, struct tsr_err *err)
{
    struct pack *k = self;
    k->err = err;
    for (uint64_t i = 0; i < k->m->hp.linears; i++) {
        tsr_model_packed_destroy(k->m->packed->lin[layer][i]);
        k->m->packed->lin[layer][i] = NULL;
    }
    TSR_TRY(pack_layer(k, layer));
    return tsr_file_unchanged(k->file, err);
}

static tsr_status keep_reader(const struct pack *k, struct tsr_model_layer_reader *reader)
{
    struct pack *own = tsr_new(1, sizeof *own);
    if (!own)
        return tsr_fail_nomem(k->err, sizeof *own, k->g->path);
    *own = *k;
    own->hash = NULL;
    return tsr_model_layer_reader_set(reader, k->m, own, read_again, free, k->err);
}

/* One line of what costs memory. */
static tsr_status say(const struct pack *k)
{
    const struct tsr_model_family *f = k->m->storage->family;
    uint64_t                       wide = 0;
    for (uint64_t i = 0; i < k->g->n && !k->headers_only; i++) {
        struct tsr_gguf_map map;
        bool                is = false;
        TSR_TRY(tsr_gguf_map(k->g, f, &k->m->hp, &k->g->tensors[i], &map, &is, k->err));
        wide += is && map.order == TSR_GGUF_HALVES && !tsr_gguf_dtype(k->g->tensors[i].type);
    }
    if (wide)
        tsr_logf(
            TSR_LOG_INFO,
            "%s: %llu matrices that are stored as attn_k_b and attn_v_b are widened to F32, since "
            "their blocks lie across rows; %llu run packed",
            k->g->path, (unsigned long long)wide, (unsigned long long)k->packed);
    return TSR_OK;
}

static void count(struct tsr_model *m, const struct tsr_model_packed *p)
{
    m->parameters += p ? p->rows * p->cols : 0;
    m->bytes += p ? tsr_model_packed_bytes(p) : 0;
}

tsr_status tsr_gguf_overlay(const struct tsr_checkpoint_shards *s, struct tsr_model *m,
                            bool headers_only, struct tsr_hasher *hash,
                            struct tsr_model_layer_reader *reader, struct tsr_err *err)
{
    struct pack k = { .g = tsr_gguf_of(s),
                      .file = &s->files[0].file,
                      .m = m,
                      .headers_only = headers_only,
                      .hash = hash,
                      .err = err };
    TSR_TRY(tsr_model_overlay_create(&m->packed, m->hp.layers, m->hp.linears, err));
    TSR_TRY(pack_all(&k, reader == NULL));
    TSR_TRY(say(&k));
    if (k.packed == 0) {
        tsr_model_overlay_destroy(m->packed);
        m->packed = NULL;
        return TSR_OK;
    }
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++)
            count(m, m->packed->lin[l][i]);
    count(m, m->packed->embed);
    if (m->packed->head != m->packed->embed)
        count(m, m->packed->head);
    return reader ? keep_reader(&k, reader) : TSR_OK;
}
