/* The registry: what it loads, what it refuses and in which words, and that it refuses before
 * code of the plugin runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "plugin/elf.h"
#include "plugin/fpmode.h"
#include "plugin_open.h"
#include "registry_fixture.h"
#include "tessera/codec.h"
#include "tessera/quantizer.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- refusals ---------------------------------------------------------------- */

static void test_descriptor(void **state)
{
    (void)state;
    refused(FIXTURE("bad_magic"), "", "3158585858585354 magic 314e474c50525354");
    refused(FIXTURE("bad_major"), "", "2.3 1.0 1.2");
    refused(FIXTURE("bad_size"), "", "64 1.0 72");
    refused(FIXTURE("bad_export"), "", "tsr_plugin_v2 tsr_plugin_v1 1.2");
    refused(FIXTURE("no_export"), "", "tsr_plugin_v1");
    refused(FIXTURE("bad_needs"), "", "1.5 1.2");
    refused(FIXTURE("bad_id"), "", "Fixture org.example.name");
    refused(FIXTURE("bad_version"), "", "version NULL");
    refused(FIXTURE("bad_license"), "", "license NULL");
}

static void test_components(void **state)
{
    (void)state;
    refused(FIXTURE("bad_list"), "", "0 1 NULL");
    refused(FIXTURE("bad_component"), "", "0 56 1.0 64");
    refused(FIXTURE("bad_kind"), "", "0 kind");
    refused(FIXTURE("bad_name"), "", "0 Good");
    refused(FIXTURE("bad_summary"), ": quantizer \"good\"", "summary NULL");
    refused(FIXTURE("bad_text"), ": quantizer \"good\"", "summary");
    refused(FIXTURE("bad_utf8"), ": quantizer \"good\"", "summary");
    refused(FIXTURE("bad_iface"), ": quantizer \"good\"", "iface NULL");
    refused(FIXTURE("bad_table"), ": quantizer \"good\"", "40");
    refused(FIXTURE("bad_slot"), ": quantizer \"good\"", "plan NULL");
}

static void test_options(void **state)
{
    (void)state;
    refused(FIXTURE("bad_stride"), ": quantizer \"good\"", "option_stride 64 1.0 88");
    refused(FIXTURE("bad_struct"), ": quantizer \"good\": option \"bits\"", "0 8 4");
    refused(FIXTURE("huge_struct"), ": quantizer \"good\"", "1099511627776");
    refused(FIXTURE("opt_twice"), ": quantizer \"good\": option \"bits\"", NULL);
    refused(FIXTURE("opt_overlap"), ": quantizer \"good\": option \"more\"", "bits");
    refused(FIXTURE("opt_offset"), ": quantizer \"good\": option \"more\"",
            "18446744073709551612 8");
    refused(FIXTURE("opt_align"), ": quantizer \"good\": option \"more\"", "12 8");
    refused(FIXTURE("opt_name"), ": quantizer \"good\"", "1 Bits");
    refused(FIXTURE("opt_help"), ": quantizer \"good\": option \"more\"", "help NULL");
    refused(FIXTURE("opt_words"), ": quantizer \"good\": option \"more\"", NULL);
    refused(FIXTURE("opt_units"), ": quantizer \"good\": option \"more\"", NULL);
    refused(FIXTURE("opt_called"), ": quantizer \"good\": option \"kind\"", "0 help");
    refused(FIXTURE("opt_type"), ": quantizer \"good\": option \"more\"", "9");
    refused(FIXTURE("opt_default"), ": quantizer \"good\": option \"more\"", "default 9 1 8");
    refused(FIXTURE("opt_range"), ": quantizer \"good\": option \"more\"", "range 8 1");
    refused(FIXTURE("opt_real"), ": quantizer \"good\": option \"damp\"", "default 2 0 1");
    refused(FIXTURE("opt_nan"), ": quantizer \"good\": option \"damp\"", NULL);
    refused(FIXTURE("opt_bool"), ": quantizer \"good\": option \"flag\"", "default 2 0 1");
    refused(FIXTURE("opt_string"), ": quantizer \"good\": option \"note\"", "default NULL");
    refused(FIXTURE("opt_choice"), ": quantizer \"good\": option \"kind\"", "default 3 choices");
    refused(FIXTURE("opt_choices"), ": quantizer \"good\": option \"kind\"", "choices");
    refused(FIXTURE("opt_same"), ": quantizer \"good\": option \"kind\"", "a");
}

static void test_nothing_ran(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)unlink(TSR_SENTINEL);
    (void)unlink(TSR_SENTINEL "_run");
    refused(FIXTURE("bad_magic"), "", "magic");
    refused(FIXTURE("bad_major"), "", "2.3");
    refused(FIXTURE("bad_size"), "", "bytes");
    refused(FIXTURE("bad_export"), "", "tsr_plugin_v2");
    refused(FIXTURE("no_export"), "", "tsr_plugin_v1");
    assert_false(tsr_path_exists(TSR_SENTINEL));
    /* the trap works: a plugin that is taken does run its constructor */
    assert_int_equal(load(FIXTURE("constructor"), &e), TSR_OK);
    assert_true(tsr_path_exists(TSR_SENTINEL "_run"));
    (void)unlink(TSR_SENTINEL "_run");
}

static void test_floating_point(void **state)
{
    (void)state;
    struct tsr_plugin_fpmode before = tsr_fpmode_get();
    const char              *mode = "floating-point";
#if defined(__x86_64__)
    refused(FIXTURE("flush"), "", mode);
    refused(FIXTURE("flush"), "",
            "-ffast-math"); /* the second time nothing runs, the verdict stays */
#endif
#if TSR_FASTMATH
    refused(FIXTURE("fastmath"), "", mode);
#endif
    (void)mode;
    assert_true(tsr_fpmode_equal(before, tsr_fpmode_get()));
    volatile float tiny = 1e-38f;
    assert_true(tiny / 8 > 0); /* denormals live */
}

/* ---- files -------------------------------------------------------------------- */

static void test_files(void **state)
{
    (void)state;
    uint64_t n;
    char    *so = read_all(FIXTURE("good"), &n);
    refused(write_all("text.so", "hello, world, this is no plugin\n", 32), "", NULL);
    refused(write_all("empty.so", "", 0), "", "0");
    refused(write_all("head.so", so, 40), "", NULL);
    /* a quarter: debug information may be more than half of the file, and is not loaded */
    refused(write_all("half.so", so, n / 4), "", NULL);
    so[EI_CLASS] = ELFCLASS32;
    refused(write_all("small.so", so, n), "", "32-bit 64-bit");
    so[EI_CLASS] = ELFCLASS64;
    so[EI_DATA] = ELFDATA2MSB;
    refused(write_all("big.so", so, n), "", "64-bit");
    so[EI_DATA] = ELFDATA2LSB;
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)so;
    h->e_machine = EM_RISCV;
    refused(write_all("riscv.so", so, n), "", "RISC-V 243");
    h->e_machine = ((Elf64_Ehdr *)(void *)so)->e_machine = 0;
    refused(write_all("odd.so", so, n), "", "0");
    free(so);
    so = read_all(FIXTURE("good"), &n);
    ((Elf64_Ehdr *)(void *)so)->e_type = ET_REL;
    refused(write_all("object.so", so, n), "", "1");
    free(so);
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(load("/nonexistent/x.so", &e), TSR_E_INPUT);
    assert_true(error_is(&e.err, "/nonexistent/x.so", NULL));
    assert_int_equal(load("/dev/null", &e), TSR_E_INPUT);
    assert_true(error_is(&e.err, "/dev/null", NULL));
}

/* Whatever the bytes are: a verdict, and nothing outside the file is read (with the sanitizers). */
static void test_elf_damage(void **state)
{
    (void)state;
    uint64_t       n;
    unsigned char *so = (unsigned char *)read_all(FIXTURE("good"), &n);
    uint32_t       random = 12345;
    unsigned       taken = 0, turned_down = 0;
    for (unsigned round = 0; round < 1500; round++) {
        struct tsr_errbuf            e = TSR_ERRBUF(e);
        struct tsr_plugin_elf_plugin p;
        struct tsr_file              f;
        bool                         is_plugin;
        unsigned char               *bad = malloc(n);
        assert_non_null(bad);
        memcpy(bad, so, n);
        for (unsigned i = 0; i < 1 + round % 4; i++) {
            random = random * 1664525u + 1013904223u;
            uint64_t at = (random >> 8) % (round % 3 ? 1024 : n);
            bad[at] = (unsigned char)(random & 1 ? 0xff : random >> 1 & 1 ? 0 : random >> 16);
        }
        const char *path = write_all("fuzz.so", bad, round % 5 ? n : (random >> 4) % n);
        assert_int_equal(tsr_file_open(&f, path, &e.err), TSR_OK);
        if (tsr_plugin_elf_probe(&f, "tsr_plugin_v1", "tsr_plugin_v", &p, &is_plugin, &e.err) ==
            TSR_OK)
            taken++;
        else
            turned_down++;
        tsr_file_close(&f);
        free(bad);
    }
    assert_true(taken > 50 && turned_down > 200); /* both ways are walked */
    free(so);
}

static void test_rights(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n;
    char             *so = read_all(FIXTURE("good"), &n);
    const char       *path = write_all("mine.so", so, n);
    assert_int_equal(load(path, &e), TSR_OK); /* below a sticky folder of root's: fine */
    assert_int_equal(chmod(path, 0646), 0);
    refused(path, "", "0646");
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(chmod(scratch, 0777), 0);
    refused(path, "", "0777");
    refused(scratch, "", "0777");
    assert_int_equal(chmod(scratch, 0700), 0);
    if (geteuid() == 0) { /* only root can give files away */
        assert_int_equal(chown(path, 12345, 12345), 0);
        refused(path, "", "12345");
    }
    free(so);
}

/* ---- what works ----------------------------------------------------------------- */

static void test_good(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = fresh();
    struct tsr_plugin_found f, again;
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("good"), &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "good", &f, &e.err), TSR_OK);
    assert_string_equal(f.info->path, FIXTURE("good"));
    assert_string_equal(f.info->plugin->id, "org.example.fixture");
    assert_int_equal(strncmp(f.info->hash, "xxh3:", 5), 0);
    assert_int_equal(f.component->n_options, 1);
    const struct tsr_quantizer_v1 *q = f.iface;
    void                          *self = NULL;
    assert_int_equal(q->create(f.host, NULL, &self, &e.err), TSR_OK);
    assert_non_null(q->prepare);
    assert_null(q->extension);
    q->destroy(self);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "org.example.fixture/good",
                                              &again, &e.err),
                     TSR_OK);
    assert_ptr_equal(again.iface, f.iface);
    /* near names, other kinds, and other ids */
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "goood", &f, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "goood", "quantizer good " FIXTURE("good")));
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_CODEC, "good", &f, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "org.example.fixtures/good",
                                              &f, &e.err),
                     TSR_E_INPUT);
    tsr_plugin_registry_destroy(r);
}

static void test_versions(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plugin_found  f;
    static const char *const names[] = { FIXTURE("older"), FIXTURE("newer") };
    for (int newer = 0; newer < 2; newer++) {
        struct tsr_registry *r = fresh();
        if (tsr_plugin_registry_add_path(r, names[newer], &e.err) != TSR_OK ||
            tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "good", &f, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        const struct tsr_quantizer_v1 *q = f.iface;
        void                          *self = NULL;
        struct tsr_matrix              w = { .struct_size = sizeof w, .rows = 1, .cols = 42 };
        struct tsr_quant_plan          p = { .struct_size = sizeof p };
        assert_int_equal(q->struct_size, sizeof *q);       /* full size, whatever came */
        assert_true((q->prepare != NULL) == (newer == 1)); /* the older table ends before it */
        assert_null(q->extension);
        assert_int_equal(q->create(f.host, NULL, &self, &e.err), TSR_OK);
        assert_int_equal(q->plan(self, &w, &p, &e.err), TSR_OK);
        assert_int_equal(p.code_bytes, 42);
        q->destroy(self);
        assert_int_equal(f.component->option_stride, sizeof(struct tsr_option));
        assert_string_equal(f.component->options[0].name, "bits");
        tsr_plugin_registry_destroy(r);
    }
}

static void test_same_names(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = fresh();
    struct tsr_plugin_found f;
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("good"), &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("same_name"), &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "good", &f, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "good",
                         FIXTURE("good") " " FIXTURE("same_name") " org.example.fixture/good "
                                                                  "org.example.other/good"));
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "org.example.other/good", &f,
                                              &e.err),
                     TSR_OK);
    assert_string_equal(f.info->path, FIXTURE("same_name"));
    /* a third one with the id of the first cannot be told apart */
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("same_id"), &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "org.example.fixture/good", &f,
                                              &e.err),
                     TSR_E_INPUT);
    assert_true(
        error_is(&e.err, "org.example.fixture/good", FIXTURE("good") " " FIXTURE("same_id")));
    tsr_plugin_registry_destroy(r);
}

static void test_unknown_kind(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = fresh();
    struct tsr_plugin_found f;
    assert_int_equal(tsr_plugin_registry_add_path(r, FIXTURE("unknown_kind"), &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_scan(r, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_count(r), 1);
    assert_false(tsr_plugin_registry_component(r, 0, &f));
    tsr_plugin_registry_destroy(r);
}

/* A folder: good ones load, others are kept for the message, copies and links count once. */
static void test_folder(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_registry    *r = fresh();
    struct tsr_plugin_found f;
    char                    dir[300], path[320], back[300];
    uint64_t                n;
    (void)snprintf(dir, sizeof dir, "%s/folder", scratch);
    assert_int_equal(mkdir(dir, 0755), 0);
    char *so = read_all(FIXTURE("good"), &n);
    (void)write_all("folder/a.so", so, n);
    (void)write_all("folder/b.so", so, n);
    (void)write_all("folder/notes.txt", "x", 1);
    (void)write_all("folder/text.so", "x", 1);
    (void)write_all("folder/half.so", so, n / 4);
    free(so);
    (void)snprintf(path, sizeof path, "%s/c.so", dir);
    assert_int_equal(symlink("a.so", path), 0);
    assert_int_equal(tsr_plugin_registry_add_path(r, dir, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "good", &f, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_count(r), 1);
    const char *bad, *why;
    assert_true(tsr_plugin_registry_refused(r, 0, &bad, &why));
    assert_string_equal(strrchr(bad, '/'), "/half.so");
    assert_false(
        tsr_plugin_registry_refused(r, 1, &bad, &why)); /* text.so is no plugin and no matter */
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "other", &f, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "other", "half.so"));
    tsr_plugin_registry_destroy(r);
    /* never the current folder */
    r = fresh();
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(tsr_plugin_registry_find(r, TSR_KIND_QUANTIZER, "good", &f, &e.err),
                     TSR_E_INPUT);
    assert_int_equal(chdir(back), 0);
    tsr_plugin_registry_destroy(r);
}

/* All that ships: found, told apart, each with what it exports. */
static void test_in_tree(void **state)
{
    (void)state;
    struct tsr_plugin_found f;
    struct tsr_registry    *r = open_plugin(TSR_KIND_CODEC, "plain", &f);
    for (uint64_t i = 0; tsr_plugin_registry_component(r, i, &f); i++) {
        assert_int_equal(strncmp(f.info->plugin->id, "org.tessera.", 12), 0);
        assert_true(strlen(f.component->summary) > 0);
    }
    const char *bad, *why;
    assert_false(tsr_plugin_registry_refused(r, 0, &bad, &why));
    tsr_plugin_registry_destroy(r);
}

/* ---- host services ---------------------------------------------------------------- */

static tsr_status count(void *arg, uint64_t begin, uint64_t end)
{
    __atomic_fetch_add((uint64_t *)arg, end - begin, __ATOMIC_RELAXED);
    return begin == 96 ? TSR_E_NUMERIC : TSR_OK;
}

static void test_host(void **state)
{
    (void)state;
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_pool     *pool = NULL;
    struct tsr_registry *r = NULL;
    assert_int_equal(tsr_pool_create(&pool, 3, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_create(&r, pool, &e.err), TSR_OK);
    const struct tsr_host *h = tsr_plugin_registry_host(r);
    uint64_t               now, peak, sum = 0;
    assert_int_equal(h->struct_size, sizeof *h);
    assert_int_equal(h->abi_major, 1);
    for (uint64_t align = 1; align <= 4096; align *= 2) {
        void *p = h->alloc(h->ctx, 100, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        memset(p, 1, 100);
        tsr_plugin_registry_memory(r, &now, &peak);
        assert_int_equal(now, 100);
        h->release(h->ctx, p, 100);
    }
    void *a = h->alloc(h->ctx, 1000, 8), *b = h->alloc(h->ctx, 0, 8);
    assert_true(a && b);
    h->release(h->ctx, a, 1000);
    h->release(h->ctx, b, 0);
    h->release(h->ctx, NULL, 5);
    tsr_plugin_registry_memory(r, &now, &peak);
    assert_int_equal(now, 0);
    assert_int_equal(peak, 1000);
    assert_null(h->alloc(h->ctx, 8, 3));
    assert_null(h->alloc(h->ctx, UINT64_MAX, 8));
    assert_int_equal(h->parallel_for(h->ctx, 96, 8, count, &sum), TSR_OK);
    assert_int_equal(sum, 96);
    assert_int_equal(h->parallel_for(h->ctx, 104, 8, count, &sum), TSR_E_NUMERIC);
    assert_int_equal(h->cancelled(h->ctx), 0);
    tsr_plugin_cancel();
    assert_int_not_equal(h->cancelled(h->ctx), 0);
    tsr_plugin_cancel_reset();
    assert_null(h->service(h->ctx, "tessera.cuda/1"));
    tsr_plugin_registry_destroy(r);
    tsr_pool_destroy(pool);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(scratch) ? 0 : -1;
}

static int drop_scratch(void **state)
{
    (void)state;
    static const char *const names[] = {
        "folder/a.so",
        "folder/b.so",
        "folder/c.so",
        "folder/notes.txt",
        "folder/text.so",
        "folder/half.so",
        "folder",
        "text.so",
        "empty.so",
        "head.so",
        "half.so",
        "small.so",
        "big.so",
        "riscv.so",
        "odd.so",
        "object.so",
        "fuzz.so",
        "mine.so",
        "",
    };
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", scratch, names[i]);
        (void)remove(path);
    }
    return tsr_path_exists(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_ran), /* first: what is loaded once stays loaded */
        cmocka_unit_test(test_descriptor),   cmocka_unit_test(test_components),
        cmocka_unit_test(test_options),      cmocka_unit_test(test_floating_point),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_elf_damage),
        cmocka_unit_test(test_rights),       cmocka_unit_test(test_good),
        cmocka_unit_test(test_versions),     cmocka_unit_test(test_same_names),
        cmocka_unit_test(test_unknown_kind), cmocka_unit_test(test_folder),
        cmocka_unit_test(test_in_tree),      cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
