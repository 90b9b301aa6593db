/* What an engine holds of residuals on a device that copies them, and profiles that it refuses. */
#include "compensated.h"
#include "wide.h"

#include "engine/compensator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tsr_model         *m;
static struct tsr_model_overlay *o;
static char                      folder[64];

static int set_up(void **state)
{
    if (compensated_set_up(state) != 0)
        return -1;
    m = wide_load(wide_names[0], false, folder);
    o = wide_pack(compensated_registry, m, "use: rtn\nbits: 3\ngroup: 32\n");
    return 0;
}

static int tear_down(void **state)
{
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
    return compensated_tear_down(state);
}

/* ---- a device that copies ------------------------------------------------------------------------ */

#define MOST 256

static struct {
    const struct tsr_backend_v1     *cpu;
    struct tsr_backend_v1            table;
    struct tsr_backend_compensate_v1 compensate;
    struct tsr_engine_device        *dev;
    void                            *self;
    void                            *bytes[MOST];
    uint32_t                         n;
} copying;

static const struct tsr_backend_compensate_v1 *cpu_table(void)
{
    return copying.cpu->extension(copying.self, TSR_BACKEND_COMPENSATE);
}

static tsr_status load_copy(void *self, const struct tsr_residual_desc *r, void **residual,
                            struct tsr_err *err)
{
    struct tsr_residual_desc d = *r;
    uint64_t                 row = tsr_compensate_residual_stride(r->bits, r->outputs);
    void                    *to = NULL;
    assert_true(copying.n < MOST);
    assert_int_equal(posix_memalign(&to, 64, r->inputs * row), 0);
    for (uint64_t i = 0; i < r->inputs; i++)
        memcpy((uint8_t *)to + i * row, (const uint8_t *)r->codes + i * r->stride, row);
    copying.bytes[copying.n++] = to;
    d.codes = to;
    d.stride = row;
    return cpu_table()->residual_load(self, &d, residual, err);
}

/* What the engine asks for, site by site. */
static uint32_t asked[MOST], n_asked;

static tsr_status note_blocks(void *self, void *stream, const struct tsr_compensate_op *op,
                              struct tsr_err *err)
{
    assert_true(n_asked < MOST);
    asked[n_asked++] = op->blocks;
    return cpu_table()->compensate(self, stream, op, err);
}

static uint64_t uploads;

static tsr_status count_upload(void *self, void *buffer, uint64_t offset, const void *src,
                               uint64_t bytes, struct tsr_err *err)
{
    uploads++;
    return copying.cpu->upload(self, buffer, offset, src, bytes, err);
}

static uint32_t seventy(const void *self)
{
    (void)self;
    return 70;
}

static const void *extension(const void *self, const char *id)
{
    return strcmp(id, TSR_BACKEND_COMPENSATE) == 0 ? &copying.compensate
                                                   : copying.cpu->extension(self, id);
}

static void open_copying(void)
{
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_plugin_found f;
    char                    options[1024] = { 0 };
    assert_int_equal(tsr_plugin_registry_find(compensated_registry, TSR_KIND_BACKEND, "cpu", &f,
                                              &err.err),
                     TSR_OK);
    assert_true(f.component->options_size <= sizeof options);
    copying.cpu = f.iface;
    assert_int_equal(copying.cpu->create(tsr_plugin_registry_host(compensated_registry), options,
                                         &copying.self, &err.err),
                     TSR_OK);
    copying.table = *copying.cpu;
    copying.table.extension = extension;
    copying.table.upload = count_upload;
    copying.compensate = *cpu_table();
    copying.compensate.copies = 1;
    copying.compensate.residual_load = load_copy;
    copying.compensate.compensate = note_blocks;
    copying.compensate.site = NULL;
    copying.compensate.most_blocks = seventy;
    n_asked = 0;
    assert_int_equal(tsr_engine_device_wrap(&copying.dev, compensated_registry, &copying.table,
                                            copying.self, &err.err),
                     TSR_OK);
}

static void close_copying(void)
{
    tsr_engine_device_close(copying.dev);
    copying.cpu->destroy(copying.self);
    while (copying.n)
        free(copying.bytes[--copying.n]);
}

static struct tsr_engine *engine_on(struct tsr_engine_device           *dev,
                                    const struct tsr_engine_compensate *use,
                                    const struct tsr_engine_tp         *tp)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = { .act = TSR_ACT_F32,
                                      .kv_dtype = TSR_F32,
                                      .slots = COMPENSATED_SLOTS,
                                      .context = 32,
                                      .compensate = use,
                                      .tp = tp };
    tsr_status                st = dev ? tsr_engine_create_on(&e, dev, m, o, &opt, &err.err)
                                       : tsr_engine_create(&e, compensated_registry, m, o, &opt, &err.err);
    if (st != TSR_OK)
        fail_msg("%s", err.text);
    return e;
}

/* Overwrites the host's codes. */
static void spoil(const struct tsr_compensation *c)
{
    for (uint64_t l = 0; l < c->layers; l++)
        for (uint64_t i = 0; i < c->linears; i++)
            for (uint64_t k = 0; c->lin[l][i].codes && k < c->lin[l][i].inputs; k++)
                memset(c->lin[l][i].codes + k * c->lin[l][i].stride, 0x99,
                       tsr_compensate_residual_stride(c->lin[l][i].bits, c->lin[l][i].outputs));
}

static void test_copies(void **state)
{
    const struct tsr_compensation *c = compensated_residuals(m, o, 4);
    struct tsr_engine_compensate   use = { .from = c, .each = 90, .all = true };
    struct compensated_script      s = compensated_write_script(m->hp.vocab);
    float                         *want = compensated_run_script(engine_on(NULL, &use, NULL), &s);
    (void)state;
    open_copying();
    struct tsr_engine *e = engine_on(copying.dev, &use, NULL);
    spoil(c);
    float *got = compensated_run_script(e, &s);
    assert_true(copying.n > 0);
    assert_memory_equal(got, want, s.logits * m->hp.vocab * sizeof *got);
    close_copying();
    /* a device that borrows reads what is there now: the comparison can fail */
    e = engine_on(NULL, &use, NULL);
    free(got);
    got = compensated_run_script(e, &s);
    assert_memory_not_equal(got, want, s.logits * m->hp.vocab * sizeof *got);
    free(got);
    free(want);
    compensated_residuals_free(m, c);
}

/* Thread blocks of a plan, and those of a kind that are set later. */
static void test_blocks(void **state)
{
    static const uint32_t          blocks[WIDE_LAYERS][TSR_MODEL_SITES] = { { 1, 2, 3, 4 },
                                                                            { 5, 6, 7, 8 },
                                                                            { 9, 10, 0, 12 } };
    const struct tsr_compensation *c = compensated_residuals(m, o, 4);
    struct tsr_engine_compensate   use = { .from = c, .each = 90, .all = true, .blocks = blocks };
    struct tsr_engine_token        t = { .id = 1, .logits = true };
    struct tsr_engine_compensated  done;
    float                         *logits = malloc(m->hp.vocab * sizeof *logits);
    (void)state;
    assert_non_null(logits);
    open_copying();
    struct tsr_engine *e = engine_on(copying.dev, &use, NULL);
    tsr_engine_compensation(e, &done);
    assert_true(done.over_bus && done.most_blocks == 70);
    assert_int_equal(tsr_engine_forward(e, &t, 1, logits, NULL), TSR_OK);
    assert_int_equal(n_asked, WIDE_LAYERS * TSR_MODEL_SITES);
    assert_memory_equal(asked, blocks, sizeof blocks);
    tsr_engine_compensate_blocks(e, TSR_MODEL_SITE_O_IN, 33);
    assert_int_equal(tsr_engine_forward(e, &t, 1, logits, NULL), TSR_OK);
    for (uint32_t i = 0; i < WIDE_LAYERS * TSR_MODEL_SITES; i++)
        assert_int_equal(asked[WIDE_LAYERS * TSR_MODEL_SITES + i],
                         i % TSR_MODEL_SITES == TSR_MODEL_SITE_O_IN ? 33 : (&blocks[0][0])[i]);
    tsr_engine_destroy(e);
    close_copying();
    e = engine_on(NULL, &use, NULL); /* a CPU has no such number, and its own memory */
    tsr_engine_compensation(e, &done);
    assert_true(!done.over_bus && done.most_blocks == 0);
    tsr_engine_destroy(e);
    free(logits);
    compensated_residuals_free(m, c);
}

/* The uploads of a chunk of n tokens, one of each sequence, or more of the first. */
static uint64_t uploads_of(struct tsr_engine *e, uint32_t n, float *logits)
{
    struct tsr_engine_token t[COMPENSATED_SLOTS + 2] = { { .logits = true } };
    assert_true(n <= COMPENSATED_SLOTS + 2);
    for (uint32_t i = 0; i < n; i++)
        t[i] = (struct tsr_engine_token){ .id = 1 + i,
                                          .logits = i + 1 == n,
                                          .slot = n <= COMPENSATED_SLOTS ? i : 0 };
    uploads = 0;
    assert_int_equal(tsr_engine_forward(e, t, n, logits, NULL), TSR_OK);
    return uploads;
}

/* A static selection is on the device once: tokens upload no more than where the device selects.  Chunks of more tokens than
 * sequences bring their lists along.  Another k brings other lists. */
static void test_static(void **state)
{
    const struct tsr_compensation *c = compensated_residuals(m, o, 4);
    struct tsr_engine_compensate dynamic = { .from = c, .each = 90, .all = true }, fixed = dynamic;
    float   *a = malloc(m->hp.vocab * sizeof *a), *b = malloc(m->hp.vocab * sizeof *b);
    uint64_t want[2];
    (void)state;
    assert_true(a && b);
    fixed.select = TSR_COMPENSATE_SELECT_STATIC_MEANSQ;
    open_copying();
    struct tsr_engine *e = engine_on(copying.dev, &dynamic, NULL);
    want[0] = uploads_of(e, COMPENSATED_SLOTS, a);
    want[1] = uploads_of(e, COMPENSATED_SLOTS + 2, a);
    tsr_engine_destroy(e);
    e = engine_on(copying.dev, &fixed, NULL);
    assert_int_equal(uploads_of(e, COMPENSATED_SLOTS, a), want[0]);
    assert_int_equal(uploads_of(e, COMPENSATED_SLOTS + 2, a),
                     want[1] + (uint64_t)WIDE_LAYERS * TSR_MODEL_SITES);
    tsr_engine_destroy(e);
    /* with another k */
    struct tsr_errbuf err = TSR_ERRBUF(err);
    n_asked = 0;
    e = engine_on(copying.dev, &fixed, NULL);
    assert_int_equal(tsr_engine_compensate_k(e, NULL, 40, &err.err), TSR_OK);
    assert_int_equal(uploads_of(e, COMPENSATED_SLOTS, a), want[0]);
    tsr_engine_destroy(e);
    n_asked = 0;
    fixed.each = 40;
    e = engine_on(copying.dev, &fixed, NULL);
    (void)uploads_of(e, COMPENSATED_SLOTS, b);
    assert_memory_equal(a, b, m->hp.vocab * sizeof *a);
    tsr_engine_destroy(e);
    close_copying();
    free(a);
    free(b);
    compensated_residuals_free(m, c);
}

static tsr_status no_sum(void *ctx, uint32_t site, float *x, uint64_t rows, uint64_t cols,
                         struct tsr_err *err)
{
    (void)ctx, (void)site, (void)x, (void)rows, (void)cols;
    return tsr_fail(err, TSR_E_INVAL, "nothing runs here");
}

/* A rank's part that is not aligned as kernels want it is copied for the device, and then freed. */
static void test_rank_copies(void **state)
{
    const struct tsr_compensation *c = compensated_residuals(m, o, 2);
    struct tsr_engine_compensate   use = { .from = c, .each = 90, .all = true };
    struct tsr_engine_tp           tp = { .rank = 1, .ranks = 4, .sum = no_sum };
    struct tsr_engine             *e = engine_on(NULL, &use, &tp);
    uint64_t                       linears = e->comp->done.linears;
    (void)state;
    assert_true(e->comp->n_copies > 0);
    tsr_engine_destroy(e);
    open_copying();
    e = engine_on(copying.dev, &use, &tp);
    assert_int_equal(e->comp->n_copies, 0);
    assert_int_equal(e->comp->done.linears, linears);
    tsr_engine_destroy(e);
    close_copying();
    compensated_residuals_free(m, c);
}

/* ---- profiles -------------------------------------------------------------------------------------- */

static void refuse(const struct tsr_compensation *c, const float *v, uint64_t at, float value,
                   const char *want)
{
    struct tsr_errbuf            err = TSR_ERRBUF(err);
    struct tsr_engine           *e = NULL;
    struct tsr_engine_compensate use = { .from = c,
                                         .each = 90,
                                         .select = TSR_COMPENSATE_SELECT_STATIC_MEANSQ };
    struct tsr_engine_options    opt = {
           .act = TSR_ACT_F32, .kv_dtype = TSR_F32, .slots = 1, .context = 32, .compensate = &use
    };
    float *to = (float *)(uintptr_t)v + at, was = *to;
    *to = value;
    assert_int_equal(tsr_engine_create(&e, compensated_registry, m, o, &opt, &err.err),
                     TSR_E_INVAL);
    assert_string_equal(err.text, want);
    *to = was;
}

static void test_profiles(void **state)
{
    const struct tsr_compensation            *c = compensated_residuals(m, o, 4);
    const struct tsr_compensate_site_profile *p = &c->site[1][TSR_MODEL_SITE_DOWN_IN];
    (void)state;
    refuse(
        c, p->meansq, 17, NAN,
        "compensation of layer 1, down_in: the mean square of channel 17 is nan; a finite number "
        "of at least 0 was expected");
    refuse(
        c, p->lost, 0, -1,
        "compensation of layer 1, down_in: the lost error of channel 0 is -1; a finite number of "
        "at least 0 was expected");
    refuse(c, p->top, 2, INFINITY,
           "compensation of layer 1, down_in: the largest input of channel 2 is inf; a finite "
           "number of at least 0 was expected");
    compensated_residuals_free(m, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),   cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_static),   cmocka_unit_test(test_rank_copies),
        cmocka_unit_test(test_profiles),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
