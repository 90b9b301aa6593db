/* The thread that beats stands inside a call of MPI that never returns: the other threads of the process still end,
 * within their limits, and leave that thread. */
#include "../fixtures/error_is.h"
#include "base/clock.h"
#include "plugin/registry.h"
#include "runtime/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define STALL_US UINT64_C(400000)
#define SOON_US  UINT64_C(1500000) /* for a busy machine, and the last words of rank 0 */
#define LONG_US  UINT64_C(20000000)

static const char *plugin;
static char        folder[] = "/tmp/tessera-hang-XXXXXX";

/* A job of two ranks, this one and one that says nothing.  once: made when `call` has begun. */
static struct tsr_runtime_peers *join(struct tsr_registry **r, const char *call, char once[64])
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_runtime_peers *m = NULL;
    (void)snprintf(once, 64, "%s/%s", folder, call);
    assert_int_equal(setenv("TSR_HUNG_CALL", call, 1) | setenv("TSR_HUNG_ONCE", once, 1), 0);
    assert_int_equal(tsr_plugin_registry_create(r, NULL, &e.err), TSR_OK);
    assert_int_equal(tsr_plugin_registry_add_path(*r, plugin, &e.err), TSR_OK);
    if (tsr_runtime_peers_join(&m, *r, 0, 2, STALL_US, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return m;
}

static void comes(const char *once)
{
    for (uint64_t start = tsr_now_us(); access(once, F_OK) != 0; (void)usleep(1000))
        assert_true(tsr_now_us() - start < LONG_US);
}

/* With nothing that hangs: its thread ends and everything is freed. */
static void all_return(void **state)
{
    struct tsr_registry      *r;
    char                      once[64];
    struct tsr_runtime_peers *m = join(&r, "none", once);
    uint64_t                  start = tsr_now_us();
    (void)state;
    assert_true(tsr_runtime_peers_destroy(m));
    assert_true(tsr_now_us() - start < 2 * STALL_US);
    assert_true(tsr_runtime_peers_destroy(NULL));
    tsr_plugin_registry_destroy(r);
}

/* The end of rank 0 while the call hangs; the registry stays, as the thread may return into it. */
static void a_call_hangs(void **state)
{
    static const char *const calls[] = { "send", "recv", "test" };
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct tsr_registry      *r;
        struct tsr_errbuf         e = TSR_ERRBUF(e);
        char                      once[64];
        bool                      said = true;
        struct tsr_runtime_peers *m = join(&r, calls[i], once);
        comes(once);
        uint64_t start = tsr_now_us();
        assert_int_equal(tsr_runtime_peers_done(m, &e.err), TSR_E_DEVICE);
        assert_true(error_is(&e.err, "", "rank#1 asked"));
        uint64_t took = tsr_now_us() - start;
        assert_true(took >= 2 * STALL_US && took < 2 * STALL_US + SOON_US);
        start = tsr_now_us();
        tsr_runtime_peers_leave(m, TSR_E_DEVICE, &e.err, &said);
        assert_false(said);
        assert_true(tsr_now_us() - start < SOON_US);
        start = tsr_now_us();
        assert_false(tsr_runtime_peers_destroy(m));
        took = tsr_now_us() - start;
        assert_true(took >= 2 * STALL_US && took < 2 * STALL_US + SOON_US);
        assert_int_equal(unlink(once), 0);
    }
}

/* The thread has left the loop, and stands in the end of the transport. */
static void the_end_hangs(void **state)
{
    struct tsr_registry      *r;
    char                      once[64];
    struct tsr_runtime_peers *m = join(&r, "destroy", once);
    uint64_t                  start = tsr_now_us();
    (void)state;
    assert_false(tsr_runtime_peers_destroy(m));
    uint64_t took = tsr_now_us() - start;
    assert_true(took >= 2 * STALL_US && took < 2 * STALL_US + SOON_US);
    assert_int_equal(unlink(once), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_return),
        cmocka_unit_test(a_call_hangs),
        cmocka_unit_test(the_end_hangs),
    };
    if (argc != 2 || !mkdtemp(folder))
        return 2;
    plugin = argv[1];
    int failed = cmocka_run_group_tests_name("mpi_hang", tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
