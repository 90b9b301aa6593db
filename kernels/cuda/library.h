/* library.h - a shared library that is found at run time: libcuda, NCCL, cuBLAS, cuSOLVER. One build
 * serves machines with and without it. */
#ifndef TSR_CUDA_LIBRARY_H
#define TSR_CUDA_LIBRARY_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "tessera/plugin.h"

/* A function, and the place of its pointer in the caller's table. */
struct library_function {
    const char *name;
    size_t      at;
};

/* Whether the file exists, with any content. */
static inline int library_there(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle)
        (void)dlclose(handle);
    return handle != NULL;
}

/* Opens the library and fills the table. absent, old: messages for a missing library and for a missing
 * function, whose name replaces the %s. Pinned: the library stays in the process after close, which a
 * library with threads requires. TSR_E_DEVICE; *handle is for dlclose(). */
static inline tsr_status library_open(void **handle, const char *file, int pinned, void *table,
                                      const struct library_function *f, size_t n,
                                      const char *absent, const char *old, struct tsr_err *err)
{
    *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | (pinned ? RTLD_NODELETE : 0));
    if (!*handle)
        return tsr_fail(err, TSR_E_DEVICE, "%s", absent);
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(*handle, f[i].name);
        if (!p) {
            const char *mark = strstr(old, "%s");
            int         before = mark ? (int)(mark - old) : (int)strlen(old);
            (void)dlclose(*handle);
            *handle = NULL;
            return tsr_fail(err, TSR_E_DEVICE, "%.*s%s%s", before, old, mark ? f[i].name : "",
                            mark ? mark + 2 : "");
        }
        memcpy((char *)table + f[i].at, &p, sizeof p);
    }
    return TSR_OK;
}

#endif
