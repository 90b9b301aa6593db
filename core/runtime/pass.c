/* The coordinator's side of a forward pass: a slot set's batch becomes micro-batches, logits come back. */
#include "base/mem.h"
#include "batch/watch.h"
#include "engine/serve.h"
#include "plan/cost/device.h"
#include "runtime/group_internal.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_NS 20000000 /* between checks of the ranks while waiting for a result */

/* ---- places of slots ------------------------------------------------------- */

static uint32_t replica_of(const struct tsr_runtime_group *c, uint32_t slot_set)
{
    return slot_set % c->plan.layout->replicas;
}

/* The slot in the engines of its replica. Slot sets are dealt to the replicas in turn; their number is a
 * multiple of the replicas' or equals the slots', so that slots are dealt in the same way. */
static uint32_t inner_slot(const struct tsr_runtime_group *c, uint32_t slot)
{
    return slot / c->plan.layout->replicas;
}

/* ---- cutting --------------------------------------------------------------- */

/* Tokens of one sequence in a slot set's batch. */
struct run {
    uint64_t first, n, done;
};

struct cutter {
    struct tsr_runtime_group      *c;
    uint32_t                       slot_set;
    enum tsr_phase                 phase;
    const struct tsr_engine_token *tokens;
    uint64_t                       n;
    uint32_t                      *row; /* [n]: logits row of each token that requests them */
    struct run                    *runs;
    uint64_t                       n_runs;
};

static tsr_status new_batch(struct cutter *k, uint64_t tokens, struct tsr_runtime_micro_batch **out,
                            struct tsr_err *err)
{
    struct tsr_runtime_group *c = k->c;
    uint32_t                  resets = 0, at = 0, slots = c->plan.layout->slots;
    for (uint32_t s = k->slot_set; s < slots; s += c->n_slot_sets)
        resets += c->empty[s];
    struct tsr_runtime_micro_batch *b = tsr_new(1, sizeof *b);
    if (!b)
        return tsr_fail_nomem(err, sizeof *b, "a micro-batch");
    tsr_runtime_frame_make(&b->head, TSR_RUNTIME_FRAME_WORK);
    b->head.phase = k->phase;
    b->head.tokens = (uint32_t)tokens;
    b->head.resets = resets;
    b->head.number = c->number[replica_of(c, k->slot_set)]++;
    b->head.slot_set = k->slot_set / c->plan.layout->replicas;
    tsr_status st = tsr_runtime_micro_batch_reserve(b, &c->plan.limits, false, false, err);
    if (st != TSR_OK) {
        tsr_runtime_micro_batch_free(b);
        return st;
    }
    for (uint32_t s = k->slot_set; s < slots; s += c->n_slot_sets)
        if (c->empty[s]) {
            b->reset[at++] = (struct tsr_runtime_reset){ inner_slot(c, s), c->keep[s] };
            c->empty[s] = false;
        }
    *out = b;
    return TSR_OK;
}

/* Tokens of run i's sequence after the next m of its own: in this batch, and in later ones. */
static uint32_t tokens_after(const struct cutter *k, uint64_t i, uint64_t m)
{
    const struct run *r = &k->runs[i], *last = r;
    uint64_t          n = r->n - r->done - m;
    for (uint64_t j = i + 1; j < k->n_runs; j++)
        if (k->tokens[k->runs[j].first].slot == k->tokens[r->first].slot) {
            last = &k->runs[j];
            n += last->n;
        }
    return (uint32_t)n + k->tokens[last->first + last->n - 1].ahead;
}

/* Sends up to `chunk` tokens of each of the runs [first, end). */
static tsr_status send_piece(struct cutter *k, uint64_t first, uint64_t end, uint64_t chunk,
                             struct tsr_err *err)
{
    struct tsr_runtime_group       *c = k->c;
    struct tsr_runtime_micro_batch *b = NULL;
    uint64_t                        n = 0;
    uint32_t                        wanted = 0, piece = 0, at = 0;
    for (uint64_t i = first; i < end; i++) {
        uint64_t left = k->runs[i].n - k->runs[i].done;
        n += left < chunk ? left : chunk;
    }
    TSR_TRY(new_batch(k, n, &b, err));
    for (uint64_t i = first, to = 0; i < end; i++) {
        struct run *r = &k->runs[i];
        uint64_t    m = r->n - r->done < chunk ? r->n - r->done : chunk;
        uint32_t    after = tokens_after(k, i, m);
        for (uint64_t j = 0; j < m; j++, to++) {
            b->token[to] = k->tokens[r->first + r->done + j];
            b->token[to].ahead = after;
            wanted += b->token[to].logits;
        }
    }
    b->head.wanted = wanted;
    (void)pthread_mutex_lock(&c->lock);
    tsr_status st =
        wanted ? tsr_runtime_group_new_piece(c, k->slot_set, wanted, &piece, err) : TSR_OK;
    if (st == TSR_OK && wanted)
        c->slot_sets[k->slot_set].open++;
    for (uint64_t i = first; i < end; i++) {
        struct run *r = &k->runs[i];
        uint64_t    m = r->n - r->done < chunk ? r->n - r->done : chunk;
        for (uint64_t j = 0; st == TSR_OK && j < m; j++)
            if (k->tokens[r->first + r->done + j].logits)
                c->pieces[piece].row[at++] = k->row[r->first + r->done + j];
        r->done += m;
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (st != TSR_OK) {
        tsr_runtime_micro_batch_free(b);
        return st;
    }
    b->head.piece = piece;
    for (uint64_t i = 0; i < n; i++) {
        c->length[b->token[i].slot]++;
        b->token[i].slot = inner_slot(c, b->token[i].slot);
    }
    tsr_runtime_queue_put(tsr_runtime_group_entry(c, replica_of(c, k->slot_set)), b);
    return TSR_OK;
}

/* Groups of `group` sequences, each in chunks until all its tokens are sent. */
static tsr_status send_runs(struct cutter *k, uint64_t group, uint64_t chunk, struct tsr_err *err)
{
    for (uint64_t first = 0; first < k->n_runs; first += group) {
        uint64_t end = first + group < k->n_runs ? first + group : k->n_runs;
        for (bool more = true; more;) {
            TSR_TRY(send_piece(k, first, end, chunk, err));
            more = false;
            for (uint64_t i = first; i < end; i++)
                more = more || k->runs[i].done < k->runs[i].n;
        }
    }
    return TSR_OK;
}

static tsr_status check_tokens(const struct tsr_runtime_group *c, uint32_t slot_set,
                               const struct tsr_engine_token *tokens, uint64_t n,
                               struct tsr_err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        if (tokens[i].slot >= c->plan.layout->slots || tokens[i].slot % c->n_slot_sets != slot_set)
            return tsr_fail(err, TSR_E_INVAL, "slot %u is not of slot set %u", tokens[i].slot,
                            slot_set);
        if (tokens[i].id >= c->plan.limits.vocab)
            return tsr_fail(err, TSR_E_INPUT,
                            "token id %u is outside the vocabulary of %llu (ids 0 to %llu)",
                            tokens[i].id, (unsigned long long)c->plan.limits.vocab,
                            (unsigned long long)c->plan.limits.vocab - 1);
    }
    return TSR_OK;
}

/* Sequences of the batch, and the logits row of each token. Tokens of a slot that appear in several places
 * go one by one, in order. */
static void find_runs(struct cutter *k)
{
    uint32_t row = 0;
    for (uint64_t i = 0; i < k->n; i++) {
        k->row[i] = row;
        row += k->tokens[i].logits;
        if (i == 0 || k->tokens[i].slot != k->tokens[i - 1].slot)
            k->runs[k->n_runs++] = (struct run){ .first = i };
        k->runs[k->n_runs - 1].n++;
    }
}

static bool each_once(const struct cutter *k)
{
    for (uint64_t i = 0; i < k->n_runs; i++)
        for (uint64_t j = 0; j < i; j++)
            if (k->tokens[k->runs[i].first].slot == k->tokens[k->runs[j].first].slot)
                return false;
    return true;
}

static tsr_status cut_and_send(struct cutter *k, struct tsr_err *err)
{
    const struct tsr_runtime_layout *l = k->c->plan.layout;
    uint64_t                         most = k->c->plan.limits.tokens;
    find_runs(k);
    k->phase = k->c->length[k->tokens[0].slot] == 0 ||
                       !k->tokens[0].decode /* the next piece of a prompt */
                   ? TSR_PLAN_PREFILL
                   : TSR_PLAN_DECODE;
    uint64_t group = each_once(k) ? k->phase == TSR_PLAN_PREFILL ? l->prefill_mb : l->decode_mb : 1;
    uint64_t chunk = l->chunk ? l->chunk : UINT64_MAX;
    if (group > most)
        group = most;
    group = group ? group : 1;
    return send_runs(k, group, chunk < most / group ? chunk : most / group, err);
}

static tsr_status start(void *ctx, uint32_t slot_set, const struct tsr_engine_token *tokens,
                        uint64_t n, float *logits, struct tsr_err *err)
{
    struct tsr_runtime_group *c = ctx;
    struct cutter             k = { .c = c, .slot_set = slot_set, .tokens = tokens, .n = n };
    if (slot_set >= c->n_slot_sets || n == 0)
        return tsr_fail(err, TSR_E_INVAL, "slot set %u of %u, or a batch without tokens", slot_set,
                        c->n_slot_sets);
    TSR_TRY(check_tokens(c, slot_set, tokens, n, err));
    TSR_TRY(tsr_runtime_group_check(c, err));
    uint64_t none = 0;
    (void)atomic_compare_exchange_strong(&c->plan.page->first_start, &none, tsr_runtime_now_ns());
    struct tsr_runtime_slot_set *l = &c->slot_sets[slot_set];
    (void)pthread_mutex_lock(&c->lock);
    l->logits = logits;
    l->status = TSR_OK;
    (void)pthread_mutex_unlock(&c->lock);
    k.row = tsr_new(n, sizeof *k.row);
    k.runs = tsr_new(n, sizeof *k.runs);
    tsr_status st = k.row && k.runs ? cut_and_send(&k, err)
                                    : tsr_fail_nomem(err, n * sizeof *k.runs, "a batch");
    free(k.row);
    free(k.runs);
    return st;
}

static tsr_status finish(void *ctx, uint32_t slot_set, struct tsr_err *err)
{
    struct tsr_runtime_group    *c = ctx;
    struct tsr_runtime_slot_set *l = &c->slot_sets[slot_set];
    tsr_status                   st = TSR_OK;
    uint64_t                     handed = tsr_runtime_now_ns(); /* at the latest */
    (void)pthread_mutex_lock(&c->lock);
    while (l->open > 0 && st == TSR_OK) {
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += LOOK_NS;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &t);
        if (l->open > 0) {
            (void)pthread_mutex_unlock(&c->lock);
            st = tsr_runtime_group_check_work(c, handed, err);
            if (st == TSR_OK && c->plan.peers &&
                tsr_plugin_cancelled()) /* ranks end by themselves */
                st = tsr_fail(err, TSR_E_CANCELLED, "interrupted");
            tsr_batch_watch_beat(); /* for the supervisor of this process: this process watches
                                     * the ranks */
            (void)pthread_mutex_lock(&c->lock);
        }
    }
    if (st == TSR_OK && l->status != TSR_OK)
        st = tsr_err_arrive(err, &l->why, "");
    (void)pthread_mutex_unlock(&c->lock);
    return st;
}

static void reset(void *ctx, uint32_t slot)
{
    struct tsr_runtime_group *c = ctx;
    if (slot >= c->plan.layout->slots)
        return;
    c->empty[slot] = true;
    c->keep[slot] = 0;
    c->length[slot] = 0;
}

/* The ranks go back with the slot's next micro-batch. */
static uint64_t rewind_slot(void *ctx, uint32_t slot, uint64_t length)
{
    struct tsr_runtime_group *c = ctx;
    if (slot >= c->plan.layout->slots || length > c->length[slot])
        return 0;
    if (length < c->length[slot]) {
        c->empty[slot] = true;
        c->keep[slot] = (uint32_t)length;
        c->length[slot] = length;
    }
    return length;
}

static struct tsr_engine_options options_of(const struct tsr_runtime_group_plan *plan)
{
    return (struct tsr_engine_options){ .on = plan->on,
                                        .kv_dtype = plan->kv_dtype,
                                        .kv_layers = plan->kv_layers };
}

tsr_status tsr_runtime_group_pass_reuse(const struct tsr_runtime_group *c,
                                        struct tsr_engine_pass *p, const char **why,
                                        struct tsr_err *err)
{
    const struct tsr_runtime_group_plan *plan = &c->plan;
    const struct tsr_engine_options      o = options_of(plan);
    if (!tsr_engine_reuses(&plan->model->hp, &o, why))
        return TSR_OK;
    TSR_TRY(tsr_engine_goes_back(&plan->model->hp, &o, why, err));
    if (*why)
        return TSR_OK;
    p->keeps = true;
    p->prompts = plan->compensate != NULL;
    return TSR_OK;
}

/* Ranks go back with the next micro-batch, and cannot say then that they keep less. */
tsr_status tsr_runtime_group_drafts(const struct tsr_runtime_group *c, const char **why,
                                    struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &c->plan.model->hp;
    const struct tsr_engine_options o = options_of(&c->plan);
    bool                            blocks = false;
    if (!tsr_engine_drafts(hp, &o, why))
        return TSR_OK;
    TSR_TRY(tsr_engine_has_blocks(hp->layers, &o, &blocks, err));
    *why = blocks ? "keys or values are in blocks, which ranks do not go back into" : NULL;
    return TSR_OK;
}

void tsr_runtime_group_pass(struct tsr_runtime_group *c, struct tsr_engine_pass *p)
{
    *p = (struct tsr_engine_pass){ .ctx = c,
                                   .slots = c->plan.layout->slots,
                                   .slot_sets = c->n_slot_sets,
                                   .context = c->plan.context,
                                   .vocab = c->plan.limits.vocab,
                                   .start = start,
                                   .finish = finish,
                                   .reset = reset,
                                   .rewind = rewind_slot,
                                   .hp = &c->plan.model->hp,
                                   .pool = tsr_plugin_registry_pool(c->plan.registry) };
}
