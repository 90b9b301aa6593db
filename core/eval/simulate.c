/* Ranks that are simulated: sums through a codec, and the codec's calibration. */
#include "eval/simulate.h"

#include "base/mem.h"
#include "comm/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tsr_tp {
    struct tsr_comm_coder   coder, exact; /* exact: while the codec is calibrated */
    bool                    observing, frozen;
    struct tsr_engine_split split;
    char                   *codec;
};

static tsr_status sum(void *ctx, uint32_t site, const float *const *partial, uint64_t rows,
                      uint64_t cols, float *out, struct tsr_err *err)
{
    struct tsr_tp *t = ctx;
    if (t->observing) {
        TSR_TRY(tsr_comm_sum_observe(&t->coder, site, partial, rows, cols, err));
        return tsr_comm_sum_simulated(&t->exact, site, partial, rows, cols, out, err);
    }
    return tsr_comm_sum_simulated(&t->coder, site, partial, rows, cols, out, err);
}

tsr_status tsr_eval_tp_open(struct tsr_tp **out, struct tsr_registry *r,
                            const struct tsr_eval_tp_options *o, struct tsr_err *err)
{
    const char         *codec = o->codec && *o->codec ? o->codec : "plain";
    struct tsr_comm_way way = {
        .codec = codec, .algorithm = o->algorithm, .states = o->states, .n_states = o->n_states
    };
    struct tsr_comm_way plain = { .algorithm = o->algorithm };
    if (o->ranks < 2 || o->ranks > TSR_ENGINE_SPLIT_MAX)
        return tsr_fail(err, TSR_E_INPUT, "%u ranks cannot be simulated; 2 to %u can", o->ranks,
                        TSR_ENGINE_SPLIT_MAX);
    struct tsr_tp *t = tsr_new(1, sizeof *t);
    if (!t || !(t->codec = tsr_strdup(codec))) {
        free(t);
        return tsr_fail_nomem(err, sizeof *t, "simulated ranks");
    }
    t->split = (struct tsr_engine_split){ .ranks = o->ranks, .sum = sum, .ctx = t };
    t->frozen = o->states != NULL;
    tsr_status st = tsr_comm_coder_open(&t->coder, r, &way, o->ranks, err);
    if (st == TSR_OK)
        st = tsr_comm_coder_open(&t->exact, r, &plain, o->ranks, err);
    if (st != TSR_OK) {
        tsr_eval_tp_close(t);
        return st;
    }
    *out = t;
    return TSR_OK;
}

void tsr_eval_tp_close(struct tsr_tp *t)
{
    if (!t)
        return;
    tsr_comm_coder_close(&t->coder);
    tsr_comm_coder_close(&t->exact);
    free(t->codec);
    free(t);
}

bool tsr_eval_tp_needs(const struct tsr_tp *t)
{
    return t->coder.iface->observe && !t->frozen;
}

/* ---- calibration ------------------------------------------------------------ */

static tsr_status run_sequences(struct tsr_engine *e, const uint32_t *ids, uint64_t sequences,
                                uint64_t seqlen, struct tsr_err *err)
{
    struct tsr_engine_token *tokens = tsr_new(seqlen, sizeof *tokens);
    float                   *logits = tsr_new(tsr_engine_vocab(e), sizeof *logits);
    tsr_status               st = TSR_OK;
    if (!tokens || !logits)
        st = tsr_fail_nomem(err, seqlen * sizeof *tokens, "a sequence");
    for (uint64_t s = 0; st == TSR_OK && s < sequences; s++) {
        for (uint64_t i = 0; i < seqlen; i++)
            tokens[i] =
                (struct tsr_engine_token){ .id = ids[s * seqlen + i], .logits = i + 1 == seqlen };
        tsr_engine_reset(e, 0);
        st = tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                                    : tsr_engine_forward(e, tokens, seqlen, logits, err);
        if (st != TSR_OK && st != TSR_E_CANCELLED)
            st = tsr_err_prefix(err, st, "sequence %llu of %llu", (unsigned long long)s + 1,
                                (unsigned long long)sequences);
    }
    free(tokens);
    free(logits);
    return st;
}

static tsr_status freeze(struct tsr_tp *t, struct tsr_err *err)
{
    uint64_t n = tsr_comm_instances(t->coder.algorithm, t->coder.ranks);
    for (uint64_t i = 0; i < n; i++)
        TSR_TRY(t->coder.iface->freeze(t->coder.self[i], err));
    t->frozen = true;
    return TSR_OK;
}

tsr_status tsr_eval_tp_calibrate(struct tsr_tp *t, struct tsr_registry *r,
                                 const struct tsr_model *m, const struct tsr_model_overlay *o,
                                 const struct tsr_engine_options *eo, const uint32_t *ids,
                                 uint64_t sequences, uint64_t seqlen, struct tsr_err *err)
{
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options own = *eo;
    if (!tsr_eval_tp_needs(t))
        return tsr_fail(err, TSR_E_INPUT, "codec '%s' has no calibration, or has it already",
                        t->codec);
    if (sequences == 0 || seqlen == 0)
        return tsr_fail(err, TSR_E_INPUT, "codec '%s': no text to calibrate on", t->codec);
    own.slots = 1;
    own.context = own.chunk = seqlen; /* one pass: each observed batch is one sequence */
    own.split = &t->split;
    TSR_TRY(tsr_engine_create(&e, r, m, o, &own, err));
    t->observing = true;
    tsr_status st = run_sequences(e, ids, sequences, seqlen, err);
    t->observing = false;
    tsr_engine_destroy(e);
    if (st == TSR_OK)
        st = freeze(t, err);
    return st == TSR_OK ? st : tsr_err_prefix(err, st, "calibrating codec '%s'", t->codec);
}

tsr_status tsr_eval_tp_save(const struct tsr_tp *t, struct tsr_comm_state **states, uint64_t *n,
                            struct tsr_err *err)
{
    const struct tsr_codec_v1 *c = t->coder.iface;
    *n = tsr_comm_instances(t->coder.algorithm, t->coder.ranks);
    *states = tsr_new(*n, sizeof **states);
    tsr_status st = *states ? TSR_OK : tsr_fail_nomem(err, *n * sizeof **states, "codec states");
    for (uint64_t i = 0; st == TSR_OK && i < *n; i++) {
        struct tsr_comm_state *s = &(*states)[i];
        void                  *data = NULL;
        s->bytes = c->state_bytes(t->coder.self[i]);
        s->data = data = tsr_new_aligned(s->bytes, 1);
        st = data ? c->save(t->coder.self[i], data, err)
                  : tsr_fail_nomem(err, s->bytes, "a codec's state");
    }
    if (st != TSR_OK) {
        tsr_eval_tp_states_free(*states, *n);
        *states = NULL;
    }
    return st;
}

void tsr_eval_tp_states_free(struct tsr_comm_state *states, uint64_t n)
{
    for (uint64_t i = 0; states && i < n; i++)
        free((void *)(uintptr_t)states[i].data);
    free(states);
}

/* ---- description ---------------------------------------------------------------- */

const struct tsr_engine_split *tsr_eval_tp_split(const struct tsr_tp *t)
{
    return &t->split;
}

const char *tsr_eval_tp_codec(const struct tsr_tp *t)
{
    return t->codec;
}

uint32_t tsr_eval_tp_ranks(const struct tsr_tp *t)
{
    return t->split.ranks;
}

const char *tsr_eval_tp_algorithm(const struct tsr_tp *t)
{
    return tsr_comm_algorithm_name(t->coder.algorithm);
}

bool tsr_eval_tp_exact(const struct tsr_tp *t)
{
    return tsr_comm_coder_exact(&t->coder);
}

tsr_status tsr_eval_tp_any_order(const struct tsr_tp *t, const char *what, struct tsr_err *err)
{
    return tsr_comm_coder_ordered(&t->coder)
               ? tsr_fail(
                     err, TSR_E_INPUT,
                     "codec '%s' requires the order of messages (order: required), and %s share "
                     "prompts; measure it on a text",
                     t->codec, what)
               : TSR_OK;
}

uint64_t tsr_eval_tp_state_bytes(const struct tsr_tp *t)
{
    return tsr_comm_streams_bytes(t->coder.streams);
}

double tsr_eval_tp_bits(const struct tsr_tp *t, uint64_t rows, uint64_t cols)
{
    uint64_t bytes, first = 0, end = cols;
    uint32_t slice = 0;
    if (t->coder.algorithm == TSR_COMM_TWO_STEP)
        do
            tsr_comm_slice(cols, t->split.ranks, slice++, &first, &end);
        while (first == end && slice < t->split.ranks);
    if (rows == 0 || end == first ||
        tsr_comm_wire_bytes(&t->coder, false, slice ? slice - 1 : 0, rows, end - first, &bytes,
                            NULL) != TSR_OK)
        return NAN;
    return 8.0 * (double)bytes / ((double)rows * (double)(end - first));
}
