/* Block searches, the host's side: a folded layer computes what the original does, on every family;
 * the loss is the change of the output; what a plugin answers is checked. */
#include "golden.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/mem.h"
#include "engine/stream.h"
#include "quant/block.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static struct tsr_registry *registry;
static struct tsr_pool     *pool;

static int set_up(void **state)
{
    (void)state;
    registry = golden_registry(2, NULL, &pool);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    golden_registry_close(registry, pool);
    return 0;
}

static double noise(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return (double)(int32_t)(z >> 32) * 0x1p-31;
}

/* ---- a quantizer whose search is a function of the test ------------------------------ */

enum act { SCALE, CLIP, BAD_SCALE, BAD_ONES, BAD_CLIP, LOSSES };

#define MOST_SITES 24

struct fake {
    enum act act;
    struct {
        char     name[TSR_MODEL_SITE_TEXT];
        uint32_t producer;
    } site[MOST_SITES];
    uint64_t                      sites, group;
    double                        change[4]; /* LOSSES */
    const struct tsr_quant_stats *seen;      /* inputs of experts, as the layer had them */
};

/* Inputs of an expert's down are shown as the layer had them; one that no token took has those of one sequence. */
static void check_inputs(const struct fake *f, const struct tsr_block_site *s)
{
    unsigned expert;
    if (sscanf(s->name, "experts.%u.", &expert) != 1)
        return;
    const struct tsr_quant_stats *in =
        &f->seen[tsr_model_expert_site(expert, TSR_MODEL_SITE_DOWN_IN)];
    if (!in->input_rows) {
        assert_true(s->stats->input_rows > 0);
        return;
    }
    assert_int_equal(s->stats->input_rows, in->input_rows);
    assert_memory_equal(s->stats->inputs, in->inputs, in->input_rows * s->cols * sizeof(float));
}

static uint64_t fake_need(const void *self)
{
    (void)self;
    return TSR_NEED_INPUTS;
}
static uint64_t fake_group(const void *self, uint64_t cols)
{
    const struct fake *f = self;
    (void)cols;
    return f->group;
}

/* A copy of a linear, each weight through `f`. */
static struct tsr_matrix copy_of(const struct tsr_matrix *w, double times, double add)
{
    struct tsr_matrix m = *w;
    float            *v = tsr_new(w->rows * w->cols, sizeof *v);
    assert_non_null(v);
    assert_int_equal(w->dtype, TSR_F32);
    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t c = 0; c < w->cols; c++)
            v[r * w->cols + c] =
                (float)((double)((const float *)w->data)[r * w->row_stride / 4 + c] * times +
                        add * noise(r * w->cols + c));
    m.data = v;
    m.row_stride = w->cols * 4;
    return m;
}

/* Loss of a site with linears times[i] * w + add[i] * noise. */
static double loss_of(const struct tsr_block *b, uint64_t site, const double *times,
                      const double *add)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_matrix        m[TSR_MODEL_LINEARS];
    const struct tsr_matrix *list[TSR_MODEL_LINEARS] = { NULL };
    double                   mse = NAN;
    for (uint64_t i = 0; i < b->sites[site]->n_linears && i < 3; i++) {
        m[i] = copy_of(b->sites[site]->linears[i], times[i], add[i]);
        list[i] = &m[i];
    }
    OK(b->loss(b->ctx, site, list, &mse, &err.err));
    for (uint64_t i = 0; i < b->sites[site]->n_linears; i++)
        free(m[i].data);
    return mse;
}

/* Mean of (x dW^T)^2 over the recorded inputs of a site of one linear, dW = add * noise. */
static double direct_loss(const struct tsr_block_site *s, double add)
{
    const struct tsr_matrix *w = s->linears[0];
    double                   sum = 0.0;
    for (uint64_t t = 0; t < s->stats->input_rows; t++)
        for (uint64_t r = 0; r < w->rows; r++) {
            double y = 0.0;
            for (uint64_t c = 0; c < w->cols; c++)
                y += (double)s->stats->inputs[t * w->cols + c] * add * noise(r * w->cols + c);
            sum += y * y;
        }
    return sum / (double)(s->stats->input_rows * w->rows);
}

static void near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

static void check_losses(const struct tsr_block *b)
{
    const double one[3] = { 1, 1, 1 }, none[3] = { 0 }, some[3] = { 0, 0, 0.01 };
    const double opposite[3] = { 2, 0.5, 1 }, add[3] = { 0.01 }, up[3] = { 0, 0.01 };
    assert_int_equal(b->n_sites, TSR_MODEL_SITES);
    for (uint64_t s = 0; s < TSR_MODEL_SITES; s++)
        assert_true(loss_of(b, s, one, none) == 0.0);
    assert_true(loss_of(b, 0, one, some) > 0.0);
    /* powers of two in q and k cancel in their product without any rounding */
    assert_true(loss_of(b, 0, opposite, none) == 0.0);
    /* o and down are judged by their own output: F32 weights against doubles */
    near("o", loss_of(b, 1, one, add), direct_loss(b->sites[1], add[0]), 1e-4);
    near("down", loss_of(b, 3, one, add), direct_loss(b->sites[3], add[0]), 1e-4);
    assert_true(loss_of(b, 2, one, up) > 0.0);
    /* and the original is back in place afterwards */
    assert_true(loss_of(b, 0, one, none) == 0.0);
}

static tsr_status fake_search(const void *self, const struct tsr_block *b,
                              struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    struct fake *f = (struct fake *)(uintptr_t)self;
    (void)err;
    f->sites = b->n_sites;
    for (uint64_t s = 0; s < b->n_sites; s++) {
        const struct tsr_block_site *site = b->sites[s];
        assert_true(s < MOST_SITES);
        f->site[s].producer = site->producer;
        (void)snprintf(f->site[s].name, sizeof f->site[s].name, "%s", site->name);
        check_inputs(f, site);
        assert_int_equal(site->stats->cols, site->cols);
        assert_null(site->stats->absmax); /* what was not asked for is not shown */
        for (uint64_t i = 0; i < site->n_linears; i++)
            assert_int_equal(site->linears[i]->cols, site->cols);
        if (site->producer == TSR_PRODUCER_LINEAR)
            assert_int_equal(b->sites[site->producer_site]->linears[site->producer_linear]->rows,
                             site->cols);
        for (uint64_t c = 0; c < site->cols && f->act == SCALE; c++)
            if (site->producer != TSR_PRODUCER_NONE)
                choices[s]->scale[c] = (float)exp(1.5 * noise(s * 1000 + c));
    }
    switch (f->act) {
    case CLIP:
        choices[3]->clip[0][1] = 0.01f; /* row 0, second group */
        break;
    case BAD_SCALE:
        choices[0]->scale[3] = -1.0f;
        break;
    case BAD_ONES:
        choices[1]->scale[2] = 2.0f;
        break;
    case BAD_CLIP:
        choices[2]->clip[1][1] = NAN;
        break;
    case LOSSES:
        check_losses(b);
        break;
    default:
        break;
    }
    return TSR_OK;
}

static const struct tsr_quantizer_block_v1 fake_block = { .struct_size = sizeof fake_block,
                                                          .block_need = fake_need,
                                                          .clip_group = fake_group,
                                                          .search = fake_search };
static const void                         *fake_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_QUANTIZER_BLOCK) == 0 ? &fake_block : NULL;
}
static const struct tsr_quantizer_v1 fake_table = { .struct_size = sizeof fake_table,
                                                    .extension = fake_extension };
static const struct tsr_quantizer_v1 deaf_table = { .struct_size = sizeof deaf_table };

/* ---- a layer with recorded inputs --------------------------------------------------- */

#define LENGTH 12
#define SEQS   3

struct layer {
    struct golden                g;
    struct tsr_stream           *s;
    struct tsr_quant_stats      *stats, *experts; /* [sites]; experts: what a search is not given */
    float                       *h; /* [SEQS * LENGTH, hidden] in front of the layer */
    const struct tsr_quantizer **q; /* [linears] */
    struct tsr_quant_block_job   job;
};

static tsr_status record(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                         uint64_t cols, struct tsr_err *err)
{
    struct layer           *l = ctx;
    struct tsr_quant_stats *s = site < TSR_MODEL_SITE_EXPERTS ? &l->stats[site] : &l->experts[site];
    (void)layer;
    (void)err;
    if (!s->inputs) {
        s->inputs = tsr_new((uint64_t)SEQS * (uint64_t)LENGTH * cols, sizeof(float));
        s->absmax = tsr_new(cols, sizeof(float)); /* present, not asked for */
    }
    assert_true(s->inputs && s->absmax && l->stats[site].cols == cols);
    memcpy((float *)(uintptr_t)s->inputs + s->input_rows * cols, x, n * cols * sizeof *x);
    s->input_rows += n;
    return TSR_OK;
}

static void layer_open(struct layer *l, const char *name, struct fake *f, uint64_t at)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint32_t          ids[LENGTH];
    *l = (struct layer){ 0 };
    golden_load(&l->g, name);
    const struct tsr_model     *m = l->g.model;
    static struct tsr_quantizer q;
    q = (struct tsr_quantizer){ .iface = &fake_table, .self = f, .name = "fake" };
    l->stats = tsr_new(m->hp.sites, sizeof *l->stats);
    l->experts = tsr_new(m->hp.sites, sizeof *l->experts);
    l->q = tsr_new(m->hp.linears, sizeof(struct tsr_quantizer *));
    assert_true(l->stats && l->experts && l->q);
    f->seen = l->experts;
    for (uint64_t i = 0; i < m->hp.sites; i++)
        if (tsr_model_layer_has_site(m, at, (enum tsr_site)i))
            l->stats[i].cols = tsr_model_layer_site_cols(m, at, (enum tsr_site)i);
    l->h = tsr_new((uint64_t)SEQS * (uint64_t)LENGTH * m->hp.hidden, sizeof(float));
    assert_non_null(l->h);
    OK(tsr_engine_stream_create(&l->s, registry, m, LENGTH, TSR_ACT_F32, NULL, &err.err));
    for (uint64_t i = 0; i < SEQS; i++) {
        for (uint64_t t = 0; t < LENGTH; t++)
            ids[t] = (uint32_t)((i * LENGTH + t) * 2654435761u % m->hp.vocab);
        OK(tsr_engine_stream_embed(l->s, ids, LENGTH, l->h + i * LENGTH * m->hp.hidden, &err.err));
    }
    OK(tsr_engine_stream_open_layer(l->s, at, NULL, &err.err));
    tsr_engine_stream_set_tap(l->s, record, l);
    float *out = tsr_new(LENGTH * m->hp.hidden, sizeof *out);
    assert_non_null(out);
    for (uint64_t i = 0; i < SEQS; i++)
        OK(tsr_engine_stream_run(l->s, l->h + i * LENGTH * m->hp.hidden, LENGTH, out, &err.err));
    tsr_engine_stream_set_tap(l->s, NULL, NULL);
    free(out);
    l->job = (struct tsr_quant_block_job){ .registry = registry,
                                           .model = m,
                                           .layer = at,
                                           .q = l->q,
                                           .stats = l->stats,
                                           .sequence = LENGTH,
                                           .stream = l->s };
    for (uint64_t i = 0; i < m->hp.linears; i++)
        l->q[i] =
            m->layers[at].lin[i].w.data && i != TSR_MODEL_ROUTER && i != TSR_MODEL_SHARED_ROUTER
                ? &q
                : NULL;
}

static void layer_close(struct layer *l)
{
    for (uint64_t i = 0; i < l->g.model->hp.sites; i++) {
        tsr_quant_block_stats_free(&l->stats[i]);
        tsr_quant_block_stats_free(&l->experts[i]);
    }
    free(l->stats);
    free(l->experts);
    free(l->q);
    tsr_engine_stream_destroy(l->s);
    free(l->h);
    golden_free(&l->g);
}

static float *run_all(struct layer *l)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    uint64_t          hidden = l->g.model->hp.hidden;
    float            *out = tsr_new((uint64_t)SEQS * (uint64_t)LENGTH * hidden, sizeof *out);
    assert_non_null(out);
    for (uint64_t i = 0; i < SEQS; i++)
        OK(tsr_engine_stream_run(l->s, l->h + i * LENGTH * hidden, LENGTH,
                                 out + i * LENGTH * hidden, &err.err));
    return out;
}

/* The open layer with folded norms and linears. */
static float *run_folded(struct layer *l, const struct tsr_quant_block_fold *f)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_model_overlay *o = NULL;
    OK(tsr_model_overlay_create(&o, l->g.model->hp.layers, l->g.model->hp.linears, &err.err));
    memcpy(o->norm[l->job.layer], f->norm, sizeof f->norm);
    OK(tsr_engine_stream_open_layer(l->s, l->job.layer, o, &err.err));
    memset(o->norm[l->job.layer], 0, sizeof f->norm); /* f's */
    for (uint64_t i = 0; i < f->linears; i++)
        if (f->lin[i].data)
            OK(tsr_engine_stream_set_linear(l->s, (enum tsr_linear_id)i, &f->lin[i], &err.err));
    float *out = run_all(l);
    tsr_model_overlay_destroy(o);
    return out;
}

/* ---- tests ---------------------------------------------------------------------------- */

#define NONE   TSR_PRODUCER_NONE
#define NORM   TSR_PRODUCER_NORM
#define LINEAR TSR_PRODUCER_LINEAR

/* Producers by the end of a site's name. */
struct producers {
    uint32_t attn_in, o_in, ffn_in, down_in, q_b_in, kv_b_in;
};

static uint32_t expected(const struct producers *want, const char *name)
{
    const struct {
        const char *name;
        uint32_t    producer;
    } list[] = { { "attn_in", want->attn_in }, { "q_b_in", want->q_b_in },
                 { "kv_b_in", want->kv_b_in }, { "ffn_in", want->ffn_in },
                 { "down_in", want->down_in }, { "o_in", want->o_in } };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        size_t n = strlen(name), k = strlen(list[i].name);
        if (n >= k && strcmp(name + n - k, list[i].name) == 0)
            return list[i].producer;
    }
    fail_msg("site %s", name);
    return NONE;
}

static bool has_scale(const struct tsr_quant_block_fold *f, const char *name)
{
    for (uint64_t i = 0; i < f->sites; i++)
        if (strcmp(TSR_MODEL_SITE_NAME(i), name) == 0)
            return f->scale[i] != NULL;
    fail_msg("site %s", name);
    return false;
}

/* The output of a layer before and after. */
static void same_output(const char *name, const struct layer *l, const float *out,
                        const float *original, bool scaled)
{
    double worst = 0.0, size = 0.0, moved = 0.0;
    for (uint64_t i = 0; i < (uint64_t)SEQS * (uint64_t)LENGTH * l->g.model->hp.hidden; i++) {
        worst = fmax(worst, fabs((double)out[i] - (double)original[i]));
        size = fmax(size, fabs((double)original[i]));
        moved += out[i] != original[i];
    }
    /* each product and its sum round anew: a few F32 units of the largest */
    if (!(worst <= 2e-5 * size))
        fail_msg("%s: folding moved an output by %.3g of %.3g", name, worst, size);
    assert_int_equal(moved > 0.0, scaled);
}

static void check_fold(const char *name, uint64_t at, const struct producers *want,
                       void (*change)(struct tsr_model_hparams *))
{
    struct tsr_errbuf           err = TSR_ERRBUF(err);
    struct fake                 f = { .act = SCALE, .group = 16 };
    struct layer                l;
    struct tsr_quant_block_fold fold;
    bool                        any, scaled = false;
    layer_open(&l, name, &f, at);
    if (change)
        change(&l.g.model->hp);
    float *original = run_all(&l);
    assert_int_equal(tsr_quant_block_need(l.q, l.g.model->hp.linears, &any), TSR_NEED_INPUTS);
    assert_true(any);
    OK(tsr_quant_block_search(&l.job, &fold, &err.err));
    assert_true(f.sites >= TSR_MODEL_SITES);
    for (uint64_t s = 0; s < f.sites; s++) {
        uint32_t producer = expected(want, f.site[s].name);
        if (f.site[s].producer != producer)
            fail_msg("%s: site %s has producer %u, expected %u", name, f.site[s].name,
                     f.site[s].producer, producer);
        assert_int_equal(has_scale(&fold, f.site[s].name), producer != NONE);
        scaled = scaled || producer != NONE;
    }
    assert_int_equal(fold.norm[TSR_MODEL_OVERLAY_ATTN_IN].gain != NULL, want->attn_in == NORM);
    assert_int_equal(fold.norm[TSR_MODEL_OVERLAY_FFN_IN].gain != NULL, want->ffn_in == NORM);
    assert_int_equal(fold.norm[TSR_MODEL_OVERLAY_Q_B_IN].gain != NULL, want->q_b_in == NORM);
    assert_int_equal(fold.norm[TSR_MODEL_OVERLAY_KV_B_IN].gain != NULL, want->kv_b_in == NORM);
    if (l.g.model->hp.experts && l.g.model->hp.sparse[at])
        assert_int_equal(fold.lin[TSR_MODEL_ROUTER].data != NULL, want->ffn_in == NORM);
    float *out = run_folded(&l, &fold);
    same_output(name, &l, out, original, scaled);
    free(out);
    free(original);
    tsr_quant_block_fold_free(&fold);
    layer_close(&l);
}

static void residual_from_norm(struct tsr_model_hparams *hp)
{
    hp->residual_from_norm = true;
}

static void folding(void **state)
{
    (void)state;
    static const struct producers all = { NORM, LINEAR, NORM, LINEAR, NONE, NONE };
    static const struct producers shared_heads = { NORM, NONE, NORM, LINEAR, NONE, NONE };
    static const struct producers norms = { NORM, NONE, NORM, NONE, NONE, NONE };
    static const struct producers nothing = { 0 };
    static const struct producers last = { NONE, LINEAR, NONE, LINEAR, NONE, NONE };
    check_fold("llama2", 1, &all, NULL);
    check_fold("llama3", 0, &shared_heads, NULL);
    check_fold("llama-linear-rope-bias", 0, &norms, NULL); /* all linears have biases */
    check_fold("mistral", 2, &shared_heads, NULL);
    check_fold("phi3", 1, &all, NULL);
    check_fold("gemma2", 1, &shared_heads, NULL);
    check_fold("qwen2", 1, &shared_heads, NULL); /* v has a bias besides */
    check_fold("opt", 1, &norms, NULL);          /* v and up have biases */
    check_fold("bloom", 0, &norms, NULL);
    check_fold("opt-350m-style", 1, &nothing, NULL);
    check_fold("bloom", 0, &nothing, residual_from_norm);
    check_fold("llama2", 0, &last, residual_from_norm);
}

/* Layers with experts: routers follow the norm.  Latent attention: the norms of its rows.  The gated delta rule: no
 * scale before o.  Norms of the last two have gains of 1 + w. */
static void folding_forms(void **state)
{
    (void)state;
    static const struct producers experts = { NORM, NONE, NORM, LINEAR, NONE, NONE };
    static const struct producers adding = { NORM, NONE, NORM, NONE, NONE, NONE };
    static const struct producers latent = { NORM, NONE, NORM, LINEAR, NONE, NORM };
    static const struct producers rows = { NORM, NONE, NORM, LINEAR, NORM, NORM };
    check_fold("mixtral", 0, &experts, NULL);
    check_fold("qwen3_moe", 1, &experts, NULL);
    check_fold("qwen3_moe-mixed", 0, &experts, NULL);
    check_fold("qwen3_moe-mixed", 1, &experts, NULL);
    check_fold("granitemoe", 1, &experts, NULL);
    check_fold("phimoe", 1, &experts, NULL);
    check_fold("gpt_oss", 1, &adding, NULL); /* its function adds 1 to up */
    check_fold("deepseek_v2-lite", 0, &latent, NULL);
    check_fold("deepseek_v2-lite", 1, &latent, NULL);
    check_fold("deepseek_v2-groups", 1, &rows, NULL);
    check_fold("deepseek_v3", 1, &rows, NULL);
    check_fold("deepseek_v3-halves", 1, &rows, NULL);
    for (uint64_t at = 0; at < 4; at++) {
        check_fold("qwen3_next", at, &experts, NULL);
        check_fold("qwen3_5", at, &experts, NULL);
    }
}

/* A site with a linear of someone else's takes no scale, and neither does one whose maker is
 * someone else's; that one's weights are not touched. */
static void foreign_linears(void **state)
{
    (void)state;
    struct tsr_errbuf           err = TSR_ERRBUF(err);
    struct fake                 f = { .act = SCALE };
    struct layer                l;
    struct tsr_quant_block_fold fold;
    struct tsr_quantizer        deaf = { .iface = &deaf_table, .name = "deaf" };
    layer_open(&l, "llama2", &f, 0);
    l.q[TSR_MODEL_V] = NULL;
    l.q[TSR_MODEL_UP] = &deaf;
    float *original = run_all(&l);
    OK(tsr_quant_block_search(&l.job, &fold, &err.err));
    for (uint64_t s = 0; s < f.sites; s++)
        assert_int_equal(f.site[s].producer, NONE);
    assert_null(fold.lin[TSR_MODEL_V].data);
    assert_null(fold.lin[TSR_MODEL_UP].data);
    float *out = run_folded(&l, &fold);
    assert_memory_equal(out, original,
                        (uint64_t)SEQS * (uint64_t)LENGTH * l.g.model->hp.hidden * sizeof *out);
    free(out);
    free(original);
    tsr_quant_block_fold_free(&fold);
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        l.q[i] = &deaf;
    bool any;
    assert_int_equal(tsr_quant_block_need(l.q, TSR_MODEL_LINEARS, &any), 0);
    assert_false(any);
    OK(tsr_quant_block_search(&l.job, &fold, &err.err));
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        assert_null(fold.lin[i].data);
    tsr_quant_block_fold_free(&fold);
    layer_close(&l);
}

static void clips(void **state)
{
    (void)state;
    struct tsr_errbuf           err = TSR_ERRBUF(err);
    struct fake                 f = { .act = CLIP, .group = 20 };
    struct layer                l;
    struct tsr_quant_block_fold fold;
    layer_open(&l, "llama2", &f, 0);
    OK(tsr_quant_block_search(&l.job, &fold, &err.err));
    const struct tsr_matrix *w = &l.g.model->layers[0].lin[TSR_MODEL_DOWN].w;
    float                   *was = tsr_new(w->rows * w->cols, sizeof *was);
    assert_non_null(was);
    for (uint64_t r = 0; r < w->rows; r++)
        tsr_widen(was + r * w->cols, (const char *)w->data + r * w->row_stride, w->dtype, w->cols);
    uint64_t cut = 0;
    for (uint64_t i = 0; i < w->rows * w->cols; i++) {
        float v = was[i];
        if (i >= 20 && i < 40) {
            cut += fabsf(v) > 0.01f;
            v = fminf(fmaxf(v, -0.01f), 0.01f);
        }
        assert_true(((float *)fold.lin[TSR_MODEL_DOWN].data)[i] == v);
    }
    assert_true(cut > 0);
    assert_null(fold.scale[TSR_MODEL_SITE_DOWN_IN]);
    free(was);
    tsr_quant_block_fold_free(&fold);
    layer_close(&l);
}

static void losses(void **state)
{
    (void)state;
    struct tsr_errbuf           err = TSR_ERRBUF(err);
    struct fake                 f = { .act = LOSSES };
    struct layer                l;
    struct tsr_quant_block_fold fold;
    layer_open(&l, "llama3", &f, 1);
    OK(tsr_quant_block_search(&l.job, &fold, &err.err));
    tsr_quant_block_fold_free(&fold);
    layer_close(&l);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        enum act    act;
        const char *about, *facts;
    } bad[] = { { BAD_SCALE, "quantizer 'fake'", "column#3 attn_in -1" },
                { BAD_ONES, "quantizer 'fake'", "column#2 o_in 2" },
                { BAD_CLIP, "model.layers.0.mlp.up_proj", "row#1 group#0" } };
    struct tsr_errbuf           err = TSR_ERRBUF(err);
    struct layer                l;
    struct tsr_quant_block_fold fold;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fake f = { .act = bad[i].act };
        layer_open(&l, "llama3", &f, 0);
        assert_int_equal(tsr_quant_block_search(&l.job, &fold, &err.err), TSR_E_UNSUPPORTED);
        assert_true(error_is(&err.err, bad[i].about, bad[i].facts));
        assert_null(fold.lin);
        layer_close(&l);
    }
    struct fake f = { .act = SCALE };
    layer_open(&l, "llama3", &f, 0);
    free((void *)(uintptr_t)l.stats[TSR_MODEL_SITE_O_IN].inputs);
    l.stats[TSR_MODEL_SITE_O_IN].inputs = NULL;
    assert_int_equal(tsr_quant_block_search(&l.job, &fold, &err.err), TSR_E_INPUT);
    assert_true(error_is(&err.err, "fake", "o_proj"));
    layer_close(&l);
}

/* Statistics of scaled inputs are those of the scaled inputs. */
static void statistics(void **state)
{
    (void)state;
    enum { N = 3, ROWS = 5 };
    struct tsr_errbuf      err = TSR_ERRBUF(err);
    float                  x[ROWS * N], scale[N] = { 0.5f, 3.0f, 1.25f };
    float                  h[N * N] = { 0 }, cross[N * N], top[N] = { 0 }, mean[N], var[N], mag[N];
    struct tsr_quant_stats in = { .struct_size = sizeof in, .cols = N, .tokens = ROWS }, out;
    float                 *scales[TSR_MODEL_SITES] = { [TSR_MODEL_SITE_O_IN] = scale };
    struct tsr_quant_block_fold f = { .sites = TSR_MODEL_SITES, .scale = scales };
    for (int i = 0; i < ROWS * N; i++)
        x[i] = (float)noise((uint64_t)i);
    for (int round = 0; round < 2; round++) {
        for (int c = 0; c < N; c++) {
            double s = 0, q = 0, a = 0;
            top[c] = 0;
            for (int t = 0; t < ROWS; t++) {
                double v = (double)x[t * N + c] / (round ? (double)scale[c] : 1.0);
                s += v / ROWS;
                q += v * v / ROWS;
                a += fabs(v) / ROWS;
                top[c] = fmaxf(top[c], (float)fabs(v));
            }
            mean[c] = (float)s;
            var[c] = (float)(q - s * s);
            mag[c] = (float)a;
            for (int d = 0; d < N; d++) {
                double p = 0;
                for (int t = 0; t < ROWS; t++)
                    p += (double)x[t * N + c] * (double)x[t * N + d] /
                         (round ? (double)scale[c] * (double)scale[d] : 1.0);
                h[c * N + d] = (float)p;
                cross[c * N + d] = (float)(p * (1 + c));
            }
        }
        if (round == 0) {
            in.hessian = h, in.absmax = top, in.mean = mean, in.variance = var, in.mean_abs = mag;
            in.cross = cross;
            in.inputs = x;
            in.input_rows = ROWS;
            OK(tsr_quant_block_stats(&f, TSR_MODEL_SITE_O_IN, &in, NULL, &out, &err.err));
            assert_true(out.cols == N && out.tokens == ROWS && out.input_rows == ROWS);
            struct tsr_quant_stats same;
            OK(tsr_quant_block_stats(&f, TSR_MODEL_SITE_ATTN_IN, &in, NULL, &same, &err.err));
            assert_true(same.hessian == h);
        }
    }
    for (int i = 0; i < N * N; i++)
        near("hessian", (double)out.hessian[i], (double)h[i], 1e-6);
    for (int i = 0; i < N * N; i++)
        near("cross term", (double)out.cross[i], (double)cross[i], 1e-6);
    for (int c = 0; c < N; c++) {
        near("absmax", (double)out.absmax[c], (double)top[c], 1e-6);
        near("mean", (double)out.mean[c], (double)mean[c], 1e-6);
        near("variance", (double)out.variance[c], (double)var[c], 1e-6);
        near("mean |x|", (double)out.mean_abs[c], (double)mag[c], 1e-6);
    }
    for (int i = 0; i < ROWS * N; i++)
        near("inputs", (double)out.inputs[i], (double)x[i] / (double)scale[i % N], 1e-6);
    tsr_quant_block_stats_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folding),         cmocka_unit_test(folding_forms),
        cmocka_unit_test(foreign_linears), cmocka_unit_test(clips),
        cmocka_unit_test(losses),          cmocka_unit_test(refusals),
        cmocka_unit_test(statistics),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
