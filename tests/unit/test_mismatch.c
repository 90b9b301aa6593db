/* Plugins that do not fit the host: each is refused with one sentence, the first that applies in
 * the order of docs/abi.md, and before any function of its tables is called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "registry_fixture.h"
#include "tessera/quantizer.h"

#include <elf.h>
#include <sys/stat.h>

#define CALLED TSR_SENTINEL "_called"

static void test_descriptor(void **state)
{
    (void)state;
    refused(FIXTURE("bad_build"), "", "build NULL");
    refused(FIXTURE("bad_components"), "", "1 NULL 1024");
    refused(FIXTURE("bad_count"), "", "0");
    refused(FIXTURE("bad_many"), "", "5000 1 1024");
    refused(FIXTURE("bad_undotted"), "", "fixture");
    refused(FIXTURE("bad_long"), "", "63");
    refused(FIXTURE("bad_odd"), "", "75 8");
    refused(FIXTURE("bad_function"), "", "tsr_plugin_v1");
    refused(FIXTURE("bad_bss"), "", NULL);
    refused(FIXTURE("bad_changes"), "", NULL);
    refused(FIXTURE("bad_missing"), "", "tsr_test_nowhere");
    refused(FIXTURE("bad_missing"), "", "tsr_test_nowhere");
}

static void test_components(void **state)
{
    (void)state;
    refused(FIXTURE("bad_odd_component"), "", "0 66 8");
    refused(FIXTURE("bad_twice"), ": quantizer \"good\"", NULL);
    refused(FIXTURE("bad_empty_kind"), "", "0 kind");
    char odd[100];
    (void)snprintf(odd, sizeof odd, "%zu 8", sizeof(struct tsr_quantizer_v1) - 4);
    refused(FIXTURE("bad_odd_table"), ": quantizer \"good\"", odd);
    refused(FIXTURE("bad_odd_stride"), ": quantizer \"good\"", "option_stride 89");
    refused(FIXTURE("bad_no_table"), ": quantizer \"good\"", "1 NULL");
    refused(FIXTURE("bad_options"), ": quantizer \"good\"", "2000");
    refused(FIXTURE("opt_noname"), ": quantizer \"good\"", "1 NULL");
    refused(FIXTURE("opt_nameless"), ": quantizer \"good\": option \"kind\"", "1");
    refused(FIXTURE("opt_many"), ": quantizer \"good\": option \"kind\"", "choices 5000");
}

/* A file that is wrong in everything, repaired bit by bit. */
static void test_order(void **state)
{
    (void)state;
    static const char *const facts[] = {
        "3158585858585354 magic",
        "ABI",
        "64",
        "ABI 1.5",
        "Fixture",
        "version NULL",
        "component 0 56",
        "component 0 kind",
        "Good",
        "summary NULL",
        "40",
        "option_stride 64",
        "4",
    };
    static const char *const parts[] = {
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        ": quantizer \"good\"",
        ": quantizer \"good\"",
        ": quantizer \"good\"",
        ": quantizer \"good\": option \"bits\"",
    };
    char     path[256];
    uint64_t n;
    assert_int_equal(sizeof facts / sizeof facts[0], TSR_ORDER);
    char       *so = read_all(FIXTURE("order_export"), &n);
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)so;
    uint16_t    machine = h->e_machine, type = h->e_type;
    h->e_type = ET_EXEC;
    h->e_machine = EM_RISCV;
    so[EI_CLASS] = ELFCLASS32;
    refused(write_all("class.so", so, n), "", "32-bit");
    so[EI_CLASS] = ELFCLASS64;
    refused(write_all("machine.so", so, n), "", "RISC-V 243");
    h->e_machine = machine;
    refused(write_all("type.so", so, n), "", "2");
    h->e_type = type;
    refused(write_all("export.so", so, n), "", "tsr_plugin_v2 tsr_plugin_v1");
    free(so);
    for (int i = 0; i < TSR_ORDER; i++) {
        (void)snprintf(path, sizeof path, TSR_FIXTURES "/order_%d.so", i);
        refused(path, parts[i], facts[i]);
    }
}

/* Wherever the file ends before its last loaded byte, it is refused; behind that only what no
 * loader reads is gone. */
static void test_truncated(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n, last = 0;
    char             *so = read_all(FIXTURE("good"), &n);
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)so;
    const Elf64_Phdr *ph = (const Elf64_Phdr *)(const void *)(so + h->e_phoff);
    for (unsigned i = 0; i < h->e_phnum; i++)
        if (ph[i].p_type == PT_LOAD && ph[i].p_offset + ph[i].p_filesz > last)
            last = ph[i].p_offset + ph[i].p_filesz;
    assert_true(last > 1024 && last < n);
    for (uint64_t at = 0; at < last; at += at < 1024 ? 13 : 509) {
        const char *path = write_all("cut.so", so, at);
        if (load(path, &e) != TSR_E_INPUT || !error_is(&e.err, path, NULL))
            fail_msg("%llu of %llu bytes: %s", (unsigned long long)at, (unsigned long long)n,
                     e.text);
    }
    refused(write_all("cut.so", so, last - 1), "", NULL);
    const char *path = write_all("whole.so", so, last);
    if (load(path, &e) != TSR_OK)
        fail_msg("%s", e.text);
    free(so);
}

/* A plugin for this major and the next: the host takes its own. */
static void test_both(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = fresh();
    struct tsr_plugin_found f;
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("both"), &e.err), TSR_OK);
    if (tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "good", &f, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(f.info->plugin->abi_major, 1);
    tsr_plugin_registry_destroy(r);
}

/* Last: none of those above had a function called; the trap works. */
static void test_nothing_called(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = fresh();
    struct tsr_plugin_found f;
    void                   *self = NULL;
    assert_false(tsr_path_exists(CALLED));
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("called"), &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "called", &f, &e.err), TSR_OK);
    assert_false(tsr_path_exists(CALLED));
    const struct tsr_quantizer_v1 *q = f.iface;
    assert_int_equal(q->create(f.host, NULL, &self, &e.err), TSR_OK);
    assert_true(tsr_path_exists(CALLED));
    q->destroy(self);
    (void)unlink(CALLED);
    tsr_plugin_registry_destroy(r);
}

static int make_scratch(void **state)
{
    (void)state;
    (void)unlink(CALLED);
    return mkdtemp(scratch) ? 0 : -1;
}

static int drop_scratch(void **state)
{
    (void)state;
    static const char *const names[] = { "class.so", "machine.so", "type.so", "export.so",
                                         "cut.so",   "whole.so",   "" };
    char                     path[300];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", scratch, names[i]);
        (void)remove(path);
    }
    return tsr_path_exists(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptor), cmocka_unit_test(test_components),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_both),       cmocka_unit_test(test_nothing_called),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
