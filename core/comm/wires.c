/* Wires on a device: one for each encoder of a coder, site and number of columns, or one for all of a
 * number of columns if the codec says that they are equal. */
#include "comm/device.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const struct tsr_comm_wire_key *k)
{
    const uint64_t word[] = { (uintptr_t)k->coder, k->cols, (uint64_t)k->second << 32 | k->slice,
                              (uint64_t)k->site << 32 | k->source };
    uint64_t       h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        h = (h ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

static bool equal(const struct tsr_comm_wire_key *a, const struct tsr_comm_wire_key *b)
{
    return a->coder == b->coder && a->cols == b->cols && a->second == b->second &&
           a->slice == b->slice && a->site == b->site && a->source == b->source;
}

/* The place of the key, existing or new; the table has a free place. */
static struct tsr_comm_wire *place_of(struct tsr_comm_wire *all, uint64_t cap,
                                      const struct tsr_comm_wire_key *k)
{
    uint64_t i = hash(k) & (cap - 1);
    while (all[i].key.coder && !equal(&all[i].key, k))
        i = (i + 1) & (cap - 1);
    return &all[i];
}

static tsr_status grow(struct tsr_comm_device *d, struct tsr_err *err)
{
    uint64_t cap = d->cap_wires ? 2 * d->cap_wires : 64;
    if (d->cap_wires && 2 * (d->n_wires + 2) <= d->cap_wires)
        return TSR_OK;
    struct tsr_comm_wire *more = tsr_new(cap, sizeof *more);
    if (!more)
        return tsr_fail_nomem(err, cap * sizeof *more, "the wires of a group");
    for (uint64_t i = 0; i < d->cap_wires; i++)
        if (d->wires[i].key.coder)
            *place_of(more, cap, &d->wires[i].key) = d->wires[i];
    free(d->wires);
    d->wires = more;
    d->cap_wires = cap;
    return TSR_OK;
}

static void put(struct tsr_comm_device *d, const struct tsr_comm_wire_key *k, void *wire,
                bool owned)
{
    struct tsr_comm_wire *at = place_of(d->wires, d->cap_wires, k);
    d->n_wires += !at->key.coder;
    *at = (struct tsr_comm_wire){ *k, wire, owned };
}

static tsr_status describe(const struct tsr_comm_coder *c, const struct tsr_comm_message *m,
                           uint32_t source, struct tsr_codec_wire *w, struct tsr_err *err)
{
    const struct tsr_codec_wire_v1 *t = NULL;
    void                           *self = tsr_comm_instance(c, m->second, m->slice);
    uint64_t                        bytes;
    if (c->iface->extension)
        t = c->iface->extension(self, TSR_CODEC_WIRE);
    if (!t || !t->wire)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "the codec describes no wire for devices");
    TSR_TRY(t->wire(self, m->site, source, m->cols, w, err));
    if (!tsr_mul(w->row_bytes, m->rows, &bytes) || bytes != m->wire_bytes)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "the codec's wire has rows of %llu bytes, its messages have others",
                        (unsigned long long)w->row_bytes);
    return TSR_OK;
}

tsr_status tsr_comm_wire_find(struct tsr_comm_device *d, const struct tsr_comm_coder *c,
                              const struct tsr_comm_message *m, uint32_t source, void **wire,
                              struct tsr_err *err)
{
    struct tsr_codec_wire    w = { .struct_size = sizeof w };
    struct tsr_comm_wire_key k = { c, m->cols, m->second, m->slice, m->site, source };
    struct tsr_comm_wire_key any = { c, m->cols, 0, 0, 0, 0 };
    *wire = NULL;
    TSR_TRY(grow(d, err));
    const struct tsr_comm_wire *at = place_of(d->wires, d->cap_wires, &k);
    if (!at->key.coder) {
        TSR_TRY(describe(c, m, source, &w, err));
        const struct tsr_comm_wire *same =
            w.same ? place_of(d->wires, d->cap_wires, &any) : at; /* free, but for that */
        void *loaded = same->wire;
        bool  owned = !same->key.coder;
        if (owned)
            TSR_TRY(d->codec->wire_load(d->self, &w, &loaded, err));
        put(d, w.same ? &any : &k, loaded, true);
        if (w.same && !equal(&any, &k))
            put(d, &k, loaded, false);
        *wire = loaded;
        return TSR_OK;
    }
    *wire = at->wire;
    return TSR_OK;
}

void tsr_comm_wires_free(struct tsr_comm_device *d)
{
    for (uint64_t i = 0; i < d->cap_wires; i++)
        if (d->wires[i].key.coder && d->wires[i].owned)
            d->codec->wire_free(d->self, d->wires[i].wire);
    free(d->wires);
    d->wires = NULL;
    d->n_wires = d->cap_wires = 0;
}
