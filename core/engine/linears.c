/* Runs the linears of a site on its input, and adds compensation: for one token in one call if the device
 * supports that, else one linear after the other; and the hooks around them. */
#include "engine/compensator.h"

#include "compensate/compensation.h"

static const struct tsr_backend_compensate_v1 *table_of(struct tsr_engine_device *d)
{
    if (!d->asked_site) {
        const struct tsr_backend_compensate_v1 *t =
            d->iface->extension ? d->iface->extension(d->self, TSR_BACKEND_COMPENSATE) : NULL;
        d->asked_site = true;
        d->site = t && TSR_HAS(struct tsr_backend_compensate_v1, t, site) ? t : NULL;
    }
    return d->site;
}

/* The site's residuals if its token is compensated as the linears run, or NULL.  Several ranks compensate what
 * their products are partial sums of afterwards. */
static struct tsr_engine_comp_site *compensated(const struct tsr_engine *e, uint64_t layer,
                                                enum tsr_site site)
{
    struct tsr_engine_comp_site *s = e->comp && e->comp->site ? &e->comp->site[layer][site] : NULL;
    return s && s->n && s->count && e->comp->now.n ? s : NULL;
}

static bool in_parts(const struct tsr_engine *e, enum tsr_site site)
{
    return e->tp.ranks > 1 && tsr_model_site_kind(site) == TSR_MODEL_SITE_DOWN_IN &&
           !tsr_engine_comp_is_whole(e, site);
}

/* Lists that the host creates or reads require single steps. */
static bool listed_there(const struct tsr_engine_compensator *c,
                         const struct tsr_engine_comp_place  *here)
{
    return here->dev == here->data && c->use.select == TSR_COMPENSATE_SELECT_DYNAMIC &&
           !c->use.recall;
}

struct job {
    struct tsr_op            op[TSR_COMPENSATE_LINEARS];
    struct tsr_tensor        list;
    struct tsr_select_op     select;
    struct tsr_compensate_op add;
    struct tsr_site_op       all;
};

static void add_compensation(const struct tsr_engine_comp_place *here,
                             const struct tsr_engine_comp_site *s, const struct tsr_tensor *in,
                             const struct tsr_tensor *const *outs, struct job *j)
{
    j->list = here->list;
    j->list.rows = 1;
    j->list.cols = 1 + s->count;
    j->list.row_stride = j->list.cols * sizeof(uint32_t);
    j->select = (struct tsr_select_op){
        .struct_size = sizeof j->select, .k = s->k, .x = in, .floors = s->floors, .list = &j->list
    };
    j->add = (struct tsr_compensate_op){ .struct_size = sizeof j->add,
                                         .n = (uint32_t)s->n,
                                         .x = in,
                                         .list = &j->list,
                                         .blocks = s->blocks };
    for (uint64_t i = 0; i < s->n; i++) {
        j->add.residual[i] = s->residual[i];
        j->add.out[i] = outs[s->which[i]];
    }
    j->all.select = &j->select;
    j->all.add = &j->add;
}

static bool same_order(const struct tsr_engine_linear_dev *a, const struct tsr_engine_linear_dev *b)
{
    return a->order.buffer == b->order.buffer && a->dev == b->dev;
}

/* *done false: the device does not do that, or the linears need inputs in several orders. */
static tsr_status run_together(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                               const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                               bool *done, struct tsr_err *err)
{
    struct tsr_engine_device               *dev = tsr_engine_site_device(e, layer, site);
    const struct tsr_backend_compensate_v1 *table = in->rows == 1 ? table_of(dev) : NULL;
    const struct tsr_engine_comp_site      *s = compensated(e, layer, site);
    struct tsr_compensation_linears         of = tsr_compensation_linears(e->model, layer, site);
    struct job                              j;
    const struct tsr_engine_linear_dev     *first = NULL;
    struct tsr_tensor                       sorted = *in;
    *done = false;
    if (!table ||
        (s && (!listed_there(e->comp, tsr_engine_comp_place(e, layer, site)) || in_parts(e, site))))
        return TSR_OK;
    j.all = (struct tsr_site_op){ .struct_size = sizeof j.all };
    for (uint32_t i = 0; i < of.n; i++) {
        const struct tsr_engine_linear_dev *l = &e->layers[layer].lin[of.id[i]];
        const struct tsr_tensor            *out = outs[i];
        if (!out || !l->w)
            continue;
        first = first ? first : l;
        if (!same_order(l, first) || !l->w->handle || j.all.n == TSR_COMPENSATE_LINEARS)
            return TSR_OK;
        j.all.linear[j.all.n] = &j.op[j.all.n];
        j.op[j.all.n++] = tsr_engine_linear_op(l, &sorted, out);
    }
    if (first && first->order.buffer) { /* residuals have their columns in the matrix's order */
        if (s)
            return TSR_OK;
        TSR_TRY(tsr_engine_put_in_order(e, first, in, 0, &sorted, err));
    }
    if (s)
        add_compensation(tsr_engine_comp_place(e, layer, site), s, in, outs, &j);
    if (e->on_layer)
        e->on_layer(e->layer_ctx, e->at_layer, false);
    tsr_status st = table->site(dev->self, NULL, &j.all, err);
    *done = st != TSR_E_UNSUPPORTED;
    if (st == TSR_OK && s)
        e->comp->done.selected += s->count;
    return st == TSR_OK || !*done
               ? TSR_OK
               : tsr_err_prefix(err, st, "layer %llu, %s", (unsigned long long)layer,
                                TSR_MODEL_SITE_NAME(site));
}

/* One linear after the other; those with one order of columns after each other, on an input that is put into it once. */
static tsr_status run_each(struct tsr_engine *e, uint64_t layer,
                           const struct tsr_compensation_linears *of, const struct tsr_tensor *in,
                           const struct tsr_tensor *const *outs, struct tsr_err *err)
{
    const struct tsr_engine_linear_dev *l[TSR_ENGINE_SITE_LINEARS];
    for (uint32_t i = 0; i < of->n; i++) {
        l[i] = &e->layers[layer].lin[of->id[i]];
        if (!outs[i] || !l[i]->w)
            l[i] = NULL;
    }
    for (uint32_t i = 0; i < of->n; i++) {
        const struct tsr_engine_linear_dev *first = l[i];
        struct tsr_tensor                   x = *in;
        if (first && first->order.buffer)
            TSR_TRY(tsr_engine_put_in_order(e, first, in, 0, &x, err));
        for (uint32_t j = i; first && j < of->n; j++) {
            if (!l[j] || !same_order(l[j], first))
                continue;
            TSR_TRY(tsr_engine_run_linear_on(e, l[j], &x, outs[j], err));
            l[j] = NULL;
        }
    }
    return TSR_OK;
}

tsr_status tsr_engine_run_site(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                               const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                               struct tsr_err *err)
{
    bool                            done;
    struct tsr_compensation_linears of = tsr_compensation_linears(e->model, layer, site);
    TSR_TRY(run_together(e, layer, site, in, outs, &done, err));
    if (done)
        return TSR_OK;
    TSR_TRY(run_each(e, layer, &of, in, outs, err));
    return e->hooks.outputs ? e->hooks.outputs(e, layer, site, in, outs, err) : TSR_OK;
}

#define TOGETHER 64u /* products of a call */

const struct tsr_backend_linears_v1 *tsr_engine_products_table(struct tsr_engine_device *d)
{
    if (!d->asked_linears) {
        d->asked_linears = true;
        d->linears = d->iface->extension ? d->iface->extension(d->self, TSR_BACKEND_LINEARS) : NULL;
    }
    return d->linears;
}

static bool same_rows(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->rows == b->rows &&
           a->cols == b->cols;
}

/* The inputs x of the first *n products, in the order of their weights' columns; products that follow each other share
 * one.  Fewer, where the place for such inputs is full; it has room for the first. */
static tsr_status order_inputs(struct tsr_engine *e, const struct tsr_engine_product *p,
                               uint32_t *n, struct tsr_tensor *x, struct tsr_err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < *n; i++) {
        x[i] = p[i].in;
        if (!p[i].l->order.buffer)
            continue;
        if (i && same_order(p[i].l, p[i - 1].l) && same_rows(&p[i].in, &p[i - 1].in)) {
            x[i] = x[i - 1];
            continue;
        }
        if (at + x[i].rows > tsr_engine_ordered(e, p[i].l)->rows) {
            *n = i;
            return TSR_OK;
        }
        TSR_TRY(tsr_engine_put_in_order(e, p[i].l, &p[i].in, at, &x[i], err));
        at += x[i].rows;
    }
    return TSR_OK;
}

/* *done false: the device does not do that. */
static tsr_status run_some(struct tsr_engine *e, const struct tsr_engine_product *p,
                           const struct tsr_tensor *x, uint32_t n, bool *done, struct tsr_err *err)
{
    struct tsr_engine_device            *dev = tsr_engine_linear_device(e, p->l);
    const struct tsr_backend_linears_v1 *table = n > 1 ? tsr_engine_products_table(dev) : NULL;
    struct tsr_op                        op[TOGETHER];
    const struct tsr_op                 *list[TOGETHER];
    *done = false;
    for (uint32_t i = 0; table && i < n; i++) {
        if (!p[i].l->w->handle)
            return TSR_OK;
        op[i] = tsr_engine_linear_op(p[i].l, &x[i], &p[i].out);
        list[i] = &op[i];
    }
    if (!table)
        return TSR_OK;
    if (e->on_layer)
        e->on_layer(e->layer_ctx, e->at_layer, false);
    tsr_status st = table->linears(dev->self, NULL, list, n, err);
    *done = st != TSR_E_UNSUPPORTED;
    return *done ? st : TSR_OK;
}

tsr_status tsr_engine_run_products(struct tsr_engine *e, const struct tsr_engine_product *p,
                                   uint64_t n, struct tsr_err *err)
{
    for (uint32_t some; n > 0; p += some, n -= some) {
        struct tsr_tensor x[TOGETHER];
        bool              done;
        some = n < TOGETHER ? (uint32_t)n : TOGETHER;
        TSR_TRY(order_inputs(e, p, &some, x, err));
        TSR_TRY(run_some(e, p, x, some, &done, err));
        for (uint32_t i = 0; !done && i < some; i++)
            TSR_TRY(tsr_engine_run_linear_on(e, p[i].l, &x[i], &p[i].out, err));
    }
    return TSR_OK;
}

tsr_status tsr_engine_run_linears(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                  const struct tsr_tensor *in, const struct tsr_tensor *const *outs,
                                  struct tsr_err *err)
{
    if (e->hooks.input)
        TSR_TRY(e->hooks.input(e, layer, site, in, err));
    return e->hooks.run[site](e, layer, site, in, outs, err);
}
