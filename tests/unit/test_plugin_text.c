/* What is read of plugins as text: versions in the order of semver.org, and the libraries that an ELF
 * file asks for, whatever its bytes are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "plugin/elf.h"
#include "plugin/semver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_valid(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0.0.0",
        "1.2.3",
        "10.20.30",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-0.3.7",
        "1.0.0-x.7.z.92",
        "1.0.0-x-y-z.--",
        "1.0.0+20130313",
        "1.0.0-beta+exp.sha.5114f85",
        "1.0.0+001",
        "1.0.0-0a",
        "99999999999999999999999.999999999999999999.99999999999999999",
    };
    static const char *const shorter[] = { "1", "0", "1.2", "1.2-rc.1", "3+build" };
    static const char *const bad[] = {
        "",         "v1.0.0",     "01.2.3", "1.02.3",         "1.2.3.4",   "1.2.3-",
        "1.2.3-01", "1.2.3-a..b", "1.2.3+", "1.2.3+a+b",      "1.2.3 ",    " 1.2.3",
        "1..3",     "1.2.",       "-1.2.3", "1.2.3-\xc3\xa4", "1.2.3-a_b", "+1.2.3",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!tsr_plugin_semver_valid(good[i]) || !tsr_plugin_semver_valid_short(good[i]))
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof shorter / sizeof *shorter; i++)
        if (tsr_plugin_semver_valid(shorter[i]) || !tsr_plugin_semver_valid_short(shorter[i]))
            fail_msg("%s is misjudged", shorter[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (tsr_plugin_semver_valid(bad[i]) || tsr_plugin_semver_valid_short(bad[i]))
            fail_msg("%s is taken", bad[i]);
}

static int sign(int x)
{
    return (x > 0) - (x < 0);
}

static void test_order(void **state)
{
    (void)state;
    /* each is older than the next; the pre-releases are the example of semver.org, item 11 */
    static const char *const chain[] = {
        "0.0.1",
        "0.9.9",
        "0.10.0",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1-0",
        "1.0.1",
        "1.1",
        "2",
        "10.0.0",
        "99999999999999999999.0.0",
        "100000000000000000000",
    };
    static const char *const same[][2] = {
        { "1", "1.0.0" },
        { "1.2", "1.2.0+b" },
        { "1.0.0+a", "1.0.0+b" },
        { "1.0.0-a+x", "1.0.0-a" },
    };
    size_t n = sizeof chain / sizeof *chain;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            if (sign(tsr_plugin_semver_compare(chain[i], chain[j])) != (i > j) - (i < j))
                fail_msg("%s and %s are in the wrong order", chain[i], chain[j]);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (tsr_plugin_semver_compare(same[i][0], same[i][1]) != 0)
            fail_msg("%s and %s differ", same[i][0], same[i][1]);
}

static void test_libraries(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_file   f;
    char            **names = NULL;
    uint64_t          n = 0;
    assert_int_equal(tsr_file_open(&f, TSR_TEST_PLUGINS "/rtn.so", &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_elf_libraries(&f, &names, &n, &e.err), TSR_OK);
    bool libc = false;
    for (uint64_t i = 0; i < n; i++)
        libc = libc || strncmp(names[i], "libc.so", 7) == 0;
    assert_true(libc);
    free(names);
    tsr_file_close(&f);
    char path[] = "/tmp/tessera-libraries-XXXXXX";
    int  fd = mkstemp(path);
    assert_int_equal(write(fd, "hello, world, this is no plugin\n", 32), 32);
    assert_int_equal(tsr_file_open(&f, path, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_elf_libraries(&f, &names, &n, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, path, NULL));
    tsr_file_close(&f);
    (void)close(fd);
    (void)unlink(path);
}

/* Names in range, and nothing outside the file is read (with the sanitizers). */
static void test_damage(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              path[] = "/tmp/tessera-libraries-XXXXXX", *so = NULL;
    uint64_t          size = 0;
    uint32_t          random = 4711;
    unsigned          taken = 0, refused = 0;
    int               fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(tsr_file_slurp(TSR_TEST_PLUGINS "/local.so", 1 << 24, &so, &size, &e.err),
                     TSR_OK);
    for (unsigned round = 0; round < 800; round++) {
        struct tsr_file f;
        char          **names = NULL, byte;
        uint64_t        n = 0, at[4];
        assert_int_equal(pwrite(fd, so, size, 0), size);
        for (unsigned i = 0; i < 1 + round % 4; i++) {
            random = random * 1664525u + 1013904223u;
            at[i] = (random >> 8) % (round % 3 ? 1024 : size);
            byte = (char)(random & 1 ? 0xff : random >> 1 & 1 ? 0 : random >> 16);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at[i]), 1);
        }
        assert_int_equal(ftruncate(fd, (off_t)(round % 5 ? size : (random >> 4) % size)), 0);
        assert_int_equal(tsr_file_open(&f, path, &e.err), TSR_OK);
        if (tsr_plugin_elf_libraries(&f, &names, &n, &e.err) == TSR_OK) {
            taken++;
            for (uint64_t i = 0; i < n; i++)
                for (const char *s = names[i]; *s; s++)
                    assert_true(*s >= ' ' && *s <= '~');
            free(names);
        } else {
            refused++;
            assert_true(error_is(&e.err, path, NULL));
        }
        tsr_file_close(&f);
    }
    assert_true(taken > 50 && refused > 100); /* both ways are walked */
    free(so);
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
