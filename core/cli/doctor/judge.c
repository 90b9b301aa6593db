/* Compares the facts of the hosts with the cluster file and with rank 0. */
#include "cli/doctor/doctor.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* A link may be slower than the file's rate by this factor before plans become inaccurate. */
#define SLOWER   0.8
#define LATER    1.5
#define LATER_US 20.0
#define CLOCK_S  1.0 /* logs of hosts that differ by more cannot be read side by side */

__attribute__((format(printf, 2, 3))) static void text(char to[160], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(to, 160, fmt, ap);
    va_end(ap);
}

static tsr_status add(struct doctor *d, const struct doctor_line *l, struct tsr_err *err)
{
    struct doctor_line *more = tsr_renew(d->line, d->n_lines + 1, sizeof *more);
    if (!more)
        return tsr_fail_nomem(err, (d->n_lines + 1) * sizeof *more, "a report");
    d->line = more;
    more[d->n_lines++] = *l;
    return TSR_OK;
}

/* The first rank of each host represents it. */
static bool first_of_host(const struct doctor *d, uint32_t rank)
{
    for (uint32_t r = 0; r < rank; r++)
        if (strcmp(d->map.host[r], d->map.host[rank]) == 0)
            return false;
    return true;
}

static tsr_status compare(struct doctor *d, const char *check, uint32_t r, const char *found,
                          const char *wanted, struct tsr_err *err)
{
    struct doctor_line l = { .check = check };
    text(l.where, "%s", d->map.host[r]);
    (void)snprintf(l.found, sizeof l.found, "%s", found);
    text(l.wanted, "%s", wanted);
    l.verdict = *found && strcmp(found, wanted) == 0 ? DOCTOR_OK : DOCTOR_BAD;
    return add(d, &l, err);
}

static tsr_status same_everywhere(struct doctor *d, uint32_t r, struct tsr_err *err)
{
    const struct doctor_facts *f = &d->facts[r], *zero = &d->facts[0];
    TSR_TRY(compare(d, "version", r, f->version, zero->version, err));
    TSR_TRY(compare(d, "plugins", r, f->plugins, zero->plugins, err));
    if (!d->model && !*f->model && !*f->model_error)
        return TSR_OK;
    const char *wanted = *zero->model ? zero->model : "a model that can be read";
    return compare(d, "model", r, *f->model ? f->model : f->model_error, wanted, err);
}

static tsr_status clock_line(struct doctor *d, uint32_t r, struct tsr_err *err)
{
    struct doctor_line l = { .check = "clock" };
    double             ahead = d->facts[r].clock_s;
    text(l.where, "%s", d->map.host[r]);
    (void)snprintf(l.found, sizeof l.found, "%+.3f ms of rank 0", ahead * 1e3);
    text(l.wanted, "within %g s", CLOCK_S);
    l.verdict = fabs(ahead) <= CLOCK_S ? DOCTOR_OK : DOCTOR_BAD;
    return add(d, &l, err);
}

/* Devices that use this host's memory: those of backend cpu, and emulated ones. */
static tsr_status memory_line(struct doctor *d, uint32_t r, const struct tsr_plan_node_info *node,
                              struct tsr_err *err)
{
    struct doctor_line l = { .check = "memory" };
    char               a[TSR_BYTES_TEXT], b[TSR_BYTES_TEXT];
    uint64_t           need = 0;
    bool               others = false;
    for (uint64_t i = node->first_group; i < node->first_group + node->n_groups; i++) {
        const struct tsr_plan_group *g = &d->cluster->groups[i];
        const char                  *backend = g->profile->backend;
        uint64_t                     all;
        bool here = *g->emulate || (backend && strcmp(backend, TSR_PLUGIN_DEFAULT_BACKEND) == 0);
        others = others || !here;
        /* the CPU's memory is shared by all devices emulated on one machine */
        if (!tsr_mul(g->profile->memory_bytes, *g->emulate ? g->count : 1, &all) ||
            !tsr_add(need, here ? (uint64_t)((double)all * g->profile->usable) : 0, &need))
            need = UINT64_MAX;
    }
    text(l.where, "%s", d->map.host[r]);
    (void)snprintf(l.found, sizeof l.found, "%s available",
                   tsr_format_bytes(a, sizeof a, d->facts[r].memory));
    text(l.wanted, "%s that plans may use%s", tsr_format_bytes(b, sizeof b, need),
         others ? "; devices of other backends are not looked at" : "");
    l.verdict = need == 0                    ? DOCTOR_NOT_CHECKED
                : d->facts[r].memory >= need ? DOCTOR_OK
                                             : DOCTOR_BAD;
    return add(d, &l, err);
}

static tsr_status link_line(struct doctor *d, uint32_t a, uint32_t b, struct tsr_err *err)
{
    const struct tsr_plan_node_info *from = doctor_node(d, a), *to = doctor_node(d, b);
    struct doctor_line               l = { .check = "link" };
    if (!from || !to)
        return TSR_OK; /* reported for the host */
    const struct tsr_plan_link *want =
        tsr_plan_cluster_link(d->cluster, (uint64_t)(from - d->cluster->nodes),
                              (uint64_t)(to - d->cluster->nodes), 0);
    const struct tsr_comm_path *p = &d->map.path[a * d->map.ranks + b];
    if (!(want->rate > 0))
        return TSR_OK; /* one device: no link is used */
    text(l.where, "%s to %s, ranks %u and %u", d->map.host[a], d->map.host[b], a, b);
    (void)snprintf(l.found, sizeof l.found, "%.1f MB/s, %.1f us", p->rate * 1e-6, p->alpha * 1e6);
    text(l.wanted, "%.1f MB/s, %.1f us", want->rate * 1e-6, want->alpha_ms * 1e3);
    l.verdict =
        p->rate >= SLOWER * want->rate && p->alpha * 1e6 <= LATER * want->alpha_ms * 1e3 + LATER_US
            ? DOCTOR_OK
            : DOCTOR_BAD;
    return add(d, &l, err);
}

/* Nodes that no process was on. */
static tsr_status absent(struct doctor *d, struct tsr_err *err)
{
    for (uint64_t i = 0; i < d->cluster->n_nodes; i++) {
        const struct tsr_plan_node_info *n = &d->cluster->nodes[i];
        bool                             here = false;
        for (uint32_t r = 0; r < d->ranks; r++)
            here = here || doctor_node(d, r) == n;
        if (here)
            continue;
        struct doctor_line l = { .check = "host", .verdict = DOCTOR_BAD };
        text(l.where, "%s%s%s", n->name, *n->host ? " at " : "", n->host);
        (void)snprintf(l.found, sizeof l.found, "no process of this run");
        text(l.wanted, "mpirun with a process on each of %llu nodes",
             (unsigned long long)d->cluster->n_nodes);
        TSR_TRY(add(d, &l, err));
    }
    return TSR_OK;
}

tsr_status doctor_judge(struct doctor *d, struct tsr_err *err)
{
    TSR_TRY(absent(d, err));
    for (uint32_t r = 0; r < d->ranks; r++) {
        const struct tsr_plan_node_info *node = doctor_node(d, r);
        if (!first_of_host(d, r))
            continue;
        if (!node) {
            struct doctor_line l = { .check = "host", .verdict = DOCTOR_BAD };
            text(l.where, "%s", d->map.host[r]);
            (void)snprintf(l.found, sizeof l.found, "rank %u is there", r);
            text(l.wanted, "a node of the cluster file");
            TSR_TRY(add(d, &l, err));
        }
        TSR_TRY(same_everywhere(d, r, err));
        if (d->launched)
            TSR_TRY(clock_line(d, r, err));
        if (node)
            TSR_TRY(memory_line(d, r, node, err));
    }
    for (uint32_t a = 0; a < d->map.ranks; a++)
        for (uint32_t b = 0; b < d->map.ranks; b++)
            if (a != b && (d->launched || a == 0)) /* threads of one host: one direction suffices */
                TSR_TRY(link_line(d, a, b, err));
    return TSR_OK;
}
