/* What a quantization takes at most, before it runs: docs/decisions/memory.md. */
#include "base/f16.h"
#include "base/mem.h"
#include "quant/calibrate_internal.h"
#include "quant/quantize.h"
#include "quant/scheme_internal.h"
#include "quant/tune.h"
#include "tessera/quantizer_block.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define RUN_WEIGHTS (UINT64_C(1) << 16) /* as matrix.c cuts runs of rows */
#define UNIT_STEP   64u
#define STACK       (UINT64_C(1) << 18)  /* of a worker: what of it is touched, and its arena */
#define IO          (UINT64_C(8) << 20)  /* buffers of files, JSON, lists */
#define PACKS       (UINT64_C(32) << 20) /* most that linear algebra packs at once, ... */
#define PACK_DEPTH  1024u                /* ... but never fewer columns than this */

/* Bytes that the process has in memory. */
static uint64_t resident_now(void)
{
    unsigned long long pages = 0, resident = 0;
    FILE              *f = fopen("/proc/self/statm", "re");
    if (f) {
        char line[256];
        if (fgets(line, sizeof line, f)) {
            char *end;
            pages = strtoull(line, &end, 10);
            resident = strtoull(end, NULL, 10);
        }
        (void)fclose(f);
    }
    return pages ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

uint64_t tsr_quant_memory_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

/* Sums that stay at the largest number instead of wrapping. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t r;
    return tsr_add(a, b, &r) ? r : UINT64_MAX;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t r;
    return tsr_mul(a, b, &r) ? r : UINT64_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct sizes {
    struct tsr_scheme_run  *run;
    const struct tsr_model *m;
    uint64_t                threads;
    uint64_t                need;   /* of all layers */
    bool                    blocks; /* a plugin searches whole blocks */
    uint64_t                layer;  /* the largest: weights as stored */
    uint64_t                work;   /* largest additional need: packing one layer */
};

/* One linear during packing; *packed is the part that stays until the layer is written. */
static tsr_status linear(struct sizes *z, uint64_t layer, uint64_t id, uint64_t *packed,
                         uint64_t *work, struct tsr_err *err)
{
    const struct tsr_quantizer *q;
    struct tsr_quant_plan       p;
    const struct tsr_matrix    *w = layer < z->m->hp.layers    ? &z->m->layers[layer].lin[id].w
                                    : id == TSR_QUANT_END_HEAD ? &z->m->head.w
                                                               : &z->m->embed;
    *packed = *work = 0;
    TSR_TRY(tsr_quant_scheme_plan(z->run, layer, (enum tsr_linear_id)id, &q, &p, err));
    if (!q)
        return TSR_OK;
    uint64_t unit = p.rows_per_unit ? p.rows_per_unit : w->rows;
    uint64_t units = (w->rows + unit - 1) / unit, dense = times(times(w->rows, w->cols), 4);
    uint64_t rows = larger(RUN_WEIGHTS / w->cols + 1, times(unit, UNIT_STEP)) + UNIT_STEP;
    uint64_t run = plus(times(times(rows < w->rows ? rows : w->rows, w->cols), 4), p.scratch_bytes);
    *packed = times(units, plus(p.code_bytes, p.meta_bytes));
    *work = times(z->threads, plus(run, times(w->cols, 8)));
    if (!tsr_quantizer_reads(q, w->dtype))
        *work = plus(*work, dense);                     /* a widened copy */
    if (p.need & TSR_NEED_HESSIAN && q->iface->prepare) /* its factor, and one to work in */
        *work = plus(*work, times(times(w->cols, w->cols), p.need & TSR_NEED_CROSS ? 16 : 8));
    z->need |= p.need | (tsr_quant_tunes(q) ? TSR_NEED_BLOCK : 0);
    z->blocks =
        z->blocks || (q->iface->extension && q->iface->extension(q->self, TSR_QUANTIZER_BLOCK));
    return TSR_OK;
}

static tsr_status layers(struct sizes *z, struct tsr_err *err)
{
    for (uint64_t l = 0; l <= z->m->hp.layers; l++) {
        bool     ends = l == z->m->hp.layers;
        uint64_t packed = 0, work = 0, stored = ends ? 0 : tsr_model_layer_bytes(z->m, l);
        for (uint64_t i = 0; i < (ends ? TSR_QUANT_ENDS : z->m->hp.linears); i++) {
            uint64_t p, w;
            TSR_TRY(linear(z, l, i, &p, &w, err));
            packed = plus(packed, p);
            work = larger(work, w);
        }
        z->layer = larger(z->layer, stored);
        z->work = larger(z->work, plus(packed, work));
    }
    return TSR_OK;
}

/* Both factors of a product of [cols, depth], packed by the linear algebra service, which keeps its
 * scratch: none if no Hessian is needed. */
static uint64_t packs(const struct sizes *z, uint64_t depth)
{
    uint64_t widest = 0;
    for (uint64_t i = 0; i < z->m->hp.sites; i++)
        widest = larger(widest, tsr_model_site_cols(z->m, (enum tsr_site)i));
    if (!(z->need & TSR_NEED_HESSIAN))
        return 0;
    uint64_t column = times(2 * (widest + 128), 4);
    uint64_t all = times(column, larger(depth, widest)), part = times(column, PACK_DEPTH);
    part = larger(part, PACKS);
    return all < part ? all : part;
}

/* Statistics of one layer, and the moments of all. */
static uint64_t statistics(const struct sizes *z, const struct tsr_quant_calibrate_options *c)
{
    uint64_t rows = larger(c->input_rows ? c->input_rows : TSR_INPUT_ROWS, c->seqlen), n = 0;
    for (uint64_t i = 0; i < z->m->hp.sites; i++) {
        uint64_t cols = tsr_model_site_cols(z->m, (enum tsr_site)i);
        n = plus(n, times(cols, times(16, z->m->hp.layers + 1)));
        if (z->need & TSR_NEED_HESSIAN)
            n = plus(n, times(times(cols, cols), 4));
        if (z->need & TSR_NEED_CROSS && i < TSR_MODEL_SITE_EXPERTS)
            n = plus(n, times(times(cols, cols), 4));
        if (z->need & TSR_NEED_INPUTS && i < TSR_MODEL_SITE_EXPERTS)
            n = plus(n, times(times(cols, rows), 4));
    }
    return n;
}

/* What a block search holds: the stream with one layer, the layer as F32 scaled, searched and
 * packed from, one half's activations, and the inputs of experts, twice while they grow. */
static tsr_status block_search(const struct sizes *z, const struct tsr_quant_calibrate_options *c,
                               uint64_t *bytes, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &z->m->hp;
    uint64_t                        stream, most = 0,
                     rows = larger(c->input_rows ? c->input_rows : TSR_INPUT_ROWS, c->seqlen);
    TSR_TRY(tsr_engine_stream_estimate(z->m, c->seqlen, &stream, err));
    for (uint64_t l = 0; l < hp->layers; l++) {
        uint64_t weights = 0;
        for (uint64_t i = 0; i < hp->linears; i++) {
            const struct tsr_matrix *w = &z->m->layers[l].lin[i].w;
            weights = plus(weights, times(w->rows, w->cols));
        }
        most = larger(most, weights);
    }
    *bytes = plus(stream, times(most, 12));
    if (hp->experts) /* each token goes to so many; of those that no token took, all that one sequence has */
        *bytes =
            plus(*bytes,
                 times(times(plus(times(rows, hp->experts_used), times(c->seqlen, hp->experts)),
                             hp->expert_ffn),
                       8));
    return TSR_OK;
}

/* What packing whole layers holds: the stream, hidden states, recordings, and one layer forward and backward. */
static tsr_status tuning(const struct sizes *z, const struct tsr_quant_calibrate_options *c,
                         uint64_t *bytes, struct tsr_err *err)
{
    uint64_t all, rows = larger(c->input_rows ? c->input_rows : TSR_INPUT_ROWS, c->seqlen);
    TSR_TRY(tsr_quant_calibration_memory(z->m, c, TSR_NEED_BLOCK, &all, err));
    rows = rows / c->seqlen;
    *bytes =
        larger(*bytes, plus(all, tsr_quant_tune_bytes(z->m, rows < c->samples ? rows : c->samples,
                                                      c->seqlen, z->threads)));
    return TSR_OK;
}

static tsr_status phases(struct sizes *z, const struct tsr_quant_calibrate_options *c,
                         bool sequential, struct tsr_quantize_memory *out, struct tsr_err *err)
{
    uint64_t common = plus(IO, times(z->threads, STACK)), search = 0, run = 0;
    TSR_TRY(layers(z, err));
    if (c) {
        TSR_TRY(tsr_quant_calibration_memory(z->m, c, z->need, &run, err));
        if (z->blocks)
            TSR_TRY(block_search(z, c, &search, err));
        if (z->need & TSR_NEED_BLOCK)
            TSR_TRY(tuning(z, c, &search, err));
        out->calibrate = plus(plus(run, z->layer), plus(packs(z, c->seqlen), common));
        search = plus(search, packs(z, c->seqlen));
    }
    uint64_t stats = c ? statistics(z, c) : 0;
    out->quantize = plus(plus(z->layer, z->work), plus(plus(stats, search), common));
    if (sequential) /* hidden states and stream stay, statistics are counted among them */
        out->quantize = plus(out->quantize, run);
    out->finish = common;
    out->peak =
        larger(tsr_quant_memory_peak(),
               plus(out->process, larger(out->calibrate, larger(out->quantize, out->finish))));
    return TSR_OK;
}

tsr_status tsr_quantize_memory(const struct tsr_quant_scheme *s, struct tsr_registry *r,
                               const struct tsr_model                   *m,
                               const struct tsr_quant_calibrate_options *calibrate,
                               struct tsr_quantize_memory *out, struct tsr_err *err)
{
    struct sizes z = { .m = m, .threads = tsr_pool_threads(tsr_plugin_registry_pool(r)) };
    *out = (struct tsr_quantize_memory){ .process = resident_now() };
    TSR_TRY(tsr_quant_scheme_open(&z.run, s, r, m, err));
    tsr_status st = phases(&z, calibrate, s->keys.sequential != 0, out, err);
    tsr_quant_scheme_close(z.run);
    return st;
}
