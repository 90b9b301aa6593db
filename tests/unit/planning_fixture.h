/* planning_fixture.h - problems of the small golden model on made-up machines, for tests of the search. */
#ifndef TSR_PLANNING_FIXTURE_H
#define TSR_PLANNING_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/search/search.h"
#include "plugin_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tsr_registry *registry;
static char                 folder[] = "/tmp/tessera-planning-XXXXXX";

static inline void write_file(const char *name, const char *text)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A profile with kernels for everything, kib KiB and mbps MB/s. */
static inline void profile(const char *name, unsigned kib, unsigned mbps)
{
    static const char *const kernels[] = { "f16", "bf16", "f32", "int3", "int4", "int8" };
    char                     text[4000], file[80];
    int                      at = snprintf(text, sizeof text,
                                           "format: tessera.device/1\nname: %s\n"
                                                                "memory: {total: %u KiB, source: x}\n"
                                                                "bandwidth: {peak: %u MB/s, source: x}\nkernels:\n",
                                           name, kib, mbps);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {kernel: %s, ops: %u MFLOP/s, prefill: {compute: 0.5, read: 0.7}, "
                       "decode: {compute: 0.4, read: 0.8}, source: x}\n",
                       kernels[i], mbps * 50);
    (void)snprintf(file, sizeof file, "devices/%s.yaml", name);
    write_file(file, text);
}

/* The same with a way to the host's memory of `host` MB/s, and more lines before its kernels. */
static inline void with_host(const char *name, unsigned kib, unsigned mbps, unsigned host,
                             const char *more)
{
    char path[200], text[4100];
    profile(name, kib, mbps);
    (void)snprintf(path, sizeof path, "%s/devices/%s.yaml", folder, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, 4000, f);
    assert_int_equal(fclose(f), 0);
    text[n] = '\0';
    char *at = strstr(text, "kernels:");
    assert_non_null(at);
    f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(f, "%.*shost: {peak: %u MB/s, source: x}\n%s%s", (int)(at - text), text, host,
                  more, at);
    assert_int_equal(fclose(f), 0);
}

static inline struct tsr_plan_cluster *cluster_of(const char *text)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_diag         *d;
    struct tsr_plan_cluster *c = NULL;
    char                     path[200];
    (void)snprintf(path, sizeof path, "%s/clusters/test.yaml", folder);
    assert_int_equal(tsr_config_diag_create(&d, &e.err), TSR_OK);
    assert_int_equal(tsr_plan_cluster_parse(&c, path, text, strlen(text), d, &e.err), TSR_OK);
    if (tsr_config_diag_errors(d))
        tsr_config_diag_print(d, stderr, false);
    assert_int_equal(tsr_config_diag_errors(d), 0);
    tsr_config_diag_destroy(d);
    return c;
}

struct setting {
    struct tsr_plan_cluster *cluster;
    struct tsr_plan_workload work;
    struct tsr_plan_problem  p;
    struct tsr_plugin_spec   solver;
};

/* groups that two ranks can share: 64 and 172 columns, cut in two */
static const char *const texts[] = { "rtn:bits=4,group=2", "rtn:bits=8,group=2" };

static inline struct tsr_plan_problem_options usual(void)
{
    return (struct tsr_plan_problem_options){ .model = TSR_SOURCE_ROOT
                                              "/tests/golden/models/stories260k",
                                              .candidates = texts,
                                              .n_candidates = 2,
                                              .indicators = "",
                                              .table = "",
                                              .at_least = "",
                                              .max_omega = -1,
                                              .codec = "",
                                              .tp_codec = "",
                                              .together = 1,
                                              .gap = 1e-9 };
}

static inline void set_up(struct setting *s, const char *text,
                          const struct tsr_plan_problem_options *o, uint64_t prompt,
                          uint64_t generate, uint64_t batch)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    *s = (struct setting){ .cluster = cluster_of(text) };
    assert_int_equal(tsr_plan_workload_fixed(&s->work, prompt, generate, batch, &e.err), TSR_OK);
    if (tsr_plan_problem_open(&s->p, registry, o, s->cluster, &s->work, &e.err) != TSR_OK ||
        tsr_plugin_spec_open(&s->solver, registry, TSR_KIND_SOLVER, "exact", &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static inline void take_down(struct setting *s)
{
    tsr_plugin_spec_close(&s->solver);
    tsr_plan_problem_close(&s->p);
    tsr_plan_workload_free(&s->work);
    tsr_plan_cluster_destroy(s->cluster);
}

/* The folder of profiles and clusters, with two profiles, and the plugins. */
static inline bool planning_open(void)
{
    static const char *const dirs[] = { "devices", "clusters", "routing" };
    struct tsr_plugin_found  found;
    char                     path[200];
    if (!mkdtemp(folder))
        return false;
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, dirs[i]);
        (void)mkdir(path, 0755);
    }
    profile("slow", 1024, 200);
    profile("fast", 2048, 800);
    registry = open_plugin(TSR_KIND_SOLVER, "exact", &found);
    return true;
}

static inline bool planning_close(void)
{
    char path[200];
    tsr_plugin_registry_destroy(registry);
    (void)snprintf(path, sizeof path, "rm -rf %s", folder);
    return system(path) == 0;
}

#endif
