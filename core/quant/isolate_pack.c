/* The linears of one input, packed in one child. */
#include "quant/isolate_internal.h"
#include "quant/matrix.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Of one item; its bytes follow all items. */
struct slot {
    uint64_t   at, codes, meta, dense; /* the host's: bytes from there, in this order */
    uint64_t   dense_at;               /* from there; a multiple of 64 */
    uint32_t   done;
    tsr_status status;
    double     seconds, squared_error;
    struct tsr_model_pack_report report;
    struct tsr_errbuf            said;
};

struct shared {
    struct isolated_head head;
    struct slot          slots[];
};

struct pack {
    struct tsr_registry          *registry;
    const struct tsr_quant_stats *stats;
    struct tsr_quant_pack_item   *items;
    uint64_t                      n, bytes;
    struct shared                *shared;
};

/* The matrix that the plan describes: only parts with fewer columns have their own plan. */
static const struct tsr_matrix *shape_of(const struct tsr_quant_pack_item *it)
{
    return it->part && it->part->cols == it->whole->cols ? it->whole : it->w;
}

/* ---- the child -------------------------------------------------------------- */

static tsr_status put(const struct tsr_quantizer *q, const struct tsr_quant_pack_item *it,
                      const struct shared *shared, struct slot *s, const struct tsr_model_packed *p,
                      struct tsr_err *err)
{
    struct quant_bytes b;
    unsigned char     *to = (unsigned char *)(uintptr_t)shared + s->at;
    TSR_TRY(quant_bytes(q, shape_of(it), it->w, &b, err));
    if (b.codes != s->codes || b.meta != s->meta || b.dense != s->dense ||
        (p->own.unit != 0) != (s->dense != 0))
        return tsr_fail(err, TSR_E_PLUGIN,
                        "its plan for '%s' is another one than it was; this is the fault of the "
                        "plugin",
                        it->w->name);
    memcpy(to, p->codes, s->codes);
    memcpy(to + s->codes, p->meta, s->meta);
    if (s->dense) /* the host does not call this quantizer, and compares these with the weights */
        TSR_TRY(quant_decode(q, p, b.scratch, (float *)(void *)(to + s->dense_at), err));
    s->report = p->report;
    s->squared_error = p->squared_error;
    return TSR_OK;
}

static tsr_status pack_one(const struct pack *k, const struct tsr_quantizer *q,
                           const struct tsr_quant_pack_item *it, struct slot *s,
                           const void *prepared)
{
    struct tsr_err          *err = &s->said.err;
    struct tsr_model_packed *p = NULL;
    double                   start = tsr_now_s();
    s->said = (struct tsr_errbuf)TSR_ERRBUF(s->said);
    tsr_status st = it->part
                        ? tsr_quantize_part(k->registry, q, it->whole, it->part, it->w, &p, err)
                        : tsr_quantize_prepared(k->registry, q, it->w, k->stats, prepared, &p, err);
    if (st == TSR_OK)
        st = tsr_err_prefix(err, put(q, it, k->shared, s, p, err), "quantizer '%s'", q->name);
    tsr_model_packed_destroy(p);
    s->seconds = tsr_now_s() - start;
    s->status = st;
    s->done = 1;
    return st;
}

static tsr_status pack_all(struct tsr_quant_isolated *x, const struct tsr_quantizer *q,
                           struct isolated_head *head, void *arg, struct tsr_err *err)
{
    const struct pack *k = arg;
    void              *prepared = NULL;
    tsr_status         st = TSR_OK;
    (void)x;
    if (k->stats && q->iface->prepare) {
        isolated_at(head, ISOLATED_PREPARE, k->items[0].w->name);
        TSR_TRY(q->iface->prepare(q->self, k->stats, &prepared, err));
    }
    for (uint64_t i = 0; i < k->n && (st == TSR_OK || st == TSR_E_UNSUPPORTED); i++) {
        isolated_at(head, ISOLATED_QUANTIZE, k->items[i].w->name);
        st = pack_one(k, q, &k->items[i], &k->shared->slots[i], prepared);
    }
    if (prepared && q->iface->unprepare)
        q->iface->unprepare(q->self, prepared);
    return TSR_OK; /* each has a separate status */
}

/* ---- the host ---------------------------------------------------------------- */

/* Room for what each becomes, by plans that are checked; an item that has none keeps the reason. */
static tsr_status make_room(struct pack *k, const struct tsr_quantizer *q, struct tsr_err *err)
{
    uint64_t     bytes = sizeof *k->shared;
    struct slot *s = tsr_new(k->n, sizeof *s);
    tsr_status   st = s ? TSR_OK : tsr_fail_nomem(err, k->n * sizeof *s, "packed weights");
    if (!tsr_add(bytes, k->n * sizeof *s, &bytes))
        st = tsr_fail_nomem(err, UINT64_MAX, "packed weights");
    for (uint64_t i = 0; i < k->n && st == TSR_OK; i++) {
        struct tsr_quant_pack_item *it = &k->items[i];
        struct quant_bytes          b = { 0 };
        it->why = (struct tsr_errbuf)TSR_ERRBUF(it->why);
        it->status = quant_bytes(q, shape_of(it), it->w, &b, &it->why.err);
        bytes = (bytes + 63) / 64 * 64;
        s[i] = (struct slot){ .at = bytes, .codes = b.codes, .meta = b.meta, .dense = b.dense };
        if (!tsr_add(bytes, b.codes, &bytes) || !tsr_add(bytes, b.meta, &bytes) ||
            !tsr_add(bytes, 63, &bytes))
            st = tsr_fail_nomem(err, UINT64_MAX, it->w->name);
        bytes = bytes / 64 * 64;
        s[i].dense_at = bytes - s[i].at;
        if (!tsr_add(bytes, b.dense, &bytes))
            st = tsr_fail_nomem(err, UINT64_MAX, it->w->name);
    }
    if (st == TSR_OK && !(k->shared = tsr_process_memory(bytes)))
        st = tsr_fail_nomem(err, bytes, "packed weights");
    k->bytes = bytes;
    for (uint64_t i = 0; i < k->n && st == TSR_OK; i++)
        k->shared->slots[i] = s[i];
    free(s);
    return st;
}

static bool same_bits(double a, double b)
{
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

/* What the child wrote is outside input: nothing of it says how much is read. */
static tsr_status take(const struct pack *k, const struct tsr_quantizer *q, uint64_t i,
                       const struct slot *mine, struct tsr_err *err)
{
    struct tsr_quant_pack_item *it = &k->items[i];
    const struct slot          *s = &k->shared->slots[i];
    const unsigned char        *from = (const unsigned char *)k->shared + mine->at;
    struct tsr_model_packed    *p = NULL;
    const float                *dense = NULL;
    TSR_TRY(quant_room(q, shape_of(it), it->w, it->part ? it->part->row : 0, &p, err));
    memcpy(p->codes, from, mine->codes);
    memcpy(p->meta, from + mine->codes, mine->meta);
    if (mine->dense)
        dense = (const float *)(const void *)(from + mine->dense_at);
    p->report = s->report;
    double     squared_error = s->squared_error;
    tsr_status st =
        quant_verify(k->registry, q, it->w, it->part ? it->part->row : 0, dense, p, err);
    if (st == TSR_OK && !same_bits(squared_error, p->squared_error))
        st =
            tsr_fail(err, TSR_E_PLUGIN,
                     "tensor '%s': what came out of its process has an error of %.9g, there it was "
                     "%.9g; this is the fault of the plugin",
                     it->w->name, p->squared_error, squared_error);
    if (st != TSR_OK) {
        tsr_model_packed_destroy(p);
        return st;
    }
    p->source_dtype = it->w->dtype;
    if (it->part)
        p->segment = it->part->segment;
    it->packed = p;
    it->seconds = s->seconds;
    return TSR_OK;
}

static bool good_status(tsr_status st)
{
    return (st <= TSR_OK && st >= TSR_E_CANCELLED) || (st <= TSR_E_INPUT && st >= TSR_E_PLUGIN);
}

static void take_all(const struct pack *k, const struct tsr_quantizer *q, const struct slot *mine)
{
    for (uint64_t i = 0; i < k->n; i++) {
        struct tsr_quant_pack_item *it = &k->items[i];
        const struct slot          *s = &k->shared->slots[i];
        struct tsr_err             *e = &it->why.err;
        it->status = good_status(s->status) ? s->status : TSR_E_PLUGIN;
        if (!s->done) { /* after an error */
            it->status = tsr_fail(e, TSR_E_BUG, "'%s' was not packed", it->w->name);
            continue;
        }
        char text[sizeof s->said.text];
        memcpy(text, s->said.text, sizeof text);
        text[sizeof text - 1] = '\0';
        if (it->status == TSR_OK)
            it->status = take(k, q, i, &mine[i], e);
        else if (it->status == s->status)
            (void)tsr_err_receive(e, it->status, &s->said);
        else
            (void)tsr_fail(
                e, it->status,
                "its quantize() of '%s' answered %d, which is not a status%s%s; this is the "
                "fault of the plugin %s",
                it->w->name, (int)s->status, *text ? ", and said: " : "", text,
                q->isolated->found.info->path);
        if (it->status != TSR_OK && s->status == TSR_OK)
            (void)tsr_err_prefix(e, it->status, "quantizer '%s'", q->name);
    }
}

tsr_status tsr_quant_isolated_pack(struct tsr_registry *r, const struct tsr_quantizer *q,
                                   const struct tsr_quant_stats *stats,
                                   struct tsr_quant_pack_item *items, uint64_t n,
                                   struct tsr_err *err)
{
    struct pack  k = { .registry = r, .stats = stats, .items = items, .n = n };
    bool         mine = true;
    tsr_status   st = make_room(&k, q, err);
    struct slot *own = st == TSR_OK ? tsr_new(n, sizeof *own) : NULL;
    if (st == TSR_OK && !own)
        st = tsr_fail_nomem(err, n * sizeof *own, "packed weights");
    if (st == TSR_OK) {
        memcpy(own, k.shared->slots, n * sizeof *own);
        st = isolated_run(q->isolated, pack_all, &k.shared->head, &k, true, &mine, err);
        if (st == TSR_E_NUMERIC) /* statistics of the user's that cannot work */
            st = TSR_E_INPUT;
        if (st != TSR_OK && mine)
            st = tsr_err_prefix(err, st, "quantizer '%s'", q->name);
        else if (st != TSR_OK)
            st = tsr_err_prefix(err, st, "quantizer '%s', inputs of '%s'", q->name,
                                items[0].w->name);
    }
    if (st == TSR_OK)
        take_all(&k, q, own);
    free(own);
    tsr_process_release(k.shared, k.bytes);
    return st;
}
