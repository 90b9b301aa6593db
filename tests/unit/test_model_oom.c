/* Every allocation of a load fails, once and with all after it: the answer is TSR_E_NOMEM, and no
 * memory (under ASan) or descriptor is left.  Linked with --wrap for the four functions below. */
#include "checkpoint/tokenizer.h"
#include "model/model.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define GOLDEN      TSR_SOURCE_ROOT "/tests/golden/models/"
#define CHECKPOINTS TSR_SOURCE_ROOT "/tests/golden/checkpoints/"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static long calls, fail_at = -1; /* -1: none */
static bool fail_after;

static bool fails(void)
{
    long n = calls++;
    return fail_at >= 0 && (n == fail_at || (fail_after && n > fail_at));
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

static int open_descriptors(void)
{
    int  n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void sweep(const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    int               descriptors = open_descriptors();
    for (long n = 0;; n++) {
        struct tsr_model *m = NULL;
        calls = 0;
        fail_at = n;
        tsr_status st = tsr_model_load(&m, path, false, &e.err);
        bool       reached = calls > n;
        fail_at = -1;
        if (!reached)
            tsr_model_destroy(m);
        if (open_descriptors() != descriptors)
            fail_msg("%s, allocation %ld: a descriptor stays open", path, n);
        if (!reached) {
            assert_int_equal(st, TSR_OK);
            assert_in_range(n, 100, 5000);
            return;
        }
        if (st != TSR_E_NOMEM)
            fail_msg("%s, allocation %ld: status %d, %s", path, n, st, e.text);
    }
}

/* A tokenizer from metadata takes thousands: every one at first, then samples. */
static void sweep_tokenizer(const char *path)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (long n = 0;; n += 1 + n / 16) {
        struct tsr_tokenizer *t = NULL;
        calls = 0;
        fail_at = n;
        tsr_status st = tsr_checkpoint_tokenizer_load(&t, path, &e.err);
        bool       reached = calls > n;
        fail_at = -1;
        tsr_tokenizer_destroy(t);
        if (!reached) {
            assert_int_equal(st, TSR_OK);
            return;
        }
        if (st != TSR_E_NOMEM)
            fail_msg("%s, allocation %ld: status %d, %s", path, n, st, e.text);
    }
}

static void test_load(void **state)
{
    (void)state;
    for (int after = 0; after < 2; after++) {
        fail_after = after == 1;
        sweep(GOLDEN "bloom-6heads");  /* shards, rows cut by head, widened biases */
        sweep(GOLDEN "phi3-longrope"); /* rope factors */
        sweep(GOLDEN "opt-350m-style");
        sweep(GOLDEN "../checkpoints/gguf-q2_k/model.gguf"); /* packed and widened */
        sweep("@demo");
        sweep_tokenizer(GOLDEN "../gguf/spm-plain.gguf");
        sweep_tokenizer(GOLDEN "../gguf/llama3.gguf");
        sweep(CHECKPOINTS "gptq4-v1-asym-zero0");
        sweep(CHECKPOINTS "bnb-nf4"); /* packed and widened */
        sweep(CHECKPOINTS "ct-nvfp4");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_load) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
