/* backend.c - creation, memory, dispatch by instruction set. */
#include "backend.h"
#include "../tensor/tensor.h"

#include <cpuid.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "compensate.h"
#include "probe.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define LARGE     (UINT64_C(32) << 20) /* the host has smaller blocks side by side in such pages */

static void *plain_get(const struct tsr_host *host, uint64_t bytes)
{
    uint64_t align = bytes > LARGE ? HUGE_PAGE : 64;
    void    *p = host->alloc(host->ctx, bytes, align);
    if (!p)
        return NULL;
    if (align == HUGE_PAGE) /* a hint: without it the kernels only run slower */
        (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return p;
}

static void plain_put(const struct tsr_host *host, void *p, uint64_t bytes)
{
    host->release(host->ctx, p, bytes);
}

static void plain_touch(void *p, uint64_t bytes)
{
    (void)p;
    (void)bytes;
}

const struct tsr_cpu_memory tsr_cpu_memory_plain = { plain_get, plain_put, plain_touch, plain_touch,
                                                     1 };

/* clang 14 knows no "f16c"; that the system saves the registers is what "avx2" tells. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

tsr_status tsr_cpu_pick(const struct tsr_cpu_kernels **k, const struct tsr_cpu_amx_kernels **amx,
                        struct tsr_err *err)
{
    const char *want = getenv("TSR_ISA");
    __builtin_cpu_init();
    *amx = NULL;
    if (!want || !*want) {
        *k = has_avx512() ? &tsr_cpu_kernels_avx512
             : has_avx2() ? &tsr_cpu_kernels_avx2
                          : &tsr_cpu_kernels_scalar;
        if (*k == &tsr_cpu_kernels_avx512)
            *amx = tsr_cpu_amx_pick();
        return TSR_OK;
    }
    if (strcmp(want, "scalar") == 0) {
        *k = &tsr_cpu_kernels_scalar;
        return TSR_OK;
    }
    if (strcmp(want, "avx2") == 0) {
        if (!has_avx2())
            return tsr_fail(err, TSR_E_CONFIG,
                            "TSR_ISA=avx2: this CPU lacks AVX2, FMA or F16C; "
                            "unset it or use scalar");
        *k = &tsr_cpu_kernels_avx2;
        return TSR_OK;
    }
    if (strcmp(want, "avx512") == 0 || strcmp(want, "amx") == 0) {
        if (!has_avx512())
            return tsr_fail(err, TSR_E_CONFIG,
                            "TSR_ISA=%s: this CPU lacks AVX-512 F, BW, VL, "
                            "DQ or VNNI; unset it or use avx2",
                            want);
        *k = &tsr_cpu_kernels_avx512;
        if (strcmp(want, "amx") == 0 && !(*amx = tsr_cpu_amx_pick()))
            return tsr_fail(err, TSR_E_CONFIG,
                            "TSR_ISA=amx: this CPU lacks AMX-INT8, or the system does not let "
                            "the process use it; unset it or use avx512");
        return TSR_OK;
    }
    return tsr_fail(err, TSR_E_CONFIG, "TSR_ISA=%.40s: unknown; use scalar, avx2, avx512 or amx",
                    want);
}

tsr_status tsr_cpu_create(const struct tsr_host *host, const struct tsr_cpu_memory *mem,
                          void **self, struct tsr_err *err)
{
    const struct tsr_cpu_kernels     *k = NULL;
    const struct tsr_cpu_amx_kernels *amx = NULL;
    tsr_status                        st = tsr_cpu_pick(&k, &amx, err);
    if (st != TSR_OK)
        return st;
    struct tsr_cpu *c = host->alloc(host->ctx, sizeof *c, 64);
    if (!c)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for the CPU backend",
                        sizeof *c);
    *c = (struct tsr_cpu){ .host = host, .k = k, .amx = amx, .mem = mem };
    c->permute = k == &tsr_cpu_kernels_avx512 && __builtin_cpu_supports("avx512vbmi");
    c->device = amx                            ? "cpu avx512 vnni amx"
                : k == &tsr_cpu_kernels_avx512 ? "cpu avx512 vnni"
                : k == &tsr_cpu_kernels_avx2   ? "cpu avx2"
                                               : "cpu scalar";
    tsr_cpu_linalg_init(c);
    *self = c;
    return TSR_OK;
}

void tsr_cpu_destroy(void *self)
{
    struct tsr_cpu *c = self;
    if (!c)
        return;
    const struct tsr_host *host = c->host;
    tsr_cpu_linalg_free(c);
    host->release(host->ctx, c->scratch, c->scratch_bytes);
    host->release(host->ctx, c, sizeof *c);
}

tsr_status tsr_cpu_properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err)
{
    const struct tsr_cpu *c = self;
    struct sysinfo        s;
    if (sysinfo(&s) != 0)
        return tsr_fail(err, TSR_E_DEVICE, "cannot read the size of the memory");
    p->deterministic = c->bf16 == NULL;
    p->device = c->device;
    p->memory_bytes = (uint64_t)s.totalram * s.mem_unit;
    p->free_bytes = ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
    return TSR_OK;
}

tsr_status tsr_cpu_buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_buffer *b = NULL;
    if (bytes <= PTRDIFF_MAX)
        b = c->host->alloc(c->host->ctx, sizeof *b, 64);
    if (b)
        b->data = c->mem->get(c->host, bytes ? bytes : 1);
    if (!b || !b->data) {
        c->host->release(c->host->ctx, b, sizeof *b);
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for a device buffer",
                        (unsigned long long)bytes);
    }
    c->mem->open(b->data, bytes);
    memset(b->data, 0, bytes);
    c->mem->close(b->data, bytes);
    b->bytes = bytes;
    *buffer = b;
    return TSR_OK;
}

void tsr_cpu_buffer_free(void *self, void *buffer)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_buffer *b = buffer;
    if (!b)
        return;
    c->mem->put(c->host, b->data, b->bytes ? b->bytes : 1);
    c->host->release(c->host->ctx, b, sizeof *b);
}

static tsr_status check_range(const struct tsr_cpu_buffer *b, uint64_t offset, uint64_t bytes,
                              const char *what, struct tsr_err *err)
{
    if (!b)
        return tsr_fail(err, TSR_E_INVAL, "%s: the buffer is NULL", what);
    return tsr_tensor_range(b->bytes, offset, bytes, what, err);
}

tsr_status tsr_cpu_upload(void *self, void *buffer, uint64_t offset, const void *src,
                          uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cpu        *c = self;
    struct tsr_cpu_buffer *b = buffer;
    tsr_status             st = check_range(b, offset, bytes, "upload", err);
    if (st != TSR_OK || bytes == 0)
        return st;
    c->mem->open(b->data, b->bytes);
    memcpy(b->data + offset, src, bytes);
    c->mem->close(b->data, b->bytes);
    return TSR_OK;
}

tsr_status tsr_cpu_download(void *self, const void *buffer, uint64_t offset, void *dst,
                            uint64_t bytes, struct tsr_err *err)
{
    struct tsr_cpu              *c = self;
    const struct tsr_cpu_buffer *b = buffer;
    tsr_status                   st = check_range(b, offset, bytes, "download", err);
    if (st != TSR_OK || bytes == 0)
        return st;
    c->mem->open(b->data, b->bytes);
    memcpy(dst, b->data + offset, bytes);
    c->mem->close(b->data, b->bytes);
    return TSR_OK;
}

tsr_status tsr_cpu_sync(void *self, void *stream, struct tsr_err *err)
{
    (void)self; /* run() is done when it returns */
    (void)stream;
    (void)err;
    return TSR_OK;
}

const void *tsr_cpu_extension(const void *self, const char *id)
{
    if (strcmp(id, TSR_PROBE_EXTENSION) == 0)
        return tsr_cpu_probe(self);
    if (strcmp(id, TSR_LINALG) == 0)
        return tsr_cpu_linalg(self);
    if (strcmp(id, TSR_SIZES_EXTENSION) == 0)
        return tsr_cpu_sizes();
    if (strcmp(id, TSR_BACKEND_COMPENSATE) == 0)
        return tsr_cpu_compensate();
    if (strcmp(id, TSR_BACKEND_LINEARS) == 0)
        return tsr_cpu_linears();
    return strcmp(id, TSR_BACKEND_LAYOUT) == 0 ? tsr_cpu_layout() : NULL;
}
