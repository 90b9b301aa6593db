/* device_simt.c - the device of ../device.h that simt.h emulates. */
#include "device_simt.h"
#include "simt_code.h"

#include "tessera/f16.h"

#include <math.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>

#define EXTERN(name) extern const struct simt_kernel name##_simt;
TSR_CUDA_KERNELS(EXTERN)
#undef EXTERN

#define ENTRY(name) &name##_simt,
static const struct simt_kernel *const kernels[] = { TSR_CUDA_KERNELS(ENTRY) };
#undef ENTRY

static tsr_status open_device(const struct tsr_host *host, int64_t index, int64_t seed,
                              void **device, struct tsr_err *err)
{
    struct device *d = index == 0 ? host->alloc(host->ctx, sizeof *d, 64) : NULL;
    if (!d)
        return index ? tsr_fail(err, TSR_E_DEVICE, "the emulation has device 0 alone")
                     : tsr_fail(err, TSR_E_NOMEM, "out of memory: a device");
    *d = (struct device){ .host = host, .seed = (uint64_t)seed };
    *device = d;
    return TSR_OK;
}

static void close_device(void *device)
{
    struct device *d = device;
    d->host->release(d->host->ctx, d, sizeof *d);
}

static const char *name(const void *device)
{
    (void)device;
    return "SIMT emulation";
}

static tsr_status sizes(const void *device, uint64_t *total, uint64_t *available,
                        struct tsr_err *err)
{
    struct sysinfo s;
    (void)device;
    if (sysinfo(&s) != 0)
        return tsr_fail(err, TSR_E_DEVICE, "cannot read the size of the memory");
    *total = (uint64_t)s.totalram * s.mem_unit;
    *available = ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
    return TSR_OK;
}

static tsr_status alloc(void *device, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *err)
{
    (void)device;
    (void)kind; /* one memory */
    *address = simt_alloc(bytes);
    return *address ? TSR_OK
                    : tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes of device memory",
                               (unsigned long long)bytes);
}

static void release(void *device, uint64_t address, enum tsr_cuda_memory kind)
{
    (void)device;
    (void)kind;
    simt_free(address);
}

static tsr_status copy_place(uint64_t address, uint64_t bytes, void **p, struct tsr_err *err)
{
    *p = simt_place(address, bytes);
    return *p ? TSR_OK
              : tsr_fail(err, TSR_E_DEVICE, "a copy of %llu bytes is not inside device memory",
                         (unsigned long long)bytes);
}

static tsr_status put(void *device, uint64_t to, const void *from, uint64_t bytes,
                      struct tsr_err *err)
{
    void      *p;
    tsr_status st = copy_place(to, bytes, &p, err);
    (void)device;
    if (st == TSR_OK)
        memcpy(p, from, bytes);
    return st;
}

static tsr_status get(void *device, void *to, uint64_t from, uint64_t bytes, struct tsr_err *err)
{
    void      *p;
    tsr_status st = copy_place(from, bytes, &p, err);
    (void)device;
    if (st == TSR_OK)
        memcpy(to, p, bytes);
    return st;
}

tsr_status tsr_simt_launch(void *device, void *stream, const struct tsr_cuda_launch *l,
                           struct tsr_err *err)
{
    struct device          *d = device;
    const struct simt_code *own = l->own;
    struct simt_launch      s = { .kernel = own ? own->kernels[l->own_kernel] : kernels[l->kernel],
                                  .grid = { l->grid[0], l->grid[1], l->grid[2] },
                                  .threads = l->threads,
                                  .args = l->args,
                                  .seed = d->seed,
                                  .cancelled = d->host->cancelled,
                                  .ctx = d->host->ctx };
    (void)stream;
    if (l->args_bytes != s.kernel->args_bytes)
        return tsr_fail(err, TSR_E_DEVICE, "kernel %s takes %u bytes of arguments, not %llu",
                        s.kernel->name, s.kernel->args_bytes, (unsigned long long)l->args_bytes);
    return own ? own->run(&s, err) : simt_run(&s, err);
}

/* ---- code of other plugins ------------------------------------------------------------- */

static tsr_status code_load(void *device, const struct tsr_device_code *code, void **own,
                            struct tsr_err *err)
{
    const struct simt_code *from = code->image;
    (void)device;
    if (code->bytes != sizeof *from || from->magic != SIMT_CODE_MAGIC)
        return tsr_fail(err, TSR_E_DEVICE, "the emulation does not take this image");
    for (uint32_t i = 0; i < code->n_kernels; i++)
        if (i >= from->n || strcmp(from->kernels[i]->name, code->kernels[i]) != 0)
            return tsr_fail(err, TSR_E_DEVICE, "the image has no kernel '%s'", code->kernels[i]);
    *own = (void *)(uintptr_t)from; /* read only */
    return TSR_OK;
}

static void code_free(void *device, void *own)
{
    (void)device;
    (void)own;
}

static tsr_status sync_stream(void *device, void *stream, struct tsr_err *err)
{
    (void)device; /* launches are done when they return */
    (void)stream;
    (void)err;
    return TSR_OK;
}

/* Everything is over when it returns, whatever the stream. */
static tsr_status stream_open(void *device, void **stream, struct tsr_err *err)
{
    (void)err;
    *stream = device; /* any number that is not NULL */
    return TSR_OK;
}

static void stream_close(void *device, void *stream)
{
    (void)device;
    (void)stream;
}

static tsr_status stream_behind(void *device, void *stream, void *other, struct tsr_err *err)
{
    (void)device;
    (void)stream;
    (void)other;
    (void)err;
    return TSR_OK;
}

static const void *place(const void *device)
{
    return device;
}

/* ---- products ------------------------------------------------------------------------ */

/* Missing under every fourth seed, so that kernels run what is the library's otherwise. */
static tsr_status matmul_find(void *device, struct tsr_err *err)
{
    const uint64_t seed = (uint64_t)((const struct device *)device)->seed;
    if (seed && seed % 4 == 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "the emulation has no library under this seed");
    return TSR_OK;
}

/* Few, so that small shapes fill them. */
static uint32_t units(const void *device)
{
    (void)device;
    return 4;
}

static uint32_t shared(const void *device)
{
    (void)device;
    return 232448; /* sm_90 */
}

/* Both types, so that both ways are run. */
static int has_bf16(const void *device)
{
    return ((const struct device *)device)->seed % 2 == 0;
}

static double widened(uint16_t h, int bf16)
{
    return (double)(bf16 ? tsr_bf16_f32(h) : tsr_f16_f32(h));
}

/* Rows of 16-bit elements, every one of which the caller must own. */
static const uint16_t *rows_at(uint64_t address, uint64_t rows, uint64_t cols, uint64_t ld)
{
    return ld < cols || address % 16 ? NULL : simt_place(address, 2 * ((rows - 1) * ld + cols));
}

/* By the book, in double. */
static tsr_status matmul(void *device, const struct tsr_cuda_matmul *m, struct tsr_err *err)
{
    struct device  *d = device;
    const uint16_t *w = rows_at(m->w, m->rows, m->cols, m->ldw);
    const uint16_t *x = rows_at(m->x, m->tokens, m->cols, m->ldx);
    uint64_t        span = ((m->tokens - 1) * m->ldo + m->rows) * (m->narrow_out ? 2 : 4);
    uint8_t        *out = simt_place(m->out, span);
    if (!w || !x || !out || m->ldo < m->rows ||
        (m->work_bytes && !simt_place(m->work, m->work_bytes)))
        return tsr_fail(err, TSR_E_DEVICE, "a product leaves its matrices");
    for (uint64_t t = 0; t < m->tokens; t++) {
        if (d->host->cancelled(d->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "a product was stopped");
        for (uint64_t r = 0; r < m->rows; r++) {
            double sum = 0.0;
            for (uint64_t k = 0; k < m->cols; k++)
                sum += widened(w[r * m->ldw + k], m->bf16) * widened(x[t * m->ldx + k], m->bf16);
            float    y = (float)sum;
            uint16_t none = 0; /* only timed, never read */
            if (m->narrow_out)
                memcpy(out + 2 * (t * m->ldo + r), &none, 2);
            else
                memcpy(out + 4 * (t * m->ldo + r), &y, 4);
        }
    }
    return TSR_OK;
}

/* ---- time ----------------------------------------------------------------------------- */

static tsr_status mark(void *device, int which, struct tsr_err *err)
{
    struct device *d = device;
    (void)err;
    (void)clock_gettime(CLOCK_MONOTONIC, &d->marks[which != 0]);
    return TSR_OK;
}

static tsr_status between(void *device, double *seconds, struct tsr_err *err)
{
    const struct device *d = device;
    (void)err;
    *seconds = (double)(d->marks[1].tv_sec - d->marks[0].tv_sec) +
               (double)(d->marks[1].tv_nsec - d->marks[0].tv_nsec) * 1e-9;
    return TSR_OK;
}

const struct tsr_cuda_api tsr_cuda_simt = { .open = open_device,
                                            .close = close_device,
                                            .name = name,
                                            .sizes = sizes,
                                            .alloc = alloc,
                                            .release = release,
                                            .put = put,
                                            .get = get,
                                            .launch = tsr_simt_launch,
                                            .sync = sync_stream,
                                            .stream_open = stream_open,
                                            .stream_close = stream_close,
                                            .stream_behind = stream_behind,
                                            .place = place,
                                            .graph_make = tsr_simt_graph_make,
                                            .graph_run = tsr_simt_graph_run,
                                            .graph_free = tsr_simt_graph_free,
                                            .target = "simt",
                                            .code_load = code_load,
                                            .code_free = code_free,
                                            .matmul_find = matmul_find,
                                            .matmul = matmul,
                                            .has_bf16 = has_bf16,
                                            .units = units,
                                            .shared = shared,
                                            .blas_find = tsr_simt_blas_find,
                                            .blas_work = tsr_simt_blas_work,
                                            .blas = tsr_simt_blas,
                                            .mark = mark,
                                            .between = between };
