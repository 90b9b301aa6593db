#include "comm/streams.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct key {
    uint32_t end, second, slice, source;
    uint64_t at; /* ORDER_PASS: the first row of a piece; ORDER_REQUIRED: the site */
};

struct stream {
    bool       used;
    struct key key;
    uint32_t   site; /* of its last message */
    uint64_t   rows, cols, bytes;
    void      *state;
};

struct tsr_comm_streams {
    const struct tsr_codec_stream_v1 *table;
    uint32_t                          order;
    struct stream                    *all; /* a hash table, at most half full */
    uint64_t                          n, cap, bytes;
};

/* ---- orders ------------------------------------------------------------ */

static const struct tsr_codec_stream_v1 *table_of(const struct tsr_codec_v1 *c, const void *self)
{
    return c->extension ? c->extension(self, TSR_CODEC_STREAM) : NULL;
}

tsr_status tsr_comm_codec_order(const struct tsr_codec_v1 *c, const void *self, uint32_t *order,
                                struct tsr_err *err)
{
    const struct tsr_codec_stream_v1 *t = table_of(c, self);
    *order = t ? t->order(self) : 0;
    if (t && *order != TSR_CODEC_ORDER_PASS && *order != TSR_CODEC_ORDER_REQUIRED)
        return tsr_fail(err, TSR_E_INVAL, "order() of its streams is %u; 1 or 2 is expected",
                        *order);
    return TSR_OK;
}

tsr_status tsr_comm_codec_stateless(const struct tsr_codec_v1 *c, const void *self,
                                    const char *where, struct tsr_err *err)
{
    uint32_t order;
    TSR_TRY(tsr_comm_codec_order(c, self, &order, err));
    return order ? tsr_fail(err, TSR_E_INPUT,
                            "it carries a state from one message to the next, and %s keeps none; "
                            "take a codec without a state",
                            where)
                 : TSR_OK;
}

/* ---- life -------------------------------------------------------------- */

struct tsr_comm_streams *tsr_comm_streams_new(const struct tsr_codec_stream_v1 *table,
                                              uint32_t                          order)
{
    struct tsr_comm_streams *s = tsr_new(1, sizeof *s);
    if (s)
        *s = (struct tsr_comm_streams){ .table = table, .order = order };
    return s;
}

void tsr_comm_streams_free(struct tsr_comm_streams *s)
{
    for (uint64_t i = 0; s && i < s->cap; i++)
        free(s->all[i].state);
    if (s)
        free(s->all);
    free(s);
}

uint64_t tsr_comm_streams_bytes(const struct tsr_comm_streams *s)
{
    return s ? s->bytes : 0;
}

/* ---- finding ----------------------------------------------------------- */

static uint64_t hash(const struct key *k)
{
    const uint64_t word[] = { (uint64_t)k->end << 32 | k->second,
                              (uint64_t)k->slice << 32 | k->source, k->at };
    uint64_t       h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        h = (h ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

static bool equal(const struct key *a, const struct key *b)
{
    return a->end == b->end && a->second == b->second && a->slice == b->slice &&
           a->source == b->source && a->at == b->at;
}

/* The place of the key, existing or new. */
static struct stream *place_of(struct stream *all, uint64_t cap, const struct key *k)
{
    uint64_t i = hash(k) & (cap - 1);
    while (all[i].used && !equal(&all[i].key, k))
        i = (i + 1) & (cap - 1);
    return &all[i];
}

static tsr_status grow(struct tsr_comm_streams *s, struct tsr_err *err)
{
    uint64_t cap = s->cap ? 2 * s->cap : 64;
    if (2 * (s->n + 1) <= s->cap)
        return TSR_OK;
    struct stream *more = tsr_new(cap, sizeof *more);
    if (!more)
        return tsr_fail_nomem(err, cap * sizeof *more, "the streams of a codec");
    for (uint64_t i = 0; i < s->cap; i++)
        if (s->all[i].used)
            *place_of(more, cap, &s->all[i].key) = s->all[i];
    free(s->all);
    s->all = more;
    s->cap = cap;
    return TSR_OK;
}

/* ---- states ------------------------------------------------------------ */

static tsr_status give_state(struct tsr_comm_streams *s, struct stream *t, const void *self,
                             uint32_t end, struct tsr_err *err)
{
    uint64_t bytes;
    TSR_TRY(s->table->state_bytes(self, end, t->rows, t->cols, &bytes, err));
    if (bytes != t->bytes) {
        free(t->state);
        s->bytes -= t->bytes;
        t->bytes = 0;
        t->state = bytes ? tsr_new_aligned(bytes, 1) : NULL;
        if (bytes && !t->state)
            return tsr_fail_nomem(err, bytes, "the state of a codec");
        t->bytes = bytes;
        s->bytes += bytes;
    }
    if (bytes)
        memset(t->state, 0, bytes);
    return TSR_OK;
}

tsr_status tsr_comm_streams_state(struct tsr_comm_streams *s, const void *self,
                                  const struct tsr_comm_message *m, uint32_t source, uint32_t end,
                                  void **state, struct tsr_err *err)
{
    bool       pass = s->order == TSR_CODEC_ORDER_PASS;
    struct key k = { end, m->second, m->slice, source, pass ? m->row : m->site };
    *state = NULL;
    TSR_TRY(grow(s, err));
    struct stream *t = place_of(s->all, s->cap, &k);
    bool           begins =
        !t->used || t->cols != m->cols || (pass && (t->rows != m->rows || m->site <= t->site));
    if (!t->used) {
        *t = (struct stream){ .used = true, .key = k };
        s->n++;
    }
    t->site = m->site;
    t->rows = m->rows;
    t->cols = m->cols;
    if (begins)
        TSR_TRY(give_state(s, t, self, end, err));
    *state = t->state;
    return TSR_OK;
}
