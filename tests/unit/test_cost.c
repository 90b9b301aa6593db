/* The planner's cost models: shapes, links, latencies and the regression behind them. */
#include "../fixtures/error_is.h"
#include "cost_fixture.h"

#include <math.h>

/* ---- shapes -------------------------------------------------------------------------------------- */

static void shapes(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_plan_shape *s = shape(opt_30b);
    assert_int_equal(s->classes, 1);
    assert_int_equal(s->layers, 48);
    assert_int_equal(tsr_plan_shape_weights(s, 0), 4 * 7168ull * 7168 + 2 * 7168ull * 28672);
    assert_int_equal(s->layer[0].norms, 4 * 7168);
    assert_true(s->layer[0].lin[TSR_MODEL_Q].bias && s->layer[0].lin[TSR_MODEL_DOWN].bias);
    assert_int_equal(s->layer[0].lin[TSR_MODEL_GATE].rows, 0);
    assert_int_equal(s->layer[0].lin[TSR_MODEL_Q].dtype, TSR_F16);
    assert_int_equal(s->positions.rows, 2050);
    assert_true(s->tied);
    tsr_plan_shape_destroy(s);

    s = shape(llama_70b);
    assert_int_equal(tsr_plan_shape_kv(s), 2 * 8 * 128);
    assert_int_equal(s->layer[0].norms, 2 * 8192);
    assert_false(s->layer[0].lin[TSR_MODEL_Q].bias);
    assert_int_equal(s->layer[0].lin[TSR_MODEL_Q].dtype, TSR_BF16);
    assert_int_equal(tsr_plan_shape_splits(s, 8, false, 128, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_shape_splits(s, 16, false, 128, &e.err),
                     TSR_E_CONFIG); /* 8 KV heads */
    assert_true(error_is(&e.err, "", "KV"));
    assert_int_equal(tsr_plan_shape_splits(s, 2, false, 0, &e.err), TSR_E_CONFIG);
    assert_int_equal(tsr_plan_shape_splits(s, 8, false, 3584 * 2, &e.err), TSR_E_CONFIG);
    struct tsr_plan_shape_matrix p =
        tsr_plan_shape_part(&s->layer[0].lin[TSR_MODEL_DOWN], TSR_MODEL_DOWN, 4, false);
    assert_int_equal(p.cols, 7168);
    p = tsr_plan_shape_part(&s->layer[0].lin[TSR_MODEL_K], TSR_MODEL_K, 4, false);
    assert_int_equal(p.rows, 256);
    tsr_plan_shape_destroy(s);
}

/* A shape from the headers says what the model itself has. */
static void shape_of_demo(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_model      *m = NULL;
    struct tsr_plan_shape *s = NULL;
    uint64_t               n = 0;
    assert_int_equal(tsr_model_load(&m, "@demo", false, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_shape_load(&s, "@demo", &e.err), TSR_OK);
    for (uint64_t l = 0; l < s->layers; l++) {
        const struct tsr_plan_shape_layer *k = &s->layer[s->layer_class[l]];
        for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
            assert_int_equal(k->lin[i].rows, m->layers[l].lin[i].w.rows);
            assert_int_equal(k->lin[i].cols, m->layers[l].lin[i].w.cols);
            assert_int_equal(k->lin[i].dtype, m->layers[l].lin[i].w.dtype);
            assert_int_equal(k->lin[i].bias, m->layers[l].lin[i].bias != NULL);
            n += k->lin[i].rows * k->lin[i].cols + (k->lin[i].bias ? k->lin[i].rows : 0);
        }
        n += k->norms;
    }
    n +=
        s->embed.rows * s->embed.cols + s->final_norm + (s->tied ? 0 : s->head.rows * s->head.cols);
    assert_int_equal(n, m->parameters);
    tsr_plan_shape_destroy(s);
    tsr_model_destroy(m);
}

static void links(void **state)
{
    (void)state;
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_cluster *c = cluster("t4x3-v100");
    struct tsr_plan_mesh     t4, v100;
    struct tsr_plan_send     way;
    double                   ms;
    bool                     two;
    assert_int_equal(tsr_plan_cluster_devices(c), 4);
    tsr_plan_mesh_of(c, 0, 2, &t4);
    tsr_plan_mesh_of(c, 1, 1, &v100);
    assert_string_equal(t4.name, "T4 x2");
    /* 4096 x 7168 F32 over 100 GB/s and 20 us */
    assert_int_equal(tsr_plan_latency_link(c, &t4, &v100, TSR_PLAN_PREFILL, NULL, 4096, 7168, &way,
                                           &e.err),
                     TSR_OK);
    assert_true(fabs(way.ms - (0.02 + 4096.0 * 7168 * 4 / 1e11 * 1e3)) < 1e-12);
    /* two ranks: all-gather moves a whole sum, two-step two halves and pays alpha twice */
    assert_int_equal(tsr_plan_latency_collective(&t4, TSR_PLAN_DECODE, NULL, 1, 7168, &ms, &two,
                                                 &e.err),
                     TSR_OK);
    assert_false(two);
    assert_true(fabs(ms - (0.01 + 7168.0 * 4 / 12e9 * 1e3)) < 1e-12);
    struct tsr_plan_mesh four = t4;
    four.tp = 4;
    assert_int_equal(tsr_plan_latency_collective(&four, TSR_PLAN_PREFILL, NULL, 4096, 7168, &ms,
                                                 &two, &e.err),
                     TSR_OK);
    assert_true(two);
    /* three quarters out and three back over one wire, in pieces: the latency of all but the last
     * message of a hop passes while the wire is busy with the next */
    assert_true(fabs(ms - (0.01 + 6 * 4096.0 * 1792 * 4 / 12e9 * 1e3)) < 1e-9);
    /* one row, or eight, are one piece: a hop, all of whose messages are under way together, or two hops */
    assert_int_equal(tsr_plan_latency_collective(&four, TSR_PLAN_DECODE, NULL, 1, 7168, &ms, &two,
                                                 &e.err),
                     TSR_OK);
    assert_false(two);
    assert_true(fabs(ms - (0.01 + 3 * 7168.0 * 4 / 12e9 * 1e3)) < 1e-12);
    assert_int_equal(tsr_plan_latency_collective(&four, TSR_PLAN_DECODE, NULL, 8, 7168, &ms, &two,
                                                 &e.err),
                     TSR_OK);
    assert_true(two);
    assert_true(fabs(ms - (2 * 0.01 + 6 * 8 * 1792.0 * 4 / 12e9 * 1e3)) < 1e-12);
    /* 32 rows are four pieces of 9, 9, 9 and 5: alpha once, as above */
    assert_int_equal(tsr_plan_latency_collective(&four, TSR_PLAN_DECODE, NULL, 32, 7168, &ms, &two,
                                                 &e.err),
                     TSR_OK);
    assert_true(two);
    assert_true(fabs(ms - (0.01 + 6 * 32 * 1792.0 * 4 / 12e9 * 1e3)) < 1e-12);
    /* a codec's speed on the devices: 4 bytes of each number through it, then the wire's 2, then through it again */
    struct tsr_plan_codec_speed speed[] = { { "plain", 1e9, 2e9, "s", 0 },
                                            { "plain:dtype=bf16", 8e9, 16e9, "s", 0 } };
    struct tsr_plan_profile     from = *four.profile, to = *v100.profile;
    struct tsr_plan_mesh        x = t4, y = v100;
    struct tsr_plan_wire        half;
    x.profile = &from;
    y.profile = &to;
    from.codecs = to.codecs = speed;
    from.n_codecs = 2;
    to.n_codecs = 1; /* the entry of its name */
    assert_int_equal(tsr_plan_wire_open(&half, reg, "plain:dtype=bf16", &e.err), TSR_OK);
    assert_int_equal(tsr_plan_latency_link(c, &x, &y, TSR_PLAN_PREFILL, &half, 4096, 7168, &way,
                                           &e.err),
                     TSR_OK);
    assert_true(fabs(way.ms - (0.02 + 4096.0 * 7168 * (2 / 1e11 + 4 / 8e9 + 4 / 2e9) * 1e3)) <
                1e-9);
    /* two ranks to five: the first of the two serves three of them, one after the other, and encodes the next copy when the
     * wire has all but 64 KiB of one; each decodes its own.  On their way back to the head rows go to one rank */
    y.tp = 5;
    assert_int_equal(tsr_plan_latency_link(c, &x, &y, TSR_PLAN_PREFILL, &half, 4096, 7168, &way,
                                           &e.err),
                     TSR_OK);
    assert_true(fabs(way.ms - (3 * (0.02 + 4096.0 * 7168 * (2 / 1e11 + 4 / 8e9) * 1e3) -
                               2 * (0.02 + 65536 / 1e11 * 1e3) + 4096.0 * 7168 * 4 / 2e9 * 1e3)) <
                1e-9);
    assert_int_equal(tsr_plan_latency_back(c, &x, &y, TSR_PLAN_PREFILL, &half, 4096, 7168, &way,
                                           &e.err),
                     TSR_OK);
    assert_true(fabs(way.ms - (0.02 + 4096.0 * 7168 * (2 / 1e11 + 4 / 8e9 + 4 / 2e9) * 1e3)) <
                1e-9);
    y.tp = 1;
    /* larger messages have entries of their own: 16 KiB, 1 MiB and 2 MiB of F32 */
    struct tsr_plan_codec_speed sized[] = { { "plain:dtype=bf16", 4e9, 4e9, "s", 1 << 20 },
                                            { "plain", 1e9, 1e9, "s", 0 },
                                            { "plain:dtype=bf16", 8e9, 8e9, "s", 0 },
                                            { "plain:dtype=bf16", 2e9, 2e9, "s", 2 << 20 } };
    static const uint64_t       tokens[] = { 1, 64, 65, 128, 129 };
    static const double         rate[] = { 8e9, 8e9, 4e9, 4e9, 2e9 };
    from.codecs = to.codecs = sized;
    from.n_codecs = to.n_codecs = 4;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tsr_plan_latency_link(c, &x, &y, TSR_PLAN_DECODE, &half, tokens[i], 4096,
                                               &way, &e.err),
                         TSR_OK);
        assert_true(fabs(way.ms - (0.02 + (double)tokens[i] * 4096 * (2 / 1e11 + 8 / rate[i]) *
                                              1e3)) < 1e-9);
    }
    /* without an entry for small messages they take the smallest */
    assert_true(tsr_plan_profile_codec_of(&from, "plain:dtype=f16", 16)->encode == 1e9);
    from.n_codecs = 1;
    assert_true(tsr_plan_profile_codec_of(&from, "plain:dtype=bf16", 16)->encode == 4e9);
    assert_null(tsr_plan_profile_codec_of(&from, "mx", 16));
    from.codecs = to.codecs = speed;
    from.n_codecs = 2;
    to.n_codecs = 1;
    /* all-gather of two ranks: one encodes what the other adds, with one piece */
    assert_int_equal(tsr_plan_latency_collective(&x, TSR_PLAN_DECODE, &half, 1, 7168, &ms, &two,
                                                 &e.err),
                     TSR_OK);
    double coded = ms;
    from.n_codecs = 0;
    assert_int_equal(tsr_plan_latency_collective(&x, TSR_PLAN_DECODE, &half, 1, 7168, &ms, &two,
                                                 &e.err),
                     TSR_OK);
    assert_true(fabs(ms - (0.01 + 7168.0 * 2 / 12e9 * 1e3)) < 1e-12);
    assert_true(coded > ms + 7168 * (4 / 8e9 + 4 / 16e9) * 1e3 * (1 - 1e-9));
    tsr_plan_wire_close(&half);
    /* a codec's own size; without one numbers travel as F32, which the papers count as FP16 */
    struct tsr_plan_wire w;
    uint64_t             bytes;
    assert_int_equal(tsr_plan_wire_open(&w, reg, "plain", &e.err), TSR_OK);
    assert_int_equal(tsr_plan_wire_bytes(&w, 3, 100, &bytes, &e.err), TSR_OK);
    assert_int_equal(bytes, 1200);
    tsr_plan_wire_close(&w);
    assert_int_equal(tsr_plan_wire_open(&w, reg, "plain:dtype=bf16", &e.err), TSR_OK);
    assert_int_equal(tsr_plan_wire_bytes(&w, 3, 100, &bytes, &e.err), TSR_OK);
    assert_int_equal(bytes, 600);
    tsr_plan_wire_close(&w);
    assert_int_equal(tsr_plan_wire_open(&w, reg, "", &e.err), TSR_OK);
    assert_int_equal(tsr_plan_wire_bytes(&w, 3, 100, &bytes, &e.err), TSR_OK);
    assert_int_equal(bytes, 1200);
    w.element = 2;
    assert_int_equal(tsr_plan_wire_bytes(&w, 3, 100, &bytes, &e.err), TSR_OK);
    assert_int_equal(bytes, 600);
    tsr_plan_wire_close(&w);
    assert_int_equal(tsr_plan_wire_open(&w, reg, "nonsense", &e.err), TSR_E_INPUT);
    tsr_plan_cluster_destroy(c);
}

/* ---- latency -------------------------------------------------------------------------------------------- */

static void latencies(void **state)
{
    (void)state;
    static const char *const   texts[] = { "rtn:bits=3", "rtn:bits=4", "int8", "original" };
    static const char *const   kernels[] = { "int3", "int4", "int8", "f16" };
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_plan_cluster   *c = cluster("t4x3-v100");
    struct tsr_plan_shape     *s = shape(opt_30b), *big = shape(llama_70b);
    struct tsr_plan_candidates q;
    struct tsr_plan_mesh       m;
    struct tsr_plan_time       at;
    char                       kernel[TSR_PLAN_KERNEL_TEXT];
    if (tsr_plan_candidates_open(&q, reg, s, texts, 4, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(tsr_plan_candidate_kernel(&q.v[i], s, 0, kernel, &e.err), TSR_OK);
        assert_string_equal(kernel, kernels[i]);
    }
    assert_int_equal(q.v[1].bits, 4);
    assert_string_equal(q.v[1].name, "rtn-4");
    tsr_plan_mesh_of(c, 0, 1, &m);
    /* the table gives back its points: T4, int4, 4 x 512 took 5654.02 ms */
    struct tsr_plan_latency_job j = { .shape = s, .mode = TSR_PLAN_LATENCY_TABLE };
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[1], TSR_PLAN_PREFILL, 4, 512, 0, &at,
                                            &e.err),
                     TSR_OK);
    assert_true(fabs(at.ms - 5654.02) < 1e-6);
    assert_int_equal(at.basis, TSR_PLAN_MEASURED);
    assert_false(at.extrapolated);
    /* the regression is near all three, and inside its range says so */
    j.mode = TSR_PLAN_LATENCY_FIT;
    const double v[] = { 2, 4, 8 }, ms[] = { 67.0084, 124.687, 262.595 };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[3], TSR_PLAN_PREFILL, v[i], 512, 0,
                                                &at, &e.err),
                         TSR_OK);
        assert_true(fabs(at.ms / ms[i] - 1) < 0.1); /* three points, pulled by the datasheet */
        assert_int_equal(at.basis, TSR_PLAN_FITTED);
        assert_false(at.extrapolated);
    }
    double one = at.ms, last = 0;
    for (double n = 1; n < 40; n++) { /* more work takes longer */
        assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[3], TSR_PLAN_DECODE, n, 1, 600, &at,
                                                &e.err),
                         TSR_OK);
        assert_true(at.ms > last);
        last = at.ms;
    }
    /* another shape, and another length, are extrapolated */
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[3], TSR_PLAN_PREFILL, 8, 4096, 0, &at,
                                            &e.err),
                     TSR_OK);
    assert_true(at.extrapolated && at.ms > 7 * one);
    j.shape = big;
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[1], TSR_PLAN_PREFILL, 8, 512, 0, &at,
                                            &e.err),
                     TSR_OK);
    assert_true(at.extrapolated && at.ms > 0);
    /* two ranks: half the work and two collectives */
    struct tsr_plan_mesh two = m;
    struct tsr_plan_time wide;
    double               comm;
    bool                 steps;
    two.tp = 2;
    j.shape = s;
    tsr_plan_mesh_of(c, 1, 1, &m); /* V100: W8A8 has a roofline only */
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[2], TSR_PLAN_PREFILL, 8, 512, 0, &at,
                                            &e.err),
                     TSR_OK);
    assert_int_equal(at.basis, TSR_PLAN_ROOFLINE);
    two.profile = m.profile;
    assert_int_equal(tsr_plan_latency_layer(&j, &two, 0, &q.v[2], TSR_PLAN_PREFILL, 8, 512, 0,
                                            &wide, &e.err),
                     TSR_OK);
    assert_int_equal(tsr_plan_latency_collective(&two, TSR_PLAN_PREFILL, NULL, 4096, 7168, &comm,
                                                 &steps, &e.err),
                     TSR_OK);
    double over = m.profile->overhead_ms[TSR_PLAN_PREFILL];
    assert_true(fabs(wide.ms - 2 * comm - over - (at.ms - over) / 2) < 1e-9 * at.ms);
    /* a prompt in chunks: the later ones see the earlier ones */
    struct tsr_plan_workload w;
    struct tsr_plan_time     whole, parts;
    assert_int_equal(tsr_plan_workload_fixed(&w, 1000, 10, 8, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_latency_prompt(&j, &m, 0, &q.v[2], &w, 4, &whole, &e.err), TSR_OK);
    w.chunk = 300;
    uint64_t rest;
    assert_int_equal(tsr_plan_workload_chunks(&w, &rest), 4);
    assert_int_equal(rest, 100);
    assert_int_equal(tsr_plan_latency_prompt(&j, &m, 0, &q.v[2], &w, 4, &parts, &e.err), TSR_OK);
    assert_true(parts.ms > whole.ms * 0.99 && parts.ms < whole.ms * 3);
    tsr_plan_workload_free(&w);
    /* ends, once */
    assert_int_equal(tsr_plan_latency_head(&j, &m, NULL, 8, &at, &e.err), TSR_OK);
    assert_true(at.ms > 50272.0 * 7168 * 2 / 900e9 * 1e3); /* not faster than the memory */
    double alone = at.ms;
    assert_int_equal(tsr_plan_latency_head(&j, &two, NULL, 8, &at, &e.err), TSR_OK);
    assert_true(at.ms == alone); /* one of the ranks computes it */
    /* of forwards of 512 tokens each has its sums */
    j.forward = 512;
    assert_int_equal(tsr_plan_latency_layer(&j, &two, 0, &q.v[2], TSR_PLAN_PREFILL, 8, 512, 0,
                                            &wide, &e.err),
                     TSR_OK);
    assert_int_equal(tsr_plan_latency_collective(&two, TSR_PLAN_PREFILL, NULL, 512, 7168, &comm,
                                                 &steps, &e.err),
                     TSR_OK);
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[2], TSR_PLAN_PREFILL, 8, 512, 0, &at,
                                            &e.err),
                     TSR_OK);
    assert_true(fabs(wide.ms - 2 * 8 * comm - over - (at.ms - over) / 2) < 1e-9 * at.ms);
    j.forward = 0;
    assert_int_equal(tsr_plan_latency_embed(&j, &m, 8, &at, &e.err), TSR_OK);
    assert_true(at.ms > 0);
    tsr_plan_candidates_close(&q);
    /* what a device lacks is no time, and no error */
    static const char *const odd[] = { "squeeze:bits=3" };
    assert_int_equal(tsr_plan_candidates_open(&q, reg, s, odd, 1, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[0], TSR_PLAN_DECODE, 1, 1, 10, &at,
                                            &e.err),
                     TSR_OK);
    assert_true(isnan(at.ms));
    tsr_plan_candidates_close(&q);
    tsr_plan_shape_destroy(s);
    tsr_plan_shape_destroy(big);
    tsr_plan_cluster_destroy(c);
}

/* A kernel that changes with the tokens at once, and one that writes the weights out first. */
static void kernels_by_tokens(void **state)
{
    (void)state;
    static const char text[] =
        "format: tessera.device/1\nname: made\nmemory: {total: 1 GB, source: s}\n"
        "bandwidth: {peak: 100 GB/s, source: s}\nkernels:\n"
        "  - {kernel: int4, above: 50, ops: 10 TFLOP/s, prefill: {compute: 0.5, read: 1},\n"
        "     decode: {compute: 0.5, read: 1}, bytes_per_weight: 2, convert: 2.5, source: s}\n"
        "  - {kernel: int4, ops: 1 TFLOP/s, prefill: {compute: 1, read: 0.5},\n"
        "     decode: {compute: 1, read: 0.5}, bytes_per_weight: 0.5, source: s}\n";
    static const char *const   texts[] = { "rtn:bits=4" };
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_diag           *d = NULL;
    struct tsr_plan_profile   *p = NULL;
    struct tsr_plan_shape     *s = shape(llama_70b);
    struct tsr_plan_candidates q;
    struct tsr_plan_time       at;
    double                     W = (double)tsr_plan_shape_weights(s, 0);
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_profile_parse(&p, "d.yaml", text, sizeof text - 1, d, &e.err),
                     TSR_OK);
    print(d);
    assert_non_null(p);
    assert_int_equal(tsr_plan_candidates_open(&q, reg, s, texts, 1, &e.err), TSR_OK);
    struct tsr_plan_mesh        m = { .profile = p, .tp = 1 };
    struct tsr_plan_latency_job j = { .shape = s };
    for (double v = 1; v <= 1000; v *= 10) /* ms; s 0: no attention in prefill */
        for (double n = 50; n <= 51; n++) {
            double read = 1e3 * (v * n > 50 ? 2 / 100e9 : 0.5 / 50e9);
            double product = 1e3 * v * n * 2 / (v * n > 50 ? 5e12 : 1e12);
            double want = W * ((v * n > 50 ? 1e3 * 2.5 / 100e9 : 0) + fmax(read, product));
            assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[0], TSR_PLAN_PREFILL, v, n, 0,
                                                    &at, &e.err),
                             TSR_OK);
            double pairs = v * n * n * 64 * 128; /* twice the half of n, by width of the heads */
            assert_true(fabs(at.ms - want - 1e3 * pairs * 2 / (v * n > 50 ? 5e12 : 1e12)) <
                        1e-9 * want);
        }
    tsr_plan_candidates_close(&q);
    tsr_plan_profile_destroy(p);
    tsr_plan_shape_destroy(s);
    tsr_config_diag_destroy(d);
}

/* One layout, two kernels: W8A8 for who quantizes inputs, too, and products in F16 for the weights of `gptq` alone. */
static void kernels_by_scheme(void **state)
{
    (void)state;
    static const char text[] =
        "format: tessera.device/1\nname: made\nmemory: {total: 1 GB, source: s}\n"
        "bandwidth: {peak: 100 GB/s, source: s}\nkernels:\n"
        "  - {kernel: int8, ops: 10 TOP/s, prefill: {compute: 1, read: 1},\n"
        "     decode: {compute: 1, read: 1}, bytes_per_weight: 1, source: s}\n"
        "  - {kernel: gptq/int8, ops: 1 TFLOP/s, prefill: {compute: 1, read: 1},\n"
        "     decode: {compute: 1, read: 0.5}, bytes_per_weight: 1, source: s}\n"
        "  - {kernel: gptq/int4, ops: 1 TFLOP/s, prefill: {compute: 1, read: 1},\n"
        "     decode: {compute: 1, read: 0.25}, bytes_per_weight: 1, source: s}\n";
    static const char *const   texts[] = { "int8", "rtn:bits=8", "gptq:bits=8", "gptq:bits=4",
                                           "rtn:bits=4" };
    static const double        share[] = { 1, 1, 0.5, 0.25, 0 }; /* 0: no kernel */
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_diag           *d = NULL;
    struct tsr_plan_profile   *p = NULL;
    struct tsr_plan_shape     *s = shape(llama_70b);
    struct tsr_plan_candidates q;
    struct tsr_plan_time       one, two;
    double                     W = (double)tsr_plan_shape_weights(s, 0);
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_profile_parse(&p, "d.yaml", text, sizeof text - 1, d, &e.err),
                     TSR_OK);
    print(d);
    assert_non_null(p);
    assert_int_equal(tsr_plan_candidates_open(&q, reg, s, texts, 5, &e.err), TSR_OK);
    struct tsr_plan_mesh        m = { .profile = p, .tp = 1 };
    struct tsr_plan_latency_job j = { .shape = s };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[i], TSR_PLAN_DECODE, 1, 1, 1, &one,
                                                &e.err),
                         TSR_OK);
        assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[i], TSR_PLAN_DECODE, 1, 1, 0, &two,
                                                &e.err),
                         TSR_OK);
        if (share[i] > 0) { /* less the reading of one position's keys and values */
            double left = two.ms - (one.ms - two.ms);
            assert_true(fabs(left / (1e3 * W / 100e9 / share[i]) - 1) < 1e-6);
        } else {
            assert_true(isnan(one.ms));
        }
    }
    tsr_plan_candidates_close(&q);
    tsr_plan_profile_destroy(p);
    tsr_plan_shape_destroy(s);
    tsr_config_diag_destroy(d);
}

/* Times that are made of the features are found again, also where no point is. */
static void regression(void **state)
{
    (void)state;
    static const char head[] =
        "format: tessera.device/1\nname: made\nmemory: {total: 1 GB, source: s}\n"
        "bandwidth: {peak: 10 GB/s, source: s}\nknots: {decode: [4]}\nlayers:\n"
        "  - kernel: f16\n    source: s\n"
        "    shape: {hidden: 7168, ffn: 28672, heads: 56, kv_heads: 56, head_dim: 128}\n";
    static const char *const   texts[] = { "original" };
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_diag           *d = NULL;
    struct tsr_plan_profile   *p = NULL;
    struct tsr_plan_shape     *s = shape(opt_30b);
    struct tsr_plan_candidates q;
    char                       text[16384];
    double                     W = 4 * 7168.0 * 7168 + 2 * 7168.0 * 28672, h = 7168, K = 2 * h;
    size_t                     at = (size_t)snprintf(text, sizeof text, "%s    prefill: [", head);
    for (int v = 1; v <= 8; v *= 2)
        for (int t = 64; t <= 512; t *= 2)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s[%d, %d, 0, %.12g]",
                                   v + t > 65 ? ", " : "", v, t,
                                   W * 2e-9 + v * h * 1e-5 + v * t * W * 3e-10 +
                                       (double)v * t * t * h * 4e-9);
    at += (size_t)snprintf(text + at, sizeof text - at, "]\n    decode: [");
    for (int v = 1; v <= 32; v *= 2)
        for (int t = 128; t <= 1024; t *= 2) /* two regimes: more than 4 at once cost a third */
            at += (size_t)snprintf(text + at, sizeof text - at, "%s[%d, %d, %.12g]",
                                   v + t > 129 ? ", " : "", v, t,
                                   W * 2e-9 + v * W * (v > 4 ? 1e-10 : 3e-10) +
                                       v * (t + 1.0) * K * 2e-8);
    at += (size_t)snprintf(text + at, sizeof text - at, "]\n");
    assert_true(at < sizeof text);
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_profile_parse(&p, "made", text, at, d, &e.err), TSR_OK);
    print(d);
    assert_non_null(p);
    assert_int_equal(tsr_plan_candidates_open(&q, reg, s, texts, 1, &e.err), TSR_OK);
    struct tsr_plan_mesh        m = { .profile = p, .tp = 1 };
    struct tsr_plan_latency_job j = { .shape = s };
    struct tsr_plan_time        o;
    for (double v = 1; v <= 8; v += 1)
        for (double t = 70; t < 512; t += 61) {
            double want = W * 2e-9 + v * h * 1e-5 + v * t * W * 3e-10 + v * t * t * h * 4e-9;
            assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[0], TSR_PLAN_PREFILL, v, t, 0,
                                                    &o, &e.err),
                             TSR_OK);
            assert_true(fabs(o.ms / want - 1) < 1e-6); /* digits of the file, normal equations */
            assert_false(o.extrapolated);
        }
    for (double v = 1; v <= 32; v += 1)
        for (double t = 130; t < 1024; t += 83) {
            double want = W * 2e-9 + v * W * (v > 4 ? 1e-10 : 3e-10) + v * (t + 1) * K * 2e-8;
            assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[0], TSR_PLAN_DECODE, v, 1, t,
                                                    &o, &e.err),
                             TSR_OK);
            assert_true(fabs(o.ms / want - 1) < 1e-6);
        }
    /* past the points is said */
    assert_int_equal(tsr_plan_latency_layer(&j, &m, 0, &q.v[0], TSR_PLAN_DECODE, 8, 1, 5000, &o,
                                            &e.err),
                     TSR_OK);
    assert_true(o.extrapolated);
    /* a head that was measured: a line through its points, never below 0 */
    tsr_plan_candidates_close(&q);
    tsr_plan_profile_destroy(p);
    tsr_config_diag_destroy(d);
    tsr_plan_shape_destroy(s);
}

/* By counting: over all sets of n of 8 experts, the mean of the most that fall to one rank. */
static double counted(uint32_t n, uint32_t ranks)
{
    double sum = 0, sets = 0;
    for (uint32_t set = 0; set < 256; set++) {
        int of[8] = { 0 }, most = 0;
        if ((uint32_t)__builtin_popcount(set) != n)
            continue;
        for (uint32_t i = 0; i < 8; i++)
            of[i / (8 / ranks)] += (int)(set >> i & 1);
        for (uint32_t r = 0; r < ranks; r++)
            most = of[r] > most ? of[r] : most;
        sum += most;
        sets++;
    }
    return sum / sets;
}

static void busiest_rank(void **state)
{
    struct tsr_plan_shape s = { .experts = 8 }, wide = { .experts = 512 };
    (void)state;
    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2)
        for (uint32_t n = 0; n <= 8; n++)
            assert_true(fabs(tsr_plan_shape_busiest(&s, n, ranks) - counted(n, ranks)) < 1e-9);
    double half = (counted(3, 4) + counted(4, 4)) / 2;
    assert_true(fabs(tsr_plan_shape_busiest(&s, 3.5, 4) - half) < 1e-9);
    double some = tsr_plan_shape_busiest(&wide, 80, 8); /* no overflow: between the mean and all */
    assert_true(some > 10 && some < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(shapes),
                                        cmocka_unit_test(shape_of_demo),
                                        cmocka_unit_test(links),
                                        cmocka_unit_test(latencies),
                                        cmocka_unit_test(regression),
                                        cmocka_unit_test(kernels_by_tokens),
                                        cmocka_unit_test(kernels_by_scheme),
                                        cmocka_unit_test(busiest_rank) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
