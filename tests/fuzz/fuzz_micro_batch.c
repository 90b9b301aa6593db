/* Heads and bodies of micro-batches: what is accepted names tokens and slots that there are, and comes out
 * of pack as it went into unpack. */
#include "runtime/frame.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void accepted(struct tsr_runtime_micro_batch *p, const struct tsr_runtime_frame_limits *l,
                     const uint8_t *body, uint64_t bytes)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint32_t          wanted = 0;
    for (uint32_t i = 0; p->head.kind == TSR_RUNTIME_FRAME_WORK && i < p->head.tokens; i++) {
        must(p->token[i].id < l->vocab && p->token[i].slot < l->slots);
        wanted += p->token[i].logits;
    }
    for (uint32_t i = 0; p->head.kind == TSR_RUNTIME_FRAME_WORK && i < p->head.resets; i++)
        must(p->reset[i].slot < l->slots);
    must(p->head.kind != TSR_RUNTIME_FRAME_WORK || wanted == p->head.wanted);
    bool answers =
        p->head.kind == TSR_RUNTIME_FRAME_RESULT || p->head.kind == TSR_RUNTIME_FRAME_BACK;
    if (answers && p->head.status != TSR_OK)
        must(strlen(p->why.text) < sizeof p->why.text);
    else {
        memset(p->body, 0xa5, bytes);
        must(tsr_runtime_micro_batch_pack(p, &e.err) == TSR_OK);
        must(memcmp(p->body, body, bytes) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tsr_runtime_frame_limits l = {
        .tokens = 64, .slots = 8, .hidden = 16, .vocab = 1000
    };
    struct tsr_errbuf               e = TSR_ERRBUF(e);
    struct tsr_runtime_micro_batch *p = calloc(1, sizeof *p);
    if (!p || size < sizeof p->head) {
        free(p);
        return 0;
    }
    memcpy(&p->head, data, sizeof p->head);
    tsr_status st = tsr_runtime_frame_check(&p->head, &l, &e.err);
    must(st == TSR_OK || (st == TSR_E_DEVICE && e.text[0] != '\0'));
    uint64_t body = st == TSR_OK ? tsr_runtime_frame_body(&p->head) : 0;
    if (st == TSR_OK && body <= size - sizeof p->head) {
        must(tsr_runtime_micro_batch_reserve(p, &l, true, true, &e.err) == TSR_OK);
        if (body)
            memcpy(p->body, data + sizeof p->head, body);
        st = tsr_runtime_micro_batch_unpack(p, &l, &e.err);
        must(st == TSR_OK || (st == TSR_E_DEVICE && e.text[0] != '\0'));
        if (st == TSR_OK && body)
            accepted(p, &l, data + sizeof p->head, body);
    }
    tsr_runtime_micro_batch_free(p);
    return 0;
}
