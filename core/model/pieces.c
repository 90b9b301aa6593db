/* A layer in pieces: one stored tensor at a time, or the parts of it that a rank has, in memory of the
 * caller's. */
#include "model/pieces.h"

#include "base/f16.h"
#include "base/mem.h"
#include "model/bind.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define NO_LOAD UINT64_MAX
#define ALIGN   64u
#define BAND    (UINT64_C(1) << 20) /* bytes of rows that are read whole to take columns from */

static const struct tsr_model_layer_storage *storage_of(const struct tsr_model *m, uint64_t layer)
{
    return m->storage && m->storage->layers ? &m->storage->layers[layer] : NULL;
}

/* What sets a linear's data when the layer is opened, or NULL. */
static const struct tsr_model_patch *patch_of(const struct tsr_model *m, uint64_t layer,
                                              enum tsr_linear_id id)
{
    const struct tsr_model_layer_storage *y = storage_of(m, layer);
    for (uint64_t i = 0; y && i < y->n_patches; i++) {
        const struct tsr_model_patch *p = &m->storage->patches[y->first_patch + i];
        if (p->data == &m->layers[layer].lin[id].w.data)
            return p;
    }
    return NULL;
}

/* The stored tensor in which a patch points: loads are sorted by place. */
static uint64_t load_of(const struct tsr_model *m, uint64_t layer, const struct tsr_model_patch *p)
{
    const struct tsr_model_layer_storage *y = storage_of(m, layer);
    uint64_t                              i = y->first_load + 1;
    while (i < y->first_load + y->n_loads && m->storage->loads[i].at <= p->at)
        i++;
    return i - 1;
}

/* Bytes of a part, and those that it takes among others. */
static uint64_t bytes_of(const struct tsr_matrix *w, const struct tsr_model_slice *s)
{
    return s->rows * s->cols * tsr_dtype_size(w->dtype);
}

static uint64_t room_of(const struct tsr_matrix *w, const struct tsr_model_slice *s)
{
    return (bytes_of(w, s) + ALIGN - 1) / ALIGN * ALIGN;
}

static void measure(const struct tsr_model *m, uint64_t layer, struct tsr_model_layer_piece *piece)
{
    piece->bytes = piece->room = 0;
    for (uint64_t i = 0; i < piece->n && piece->load != NO_LOAD; i++) {
        const struct tsr_matrix *w = &m->layers[layer].lin[piece->lin[i].id].w;
        piece->bytes += bytes_of(w, &piece->lin[i].part);
        piece->room += room_of(w, &piece->lin[i].part);
    }
}

static uint64_t load_of_linear(const struct tsr_model *m, uint64_t layer, uint64_t id)
{
    const struct tsr_model_patch *p = patch_of(m, layer, (enum tsr_linear_id)id);
    return p ? load_of(m, layer, p) : NO_LOAD;
}

uint64_t tsr_model_pieces(const struct tsr_model *m, uint64_t layer,
                          struct tsr_model_layer_piece *piece, struct tsr_model_piece_linear *lin)
{
    uint64_t n = 0, at = 0;
    for (uint64_t id = 0; id < m->hp.linears; id++) {
        if (m->layers[layer].lin[id].w.rows == 0)
            continue;
        uint64_t load = load_of_linear(m, layer, id);
        bool     known = false;
        for (uint64_t i = 0; i < n && load != NO_LOAD; i++)
            known = known || piece[i].load == load;
        if (known)
            continue;
        piece[n] = (struct tsr_model_layer_piece){ .load = load, .lin = lin + at };
        for (uint64_t k = id; k < m->hp.linears; k++) { /* the others of its tensor */
            const struct tsr_matrix *w = &m->layers[layer].lin[k].w;
            if (k != id && (load == NO_LOAD || w->rows == 0 || load_of_linear(m, layer, k) != load))
                continue;
            lin[at++] =
                (struct tsr_model_piece_linear){ .id = (enum tsr_linear_id)k,
                                                 .part = { .rows = w->rows, .cols = w->cols } };
            piece[n].n++;
        }
        measure(m, layer, &piece[n++]);
    }
    return n;
}

void tsr_model_piece_cut(const struct tsr_model *m, uint64_t layer,
                         struct tsr_model_layer_piece *piece, uint64_t i,
                         const struct tsr_model_slice *s)
{
    piece->lin[i].part = *s;
    measure(m, layer, piece);
}

/* ---- reading ------------------------------------------------------------------ */

/* Rows of a linear in their stored tensor: `run` of them together, then `step` bytes on the next ones. */
struct place {
    const struct tsr_safetensors        *st;
    const struct tsr_safetensors_tensor *t;
    uint64_t                             at, row, run, step;
};

static struct place place_of(const struct tsr_model *m, const struct tsr_model_tensor_load *l,
                             const struct tsr_model_patch *p, const struct tsr_matrix *w)
{
    struct place to = { .st = &m->storage->shards.files[l->src->file],
                        .t = l->src->t,
                        .at = p->at - l->at,
                        .row = w->cols * tsr_dtype_size(w->dtype),
                        .run = w->rows };
    if (l->groups.n) { /* stored as [n][part][rows], laid out as [part][n][rows] */
        to.at /= l->groups.n;
        to.run = w->rows / l->groups.n;
        to.step = l->src->t->shape[0] / l->groups.n * to.row;
    }
    return to;
}

/* Columns of n contiguous rows.  Data that is converted on reading comes in bands of whole rows. */
static tsr_status read_columns(const struct place *p, uint64_t at, uint64_t n, uint64_t skip,
                               uint64_t bytes, unsigned char *to, struct tsr_err *err)
{
    if (!p->st->reader.read) {
        /* the disk's pages hold the neighbours' columns too, and want to be read in order */
        (void)posix_fadvise(p->st->file.fd, (off_t)(p->st->data_offset + p->t->begin + at),
                            (off_t)(n * p->row), POSIX_FADV_WILLNEED);
        for (uint64_t i = 0; i < n; i++)
            TSR_TRY(tsr_safetensors_read_part(p->st, p->t, at + i * p->row + skip, bytes,
                                              to + i * bytes, err));
        return TSR_OK;
    }
    uint64_t       most = BAND / p->row ? BAND / p->row : 1;
    unsigned char *band = tsr_new_aligned(most, p->row);
    if (!band)
        return tsr_fail_nomem(err, most * p->row, p->t->name);
    tsr_status st = TSR_OK;
    for (uint64_t first = 0; first < n && st == TSR_OK; first += most) {
        uint64_t k = n - first < most ? n - first : most;
        st = tsr_safetensors_read_part(p->st, p->t, at + first * p->row, k * p->row, band, err);
        for (uint64_t i = 0; i < k && st == TSR_OK; i++)
            memcpy(to + (first + i) * bytes, band + i * p->row + skip, bytes);
    }
    free(band);
    return st;
}

static tsr_status read_part(const struct place *p, const struct tsr_matrix *w,
                            const struct tsr_model_slice *s, unsigned char *to, struct tsr_err *err)
{
    uint64_t size = tsr_dtype_size(w->dtype), bytes = s->cols * size, end = s->row + s->rows;
    for (uint64_t r = s->row, n; r < end; r += n, to += n * bytes) {
        uint64_t in = r % p->run, at = p->at + r / p->run * p->step + in * p->row;
        n = p->run - in < end - r ? p->run - in : end - r;
        if (s->cols == w->cols)
            TSR_TRY(tsr_safetensors_read_part(p->st, p->t, at, n * bytes, to, err));
        else
            TSR_TRY(read_columns(p, at, n, s->col * size, bytes, to, err));
    }
    return TSR_OK;
}

/* A stored tensor whose rows are put into another order: it is read whole, and the parts are taken out. */
static tsr_status read_arranged(const struct tsr_model *m, uint64_t layer,
                                const struct tsr_model_tensor_load *l,
                                const struct tsr_model_layer_piece *piece, unsigned char *at,
                                struct tsr_err *err)
{
    uint64_t       bytes = l->src->t->end - l->src->t->begin;
    unsigned char *all = tsr_new_large(bytes);
    if (!all)
        return tsr_fail_nomem(err, bytes, l->src->t->name);
    tsr_status st = tsr_model_load_tensor(&m->storage->shards, l, all, NULL, NULL, err);
    for (uint64_t i = 0; i < piece->n && st == TSR_OK; i++) {
        struct tsr_model_piece_linear *part = &piece->lin[i];
        const struct tsr_matrix       *w = &m->layers[layer].lin[part->id].w;
        uint64_t             size = tsr_dtype_size(w->dtype), row = part->part.cols * size;
        const unsigned char *from = all + (patch_of(m, layer, part->id)->at - l->at) +
                                    part->part.row * w->cols * size + part->part.col * size;
        for (uint64_t r = 0; r < part->part.rows; r++)
            memcpy(at + r * row, from + r * w->cols * size, row);
        at += room_of(w, &part->part);
    }
    free(all);
    return st;
}

tsr_status tsr_model_read_piece(const struct tsr_model *m, uint64_t layer,
                                const struct tsr_model_layer_piece *piece, void *to,
                                struct tsr_err *err)
{
    const struct tsr_model_tensor_load *l =
        piece->load == NO_LOAD ? NULL : &m->storage->loads[piece->load];
    unsigned char *at = to;
    bool           arranged = l && (l->interleaved || l->transposed);
    if (arranged)
        TSR_TRY(read_arranged(m, layer, l, piece, at, err));
    for (uint64_t i = 0; i < piece->n; i++) {
        struct tsr_model_piece_linear *part = &piece->lin[i];
        const struct tsr_matrix       *all = &m->layers[layer].lin[part->id].w;
        if (!l) {
            part->w = tsr_model_matrix_slice(all, &part->part);
            continue;
        }
        struct place p = place_of(m, l, patch_of(m, layer, part->id), all);
        if (at && !arranged) /* a rank that has none of these experts has no room for any */
            TSR_TRY(read_part(&p, all, &part->part, at, err));
        /* the model's own data is another's business: who opens the layer meanwhile sets it */
        part->w = (struct tsr_matrix){ .struct_size = all->struct_size,
                                       .dtype = all->dtype,
                                       .name = all->name,
                                       .data = at,
                                       .rows = part->part.rows,
                                       .cols = part->part.cols,
                                       .row_stride = part->part.cols * tsr_dtype_size(all->dtype) };
        if (at)
            at += room_of(all, &part->part);
    }
    return l ? tsr_file_unchanged(&m->storage->shards.files[l->src->file].file, err) : TSR_OK;
}
