/* Heads and bodies of micro-batches. */
#include "runtime/frame.h"

#include "base/mem.h"
#include "plan/cost/device.h"

#include <stdlib.h>
#include <string.h>

#define RESET     sizeof(struct tsr_runtime_reset)
#define MAGIC     0x31525354u /* "TSR1" */
#define WANTS     0x80000000u /* in the slot's word: the token's logits are requested */
#define GENERATED 0x40000000u /* there too: tsr_engine_token.decode */
#define TOKEN     12u         /* id, slot, tsr_engine_token.ahead */
#define MAX_SLOTS 0x3fffffffu

void tsr_runtime_frame_make(struct tsr_runtime_frame *f, enum tsr_frame_kind kind)
{
    memset(f, 0, sizeof *f);
    f->magic = MAGIC;
    f->kind = (uint32_t)kind;
}

tsr_status tsr_runtime_frame_check(const struct tsr_runtime_frame        *f,
                                   const struct tsr_runtime_frame_limits *l, struct tsr_err *err)
{
    const char *what = NULL;
    if (f->magic != MAGIC)
        what = "begins with other bytes";
    else if (f->kind < TSR_RUNTIME_FRAME_WORK || f->kind > TSR_RUNTIME_FRAME_BACK)
        what = "is of no known kind";
    else if (f->phase > TSR_PLAN_DECODE)
        what = "has no known phase";
    else if (f->tokens > l->tokens || f->wanted > f->tokens)
        what = "has more tokens or logits than a micro-batch may";
    else if (f->resets > l->slots || f->slot_set >= l->slots)
        what = "names more slots or slot sets than there are";
    else if (f->kind == TSR_RUNTIME_FRAME_WORK && f->tokens == 0)
        what = "has no tokens";
    if (what)
        return tsr_fail(err, TSR_E_DEVICE,
                        "the head of a micro-batch %s: the ranks do not run the same program",
                        what);
    return TSR_OK;
}

/* Only the rows of the requested tokens, or the reason for their absence. */
static bool answers(const struct tsr_runtime_frame *f)
{
    return f->kind == TSR_RUNTIME_FRAME_RESULT || f->kind == TSR_RUNTIME_FRAME_BACK;
}

uint64_t tsr_runtime_frame_body(const struct tsr_runtime_frame *f)
{
    if (answers(f))
        return f->status == TSR_OK ? 0 : sizeof(struct tsr_err_sent);
    return f->kind == TSR_RUNTIME_FRAME_WORK
               ? (uint64_t)f->tokens * TOKEN + (uint64_t)f->resets * RESET
               : 0;
}

/* Grows *p to n elements; discards the content. */
static bool grow(void *p, uint64_t *cap, uint64_t n, uint64_t size)
{
    void *v;
    if (n <= *cap)
        return true;
    memcpy(&v, p, sizeof v);
    free(v);
    v = tsr_new_aligned(n, size);
    memcpy(p, &v, sizeof v);
    *cap = v ? n : 0;
    return v != NULL;
}

tsr_status tsr_runtime_micro_batch_reserve(struct tsr_runtime_micro_batch        *b,
                                           const struct tsr_runtime_frame_limits *l, bool rows,
                                           bool logits, struct tsr_err *err)
{
    const struct tsr_runtime_frame *f = &b->head;
    uint64_t                        n = 0, m = 0;
    bool                            logit = f->kind == TSR_RUNTIME_FRAME_RESULT;
    if (rows && !tsr_mul(answers(f) ? f->wanted : f->tokens, logit ? l->vocab : l->hidden, &n))
        return tsr_fail_nomem(err, UINT64_MAX, "rows of a micro-batch");
    if (logits && !tsr_mul(f->wanted, l->vocab, &m))
        return tsr_fail_nomem(err, UINT64_MAX, "logits of a micro-batch");
    if (!grow(&b->token, &b->cap_token, f->tokens, sizeof *b->token) ||
        !grow(&b->reset, &b->cap_reset, f->resets, sizeof *b->reset) ||
        !grow(&b->rows, &b->cap_rows, n, sizeof *b->rows) ||
        !grow(&b->logits, &b->cap_logits, m, sizeof *b->logits) ||
        !grow(&b->body, &b->cap_body, tsr_runtime_frame_body(f), 1))
        return tsr_fail_nomem(err, (n + m) * sizeof(float), "a micro-batch");
    return TSR_OK;
}

tsr_status tsr_runtime_micro_batch_pack(struct tsr_runtime_micro_batch *b, struct tsr_err *err)
{
    unsigned char *at;
    if (!grow(&b->body, &b->cap_body, tsr_runtime_frame_body(&b->head), 1))
        return tsr_fail_nomem(err, tsr_runtime_frame_body(&b->head), "a micro-batch");
    at = b->body;
    if (answers(&b->head) && b->head.status != TSR_OK)
        memcpy(at, &b->why, sizeof b->why);
    if (b->head.kind != TSR_RUNTIME_FRAME_WORK)
        return TSR_OK;
    for (uint32_t i = 0; i < b->head.tokens; i++, at += TOKEN) {
        uint32_t slot = b->token[i].slot | (b->token[i].logits ? WANTS : 0) |
                        (b->token[i].decode ? GENERATED : 0);
        memcpy(at, &b->token[i].id, 4);
        memcpy(at + 4, &slot, 4);
        memcpy(at + 8, &b->token[i].ahead, 4);
    }
    if (b->head.resets)
        memcpy(at, b->reset, (size_t)b->head.resets * RESET);
    return TSR_OK;
}

tsr_status tsr_runtime_micro_batch_unpack(struct tsr_runtime_micro_batch        *b,
                                          const struct tsr_runtime_frame_limits *l,
                                          struct tsr_err                        *err)
{
    const unsigned char *at = b->body;
    uint32_t             wanted = 0;
    if (answers(&b->head) && b->head.status != TSR_OK) {
        memcpy(&b->why, at, sizeof b->why);
        b->why.text[sizeof b->why.text - 1] = '\0';
        b->why.status = b->head.status;
    }
    if (b->head.kind != TSR_RUNTIME_FRAME_WORK)
        return TSR_OK;
    bool sound = true;
    for (uint32_t i = 0; i < b->head.tokens; i++, at += TOKEN) {
        uint32_t slot;
        memcpy(&b->token[i].id, at, 4);
        memcpy(&slot, at + 4, 4);
        memcpy(&b->token[i].ahead, at + 8, 4);
        b->token[i].logits = (slot & WANTS) != 0;
        b->token[i].decode = (slot & GENERATED) != 0;
        b->token[i].slot = slot & MAX_SLOTS;
        wanted += b->token[i].logits;
        sound = sound && b->token[i].slot < l->slots && b->token[i].id < l->vocab;
    }
    for (uint32_t i = 0; i < b->head.resets; i++, at += RESET) {
        memcpy(&b->reset[i], at, RESET);
        sound = sound && b->reset[i].slot < l->slots;
    }
    if (!sound || wanted != b->head.wanted)
        return tsr_fail(err, TSR_E_DEVICE,
                        "a micro-batch names tokens or slots that do not exist: the ranks do not "
                        "run the same program");
    return TSR_OK;
}

tsr_status tsr_runtime_micro_batch_copy(struct tsr_runtime_micro_batch        *to,
                                        const struct tsr_runtime_micro_batch  *from,
                                        const struct tsr_runtime_frame_limits *l,
                                        struct tsr_err                        *err)
{
    to->head = from->head;
    TSR_TRY(tsr_runtime_micro_batch_reserve(to, l, false, false, err));
    if (from->head.tokens)
        memcpy(to->token, from->token, from->head.tokens * sizeof *to->token);
    if (from->head.resets)
        memcpy(to->reset, from->reset, from->head.resets * sizeof *to->reset);
    to->why = from->why;
    return TSR_OK;
}

void tsr_runtime_micro_batch_free(struct tsr_runtime_micro_batch *b)
{
    if (!b)
        return;
    free(b->token);
    free(b->reset);
    free(b->rows);
    free(b->logits);
    free(b->body);
    free(b);
}
