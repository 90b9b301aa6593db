/* Transforms in the answers of block searches: every golden model with orders, orthogonal matrices and Hadamard
 * transforms in its weights has the logits that were recorded of the original, through a packed folder and back; what a
 * site takes follows from its family; a wrong answer is refused. */
#include "golden.h"

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/rng.h"
#include "checkpoint/packed/packed_model.h"
#include "quant/block.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Weights are rounded to F32 once or twice more, and matrices of `given` are orthogonal within 2^-23: as test_rotated.c. */
#define TOLERANCE 5e-5

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, e.text);                                                     \
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

/* ---- a quantizer whose search answers with transforms --------------------------------------- */

enum wrong { NOTHING, TWICE, BEYOND, LONGER, NO_NUMBER, NO_ORDER_OF_ONE, NOT_TAKEN, WRONGS };

struct fake {
    uint32_t   use;   /* TSR_TAKES_* that it answers with */
    uint32_t   takes; /* of all sites together, as they were shown */
    enum wrong wrong;
};

static uint64_t fake_need(const void *self)
{
    (void)self;
    return 0;
}
static uint64_t fake_group(const void *self, uint64_t cols)
{
    (void)self;
    (void)cols;
    return 0;
}

/* A permutation that a seed draws. */
static void shuffle(uint32_t *order, uint64_t n, uint64_t seed)
{
    for (uint64_t i = n; i-- > 1;) {
        uint64_t j = (uint64_t)(tsr_uniform(seed, 0, i) * (double)(i + 1));
        uint32_t x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
}

/* Orthogonal matrices that a seed draws, as a plugin that computes in F32 has them. */
static void draw_matrices(const struct tsr_block_site *s, double *to, uint64_t seed)
{
    const uint64_t n = s->matrix_cols;
    for (uint64_t i = 0; i < s->matrices; i++) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_orthogonal q;
        float                *m = tsr_new(n * n, sizeof *m);
        assert_non_null(m);
        for (uint64_t k = 0; k < n; k++)
            m[k * n + k] = 1;
        OK(tsr_orthogonal_create(&q, TSR_ORTHOGONAL_RANDOM, n, seed, i, &e.err));
        OK(tsr_orthogonal_rows(&q, NULL, m, n, n, NULL, 0, &e.err));
        for (uint64_t k = 0; k < n * n; k++)
            to[i * n * n + k] = (double)m[k];
        tsr_orthogonal_free(&q);
        free(m);
    }
}

static void go_wrong(enum wrong w, const struct tsr_block_site *s, struct tsr_block_choice *c)
{
    if (s->takes & TSR_TAKES_ORDER && w == TWICE)
        c->order[3] = 2;
    if (s->takes & TSR_TAKES_ORDER && w == BEYOND)
        c->order[5] = (uint32_t)s->cols;
    if (s->takes & TSR_TAKES_MATRIX && w == LONGER)
        c->matrix[0] = 1.000002; /* its square is 4e-6 off */
    if (s->takes & TSR_TAKES_MATRIX && w == NO_NUMBER)
        c->matrix[1] = (double)NAN;
    if (s->takes & TSR_TAKES_HADAMARD && w == NO_ORDER_OF_ONE)
        c->hadamard = 2 * s->hadamard_cols;
    if (s->takes == 0 && w == NOT_TAKEN)
        c->hadamard = 16;
}

static tsr_status fake_search(const void *self, const struct tsr_block *b,
                              struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    struct fake *f = (struct fake *)(uintptr_t)self;
    (void)err;
    for (uint64_t i = 0; i < b->n_sites; i++) {
        const struct tsr_block_site *s = b->sites[i];
        struct tsr_block_choice     *c = choices[i];
        const uint64_t               use = s->takes & f->use;
        f->takes |= (uint32_t)s->takes;
        assert_int_equal(c->order != NULL, (s->takes & TSR_TAKES_ORDER) != 0);
        assert_int_equal(c->matrix != NULL, (s->takes & TSR_TAKES_MATRIX) != 0);
        assert_int_equal(c->hadamard, 0);
        if (use & TSR_TAKES_ORDER)
            shuffle(c->order, s->cols, i + 1);
        if (use & TSR_TAKES_MATRIX)
            draw_matrices(s, c->matrix, i + 7);
        if (use & (TSR_TAKES_HADAMARD | TSR_TAKES_KEYS))
            c->hadamard = s->hadamard_cols;
        go_wrong(f->wrong, s, c);
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

static tsr_status search_layer(const struct tsr_model *m, uint64_t layer, struct fake *f,
                               struct tsr_quant_block_fold *fold, struct tsr_err *err)
{
    struct tsr_quantizer             q = { .iface = &fake_table, .self = f, .name = "fake" };
    const struct tsr_quantizer     **list = tsr_new(m->hp.linears, sizeof *list);
    const struct tsr_quant_block_job job = {
        .registry = registry, .model = m, .layer = layer, .q = list
    };
    assert_non_null(list);
    for (uint64_t i = 0; i < m->hp.linears; i++)
        list[i] =
            m->layers[layer].lin[i].w.data && i != TSR_MODEL_ROUTER && i != TSR_MODEL_SHARED_ROUTER
                ? &q
                : NULL;
    tsr_status st = tsr_quant_block_search(&job, fold, err);
    free(list);
    return st;
}

/* ---- models ------------------------------------------------------------------------------- */

/* A folded linear as it is, in F32. */
static struct tsr_model_packed *as_float(struct tsr_matrix *w)
{
    struct tsr_model_packed *p = tsr_new(1, sizeof *p);
    assert_non_null(p);
    p->plugin = tsr_strdup("fake");
    p->format_id = tsr_strdup(TSR_FORMAT_FLOAT);
    assert_true(p->plugin && p->format_id);
    p->format = (struct tsr_format){ .struct_size = sizeof p->format,
                                     .id = p->format_id,
                                     .dtype = TSR_F32 };
    p->rows = w->rows;
    p->cols = w->cols;
    p->code_stride = w->cols * sizeof(float);
    p->source_dtype = TSR_F32;
    p->report = (struct tsr_model_pack_report){ .loss = NAN, .rtn_loss = NAN, .damping = NAN };
    p->codes = w->data;
    w->data = NULL;
    return p;
}

/* All layers with the transforms that they take of `use`; *takes: what was offered. */
static struct tsr_model_overlay *turn_model(const struct tsr_model *m, uint32_t use,
                                            uint32_t *takes)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_model_overlay *o = NULL;
    OK(tsr_model_overlay_create(&o, m->hp.layers, m->hp.linears, &e.err));
    *takes = 0;
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        struct fake                 f = { .use = use };
        struct tsr_quant_block_fold fold;
        OK(search_layer(m, l, &f, &fold, &e.err));
        for (uint64_t i = 0; i < fold.linears; i++)
            if (fold.lin[i].data)
                o->lin[l][i] = as_float(&fold.lin[i]);
        for (uint64_t i = 0; i < fold.sites; i++) {
            assert_null(fold.scale[i]);
            o->turned[l][i] = tsr_rotate_transform_is_set(&fold.turn[i]);
        }
        const struct tsr_orthogonal *down = fold.turn[TSR_MODEL_SITE_DOWN_IN].online;
        o->online[l] =
            (struct tsr_model_online){ .keys = fold.keys, .down = down ? (uint32_t)down->n : 0 };
        *takes |= f.takes;
        tsr_quant_block_fold_free(&fold);
    }
    return o;
}

/* The layers as files and back. */
static struct tsr_model_overlay *through_files(const struct tsr_model         *m,
                                               const struct tsr_model_overlay *o)
{
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct tsr_model_overlay *back = NULL;
    char                     *folder = NULL;
    OK(tsr_temp_folder(&folder, "transforms", &e.err));
    OK(tsr_model_overlay_create(&back, m->hp.layers, m->hp.linears, &e.err));
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        OK(tsr_packed_layer_write(folder, m, l, o, "print", &e.err));
        OK(tsr_packed_layer_read(folder, m, l, false, NULL, "print", back, &e.err));
        assert_memory_equal(back->turned[l], o->turned[l], o->sites);
        assert_memory_equal(&back->online[l], &o->online[l], sizeof o->online[l]);
    }
    tsr_temp_folder_remove(folder);
    return back;
}

static void check_logits(const char *name, const struct golden *g,
                         const struct tsr_model_overlay *o)
{
    struct tsr_engine *engine =
        golden_engine(registry, g->model, o,
                      (struct tsr_engine_options){ .on.backend = "cpu", .slots = 1 });
    const uint64_t vocab = g->model->hp.vocab;
    for (uint64_t i = 0; i < g->n; i++) {
        float *logits = golden_forward(engine, g->cases[i].prompt, g->cases[i].n_prompt, false);
        golden_compare(name, &g->cases[i], logits, vocab, TOLERANCE);
        float *steps = golden_forward(engine, g->cases[i].prompt, g->cases[i].n_prompt, true);
        if (!g->cases[i].whole_prompt_only)
            assert_memory_equal(steps, logits, g->cases[i].n_prompt * vocab * sizeof *logits);
        free(steps);
        free(logits);
    }
    tsr_engine_destroy(engine);
}

static bool is_one(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* What of each family can be said, from its description and not from block_turn.c. */
static uint32_t expected(const char *name)
{
    static const char *const no_keys[] = { "deepseek_v2-lite", "deepseek_v2-groups",
                                           "deepseek_v3",      "deepseek_v3-halves",
                                           "qwen3_5",          "qwen3_5_moe",
                                           "qwen3_next",       NULL };
    /* in addition, those whose v has a bias */
    static const char *const no_matrix[] = {
        "bloom",      "bloom-6heads",   "llama-linear-rope-bias",
        "opt",        "opt-350m-style", "qwen2",
        "starcoder2", "qwen2-untied",   "glm4",
        "phimoe",     "gpt_oss",        NULL
    };
    /* up has a bias */
    static const char *const no_order[] = { "bloom",
                                            "bloom-6heads",
                                            "llama-linear-rope-bias",
                                            "opt",
                                            "opt-350m-style",
                                            "starcoder2",
                                            "gpt_oss",
                                            NULL };
    /* experts in every layer, or runs of less than 16 columns in dense ones */
    static const char *const no_down[] = { "mixtral",     "mixtral-window", "qwen3_moe",
                                           "granitemoe",  "phimoe",         "gpt_oss",
                                           "qwen3_5_moe", "qwen3_next",     NULL };
    return (is_one(name, no_keys) ? 0 : TSR_TAKES_KEYS) |
           (is_one(name, no_keys) || is_one(name, no_matrix) ? 0 : TSR_TAKES_MATRIX) |
           (is_one(name, no_order) ? 0 : TSR_TAKES_ORDER) |
           (is_one(name, no_down) ? 0 : TSR_TAKES_HADAMARD);
}

static void check_model(const char *name)
{
    static const uint32_t uses[] = { TSR_TAKES_ORDER, TSR_TAKES_MATRIX,
                                     TSR_TAKES_HADAMARD | TSR_TAKES_KEYS, 15 };
    struct golden         g;
    golden_load(&g, name);
    for (size_t i = 0; i < sizeof uses / sizeof *uses && !g.model->packed; i++) {
        uint32_t                  takes;
        struct tsr_model_overlay *o = turn_model(g.model, uses[i], &takes), *back;
        bool                      turned = false;
        if (takes != expected(name))
            fail_msg("%s takes %u, expected %u", name, takes, expected(name));
        for (uint64_t l = 0; l < o->layers; l++)
            turned = turned || tsr_model_overlay_turned(o, l);
        assert_int_equal(turned, (takes & uses[i]) != 0);
        back = through_files(g.model, o);
        if (turned)
            check_logits(name, &g, back);
        tsr_model_overlay_destroy(back);
        tsr_model_overlay_destroy(o);
    }
    golden_free(&g);
}

static void logits_as_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; golden_names[i]; i++)
        check_model(golden_names[i]);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void wrong_answers(void **state)
{
    static const struct {
        enum wrong  wrong;
        const char *facts;
    } cases[] = { { TWICE, "down_in column#2 place#3" }, { BEYOND, "down_in place#5" },
                  { LONGER, "matrix#0 o_in rows#0" },    { NO_NUMBER, "matrix#0 o_in rows#0" },
                  { NO_ORDER_OF_ONE, "down_in" },        { NOT_TAKEN, "ffn_in" } };
    struct golden g;
    (void)state;
    golden_load(&g, "llama3");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tsr_errbuf           e = TSR_ERRBUF(e);
        struct fake                 f = { .wrong = cases[i].wrong };
        struct tsr_quant_block_fold fold;
        assert_int_equal(search_layer(g.model, 0, &f, &fold, &e.err), TSR_E_UNSUPPORTED);
        if (!error_is(&e.err, "quantizer 'fake'", cases[i].facts))
            fail_msg("%s", e.text);
        assert_null(fold.lin);
    }
    golden_free(&g);
}

/* A layer's file that names what its layer cannot have. */
static void damaged_files(void **state)
{
    static const char *const  texts[] = { "[]",
                                          "{\"keys\":64}",
                                          "{\"sites\":[\"in\"]}",
                                          "{\"sites\":[1]}",
                                          "{\"sites\":[],\"keys\":3}",
                                          "{\"sites\":[],\"keys\":4096}",
                                          "{\"sites\":[],\"down\":-16}",
                                          "{\"sites\":[],\"up\":16}" };
    struct tsr_errbuf         e = TSR_ERRBUF(e);
    struct golden             g;
    struct tsr_model_overlay *o = NULL;
    (void)state;
    golden_load(&g, "llama3");
    OK(tsr_model_overlay_create(&o, g.model->hp.layers, g.model->hp.linears, &e.err));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (tsr_packed_transforms_understand(g.model, 0, "a file", texts[i], o, &e.err) !=
            TSR_E_INPUT)
            fail_msg("%s is taken", texts[i]);
    OK(tsr_packed_transforms_understand(g.model, 0, "a file", "{\"sites\":[\"o_in\"]}", o, &e.err));
    assert_int_equal(o->turned[0][TSR_MODEL_SITE_O_IN], 1);
    tsr_model_overlay_destroy(o);
    golden_free(&g);
}

/* ---- statistics ------------------------------------------------------------------------------- */

#define N    6
#define ROWS 9

/* Statistics of 9 rows in F32, added up over at most 6 columns: some 2^-24 of their size for each; 1e-5 is 100 of these. */
static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-5 * (1 + fabs(want))))
        fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

struct stats {
    float hessian[N * N], cross[N * N], absmax[N], mean[N], variance[N], mean_abs[N], x[ROWS * N];
};

/* Of inputs x; y: others, for the cross term. */
static void stats_of(struct stats *s, const double *x, const double *y)
{
    for (int c = 0; c < N; c++) {
        double sum = 0, square = 0, size = 0, top = 0;
        for (int r = 0; r < ROWS; r++) {
            double v = x[r * N + c];
            sum += v / ROWS, square += v * v / ROWS, size += fabs(v) / ROWS;
            top = fmax(top, fabs(v));
            s->x[r * N + c] = (float)v;
        }
        s->absmax[c] = (float)top;
        s->mean[c] = (float)sum;
        s->variance[c] = (float)(square - sum * sum);
        s->mean_abs[c] = (float)size;
        for (int d = 0; d < N; d++) {
            double h = 0, k = 0;
            for (int r = 0; r < ROWS; r++)
                h += x[r * N + c] * x[r * N + d], k += x[r * N + c] * y[r * N + d];
            s->hessian[c * N + d] = (float)h;
            s->cross[c * N + d] = (float)k;
        }
    }
}

/* Two runs of three columns with two matrices, after another order. */
static void statistics(void **state)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    static const uint32_t       order[N] = { 4, 0, 5, 1, 3, 2 };
    struct tsr_orthogonal       q[2];
    uint32_t                    own[N];
    double                      x[ROWS * N], y[ROWS * N], tx[ROWS * N], ty[ROWS * N];
    static struct stats         was, want;
    struct tsr_rotate_transform turn[TSR_MODEL_SITES] = { 0 };
    struct tsr_quant_block_fold f = { .sites = TSR_MODEL_SITES, .turn = turn };
    (void)state;
    memcpy(own, order, sizeof own);
    for (uint64_t i = 0; i < 2; i++)
        OK(tsr_orthogonal_create(&q[i], TSR_ORTHOGONAL_RANDOM, 3, 5, i, &e.err));
    for (int both = 0; both < 2; both++) {
        float unit[2 * 9] = { 0 };
        turn[TSR_MODEL_SITE_O_IN] = (struct tsr_rotate_transform){ .order = own,
                                                                   .matrix = both ? q : NULL,
                                                                   .matrices = both ? 2 : 0 };
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < 3; i++)
                unit[9 * k + 4 * i] = 1;
            if (both)
                OK(tsr_orthogonal_rows(&q[k], NULL, unit + 9 * k, 3, 3, NULL, 0, &e.err));
        }
        for (int i = 0; i < ROWS * N; i++) {
            x[i] = tsr_normal(1, 0, (uint64_t)i);
            y[i] = tsr_normal(2, 0, (uint64_t)i);
        }
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < N; c++) {
                tx[r * N + c] = ty[r * N + c] = 0;
                for (int k = 0; k < 3; k++) {
                    double m = (double)unit[9 * (c / 3) + 3 * k + c % 3];
                    tx[r * N + c] += x[r * N + (int)order[c / 3 * 3 + k]] * m;
                    ty[r * N + c] += y[r * N + (int)order[c / 3 * 3 + k]] * m;
                }
            }
        stats_of(&was, x, y);
        stats_of(&want, tx, ty);
        struct tsr_quant_stats in = { .struct_size = sizeof in,
                                      .cols = N,
                                      .tokens = ROWS,
                                      .hessian = was.hessian,
                                      .cross = was.cross,
                                      .absmax = was.absmax,
                                      .mean = was.mean,
                                      .variance = was.variance,
                                      .mean_abs = was.mean_abs,
                                      .inputs = was.x,
                                      .input_rows = ROWS },
                               out;
        OK(tsr_quant_block_stats(&f, TSR_MODEL_SITE_O_IN, &in, NULL, &out, &e.err));
        for (int i = 0; i < N * N; i++) {
            near("hessian", (double)out.hessian[i], (double)want.hessian[i]);
            near("cross term", (double)out.cross[i], (double)want.cross[i]);
        }
        for (int c = 0; c < N; c++) {
            near("absmax", (double)out.absmax[c], (double)want.absmax[c]);
            near("mean", (double)out.mean[c], (double)want.mean[c]);
            near("variance", (double)out.variance[c], (double)want.variance[c]);
            near("mean |x|", (double)out.mean_abs[c], (double)want.mean_abs[c]);
        }
        for (int i = 0; i < ROWS * N; i++)
            near("inputs", (double)out.inputs[i], (double)want.x[i]);
        tsr_quant_block_stats_free(&out);
        in.inputs = NULL; /* then nobody knows the largest of a sum */
        in.input_rows = 0;
        OK(tsr_quant_block_stats(&f, TSR_MODEL_SITE_O_IN, &in, NULL, &out, &e.err));
        assert_int_equal(out.absmax == NULL, both);
        assert_int_equal(out.variance == NULL && out.mean_abs == NULL, both);
        tsr_quant_block_stats_free(&out);
    }
    for (int i = 0; i < 2; i++)
        tsr_orthogonal_free(&q[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(logits_as_recorded),
                                        cmocka_unit_test(wrong_answers),
                                        cmocka_unit_test(damaged_files),
                                        cmocka_unit_test(statistics) };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
