/* Sums in windows: which ones, and when the ranks agree on having them. */
#include "comm/window.h"

#include "base/mem.h"
#include "comm/internal.h"

#include <stdlib.h>
#include <string.h>

/* Codes of a sum, and their wires. */
struct codes {
    struct tsr_window_codes c;
    uint64_t                border[TSR_WINDOW_RANKS + 1];
    struct tsr_codec_wire   first[TSR_WINDOW_RANKS * TSR_WINDOW_RANKS], second[TSR_WINDOW_RANKS];
};

static bool wire_of(const struct tsr_comm_coder *c, bool second, uint32_t slice, uint32_t site,
                    uint32_t source, uint64_t cols, struct tsr_codec_wire *w)
{
    const struct tsr_codec_wire_v1 *t = NULL;
    void                           *self = tsr_comm_instance(c, second, slice);
    *w = (struct tsr_codec_wire){ .struct_size = sizeof *w };
    if (c->iface->extension)
        t = c->iface->extension(self, TSR_CODEC_WIRE);
    return t && t->wire && t->wire(self, site, source, cols, w, NULL) == TSR_OK;
}

/* The wires of each rank and slice. */
static bool has_wires(const struct tsr_comm_coder *c, uint32_t site, struct codes *k)
{
    const bool     two = k->c.border != NULL;
    const uint32_t slices = two ? c->ranks : 1;
    for (uint32_t i = 0; i < slices; i++) {
        const uint64_t cols = two ? k->border[i + 1] - k->border[i] : k->c.cols;
        for (uint32_t r = 0; r < c->ranks && cols; r++)
            if (!(two && r == i) &&
                !wire_of(c, false, i, site, r, cols, &k->first[i * c->ranks + r]))
                return false;
        if (two && cols && !wire_of(c, true, i, site, i, cols, &k->second[i]))
            return false;
    }
    k->c.second = two ? k->second : NULL;
    return true;
}

/* Bytes of a row of a rank's numbers on the wire, the largest of all slices' sources; 0: codes of no wire.  The answer is
 * the same on all ranks. */
static uint64_t describe(const struct tsr_comm_coder *c, uint32_t site, uint64_t cols,
                         struct codes *k)
{
    uint64_t bytes = 0, first, end;
    memset(k, 0, sizeof *k);
    k->c = (struct tsr_window_codes){ .struct_size = sizeof k->c, .cols = cols, .first = k->first };
    if (c->ranks > TSR_WINDOW_RANKS)
        return 0;
    if (c->algorithm == TSR_COMM_TWO_STEP) {
        for (uint32_t r = 0; r < c->ranks; r++) {
            tsr_comm_slice(cols, c->ranks, r, &first, &end);
            k->border[r] = first;
        }
        k->border[c->ranks] = cols;
        k->c.border = k->border;
    }
    if (wire_of(c, false, 0, 0, 0, cols, k->first) && k->first->same) {
        /* without loss both algorithms are the same, and one step is faster */
        if (k->first->kind == TSR_WIRE_PLAIN && k->first->dtype == TSR_F32)
            k->c.border = NULL;
        return k->first->row_bytes;
    }
    memset(k->first, 0, sizeof k->first);
    if (!has_wires(c, site, k))
        return 0;
    for (uint32_t i = 0; i < (k->c.border ? c->ranks : 1); i++)
        bytes += k->first[i * c->ranks + (k->c.border && i == 0)].row_bytes;
    return bytes;
}

/* The entry of a sum, made at the first one; NULL: no memory. */
static struct tsr_comm_window_sums *entry(struct tsr_comm_window *w, const struct tsr_comm_coder *c,
                                          uint32_t site, uint64_t cols, struct codes *k)
{
    struct tsr_comm_window_sums *e;
    for (uint64_t i = 0; i < w->n_sums; i++) {
        const uint64_t at = w->at + i < w->n_sums ? w->at + i : w->at + i - w->n_sums;
        e = &w->sums[at];
        if (e->coder == c && e->cols == cols && (e->any_site || e->site == site)) {
            w->at = at + 1 < w->n_sums ? at + 1 : 0;
            return e;
        }
    }
    if (w->n_sums == w->cap_sums) {
        const uint64_t cap = w->cap_sums ? 2 * w->cap_sums : 16;
        e = realloc(w->sums, cap * sizeof *e);
        if (!e)
            return NULL;
        w->sums = e;
        w->cap_sums = cap;
    }
    e = &w->sums[w->n_sums++];
    w->at = 0;
    *e = (struct tsr_comm_window_sums){ .coder = c, .cols = cols, .site = site };
    e->row_bytes = describe(c, site, cols, k);
    e->any_site = k->first->same;
    return e;
}

/* May it go through a window, if the ranks have one?  The answer is the same on all ranks. */
static bool fits(const struct tsr_comm_window_sums *e, uint64_t rows)
{
    uint64_t bytes;
    return e->row_bytes && tsr_mul(e->row_bytes, rows, &bytes) && bytes <= TSR_COMM_WINDOW_MOST;
}

/* All ranks come here in the same sum. */
static tsr_status meet(struct tsr_comm_group *g, bool able, struct tsr_err *err)
{
    const struct tsr_transport_v1        *t = g->port.iface;
    const struct tsr_transport_window_v1 *there =
        t->extension ? t->extension(g->port.self, TSR_TRANSPORT_WINDOW) : NULL;
    if (g->window.met)
        return TSR_OK;
    g->window.met = true;
    g->window.w.struct_size = sizeof g->window.w;
    return there ? there->meet(g->port.self, able, g->traffic.deadline_us, &g->window.w, err)
                 : TSR_OK;
}

tsr_status tsr_comm_window_decline(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                                   uint32_t site, uint64_t rows, uint64_t cols, struct tsr_err *err)
{
    struct codes k;
    if (g->window.met)
        return TSR_OK;
    const struct tsr_comm_window_sums e = { .row_bytes = describe(c, site, cols, &k) };
    return fits(&e, rows) ? meet(g, false, err) : TSR_OK;
}

/* Of the first sum of an entry: the backend's part of it, unless it does not add so. */
static tsr_status load(struct tsr_comm_window *w, struct tsr_comm_window_sums *e, uint32_t site,
                       struct codes *k, struct tsr_err *err)
{
    struct tsr_errbuf why = TSR_ERRBUF(why);
    if (describe(e->coder, site, e->cols, k) == 0)
        return TSR_OK;
    const tsr_status st = w->table->load(w->self, &w->w, &k->c, &e->loaded, &why.err);
    if (st == TSR_OK)
        return TSR_OK;
    e->loaded = NULL;
    e->row_bytes = 0;
    return st == TSR_E_UNSUPPORTED ? TSR_OK : tsr_err_copy(err, st, &why.err);
}

tsr_status tsr_comm_window_sum(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                               uint32_t site, const struct tsr_backend_v1 *backend, void *self,
                               const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct tsr_comm_window *w = &g->window;
    struct codes            k;
    *done = false;
    if (w->met && !w->w.ranks)
        return TSR_OK;
    struct tsr_comm_window_sums *e = entry(w, c, site, x->cols, &k);
    if (!e)
        return tsr_fail_nomem(err, (w->n_sums + 1) * sizeof *e, "sums in windows");
    if (!fits(e, x->rows))
        return TSR_OK;
    if (!w->met) {
        w->table = backend->extension(self, TSR_BACKEND_WINDOW);
        w->self = self;
        TSR_TRY(meet(g, w->table != NULL, err));
    }
    if (!w->w.ranks)
        return TSR_OK;
    if (!e->loaded)
        TSR_TRY(load(w, e, site, &k, err));
    if (!e->loaded || x->rows > w->table->room(w->self, &w->w, e->loaded))
        return TSR_OK;
    *done = true;
    return w->table->sum(w->self, &w->w, w->turn++, e->loaded, x, err);
}

void tsr_comm_window_end(struct tsr_comm_window *w)
{
    if (w->turn)
        w->table->forget(w->self);
    for (uint64_t i = 0; i < w->n_sums; i++)
        if (w->sums[i].loaded)
            w->table->free(w->self, w->sums[i].loaded);
    free(w->sums);
}
