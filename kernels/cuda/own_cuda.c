/* own_cuda.c - kernels of other plugins: their image as a module of its own. */
#include "device_cuda.h"

/* Whole, as the backend's kernels (images_cuda.c). */
static CUresult load(struct device *d, const struct tsr_device_code *code, struct own *o)
{
    CUresult r = d->l.p_cuModuleLoadData(&o->module, code->image);
    if (r != CUDA_SUCCESS)
        o->module = NULL;
    for (uint32_t i = 0; i < code->n_kernels && r == CUDA_SUCCESS; i++) {
        r = d->l.p_cuModuleGetFunction(&o->f[i], o->module, code->kernels[i]);
        if (r == CUDA_SUCCESS && d->l.p_cuFuncLoad)
            r = d->l.p_cuFuncLoad(o->f[i]);
    }
    if (r != CUDA_SUCCESS && o->module)
        (void)d->l.p_cuModuleUnload(o->module);
    return r;
}

tsr_status own_load(void *device, const struct tsr_device_code *code, void **own,
                    struct tsr_err *err)
{
    struct device *d = device;
    struct own    *o = d->host->alloc(d->host->ctx, sizeof *o, 64);
    if (!o)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a plugin's kernels");
    memset(o, 0, sizeof *o);
    tsr_status st = device_enter(d, err);
    if (st == TSR_OK)
        st = device_leave(d, load(d, code, o), "loading a plugin's kernels", err);
    if (st != TSR_OK) {
        d->host->release(d->host->ctx, o, sizeof *o);
        return st;
    }
    *own = o;
    return TSR_OK;
}

void own_free(void *device, void *own)
{
    struct device *d = device;
    struct own    *o = own;
    CUcontext      was;
    if (!o)
        return;
    if (d->context && d->l.p_cuCtxPushCurrent(d->context) == CUDA_SUCCESS) {
        (void)d->l.p_cuModuleUnload(o->module);
        (void)d->l.p_cuCtxPopCurrent(&was);
    }
    d->host->release(d->host->ctx, o, sizeof *o);
}
