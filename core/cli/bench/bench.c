/* The device under the bench, its probes, and the table of results. */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "report/report.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

tsr_status bench_open(struct bench *b, struct tsr_cli *c, const struct bench_options *o,
                      struct tsr_err *err)
{
    struct tsr_registry *r;
    *b = (struct bench){ .cli = c, .o = o };
    TSR_TRY(tsr_cli_registry(c, &r, err));
    b->host = tsr_plugin_registry_host(r);
    b->threads = tsr_pool_threads(tsr_plugin_registry_pool(r));
    TSR_TRY(tsr_plugin_spec_backend(&b->spec, r, o->backend, (uint32_t)o->numerics, err));
    const struct tsr_backend_v1 *iface = b->spec.found.iface;
    TSR_TRY(tsr_plugin_spec_backend_create(&b->spec, r, &b->self, err));
    b->iface = iface;
    struct tsr_backend_props p = { .struct_size = sizeof p };
    TSR_TRY(iface->properties(b->self, &p, err));
    (void)snprintf(b->device, sizeof b->device, "%s", p.device ? p.device : "unnamed device");
    b->probe = iface->extension ? iface->extension(b->self, TSR_PROBE_EXTENSION) : NULL;
    b->peaks = iface->extension && !b->probe ? iface->extension(b->self, TSR_PEAKS) : NULL;
    return TSR_OK;
}

void bench_close(struct bench *b)
{
    if (b->iface) {
        b->iface->buffer_free(b->self, b->memory);
        b->iface->destroy(b->self);
    }
    tsr_plugin_spec_close(&b->spec);
    for (uint64_t i = 0; i < b->n_rows; i++)
        free(b->row[i].each);
    free(b->row);
}

/* ---- probes ------------------------------------------------------------------ */

struct team {
    struct bench     *b;
    enum bench_probe  which;
    _Atomic uint32_t  arrived;
    double            rate[256];
    struct tsr_errbuf err;
};

#define SLICE_S 0.002
#define SLICES  8

static tsr_status slice(struct team *t, uint64_t i, struct tsr_probe_result *r)
{
    const struct tsr_probe_v1 *p = t->b->probe;
    uint64_t                   part = t->b->bytes / t->b->threads / 4096 * 4096;
    struct tsr_err            *err = i == 0 ? &t->err.err : NULL;
    switch (t->which) {
    case BENCH_READ:
        return p->read(t->b->self, t->b->memory, i * part, part, t->b->shape, r, err);
    case BENCH_FMA:
        return p->fma(t->b->self, SLICE_S, r, err);
    case BENCH_BF16:
        return p->bf16(t->b->self, SLICE_S, r, err);
    case BENCH_DOT:
        return p->dot(t->b->self, SLICE_S, r, err);
    default:
        return p->clock(t->b->self, SLICE_S, r, err);
    }
}

#define MEET_S 10.0 /* for all threads to come */
#define GAP_S  0.1  /* between two polls: this process did not run, and no thread waited */

/* Each thread waits for all others, so that each takes one part. Arithmetic takes its best slice, because
 * an interrupted slice says nothing about the instruction. */
static tsr_status member(void *arg, uint64_t begin, uint64_t end)
{
    struct team *t = arg;
    double       last = tsr_now_s(), waited = 0;
    (void)end;
    atomic_fetch_add(&t->arrived, 1);
    while (atomic_load(&t->arrived) < t->b->threads) {
        double now = tsr_now_s();
        waited += now - last < GAP_S ? now - last : 0;
        last = now;
        if (waited > MEET_S)
            return TSR_E_DEVICE;
    }
    double best = 0;
    for (int s = 0; s < (t->which == BENCH_READ ? 1 : SLICES); s++) {
        struct tsr_probe_result r = { .struct_size = sizeof r };
        tsr_status              st = slice(t, begin, &r);
        if (st != TSR_OK)
            return st;
        best = fmax(best, r.work / r.seconds);
    }
    t->rate[begin] = best;
    return TSR_OK;
}

#define COPY_BYTES (UINT64_C(256) << 20) /* more than any cache of a device */

static tsr_status peak_of(struct bench *b, enum bench_probe which, double *rate,
                          struct tsr_err *err)
{
    const uint64_t bytes = (uint64_t)b->o->mib << 20;
    if (which == BENCH_READ)
        return b->peaks->copy(b->self, bytes < COPY_BYTES ? bytes : COPY_BYTES, rate, err);
    *rate = which == BENCH_BF16 ? b->peaks->multiply(b->self) : 0;
    return TSR_OK;
}

tsr_status bench_measure(struct bench *b, enum bench_probe which, double *rate, struct tsr_err *err)
{
    struct team t = { .b = b, .which = which, .err = TSR_ERRBUF(t.err) };
    *rate = 0;
    if (!b->probe)
        return b->peaks ? peak_of(b, which, rate, err) : TSR_OK;
    tsr_status st = b->host->parallel_for(b->host->ctx, b->threads, 1, member, &t);
    if (st != TSR_OK)
        return tsr_fail(err, st, "probe: %s",
                        t.err.text[0] ? t.err.text : "a thread did not start");
    for (uint32_t i = 0; i < b->threads; i++)
        *rate += t.rate[i];
    return TSR_OK;
}

double bench_cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool bench_has_bf16(const struct bench *b)
{
    return b->probe && TSR_HAS(struct tsr_probe_v1, b->probe, bf16) &&
           b->probe->struct_size >= sizeof *b->probe && b->probe->bf16_per_cycle > 0;
}

double bench_instruction_rate(const struct bench *b, enum bench_probe which, double rate,
                              double clock)
{
    double per_cycle = !b->probe             ? 0
                       : which == BENCH_FMA  ? b->probe->fma_per_cycle
                       : which == BENCH_DOT  ? b->probe->dot_per_cycle
                       : which == BENCH_BF16 ? b->probe->bf16_per_cycle
                                             : 0;
    return per_cycle > 0 && clock > 0 ? rate / (per_cycle * clock) : 0;
}

tsr_status bench_prepare_read(struct bench *b, struct tsr_err *err)
{
    double best = 0;
    if (!b->probe || b->memory)
        return TSR_OK;
    b->bytes = (uint64_t)b->o->mib << 20;
    TSR_TRY(b->iface->buffer_alloc(b->self, b->bytes, &b->memory, err));
    uint32_t best_shape = 0;
    for (uint32_t s = 0; s < b->probe->n_shapes; s++)
        for (int i = 0; i < 2; i++) {
            double rate;
            b->shape = s;
            TSR_TRY(bench_measure(b, BENCH_READ, &rate, err));
            if (rate > best) {
                best = rate;
                best_shape = s;
            }
        }
    b->shape = best_shape;
    return TSR_OK;
}

tsr_status bench_numbers(const char *option, const char *text, uint64_t *m, uint32_t most,
                         uint32_t *n, struct tsr_err *err)
{
    const char *s = text;
    for (*n = 0;; s++) {
        char              *end = NULL;
        unsigned long long v = *s >= '0' && *s <= '9' ? strtoull(s, &end, 10) : 0;
        if (v < 1 || v > 65536 || *n == most || (*end != '\0' && *end != ','))
            return most > 1
                       ? tsr_fail(err, TSR_E_INPUT,
                                  "%s: '%.40s' is not a list of up to %u numbers from 1 to 65536, "
                                  "separated by commas",
                                  option, text, most)
                       : tsr_fail(err, TSR_E_INPUT, "%s: '%.40s' is not a number from 1 to 65536",
                                  option, text);
        m[(*n)++] = v;
        s = end;
        if (*s == '\0')
            return TSR_OK;
    }
}

/* ---- rows -------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

double bench_median(double *v, uint64_t n)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

tsr_status bench_add(struct bench *b, const struct bench_row *r, struct tsr_err *err)
{
    struct bench_row *v = tsr_renew(b->row, b->n_rows + 1, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, sizeof *v, "a result");
    b->row = v;
    v[b->n_rows] = *r;
    v[b->n_rows].group = b->o->group;
    v[b->n_rows].threads = b->threads;
    v[b->n_rows].each = NULL;
    if (r->n_each) {
        v[b->n_rows].each = tsr_new(r->n_each, sizeof *r->each);
        if (!v[b->n_rows].each)
            return tsr_fail_nomem(err, r->n_each * sizeof *r->each, "rounds");
        memcpy(v[b->n_rows].each, r->each, r->n_each * sizeof *r->each);
    }
    b->n_rows++;
    return TSR_OK;
}

/* A row counts if its probe reached the instruction's rate, or has no such rate, and the threads had their
 * cores to themselves while the kernel ran; a device with peaks does not need them. */
static bool counts(const struct bench *b, const struct bench_row *r)
{
    return r->probe > 0 && (r->rate == 0 || r->rate >= 0.97) && (b->peaks || r->busy >= BENCH_BUSY);
}

/* NULL: out of memory. */
static json_t *rows_of(const struct bench *b)
{
    json_t *rows = json_array();
    for (uint64_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        json_t                 *o =
            json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, "
                      "s:f, s:s, s:b}",
                      "what", r->what, "format", r->format, "act", r->act, "device", b->device,
                      "rows", (json_int_t)r->rows, "cols", (json_int_t)r->cols, "m",
                      (json_int_t)r->m, "threads", (json_int_t)r->threads, "ms", r->milliseconds,
                      "value", r->value, "best", r->best, "probe", r->probe, "probe_of_instruction",
                      r->rate, "busy", r->busy, "unit", r->unit, "counts", counts(b, r));
        json_t *rounds = json_array();
        for (uint64_t k = 0; k < r->n_each; k++)
            tsr_json_add(&rounds, json_real(r->each[k]));
        tsr_json_set(&o, "group", json_integer((json_int_t)r->group));
        tsr_json_set(&o, "rounds", rounds);
        if (counts(b, r))
            tsr_json_set(&o, "share", json_real(r->share));
        if (r->times != 0)
            tsr_json_set(&o, "tokens_over_first",
                         r->times > 0 && counts(b, r) ? json_real(r->times) : json_null());
        tsr_json_add(&rows, o);
    }
    return rows;
}

static tsr_status print_json(struct bench *b, struct tsr_err *err)
{
    return tsr_cli_print_json(rows_of(b), err);
}

tsr_status bench_chart(struct bench *b, struct tsr_err *err)
{
    json_t           *rows = rows_of(b);
    char             *text = NULL;
    size_t            bytes = 0;
    struct tsr_writer w = { .file = open_memstream(&text, &bytes) };
    tsr_status        st = rows && w.file ? tsr_report_shares(&w, rows, err)
                                          : tsr_fail_nomem(err, sizeof *rows, "a chart");
    if (w.file && (fclose(w.file) != 0 || w.error) && st == TSR_OK)
        st = tsr_fail_nomem(err, bytes, "a chart");
    if (st == TSR_OK)
        st = tsr_file_store(b->o->chart, text, bytes, err);
    free(text);
    json_decref(rows);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "--chart");
}

tsr_status bench_print(struct bench *b, struct tsr_err *err)
{
    if (b->cli->json || b->o->output == BENCH_JSON)
        return print_json(b, err);
    bool        md = b->o->output == BENCH_MD;
    const char *bar = md ? " | " : ",", *edge = md ? "| " : "", *close = md ? " |" : "";
    bool        several = b->n_rows > 1 && b->row[0].times != 0; /* sizes of --m */
    printf("%swhat%sformat%sact%srows%scols%sm%sthreads%sms%svalue%sbest%sprobe%sunit%sshare%s"
           "probe_of_instruction%sbusy%s%s%s\n",
           edge, bar, bar, bar, bar, bar, bar, bar, bar, bar, bar, bar, bar, bar, bar,
           several ? bar : "", several ? "tokens_over_first" : "", close);
    if (md)
        printf("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|%s\n",
               several ? "---:|" : "");
    for (uint64_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->row[i];
        char                    share[24] = "void", rate[24] = "-", times[32] = "";
        if (r->probe <= 0)
            (void)snprintf(share, sizeof share, "-");
        else if (counts(b, r))
            (void)snprintf(share, sizeof share, "%.1f%%", 100 * r->share);
        if (r->rate > 0)
            (void)snprintf(rate, sizeof rate, "%.1f%%", 100 * r->rate);
        if (several && r->times > 0 && counts(b, r))
            (void)snprintf(times, sizeof times, "%s%.2f", bar, r->times);
        else if (several)
            (void)snprintf(times, sizeof times, "%svoid", bar);
        printf(
            "%s%s%s%s%s%s%s%llu%s%llu%s%llu%s%u%s%.3f%s%.2f%s%.2f%s%.2f%s%s%s%s%s%s%s%.0f%%%s%s\n",
            edge, r->what, bar, r->format, bar, r->act, bar, (unsigned long long)r->rows, bar,
            (unsigned long long)r->cols, bar, (unsigned long long)r->m, bar, r->threads, bar,
            r->milliseconds, bar, r->value, bar, r->best, bar, r->probe, bar, r->unit, bar, share,
            bar, rate, bar, 100 * r->busy, times, close);
    }
    if (md)
        printf("\n%s\n", b->device);
    return tsr_cli_flush(err);
}
