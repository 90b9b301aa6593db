#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAPS 64
#define PAGE UINT64_C(4096)

/* What a handler reads: begin is set last and cleared first. */
static struct {
    _Atomic(const unsigned char *) begin;
    uint64_t                       bytes;
    const char                    *path;
    int                            fd;
    atomic_flag                    taken;
} maps[MAPS];

static tsr_status enter(struct tsr_map *m, struct tsr_err *err)
{
    unsigned i = 0;
    while (i < MAPS && atomic_flag_test_and_set(&maps[i].taken))
        i++;
    if (i == MAPS)
        return tsr_fail(err, TSR_E_INPUT, "%s: more than %d files would be mapped at once",
                        m->file.path, MAPS);
    m->slot = i;
    maps[i].bytes = m->bytes;
    maps[i].path = m->file.path;
    maps[i].fd = m->file.fd;
    atomic_store(&maps[i].begin, m->data);
    return TSR_OK;
}

tsr_status tsr_map_open(struct tsr_map *m, const char *path, struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, path, err));
    return tsr_map_file(m, &f, err);
}

tsr_status tsr_map_file(struct tsr_map *m, struct tsr_file *file, struct tsr_err *err)
{
    memset(m, 0, sizeof *m);
    m->file = *file;
    file->fd = -1;
    file->path = NULL;
    const char *path = m->file.path;
    tsr_status  st = TSR_OK;
    if (m->file.size == 0)
        st = tsr_fail(err, TSR_E_INPUT, "%s: is empty", path);
    if (st == TSR_OK) {
        void *p = mmap(NULL, m->file.size, PROT_READ, MAP_SHARED, m->file.fd, 0);
        if (p == MAP_FAILED)
            st = tsr_fail_errno(err, errno, path, "map");
        else
            m->data = p;
    }
    if (st == TSR_OK) {
        m->bytes = m->file.size;
        /* read from the disk in large pages, which take a five-hundredth of the faults later */
        (void)madvise((void *)(uintptr_t)m->data, m->bytes, MADV_HUGEPAGE);
        st = enter(m, err);
        if (st != TSR_OK)
            (void)munmap((void *)(uintptr_t)m->data, m->bytes);
    }
    if (st != TSR_OK) {
        tsr_file_close(&m->file);
        memset(m, 0, sizeof *m);
    }
    return st;
}

void tsr_map_close(struct tsr_map *m)
{
    if (!m->data)
        return;
    atomic_store(&maps[m->slot].begin, NULL);
    atomic_flag_clear(&maps[m->slot].taken);
    (void)munmap((void *)(uintptr_t)m->data, m->bytes);
    tsr_file_close(&m->file);
    memset(m, 0, sizeof *m);
}

void tsr_map_want(const struct tsr_map *m, uint64_t at, uint64_t bytes)
{
    uint64_t from = at / PAGE * PAGE;
    if (at >= m->bytes)
        return;
    uint64_t end = bytes < m->bytes - at ? at + bytes : m->bytes;
    (void)madvise((void *)(uintptr_t)(m->data + from), end - from, MADV_WILLNEED);
}

void tsr_map_drop(const void *p, uint64_t bytes)
{
    const unsigned char *a = p;
    for (unsigned i = 0; i < MAPS; i++) {
        const unsigned char *begin = atomic_load(&maps[i].begin);
        if (!begin || a < begin || a >= begin + maps[i].bytes)
            continue;
        uint64_t at = (uint64_t)(a - begin), left = maps[i].bytes - at;
        uint64_t from = (at + PAGE - 1) / PAGE * PAGE;
        uint64_t end = (at + (bytes < left ? bytes : left)) / PAGE * PAGE;
        if (end <= from)
            return;
        (void)madvise((void *)(uintptr_t)(begin + from), end - from, MADV_DONTNEED);
        (void)posix_fadvise(maps[i].fd, (off_t)from, (off_t)(end - from), POSIX_FADV_DONTNEED);
        return;
    }
}

bool tsr_map_find(const void *address, struct tsr_map_place *place)
{
    const unsigned char *a = address;
    for (unsigned i = 0; i < MAPS; i++) {
        const unsigned char *begin = atomic_load(&maps[i].begin);
        struct stat          st;
        if (!begin || a < begin || a >= begin + maps[i].bytes)
            continue;
        place->path = maps[i].path;
        place->byte = (uint64_t)(a - begin);
        place->shorter =
            fstat(maps[i].fd, &st) == 0 && (uint64_t)st.st_size <= place->byte / PAGE * PAGE;
        return true;
    }
    return false;
}
