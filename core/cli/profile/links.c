/* tessera profile --links: measures the link data of a cluster file. */
#include "cli/doctor/doctor.h"
#include "cli/profile/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "comm/probe.h"
#include "plan/cost/quantity.h"
#include "runtime/join.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_US UINT64_C(120000000) /* of a rank whose turn is last */

/* ---- measuring ----------------------------------------------------------- */

struct member {
    struct tsr_comm_port port;
    struct tsr_comm_map  map;
    uint32_t             rank, ranks;
    tsr_status           st;
    struct tsr_errbuf    e;
};

static void *work(void *arg)
{
    struct member *m = arg;
    m->st = tsr_comm_probe_pairs(&m->map, &m->port, m->rank, m->ranks, DEADLINE_US, &m->e.err);
    return NULL;
}

/* Threads of this process; the first failure that is not the echo of another is the reason. */
tsr_status profile_links_threads(struct tsr_registry *r, const char *transport, uint32_t ranks,
                                 struct tsr_comm_map *map, struct tsr_err *err)
{
    struct tsr_comm_world w;
    pthread_t             id[TSR_COMM_MAX_RANKS];
    uint32_t              joined = 0, started = 0;
    TSR_TRY(tsr_comm_world_create(&w, r, transport, ranks, err));
    struct member *m = tsr_new(ranks, sizeof *m);
    tsr_status     st = m ? TSR_OK : tsr_fail_nomem(err, ranks * sizeof *m, "ranks");
    for (; st == TSR_OK && joined < ranks; joined++) {
        struct tsr_comm_place place = { .transport = transport,
                                        .rank = joined,
                                        .ranks = ranks,
                                        .shared = w.shared,
                                        .shared_bytes = w.bytes };
        m[joined] = (struct member){ .rank = joined, .ranks = ranks, .e = TSR_ERRBUF(m[joined].e) };
        st = tsr_comm_port_open(&m[joined].port, r, &place, err);
        if (st != TSR_OK)
            break;
    }
    for (; st == TSR_OK && started < ranks; started++)
        if (pthread_create(&id[started], NULL, work, &m[started]) != 0) {
            st = tsr_fail(err, TSR_E_NOMEM, "cannot start %u threads", ranks);
            m[0].port.iface->abort(m[0].port.self);
            break;
        }
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(id[i], NULL);
    for (uint32_t i = 0; st == TSR_OK && i < started; i++)
        if (m[i].st != TSR_OK && m[i].st != TSR_E_CANCELLED)
            st = tsr_err_copy(err, m[i].st, &m[i].e.err);
    for (uint32_t i = 0; st == TSR_OK && i < started; i++)
        if (m[i].st != TSR_OK)
            st = tsr_err_copy(err, m[i].st, &m[i].e.err);
    for (uint32_t i = 0; i < joined; i++) {
        if (i == 0 && st == TSR_OK)
            *map = m[i].map;
        else
            tsr_comm_map_free(&m[i].map);
        tsr_comm_port_close(&m[i].port);
    }
    free(m);
    tsr_comm_world_close(&w);
    return st;
}

/* This process is one rank of a launcher's. */
static tsr_status run_launched(struct tsr_registry *r, const char *transport, uint32_t rank,
                               uint32_t ranks, struct tsr_comm_map *map, struct tsr_err *err)
{
    struct tsr_comm_place place = { .transport = transport, .rank = rank, .ranks = ranks };
    struct tsr_comm_port  port;
    TSR_TRY(tsr_runtime_join(&port, r, &place, DEADLINE_US, err));
    tsr_status st = tsr_comm_probe_pairs(map, &port, rank, ranks, DEADLINE_US, err);
    tsr_comm_port_close(&port);
    return st;
}

/* ---- evaluation --------------------------------------------------------- */

/* Median latency and bandwidth of the ordered pairs from host a to host b. */
static struct tsr_comm_path between(const struct tsr_comm_map *m, const char *a, const char *b,
                                    bool any_two, uint64_t *n)
{
    static double alpha[TSR_COMM_MAX_RANKS * TSR_COMM_MAX_RANKS],
        rate[TSR_COMM_MAX_RANKS * TSR_COMM_MAX_RANKS];
    *n = 0;
    for (uint32_t i = 0; i < m->ranks; i++)
        for (uint32_t k = 0; k < m->ranks; k++) {
            const struct tsr_comm_path *p = &m->path[i * m->ranks + k];
            bool                        fits = any_two ? strcmp(m->host[i], m->host[k]) != 0
                                                       : strcmp(m->host[i], a) == 0 && strcmp(m->host[k], b) == 0;
            if (i == k || !fits)
                continue;
            alpha[*n] = p->alpha;
            rate[*n] = p->rate;
            (*n)++;
        }
    return *n ? (struct tsr_comm_path){ bench_median(alpha, *n), bench_median(rate, *n) }
              : (struct tsr_comm_path){ 0, 0 };
}

static void put_link(struct tsr_writer *w, const struct tsr_comm_path *p)
{
    tsr_writer_printf(w, "{bandwidth: %.6g MB/s, latency: %.6g us}", p->rate * 1e-6,
                      p->alpha * 1e6);
}

static bool seen(const struct tsr_comm_map *m, uint32_t r)
{
    for (uint32_t i = 0; i < r; i++)
        if (strcmp(m->host[i], m->host[r]) == 0)
            return true;
    return false;
}

static void put_nodes(struct tsr_writer *w, const struct tsr_comm_map *m, const char *profile)
{
    tsr_writer_printf(w, "version: 1\nnodes:\n");
    for (uint32_t r = 0; r < m->ranks; r++) {
        uint64_t n, count = 0;
        if (seen(m, r))
            continue;
        struct tsr_comm_path p = between(m, m->host[r], m->host[r], false, &n);
        for (uint32_t k = 0; k < m->ranks; k++)
            count += strcmp(m->host[k], m->host[r]) == 0;
        tsr_writer_printf(
            w, "  - name: \"%s\"\n    host: \"%s\"\n    devices: [{profile: %s, count: %llu}]\n",
            m->host[r], m->host[r], profile, (unsigned long long)count);
        if (n) {
            tsr_writer_printf(w, "    link: ");
            put_link(w, &p);
            tsr_writer_printf(w, "\n");
        }
    }
}

static void put_cluster(struct tsr_writer *w, const struct tsr_comm_map *m, const char *transport,
                        const char *profile)
{
    uint64_t             n;
    struct tsr_comm_path all = between(m, NULL, NULL, true, &n);
    bool                 first = true;
    tsr_writer_printf(w, "# tessera profile --links --transport %s, %u ranks; medians over pairs\n",
                      transport, m->ranks);
    put_nodes(w, m, profile);
    if (n == 0)
        return;
    tsr_writer_printf(w, "network: ");
    put_link(w, &all);
    tsr_writer_printf(w, "\n");
    for (uint32_t a = 0; a < m->ranks; a++)
        for (uint32_t b = 0; b < m->ranks; b++) {
            if (seen(m, a) || seen(m, b) || strcmp(m->host[a], m->host[b]) == 0)
                continue;
            struct tsr_comm_path p = between(m, m->host[a], m->host[b], false, &n);
            if (fabs(p.rate / all.rate - 1) <= 0.1 && fabs(p.alpha - all.alpha) <= 0.1 * all.alpha)
                continue; /* like the others */
            tsr_writer_printf(
                w, "%s  - {from: \"%s\", to: \"%s\", bandwidth: %.6g MB/s, latency: %.6g us}\n",
                first ? "links:\n" : "", m->host[a], m->host[b], p.rate * 1e-6, p.alpha * 1e6);
            first = false;
        }
}

static tsr_status print_json(const struct tsr_comm_map *m, const char *transport,
                             struct tsr_err *err)
{
    json_t *pairs = json_array();
    for (uint32_t i = 0; i < m->ranks; i++)
        for (uint32_t k = 0; k < m->ranks; k++) {
            const struct tsr_comm_path *p = &m->path[i * m->ranks + k];
            if (i != k)
                tsr_json_add(&pairs, json_pack("{s:I, s:I, s:s, s:s, s:f, s:f}", "from",
                                               (json_int_t)i, "to", (json_int_t)k, "from_host",
                                               m->host[i], "to_host", m->host[k], "alpha_us",
                                               p->alpha * 1e6, "mb_per_s", p->rate * 1e-6));
        }
    return tsr_cli_print_json(json_pack("{s:s, s:I, s:o}", "transport", transport, "ranks",
                                        (json_int_t)m->ranks, "pairs", pairs),
                              err);
}

static tsr_status print(const struct tsr_comm_map *m, const char *transport, struct tsr_err *err)
{
    puts("| from | to | latency us | bandwidth MB/s |\n|---|---|---:|---:|");
    for (uint32_t i = 0; i < m->ranks; i++)
        for (uint32_t k = 0; k < m->ranks; k++)
            if (i != k)
                printf("| %u %s | %u %s | %.1f | %.1f |\n", i, m->host[i], k, m->host[k],
                       m->path[i * m->ranks + k].alpha * 1e6,
                       m->path[i * m->ranks + k].rate * 1e-6);
    printf("\ntransport %s, %u ranks\n", transport, m->ranks);
    return tsr_cli_flush(err);
}

static tsr_status write_cluster(const struct tsr_comm_map *m, const struct profile_options *o,
                                struct tsr_err *err)
{
    struct tsr_writer w;
    TSR_TRY(tsr_writer_open(&w, o->output, err));
    put_cluster(&w, m, o->transport, o->name);
    return tsr_writer_commit(&w, err);
}

tsr_status profile_links(struct tsr_cli *c, struct tsr_registry *r, const struct profile_options *o,
                         struct tsr_err *err)
{
    struct tsr_comm_map   map = { 0 };
    struct tsr_comm_world w;
    uint32_t              rank = 0, ranks = (uint32_t)o->ranks;
    TSR_TRY(tsr_comm_world_create(&w, r, o->transport, ranks, err));
    bool shared = w.bytes > 0; /* ranks meet in memory: threads will do */
    tsr_comm_world_close(&w);
    if (!shared && !tsr_comm_launched(&rank, &ranks))
        return tsr_fail(err, TSR_E_INPUT,
                        "transport '%s' takes ranks that a launcher started; run this as `mpirun "
                        "-n RANKS tessera profile --links ...`",
                        o->transport);
    tsr_status st = shared ? profile_links_threads(r, o->transport, ranks, &map, err)
                           : run_launched(r, o->transport, rank, ranks, &map, err);
    if (st == TSR_OK && rank == 0 && *o->output)
        st = write_cluster(&map, o, err);
    if (st == TSR_OK && rank == 0 && (c->json || !c->quiet))
        st = c->json ? print_json(&map, o->transport, err) : print(&map, o->transport, err);
    tsr_comm_map_free(&map);
    return st;
}
