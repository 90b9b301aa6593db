/* Bytes of layers, ends and work, exactly as the engine and its backend take them. */
#include "plan/cost/memory.h"

#include "base/f16.h"
#include "base/mem.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "plan/cost/memory_paper.h"
#include "tessera/draft/sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_CHUNK                                                                               \
    512u /* tokens of a forward and rows of logits of our engine, engine/internal.h */
#define HEAD_ROWS 64u
#define LINE      64u

/* The backends that profiles name, opened once. */
struct tsr_size_cache {
    struct {
        char                       name[48];
        struct tsr_engine_device  *dev;
        const struct tsr_sizes_v1 *sizes; /* NULL: it does not say */
    } v[8];
    uint32_t n;
};

tsr_status tsr_plan_memory_open(struct tsr_plan_memory_job *j, struct tsr_err *err)
{
    j->cache = tsr_new(1, sizeof *j->cache);
    return j->cache ? TSR_OK : tsr_fail_nomem(err, sizeof *j->cache, "sizes of backends");
}

void tsr_plan_memory_close(struct tsr_plan_memory_job *j)
{
    for (uint32_t i = 0; j->cache && i < j->cache->n; i++)
        tsr_engine_device_close(j->cache->v[i].dev);
    free(j->cache);
    j->cache = NULL;
}

/* Who says how a mesh's backend keeps things; *sizes NULL: nobody, so as they are packed. */
static tsr_status sizes_of(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                           const struct tsr_sizes_v1 **sizes, const void **self,
                           struct tsr_err *err)
{
    struct tsr_size_cache *c = j->cache;
    const char            *name = m->profile->backend;
    *sizes = NULL;
    if (!name || !j->registry || !c)
        return TSR_OK;
    uint32_t i = 0;
    while (i < c->n && strcmp(c->v[i].name, name) != 0)
        i++;
    if (i == c->n) {
        if (i == sizeof c->v / sizeof *c->v || strlen(name) >= sizeof c->v[0].name)
            return tsr_fail(err, TSR_E_INPUT, "backend '%.60s': too many backends in one cluster",
                            name);
        TSR_TRY(tsr_engine_device_open(&c->v[i].dev, j->registry, name, j->numerics, err));
        const struct tsr_backend_v1 *iface = c->v[i].dev->iface;
        const void                  *t =
            iface->extension ? iface->extension(c->v[i].dev->self, TSR_SIZES_EXTENSION) : NULL;
        c->v[i].sizes = t;
        (void)snprintf(c->v[i].name, sizeof c->v[i].name, "%s", name);
        c->n++;
    }
    *sizes = c->v[i].sizes;
    *self = c->v[i].dev->self;
    return TSR_OK;
}

static tsr_status too_large(struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_INPUT, "the sizes of this model and workload overflow 64 bits");
}

static void describe(const struct tsr_plan_shape_matrix *m, const struct tsr_format *f,
                     struct tsr_weight_desc *d)
{
    bool dense = strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
    *d = (struct tsr_weight_desc){ .struct_size = sizeof *d,
                                   .name = "a linear",
                                   .format = f,
                                   .rows = m->rows,
                                   .cols = m->cols,
                                   .code_stride = dense ? m->cols * tsr_dtype_size(f->dtype)
                                                        : tsr_model_format_code_bytes(f, m->cols),
                                   .meta_stride =
                                       dense ? 0 : tsr_model_format_meta_bytes(f, m->cols) };
}

/* One matrix, which all of a rank's part, on a device; *scratch: of a LINEAR over `tokens` rows (0:
 * not asked).  What the backend does not read is there as F32. */
static tsr_status matrix(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                         const struct tsr_plan_candidate *c, const struct tsr_plan_shape_matrix *of,
                         uint64_t tokens, uint64_t *bytes, uint64_t *scratch, struct tsr_err *err)
{
    const struct tsr_sizes_v1 *sizes;
    const void                *self = NULL;
    struct tsr_format          f;
    struct tsr_weight_desc     d;
    const struct tsr_format    f32 = { .struct_size = sizeof f32,
                                       .dtype = TSR_F32,
                                       .id = TSR_FORMAT_FLOAT };
    *bytes = *scratch = 0;
    if (of->rows == 0)
        return TSR_OK;
    TSR_TRY(tsr_plan_candidate_matrix(c, of, &f, bytes, err));
    TSR_TRY(sizes_of(j, m, &sizes, &self, err));
    bool known = tsr_model_format_known(&f) && tsr_model_format_fits(&f, of->cols);
    if (!known && !tsr_mul(of->rows, of->cols * 4, bytes)) /* runs as F32 */
        return too_large(err);
    if (!sizes)
        return TSR_OK;
    describe(of, known ? &f : &f32, &d);
    tsr_status st = sizes->weight(self, &d, bytes, err);
    if (st == TSR_E_UNSUPPORTED) {
        describe(of, &f32, &d);
        st = sizes->weight(self, &d, bytes, err);
    }
    if (st == TSR_OK && tokens)
        st = sizes->linear(self, &d, TSR_ACT_A8, tokens, scratch, err);
    return st;
}

/* a += b * c; false on overflow. */
static bool add(uint64_t *a, uint64_t b, uint64_t c)
{
    uint64_t n;
    return tsr_mul(b, c, &n) && tsr_add(*a, n, a);
}

/* Positions of a request in the cache of a layer.  The largest forward is not known yet: it is a chunk of a prompt or a
 * decode step of the whole batch. */
static bool kv_rows(const struct tsr_plan_memory_job *j, uint64_t window, uint64_t *rows)
{
    uint64_t chunk = j->chunk ? j->chunk : ENGINE_CHUNK;
    chunk = chunk > j->batch ? chunk : j->batch;
    if (!tsr_add(j->prompt, j->generate, rows))
        return false;
    if (window)
        *rows = tsr_engine_window_rows(window, chunk, *rows);
    return true;
}

/* Rows of a request in layers with a window; 0 if they keep the context, as the others do. */
static uint64_t window_rows(const struct tsr_plan_memory_job *j)
{
    uint64_t window = 0, context, rows;
    for (uint64_t c = 0; c < j->shape->classes; c++)
        window = j->shape->layer[c].window > window ? j->shape->layer[c].window : window;
    return window && kv_rows(j, 0, &context) && kv_rows(j, window, &rows) && rows < context ? rows
                                                                                            : 0;
}

static uint64_t kv_row(const struct tsr_plan_shape *s, uint32_t kv_bits, uint32_t tp)
{
    uint64_t width = kv_bits == 32 ? 4 : kv_bits == 8 ? 1 : 2;
    uint64_t head = s->head_dim + (kv_bits == 8 ? 4u : 0u); /* a scale in addition to the codes */
    return (s->kv_heads / tp * head * width + 15) / 16 * 16;
}

tsr_status tsr_plan_memory_layer(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 uint64_t cls, const struct tsr_plan_candidate *c,
                                 uint64_t *weights, uint64_t *kv, struct tsr_err *err)
{
    const struct tsr_plan_shape_layer *l = &j->shape->layer[cls];
    uint64_t                           rank = 0, none, rows;
    *weights = *kv = 0;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER) {
        bool given = c && (c->q.self || c->mixed || *j->shape->packed);
        tsr_plan_paper_layer(j, cls, given ? c->stored_bits : 16, weights, kv);
        return TSR_OK;
    }
    for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
        struct tsr_plan_shape_matrix part =
            tsr_plan_shape_part(&l->lin[i], (enum tsr_linear_id)i, m->tp ? m->tp : 1);
        uint64_t bytes;
        TSR_TRY(matrix(j, m, tsr_plan_candidate_part(c, i), &part, 0, &bytes, &none, err));
        if (part.rows && (!add(&rank, bytes, part.count) ||
                          (part.bias && !add(&rank, part.rows * part.count, 4))))
            return too_large(err);
    }
    for (int i = 0; i < 2; i++) { /* whole on every rank, in its own dtype */
        const struct tsr_plan_shape_matrix *r = i ? &l->shared_router : &l->router;
        uint64_t                            bytes;
        TSR_TRY(matrix(j, m, NULL, r, 0, &bytes, &none, err));
        if (!tsr_add(rank, bytes, &rank) || (r->bias && !add(&rank, r->rows, 4)))
            return too_large(err);
    }
    if (!add(&rank, l->norms, 4) || !tsr_mul(rank, m->tp, weights))
        return too_large(err);
    if (!kv_rows(j, l->window, &rows) || !tsr_mul(rows, j->batch, &rows) ||
        !tsr_mul(rows, 2 * kv_row(j->shape, j->kv_bits, m->tp) * m->tp, kv))
        return too_large(err);
    return TSR_OK;
}

tsr_status tsr_plan_memory_ends(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                uint64_t *embed, uint64_t *head, uint64_t *shared,
                                struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    uint64_t                     n, none;
    *embed = *head = *shared = 0;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER) {
        *embed = tsr_plan_paper_ends(j);
        return TSR_OK;
    }
    const struct {
        const struct tsr_plan_shape_matrix *m;
        const struct tsr_plan_candidate    *c;
        uint64_t                           *to;
    } parts[] = { { &s->embed, NULL, embed },
                  { &s->positions, NULL, embed },
                  { &s->project_in, NULL, embed },
                  { &s->head, j->head, head },
                  { &s->project_out, NULL, head } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        TSR_TRY(matrix(j, m, parts[i].c, parts[i].m, 0, &n, &none, err));
        if (i == 0 && s->tied && !(j->head && j->head->q.self))
            *shared = n;
        if (!tsr_add(*parts[i].to, n, parts[i].to))
            return too_large(err);
    }
    if (!add(embed, s->embed_norm, 4) || !add(head, s->final_norm, 4))
        return too_large(err);
    return TSR_OK;
}

/* ---- other run-time buffers ------------------------------------------------------------------ */

/* Scratch of the largest operation of one rank: forwards of `tokens` tokens, of which those of a prompt
 * see no more than it, and decode steps of `decode` requests; used: bit per candidate. */
static tsr_status scratch_of(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                             const struct tsr_plan_candidates *c, uint64_t used, uint64_t tokens,
                             uint64_t decode, bool last, uint64_t *most, struct tsr_err *err)
{
    const struct tsr_sizes_v1   *sizes;
    const void                  *self = NULL;
    const struct tsr_plan_shape *s = j->shape;
    uint64_t                     none, n;
    *most = 0;
    TSR_TRY(sizes_of(j, m, &sizes, &self, err));
    if (!sizes)
        return TSR_OK;
    for (uint64_t cls = 0; cls < s->classes; cls++)
        for (int i = 0; i < TSR_PLAN_LINEARS; i++) {
            struct tsr_plan_shape_matrix part =
                tsr_plan_shape_part(&s->layer[cls].lin[i], (enum tsr_linear_id)i, m->tp);
            for (uint64_t k = 0; k < c->n; k++) {
                if (!(used >> k & 1))
                    continue;
                TSR_TRY(matrix(j, m, tsr_plan_candidate_part(&c->v[k], i), &part, tokens, &none, &n,
                               err));
                *most = n > *most ? n : *most;
            }
        }
    for (int phase = 0; phase < 2; phase++) {
        TSR_TRY(sizes->attention(self, phase ? decode : tokens,
                                 phase ? j->prompt + j->generate : j->prompt, s->heads / m->tp,
                                 s->kv_heads / m->tp, s->head_dim, &n, err));
        *most = n > *most ? n : *most;
    }
    if (last) {
        TSR_TRY(matrix(j, m, j->head, &s->head, tokens < HEAD_ROWS ? tokens : HEAD_ROWS, &none, &n,
                       err));
        *most = n > *most ? n : *most;
    }
    return TSR_OK;
}

/* The engine's buffers for forwards of `tokens` tokens, as engine.c and feed.c make them. */
static bool buffers(const struct tsr_plan_memory_job *j, uint32_t tp, uint64_t tokens, bool last,
                    uint64_t *bytes)
{
    const struct tsr_plan_shape *s = j->shape;
    uint64_t                     q = (uint64_t)s->heads * s->head_dim / tp;
    uint64_t                     kv = (uint64_t)s->kv_heads * s->head_dim / tp;
    uint64_t                     ffn = s->ffn > s->expert_ffn ? s->ffn : s->expert_ffn;
    uint64_t                     each = s->experts_used + (s->shared_ffn ? 1u : 0u);
    ffn = (ffn > s->shared_ffn ? ffn : s->shared_ffn) / tp;
    uint64_t cols = 3 * s->hidden + 2 * q + 2 * kv + (s->gated ? 2 : 1) * ffn;
    if (s->embed_dim != s->hidden)
        cols += s->embed_dim;
    if (s->experts) /* scores, an expert's inputs; what each says of a token, weights, places, rows */
        cols += s->experts + s->layer[s->layer_class[s->layers - 1]].shared_router.rows +
                s->hidden + each * (s->hidden + 3);
    const struct tsr_model_latent *l = &s->latent;
    if (l->rank) /* rows of latent attention, keys and values of its heads, and the token of each */
        cols += l->q_rank + 2 * (uint64_t)l->rank + l->rope +
                (uint64_t)s->heads / tp * (l->nope + l->v + 1);
    uint64_t ropes = s->sliding_rope ? 2 : 1;
    /* ids, positions, rows, spans, gather; cosine and sine of each rope */
    cols += 6 + (uint64_t)s->rotary_dim / 2 * 2 * ropes;
    *bytes = (5 + 2 * ropes) * LINE;
    if (window_rows(j)) { /* rows and spans of their caches, and the places of rows that move */
        cols += 3;
        *bytes += UINT64_C(2) * LINE + window_rows(j) * 4;
    }
    if (!add(bytes, tokens, cols * 4))
        return false;
    return !last || add(bytes, tokens < HEAD_ROWS ? tokens : HEAD_ROWS, s->vocab * 4);
}

static tsr_status workspace(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                            const struct tsr_plan_candidates *c, uint64_t used, uint64_t prefill_mb,
                            uint64_t decode_mb, bool first, bool last, uint64_t *bytes,
                            uint64_t *lead, struct tsr_err *err)
{
    uint64_t tokens, work, scratch, n;
    *lead = 0;
    uint64_t chunk = j->chunk && j->chunk < j->prompt ? j->chunk : j->prompt;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER) {
        *bytes = tsr_plan_paper_workspace(j, prefill_mb, first);
        return TSR_OK;
    }
    if (!tsr_mul(prefill_mb, chunk, &tokens))
        return too_large(err);
    if (m->profile->backend) { /* our engine cuts a micro-batch into forwards */
        uint64_t cut = j->chunk ? j->chunk : ENGINE_CHUNK;
        tokens = tokens < cut ? tokens : cut;
    }
    /* Requests are spread evenly over as many micro-batches as there are, and a forward of several
     * takes as many tokens of each: there may be fewer in it than there is room for. */
    uint64_t slot_sets = (j->batch + decode_mb - 1) / decode_mb;
    uint64_t decode = slot_sets ? (j->batch + slot_sets - 1) / slot_sets : decode_mb;
    uint64_t group = prefill_mb < decode ? prefill_mb : decode;
    group = group < tokens ? group : tokens;
    work = group * chunk < tokens ? group * chunk : tokens / group * group;
    work = work > decode ? work : decode;
    tokens = tokens > decode_mb ? tokens : decode_mb;
    *bytes = 0;
    for (uint32_t rank = 0; rank < m->tp && rank < 2; rank++) { /* the head is the first one's */
        bool head = last && rank == 0;
        TSR_TRY(scratch_of(j, m, c, used, work, decode, head, &scratch, err));
        if (!buffers(j, m->tp, tokens, head, &n) || !tsr_add(n, scratch, &n) ||
            !add(bytes, n, rank ? m->tp - 1 : 1))
            return too_large(err);
        *lead = rank ? *lead - (n < *lead ? n : *lead) : n;
    }
    *lead = m->tp > 1 ? *lead : 0;
    return TSR_OK;
}

tsr_status tsr_plan_memory_workspace(const struct tsr_plan_memory_job *j,
                                     const struct tsr_plan_mesh       *m,
                                     const struct tsr_plan_candidates *c, uint64_t prefill_mb,
                                     uint64_t decode_mb, bool first, bool last, uint64_t *bytes,
                                     uint64_t *lead, struct tsr_err *err)
{
    uint64_t none;
    return workspace(j, m, c, UINT64_MAX, prefill_mb, decode_mb, first, last, bytes,
                     lead ? lead : &none, err);
}

uint64_t tsr_plan_memory_capacity(const struct tsr_plan_mesh *m, enum tsr_accounting a)
{
    const struct tsr_plan_profile *p = m->profile;
    uint64_t                       one, all;
    if (a == TSR_PLAN_ACCOUNT_PAPER) {
        one = tsr_plan_paper_capacity(p);
    } else {
        one = (uint64_t)(p->usable * (double)p->memory_bytes);
        one = one > p->reserved_bytes ? one - p->reserved_bytes : 0;
    }
    return tsr_mul(one, m->tp, &all) ? all : UINT64_MAX;
}

bool tsr_plan_memory_uneven(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                            uint64_t ends, uint64_t lead, uint64_t *bytes)
{
    *bytes = 0;
    if (j->accounting == TSR_PLAN_ACCOUNT_PAPER)
        return true;
    return tsr_add(ends, lead, bytes) && tsr_mul(*bytes, m->tp - 1, bytes);
}

tsr_status tsr_plan_memory_stage(const struct tsr_plan_memory_job *j, const struct tsr_plan_mesh *m,
                                 const struct tsr_plan_candidates *c, const uint32_t *bits,
                                 uint64_t first, uint64_t n, uint64_t prefill_mb,
                                 uint64_t decode_mb, struct tsr_plan_stage_memory *out,
                                 struct tsr_err *err)
{
    const struct tsr_plan_shape *s = j->shape;
    bool                         begins = first == 0;
    bool                         ends =
        j->place == TSR_PLAN_HEAD_FIRST ? begins : first + n == s->layers; /* has the head */
    uint64_t embed, head, shared, lead, used = 0;
    *out = (struct tsr_plan_stage_memory){ .capacity = tsr_plan_memory_capacity(m, j->accounting) };
    for (uint64_t l = first; l < first + n; l++) {
        uint64_t w, kv;
        used |= UINT64_C(1) << bits[l];
        TSR_TRY(tsr_plan_memory_layer(j, m, s->layer_class[l], &c->v[bits[l]], &w, &kv, err));
        if (!tsr_add(out->weights, w, &out->weights) || !tsr_add(out->kv, kv, &out->kv))
            return too_large(err);
    }
    TSR_TRY(tsr_plan_memory_ends(j, m, &embed, &head, &shared, err));
    out->ends = (begins ? embed : 0) + (ends ? head : 0) - (begins && ends ? shared : 0);
    TSR_TRY(
        workspace(j, m, c, used, prefill_mb, decode_mb, begins, ends, &out->workspace, &lead, err));
    if (!tsr_plan_memory_uneven(j, m, out->ends, lead, &out->uneven) ||
        !tsr_add(out->weights, out->kv, &out->total) ||
        !tsr_add(out->total, out->ends, &out->total) ||
        !tsr_add(out->total, out->workspace, &out->total))
        return too_large(err);
    out->capacity = tsr_capacity_left(out->capacity, out->uneven);
    return TSR_OK;
}
