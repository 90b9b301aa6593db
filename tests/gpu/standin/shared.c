/* shared.c - libcuda.so.1 of the tests: memory of a device that other processes open.
 *
 * A block is a file without a name, which the owner's process keeps open, and a page after it counts who has it open.
 * Its handle names the process and the file, so that it ends with the process; what is open then stays. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

#define MAGIC 0x49504331u

struct handle {
    uint32_t magic;
    int32_t  pid, fd, device;
    uint64_t bytes, file;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "CUDA's handles have 64 bytes");

/* Of another process. */
struct opened {
    struct opened *next;
    uint64_t       address, bytes;
};
static struct opened *all;

static uint64_t file_bytes(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096 + 4096;
}

static void *map(int fd, uint64_t bytes)
{
    void *p = mmap(NULL, file_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static _Atomic uint32_t *users_of(uint64_t address, uint64_t bytes)
{
    uint8_t *p = simt_place(address, bytes);
    return (_Atomic uint32_t *)(void *)(p + file_bytes(bytes) - 4096);
}

static void unmap(uint64_t address, uint64_t bytes)
{
    void *p = simt_place(address, bytes);
    simt_free(address);
    (void)munmap(p, file_bytes(bytes));
}

uint64_t standin_shared_alloc(uint64_t bytes, int *fd)
{
    *fd = memfd_create("stand-in", MFD_CLOEXEC);
    void    *p = *fd >= 0 && ftruncate(*fd, (off_t)file_bytes(bytes)) == 0 ? map(*fd, bytes) : NULL;
    uint64_t at = p ? simt_adopt(p, bytes) : 0;
    if (!at) {
        if (p)
            (void)munmap(p, file_bytes(bytes));
        if (*fd >= 0)
            (void)close(*fd);
        *fd = -1;
    }
    return at;
}

void standin_shared_free(const struct pinned *b)
{
    standin_count()->torn += atomic_load(users_of(b->device, b->bytes)) != 0;
    unmap(b->device, b->bytes);
    (void)close(b->fd);
}

uint64_t standin_opened(void)
{
    uint64_t n = 0;
    for (const struct opened *o = all; o; o = o->next)
        n++;
    return n;
}

#ifndef STANDIN_OLD /* whose devices do not see each other */

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p)
{
    ONE_AT_A_TIME;
    const struct pinned *b = standin_block(p);
    struct handle        own = { .magic = MAGIC, .pid = getpid(), .device = standin_device() };
    struct stat          s;
    CUresult             r = standin_enter();
    if (r != CUDA_SUCCESS || !b || b->fd < 0 || fstat(b->fd, &s) != 0)
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
    own.fd = b->fd;
    own.bytes = b->bytes;
    own.file = s.st_ino;
    memset(h, 0, sizeof *h);
    memcpy(h, &own, sizeof own);
    return CUDA_SUCCESS;
}

static CUresult open_file(uint64_t *address, const struct handle *h)
{
    char        path[64];
    struct stat s;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    void *p =
        fstat(fd, &s) == 0 && s.st_ino == h->file && (uint64_t)s.st_size == file_bytes(h->bytes)
            ? map(fd, h->bytes)
            : NULL;
    (void)close(fd);
    *address = p ? simt_adopt(p, h->bytes) : 0;
    if (p && !*address)
        (void)munmap(p, file_bytes(h->bytes));
    return *address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle h, unsigned flags)
{
    ONE_AT_A_TIME;
    struct handle from;
    int           can = 0;
    CUresult      r = standin_enter();
    *p = 0;
    memcpy(&from, &h, sizeof from);
    if (r != CUDA_SUCCESS || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
    if (from.magic != MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (from.pid == getpid()) /* handles are for other processes */
        return CUDA_ERROR_INVALID_CONTEXT;
    if (standin_option("closed", -1) == standin_device())
        return CUDA_ERROR_MAP_FAILED;
    (void)cuDeviceCanAccessPeer(&can, standin_device(), from.device);
    if (!can && from.device != standin_device())
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    struct opened *o = malloc(sizeof *o);
    uint64_t       at = 0;
    r = o ? open_file(&at, &from) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        free(o);
        return r;
    }
    *o = (struct opened){ .next = all, .address = at, .bytes = from.bytes };
    all = o;
    (void)atomic_fetch_add(users_of(at, from.bytes), 1);
    *p = at;
    return CUDA_SUCCESS;
}

/* Work that is queued may use it: it waits, as a free does. */
EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
    ONE_AT_A_TIME;
    CUresult r = standin_enter();
    if (r != CUDA_SUCCESS)
        return r;
    standin_settle();
    for (struct opened **o = &all; *o; o = &(*o)->next) {
        struct opened *found = *o;
        if (found->address != p)
            continue;
        *o = found->next;
        (void)atomic_fetch_sub(users_of(found->address, found->bytes), 1);
        unmap(found->address, found->bytes);
        free(found);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

#endif
