#include "pipeline/steps/run_peers.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "pipeline/job.h"
#include "plan/search/search.h"
#include "plugin/registry_hash.h"

#include <stdlib.h>
#include <string.h>

void tsr_step_run_peers_check(const struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                              const struct tsr_config_node *node, struct tsr_diag *d)
{
    const struct tsr_config_node *list = job->state->head.pipeline,
                                 *at = tsr_config_node_get(node, "gantt");
    if (!job->state->options.launched)
        return;
    if (list && list->kind == TSR_CONFIG_NODE_LIST && list->n > 1)
        tsr_config_diag_error(
            d, &list->items[0]->mark,
            "run the others alone, and `export` or `quantize: {to: ...}` what `run` takes",
            "several processes (mpirun) share the step run alone, this job has %llu steps",
            (unsigned long long)list->n);
    else if (!*k->plan)
        tsr_config_diag_error(d, &node->mark, "give plan: FILE",
                              "several processes (mpirun) need a plan that says which runs what");
    if (at && *k->gantt)
        tsr_config_diag_error(d, &at->mark, "leave gantt out, or run on one host without mpirun",
                              "a picture needs ranks with one clock");
}

/* ---- places ------------------------------------------------------------------ */

struct places {
    struct tsr_plan_file     p;
    struct tsr_plan_cluster *c; /* NULL: the job names none */
};

static void close_places(struct places *z)
{
    tsr_plan_file_free(&z->p);
    tsr_plan_cluster_destroy(z->c);
}

static tsr_status open_places(struct places *z, const struct tsr_pipeline_job *job,
                              const struct tsr_step_run_keys *k, struct tsr_err *err)
{
    const char      *cluster = job->state->head.cluster;
    struct tsr_diag *d = NULL;
    char            *plan = tsr_path_join(job->state->dir, k->plan), *file = NULL;
    *z = (struct places){ 0 };
    if (!plan)
        return tsr_fail_nomem(err, strlen(k->plan), "a path");
    tsr_status st = tsr_config_diag_create(&d, err);
    if (st == TSR_OK)
        st = tsr_plan_file_load(&z->p, plan, d, err);
    if (st == TSR_OK && cluster && *cluster)
        st = tsr_plan_cluster_find(&file, cluster, job->state->dir, err);
    if (st == TSR_OK && file)
        st = tsr_plan_cluster_load(&z->c, file, d, err);
    if (st == TSR_OK)
        st = tsr_config_diag_status(d, err);
    if (st == TSR_OK && !z->p.placed)
        st = tsr_fail(
            err, TSR_E_INPUT,
            "%s says how layers are packed but not where they run; make a plan with tessera "
            "plan",
            plan);
    tsr_config_diag_destroy(d);
    free(plan);
    free(file);
    return st;
}

static const struct tsr_plan_node_info *find_node(const struct tsr_plan_cluster *c,
                                                  const char                    *name)
{
    for (uint64_t i = 0; c && i < c->n_nodes; i++)
        if (strcmp(c->nodes[i].name, name) == 0)
            return &c->nodes[i];
    return NULL;
}

tsr_status tsr_step_run_peers_place(struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                                    const struct tsr_config_node *node, struct tsr_err *err)
{
    struct places z;
    (void)node;
    tsr_status st = open_places(&z, job, k, err);
    if (st == TSR_OK && z.c) {
        const char *name = tsr_plan_file_node(&z.p, tsr_runtime_peers_rank(job->peers));
        const struct tsr_plan_node_info *n = name ? find_node(z.c, name) : NULL;
        if (n && *n->model_at) {
            job->state->model_at = tsr_strdup(n->model_at);
            job->model_path = job->state->model_at;
            if (!job->model_path)
                st = tsr_fail_nomem(err, strlen(n->model_at), "the model's path");
        }
    }
    close_places(&z);
    return st;
}

/* "b" is "b.example.org" */
static bool same_host(const char *a, const char *b)
{
    size_t n = strcspn(a, "."), m = strcspn(b, ".");
    return strcmp(a, b) == 0 || ((!a[n] || !b[m]) && n == m && memcmp(a, b, n) == 0);
}

/* A node is one host: the one that it names, or that of its first rank. */
static tsr_status check_hosts(const struct tsr_pipeline_job *job, const struct places *z,
                              struct tsr_err *err)
{
    const struct tsr_runtime_peers *m = job->peers;
    for (uint32_t r = 0; z->c && r < tsr_runtime_peers_ranks(m); r++) {
        const char *name = tsr_plan_file_node(&z->p, r), *host = tsr_runtime_peers_host(m, r);
        const struct tsr_plan_node_info *n = name ? find_node(z->c, name) : NULL;
        if (name && !n)
            return tsr_fail(
                err, TSR_E_INPUT,
                "the plan has rank %u on node '%.60s', which cluster '%s' does not have", r, name,
                z->c->name);
        if (n && *n->host && !same_host(n->host, host))
            return tsr_fail(
                err, TSR_E_INPUT,
                "rank %u belongs on node '%s', host %s, and was started on %s; list the "
                "hosts for mpirun in the order of the plan's ranks",
                r, n->name, n->host, host);
        for (uint32_t q = 0; n && q < r; q++) {
            const char *other = tsr_plan_file_node(&z->p, q);
            if (other && strcmp(other, name) == 0 &&
                strcmp(tsr_runtime_peers_host(m, q), host) != 0)
                return tsr_fail(
                    err, TSR_E_INPUT,
                    "ranks %u and %u belong on one node, '%s', and were started on %s and "
                    "%s; list the hosts for mpirun in the order of the plan's ranks",
                    q, r, n->name, tsr_runtime_peers_host(m, q), host);
        }
    }
    return TSR_OK;
}

/* ---- facts ------------------------------------------------------------------- */

static tsr_status add_file(struct tsr_hasher *h, const char *path, struct tsr_err *err)
{
    char text[TSR_HASH_TEXT];
    TSR_TRY(tsr_hash_file(path, text, err));
    tsr_hasher_update(h, text, sizeof text);
    return TSR_OK;
}

static tsr_status add_beside(struct tsr_hasher *h, const char *dir, const char *name,
                             struct tsr_err *err)
{
    char *path = tsr_path_join(dir, name);
    if (!path)
        return tsr_fail_nomem(err, strlen(name), "a path");
    tsr_status st = add_file(h, path, err);
    free(path);
    return st;
}

/* Of the plan, the calibrations that it and the job name, and how activations enter weights. */
static tsr_status hash_plan(const struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                            uint32_t act, const struct tsr_plan_file *p, char text[TSR_HASH_TEXT],
                            struct tsr_err *err)
{
    struct tsr_hasher *h = NULL;
    char              *dir = tsr_path_dir(tsr_config_doc_path(p->doc));
    if (!dir)
        return tsr_fail_nomem(err, 64, "a path");
    tsr_status st = tsr_hasher_create(&h, err);
    if (st == TSR_OK) {
        tsr_hasher_update(h, &act, sizeof act);
        st = add_file(h, tsr_config_doc_path(p->doc), err);
    }
    for (uint64_t i = 0; i < p->n_stages; i++)
        for (int f = 0; f < TSR_PLAN_PHASES; f++)
            if (st == TSR_OK && *p->stages[i].collective[f].state)
                st = add_beside(h, dir, p->stages[i].collective[f].state, err);
    if (st == TSR_OK && *k->codec_state)
        st = add_beside(h, job->state->dir, k->codec_state, err);
    if (st == TSR_OK && *k->run.compensation.compensate_plan)
        st = add_beside(h, job->state->dir, k->run.compensation.compensate_plan, err);
    char own[TSR_HASH_TEXT];
    if (h)
        tsr_hasher_finish(h, st == TSR_OK ? text : own);
    free(dir);
    return st;
}

tsr_status tsr_step_run_peers_meet(struct tsr_pipeline_job *job, const struct tsr_step_run_keys *k,
                                   uint32_t act, struct tsr_runtime_peer_facts *zero,
                                   struct tsr_err *err)
{
    struct tsr_runtime_peer_facts mine = *zero;
    struct places                 z;
    tsr_status                    st = open_places(&z, job, k, err);
    (void)snprintf(mine.version, sizeof mine.version, "%s", TSR_VERSION);
    (void)snprintf(mine.model, sizeof mine.model, "%s", job->model->hash);
    if (st == TSR_OK)
        st = hash_plan(job, k, act, &z.p, mine.plan, err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_hash(job->registry, mine.plugins, err);
    if (st == TSR_OK) {
        tsr_runtime_peers_tell(job->peers, &mine);
        st = tsr_runtime_peers_meet(job->peers, zero, err);
    }
    if (st == TSR_OK && tsr_runtime_peers_rank(job->peers) == 0)
        st = check_hosts(job, &z, err);
    close_places(&z);
    return st;
}
