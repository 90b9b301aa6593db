/* Hidden rows in a safetensors file, and the head that makes logits of them. */
#include "eval/states.h"

#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "engine/stream.h"

#include <stdlib.h>

#define NAME    "hidden"
#define AT_MOST 512 /* rows that are read at once; also the longest sequence of the stream */

/* ---- writing ---------------------------------------------------------------------- */

struct tsr_states_out {
    struct tsr_st_out *file;
    struct tsr_engine *e;
    uint64_t           n, put, cols;
};

static tsr_status take_rows(void *ctx, const float *x, uint64_t n, struct tsr_err *err)
{
    struct tsr_states_out *o = ctx;
    if (n > o->n - o->put)
        return tsr_fail(err, TSR_E_BUG, "more hidden rows than the %llu that were said",
                        (unsigned long long)o->n);
    tsr_safetensors_put(o->file, x, n * o->cols * sizeof *x);
    o->put += n;
    return TSR_OK;
}

static tsr_status begin(struct tsr_states_out *o, const char *path, struct tsr_err *err)
{
    uint64_t shape[2] = { o->n, o->cols };
    TSR_TRY(tsr_safetensors_create(&o->file, path, err));
    TSR_TRY(tsr_safetensors_declare(o->file, NAME, TSR_F32, 2, shape, err));
    return tsr_safetensors_begin(o->file, err);
}

tsr_status tsr_eval_states_create(struct tsr_states_out **out, const char *path,
                                  struct tsr_engine *e, uint64_t n, struct tsr_err *err)
{
    struct tsr_states_out *o = tsr_new(1, sizeof *o);
    if (!o)
        return tsr_fail_nomem(err, sizeof *o, path);
    o->e = e;
    o->n = n;
    o->cols = tsr_engine_model(e)->hp.hidden;
    tsr_status st = begin(o, path, err);
    if (st == TSR_OK)
        st = tsr_engine_set_hidden_tap(e, take_rows, o, err);
    if (st != TSR_OK) {
        tsr_eval_states_abort(o);
        return st;
    }
    *out = o;
    return TSR_OK;
}

tsr_status tsr_eval_states_commit(struct tsr_states_out *o, struct tsr_err *err)
{
    tsr_status st = tsr_engine_set_hidden_tap(o->e, NULL, NULL, err);
    if (st == TSR_OK && o->put != o->n)
        st = tsr_fail(err, TSR_E_BUG, "%llu hidden rows, %llu were said",
                      (unsigned long long)o->put, (unsigned long long)o->n);
    if (st != TSR_OK) {
        tsr_eval_states_abort(o);
        return st;
    }
    st = tsr_safetensors_commit(o->file, err);
    free(o);
    return st;
}

void tsr_eval_states_abort(struct tsr_states_out *o)
{
    if (!o)
        return;
    (void)tsr_engine_set_hidden_tap(o->e, NULL, NULL, NULL); /* to end it cannot fail */
    tsr_safetensors_abort(o->file);
    free(o);
}

/* ---- reading ---------------------------------------------------------------------- */

struct tsr_states {
    struct tsr_safetensors               st;
    const struct tsr_safetensors_tensor *t;
    struct tsr_stream                   *head;
    float                               *rows; /* [AT_MOST, cols] */
    uint64_t                             cols, vocab;
};

static tsr_status open_parts(struct tsr_states *s, struct tsr_registry *r,
                             const struct tsr_model *m, const struct tsr_plugin_run_on *on,
                             uint64_t n, struct tsr_err *err)
{
    uint64_t longest = AT_MOST < m->hp.max_positions ? AT_MOST : m->hp.max_positions;
    s->t = tsr_safetensors_find(&s->st, NAME);
    s->cols = m->hp.hidden;
    s->vocab = m->hp.vocab;
    if (!s->t || s->t->dtype != TSR_F32 || s->t->rank != 2 || s->t->shape[0] != n ||
        s->t->shape[1] != s->cols)
        return tsr_fail(err, TSR_E_INPUT, "%s: does not have %llu hidden rows of %llu numbers",
                        s->st.file.path, (unsigned long long)n, (unsigned long long)s->cols);
    if (!(s->rows = tsr_new_aligned(AT_MOST, s->cols * sizeof *s->rows)))
        return tsr_fail_nomem(err, AT_MOST * s->cols * sizeof *s->rows, "hidden rows");
    return tsr_engine_stream_create(&s->head, r, m, longest, TSR_ACT_F32, on, err);
}

tsr_status tsr_eval_states_open(struct tsr_states **out, const char *path, struct tsr_registry *r,
                                const struct tsr_model *m, const struct tsr_plugin_run_on *on,
                                uint64_t n, struct tsr_err *err)
{
    struct tsr_states *s = tsr_new(1, sizeof *s);
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, path);
    tsr_status st = tsr_safetensors_open(&s->st, path, err);
    if (st != TSR_OK) {
        free(s);
        return st;
    }
    st = open_parts(s, r, m, on, n, err);
    if (st != TSR_OK) {
        tsr_eval_states_close(s);
        return st;
    }
    *out = s;
    return TSR_OK;
}

void tsr_eval_states_close(struct tsr_states *s)
{
    if (!s)
        return;
    tsr_engine_stream_destroy(s->head);
    tsr_safetensors_close(&s->st);
    free(s->rows);
    free(s);
}

uint64_t tsr_eval_states_vocab(const struct tsr_states *s)
{
    return s->vocab;
}

tsr_status tsr_eval_states_logits(struct tsr_states *s, uint64_t first, uint64_t n, float *logits,
                                  struct tsr_err *err)
{
    uint64_t row = s->cols * sizeof *s->rows;
    if (first > s->t->shape[0] || n > s->t->shape[0] - first)
        return tsr_fail(err, TSR_E_BUG, "hidden rows past the last of %llu",
                        (unsigned long long)s->t->shape[0]);
    for (uint64_t at = 0; at < n; at += AT_MOST) {
        uint64_t m = n - at < AT_MOST ? n - at : AT_MOST;
        TSR_TRY(tsr_safetensors_read_part(&s->st, s->t, (first + at) * row, m * row, s->rows, err));
        TSR_TRY(tsr_engine_stream_head(s->head, s->rows, m, logits + at * s->vocab, err));
    }
    return TSR_OK;
}
