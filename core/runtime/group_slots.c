/* Slot sets of a group, and the pieces of their batches that are under way until their results come. */
#include "base/mem.h"
#include "runtime/group_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

tsr_status tsr_runtime_group_slot_sets(struct tsr_runtime_group *c, struct tsr_err *err)
{
    const struct tsr_runtime_layout *l = c->plan.layout;
    pthread_condattr_t               a;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->changed, &a);
    (void)pthread_condattr_destroy(&a);
    c->n_slot_sets = tsr_runtime_layout_slot_sets(l);
    c->slot_sets = tsr_new(c->n_slot_sets, sizeof *c->slot_sets);
    c->length = tsr_new(l->slots, sizeof *c->length);
    c->empty = tsr_new(l->slots, sizeof *c->empty);
    c->keep = tsr_new(l->slots, sizeof *c->keep);
    c->number = tsr_new(l->replicas, sizeof *c->number);
    return c->slot_sets && c->length && c->empty && c->keep && c->number
               ? TSR_OK
               : tsr_fail_nomem(err, l->slots * sizeof *c->length, "slots");
}

void tsr_runtime_group_slot_sets_free(struct tsr_runtime_group *c)
{
    for (uint32_t i = 0; i < c->n_pieces; i++)
        free(c->pieces[i].row);
    free(c->pieces);
    free(c->slot_sets);
    free(c->length);
    free(c->empty);
    free(c->keep);
    free(c->number);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
}

tsr_status tsr_runtime_group_new_piece(struct tsr_runtime_group *c, uint32_t slot_set,
                                       uint32_t wanted, uint32_t *at, struct tsr_err *err)
{
    uint32_t i = 0;
    while (i < c->n_pieces && c->pieces[i].used)
        i++;
    if (i == c->n_pieces) {
        uint32_t                  n = c->n_pieces ? 2 * c->n_pieces : 16;
        struct tsr_runtime_piece *p = tsr_renew(c->pieces, n, sizeof *p);
        if (!p)
            return tsr_fail_nomem(err, n * sizeof *p, "micro-batches");
        memset(p + c->n_pieces, 0, (n - c->n_pieces) * sizeof *p);
        c->pieces = p;
        c->n_pieces = n;
    }
    uint32_t *row = tsr_new(wanted, sizeof *row);
    if (!row)
        return tsr_fail_nomem(err, wanted * sizeof *row, "micro-batches");
    c->pieces[i] = (struct tsr_runtime_piece){
        .used = true, .slot_set = slot_set, .wanted = wanted, .row = row
    };
    *at = i;
    return TSR_OK;
}

void tsr_runtime_group_deliver(void *ctx, struct tsr_runtime_micro_batch *b)
{
    struct tsr_runtime_group       *c = ctx;
    const struct tsr_runtime_frame *f = &b->head;
    uint64_t                        vocab = c->plan.limits.vocab;
    uint64_t                        none = 0;
    (void)atomic_compare_exchange_strong(&c->plan.page->first_result, &none, tsr_runtime_now_ns());
    (void)pthread_mutex_lock(&c->lock);
    struct tsr_runtime_piece *p = f->piece < c->n_pieces ? &c->pieces[f->piece] : NULL;
    if (!p || !p->used || p->wanted != f->wanted) {
        tsr_runtime_page_fail(c->plan.page, 0,
                              &(struct tsr_err_sent){
                                  TSR_E_DEVICE, .text = "a result came that nobody waits for" });
    } else {
        struct tsr_runtime_slot_set *l = &c->slot_sets[p->slot_set];
        for (uint32_t i = 0; f->status == TSR_OK && i < f->wanted; i++)
            memcpy(l->logits + p->row[i] * vocab, b->rows + i * vocab, vocab * sizeof *b->rows);
        if (f->status != TSR_OK && l->status == TSR_OK) {
            l->status = f->status;
            l->why = b->why;
        }
        l->open--;
        p->used = false;
        free(p->row);
        p->row = NULL;
    }
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    tsr_runtime_micro_batch_free(b);
}
