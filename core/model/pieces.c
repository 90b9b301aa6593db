/* A layer in pieces: one stored tensor at a time, in memory of the caller's. */
#include "model/bind.h"

static const struct tsr_layer_storage *storage_of(const struct tsr_model *m, uint64_t layer)
{
    return m->storage && m->storage->layers ? &m->storage->layers[layer] : NULL;
}

/* What sets a linear's data when the layer is opened, or NULL. */
static const struct tsr_patch *patch_of(const struct tsr_model *m, uint64_t layer,
                                        enum tsr_linear_id id)
{
    const struct tsr_layer_storage *y = storage_of(m, layer);
    for (uint64_t i = 0; y && i < y->n_patches; i++) {
        const struct tsr_patch *p = &m->storage->patches[y->first_patch + i];
        if (p->data == &m->layers[layer].lin[id].w.data)
            return p;
    }
    return NULL;
}

/* The stored tensor in which a patch points: loads are sorted by place. */
static uint64_t load_of(const struct tsr_model *m, uint64_t layer, const struct tsr_patch *p)
{
    const struct tsr_layer_storage *y = storage_of(m, layer);
    uint64_t                        i = y->first_load + 1;
    while (i < y->first_load + y->n_loads && m->storage->loads[i].at <= p->at)
        i++;
    return i - 1;
}

uint32_t tsr_model_pieces(const struct tsr_model *m, uint64_t layer,
                          struct tsr_layer_piece piece[TSR_LINEARS])
{
    uint32_t n = 0;
    for (unsigned id = 0; id < TSR_LINEARS; id++) {
        if (m->layers[layer].lin[id].w.rows == 0)
            continue;
        const struct tsr_patch *p = patch_of(m, layer, (enum tsr_linear_id)id);
        struct tsr_layer_piece new = { .linears = 1u << id };
        if (p) {
            new.load = load_of(m, layer, p);
            const struct tsr_st_tensor *t = m->storage->loads[new.load].src->t;
            new.bytes = t->end - t->begin;
        }
        uint32_t i = 0;
        while (i < n && !(p && piece[i].bytes && piece[i].load == new.load))
            i++;
        if (i == n)
            piece[n++] = new;
        else
            piece[i].linears |= new.linears;
    }
    return n;
}

/* Points what lies in a piece at its place from `to` on; NULL: nowhere. */
static void point(const struct tsr_model *m, uint64_t layer, const struct tsr_layer_piece *piece,
                  unsigned char *to)
{
    for (unsigned id = 0; id < TSR_LINEARS; id++) {
        if (!(piece->linears >> id & 1u))
            continue;
        const struct tsr_patch *p = patch_of(m, layer, (enum tsr_linear_id)id);
        *p->data = to ? to + (p->at - m->storage->loads[piece->load].at) : NULL;
    }
}

tsr_status tsr_model_read_piece(const struct tsr_model *m, uint64_t layer,
                                const struct tsr_layer_piece *piece, void *to, struct tsr_err *err)
{
    if (piece->bytes == 0)
        return TSR_OK;
    if (storage_of(m, layer)->opens)
        return tsr_fail(err, TSR_E_BUG, "layer %llu is read in pieces while it is open",
                        (unsigned long long)layer);
    TSR_TRY(tsr_load_unchanged(m, &m->storage->loads[piece->load], to, err));
    point(m, layer, piece, to);
    return TSR_OK;
}

void tsr_model_forget_piece(const struct tsr_model *m, uint64_t layer,
                            const struct tsr_layer_piece *piece)
{
    if (piece->bytes)
        point(m, layer, piece, NULL);
}
