/* Which channels of a site are compensated: the device selects, or has lists of the host. */
#include "base/mem.h"
#include "compensate/compensation.h"
#include "engine/compensator.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_engine_compensate_hold(struct tsr_engine *e, uint64_t layer, enum tsr_site site,
                                      struct tsr_err *err)
{
    struct tsr_engine_comp_site *s = &e->comp->site[layer][site];
    struct tsr_engine_device    *dev = tsr_engine_comp_place(e, layer, site)->dev;
    uint64_t                     cols = 1 + s->count, rows = e->n_slots;
    tsr_engine_device_drop_tensor(dev, &s->held);
    if (!s->fixed || !s->there || !s->count)
        return TSR_OK;
    uint32_t *lists = tsr_new_rows(rows, cols, sizeof *lists);
    if (!lists)
        return tsr_fail_nomem(err, rows * cols * sizeof *lists, "a static selection");
    for (uint64_t i = 0; i < rows; i++)
        memcpy(lists + i * cols, s->fixed, cols * sizeof *lists);
    tsr_status st =
        tsr_engine_device_tensor(dev, TSR_U32, rows, cols, 0, "a static selection", &s->held, err);
    if (st == TSR_OK)
        st = tsr_engine_device_upload(dev, &s->held, lists, err);
    free(lists);
    return st;
}

/* The device has the static lists of so many tokens. */
static bool is_held(const struct tsr_engine_compensator *c, const struct tsr_engine_comp_site *s)
{
    return s->held.buffer && c->now.n <= s->held.rows;
}

struct tsr_tensor tsr_engine_comp_lists(const struct tsr_engine_compensator *c,
                                        const struct tsr_engine_comp_site   *s)
{
    struct tsr_tensor t = is_held(c, s) ? s->held : c->here->list;
    t.rows = c->now.n;
    t.cols = 1 + s->count;
    t.row_stride = t.cols * sizeof(uint32_t);
    return t;
}

/* Of a compensated row. */
static uint64_t position_of(const struct tsr_engine *e, uint64_t i)
{
    const struct tsr_engine_comp_rows *now = &e->comp->now;
    uint64_t                           row = now->at[i];
    uint32_t                           spans[2];
    row = now->tokens ? now->tokens[row] : row;
    memcpy(spans,
           e->feed.host + e->feed.spans[TSR_ENGINE_CACHE_CONTEXT].offset + row * sizeof spans,
           sizeof spans);
    return spans[1];
}

/* Lists created by the host, into c->lists; c->x has the inputs if they are needed. */
static void host_lists(struct tsr_engine *e, const struct tsr_engine_comp_site *s)
{
    struct tsr_engine_compensator *c = e->comp;
    for (uint64_t i = 0; i < c->now.n; i++) {
        uint32_t *list = c->lists + i * (1 + s->count);
        if (s->fixed)
            memcpy(list, s->fixed, (1 + s->count) * sizeof *list);
        else if (c->use.select == TSR_COMPENSATE_SELECT_RANDOM)
            tsr_compensate_select_random(c->use.seed, s->number, position_of(e, i), s->channels,
                                         s->count, list);
        else
            tsr_compensate_select_exact(c->x + i * s->channels, s->channels, s->count, list,
                                        c->scratch);
    }
}

static void count_recall(struct tsr_engine_compensator *c, const struct tsr_engine_comp_site *s)
{
    for (uint64_t i = 0; i < c->now.n; i++) {
        tsr_compensate_select_exact(c->x + i * s->channels, s->channels, s->count, c->exact,
                                    c->scratch);
        c->done.exact += c->exact[0];
        c->done.common += tsr_compensate_select_common(c->lists + i * (1 + s->count), c->exact);
    }
}

tsr_status tsr_engine_comp_select(struct tsr_engine *e, const struct tsr_engine_comp_site *s,
                                  const struct tsr_tensor *x, const struct tsr_tensor *rows,
                                  struct tsr_err *err)
{
    struct tsr_engine_compensator *c = e->comp;
    struct tsr_tensor              list = tsr_engine_comp_lists(c, s);
    c->done.selected += c->now.n * s->count;
    if (c->use.select != TSR_COMPENSATE_SELECT_DYNAMIC) {
        if (!is_held(c, s)) {
            host_lists(e, s);
            TSR_TRY(tsr_engine_device_upload(c->here->dev, &list, c->lists, err));
        }
    } else {
        struct tsr_select_op op = { .struct_size = sizeof op,
                                    .k = s->k,
                                    .x = x,
                                    .rows = rows,
                                    .floors = s->floors,
                                    .list = &list };
        TSR_TRY(c->here->table->select(c->here->dev->self, NULL, &op, err));
    }
    if (!c->use.recall)
        return TSR_OK;
    TSR_TRY(tsr_engine_device_sync(c->here->dev, err));
    TSR_TRY(tsr_engine_device_download(c->here->dev, &list, c->lists, err));
    count_recall(c, s);
    return TSR_OK;
}
