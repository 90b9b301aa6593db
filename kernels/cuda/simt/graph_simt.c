/* graph_simt.c - graphs of the emulated device: launches, recorded with their arguments, as a driver
 * records them, and run again from that record alone. */
#include "device_simt.h"

#include <stdio.h>
#include <string.h>

struct graph {
    uint64_t               n, bytes; /* bytes: of the whole allocation */
    struct tsr_cuda_launch l[];      /* then their arguments */
};

tsr_status tsr_simt_graph_make(void *device, const struct tsr_cuda_launch *l, uint64_t n,
                               void **graph, struct tsr_err *err)
{
    struct device         *d = device;
    const struct tsr_host *host = d->host;
    uint64_t               bytes = sizeof(struct graph) + n * sizeof *l, at = bytes;
    for (uint64_t i = 0; i < n; i++)
        bytes += (l[i].args_bytes + 7) / 8 * 8;
    *graph = NULL;
    struct graph *g = host->alloc(host->ctx, bytes, 64);
    if (!g)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a graph of %llu launches",
                        (unsigned long long)n);
    g->n = n;
    g->bytes = bytes;
    for (uint64_t i = 0; i < n; at += (l[i].args_bytes + 7) / 8 * 8, i++) {
        g->l[i] = l[i];
        g->l[i].args = memcpy((uint8_t *)g + at, l[i].args, l[i].args_bytes);
    }
    *graph = g;
    char line[80];
    (void)snprintf(line, sizeof line, "simt: a graph of %llu launches is made",
                   (unsigned long long)n);
    host->log(host->ctx, TSR_LOG_DEBUG, line);
    return TSR_OK;
}

tsr_status tsr_simt_graph_run(void *device, void *graph, struct tsr_err *err)
{
    const struct graph *g = graph;
    tsr_status          st = TSR_OK;
    for (uint64_t i = 0; i < g->n && st == TSR_OK; i++)
        st = tsr_simt_launch(device, NULL, &g->l[i], err);
    return st;
}

void tsr_simt_graph_free(void *device, void *graph)
{
    const struct tsr_host *host = ((struct device *)device)->host;
    if (graph)
        host->release(host->ctx, graph, ((struct graph *)graph)->bytes);
}
