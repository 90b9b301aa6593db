#include "libs.h"

#include "library.h"

#define ENTRY(name, args) { #name, offsetof(struct nc_libs, name) },

tsr_status nc_libs_open(struct nc_libs *l, struct tsr_err *err)
{
    static const struct library_function cuda[] = { CUDA_FUNCTIONS(ENTRY) };
    static const struct library_function nccl[] = {
        NCCL_FUNCTIONS(ENTRY){ "ncclGetErrorString", offsetof(struct nc_libs, ncclGetErrorString) },
        { "ncclGetLastError", offsetof(struct nc_libs, ncclGetLastError) }
    };

    int        version = 0;
    tsr_status st =
        library_open(&l->cuda_handle, "libcuda.so.1", 1, l, cuda, sizeof cuda / sizeof *cuda,
                     "nccl: libcuda.so.1 is not found, so no NVIDIA driver is installed; use "
                     "transport local or mpi",
                     "nccl: the NVIDIA driver has no %s: it is too old; install one for CUDA 12 "
                     "or newer, or use transport local or mpi",
                     err);
    if (st != TSR_OK)
        return st;
    st = library_open(&l->nccl_handle, "libnccl.so.2", 1, l, nccl, sizeof nccl / sizeof *nccl,
                      "nccl: libnccl.so.2 is not found; install NCCL 2.18 or newer, name its "
                      "folder in LD_LIBRARY_PATH, or use transport local or mpi",
                      "nccl: libnccl.so.2 has no %s: it is too old; install NCCL 2.18 or newer, "
                      "or use transport local or mpi",
                      err);
    if (st == TSR_OK && (l->ncclGetVersion(&version) != NC_OK || version < NC_LEAST)) {
        st = tsr_fail(err, TSR_E_DEVICE,
                      "nccl: libnccl.so.2 is of version %d.%d; install NCCL 2.18 or newer, or use "
                      "transport local or mpi",
                      version / 10000, version / 100 % 100);
    }
    if (st != TSR_OK)
        nc_libs_close(l);
    return st;
}

void nc_libs_close(struct nc_libs *l)
{
    if (l->nccl_handle)
        (void)dlclose(l->nccl_handle);
    if (l->cuda_handle)
        (void)dlclose(l->cuda_handle);
    l->nccl_handle = l->cuda_handle = NULL;
}
