/* Steps: the model of the rules' job. */
#include "conformance/step/internal.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS   2u
#define HIDDEN   8u
#define FFN      16u
#define VOCAB    32u
#define LINEARS  7u
#define LONG_RUN 2000u /* layers of a long run */
#define U(x)     ((unsigned long long)(x))

static uint64_t layers(const struct tsr_step_rules_test *x)
{
    return x->slow ? LONG_RUN : LAYERS;
}

static uint64_t matrices(const struct tsr_step_rules_test *x)
{
    return 1 + layers(x) * LINEARS;
}

static tsr_status model(void *ctx, struct tsr_step_model *m, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "model()", TSR_STEP_MODEL, true, err);
    uint32_t                    size = m->struct_size;
    struct tsr_step_model       all = { .struct_size = size,
                                        .family = "rules",
                                        .hash = "xxh3:00000000000000000000000000000000",
                                        .layers = layers(x),
                                        .hidden = HIDDEN,
                                        .vocab = VOCAB,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 4,
                                        .positions = 64,
                                        .parameters = (uint64_t)VOCAB * HIDDEN + layers(x) * 640,
                                        .matrices = matrices(x) };
    memcpy(m, &all, size < sizeof all ? size : sizeof all);
    return st;
}

/* Shape and name of matrix i. */
static struct tsr_step_matrix shape_of(const struct tsr_step_rules_test *x, uint64_t i)
{
    static const struct {
        const char *name;
        uint64_t    rows, cols;
    } list[LINEARS] = { { "model.layers.0.self_attn.q_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.self_attn.k_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.self_attn.v_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.self_attn.o_proj", HIDDEN, HIDDEN },
                        { "model.layers.0.mlp.gate_proj", FFN, HIDDEN },
                        { "model.layers.0.mlp.up_proj", FFN, HIDDEN },
                        { "model.layers.0.mlp.down_proj", HIDDEN, FFN } };
    struct tsr_step_matrix m = { .dtype = TSR_BF16,
                                 .name = "model.embed_tokens",
                                 .layer = UINT64_MAX,
                                 .rows = VOCAB,
                                 .cols = HIDDEN };
    if (i > 0 && i < matrices(x)) {
        m.name = list[(i - 1) % LINEARS].name;
        m.layer = (i - 1) / LINEARS;
        m.rows = list[(i - 1) % LINEARS].rows;
        m.cols = list[(i - 1) % LINEARS].cols;
    }
    return m;
}

static bool exists(struct tsr_step_rules_test *x, const char *function, uint64_t i)
{
    if (i < matrices(x))
        return true;
    tsr_step_rules_note(x, TSR_STEP_WRONG_RANGE, "%s of matrix %llu; the model has %llu", function,
                        U(i), U(matrices(x)));
    return false;
}

static tsr_status matrix(void *ctx, uint64_t i, struct tsr_step_matrix *m, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "matrix()", TSR_STEP_MODEL, true, err);
    uint32_t                    size = m->struct_size;
    struct tsr_step_matrix      all = shape_of(x, exists(x, "matrix()", i) ? i : 0);
    all.struct_size = size;
    memcpy(m, &all, size < sizeof all ? size : sizeof all);
    return st;
}

static tsr_status rows(void *ctx, uint64_t i, uint32_t which, uint64_t first, uint64_t n,
                       float *out, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "rows()", TSR_STEP_MODEL, true, err);
    if (st != TSR_OK)
        return st;
    struct tsr_step_matrix m = shape_of(x, exists(x, "rows()", i) ? i : 0);
    if (which > TSR_STEP_PACKED || n > m.rows || first > m.rows - n) {
        tsr_step_rules_note(x, TSR_STEP_WRONG_RANGE, "rows() %llu and %llu more of %llu", U(first),
                            U(n), U(m.rows));
        return TSR_OK; /* nothing that exists is left to write */
    }
    for (uint64_t r = 0; r < n; r++)
        tsr_conformance_rule_normal(x->c, i * 1000 + first + r, out + r * m.cols, m.cols);
    return TSR_OK;
}

static tsr_status logits(void *ctx, const uint32_t *tokens, uint64_t n, float *out,
                         struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st = tsr_step_rules_enter(x, "logits()", TSR_STEP_MODEL, true, err);
    uint64_t                    sum = 0;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        if (tokens[i] >= VOCAB)
            tsr_step_rules_note(x, TSR_STEP_WRONG_RANGE,
                                "logits() of token %u; the vocabulary has %u", tokens[i], VOCAB);
        sum = sum * 31 + tokens[i] + 1;
        tsr_conformance_rule_normal(x->c, sum, out + i * VOCAB, VOCAB);
    }
    return st;
}

static tsr_status tokens(void *ctx, const char *s, uint64_t bytes, const uint32_t **ids,
                         uint64_t *n, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st =
        tsr_step_rules_enter(x, "tokens()", TSR_STEP_MODEL | TSR_STEP_TOKENIZER, true, err);
    *n = bytes < 256 ? bytes : 256;
    for (uint64_t i = 0; i < *n; i++)
        x->ids[i] = (unsigned char)s[i] % VOCAB;
    *ids = x->ids;
    return st;
}

static tsr_status evaluate(void *ctx, struct tsr_step_evaluation *e, struct tsr_err *err)
{
    struct tsr_step_rules_test *x = ctx;
    tsr_status                  st =
        tsr_step_rules_enter(x, "evaluate()", TSR_STEP_MODEL | TSR_STEP_TOKENIZER, true, err);
    for (uint64_t i = 0; i < LONG_RUN && st == TSR_OK && x->slow; i++) { /* as a host: it stops */
        tsr_step_rules_burn();
        if (x->c->host->table.cancelled(x->c->host->table.ctx))
            st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
    }
    e->perplexity = 12.5;
    e->mean_nll = 2.5257286443082556;
    e->kl_mean = e->kl ? 0.05 : (double)NAN;
    e->top1 = e->kl ? 0.9 : (double)NAN;
    e->tokens = 128;
    e->scored = 127;
    return st;
}

void tsr_step_rules_model_functions(struct tsr_step_job *j)
{
    j->model = model;
    j->matrix = matrix;
    j->rows = rows;
    j->logits = logits;
    j->tokens = tokens;
    j->evaluate = evaluate;
}
