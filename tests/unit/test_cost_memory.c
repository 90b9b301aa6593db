/* Bytes of the cost models: against what the CPU backend takes, and the papers' account. */
#include "cost_fixture.h"

#include "engine/device.h"
#include "plan/cost/draft.h"
#include "tessera/draft/sizes.h"

/* ---- what the backend says beforehand -------------------------------------------------------------------- */

/* Bytes that a weight takes and that a LINEAR with it works in, against what the host accounts. */
static void one_size(const struct tsr_format *f, uint64_t rows, uint64_t cols, uint64_t tokens)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_engine_device *dev = NULL;
    uint64_t                  before, after, peak, said, scratch = 0;
    void                     *weight = NULL, *in = NULL, *out = NULL;
    bool                      dense = strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
    uint64_t                  width = f->dtype == TSR_F32 ? 4 : 2;
    struct tsr_weight_desc    d = { .struct_size = sizeof d,
                                    .name = "w",
                                    .format = f,
                                    .rows = rows,
                                    .cols = cols,
                                    .code_stride =
                                     dense ? cols * width : tsr_model_format_code_bytes(f, cols),
                                    .meta_stride = dense ? 0 : tsr_model_format_meta_bytes(f, cols) };
    assert_int_equal(tsr_engine_device_open(&dev, reg, "cpu", TSR_NUMERICS_EXACT, &e.err), TSR_OK);
    const struct tsr_sizes_v1 *sizes = dev->iface->extension(dev->self, TSR_SIZES_EXTENSION);
    assert_non_null(sizes);
    if (sizes->weight(dev->self, &d, &said, &e.err) != TSR_OK ||
        sizes->linear(dev->self, &d, TSR_ACT_A8, tokens, &scratch, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    void *codes = calloc(rows, d.code_stride), *meta = calloc(rows + 1, d.meta_stride + 1);
    assert_true(codes && meta);
    d.codes = codes;
    d.meta = meta;
    tsr_plugin_registry_memory(reg, &before, &peak);
    if (dev->iface->weight_load(dev->self, &d, &weight, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_plugin_registry_memory(reg, &after, &peak);
    assert_int_equal(after - before, said);
    assert_int_equal(dev->iface->buffer_alloc(dev->self, tokens * cols * 4, &in, &e.err), TSR_OK);
    assert_int_equal(dev->iface->buffer_alloc(dev->self, tokens * rows * 4, &out, &e.err), TSR_OK);
    struct tsr_tensor x = { sizeof x, TSR_F32, in, 0, tokens, cols, cols * 4 };
    struct tsr_tensor y = { sizeof y, TSR_F32, out, 0, tokens, rows, rows * 4 };
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_LINEAR,
                             .out = &y,
                             .in = { &x },
                             .weight = weight,
                             .act = dense ? TSR_ACT_F32 : TSR_ACT_A8 };
    tsr_plugin_registry_memory(reg, &before, &peak);
    if (dev->iface->run(dev->self, NULL, &op, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    tsr_plugin_registry_memory(reg, &after, &peak);
    assert_int_equal(after - before, scratch);
    dev->iface->weight_free(dev->self, weight);
    dev->iface->buffer_free(dev->self, in);
    dev->iface->buffer_free(dev->self, out);
    tsr_engine_device_close(dev);
    free(codes);
    free(meta);
}

static void backend_sizes(void **state)
{
    (void)state;
    static const uint64_t sides[] = { 1, 31, 64, 100, 300 }, tokens[] = { 1, 4, 5, 100 };
    static const uint64_t groups[] = { 0, 7, 32, 128 };
    struct tsr_format     list[200];
    size_t                n = 0;
    for (uint32_t t = TSR_F32; t <= TSR_BF16; t++)
        list[n++] = (struct tsr_format){ .id = TSR_FORMAT_FLOAT, .dtype = t };
    for (uint32_t bits = 2; bits <= 8; bits++) {
        for (size_t g = 0; g < 4; g++)
            for (uint32_t z = 0; z < 2; z++)
                list[n++] = (struct tsr_format){ .id = TSR_FORMAT_INT,
                                                 .bits = bits,
                                                 .group = groups[g],
                                                 .zero = z,
                                                 .scale_dtype = g % 2 ? TSR_F16 : TSR_F32 };
        list[n++] =
            (struct tsr_format){ .id = TSR_FORMAT_LUT, .bits = bits, .scale_dtype = TSR_F16 };
    }
    list[n++] = (struct tsr_format){ .id = TSR_FORMAT_INT,
                                     .bits = 8,
                                     .scale_dtype = TSR_F16,
                                     .act8 = TSR_ACT8_LLM,
                                     .act8_threshold = 6 };
    static const uint32_t elements[] = { TSR_MX_FP8_E4M3, TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1,
                                         TSR_MX_FP4_E2M1, TSR_MX_FP3_E1M1, TSR_MX_INT(4),
                                         TSR_MX_INT(8) };
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        for (size_t g = 1; g < 4; g++)
            list[n++] = (struct tsr_format){ .id = TSR_FORMAT_MX,
                                             .bits = i == 5   ? 4
                                                     : i == 6 ? 8
                                                              : 1 + (elements[i] >> 8) +
                                                                    (elements[i] & 255),
                                             .group = groups[g],
                                             .element = elements[i],
                                             .scale_bits = 8 };
    for (size_t i = 0; i < n; i++) {
        list[i].struct_size = sizeof list[i];
        for (size_t k = 0; k < 5; k++) /* every format with every side and number of tokens once */
            one_size(&list[i], sides[(i + k) % 5], sides[k], tokens[(i + k) % 4]);
    }
}

/* ---- the papers' memory ---------------------------------------------------------------------------------- */

static void paper_memory(void **state)
{
    (void)state;
    static const char *const   texts[] = { "rtn:bits=3", "rtn:bits=4", "int8", "original" };
    static const uint64_t      mib[] = { 757, 830, 1124, 1712 }; /* of a layer, by their code */
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_plan_cluster   *c = cluster("t4x3-v100");
    struct tsr_plan_shape     *s = shape(opt_30b);
    struct tsr_plan_candidates q;
    struct tsr_plan_mesh       m;
    struct tsr_plan_memory_job j = { .shape = s,
                                     .accounting = TSR_PLAN_ACCOUNT_PAPER,
                                     .batch = 32,
                                     .prompt = 512,
                                     .generate = 100,
                                     .kv = TSR_F16 };
    uint64_t                   w, kv, embed, head, shared;
    assert_int_equal(tsr_plan_candidates_open(&q, reg, s, texts, 4, &e.err), TSR_OK);
    tsr_plan_mesh_of(c, 0, 1, &m);
    uint64_t layer[4];
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(tsr_plan_memory_layer(&j, &m, 0, &q.v[i], &w, &kv, &e.err), TSR_OK);
        layer[i] = w + kv;
        assert_int_equal(layer[i], mib[i] << 20);
    }
    /* the logged plan: 9580, 11828, 11828, 28360 MiB are layers of 1124 and 1712 */
    assert_int_equal(7 * layer[2] + layer[3], UINT64_C(9580) << 20);
    assert_int_equal(9 * layer[2] + layer[3], UINT64_C(11828) << 20);
    assert_int_equal(10 * layer[2] + 10 * layer[3], UINT64_C(28360) << 20);
    assert_int_equal(tsr_plan_memory_ends(&j, &m, &embed, &head, &shared, &e.err), TSR_OK);
    assert_int_equal(head, 0); /* ruling: both ends on stage 1 */
    assert_int_equal(embed,
                     (2 * UINT64_C(50272) * 7168 + UINT64_C(2048) * 7168) * 2 + UINT64_C(4) * 7168);
    /* 0.95 of 15114.24 MiB less 1930 */
    assert_int_equal(tsr_plan_memory_capacity(&m, TSR_PLAN_ACCOUNT_PAPER) >> 20, 12428);
    uint64_t first, other;
    assert_int_equal(tsr_plan_memory_workspace(&j, &m, &q, 2, 8, true, false, &first, NULL, &e.err),
                     TSR_OK);
    assert_int_equal(tsr_plan_memory_workspace(&j, &m, &q, 2, 8, false, false, &other, NULL,
                                               &e.err),
                     TSR_OK);
    assert_true(first == other); /* decode of all 32 is more than prefill of 2 */
    assert_int_equal(tsr_plan_memory_workspace(&j, &m, &q, 32, 32, true, false, &first, NULL,
                                               &e.err),
                     TSR_OK);
    assert_true(first > other);
    tsr_plan_candidates_close(&q);
    tsr_plan_shape_destroy(s);
    tsr_plan_cluster_destroy(c);
}

/* ---- a draft model --------------------------------------------------------------------------------------- */

static uint64_t drafted(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m)
{
    struct tsr_errbuf            e = TSR_ERRBUF(e);
    struct tsr_plan_stage_memory most;
    if (tsr_plan_memory_draft(j, m, &most, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    assert_int_equal(most.total, most.weights + most.kv + most.ends + most.workspace);
    return most.total;
}

/* It counts where its backend and the device's may have one memory, on the first stage alone, for rank 0 alone. */
static void draft_places(void **state)
{
    (void)state;
    struct tsr_errbuf       e = TSR_ERRBUF(e);
    struct tsr_plan_profile cpu = { .name = (char[]){ "box" }, .backend = (char[]){ "cpu" } },
                            gpu = { .name = (char[]){ "card" }, .backend = (char[]){ "cuda" } },
                            open = { .name = (char[]){ "any" } };
    const struct tsr_plan_mesh    on[] = { { .profile = &cpu, .tp = 1 },
                                           { .profile = &gpu, .tp = 1 },
                                           { .profile = &open, .tp = 1 } };
    struct tsr_plan_draft_options o = {
        .model = (char[]){ TSR_SOURCE_ROOT "/tests/golden/models/stories260k" }, .kv = TSR_F32
    };
    struct tsr_plan_shape     *s;
    struct tsr_plan_draft      d;
    struct tsr_plan_candidates q;
    const char                *texts[] = { "original" };
    assert_int_equal(tsr_plan_shape_load(&s, o.model, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_candidates_open(&q, NULL, s, texts, 1, &e.err), TSR_OK);
    struct tsr_plan_memory_job j = {
        .shape = s, .batch = 4, .prompt = 40, .generate = 24, .kv = TSR_F32
    };
    static const bool counts[3][3] = { { true, false, true },
                                       { false, true, true },
                                       { true, true, true } };
    for (int place = 0; place < 3; place++) {
        o.place = (enum tsr_plan_draft_place)place;
        j.n_drafts = 0;
        if (tsr_plan_draft_open(&d, NULL, &o, s, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        for (int i = 0; i < 3; i++) {
            uint32_t                     bits[64] = { 0 };
            struct tsr_plan_stage_memory was, first, last;
            const struct tsr_plan_mesh   two = { .profile = on[i].profile, .tp = 2 };
            uint64_t                     embed, head, shared, more;
            assert_true(s->layers <= 64 && s->layers > 1);
            j.n_drafts = 0;
            assert_int_equal(drafted(&j, &on[i]), 0);
            assert_int_equal(tsr_plan_memory_stage(&j, &two, &q, bits, NULL, 0, 1, 1, 4, &was,
                                                   &e.err),
                             TSR_OK);
            assert_int_equal(tsr_plan_memory_ends(&j, &on[i], &embed, &head, &shared, &e.err),
                             TSR_OK);
            j.drafts = &d;
            j.n_drafts = 1;
            uint64_t n = drafted(&j, &on[i]);
            assert_true((n > 0) == counts[place][i]);
            assert_int_equal(tsr_plan_memory_ends(&j, &on[i], &more, &head, &shared, &e.err),
                             TSR_OK);
            assert_int_equal(more, embed + n);
            assert_int_equal(tsr_plan_memory_stage(&j, &two, &q, bits, NULL, 0, 1, 1, 4, &first,
                                                   &e.err),
                             TSR_OK);
            assert_int_equal(tsr_plan_memory_stage(&j, &two, &q, bits, NULL, 1, s->layers - 1, 1, 4,
                                                   &last, &e.err),
                             TSR_OK);
            assert_int_equal(first.total, was.total + n);
            assert_int_equal(first.uneven, was.uneven + n);
            assert_int_equal(first.ends, was.ends);
            assert_int_equal(last.draft, 0);
            j.accounting = TSR_PLAN_ACCOUNT_PAPER;
            assert_int_equal(drafted(&j, &on[i]), 0);
            j.accounting = TSR_PLAN_ACCOUNT_EXACT;
            /* as the only stage of a device it would be */
            struct tsr_plan_memory_job own = {
                .shape = s, .batch = 4, .prompt = 40, .generate = 24, .kv = TSR_F32
            };
            assert_int_equal(tsr_plan_memory_stage(&own, &on[i], &q, bits, NULL, 0, s->layers, 4, 4,
                                                   &was, &e.err),
                             TSR_OK);
            assert_true(n == 0 || n == was.total);
        }
        tsr_plan_draft_close(&d);
    }
    tsr_plan_candidates_close(&q);
    tsr_plan_shape_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(backend_sizes),
                                        cmocka_unit_test(paper_memory),
                                        cmocka_unit_test(draft_places) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
