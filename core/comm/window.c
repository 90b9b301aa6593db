/* Sums in windows: which ones, and when the ranks agree on having them. */
#include "comm/window.h"

#include "base/mem.h"
#include "comm/internal.h"

/* The type of the numbers in messages of codec `plain` whose sums are the same without them: those that are coded once,
 * or without loss.  0: others.  The same on all ranks. */
static uint32_t type_of(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols)
{
    const struct tsr_codec_wire_v1 *t = NULL;
    struct tsr_codec_wire           w = { .struct_size = sizeof w };
    void                           *self = tsr_comm_instance(c, false, 0);
    uint64_t                        bytes;
    if (c->iface->extension)
        t = c->iface->extension(self, TSR_CODEC_WIRE);
    if (!t || !t->wire || t->wire(self, 0, 0, cols, &w, NULL) != TSR_OK)
        return 0;
    if (w.kind != TSR_WIRE_PLAIN || (c->algorithm != TSR_COMM_ALL_GATHER && w.dtype != TSR_F32))
        return 0;
    return tsr_mul(w.row_bytes, rows, &bytes) && bytes <= TSR_COMM_WINDOW_MOST ? w.dtype : 0;
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
    return g->window.met || !type_of(c, rows, cols) ? TSR_OK : meet(g, false, err);
}

tsr_status tsr_comm_window_sum(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                               const struct tsr_backend_v1 *backend, void *self,
                               const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    struct tsr_comm_window *w = &g->window;
    const uint32_t          dtype = type_of(c, x->rows, x->cols);
    *done = false;
    if (!dtype)
        return TSR_OK;
    if (!w->met) {
        w->table = backend->extension(self, TSR_BACKEND_WINDOW);
        w->self = self;
        TSR_TRY(meet(g, w->table != NULL, err));
    }
    if (!w->w.ranks || x->rows * x->cols * (dtype == TSR_F32 ? 4 : 2) > w->table->room(self, &w->w))
        return TSR_OK;
    *done = true;
    return w->table->sum(self, &w->w, w->turn++, dtype, x, err);
}

void tsr_comm_window_end(struct tsr_comm_window *w)
{
    if (w->turn)
        w->table->forget(w->self);
}
