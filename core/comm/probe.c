#include "comm/probe.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST  (UINT64_C(4) << 20)
#define SIZES 12u
#define TRIES 5u
#define LONG  0.1 /* s: larger messages are not tried */

struct probe {
    const struct tsr_comm_port *port;
    uint32_t                    rank, ranks;
    uint64_t                    deadline_us;
    unsigned char              *buf; /* MOST bytes */
};

static tsr_status wait_for(const struct probe *p, void *request, struct tsr_err *err)
{
    if (!request)
        return tsr_fail(err, TSR_E_DEVICE, "the transport of rank %u takes no operation", p->rank);
    return p->port->iface->wait(p->port->self, request, p->deadline_us, err);
}

static tsr_status to(const struct probe *p, uint32_t peer, uint64_t bytes, struct tsr_err *err)
{
    void *r = NULL;
    TSR_TRY(p->port->iface->send(p->port->self, NULL, peer, p->buf, bytes, &r, err));
    return wait_for(p, r, err);
}

static tsr_status from(const struct probe *p, uint32_t peer, uint64_t bytes, struct tsr_err *err)
{
    void *r = NULL;
    TSR_TRY(p->port->iface->recv(p->port->self, NULL, peer, p->buf, bytes, &r, err));
    return wait_for(p, r, err);
}

static tsr_status gather(const struct probe *p, const void *mine, uint64_t bytes, void *all,
                         struct tsr_err *err)
{
    void *r = NULL;
    TSR_TRY(p->port->iface->all_gather(p->port->self, NULL, mine, all, bytes, &r, err));
    return wait_for(p, r, err);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Of rank a: sends, and tells the peer whether more messages follow. */
static tsr_status ask(struct probe *p, uint32_t peer, struct tsr_comm_path *path,
                      struct tsr_err *err)
{
    double   x[SIZES], y[SIZES], took[TRIES];
    uint64_t n = 0;
    bool     more = true;
    for (uint64_t bytes = 1; more; bytes *= 4) {
        for (uint32_t k = 0; k <= TRIES; k++) { /* the first touches the pages */
            double start = tsr_now_s();
            TSR_TRY(to(p, peer, bytes, err));
            TSR_TRY(from(p, peer, 1, err));
            if (k > 0)
                took[k - 1] = tsr_now_s() - start;
        }
        qsort(took, TRIES, sizeof *took, ascending);
        x[n] = (double)bytes;
        y[n] = took[TRIES / 2];
        n++;
        more = n < SIZES && bytes * 4 <= MOST && (took[TRIES / 2] < LONG || n < 3);
        p->buf[0] = more;
        TSR_TRY(to(p, peer, 1, err));
    }
    if (!tsr_comm_fit(x, y, n, path)) /* mostly noise: the time of the largest */
        *path = (struct tsr_comm_path){ y[0], x[n - 1] / y[n - 1] };
    path->alpha /= 2;
    return TSR_OK;
}

static tsr_status answer(struct probe *p, uint32_t peer, struct tsr_err *err)
{
    bool more = true;
    for (uint64_t bytes = 1; more; bytes *= 4) {
        for (uint32_t k = 0; k <= TRIES; k++) {
            TSR_TRY(from(p, peer, bytes, err));
            TSR_TRY(to(p, peer, 1, err));
        }
        TSR_TRY(from(p, peer, 1, err));
        more = p->buf[0] != 0 && bytes * 4 <= MOST;
    }
    return TSR_OK;
}

static tsr_status all_pairs(struct probe *p, struct tsr_comm_map *m, struct tsr_err *err)
{
    char                  host[TSR_COMM_HOST] = "", turn = 0;
    struct tsr_comm_path *row = m->path + (uint64_t)p->rank * p->ranks;
    unsigned char         turns[UINT8_MAX + 1];
    if (gethostname(host, sizeof host - 1) != 0)
        (void)snprintf(host, sizeof host, "unknown");
    TSR_TRY(gather(p, host, sizeof host, m->host, err));
    for (uint32_t a = 0; a < p->ranks; a++)
        for (uint32_t b = 0; b < p->ranks; b++) {
            if (a == b)
                continue;
            TSR_TRY(gather(p, &turn, 1, turns, err)); /* all ranks are idle */
            if (p->rank == a)
                TSR_TRY(ask(p, b, &row[b], err));
            if (p->rank == b)
                TSR_TRY(answer(p, a, err));
        }
    struct tsr_comm_path *mine = tsr_new(p->ranks, sizeof *mine);
    if (!mine)
        return tsr_fail_nomem(err, p->ranks * sizeof *mine, "the measure of links");
    memcpy(mine, row, p->ranks * sizeof *mine);
    tsr_status st = gather(p, mine, p->ranks * sizeof *mine, m->path, err);
    free(mine);
    return st;
}

tsr_status tsr_comm_probe_pairs(struct tsr_comm_map *m, const struct tsr_comm_port *port,
                                uint32_t rank, uint32_t ranks, uint64_t deadline_us,
                                struct tsr_err *err)
{
    struct probe p = { port, rank, ranks, deadline_us, NULL };
    *m = (struct tsr_comm_map){ .ranks = ranks };
    if (ranks == 0 || ranks > TSR_COMM_MAX_RANKS)
        return tsr_fail(err, TSR_E_INVAL, "links of %u ranks; 1 to %u", ranks, TSR_COMM_MAX_RANKS);
    p.buf = tsr_new(MOST, 1);
    m->path = tsr_new((uint64_t)ranks * ranks, sizeof *m->path);
    m->host = tsr_new(ranks, sizeof *m->host);
    tsr_status st = p.buf && m->path && m->host ? all_pairs(&p, m, err)
                                                : tsr_fail_nomem(err, MOST, "the measure of links");
    free(p.buf);
    if (st != TSR_OK) { /* no rank waits for one that gave up */
        port->iface->abort(port->self);
        tsr_comm_map_free(m);
    }
    for (uint32_t r = 0; st == TSR_OK && r < ranks; r++) { /* it goes into files and messages */
        m->host[r][TSR_COMM_HOST - 1] = '\0';
        for (char *c = m->host[r]; *c; c++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c))
                *c = '_';
    }
    return st;
}

void tsr_comm_map_free(struct tsr_comm_map *m)
{
    free(m->path);
    free(m->host);
    *m = (struct tsr_comm_map){ 0 };
}

static bool number(const char *name, uint32_t *v)
{
    const char   *text = getenv(name);
    char         *end;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    if (!text || end == text || *end || n > 1u << 20)
        return false;
    *v = (uint32_t)n;
    return true;
}

bool tsr_comm_launched(uint32_t *rank, uint32_t *ranks)
{
    /* PMIx tells a process its rank by the environment, and only srun how many there are; a batch script of Slurm has
     * counts, too, but no rank of PMIx. */
    static const char *const names[][2] = { { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
                                            { "PMI_RANK", "PMI_SIZE" },
                                            { "PMIX_RANK", "SLURM_STEP_NUM_TASKS" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (number(names[i][0], rank) && number(names[i][1], ranks) && *rank < *ranks)
            return true;
    return false;
}
