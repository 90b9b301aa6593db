/* work.c - libcuda.so.1 of the tests: kernels, streams of work, graphs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "driver.h"

#define EXTERN(name) extern const struct simt_kernel name##_simt;
TSR_CUDA_KERNELS(EXTERN)
#undef EXTERN
extern const struct simt_kernel codebook_linear_simt; /* of a plugin: examples/codebook */
#define ENTRY(name) &name##_simt,
static const struct simt_kernel *const kernels[] = { TSR_CUDA_KERNELS(ENTRY) &
                                                     codebook_linear_simt };
#undef ENTRY

/* ---- modules ------------------------------------------------------------------------------------ */

#define FATBIN_MAGIC 0xba55ed50u

EXPORT CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
    ONE_AT_A_TIME;
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    if (standin_option("driver", CUDA_VERSION) < CUDA_VERSION)
        return CUDA_ERROR_INVALID_IMAGE;
    *m = (CUmodule)(uintptr_t)image;
    return magic == FATBIN_MAGIC ? standin_enter() : CUDA_ERROR_INVALID_IMAGE;
}
EXPORT CUresult cuModuleUnload(CUmodule m)
{
    ONE_AT_A_TIME;
    (void)m;
    return standin_enter();
}
EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    ONE_AT_A_TIME;
    (void)m;
    for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i]->name, name) == 0) {
            *f = (CUfunction)(uintptr_t)kernels[i];
            return standin_enter();
        }
    return CUDA_ERROR_NOT_FOUND;
}

static unsigned place_of(CUfunction f)
{
    unsigned i = 0;
    while (i < sizeof kernels / sizeof *kernels && (CUfunction)(uintptr_t)kernels[i] != f)
        i++;
    return i;
}

/* ---- shared memory that a launch asks for -------------------------------------------------- */

static int asked[sizeof kernels / sizeof *kernels + 1]; /* the last: of no kernel */

int standin_shared(void)
{
    return (int)standin_option("arch", 90) == 90 ? 232448 : 65536; /* sm_90, sm_75 */
}

EXPORT CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value)
{
    ONE_AT_A_TIME;
    unsigned i = place_of(f);
    if (i == sizeof kernels / sizeof *kernels)
        return CUDA_ERROR_INVALID_HANDLE;
    if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > standin_shared())
        return CUDA_ERROR_INVALID_VALUE;
    asked[i] = value;
    return standin_enter();
}

#ifndef STANDIN_OLD
static bool loaded[sizeof kernels / sizeof *kernels];

EXPORT CUresult cuFuncLoad(CUfunction f); /* headers before 12.4 do not have it */
EXPORT CUresult cuFuncLoad(CUfunction f)
{
    ONE_AT_A_TIME;
    unsigned i = place_of(f);
    if (i == sizeof kernels / sizeof *kernels)
        return CUDA_ERROR_INVALID_HANDLE;
    loaded[i] = true;
    return standin_enter();
}

/* A driver loads it now, and waits for all that the device does. */
static bool is_late(CUfunction f)
{
    unsigned i = place_of(f);
    return i == sizeof kernels / sizeof *kernels || !loaded[i];
}
#else
static bool is_late(CUfunction f)
{
    return !f;
}
#endif

/* ---- streams ------------------------------------------------------------------------------------- */

static CUresult add(CUstream s, const struct task *t)
{
    if (s->device != standin_device()) /* another context's */
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->n == s->cap) {
        uint64_t     cap = s->cap ? 2 * s->cap : 64;
        struct task *tasks = realloc(s->tasks, cap * sizeof *tasks);
        if (!tasks)
            return CUDA_ERROR_OUT_OF_MEMORY;
        s->tasks = tasks;
        s->cap = cap;
    }
    s->tasks[s->n++] = *t;
    return CUDA_SUCCESS;
}

EXPORT CUresult standin_queue(CUstream s, CUresult (*f)(void *arg), void *arg)
{
    struct task t = { .f = f, .arg = arg };
    CUresult    r = standin_enter();
    if (r == CUDA_SUCCESS && s->capturing) {
        s->spoilt = 1;
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (r == CUDA_SUCCESS)
        r = add(s, &t);
    if (r != CUDA_SUCCESS)
        free(arg);
    return r;
}

static int32_t never(void *ctx)
{
    (void)ctx;
    return 0;
}

static uint64_t runs[sizeof kernels / sizeof *kernels];

void standin_tell_kernels(FILE *f)
{
    for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (runs[i])
            (void)fprintf(f, "%s %llu\n", kernels[i]->name, (unsigned long long)runs[i]);
}

static tsr_status begin_kernel(struct task *t, struct tsr_err *err)
{
    struct simt_launch l = { .kernel = t->kernel,
                             .grid = { t->grid[0], t->grid[1], t->grid[2] },
                             .threads = t->threads,
                             .args = t->args,
                             .cancelled = never };
    runs[place_of((CUfunction)(uintptr_t)t->kernel)]++;
    if (standin_kernels() == (uint64_t)standin_option("fail", -1))
        return TSR_E_DEVICE;
    return simt_begin(&l, &t->resident, err);
}

/* CUDA_ERROR_NOT_READY: it waits for a flag of another one. */
static CUresult run_kernel(struct task *t)
{
    char           text[512];
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    bool           ended = true;
    text[0] = '\0';
    tsr_status st = t->resident ? TSR_OK : begin_kernel(t, &err);
    if (st == TSR_OK)
        st = simt_go_on(t->resident, &ended, &err);
    if (!ended)
        return CUDA_ERROR_NOT_READY;
    t->resident = NULL;
    if (st == TSR_OK)
        return CUDA_SUCCESS;
    if (*text)
        (void)fprintf(stderr, "stand-in: %s\n", text);
    standin_break();
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* A task may run another stream, as far as it waits for it.  One that waits for another rank is tried again. */
CUresult standin_run_until(CUstream s, const struct record *until)
{
    CUresult r = CUDA_SUCCESS;
    while (s->at < (s->capturing ? s->from : s->n) && !(until && until->passed)) {
        struct task t = s->tasks[s->at++];
        if (r == CUDA_SUCCESS)
            r = t.kernel ? run_kernel(&t) : t.f(t.arg);
        if (r == CUDA_ERROR_NOT_READY) {
            s->tasks[--s->at] = t;
            return r;
        }
        free(t.arg);
    }
    if (s->at == s->n && !s->capturing)
        s->at = s->n = 0;
    return r;
}

CUresult standin_run(CUstream s)
{
    return standin_run_until(s, NULL);
}

static CUresult queue_kernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads,
                             unsigned ty, unsigned tz, unsigned shared, CUstream s, void **args,
                             void **extra)
{
    struct task t = { .kernel = (const struct simt_kernel *)f,
                      .grid = { x, y, z },
                      .threads = threads };
    CUresult    r = standin_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (is_late(f))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!s || ty != 1 || tz != 1 || extra || (int)shared > asked[place_of(f)] ||
        t.kernel->args_bytes > sizeof t.args)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(t.args, args[0], t.kernel->args_bytes);
    standin_count()->launches += !s->capturing;
    standin_begin();
    return add(s, &t);
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads,
                               unsigned ty, unsigned tz, unsigned shared, CUstream s, void **args,
                               void **extra)
{
    ONE_AT_A_TIME;
    return queue_kernel(f, x, y, z, threads, ty, tz, shared, s, args, extra);
}

#if !defined STANDIN_OLD && CUDA_VERSION >= 12030
/* Only of a kernel that waits itself for the one before it, which is a kernel, too. */
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args, void **extra)
{
    ONE_AT_A_TIME;
    if (standin_option("noearly", 1) == 0 && c->hStream) {
        c->hStream->spoilt = 1;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (standin_option("arch", 90) < 90 || c->numAttrs != 1 ||
        c->attrs->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
        c->attrs->value.programmaticStreamSerializationAllowed != 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream s = c->hStream;
    if (!s || !s->capturing || s->n == s->from || !s->tasks[s->n - 1].kernel)
        return CUDA_ERROR_INVALID_VALUE;
    standin_count()->early++;
    return queue_kernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
                        c->blockDimZ, c->sharedMemBytes, s, args, extra);
}
#endif

/* ---- graphs ---------------------------------------------------------------------------------------- */

#ifndef STANDIN_OLD

EXPORT CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    ONE_AT_A_TIME;
    CUresult r = standin_enter();
    (void)mode;
    if (r != CUDA_SUCCESS || s->capturing)
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_ILLEGAL_STATE;
    s->capturing = 1;
    s->spoilt = 0;
    s->from = s->n;
    return CUDA_SUCCESS;
}

static uint64_t captures;

EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    ONE_AT_A_TIME;
    *graph = NULL;
    if (!s->capturing)
        return CUDA_ERROR_ILLEGAL_STATE;
    uint64_t n = s->n - s->from;
    s->capturing = 0;
    s->n = s->from;
    if (s->spoilt || ++captures == (uint64_t)standin_option("capture", -1))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct CUgraph_st *c = malloc(sizeof *c + n * sizeof *c->tasks);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->n = n;
    if (n)
        memcpy(c->tasks, s->tasks + s->from, n * sizeof *c->tasks);
    *graph = c;
    standin_count()->captured++;
    return standin_enter();
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *e, CUgraph graph, unsigned long long flags)
{
    ONE_AT_A_TIME;
    struct CUgraph_st *c = malloc(sizeof *c + graph->n * sizeof *c->tasks);
    *e = NULL;
    if (!c || flags) {
        free(c);
        return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(c, graph, sizeof *c + graph->n * sizeof *c->tasks);
    *e = (CUgraphExec)(void *)c;
    standin_count()->instantiated++;
    return standin_enter();
}

EXPORT CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
    ONE_AT_A_TIME;
    const struct CUgraph_st *c = (const struct CUgraph_st *)(void *)e;
    CUresult                 r = standin_enter();
    for (uint64_t i = 0; i < c->n && r == CUDA_SUCCESS; i++)
        r = add(s, &c->tasks[i]);
    standin_count()->graphs++;
    standin_count()->nodes += c->n;
    standin_begin();
    return r;
}
EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ONE_AT_A_TIME;
    free(graph);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec e)
{
    ONE_AT_A_TIME;
    free(e);
    return standin_enter();
}

#endif
