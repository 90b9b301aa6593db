/* A stored output head next to a flag that ties it to the embedding: the same numbers, or a head of its own. */
#include "base/log.h"
#include "base/mem.h"
#include "model/bind_internal.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(4) << 20) /* bytes of each tensor that are compared at a time */

static bool same_shape(const struct tsr_safetensors_tensor *x,
                       const struct tsr_safetensors_tensor *y)
{
    return x->rank == y->rank && memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0;
}

/* Of one shape and dtype; stops at the first difference. */
static tsr_status same_bytes(const struct tsr_model_binding     *b,
                             const struct tsr_checkpoint_stored *x,
                             const struct tsr_checkpoint_stored *y, bool *same)
{
    uint64_t       bytes = x->t->end - x->t->begin;
    unsigned char *buf = tsr_new(2, CHUNK);
    tsr_status     st = buf ? TSR_OK : tsr_fail_nomem(b->err, 2 * CHUNK, b->folder);
    *same = true;
    for (uint64_t at = 0; st == TSR_OK && *same && at < bytes;) {
        uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        st = tsr_safetensors_read_part(&b->shards->files[x->file], x->t, at, n, buf, b->err);
        if (st == TSR_OK)
            st = tsr_safetensors_read_part(&b->shards->files[y->file], y->t, at, n, buf + CHUNK,
                                           b->err);
        *same = st == TSR_OK && memcmp(buf, buf + CHUNK, n) == 0;
        at += n;
    }
    free(buf);
    return st;
}

tsr_status tsr_model_bind_own_head(struct tsr_model_binding *b, bool *own)
{
    struct tsr_checkpoint_stored *head, *embed;
    char                          name[TSR_BIND_NAME], other[TSR_BIND_NAME];
    bool                          same = false;
    *own = false;
    if (!b->config->hp.tied)
        return TSR_OK;
    tsr_model_bind_prefix(b);
    TSR_TRY(tsr_model_bind_find_part(b, TSR_MODEL_PART_HEAD, name, &head));
    TSR_TRY(tsr_model_bind_find_part(b, TSR_MODEL_PART_EMBED, other, &embed));
    if (!head)
        return TSR_OK;
    if (embed && !same_shape(head->t, embed->t))
        return TSR_OK; /* no head of this model: binding says what is wrong */
    if (embed && head->t->dtype == embed->t->dtype)
        TSR_TRY(same_bytes(b, head, embed, &same));
    *own = !same;
    if (*own)
        tsr_logf(
            TSR_LOG_INFO,
            "%s: \"%s\" differs from the embedding, to which %s ties the head; the stored head "
            "is used",
            tsr_checkpoint_shards_path(b->shards, head), name, b->says);
    return TSR_OK;
}
