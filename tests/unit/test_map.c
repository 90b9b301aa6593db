/* Mapped files: pages that are dropped leave the memory of the process, and are read again. */
#include "base/map.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (UINT64_C(256) * 4096)

/* Bytes of the mapping at p that are in this process's memory, as the system counts them. */
static uint64_t resident(const void *p)
{
    FILE    *f = fopen("/proc/self/smaps", "r");
    char     line[512];
    uint64_t kib = UINT64_MAX;
    bool     here = false;
    assert_non_null(f);
    while (kib == UINT64_MAX && fgets(line, sizeof line, f)) {
        uint64_t begin, end;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2)
            here = begin <= (uint64_t)(uintptr_t)p && (uint64_t)(uintptr_t)p < end;
        if (here && sscanf(line, "Rss: %" SCNu64 " kB", &kib) != 1)
            kib = UINT64_MAX;
    }
    (void)fclose(f);
    assert_true(kib != UINT64_MAX);
    return kib * 1024;
}

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

static void all_right(const struct tsr_map *m)
{
    for (uint64_t i = 0; i < m->bytes; i++)
        if (m->data[i] != byte_at(i))
            fail_msg("byte %llu", (unsigned long long)i);
}

static void test_drop(void **state)
{
    char              path[] = "/tmp/tessera-map-XXXXXX";
    int               fd = mkstemp(path);
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_map    m;
    uint8_t          *bytes = malloc(BYTES);
    (void)state;
    assert_true(fd >= 0 && bytes);
    for (uint64_t i = 0; i < BYTES; i++)
        bytes[i] = byte_at(i);
    assert_int_equal(write(fd, bytes, BYTES), BYTES);
    (void)close(fd);
    assert_int_equal(tsr_map_open(&m, path, &err.err), TSR_OK);
    (void)unlink(path);
    all_right(&m);
    assert_int_equal(resident(m.data), BYTES);
    /* whole pages alone: 1 to 99 of these bytes' 101 */
    tsr_map_drop(m.data + 4095, UINT64_C(99) * 4096 + 4094);
    assert_int_equal(resident(m.data), BYTES - UINT64_C(99) * 4096);
    all_right(&m);
    assert_int_equal(resident(m.data), BYTES);
    /* less than a page, nothing, and what goes past the end */
    tsr_map_drop(m.data + 1, 4095);
    tsr_map_drop(m.data, 0);
    assert_int_equal(resident(m.data), BYTES);
    tsr_map_drop(m.data + 4096, UINT64_MAX);
    assert_int_equal(resident(m.data), 4096);
    all_right(&m);
    /* other memory than that of a map stays */
    tsr_map_drop(bytes, BYTES);
    for (uint64_t i = 0; i < BYTES; i++)
        assert_int_equal(bytes[i], byte_at(i));
    tsr_map_close(&m);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_drop) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
