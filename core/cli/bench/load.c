/* bench load: a warm start of a prepacked file to its first logits, compared with reading the same bytes
 * once. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "checkpoint/kind.h"
#include "checkpoint/prepacked/prepacked.h"
#include "engine/engine.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECE  (UINT64_C(256) << 10) /* stays in the second cache */
#define MAPPED (UINT64_C(2) << 20)   /* a large page: few streams are fastest */

/* A range that the first token reads. */
struct range {
    uint64_t at, bytes;
};

struct load {
    struct bench *b;
    const char   *path;
    struct range *ranges;
    uint64_t      n, bytes; /* bytes: of all of them */
    float        *logits;
    uint64_t      vocab;
};

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* All weights; but of an embedding that is not the head, and of learned positions, a token reads one
 * row. */
static tsr_status list_ranges(struct load *x, const struct tsr_prepacked *p, struct tsr_err *err)
{
    const char *name;
    json_t     *j;
    x->ranges = tsr_new(json_object_size(p->weights) + 1, sizeof *x->ranges);
    if (!x->ranges)
        return tsr_fail_nomem(err, json_object_size(p->weights) * sizeof *x->ranges, "ranges");
    json_object_foreach (p->weights, name, j) {
        struct tsr_prepacked_place at = tsr_prepacked_place(j);
        if (p->data + at.at == p->positions.data ||
            (p->data + at.at == p->embed.data && p->head.data))
            continue;
        x->ranges[x->n++] = (struct range){ at.at, at.bytes };
        x->bytes += at.bytes;
    }
    qsort(x->ranges, x->n, sizeof *x->ranges, by_place);
    return TSR_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct reading {
    const struct load    *x;
    const struct tsr_map *map; /* NULL: through read() */
    struct tsr_file       file;
    _Atomic uint64_t      next, sum;
    uint64_t              piece, per_range; /* pieces of the longest range */
};

typedef uint64_t pair __attribute__((vector_size(16)));

/* Vectors: words alone were slower than a start. */
static uint64_t sum_of(const void *data, uint64_t bytes)
{
    const unsigned char *p = data;
    pair                 sum[4] = { { 0 } }, v[4];
    for (; bytes >= sizeof v; bytes -= sizeof v, p += sizeof v) {
        memcpy(v, p, sizeof v);
        for (int i = 0; i < 4; i++)
            sum[i] ^= v[i];
    }
    sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
    return sum[0][0] ^ sum[0][1];
}

/* Each thread takes piece after piece, as far as there are some. */
static tsr_status read_pieces(void *arg, uint64_t begin, uint64_t end)
{
    struct reading   *r = arg;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    unsigned char    *buf = r->map ? NULL : tsr_new_aligned(PIECE, 1);
    uint64_t          sum = 0;
    tsr_status        st = r->map || buf ? TSR_OK : TSR_E_NOMEM;
    (void)begin;
    (void)end;
    for (uint64_t i;
         st == TSR_OK && (i = atomic_fetch_add(&r->next, 1)) < r->x->n * r->per_range;) {
        const struct range *g = &r->x->ranges[i / r->per_range];
        uint64_t            at = i % r->per_range * r->piece;
        if (at >= g->bytes)
            continue;
        uint64_t n = g->bytes - at < r->piece ? g->bytes - at : r->piece;
        if (r->map) {
            sum ^= sum_of(r->map->data + g->at + at, n);
        } else if (buf) {
            st = tsr_file_read(&r->file, g->at + at, buf, n, &e.err);
            sum ^= buf[0];
        }
    }
    atomic_fetch_xor(&r->sum, sum);
    free(buf);
    return st;
}

/* Reads the ranges once, with all threads: through a new map, made and prefetched as in an engine, or by
 * read() into buffers that stay in the cache. */
static tsr_status read_once(struct load *x, bool mapped, double *seconds, double *cpu,
                            struct tsr_err *err)
{
    struct tsr_pool *pool = tsr_plugin_registry_pool(x->b->cli->registry);
    struct reading   r = { .x = x, .file.fd = -1, .piece = mapped ? MAPPED : PIECE };
    struct tsr_map   map = { 0 };
    double           t = tsr_now_s(), c = bench_cpu_s();
    for (uint64_t i = 0; i < x->n; i++)
        if (x->ranges[i].bytes / r.piece >= r.per_range)
            r.per_range = x->ranges[i].bytes / r.piece + 1;
    if (mapped) {
        TSR_TRY(tsr_map_open(&map, x->path, err));
        r.map = &map;
        tsr_map_want(&map, 0, map.bytes);
    } else {
        TSR_TRY(tsr_file_open(&r.file, x->path, err));
    }
    tsr_status st = tsr_pool_for(pool, x->b->threads, 1, read_pieces, &r);
    *seconds = tsr_now_s() - t;
    *cpu = bench_cpu_s() - c;
    if (mapped)
        tsr_map_close(&map);
    else
        tsr_file_close(&r.file);
    return st == TSR_OK ? st : tsr_fail(err, st, "%s: cannot be read", x->path);
}

/* ---- starting ------------------------------------------------------------------------------ */

static tsr_status first_logits(struct load *x, const struct tsr_model *m, double start,
                               double *seconds, double *cpu, struct tsr_err *err)
{
    const struct bench_options *o = x->b->o;
    struct tsr_engine          *e = NULL;
    struct tsr_engine_token     token = { .id = (uint32_t)(m->hp.vocab / 2), .logits = true };
    struct tsr_engine_options   opt = { .on = { .backend = o->backend,
                                                .numerics = (uint32_t)o->numerics },
                                        .act = bench_act(o),
                                        .kv_dtype = (uint32_t)o->kv,
                                        .slots = 1,
                                        .context = 1 };
    TSR_TRY(tsr_engine_create(&e, x->b->cli->registry, m, NULL, &opt, err));
    tsr_status st = tsr_engine_forward(e, &token, 1, x->logits, err);
    *seconds = tsr_now_s() - start;
    *cpu = bench_cpu_s();
    tsr_engine_destroy(e);
    return st;
}

/* From the file's name to the logits of one token: open, map, index, engine, one step. */
static tsr_status start_once(struct load *x, double *seconds, double *cpu, struct tsr_err *err)
{
    struct tsr_model *m = NULL;
    double            t = tsr_now_s(), c = bench_cpu_s();
    TSR_TRY(tsr_model_load(&m, x->path, false, err));
    tsr_status st = first_logits(x, m, t, seconds, cpu, err);
    *cpu -= c;
    tsr_model_destroy(m);
    return st;
}

/* What a batch does before its first record: every byte hashed. */
static tsr_status hash_once(const struct load *x, double *cpu, struct tsr_err *err)
{
    struct tsr_prepacked p;
    TSR_TRY(tsr_prepacked_open(&p, x->path, err));
    *cpu = bench_cpu_s();
    tsr_status st =
        tsr_prepacked_verify(&p, tsr_plugin_registry_pool(x->b->cli->registry), NULL, err);
    *cpu = (bench_cpu_s() - *cpu) * (double)x->bytes / (double)p.bytes;
    tsr_prepacked_close(&p);
    return st;
}

/* ---- rounds -------------------------------------------------------------------------------- */

struct sample {
    double start, read, mapped, memory, busy;
    double start_cpu, read_cpu, mapped_cpu, hash_cpu; /* of all threads */
};

static tsr_status round_once(struct load *x, struct sample *s, struct tsr_err *err)
{
    double memory[2];
    TSR_TRY(bench_measure(x->b, BENCH_READ, &memory[0], err));
    TSR_TRY(read_once(x, false, &s->read, &s->read_cpu, err));
    TSR_TRY(start_once(x, &s->start, &s->start_cpu, err));
    TSR_TRY(read_once(x, true, &s->mapped, &s->mapped_cpu, err));
    TSR_TRY(hash_once(x, &s->hash_cpu, err));
    TSR_TRY(bench_measure(x->b, BENCH_READ, &memory[1], err));
    s->memory = fmax(memory[0], memory[1]);
    s->busy =
        fmin(s->read_cpu / (s->read * x->b->threads), s->mapped_cpu / (s->mapped * x->b->threads));
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped") : TSR_OK;
}

/* The reference of a row. */
enum beside { FILE_READ, FILE_CPU, HASH_CPU, MEMORY };

static tsr_status add(struct load *x, const struct sample *s, uint64_t n, enum beside how,
                      double *v, struct tsr_err *err)
{
    static const char *const names[] = { "file", "cpu", "hash", "memory" };
    struct bench_row         row = { .rows = x->bytes, .m = 1 };
    double                   gb = (double)x->bytes * 1e-9;
    (void)snprintf(row.what, sizeof row.what, "load");
    (void)snprintf(row.format, sizeof row.format, "%s", names[how]);
    (void)snprintf(row.act, sizeof row.act, "%s", tsr_plugin_act_name(bench_act(x->b->o)));
    (void)snprintf(row.unit, sizeof row.unit, "GB/s");
    double *value = v, *probe = v + n, *share = v + 2 * n, *busy = v + 3 * n;
    for (uint64_t i = 0; i < n; i++) {
        value[i] = gb / (how == FILE_CPU   ? s[i].start_cpu
                         : how == HASH_CPU ? s[i].hash_cpu
                                           : s[i].start);
        probe[i] = how == MEMORY                        ? s[i].memory * 1e-9
                   : how == FILE_CPU || how == HASH_CPU ? gb / fmin(s[i].read_cpu, s[i].mapped_cpu)
                                                        : gb / fmin(s[i].read, s[i].mapped);
        share[i] = probe[i] > 0 ? value[i] / probe[i] : 0;
        busy[i] = how == FILE_CPU || how == HASH_CPU
                      ? 1
                      : s[i].busy; /* processor time excludes other processes */
        row.best = fmax(row.best, value[i]);
    }
    row.value = bench_median(value, n);
    row.probe = bench_median(probe, n);
    row.share = bench_median(share, n);
    row.busy = bench_median(busy, n);
    row.milliseconds = 1e3 * gb / row.value;
    return bench_add(x->b, &row, err);
}

static tsr_status rounds(struct load *x, struct tsr_err *err)
{
    uint64_t       n = (uint64_t)x->b->o->repeats;
    struct sample *s = tsr_new(n + 1, sizeof *s);
    double        *v = tsr_new(4 * n, sizeof *v);
    tsr_status     st = s && v ? TSR_OK : tsr_fail_nomem(err, n * sizeof *s, "rounds");
    for (uint64_t i = 0; st == TSR_OK && i <= n; i++) /* the first one warms the page cache */
        st = round_once(x, &s[i], err);
    if (st == TSR_OK)
        st = add(x, s + 1, n, FILE_READ, v, err);
    if (st == TSR_OK)
        st = add(x, s + 1, n, FILE_CPU, v, err);
    if (st == TSR_OK)
        st = add(x, s + 1, n, HASH_CPU, v, err);
    if (st == TSR_OK && x->b->probe)
        st = add(x, s + 1, n, MEMORY, v, err);
    free(s);
    free(v);
    return st;
}

tsr_status bench_load(struct bench *b, const char *path, struct tsr_err *err)
{
    struct load              x = { .b = b, .path = path };
    struct tsr_model        *m = NULL;
    enum tsr_checkpoint_kind kind = TSR_CHECKPOINT_OTHER;
    if (path)
        TSR_TRY(tsr_model_check(path, err));
    if (path)
        TSR_TRY(tsr_checkpoint_kind(path, &kind, err));
    if (kind != TSR_CHECKPOINT_PREPACKED)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is not a prepacked file; `tessera convert MODEL -o FILE.tsr "
                        "--to prepacked` writes one",
                        path ? path : "nothing");
    TSR_TRY(bench_prepare_read(b, err));
    TSR_TRY(tsr_model_load(&m, path, false, err));
    tsr_status st = list_ranges(&x, m->prepacked, err);
    x.vocab = m->hp.vocab;
    tsr_model_destroy(m);
    if (st == TSR_OK && !(x.logits = tsr_new(x.vocab, sizeof *x.logits)))
        st = tsr_fail_nomem(err, x.vocab * sizeof *x.logits, "logits");
    if (st == TSR_OK)
        st = rounds(&x, err);
    free(x.ranges);
    free(x.logits);
    return st;
}
