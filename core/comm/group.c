/* A rank's part in the sums of its group. */
#include "comm/device.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define DEADLINE_US UINT64_C(5000000)

/* ---- life -------------------------------------------------------------- */

static tsr_status make_lists(struct tsr_comm_group *g, struct tsr_err *err)
{
    uint64_t n = g->ranks;
    g->requests = tsr_new(n * 2 * TSR_COMM_SLOTS * 2, sizeof *g->requests);
    g->blocks = tsr_new(8 * n, sizeof *g->blocks);
    if (!g->requests || !g->blocks)
        return tsr_fail_nomem(err, 8 * n * sizeof *g->blocks, "a group of ranks");
    for (uint32_t i = 0; i < 2 * TSR_COMM_SLOTS; i++)
        g->exchange[i].request = g->requests + n * 2 * i;
    struct tsr_comm_piece *plans[] = { &g->whole, &g->last };
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t h = 0; h < 2; h++) {
            plans[i]->mine[h] = g->blocks + (4 * i + 2 * h) * n;
            plans[i]->theirs[h] = g->blocks + (4 * i + 2 * h + 1) * n;
        }
    }
    return TSR_OK;
}

/* A way that is left open waits for tsr_comm_group_tune(); its states stay the caller's. */
static tsr_status open_way(struct tsr_comm_group *g, uint32_t phase, const struct tsr_comm_way *way,
                           struct tsr_err *err)
{
    g->way[phase] = *way;
    g->way[phase].codec = NULL;
    if (way->codec) {
        g->codec[phase] = tsr_strdup(way->codec);
        if (!g->codec[phase])
            return tsr_fail_nomem(err, strlen(way->codec) + 1, "a codec's name");
        g->way[phase].codec = g->codec[phase];
    }
    if (way->algorithm == TSR_COMM_AUTO || tsr_comm_is_auto(way->codec))
        return TSR_OK;
    TSR_TRY(tsr_comm_coder_open(&g->coder[phase], g->registry, way, g->ranks, err));
    g->open[phase] = true;
    return TSR_OK;
}

tsr_status tsr_comm_group_create(struct tsr_comm_group **out, struct tsr_registry *r,
                                 const struct tsr_comm_options *o, struct tsr_err *err)
{
    struct tsr_comm_group *g = tsr_new(1, sizeof *g);
    *out = NULL;
    if (!g)
        return tsr_fail_nomem(err, sizeof *g, "a group of ranks");
    g->rank = o->place.rank;
    g->ranks = o->place.ranks;
    g->registry = r;
    g->beat = o->beat;
    g->ctx = o->ctx;
    tsr_status st = TSR_OK;
    for (uint32_t p = 0; st == TSR_OK && p < TSR_COMM_PHASES; p++)
        st = open_way(g, p, &o->way[p], err);
    if (st == TSR_OK)
        st = make_lists(g, err);
    if (st == TSR_OK)
        st = tsr_comm_port_open(&g->port, r, &o->place, err);
    if (st != TSR_OK) {
        tsr_comm_group_destroy(g);
        return st;
    }
    g->traffic =
        (struct tsr_comm_traffic){ .port = &g->port,
                                   .rank = g->rank,
                                   .ranks = g->ranks,
                                   .deadline_us = o->deadline_us ? o->deadline_us : DEADLINE_US,
                                   .all = g->exchange,
                                   .n_all = 2 * TSR_COMM_SLOTS };
    *out = g;
    return TSR_OK;
}

void tsr_comm_group_destroy(struct tsr_comm_group *g)
{
    if (!g)
        return;
    tsr_comm_window_end(&g->window);
    tsr_comm_port_close(&g->port); /* before the buffers that it may still write */
    tsr_comm_device_close(g->device);
    for (uint32_t p = 0; p < TSR_COMM_PHASES; p++) {
        tsr_comm_coder_close(&g->coder[p]);
        free(g->codec[p]);
    }
    free(g->requests);
    free(g->blocks);
    free(g->room);
    free(g->floats);
    free(g);
}

void tsr_comm_group_abort(struct tsr_comm_group *g)
{
    g->port.iface->abort(g->port.self);
}

void tsr_comm_group_counters(const struct tsr_comm_group *g, struct tsr_comm_counters *c)
{
    struct tsr_transport_counts n = { .struct_size = sizeof n };
    *c = g->counters;
    c->counted = g->port.counts != NULL;
    if (c->counted)
        g->port.counts->read(g->port.self, &n);
    c->sent = n.sent;
    c->refused = n.refused;
}

/* ---- sums -------------------------------------------------------------- */

static tsr_status may_sum(const struct tsr_comm_group *g, uint32_t phase, struct tsr_err *err)
{
    if (phase >= TSR_COMM_PHASES)
        return tsr_fail(err, TSR_E_INVAL, "phase %u of a sum; 0 is prefill, 1 decode", phase);
    if (g->failed)
        return tsr_fail(err, TSR_E_CANCELLED, "rank %u: an earlier sum of this group has failed",
                        g->rank);
    if (!g->open[phase] && g->ranks > 1)
        return tsr_fail(err, TSR_E_INVAL, "codec or algorithm of %s is auto and not chosen yet",
                        phase ? "decode" : "prefill");
    return TSR_OK;
}

/* Half a sum cannot be repeated, and the others must not wait for it. */
static tsr_status ended(struct tsr_comm_group *g, tsr_status st, uint32_t phase, uint32_t site,
                        struct tsr_err *err)
{
    if (st == TSR_OK)
        return st;
    g->failed = true;
    tsr_comm_group_abort(g);
    return tsr_err_prefix(err, st, "%s, layer %u, sum of %s", phase ? "decode" : "prefill",
                          site / 2, site % 2 ? "MLP" : "attention");
}

tsr_status tsr_comm_group_sum(struct tsr_comm_group *g, uint32_t phase, uint32_t site, float *x,
                              uint64_t rows, uint64_t cols, struct tsr_err *err)
{
    TSR_TRY(may_sum(g, phase, err));
    g->counters.sums++;
    tsr_status st = tsr_comm_window_decline(g, &g->coder[phase], site, rows, cols, err);
    if (st == TSR_OK)
        st = tsr_comm_group_run(g, &g->coder[phase], site, x, rows, cols, err);
    return ended(g, st, phase, site, err);
}

tsr_status tsr_comm_group_sum_on(struct tsr_comm_group *g, uint32_t phase, uint32_t site,
                                 const struct tsr_backend_v1 *backend, void *self,
                                 const struct tsr_tensor *x, bool *done, struct tsr_err *err)
{
    *done = true;
    TSR_TRY(may_sum(g, phase, err));
    if (x->rows == 0 || x->cols == 0 || g->ranks == 1)
        return TSR_OK;
    tsr_status st = tsr_comm_device_run(g, phase, site, backend, self, x, done, err);
    g->counters.sums += *done;
    return ended(g, st, phase, site, err);
}

tsr_status tsr_comm_group_reserve(struct tsr_comm_group *g, const struct tsr_backend_v1 *backend,
                                  void *self, uint64_t rows, uint64_t cols, uint32_t first,
                                  uint32_t end, struct tsr_err *err)
{
    for (uint32_t p = 0; p < TSR_COMM_PHASES && g->ranks > 1; p++)
        if (g->open[p])
            TSR_TRY(tsr_comm_device_reserve(g, p, backend, self, rows, cols, first, end, err));
    return TSR_OK;
}
