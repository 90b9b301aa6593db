/* main.c - gpu_check: a backend's kernels against the CPU's.
 *
 *   gpu_check kernels BACKEND PLUGIN PLUGINS COUNT [SEED]
 *   gpu_check attention|fast|auto|linalg BACKEND PLUGIN PLUGINS COUNT [SEED]
 *   gpu_check codecs BACKEND PLUGIN PLUGINS COUNT SEED VECTORS
 *   gpu_check ranks BACKEND PLUGIN PLUGINS TRANSPORT RANKS
 *   gpu_check sums BACKEND PLUGIN PLUGINS TRANSPORT SUMS
 *   gpu_check bench BACKEND PLUGIN PLUGINS SECONDS
 *
 * COUNT drawn LINEARs, as many other operations, a quarter as many layers of operations, half as many rows of
 * candidates and an eighth as many sites with error compensation; each gives the bytes that the CPU backend gives,
 * candidates those of a sort.
 * attention: COUNT of its cases alone.  fast, auto: COUNT LINEARs of a device of these numerics and half as many ATTENTIONs, within
 * their bounds;
 * linalg: its linear algebra.
 * codecs: COUNT messages coded on the device are the codecs' own, and those of the recorded VECTORS, a
 * folder.  ranks: sums over so many processes are those of ranks on CPUs; over nccl they are made on the
 * device.  sums: times of sums over two devices that see each other's memory, in chains of SUMS.  bench: times of ATTENTION, and of LINEARs for about SECONDS; 0: of a few small ones.  PLUGINS: where cpu.so lies.
 * Without a SEED one is taken from the clock and printed.  Exit status 0, 1 where something differs, 3
 * where NCCL refuses ranks that share a device, 4 where sums lack a second device and 5 where they are messages, 6 where there
 * is no device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "messages.h"
#include "ranks.h"

static int fail(const struct tsr_errbuf *e, tsr_status st)
{
    (void)fprintf(stderr, "gpu_check: %s\n", e->text);
    return st == TSR_E_DEVICE ? 6 : 1;
}

enum part { KERNELS, ATTENTION, FAST, AUTO, LINALG, CODECS, BENCH, RANKS, SUMS, PARTS };

static int kernels(struct tsr_registry *r, enum part part, const char *backend, uint64_t count,
                   uint64_t seed, const char *vectors)
{
    static const char *const found[] = {
        "operations give the bytes of the CPU",
        "operations give the bytes of the CPU",
        "operations are within their bounds",
        "operations are within their bounds, LINEARs of int8 activations have the bytes of the CPU",
        "results are within their bounds",
        "messages are those of the codecs"
    };
    struct pair       p;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = pair_open(&p, r, backend, seed,
                              part == AUTO                     ? TSR_NUMERICS_AUTO
                                     : part == FAST || part == LINALG ? TSR_NUMERICS_FAST
                                                                      : TSR_NUMERICS_EXACT,
                                     &e.err);
    if (st != TSR_OK)
        return fail(&e, st);
    bool ok = part == FAST || part == AUTO
                  ? pair_check_fast(&p, count) && pair_check_fast_attention(&p, count / 2)
              : part == ATTENTION ? pair_check_attention(&p, count)
              : part == LINALG    ? pair_check_linalg(&p, count)
              : part == CODECS
                  ? pair_check_vectors(&p, r, vectors) && pair_check_codecs(&p, r, count)
                  : pair_check_linears(&p, count) && pair_check_ops(&p, count) &&
                        pair_check_layers(&p, count / 4) && pair_check_candidates(&p, count / 2) &&
                        pair_check_compensation(&p, count / 8);
    if (!ok)
        (void)fprintf(stderr, "gpu_check: seed %llu: %s\n", (unsigned long long)seed, p.err.text);
    else
        (void)printf("%llu %s, seed %llu\n", (unsigned long long)p.checked, found[part],
                     (unsigned long long)seed);
    pair_close(&p);
    return ok ? 0 : 1;
}

static int bench(struct tsr_registry *r, const char *backend, uint64_t seconds)
{
    struct pair       p, fast;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = pair_open(&p, r, backend, 1, TSR_NUMERICS_EXACT, &e.err);
    if (st == TSR_OK && (st = pair_open(&fast, r, backend, 1, TSR_NUMERICS_FAST, &e.err)) != TSR_OK)
        pair_close(&p);
    if (st != TSR_OK)
        return fail(&e, st);
    bool ok = pair_bench(&p, &fast, seconds);
    if (!ok)
        (void)fprintf(stderr, "gpu_check: bench: %s\n", p.err.text);
    pair_close(&fast);
    pair_close(&p);
    return ok ? 0 : 1;
}

static int ranks(struct tsr_registry *r, enum part part, char **argv)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct ranks_options o = { .backend = argv[2],
                               .transport = argv[5],
                               .ranks = (uint32_t)strtoul(argv[6], NULL, 10),
                               .seed = 5,
                               .on_device = strncmp(argv[5], "nccl", 4) == 0 };
    e.text[0] = '\0';
    if (part == SUMS)
        o.seed = o.ranks > 0 && o.ranks <= 100 ? o.ranks : 1;
    int rc = part == SUMS ? sums_measure(r, &o, &e.err) : ranks_check(r, &o, &e.err);
    if (e.text[0])
        (void)fprintf(stderr, "gpu_check: %s\n", e.text);
    return rc;
}

static enum part part_of(int argc, char **argv)
{
    static const char *const name[] = { "kernels", "attention", "fast",  "auto", "linalg",
                                        "codecs",  "bench",     "ranks", "sums" };
    for (int i = 0; argc > 1 && i < PARTS; i++)
        if (strcmp(argv[1], name[i]) == 0)
            return argc < (i == CODECS ? 8 : i >= RANKS ? 7 : 6) ? PARTS : (enum part)i;
    return PARTS;
}

int main(int argc, char **argv)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_pool     *pool = NULL;
    struct tsr_registry *r = NULL;
    enum part            part = part_of(argc, argv);
    if (part == PARTS) {
        (void)fprintf(stderr,
                      "usage: gpu_check kernels|attention|fast|auto|linalg|bench BACKEND PLUGIN "
                      "PLUGINS COUNT [SEED]\n"
                      "       gpu_check codecs BACKEND PLUGIN PLUGINS COUNT SEED VECTORS\n"
                      "       gpu_check ranks|sums BACKEND PLUGIN PLUGINS TRANSPORT "
                      "RANKS|SUMS\n");
        return 2;
    }
    uint64_t   seed = argc > 6 ? strtoull(argv[6], NULL, 10) : (uint64_t)time(NULL) % 1000000;
    tsr_status st = TSR_OK;
    if (part < RANKS) /* those fork: no threads */
        st = tsr_pool_create(&pool, part == BENCH ? 0 : 2, &e.err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_create(&r, pool, &e.err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_add_path(r, argv[4], &e.err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_add_path(r, argv[3], &e.err);
    uint64_t count = strtoull(argv[5], NULL, 10);
    int      rc = st != TSR_OK    ? fail(&e, st)
                  : part == BENCH ? bench(r, argv[2], count)
                  : part >= RANKS
                      ? ranks(r, part, argv)
                      : kernels(r, part, argv[2], count, seed, part == CODECS ? argv[7] : NULL);
    tsr_plugin_registry_destroy(r);
    tsr_pool_destroy(pool);
    return rc;
}
