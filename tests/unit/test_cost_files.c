/* What the cost models are read from: quantities, profiles, clusters, indicators, workloads. */
#include "cost_fixture.h"

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "plan/cost/quality.h"
#include "plan/cost/quantity.h"

#include <dirent.h>
#include <math.h>

/* ---- quantities ------------------------------------------------------------------------------------ */

static void quantities(void **state)
{
    (void)state;
    static const struct {
        const char       *text;
        enum tsr_quantity what;
        double            v; /* NAN: refused */
    } cases[] = { { "15 GiB", TSR_PLAN_QUANTITY_BYTES, 15 * 0x1p30 },
                  { "1.5GB", TSR_PLAN_QUANTITY_BYTES, 1.5e9 },
                  { "800 Gbit/s", TSR_PLAN_QUANTITY_RATE, 1e11 },
                  { "12 GB/s", TSR_PLAN_QUANTITY_RATE, 12e9 },
                  { "10 us", TSR_PLAN_QUANTITY_TIME, 0.01 },
                  { "2 s", TSR_PLAN_QUANTITY_TIME, 2000 },
                  { "65 TFLOP/s", TSR_PLAN_QUANTITY_OPERATIONS, 65e12 },
                  { "0 B", TSR_PLAN_QUANTITY_BYTES, 0 },
                  { "15", TSR_PLAN_QUANTITY_BYTES, NAN },
                  { "-1 GB", TSR_PLAN_QUANTITY_BYTES, NAN },
                  { "nan GB", TSR_PLAN_QUANTITY_BYTES, NAN },
                  { "inf GB", TSR_PLAN_QUANTITY_BYTES, NAN },
                  { "1e30 GB", TSR_PLAN_QUANTITY_BYTES, NAN },
                  { "12 GB", TSR_PLAN_QUANTITY_RATE, NAN },
                  { "10 m", TSR_PLAN_QUANTITY_TIME, NAN },
                  { "", TSR_PLAN_QUANTITY_TIME, NAN } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char   why[160] = "";
        double v = 0;
        bool   ok = tsr_plan_quantity_read(cases[i].text, cases[i].what, &v, why, sizeof why);
        assert_int_equal(ok, !isnan(cases[i].v));
        if (ok)
            assert_true(fabs(v - cases[i].v) <= 1e-12 * cases[i].v);
        else
            assert_true(why[0] != '\0');
    }
    for (int what = 0; what < 4; what++)
        for (double v = 1e-3; v < 1e15; v *= 7.3) {
            char   text[TSR_PLAN_QUANTITY_TEXT], why[160];
            double back = 0;
            (void)tsr_plan_quantity_text(v, (enum tsr_quantity)what, text, sizeof text);
            assert_true(
                tsr_plan_quantity_read(text, (enum tsr_quantity)what, &back, why, sizeof why));
            assert_true(fabs(back - v) <= 1e-5 * v); /* six digits are printed */
        }
}

/* ---- files --------------------------------------------------------------------------------------------- */

static void all_files(void **state)
{
    (void)state;
    static const char *const folders[] = { "configs/devices", "configs/clusters" };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_diag         *d = NULL;
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    unsigned n[2] = { 0 };
    for (int f = 0; f < 2; f++) {
        char folder[512], path[1024];
        (void)snprintf(folder, sizeof folder, "%s/%s", TSR_SOURCE_ROOT, folders[f]);
        DIR *dir = opendir(folder);
        assert_non_null(dir);
        for (struct dirent *i; (i = readdir(dir));) {
            struct tsr_plan_profile *p = NULL;
            struct tsr_plan_cluster *c = NULL;
            if (i->d_name[0] == '.')
                continue;
            (void)snprintf(path, sizeof path, "%s/%s", folder, i->d_name);
            tsr_status st = f ? tsr_plan_cluster_load(&c, path, d, &e.err)
                              : tsr_plan_profile_load(&p, path, d, &e.err);
            print(d);
            assert_int_equal(st, TSR_OK);
            assert_true(f ? c != NULL : p != NULL);
            if (f)
                for (uint64_t g = 0; g < c->n_groups; g++)
                    assert_true(c->groups[g].profile->bandwidth > 0);
            for (uint64_t k = 0; p && k < p->n_kernels; k++)
                assert_true(*p->kernels[k].source); /* every value with its source */
            for (uint64_t k = 0; p && k < p->n_points; k++)
                assert_true(*p->points[k].source);
            tsr_plan_profile_destroy(p);
            tsr_plan_cluster_destroy(c);
            n[f]++;
        }
        (void)closedir(dir);
    }
    assert_true(n[0] >= 31 && n[1] >= 23);
    tsr_config_diag_destroy(d);
}

static const struct tsr_plan_kernel_speed *kernel_of(const struct tsr_plan_profile *p,
                                                     const char                    *name)
{
    for (uint64_t k = 0; k < p->n_kernels; k++)
        if (strcmp(p->kernels[k].kernel, name) == 0)
            return &p->kernels[k];
    return NULL;
}

/* The page of the format has a row for every profile, with the figures of its file and whose kernels were measured; one
 * without measured layers is called a roofline there and in its file. */
static void table_of_files(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_diag  *d = NULL;
    char             *page = NULL, path[1024];
    uint64_t          len;
    DIR              *dir = opendir(TSR_SOURCE_ROOT "/configs/devices");
    assert_non_null(dir);
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_file_slurp(TSR_SOURCE_ROOT "/docs/formats/device.md", 1 << 20, &page, &len,
                                    &e.err),
                     TSR_OK);
    for (struct dirent *i; (i = readdir(dir));) {
        struct tsr_plan_profile *p = NULL;
        char                     row[200], *file = NULL;
        if (i->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/configs/devices/%s", TSR_SOURCE_ROOT, i->d_name);
        assert_int_equal(tsr_plan_profile_load(&p, path, d, &e.err), TSR_OK);
        assert_non_null(p);
        const struct tsr_plan_kernel_speed *half = kernel_of(p, "f16");
        const struct tsr_plan_kernel_speed *whole = kernel_of(p, "int8");
        half = half ? half : kernel_of(p, "bf16");
        assert_true(half && whole);
        (void)snprintf(row, sizeof row, "\n| `%s` | %.1f | %.1f | %.2f | %.2f | ", p->name,
                       (double)p->memory_bytes / 0x1p30, p->bandwidth / 1e9, half->ops / 1e12,
                       whole->ops / 1e12);
        const char *found = strstr(page, row);
        if (!found)
            fail_msg("docs/formats/device.md has no row %s", row + 1);
        const char *basis = p->n_points ? p->measured_on : "a roofline";
        if (!*basis || strncmp(found + strlen(row), basis, strlen(basis)) != 0)
            fail_msg("%s: the basis in docs/formats/device.md does not begin with \"%s\"", p->name,
                     basis);
        assert_int_equal(tsr_file_slurp(path, 1 << 20, &file, &len, &e.err), TSR_OK);
        /* plans with compressed links and sums count the time of coding */
        const struct tsr_plan_codec_speed *small = tsr_plan_profile_codec_of(p, "mx", 16384),
                                          *large = tsr_plan_profile_codec_of(p, "mx", 8 << 20);
        if (!small || !large || small == large ||
            !tsr_plan_profile_codec_of(p, "int4_channel:x=1", 1))
            fail_msg("%s: no speeds of codecs by size", p->name);
        /* what links have by default: 4 bytes in and 2 out, at half of the bandwidth; on a GPU after a launch */
        static const double sizes[] = { 16384, 262144, 8 << 20 };
        for (int k = 0; k < 3; k++) {
            const struct tsr_plan_codec_speed *s =
                tsr_plan_profile_codec_of(p, "plain:dtype=bf16", sizes[k]);
            if (!s || strncmp(s->source, "a roofline", 10) != 0)
                fail_msg("%s: no roofline of plain:dtype=bf16", p->name);
            double launch = strstr(s->source, "a launch of 5 us") ? 5e-6 : 0;
            double rate = sizes[k] / (launch + 1.5 * sizes[k] / (p->bandwidth / 2));
            assert_true(fabs(s->encode - rate) <= 1e-3 * rate); /* four digits */
            assert_true(s->decode == s->encode &&
                        (strstr(small->source, "a launch of 5 us") != NULL) == (launch > 0));
        }
        if (p->n_points == 0)
            assert_non_null(strstr(file, "a roofline; nothing here was measured by us"));
        free(file);
        tsr_plan_profile_destroy(p);
    }
    (void)closedir(dir);
    free(page);
    tsr_config_diag_destroy(d);
}

/* Nodes that can change places are one type, and a part has their links. */
static void parts(void **state)
{
    (void)state;
    static const char text[] =
        "version: 1\nnodes:\n"
        "  - {name: a, devices: [{profile: T4, count: 2}], link: {bandwidth: 10 GB/s}}\n"
        "  - {name: b, devices: [{profile: V100-32G}]}\n"
        "  - {name: c, devices: [{profile: T4, count: 2}], link: {bandwidth: 10 GB/s}}\n"
        "  - {name: d, devices: [{profile: T4, count: 2}], link: {bandwidth: 9 GB/s}}\n"
        "  - {name: e, devices: [{profile: T4, count: 2}], link: {bandwidth: 10 GB/s}}\n"
        "  - {name: f, devices: [{profile: V100-32G}]}\n"
        "network: {bandwidth: 1 GB/s, latency: 5 us}\n"
        "links: [{from: b, to: e, bandwidth: 2 GB/s}]\n";
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_diag         *d = NULL;
    struct tsr_plan_cluster *c = NULL, *part = NULL;
    uint64_t                 type[6];
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_cluster_parse(&c, TSR_SOURCE_ROOT "/configs/clusters/x.yaml", text,
                                            sizeof text - 1, d, &e.err),
                     TSR_OK);
    print(d);
    assert_non_null(c);
    assert_int_equal(tsr_plan_cluster_types(c, type), 5);
    /* a and c alike; d has another link, e a better way from b, which b has to e and f has not */
    static const uint64_t want[] = { 0, 1, 0, 2, 3, 4 };
    for (int i = 0; i < 6; i++)
        assert_int_equal(type[i], want[i]);
    static const uint64_t some[] = { 4, 1 };
    assert_int_equal(tsr_plan_cluster_part(&part, c, some, NULL, 2, &e.err), TSR_OK);
    assert_int_equal(part->n_nodes, 2);
    assert_int_equal(tsr_plan_cluster_devices(part), 3);
    assert_string_equal(part->nodes[1].name, "b");
    assert_string_equal(part->groups[part->nodes[1].first_group].profile->name, "V100-32G");
    assert_int_equal(part->groups[1].node, 1);
    assert_true(tsr_plan_cluster_link(part, 1, 0, TSR_PLAN_DECODE)->rate > 1.9e9);
    assert_true(tsr_plan_cluster_link(part, 0, 1, TSR_PLAN_DECODE)->rate < 1.1e9);
    assert_true(tsr_plan_cluster_link(part, 0, 0, TSR_PLAN_PREFILL)->rate > 9e9);
    tsr_plan_cluster_destroy(part);
    /* parts of nodes: what does not divide is left out, and a node without devices is refused */
    static const uint64_t each[] = { 2, 1 }, many[] = { 1, 2 };
    assert_int_equal(tsr_plan_cluster_part(&part, c, some, each, 2, &e.err), TSR_OK);
    assert_int_equal(part->groups[0].count, 1);
    assert_int_equal(part->nodes[0].parts, 2);
    assert_int_equal(part->groups[1].count, 1);
    tsr_plan_cluster_destroy(part);
    assert_int_equal(tsr_plan_cluster_part(&part, c, some, many, 2, &e.err), TSR_E_INVAL);
    assert_null(part);
    tsr_plan_cluster_destroy(c);
    tsr_config_diag_destroy(d);
}

/* ---- quality ----------------------------------------------------------------------------------------------- */

static void qualities(void **state)
{
    (void)state;
    static const char *const texts[] = { "rtn:bits=3", "rtn:bits=4", "rtn:bits=6", "original" };
    static const char        file[] =
        "{\"format\": \"tessera.indicators/1\", \"model\": \"xxh3:0\", \"layers\": 2,"
        " \"bits\": [3, 4, 8, 16], \"tables\": ["
        " {\"name\": \"variance\", \"omega\": [[8, 2, 0.5, 0], [4, 1, 0.25, 0]]},"
        " {\"name\": \"measured\", \"omega\": [[9, 3, -1, 0], [5, 2, 1, 0]]}]}";
    struct tsr_errbuf          e = TSR_ERRBUF(e);
    struct tsr_plan_shape     *s = shape(opt_30b);
    struct tsr_plan_candidates q;
    struct tsr_plan_quality    t;
    assert_int_equal(tsr_plan_candidates_open(&q, reg, s, texts, 4, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_quality_prior(&t, s, &q, &e.err), TSR_OK);
    assert_true(t.prior);
    assert_true(fabs(t.omega[0] - 4) < 1e-12 && fabs(t.omega[1] - 1) < 1e-12 &&
                fabs(t.omega[2] - 1.0 / 16) < 1e-12 && t.omega[3] == 0);
    assert_true(fabs(tsr_plan_quality_uniform(&t, 1) - 48) < 1e-9);
    tsr_plan_quality_free(&t);
    /* 48 layers are not 2 */
    assert_int_equal(tsr_plan_quality_parse(&t, "i.json", file, sizeof file - 1, NULL, s, &q,
                                            &e.err),
                     TSR_E_INPUT);
    s->layers = 2;
    assert_int_equal(tsr_plan_quality_parse(&t, "i.json", file, sizeof file - 1, "variance", s, &q,
                                            &e.err),
                     TSR_OK);
    assert_false(t.prior);
    assert_true(t.omega[0] == 8 && t.omega[1] == 2 && t.omega[3] == 0);
    assert_true(fabs(t.omega[2] - 1) < 1e-12); /* half way from 2 to 0.5 in logarithms */
    tsr_plan_quality_free(&t);
    assert_int_equal(tsr_plan_quality_parse(&t, "i.json", file, sizeof file - 1, "", s, &q, &e.err),
                     TSR_OK);
    assert_true(t.omega[0] == 9 && t.raised > 0); /* measured comes first; -1 counts as 0 */
    assert_non_null(strstr(t.basis, "measured"));
    tsr_plan_quality_free(&t);
    assert_int_equal(tsr_plan_quality_parse(&t, "i.json", file, sizeof file - 1, "hessian", s, &q,
                                            &e.err),
                     TSR_E_INPUT);
    s->layers = 48;
    tsr_plan_candidates_close(&q);
    tsr_plan_shape_destroy(s);
}

/* ---- workloads ----------------------------------------------------------------------------------------------- */

static void workloads(void **state)
{
    (void)state;
    static const char        records[] = "{\"prompt_tokens\": 100, \"max_tokens\": 20}\n\n"
                                         "{\"body\": {\"prompt_tokens\": 300}}\n"
                                         "{\"prompt_tokens\": 101}";
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_plan_workload w;
    assert_int_equal(tsr_plan_workload_fixed(&w, 512, 100, 32, &e.err), TSR_OK);
    assert_true(tsr_plan_workload_past(&w, false) == 561 &&
                tsr_plan_workload_past(&w, true) == 562);
    assert_int_equal(w.context, 612);
    tsr_plan_workload_free(&w);
    assert_int_equal(tsr_plan_workload_records(&w, "p.jsonl", records, sizeof records - 1, 50, NULL,
                                               &e.err),
                     TSR_OK);
    assert_int_equal(w.s, 167);       /* 501 / 3 */
    assert_int_equal(w.n, 40);        /* 120 / 3 */
    assert_int_equal(w.context, 350); /* the longest of each */
    assert_true(w.distribution);
    tsr_plan_workload_free(&w);
    assert_int_equal(tsr_plan_workload_records(&w, "p.jsonl", "{}\n", 3, 50, NULL, &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "p.jsonl:1", "prompt_tokens prompt text"));
    tsr_plan_workload_free(&w);
    assert_int_equal(tsr_plan_workload_records(&w, "p.jsonl", "{\"prompt\": \"a\"}", 15, 50, NULL,
                                               &e.err),
                     TSR_E_INPUT);
    assert_true(error_is(&e.err, "p.jsonl:1", "tokenizer"));
    tsr_plan_workload_free(&w);
}

/* ---- what is wrong with files ---------------------------------------------------------------------------------- */

static void bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *facts;
    } devices[] = {
        { "format: tessera.device/2\nname: x\n", "format" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB, source: s}\n",
          "peak" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\n",
          "nothing" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\nkernels:\n"
          "  - {kernel: f16, ops: 1 TFLOP/s, prefill: {compute: 1, read: 1}, decode: {compute: 1,"
          " read: 1}, source: s, above: 3}\n"
          "  - {kernel: f16, ops: 1 TFLOP/s, prefill: {compute: 1, read: 1}, decode: {compute: 1,"
          " read: 1}, source: s, above: 3}\n",
          "f16" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\n",
          "source" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\nlayers:\n  - kernel: int4\n    source: s\n"
          "    shape: {hidden: 8, ffn: 8, heads: 1, kv_heads: 1, head_dim: 8}\n"
          "    decode: [[1, 2, nan]]\n",
          "0 1e9" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\ncodecs:\n"
          "  - {codec: mx, encode: 0 GB/s, decode: 1 GB/s, source: s}\n",
          "encode decode 0" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\ncodecs:\n"
          "  - {codec: mx, encode: 1 GB, decode: 1 GB/s, source: s}\n",
          "encode" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\ncodecs:\n"
          "  - {codec: mx, encode: 1 GB/s, decode: 1 GB/s, above: 1 MiB, source: s}\n"
          "  - {codec: mx, encode: 2 GB/s, decode: 1 GB/s, above: 1 MiB, source: s}\n",
          "mx twice" },
        { "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\ncodecs:\n"
          "  - {codec: mx, encode: 1 GB/s, decode: 1 GB/s, above: 1 MB/s, source: s}\n",
          "above" },
        { "format: tessera.device/1\nname: x\nmeasured_on: a paper's\nmemory: {total: 1 GB, "
          "source: s}\n"
          "bandwidth: {peak: 3 GB/s, source: s}\nkernels:\n"
          "  - {kernel: f16, ops: 1 TFLOP/s, prefill: {compute: 1, read: 1}, decode: {compute: 1,"
          " read: 1}, source: s}\n",
          "measured_on none" },
        { "format: tessera.device/1\nname: x\nmeasured_on: "
          "01234567890123456789012345678901234567890123456789012345678901234567890123456789\n"
          "memory: {total: 1 GB, source: s}\nbandwidth: {peak: 3 GB/s, source: s}\nlayers:\n"
          "  - kernel: int4\n    source: s\n"
          "    shape: {hidden: 8, ffn: 8, heads: 1, kv_heads: 1, head_dim: 8}\n"
          "    decode: [[1, 2, 3]]\n",
          "measured_on 79" },
    };
    static const struct {
        const char *text, *facts;
    } clusters[] = {
        { "version: 1\n", "nodes" },
        { "version: 1\nnodes:\n  - devices: [{profile: T5}]\n", "t4" },
        { "version: 1\nnodes:\n  - devices: [{profile: T4, count: 2}]\n", "link" },
        { "version: 1\nnodes:\n  - {name: a, devices: [{profile: T4}]}\n"
          "  - {name: b, devices: [{profile: T4}]}\n",
          "a b" },
        { "version: 1\nnodes:\n  - {name: a, devices: [{profile: T4}], speed: 3}\n", "speed" },
        { "version: 1\nnodes:\n  - {name: a, devices: [{profile: T4}]}\norder: any\n", "order" },
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    for (size_t i = 0; i < sizeof devices / sizeof *devices + sizeof clusters / sizeof *clusters;
         i++) {
        bool                        cl = i >= sizeof devices / sizeof *devices;
        size_t                      k = cl ? i - sizeof devices / sizeof *devices : i;
        const char                 *text = cl ? clusters[k].text : devices[k].text;
        const char                 *facts = cl ? clusters[k].facts : devices[k].facts;
        struct tsr_diag            *d = NULL;
        struct tsr_plan_profile    *p = NULL;
        struct tsr_plan_cluster    *c = NULL;
        struct tsr_config_diag_item item;
        bool                        found = false;
        assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
        assert_int_equal(cl ? tsr_plan_cluster_parse(&c, "c.yaml", text, strlen(text), d, &e.err)
                            : tsr_plan_profile_parse(&p, "d.yaml", text, strlen(text), d, &e.err),
                         TSR_OK);
        assert_null(p);
        assert_null(c);
        for (uint64_t n = 0; tsr_config_diag_at(d, n, &item); n++)
            found = found || (has_facts(item.text, facts) && item.line >= 1);
        if (!found) {
            print(d);
            fail_msg("no error has: %s", facts);
        }
        tsr_config_diag_destroy(d);
    }
}

/* ---- kernels that a profile does not have ----------------------------------------------------------------------- */

static void closest_kernels(void **state)
{
    (void)state;
    static const char *const lists[] = { "f16 int3 int8 lut4", "bf16 f16 int4", "llm8",
                                         "int4 int6 fp4_e2m1" };
    static const struct {
        int         list;
        const char *needs, *closest;
    } cases[] = {
        { 0, "f32", "f16" },           { 0, "bf16", "f16" },  { 0, "int4", "int3" },
        { 0, "int2", "int3" },         { 0, "int6", "int8" }, { 0, "lut3", "lut4" },
        { 1, "f32", "bf16" },          { 1, "int8", "int4" }, { 2, "int8", "llm8" },
        { 3, "int5", "int6" }, /* the wider of two */
        { 3, "fp4_e3m0", "fp4_e2m1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf        e = TSR_ERRBUF(e);
        struct tsr_diag         *d = NULL;
        struct tsr_plan_profile *p = NULL;
        char                     text[2000], list[100], *rest = list;
        size_t                   at = 0;
        (void)snprintf(list, sizeof list, "%s", lists[cases[i].list]);
        at +=
            (size_t)snprintf(text, sizeof text,
                             "format: tessera.device/1\nname: x\nmemory: {total: 1 GB, source: s}\n"
                             "bandwidth: {peak: 3 GB/s, source: s}\nkernels:\n");
        for (char *k; (k = strtok_r(rest, " ", &rest));)
            at +=
                (size_t)snprintf(text + at, sizeof text - at,
                                 "  - {kernel: %s, ops: 1 TFLOP/s, prefill: {compute: 1, read: 1},"
                                 " decode: {compute: 1, read: 1}, source: s}\n",
                                 k);
        assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
        assert_int_equal(tsr_plan_profile_parse(&p, "d.yaml", text, at, d, &e.err), TSR_OK);
        print(d);
        assert_non_null(p);
        assert_false(tsr_plan_profile_runs(p, cases[i].needs));
        assert_string_equal(tsr_plan_profile_closest(p, cases[i].needs), cases[i].closest);
        tsr_plan_profile_destroy(p);
        tsr_config_diag_destroy(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closest_kernels), cmocka_unit_test(quantities),
        cmocka_unit_test(all_files),       cmocka_unit_test(table_of_files),
        cmocka_unit_test(qualities),       cmocka_unit_test(workloads),
        cmocka_unit_test(bad_files),       cmocka_unit_test(parts)
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
