/* Links of a group: which ranks are connected over which transport, and the coordinator's ends. */
#include "base/mem.h"
#include "runtime/group_internal.h"
#include "runtime/thread.h"

#include <stdlib.h>

/* ---- edges ------------------------------------------------------------------- */

static void add_edge(struct tsr_runtime_group *c, uint32_t from, uint32_t to,
                     enum tsr_edge_kind kind, const struct tsr_runtime_layout_stage *over)
{
    struct tsr_runtime_edge *e = &c->edges[c->plan.n_edges++];
    *e = (struct tsr_runtime_edge){ .from = from, .to = to, .kind = kind, .epoch = c->plan.epoch };
    e->heads_over = e->rows_over = c->plan.transport;
    e->heads.fd = e->rows.fd = -1;
    if (!over)
        return;
    if (over->send_over)
        e->rows_over = over->send_over;
    e->codec[0] = over->send[0];
    e->codec[1] = over->send[1];
}

/* Every direction between connected ranks; runtime/layout.h defines the ranks. */
static void draw_edges(struct tsr_runtime_group *c)
{
    const struct tsr_runtime_layout *l = c->plan.layout;
    for (uint32_t r = 0; r < l->replicas; r++) {
        uint32_t first = tsr_runtime_layout_rank(l, r, 0, 0);
        uint32_t last = tsr_runtime_layout_rank(l, r, l->n_stages - 1, 0);
        uint32_t head = l->head_first ? first : last;
        if (first != 0)
            add_edge(c, 0, first, TSR_RUNTIME_EDGE_TOKENS, NULL);
        for (uint32_t t = 1; t < l->stages[0].ranks; t++)
            add_edge(c, first, first + t, TSR_RUNTIME_EDGE_ROWS, NULL);
        for (uint32_t s = 0; s + 1 < l->n_stages; s++)
            for (uint32_t t = 0; t < l->stages[s + 1].ranks; t++)
                add_edge(c,
                         tsr_runtime_layout_rank(l, r, s,
                                                 t % (l->stages[s].ranks ? l->stages[s].ranks : 1)),
                         tsr_runtime_layout_rank(l, r, s + 1, t), TSR_RUNTIME_EDGE_ROWS,
                         &l->stages[s]);
        if (head != last)
            add_edge(c, last, head, TSR_RUNTIME_EDGE_BACK, &l->stages[l->n_stages - 1]);
        if (head != 0)
            add_edge(c, head, 0, TSR_RUNTIME_EDGE_RESULT, NULL);
    }
}

tsr_status tsr_runtime_group_links(struct tsr_runtime_group *c, struct tsr_registry *r,
                                   struct tsr_err *err)
{
    const struct tsr_runtime_layout *l = c->plan.layout;
    uint64_t                         most = 2 * (uint64_t)c->ranks + 3 * (uint64_t)l->replicas;
    c->edges = tsr_new(most, sizeof *c->edges);
    c->plan.groups = tsr_new((uint64_t)l->replicas * l->n_stages, sizeof *c->plan.groups);
    if (!c->edges || !c->plan.groups)
        return tsr_fail_nomem(err, most * sizeof *c->edges, "links");
    draw_edges(c);
    c->plan.edges = c->edges;
    if (c->plan.peers)
        return tsr_runtime_group_mpi(c, err);
    for (uint32_t i = 0; i < c->plan.n_edges; i++)
        TSR_TRY(tsr_runtime_edge_create(&c->edges[i], r, err));
    struct tsr_comm_world *group = c->plan.groups;
    for (uint32_t k = 0; k < l->replicas; k++)
        for (uint32_t i = 0; i < l->n_stages; i++, group++) {
            const struct tsr_runtime_layout_stage *s = &l->stages[i];
            const char *over = s->collective_over ? s->collective_over : c->plan.transport;
            if (s->ranks > 1)
                TSR_TRY(tsr_comm_world_create(group, r, over, s->ranks, err));
        }
    return TSR_OK;
}

/* ---- the coordinator's threads ----------------------------------------------- */

static void feed(struct tsr_runtime_feeder *f)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (bool stop = false; !stop;) {
        struct tsr_runtime_micro_batch *b = tsr_runtime_queue_take(&f->queue);
        if (!b)
            return;
        stop = b->head.kind == TSR_RUNTIME_FRAME_STOP;
        tsr_status st = tsr_runtime_edge_send(&f->end, b, &e.err);
        tsr_runtime_micro_batch_free(b);
        if (st != TSR_OK) {
            if (st != TSR_E_CANCELLED)
                tsr_runtime_page_fail_by(f->group->plan.page, 0, st, &e.err);
            return;
        }
    }
}

static void collect(struct tsr_runtime_feeder *f)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (;;) {
        struct tsr_runtime_micro_batch *b = tsr_new(1, sizeof *b);
        if (!b) {
            tsr_runtime_page_fail_by(f->group->plan.page, 0,
                                     tsr_fail_nomem(&e.err, sizeof *b, "a result"), &e.err);
            return;
        }
        tsr_status st = tsr_runtime_edge_recv(&f->end, b, &f->group->plan.limits, &e.err);
        if (st != TSR_OK && st != TSR_E_CANCELLED)
            tsr_runtime_page_fail_by(f->group->plan.page, 0, st, &e.err);
        if (st != TSR_OK || b->head.kind == TSR_RUNTIME_FRAME_STOP) {
            tsr_runtime_micro_batch_free(b);
            return;
        }
        tsr_runtime_group_deliver(f->group, b);
    }
}

static void *talk(void *arg)
{
    struct tsr_runtime_feeder *f = arg;
    if (f->sends)
        feed(f);
    else
        collect(f);
    atomic_store(&f->returned, 1);
    return NULL;
}

struct tsr_runtime_queue *tsr_runtime_group_entry(struct tsr_runtime_group *c, uint32_t replica)
{
    for (uint32_t i = 0; i < c->n_feeders; i++)
        if (c->feeder[i].sends && c->feeder[i].replica == replica)
            return &c->feeder[i].queue;
    return &c->work;
}

tsr_status tsr_runtime_group_feed(struct tsr_runtime_group *c, struct tsr_err *err)
{
    c->feeder = tsr_new(2 * (uint64_t)c->plan.layout->replicas, sizeof *c->feeder);
    if (!c->feeder)
        return tsr_fail_nomem(err, sizeof *c->feeder, "links");
    for (uint32_t i = 0; i < c->plan.n_edges; i++) {
        const struct tsr_runtime_edge *e = &c->edges[i];
        if (e->kind == TSR_RUNTIME_EDGE_ROWS || e->kind == TSR_RUNTIME_EDGE_BACK)
            continue;
        struct tsr_runtime_feeder *f = &c->feeder[c->n_feeders++];
        f->group = c;
        f->sends = e->kind == TSR_RUNTIME_EDGE_TOKENS;
        f->replica = tsr_runtime_layout_place(c->plan.layout, f->sends ? e->to : e->from).replica;
        tsr_runtime_queue_init(&f->queue);
        f->made = true;
        TSR_TRY(tsr_runtime_edge_open(&f->end, e, f->sends, c->plan.deadline_us, NULL,
                                      c->plan.registry, err));
    }
    for (uint32_t i = 0; i < c->n_feeders; i++) {
        struct tsr_runtime_feeder *f = &c->feeder[i];
        TSR_TRY(tsr_runtime_thread_start(&f->thread, talk, f, err));
        f->started = true;
    }
    return TSR_OK;
}
