/* The parts of a prepacked file, compared with their hashes. */
#include "checkpoint/prepacked/prepacked.h"

#include "base/mem.h"
#include "plugin/registry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hashed in pieces, so that long parts show progress and can be interrupted. */
#define PIECE (UINT64_C(16) << 20)

static tsr_status hash_part(const struct tsr_prepacked *p, struct tsr_prepacked_place at,
                            void (*advance)(void *ctx, uint64_t bytes), void         *ctx,
                            char hash[TSR_HASH_TEXT], struct tsr_err *err)
{
    struct tsr_hasher *h = NULL;
    TSR_TRY(tsr_hasher_create(&h, err));
    for (uint64_t done = 0, n; done < at.bytes && !tsr_plugin_cancelled(); done += n) {
        n = at.bytes - done < PIECE ? at.bytes - done : PIECE;
        tsr_hasher_update(h, p->data + at.at + done, n);
        if (advance)
            advance(ctx, n);
    }
    tsr_hasher_finish(h, hash);
    return tsr_plugin_cancelled() ? tsr_fail(err, TSR_E_CANCELLED, "while %s was hashed", p->path)
                                  : TSR_OK;
}

static tsr_status check_hash(const struct tsr_prepacked *p, const char *name,
                             struct tsr_prepacked_place at,
                             void (*advance)(void *ctx, uint64_t bytes), void *ctx,
                             struct tsr_err *err)
{
    char hash[TSR_HASH_TEXT];
    if (!p->check)
        return TSR_OK;
    TSR_TRY(hash_part(p, at, advance, ctx, hash, err));
    if (strcmp(hash, at.hash) == 0)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: bytes %llu to %llu (%s) are not those that the index has the hash of; the "
                    "file is damaged: convert the model again, or copy the file again",
                    p->path, (unsigned long long)at.at, (unsigned long long)(at.at + at.bytes),
                    name);
}

tsr_status tsr_prepacked_text(const struct tsr_prepacked *p, const char *name, char **text,
                              uint64_t *len, struct tsr_err *err)
{
    const json_t *j = json_object_get(p->texts, name);
    *text = NULL;
    *len = 0;
    if (!j)
        return TSR_OK;
    struct tsr_prepacked_place at = tsr_prepacked_place(j);
    TSR_TRY(check_hash(p, name, at, NULL, NULL, err));
    char *t = tsr_new(at.bytes + 1, 1);
    if (!t)
        return tsr_fail_nomem(err, at.bytes + 1, name);
    memcpy(t, p->data + at.at, at.bytes);
    *text = t;
    *len = at.bytes;
    return TSR_OK;
}

tsr_status tsr_prepacked_check_vectors(const struct tsr_prepacked *p, struct tsr_err *err)
{
    return check_hash(p, "vectors", tsr_prepacked_place(p->vectors), NULL, NULL, err);
}

/* A part and the hash that it must have. */
struct part {
    const char                *name;
    struct tsr_prepacked_place at;
};

struct verify {
    const struct tsr_prepacked *p;
    json_t                     *details;
    struct part                *part;
    tsr_status                 *status;   /* [n] */
    uint64_t                    n, bytes; /* bytes: of all */
    _Atomic uint64_t            done;
    tsr_prepacked_progress      progress; /* or NULL */
};

static void advance(void *ctx, uint64_t bytes)
{
    struct verify *v = ctx;
    uint64_t       done = atomic_fetch_add(&v->done, bytes) + bytes;
    if (v->progress)
        v->progress(done, v->bytes);
}

static tsr_status verify_some(void *arg, uint64_t begin, uint64_t end)
{
    struct verify *v = arg;
    for (uint64_t i = begin; i < end; i++)
        v->status[i] = check_hash(v->p, v->part[i].name, v->part[i].at, advance, v, NULL);
    return tsr_plugin_cancelled() ? TSR_E_CANCELLED : TSR_OK;
}

static void add(struct verify *v, const char *name, struct tsr_prepacked_place at)
{
    v->part[v->n++] = (struct part){ name, at };
    v->bytes += at.bytes;
}

/* Weights have their hashes in the details, which a start does not read. */
static tsr_status add_weights(struct verify *v, struct tsr_err *err)
{
    const struct tsr_prepacked *p = v->p;
    struct tsr_prepacked_place  at = tsr_prepacked_place(p->details);
    const char                 *name, *hash;
    char                        where[400];
    json_t                     *j;
    TSR_TRY(check_hash(p, "details", at, NULL, NULL, err));
    (void)snprintf(where, sizeof where, "%s: details", p->path);
    TSR_TRY(tsr_json_parse(&v->details, where, (const char *)p->data + at.at, at.bytes, 3, err));
    json_object_foreach (p->weights, name, j) {
        const json_t *d = json_object_get(v->details, name);
        (void)snprintf(where, sizeof where, "%s: details: \"%.200s\"", p->path, name);
        if (!json_is_object(d))
            return tsr_fail(err, TSR_E_INPUT, "%s: is not an object", where);
        TSR_TRY(tsr_json_str(d, where, "hash", true, &hash, err));
        at = tsr_prepacked_place(j);
        at.hash = hash;
        add(v, name, at);
    }
    return TSR_OK;
}

static tsr_status list_parts(struct verify *v, struct tsr_err *err)
{
    const struct tsr_prepacked *p = v->p;
    const char                 *name;
    json_t                     *j;
    uint64_t most = json_object_size(p->weights) + json_object_size(p->texts) + 3;
    v->part = tsr_new(most, sizeof *v->part);
    v->status = tsr_new(most, sizeof *v->status);
    if (!v->part || !v->status)
        return tsr_fail_nomem(err, most * sizeof *v->part, "the list of parts");
    TSR_TRY(add_weights(v, err));
    json_object_foreach (p->texts, name, j)
        add(v, name, tsr_prepacked_place(j));
    add(v, "vectors", tsr_prepacked_place(p->vectors));
    add(v, "details", tsr_prepacked_place(p->details));
    if (p->compensation)
        add(v, "compensation", tsr_prepacked_place(p->compensation));
    return TSR_OK;
}

tsr_status tsr_prepacked_verify(const struct tsr_prepacked *p, struct tsr_pool *pool,
                                tsr_prepacked_progress progress, struct tsr_err *err)
{
    struct verify v = { .p = p, .progress = progress };
    if (p->map.data)
        tsr_map_want(&p->map, 0, p->bytes);
    tsr_status st = list_parts(&v, err);
    if (st == TSR_OK) {
        st = tsr_pool_for(pool, v.n, 1, verify_some, &v);
        if (st != TSR_OK)
            (void)tsr_fail(err, st, "interrupted");
    }
    for (uint64_t i = 0; st == TSR_OK && i < v.n; i++)
        if (v.status[i] != TSR_OK) /* again: its sentence */
            st = check_hash(p, v.part[i].name, v.part[i].at, NULL, NULL, err);
    json_decref(v.details);
    free(v.part);
    free(v.status);
    return st;
}
