/* What the cost models read: device profiles, clusters, workloads, config.json.  The
 * first byte says which. */
#include "plan/cost/latency.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

/* Every error has a text, and a place inside its file. */
static void errors(struct tsr_diag *d)
{
    struct tsr_config_diag_item v;
    for (uint64_t i = 0; tsr_config_diag_at(d, i, &v); i++)
        must(*v.text && (!v.line_text || (v.line >= 1 && v.column >= 1 && v.length >= 1)));
}

static void try_profile(const struct tsr_plan_profile *p)
{
    must(p->memory_bytes > 0 && p->bandwidth > 0 && p->usable > 0 && p->usable <= 1);
    must(isfinite(p->bandwidth) && p->n_kernels + p->n_points > 0);
    for (uint64_t i = 0; i < p->n_points; i++) {
        must(p->points[i].ms > 0 && isfinite(p->points[i].ms) && p->points[i].v >= 1);
        must(tsr_plan_profile_runs(p, p->points[i].kernel));
    }
    for (uint64_t i = 0; i < p->n_kernels; i++)
        must(p->kernels[i].ops > 0 && p->kernels[i].read[0] > 0 && p->kernels[i].compute[1] > 0);
    struct tsr_plan_mesh m = { .profile = p, .tp = 1 };
    must(tsr_plan_memory_capacity(&m, TSR_PLAN_ACCOUNT_EXACT) <= p->memory_bytes);
}

static void device(const char *text, size_t size, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_plan_profile *p = NULL;
    tsr_status               st = tsr_plan_profile_parse(&p, "d.yaml", text, size, d, err);
    must(st == TSR_OK || st == TSR_E_NOMEM || st == TSR_E_NUMERIC);
    must(p == NULL || tsr_config_diag_errors(d) == 0);
    must(p != NULL || st != TSR_OK || tsr_config_diag_errors(d) > 0);
    if (p)
        try_profile(p);
    tsr_plan_profile_destroy(p);
}

static void cluster(const char *text, size_t size, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_plan_cluster *c = NULL;
    tsr_status               st = tsr_plan_cluster_parse(&c, "c.yaml", text, size, d, err);
    must(st == TSR_OK || st == TSR_E_NOMEM);
    must((c != NULL) == (st == TSR_OK && tsr_config_diag_errors(d) == 0));
    for (uint64_t i = 0; c && i < c->n_nodes; i++)
        for (uint64_t k = 0; k < c->n_nodes; k++)
            must(i == k ||
                 tsr_plan_link_ms(tsr_plan_cluster_link(c, i, k, TSR_PLAN_DECODE), 1e6) >= 0);
    for (uint64_t g = 0; c && g < c->n_groups; g++) {
        struct tsr_plan_mesh m;
        tsr_plan_mesh_of(c, g, 2, &m);
        must(m.profile && *m.name && c->groups[g].count >= 1);
    }
    uint64_t *type = c ? malloc(c->n_nodes * sizeof *type) : NULL;
    if (type) { /* a part of the nodes is a cluster, and as many of them are alike */
        struct tsr_plan_cluster *part = NULL;
        uint64_t types = tsr_plan_cluster_types(c, type), some[2] = { c->n_nodes - 1, 0 };
        for (uint64_t i = 0; i < c->n_nodes; i++)
            must(type[i] < types && type[i] <= i);
        tsr_status got = tsr_plan_cluster_part(&part, c, some, NULL, c->n_nodes > 1 ? 2 : 1, err);
        must(got == TSR_E_NOMEM || (part && part->n_groups >= part->n_nodes));
        tsr_plan_cluster_destroy(part);
    }
    free(type);
    tsr_plan_cluster_destroy(c);
}

static void workload(const char *text, size_t size, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_config_doc   *doc = NULL;
    struct tsr_plan_workload w = { 0 };
    if (tsr_config_doc_parse(&doc, "w.yaml", text, size, d, err) != TSR_OK)
        return;
    tsr_status st = tsr_plan_workload_read(&w, tsr_config_doc_root(doc), "/nowhere", NULL, d, err);
    must(st == TSR_OK || st == TSR_E_NOMEM);
    if (st == TSR_OK && tsr_config_diag_errors(d) == 0) {
        uint64_t last;
        must(w.s >= 1 && w.n >= 1 && w.batch >= w.concurrency && w.context >= w.s);
        must(tsr_plan_workload_chunks(&w, &last) >= 1 && last >= 1 && last <= w.s);
        must(tsr_plan_workload_past(&w, false) >= (double)w.s);
    }
    tsr_plan_workload_free(&w);
    tsr_config_doc_destroy(doc);
}

static void records(const char *text, size_t size, struct tsr_err *err)
{
    struct tsr_plan_workload w = { 0 };
    tsr_status st = tsr_plan_workload_records(&w, "p.jsonl", text, size, 10, NULL, err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st != TSR_OK || (w.s >= 1 && w.prompt.total >= 1 && w.context >= w.s));
    tsr_plan_workload_free(&w);
}

static void config(const char *text, size_t size, struct tsr_err *err)
{
    struct tsr_plan_shape *s = NULL;
    tsr_status             st = tsr_plan_shape_config(&s, "config.json", text, size, err);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must((st == TSR_OK) == (s != NULL));
    for (uint64_t l = 0; s && l < s->layers; l++)
        must(s->layer_class[l] < s->classes);
    tsr_plan_shape_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_diag  *d = NULL;
    if (size < 1 || size > 1u << 16 || tsr_config_diag_create(&d, &e.err) != TSR_OK)
        return 0;
    char *text = malloc(size); /* of its own, so that reading past it is seen */
    if (text) {
        memcpy(text, data + 1, size - 1);
        switch (data[0]) {
        case 'd':
            device(text, size - 1, d, &e.err);
            break;
        case 'c':
            cluster(text, size - 1, d, &e.err);
            break;
        case 'w':
            workload(text, size - 1, d, &e.err);
            break;
        case 'p':
            records(text, size - 1, &e.err);
            break;
        default:
            config(text, size - 1, &e.err);
        }
        errors(d);
    }
    free(text);
    tsr_config_diag_destroy(d);
    return 0;
}
