/* Collects the facts of a host. */
#include "cli/doctor/doctor.h"

#include "base/mem.h"
#include "model/model.h"
#include "plugin/registry_hash.h"
#include "runtime/join.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_ROUNDS 9

/* Nodes with a host name are matched by it; the others are assigned to the remaining hosts in order. */
const struct tsr_plan_node_info *doctor_node(const struct doctor *d, uint32_t rank)
{
    const struct tsr_plan_cluster *c = d->cluster;
    uint64_t                       before = 0;
    for (uint64_t i = 0; i < c->n_nodes; i++)
        if (*c->nodes[i].host && strcmp(c->nodes[i].host, d->map.host[rank]) == 0)
            return &c->nodes[i];
    for (uint32_t r = 0; r < rank; r++) { /* unnamed hosts that come before this one's */
        bool again = false, named = strcmp(d->map.host[r], d->map.host[rank]) == 0;
        for (uint32_t k = 0; k < r; k++)
            again = again || strcmp(d->map.host[k], d->map.host[r]) == 0;
        if (named)
            return doctor_node(d, r);
        for (uint64_t i = 0; i < c->n_nodes; i++)
            named = named || strcmp(c->nodes[i].host, d->map.host[r]) == 0;
        before += !again && !named;
    }
    for (uint64_t i = 0; i < c->n_nodes; i++)
        if (!*c->nodes[i].host && before-- == 0)
            return &c->nodes[i];
    return NULL;
}

/* MemAvailable of the kernel; 0: unknown. */
static uint64_t memory_available(void)
{
    FILE              *f = fopen("/proc/meminfo", "r");
    char               text[128];
    unsigned long long kib = 0;
    while (f && fgets(text, sizeof text, f))
        if (strncmp(text, "MemAvailable:", 13) == 0)
            kib = strtoull(text + 13, NULL, 10);
    if (f)
        (void)fclose(f);
    return kib <= UINT64_MAX / 1024 ? kib * 1024 : 0;
}

/* A host without the model reports why, and the others continue. */
static tsr_status hash_model(const struct doctor *d, struct doctor_facts *f, struct tsr_err *err)
{
    const struct tsr_plan_node_info *node = doctor_node(d, d->rank);
    const char                      *path = node && *node->model_at ? node->model_at : d->model;
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_model                *m = NULL;
    if (!path)
        return TSR_OK;
    tsr_status st = d->o->headers ? tsr_model_load(&m, path, true, &e.err)
                                  : tsr_model_load_streamed(&m, path, &e.err);
    if (st == TSR_E_CANCELLED || st == TSR_E_NOMEM)
        return tsr_err_copy(err, st, &e.err);
    if (st == TSR_OK)
        (void)snprintf(f->model, sizeof f->model, "%s", m->hash);
    else
        (void)snprintf(f->model_error, sizeof f->model_error, "%.*s",
                       (int)sizeof f->model_error - 1, e.text);
    tsr_model_destroy(m);
    return TSR_OK;
}

/* ---- over hosts ---------------------------------------------------------- */

struct talk {
    const struct tsr_comm_port *port;
    uint64_t                    deadline_us;
};

static tsr_status end(const struct talk *t, void *request, struct tsr_err *err)
{
    if (!request)
        return tsr_fail(err, TSR_E_DEVICE, "the transport takes no operation");
    return t->port->iface->wait(t->port->self, request, t->deadline_us, err);
}

static tsr_status gather(const struct talk *t, const void *mine, uint64_t bytes, void *all,
                         struct tsr_err *err)
{
    void *q = NULL;
    TSR_TRY(t->port->iface->all_gather(t->port->self, NULL, mine, all, bytes, &q, err));
    return end(t, q, err);
}

static double wall_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How far rank r's clock is ahead of rank 0's: from the exchange that took the least time, its middle. */
static tsr_status clocks(const struct doctor *d, const struct talk *t, double *ahead,
                         struct tsr_err *err)
{
    const struct tsr_transport_v1 *f = t->port->iface;
    double                         least = INFINITY, their = 0;
    *ahead = 0;
    for (uint32_t r = 1; r < d->ranks; r++)
        for (int k = 0; k < CLOCK_ROUNDS && (d->rank == 0 || d->rank == r); k++) {
            void  *q = NULL;
            double start = wall_s();
            if (d->rank == 0) { /* answers with its own time */
                TSR_TRY(f->recv(t->port->self, NULL, r, &their, sizeof their, &q, err));
                TSR_TRY(end(t, q, err));
                double now = wall_s();
                TSR_TRY(f->send(t->port->self, NULL, r, &now, sizeof now, &q, err));
                TSR_TRY(end(t, q, err));
                continue;
            }
            TSR_TRY(f->send(t->port->self, NULL, 0, &start, sizeof start, &q, err));
            TSR_TRY(end(t, q, err));
            TSR_TRY(f->recv(t->port->self, NULL, 0, &their, sizeof their, &q, err));
            TSR_TRY(end(t, q, err));
            double over = wall_s();
            if (over - start < least) {
                least = over - start;
                *ahead = (start + over) / 2 - their;
            }
        }
    return TSR_OK;
}

static tsr_status gather_over(struct doctor *d, struct doctor_facts *mine, struct tsr_err *err)
{
    struct tsr_comm_place place = { .transport = "mpi", .rank = d->rank, .ranks = d->ranks };
    struct tsr_comm_port  port;
    struct talk           t = { &port, (uint64_t)(d->o->deadline * 1e6) };
    TSR_TRY(tsr_runtime_join(&port, d->registry, &place, t.deadline_us, err));
    tsr_status st = tsr_comm_probe_pairs(&d->map, &port, d->rank, d->ranks, t.deadline_us, err);
    if (st == TSR_OK)
        st = clocks(d, &t, &mine->clock_s, err);
    if (st == TSR_OK)
        st = hash_model(d, mine, err);
    if (st == TSR_OK)
        st = gather(&t, mine, sizeof *mine, d->facts, err);
    if (st != TSR_OK)
        port.iface->abort(port.self);
    tsr_comm_port_close(&port);
    return st;
}

/* One process: its own host, and threads for the links inside it. */
static tsr_status gather_here(struct doctor *d, struct doctor_facts *mine, struct tsr_err *err)
{
    TSR_TRY(profile_links_threads(d->registry, "local:ring=4096", 2, &d->map, err));
    TSR_TRY(hash_model(d, mine, err));
    d->facts[0] = *mine;
    return TSR_OK;
}

tsr_status doctor_gather(struct doctor *d, struct tsr_err *err)
{
    struct doctor_facts mine;
    memset(&mine, 0, sizeof mine);
    (void)snprintf(mine.version, sizeof mine.version, "%s", TSR_VERSION);
    mine.memory = memory_available();
    TSR_TRY(
        tsr_plugin_registry_hash(d->registry, mine.plugins, err)); /* before mpi is among them */
    d->facts = tsr_new(d->ranks, sizeof *d->facts);
    if (!d->facts)
        return tsr_fail_nomem(err, d->ranks * sizeof *d->facts, "what hosts say");
    TSR_TRY(d->launched ? gather_over(d, &mine, err) : gather_here(d, &mine, err));
    for (uint32_t r = 0; r < d->ranks; r++) { /* texts from elsewhere end */
        struct doctor_facts *f = &d->facts[r];
        f->version[sizeof f->version - 1] = f->plugins[sizeof f->plugins - 1] = '\0';
        f->model[sizeof f->model - 1] = f->model_error[sizeof f->model_error - 1] = '\0';
    }
    return TSR_OK;
}
