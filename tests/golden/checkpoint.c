#include "checkpoint.h"

#include "base/f16.h"
#include "base/json.h"
#include "checkpoint/safetensors/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the recorded cases ask for: F32 in another order of additions stays 20 times below. */
#define TOLERANCE 2e-4

#define ROWS "dequant_rows_0_to_7."

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static float *read_floats(const struct tsr_safetensors *st, const struct tsr_safetensors_tensor *t)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    float            *v = malloc(t->end - t->begin);
    assert_non_null(v);
    assert_int_equal(t->dtype, TSR_F32);
    assert_int_equal(t->rank, 2);
    must(tsr_safetensors_read(st, t, v, &e.err), &e);
    return v;
}

/* "...q_proj.weight" is ...q_proj; "...experts.down_proj.expert1" is ...experts.1.down_proj. */
static void name_rows(char *name, size_t cap, const char *recorded)
{
    const char *last = strrchr(recorded, '.'), *each = strstr(recorded, ".experts.");
    assert_non_null(last);
    if (!each || strncmp(last, ".expert", strlen(".expert")) != 0)
        (void)snprintf(name, cap, "%.*s", (int)(last - recorded), recorded);
    else
        (void)snprintf(name, cap, "%.*s.experts.%s.%.*s", (int)(each - recorded), recorded,
                       last + strlen(".expert"), (int)(last - each) - (int)strlen(".experts."),
                       each + strlen(".experts."));
}

void checkpoint_load(struct checkpoint *c, const char *name)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    char                   path[512];
    json_t                *j = NULL;
    struct tsr_safetensors st;
    memset(c, 0, sizeof *c);
    (void)snprintf(path, sizeof path, CHECKPOINTS "%s/case.json", name);
    must(tsr_json_load(&j, path, 1 << 20, 16, &e.err), &e);
    const json_t *prompt = json_object_get(j, "prompt");
    c->n = json_array_size(prompt);
    assert_true(c->n > 0);
    c->prompt = calloc(c->n, sizeof *c->prompt);
    assert_non_null(c->prompt);
    for (uint64_t i = 0; i < c->n; i++)
        c->prompt[i] = (uint32_t)json_integer_value(json_array_get(prompt, i));
    json_decref(j);
    (void)snprintf(path, sizeof path, CHECKPOINTS "%s/expected.safetensors", name);
    must(tsr_safetensors_open(&st, path, &e.err), &e);
    for (uint64_t i = 0; i < st.n; i++) {
        const struct tsr_safetensors_tensor *t = &st.tensors[i];
        if (strcmp(t->name, "logits") == 0) {
            assert_int_equal(t->shape[0], c->n);
            c->vocab = t->shape[1];
            c->logits = read_floats(&st, t);
        } else if (c->n_rows < CHECKPOINT_ROWS && strncmp(t->name, ROWS, sizeof ROWS - 1) == 0) {
            struct checkpoint_rows *r = &c->rows[c->n_rows++];
            name_rows(r->name, sizeof r->name, t->name + sizeof ROWS - 1);
            r->n = t->shape[0];
            r->cols = t->shape[1];
            r->rows = read_floats(&st, t);
        }
    }
    tsr_safetensors_close(&st);
    assert_non_null(c->logits);
    assert_true(c->n_rows > 0);
}

void checkpoint_free(struct checkpoint *c)
{
    free(c->prompt);
    free(c->logits);
    for (uint64_t i = 0; i < c->n_rows; i++)
        free(c->rows[i].rows);
}

static void compare(const char *what, const struct checkpoint *c, const float *logits)
{
    for (uint64_t i = 0; i < c->n * c->vocab; i++) {
        double d = fabs((double)logits[i] - (double)c->logits[i]);
        if (!(d <= TOLERANCE))
            fail_msg("%s: position %d token %d: %.7g, recorded %.7g", what, (int)(i / c->vocab),
                     (int)(i % c->vocab), (double)logits[i], (double)c->logits[i]);
    }
}

void checkpoint_check_logits(const char *what, struct tsr_registry *r, const struct tsr_model *m,
                             const struct checkpoint *c)
{
    struct tsr_engine_options opt = { .on.backend = "cpu" };
    assert_int_equal(m->hp.vocab, c->vocab);
    struct tsr_engine *e = golden_engine(r, m, NULL, opt);
    float             *whole = golden_forward(e, c->prompt, c->n, false);
    float             *step = golden_forward(e, c->prompt, c->n, true);
    compare(what, c, whole);
    if (memcmp(whole, step, c->n * c->vocab * sizeof *whole) != 0)
        fail_msg("%s: token by token gives other bytes", what);
    free(whole);
    free(step);
    tsr_engine_destroy(e);
}

static void find(const struct tsr_model *m, const char *name, const struct tsr_matrix **w,
                 const struct tsr_model_packed **p)
{
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++)
            if (m->layers[l].lin[i].w.rows && strcmp(m->layers[l].lin[i].w.name, name) == 0) {
                *w = &m->layers[l].lin[i].w;
                *p = m->packed ? m->packed->lin[l][i] : NULL;
                return;
            }
    fail_msg("%s: no such matrix", name);
}

static void check_rows(const char *what, const struct tsr_model *m, const struct checkpoint_rows *r)
{
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    const struct tsr_matrix       *w = NULL;
    const struct tsr_model_packed *p = NULL;
    uint64_t                       n = r->n * r->cols;
    float                         *v = calloc(n, sizeof *v);
    assert_non_null(v);
    find(m, r->name, &w, &p);
    assert_int_equal(w->cols, r->cols);
    assert_true(w->rows >= r->n);
    if (p)
        must(tsr_model_packed_dequantize(p, 0, r->n, v, &e.err), &e);
    else
        tsr_widen(v, w->data, w->dtype, n);
    for (uint64_t i = 0; i < n; i++)
        if (!(v[i] == r->rows[i]))
            fail_msg("%s: %s row %d column %d: %.9g, recorded %.9g", what, r->name,
                     (int)(i / r->cols), (int)(i % r->cols), (double)v[i], (double)r->rows[i]);
    free(v);
}

void checkpoint_check_rows(const char *what, const struct tsr_model *m, const struct checkpoint *c)
{
    for (uint64_t i = 0; i < c->n_rows; i++)
        check_rows(what, m, &c->rows[i]);
}
