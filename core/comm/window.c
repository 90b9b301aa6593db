/* Sums in windows: which ones, and when the ranks agree on having them. */
#include "comm/window.h"

#include "base/mem.h"
#include "comm/internal.h"

/* The wire of messages whose sums are the same without them: those that are coded alike on all ranks.  The answer is the
 * same on all ranks. */
static bool has_wire(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols,
                     struct tsr_codec_wire *w)
{
    const struct tsr_codec_wire_v1 *t = NULL;
    void                           *self = tsr_comm_instance(c, false, 0);
    uint64_t                        bytes;
    *w = (struct tsr_codec_wire){ .struct_size = sizeof *w };
    if (c->iface->extension)
        t = c->iface->extension(self, TSR_CODEC_WIRE);
    if (!t || !t->wire || t->wire(self, 0, 0, cols, w, NULL) != TSR_OK || !w->same)
        return false;
    return tsr_mul(w->row_bytes, rows, &bytes) && bytes <= TSR_COMM_WINDOW_MOST;
}

/* The slices that ranks add in two steps.  NULL: each rank adds all, as with one step; without loss both are the same. */
static const uint64_t *slices(const struct tsr_comm_coder *c, const struct tsr_codec_wire *w,
                              uint64_t border[TSR_WINDOW_RANKS + 1])
{
    uint64_t first, end;
    if (c->algorithm != TSR_COMM_TWO_STEP || (w->kind == TSR_WIRE_PLAIN && w->dtype == TSR_F32))
        return NULL;
    for (uint32_t r = 0; r < c->ranks; r++) {
        tsr_comm_slice(w->cols, c->ranks, r, &first, &end);
        border[r] = first;
    }
    border[c->ranks] = w->cols;
    return border;
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
                                   uint64_t rows, uint64_t cols, struct tsr_err *err)
{
    struct tsr_codec_wire wire;
    return g->window.met || !has_wire(c, rows, cols, &wire) ? TSR_OK : meet(g, false, err);
}

tsr_status tsr_comm_window_sum(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                               const struct tsr_backend_v1 *backend, void *self,
                               const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct tsr_comm_window *w = &g->window;
    struct tsr_codec_wire   wire;
    uint64_t                border[TSR_WINDOW_RANKS + 1];
    *done = false;
    if (!has_wire(c, x->rows, x->cols, &wire))
        return TSR_OK;
    if (!w->met) {
        w->table = backend->extension(self, TSR_BACKEND_WINDOW);
        w->self = self;
        TSR_TRY(meet(g, w->table != NULL, err));
    }
    if (!w->w.ranks)
        return TSR_OK;
    const uint64_t *by = slices(c, &wire, border);
    if (x->rows > w->table->room(self, &w->w, &wire, by))
        return TSR_OK;
    *done = true;
    return w->table->sum(self, &w->w, w->turn++, &wire, by, x, err);
}

void tsr_comm_window_end(struct tsr_comm_window *w)
{
    if (w->turn)
        w->table->forget(w->self);
}
