/* Plugins that do not fit the host: each is refused with one sentence, the first that applies in
 * the order of docs/abi.md, and before any function of its tables is called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "registry_fixture.h"
#include "tessera/quantizer.h"

#include <elf.h>
#include <sys/stat.h>

#define CALLED TSR_SENTINEL "_called"

static void test_descriptor(void **state)
{
    (void)state;
    refused(FIXTURE("bad_build"), "leaves build NULL");
    refused(FIXTURE("bad_components"), "has 1 components at NULL, 1 to 1024 are needed");
    refused(FIXTURE("bad_count"), "has 0 components at an address");
    refused(FIXTURE("bad_many"), "has 5000 components at an address, 1 to 1024 are needed");
    refused(FIXTURE("bad_undotted"), "plugin id \"fixture\" is not of the form");
    refused(FIXTURE("bad_long"), "(at most 63 bytes)");
    refused(FIXTURE("bad_odd"), "plugin descriptor says 75 bytes, a size is a multiple of 8");
    refused(FIXTURE("bad_function"), "does not export tsr_plugin_v1");
    refused(FIXTURE("bad_bss"), "stores its plugin descriptor outside the file");
    refused(FIXTURE("bad_changes"), "its descriptor in memory differs from the file's");
    refused(FIXTURE("bad_missing"), "cannot be loaded (");
    refused(FIXTURE("bad_missing"), "tsr_test_nowhere");
}

static void test_components(void **state)
{
    (void)state;
    refused(FIXTURE("bad_odd_component"), "component 0 says 66 bytes, a size is a multiple of 8");
    refused(FIXTURE("bad_twice"), "quantizer \"good\": appears twice in this plugin; rename one");
    refused(FIXTURE("bad_empty_kind"), "component 0 names no kind");
    char odd[100];
    (void)snprintf(odd, sizeof odd, "quantizer \"good\": its table says %zu bytes, a size is a",
                   sizeof(struct tsr_quantizer_v1) - 4);
    refused(FIXTURE("bad_odd_table"), odd);
    refused(FIXTURE("bad_odd_stride"),
            "quantizer \"good\": option_stride says 89 bytes, a size is");
    refused(FIXTURE("bad_no_table"), "1 options at NULL in a struct of");
    refused(FIXTURE("bad_options"), "2000 options at an address in a struct of");
    refused(FIXTURE("opt_noname"), "option 1 has the name \"(NULL)\"");
    refused(FIXTURE("opt_nameless"), "option \"kind\": choice 1 has no name");
    refused(FIXTURE("opt_many"), "option \"kind\": has no choices (5000 listed)");
}

/* A file that is wrong in everything, repaired bit by bit. */
static void test_order(void **state)
{
    (void)state;
    static const char *const words[] = {
        "starts with 3158585858585354, not with the magic number",
        "built for ABI 2.",
        "descriptor says 64 bytes",
        "needs ABI 1.5 or newer",
        "plugin id \"Fixture\"",
        "leaves version NULL",
        "component 0 says 56 bytes",
        "component 0 names no kind",
        "has the name \"Good one\"",
        "summary is NULL",
        "its table says 40 bytes",
        "option_stride is 64",
        "does not fit the option struct of 4 bytes",
    };
    char     path[256];
    uint64_t n;
    assert_int_equal(sizeof words / sizeof words[0], TSR_ORDER);
    char       *so = read_all(FIXTURE("order_export"), &n);
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)so;
    uint16_t    machine = h->e_machine, type = h->e_type;
    h->e_type = ET_EXEC;
    h->e_machine = EM_RISCV;
    so[EI_CLASS] = ELFCLASS32;
    refused(write_all("class.so", so, n), "is a 32-bit little-endian ELF file");
    so[EI_CLASS] = ELFCLASS64;
    refused(write_all("machine.so", so, n), "is built for RISC-V (ELF machine 243)");
    h->e_machine = machine;
    refused(write_all("type.so", so, n), "is an ELF file of type 2, not a shared object");
    h->e_type = type;
    refused(write_all("export.so", so, n), "exports tsr_plugin_v2, this host needs tsr_plugin_v1");
    free(so);
    for (int i = 0; i < TSR_ORDER; i++) {
        (void)snprintf(path, sizeof path, TSR_FIXTURES "/order_%d.so", i);
        refused(path, words[i]);
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
        if (load(path, &e) != TSR_E_INPUT || !strstr(e.text, path) || strchr(e.text, '\n'))
            fail_msg("%llu of %llu bytes: %s", (unsigned long long)at, (unsigned long long)n,
                     e.text);
    }
    refused(write_all("cut.so", so, last - 1), "truncated or damaged");
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
