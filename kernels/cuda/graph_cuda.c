/* graph_cuda.c - launches as graphs, by capturing a stream. */
#include "device_cuda.h"

struct graph {
    CUgraphExec           exec;
    struct device_kernels kernels; /* that it holds */
};

/* The launches as they would run, recorded instead.  *refused: the driver did not take a launch that overlaps. */
static CUresult capture_once(struct device *d, const struct tsr_cuda_launch *l, uint64_t n,
                             CUgraph *graph, int *refused)
{
    /* other threads of the process may allocate and copy meanwhile */
    CUresult r = d->l.p_cuStreamBeginCapture(d->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    *graph = NULL;
    if (r != CUDA_SUCCESS)
        return r;
    for (uint64_t i = 0; i < n && r == CUDA_SUCCESS; i++)
        if (i && d->overlaps)
            *refused = (r = device_queue_early(d, d->stream, &l[i])) != CUDA_SUCCESS;
        else
            r = device_queue(d, d->stream, &l[i]);
    CUresult end = d->l.p_cuStreamEndCapture(d->stream, graph); /* in every case */
    if (r == CUDA_SUCCESS && end == CUDA_SUCCESS)
        return r;
    if (*graph)
        (void)d->l.p_cuGraphDestroy(*graph);
    *graph = NULL;
    return r != CUDA_SUCCESS ? r : end;
}

/* A driver that does not record overlapping kernels, though its version does, is not asked again. */
static CUresult capture(struct device *d, const struct tsr_cuda_launch *l, uint64_t n,
                        CUgraph *graph)
{
    int      refused = 0;
    CUresult r = capture_once(d, l, n, graph, &refused);
    if (!refused)
        return r;
    d->overlaps = 0;
    d->host->log(d->host->ctx, TSR_LOG_WARN,
                 "CUDA: the driver does not record kernels that overlap: in graphs they begin one "
                 "after the other");
    return capture_once(d, l, n, graph, &refused);
}

/* Drivers for CUDA 12.3 and newer record launches whose kernels wait for the one before themselves. */
int graphs_overlap(void *device)
{
    struct device *d = device;
#if CUDA_VERSION >= 12030
    int version = 0;
    d->overlaps = d->arch >= 90 && d->has_graphs && d->l.p_cuLaunchKernelEx &&
                  d->l.p_cuDriverGetVersion(&version) == CUDA_SUCCESS && version >= 12030;
#endif
    return d->overlaps;
}

/* cuda.h of CUDA 11 has it with other arguments, under another name of the driver. */
static CUresult make_exec(struct device *d, CUgraphExec *exec, CUgraph graph)
{
#if CUDA_VERSION >= 12000
    return d->l.p_cuGraphInstantiate(exec, graph, 0);
#else
    return d->l.p_cuGraphInstantiate(exec, graph, NULL, NULL, 0);
#endif
}

tsr_status graph_make(void *device, const struct tsr_cuda_launch *l, uint64_t n, void **graph,
                      struct tsr_err *err)
{
    struct device *d = device;
    struct graph  *g;
    CUgraph        captured;
    tsr_status     st;
    *graph = NULL;
    if (!d->has_graphs)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "%s: the driver has no graphs: kernels are launched one by one", d->name);
    g = d->host->alloc(d->host->ctx, sizeof *g, 64);
    if (!g)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a graph");
    *g = (struct graph){ 0 };
    if ((st = device_enter(d, err)) == TSR_OK) {
        CUresult r = capture(d, l, n, &captured);
        if (r == CUDA_SUCCESS) {
            r = make_exec(d, &g->exec, captured);
            (void)d->l.p_cuGraphDestroy(captured);
        }
        st = device_leave(d, r, "making a graph", err);
    }
    if (st != TSR_OK) {
        graph_free(d, g);
        return st;
    }
    for (uint64_t i = 0; i < n; i++)
        device_kernels_add(&g->kernels, l[i].kernel);
    *graph = g;
    return TSR_OK;
}

tsr_status graph_run(void *device, void *graph, struct tsr_err *err)
{
    struct device      *d = device;
    const struct graph *g = graph;
    tsr_status          st = device_enter(d, err);
    if (st != TSR_OK)
        return st;
    device_kernels_join(&d->since, &g->kernels);
    return device_leave(d, d->l.p_cuGraphLaunch(g->exec, d->stream), "launching a graph", err);
}

void graph_free(void *device, void *graph)
{
    struct device *d = device;
    struct graph  *g = graph;
    if (!g)
        return;
    if (g->exec && device_enter(d, NULL) == TSR_OK) /* the driver keeps a graph that still runs */
        (void)device_leave(d, d->l.p_cuGraphExecDestroy(g->exec), "freeing a graph", NULL);
    d->host->release(d->host->ctx, g, sizeof *g);
}
