/* queue.c - launches are queued until a wait or a copy; a repeated list, such as that of each token of a
 * batch, goes to the device as one graph.  A sum over ranks in a window is a launch of the list; one by messages cuts
 * the token: lists of equal layers have equal kernels and other arguments, and a graph each.  A launch joins the last
 * one where fuse.c has a kernel for both. */
#include "backend.h"

#include <stdio.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

#define QUEUE_MOST     1024u                 /* launches of a list */
#define QUEUE_ARGS     (UINT64_C(768) << 10) /* bytes of their arguments */
#define QUEUE_FIRST    64u                   /* launches of the first list after a wait */
#define GRAPH_LEAST    8u                    /* launches that a graph pays for */
#define GRAPH_LAUNCHES 8192u                 /* of all graphs that are kept */

static void list_free(const struct tsr_cuda *c, struct tsr_cuda_list *list)
{
    c->host->release(c->host->ctx, list->l, list->n * sizeof *list->l);
    c->host->release(c->host->ctx, list->args, list->used);
    *list = (struct tsr_cuda_list){ 0 };
}

static void graph_free(const struct tsr_cuda *c, struct tsr_cuda_graph *g)
{
    if (g->graph)
        c->api->graph_free(c->device, g->graph);
    g->graph = NULL;
    list_free(c, &g->list);
}

tsr_status tsr_cuda_queue_open(struct tsr_cuda *c, struct tsr_err *err)
{
    const struct tsr_host *host = c->host;
    if (c->launching != TSR_CUDA_GRAPHS || !c->api->graph_make)
        return TSR_OK;
    c->queue.l = host->alloc(host->ctx, QUEUE_MOST * sizeof *c->queue.l, 64);
    c->queue.args = host->alloc(host->ctx, QUEUE_ARGS, 64);
    return c->queue.l && c->queue.args
               ? TSR_OK
               : tsr_fail(err, TSR_E_NOMEM, "out of memory: a queue of launches");
}

void tsr_cuda_graphs_free(struct tsr_cuda *c)
{
    for (uint32_t i = 0; i < TSR_CUDA_KEPT; i++)
        graph_free(c, &c->graphs[i]);
}

void tsr_cuda_queue_close(struct tsr_cuda *c)
{
    const struct tsr_host *host = c->host;
    tsr_cuda_graphs_free(c);
    host->release(host->ctx, c->queue.l, QUEUE_MOST * sizeof *c->queue.l);
    host->release(host->ctx, c->queue.args, QUEUE_ARGS);
    c->queue = (struct tsr_cuda_list){ 0 };
}

/* ---- lists ------------------------------------------------------------------------------ */

/* Of kernels, grids, blocks and arguments: FNV-1a over their words. */
static uint64_t hash_of(const struct tsr_cuda_list *list)
{
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t       h = UINT64_C(0xcbf29ce484222325), v;
    for (uint64_t i = 0; i < list->n; i++) {
        const struct tsr_cuda_launch *l = &list->l[i];
        const uint32_t                word[] = {
                           l->kernel,  l->grid[0],    l->grid[1], l->grid[2],
                           l->threads, l->own_kernel, l->shared,  (uint32_t)(uintptr_t)l->own
        };
        for (unsigned k = 0; k < sizeof word / sizeof *word; k++)
            h = (h ^ word[k]) * prime;
    }
    for (uint64_t at = 0; at < list->used; at += sizeof v) {
        memcpy(&v, list->args + at, sizeof v);
        h = (h ^ v) * prime;
        h ^= h >> 29;
    }
    return h ? h : 1; /* 0: nothing was seen */
}

static int same(const struct tsr_cuda_list *a, const struct tsr_cuda_list *b)
{
    if (a->n != b->n || a->used != b->used || memcmp(a->args, b->args, a->used) != 0)
        return 0;
    for (uint64_t i = 0; i < a->n; i++)
        if (a->l[i].kernel != b->l[i].kernel || a->l[i].threads != b->l[i].threads ||
            a->l[i].own != b->l[i].own || a->l[i].own_kernel != b->l[i].own_kernel ||
            a->l[i].shared != b->l[i].shared ||
            memcmp(a->l[i].grid, b->l[i].grid, sizeof a->l[i].grid) != 0)
            return 0;
    return 1;
}

/* A copy in separate memory; 0 when out of memory. */
static int keep(const struct tsr_cuda *c, struct tsr_cuda_list *to,
                const struct tsr_cuda_list *from)
{
    const struct tsr_host *host = c->host;
    list_free(c, to);
    struct tsr_cuda_launch *l = host->alloc(host->ctx, from->n * sizeof *l, 64);
    uint8_t                *args = host->alloc(host->ctx, from->used, 64);
    if (!l || !args) {
        host->release(host->ctx, l, from->n * sizeof *l);
        host->release(host->ctx, args, from->used);
        return 0;
    }
    memcpy(args, from->args, from->used);
    for (uint64_t i = 0; i < from->n; i++) {
        l[i] = from->l[i];
        l[i].args = args + ((const uint8_t *)from->l[i].args - from->args);
    }
    *to = (struct tsr_cuda_list){ l, args, from->n, from->used };
    return 1;
}

static tsr_status one_by_one(const struct tsr_cuda *c, const struct tsr_cuda_list *list,
                             struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < list->n && st == TSR_OK; i++)
        st = c->api->launch(c->device, NULL, &list->l[i], err);
    return st;
}

static struct tsr_cuda_graph *find(struct tsr_cuda *c, const struct tsr_cuda_list *list,
                                   uint64_t hash)
{
    for (uint32_t i = 0; i < TSR_CUDA_KEPT; i++) {
        struct tsr_cuda_graph *g = &c->graphs[i];
        if (g->graph && g->hash == hash && same(&g->list, list))
            return g;
    }
    return NULL;
}

/* A free place for a graph of n launches; those that have not run for the longest time make room. */
static struct tsr_cuda_graph *make_place(struct tsr_cuda *c, uint64_t n)
{
    for (;;) {
        struct tsr_cuda_graph *empty = NULL, *oldest = NULL;
        uint64_t               kept = 0;
        for (uint32_t i = 0; i < TSR_CUDA_KEPT; i++) {
            struct tsr_cuda_graph *g = &c->graphs[i];
            if (!g->graph)
                empty = g;
            else if (!oldest || g->stamp < oldest->stamp)
                oldest = g;
            kept += g->list.n;
        }
        if (empty && (!oldest || kept + n <= GRAPH_LAUNCHES))
            return empty;
        graph_free(c, oldest);
    }
}

/* From now on launches go one by one, these first. */
static tsr_status no_graphs(struct tsr_cuda *c, const struct tsr_cuda_list *list, tsr_status why,
                            const char *text, struct tsr_err *err)
{
    char line[480];
    (void)snprintf(line, sizeof line, "%s%s", text,
                   why == TSR_E_UNSUPPORTED ? "" : ": kernels are launched one by one");
    c->launching = TSR_CUDA_ONE_BY_ONE;
    c->host->log(c->host->ctx, why == TSR_E_UNSUPPORTED ? TSR_LOG_INFO : TSR_LOG_WARN, line);
    return one_by_one(c, list, err);
}

static tsr_status record(struct tsr_cuda *c, const struct tsr_cuda_list *list, uint64_t hash,
                         struct tsr_err *err)
{
    struct tsr_cuda_graph *g = make_place(c, list->n);
    char                   text[400];
    struct tsr_err         why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    text[0] = '\0';
    tsr_status st = c->api->graph_make(c->device, list->l, list->n, &g->graph, &why);
    if (st != TSR_OK)
        return no_graphs(c, list, st, text, err);
    if (!keep(c, &g->list, list)) { /* without a copy the next list cannot be compared */
        graph_free(c, g);
        return one_by_one(c, list, err);
    }
    g->hash = hash;
    g->stamp = ++c->stamp;
    return c->api->graph_run(c->device, g->graph, err);
}

static tsr_status hand_over(struct tsr_cuda *c, const struct tsr_cuda_list *list,
                            struct tsr_err *err)
{
    if (c->launching != TSR_CUDA_GRAPHS || list->n < GRAPH_LEAST)
        return one_by_one(c, list, err);
    uint64_t               hash = hash_of(list), *seen = &c->seen[hash % TSR_CUDA_SEEN];
    struct tsr_cuda_graph *g = find(c, list, hash);
    if (g) {
        g->stamp = ++c->stamp;
        return c->api->graph_run(c->device, g->graph, err);
    }
    if (*seen == hash)
        return record(c, list, hash, err);
    *seen = hash;
    return one_by_one(c, list, err);
}

tsr_status tsr_cuda_flush(struct tsr_cuda *c, struct tsr_err *err)
{
    struct tsr_cuda_list list = c->queue;
    if (list.n == 0)
        return TSR_OK;
    c->queue.n = c->queue.used = 0; /* also on failure: nothing is tried twice */
    c->busy = 1;
    tsr_status st = hand_over(c, &list, err);
    if (st != TSR_OK) /* launches that were left out */
        tsr_cuda_kept_forget(c);
    return st;
}

/* ---- launches ---------------------------------------------------------------------------- */

/* Bytes of arguments in a list, which is compared as words. */
static uint64_t whole_words(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* l behind the launches and arguments that are there; it has room. */
static void put_last(struct tsr_cuda_list *q, const struct tsr_cuda_launch *l)
{
    uint64_t whole = whole_words(l->args_bytes);
    memset(q->args + q->used + whole - 8, 0, 8);
    memcpy(q->args + q->used, l->args, l->args_bytes);
    q->l[q->n] = *l;
    q->l[q->n++].args = q->args + q->used;
    q->used += whole;
}

/* Launch `to` of the list and l, which comes next, become one, which is then the last. */
static int join_at(struct tsr_cuda_list *q, uint64_t to, const struct tsr_cuda_launch *l)
{
    struct tsr_cuda_fused f;
    if (!tsr_cuda_fuse(&q->l[to], l, &f))
        return 0;
    uint64_t at = (uint64_t)((const uint8_t *)q->l[to].args - q->args);
    if (whole_words(f.l.args_bytes) > QUEUE_ARGS - at)
        return 0;
    q->n = to;
    q->used = at;
    put_last(q, &f.l);
    return 1;
}

/* The last launch becomes one that does l's work too; the one before it may take in what they have become. */
static int join_last(struct tsr_cuda_list *q, const struct tsr_cuda_launch *l)
{
    if (q->n == 0 || !join_at(q, q->n - 1, l))
        return 0;
    while (q->n > 1 && join_at(q, q->n - 2, &q->l[q->n - 1]))
        continue;
    return 1;
}

static tsr_status append(struct tsr_cuda *c, const struct tsr_cuda_launch *l, struct tsr_err *err)
{
    struct tsr_cuda_list *q = &c->queue;
    if (join_last(q, l))
        return TSR_OK;
    /* a device that has nothing to do gets its first part while the host queues the rest */
    if (q->n == QUEUE_MOST || (q->n == QUEUE_FIRST && !c->busy) ||
        whole_words(l->args_bytes) > QUEUE_ARGS - q->used) {
        tsr_status st = tsr_cuda_flush(c, err);
        if (st != TSR_OK)
            return st;
    }
    put_last(q, l);
    return TSR_OK;
}

tsr_status tsr_cuda_launch_any(struct tsr_cuda *c, void *stream, const struct tsr_cuda_launch *l,
                               struct tsr_err *err)
{
    if (c->queue.l && !stream && c->launching == TSR_CUDA_GRAPHS)
        return append(c, l, err);
    tsr_status st = c->api->launch(c->device, stream, l, err);
    return st == TSR_OK && c->launching == TSR_CUDA_AND_WAIT ? c->api->sync(c->device, stream, err)
                                                             : st;
}

tsr_status tsr_cuda_launch(struct tsr_cuda *c, void *stream, enum tsr_cuda_kernel kernel,
                           uint64_t x, uint64_t y, uint64_t z, uint32_t threads, const void *args,
                           uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cuda_launch l = {
        .kernel = kernel, .threads = threads, .args = args, .args_bytes = bytes
    };
    if (x == 0 || y == 0 || z == 0 || x > INT32_MAX || y > 65535 || z > 65535)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "a grid of %llu by %llu by %llu blocks is too large", U(x), U(y), U(z));
    l.grid[0] = (uint32_t)x;
    l.grid[1] = (uint32_t)y;
    l.grid[2] = (uint32_t)z;
    return tsr_cuda_launch_any(c, stream, &l, err);
}
