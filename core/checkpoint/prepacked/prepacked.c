/* A prepacked file: head and index, texts, hashes. */
#include "checkpoint/prepacked/prepacked.h"

#include "base/mem.h"
#include "plugin/registry.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define VERSION   1u
#define INDEX_CAP (UINT64_C(256) << 20)
#define DEPTH     6

bool tsr_prepacked_is(const char *path)
{
    return tsr_file_begins(path, TSR_PREPACKED_MAGIC, 8);
}

void tsr_prepacked_close(struct tsr_prepacked *p)
{
    json_decref(p->index);
    free(p->lin);
    free(p->path);
    tsr_map_close(&p->map);
    memset(p, 0, sizeof *p);
}

/* ---- head --------------------------------------------------------------------------------- */

void tsr_prepacked_head_write(const struct tsr_prepacked_head *h,
                              unsigned char                    to[TSR_PREPACKED_HEAD])
{
    uint32_t version = VERSION;
    memset(to, 0, TSR_PREPACKED_HEAD);
    memcpy(to, TSR_PREPACKED_MAGIC, 8);
    memcpy(to + 8, &version, 4);
    memcpy(to + 16, &h->file_bytes, 8);
    memcpy(to + 24, &h->index_at, 8);
    memcpy(to + 32, &h->index_bytes, 8);
    memcpy(to + 64, h->hash, TSR_HASH_TEXT);
}

static tsr_status head_read(struct tsr_prepacked *p, struct tsr_prepacked_head *h,
                            struct tsr_err *err)
{
    uint32_t version, reserved;
    if (p->bytes < TSR_PREPACKED_HEAD || memcmp(p->data, TSR_PREPACKED_MAGIC, 8) != 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: is not a prepacked file: %llu bytes that do not begin with the head of one",
            p->path, (unsigned long long)p->bytes);
    memcpy(&version, p->data + 8, 4);
    memcpy(&h->file_bytes, p->data + 16, 8);
    memcpy(&h->index_at, p->data + 24, 8);
    memcpy(&h->index_bytes, p->data + 32, 8);
    memcpy(h->hash, p->data + 64, TSR_HASH_TEXT);
    h->hash[TSR_HASH_TEXT - 1] = '\0';
    memcpy(&reserved, p->data + 12, 4);
    if (version != VERSION || reserved != 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: is a prepacked file of version %u.%u, this program reads %u.0; convert "
            "the model that it was made from again",
            p->path, version, reserved, VERSION);
    if (h->file_bytes != p->bytes)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: has %llu bytes, its head says %llu: it was cut off or appended to; "
                        "convert the model again, or copy the file again",
                        p->path, (unsigned long long)p->bytes, (unsigned long long)h->file_bytes);
    if (h->index_at < TSR_PREPACKED_HEAD || h->index_at > p->bytes ||
        h->index_bytes != p->bytes - h->index_at || h->index_bytes > INDEX_CAP)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: byte 24: the head puts the index at bytes %llu to %llu, which does not "
            "end a file of %llu; the file is damaged",
            p->path, (unsigned long long)h->index_at,
            (unsigned long long)(h->index_at + h->index_bytes), (unsigned long long)p->bytes);
    return TSR_OK;
}

tsr_status tsr_prepacked_head_hash(const struct tsr_prepacked_head *h, const void *index,
                                   char text[TSR_HASH_TEXT], struct tsr_err *err)
{
    struct tsr_hasher *x = NULL;
    unsigned char      head[TSR_PREPACKED_HEAD];
    TSR_TRY(tsr_hasher_create(&x, err));
    tsr_prepacked_head_write(h, head); /* as written: unused bytes are 0 */
    tsr_hasher_update(x, head, 64);
    tsr_hasher_update(x, index, h->index_bytes);
    tsr_hasher_finish(x, text);
    return TSR_OK;
}

/* ---- index -------------------------------------------------------------------------------- */

/* The place of an entry: inside of the file, before the index, on a page. */
static tsr_status check_place(const struct tsr_prepacked *p, const char *name, const json_t *j,
                              uint64_t end, struct tsr_err *err)
{
    int64_t     at = 0, bytes = 0;
    const char *hash = "";
    char        where[400];
    (void)snprintf(where, sizeof where, "%s: index: \"%.200s\"", p->path, name);
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not an object", where);
    TSR_TRY(tsr_json_int(j, where, "at", true, TSR_PREPACKED_HEAD, (int64_t)end, &at, err));
    TSR_TRY(tsr_json_int(j, where, "bytes", true, 0, (int64_t)end - at, &bytes, err));
    TSR_TRY(tsr_json_str(j, where, "hash", true, &hash, err));
    if (at % TSR_PREPACKED_PAGE != 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"at\": %lld is not a multiple of %u", where,
                        (long long)at, TSR_PREPACKED_PAGE);
    if (strlen(hash) != TSR_HASH_TEXT - 1)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"hash\": \"%.60s\" is not a hash", where, hash);
    return TSR_OK;
}

struct tsr_prepacked_place tsr_prepacked_place(const json_t *entry)
{
    return (struct tsr_prepacked_place){
        .at = (uint64_t)json_integer_value(json_object_get(entry, "at")),
        .bytes = (uint64_t)json_integer_value(json_object_get(entry, "bytes")),
        .hash = tsr_json_word(json_object_get(entry, "hash"))
    };
}

static tsr_status check_places(const struct tsr_prepacked *p, json_t *all, uint64_t end,
                               struct tsr_err *err)
{
    const char *name;
    json_t     *j;
    json_object_foreach (all, name, j)
        TSR_TRY(check_place(p, name, j, end, err));
    return TSR_OK;
}

static tsr_status read_layout(struct tsr_prepacked *p, struct tsr_err *err)
{
    json_t *l = NULL;
    int64_t revision = 0;
    TSR_TRY(tsr_json_sub(p->index, p->path, "layout", true, JSON_OBJECT, &l, err));
    TSR_TRY(tsr_json_str(l, p->path, "id", true, &p->layout, err));
    TSR_TRY(tsr_json_int(l, p->path, "revision", true, 0, UINT32_MAX, &revision, err));
    TSR_TRY(tsr_json_str(l, p->path, "target", false, &p->target, err));
    p->revision = (uint32_t)revision;
    return TSR_OK;
}

static tsr_status read_index(struct tsr_prepacked *p, const struct tsr_prepacked_head *h,
                             struct tsr_err *err)
{
    const char *format = "", *at = (const char *)p->data + h->index_at;
    json_t     *source = NULL;
    TSR_TRY(tsr_json_parse(&p->index, p->path, at, h->index_bytes, DEPTH, err));
    if (!json_is_object(p->index))
        return tsr_fail(err, TSR_E_INPUT, "%s: its index is not an object", p->path);
    TSR_TRY(tsr_json_str(p->index, p->path, "format", true, &format, err));
    if (strcmp(format, TSR_PREPACKED_FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: \"format\": \"%.60s\" is not " TSR_PREPACKED_FORMAT
                        "; convert the model again",
                        p->path, format);
    TSR_TRY(read_layout(p, err));
    TSR_TRY(tsr_json_sub(p->index, p->path, "source", true, JSON_OBJECT, &source, err));
    TSR_TRY(tsr_json_str(source, p->path, "hash", true, &p->source, err));
    TSR_TRY(tsr_json_str(source, p->path, "packed", false, &p->packed_as, err));
    TSR_TRY(tsr_json_sub(p->index, p->path, "weights", true, JSON_OBJECT, &p->weights, err));
    TSR_TRY(tsr_json_sub(p->index, p->path, "vectors", true, JSON_OBJECT, &p->vectors, err));
    TSR_TRY(tsr_json_sub(p->index, p->path, "texts", true, JSON_OBJECT, &p->texts, err));
    TSR_TRY(check_places(p, p->weights, h->index_at, err));
    TSR_TRY(
        tsr_json_sub(p->index, p->path, "compensation", false, JSON_OBJECT, &p->compensation, err));
    TSR_TRY(check_place(p, "vectors", p->vectors, h->index_at, err));
    if (p->compensation)
        TSR_TRY(check_place(p, "compensation", p->compensation, h->index_at, err));
    return check_places(p, p->texts, h->index_at, err);
}

tsr_status tsr_prepacked_parse(struct tsr_prepacked *p, const char *path, const unsigned char *data,
                               uint64_t bytes, bool check, struct tsr_err *err)
{
    struct tsr_prepacked_head h;
    p->data = data;
    p->bytes = bytes;
    p->check = check;
    p->path = tsr_strdup(path);
    if (!p->path)
        return tsr_fail_nomem(err, strlen(path), path);
    TSR_TRY(head_read(p, &h, err));
    TSR_TRY(tsr_prepacked_head_hash(&h, data + h.index_at, p->hash, err));
    if (check && strcmp(p->hash, h.hash) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: head and index are not those that the head has the hash of; the file "
                        "is damaged: convert the model again, or copy the file again",
                        path);
    return read_index(p, &h, err);
}

tsr_status tsr_prepacked_open(struct tsr_prepacked *p, const char *path, struct tsr_err *err)
{
    memset(p, 0, sizeof *p);
    TSR_TRY(tsr_map_open(&p->map, path, err));
    tsr_status st = tsr_prepacked_parse(p, path, p->map.data, p->map.bytes, true, err);
    if (st == TSR_OK) /* as long as it was when its head was read */
        st = tsr_file_unchanged(&p->map.file, err);
    if (st != TSR_OK)
        tsr_prepacked_close(p);
    return st;
}

/* ---- parts -------------------------------------------------------------------------------- */

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

static tsr_status check_hash(const struct tsr_prepacked *p, const char *name, const json_t *entry,
                             void (*advance)(void *ctx, uint64_t bytes), void *ctx,
                             struct tsr_err *err)
{
    struct tsr_prepacked_place at = tsr_prepacked_place(entry);
    char                       hash[TSR_HASH_TEXT];
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
    TSR_TRY(check_hash(p, name, j, NULL, NULL, err));
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
    return check_hash(p, "vectors", p->vectors, NULL, NULL, err);
}

struct verify {
    const struct tsr_prepacked *p;
    const json_t              **entry;
    const char                **name;
    tsr_status                 *status; /* [n] */
    uint64_t                    bytes;  /* of all */
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
        v->status[i] = check_hash(v->p, v->name[i], v->entry[i], advance, v, NULL);
    return tsr_plugin_cancelled() ? TSR_E_CANCELLED : TSR_OK;
}

static uint64_t list(json_t *all, const json_t **entry, const char **name, uint64_t n)
{
    const char *key;
    json_t     *j;
    json_object_foreach (all, key, j) {
        entry[n] = j;
        name[n++] = key;
    }
    return n;
}

tsr_status tsr_prepacked_verify(const struct tsr_prepacked *p, struct tsr_pool *pool,
                                tsr_prepacked_progress progress, struct tsr_err *err)
{
    if (p->map.data)
        tsr_map_want(&p->map, 0, p->bytes);
    uint64_t      max = json_object_size(p->weights) + json_object_size(p->texts) + 2, n = 0;
    struct verify v = { .p = p,
                        .entry = tsr_new(max, sizeof *v.entry),
                        .name = tsr_new(max, sizeof *v.name),
                        .status = tsr_new(max, sizeof *v.status),
                        .progress = progress };
    tsr_status    st = TSR_OK;
    if (!v.entry || !v.name || !v.status) {
        st = tsr_fail_nomem(err, max * sizeof *v.entry, "the list of parts");
    } else {
        n = list(p->weights, v.entry, v.name, 0);
        n = list(p->texts, v.entry, v.name, n);
        v.entry[n] = p->vectors;
        v.name[n++] = "vectors";
        if (p->compensation) {
            v.entry[n] = p->compensation;
            v.name[n++] = "compensation";
        }
        for (uint64_t i = 0; i < n; i++)
            v.bytes += tsr_prepacked_place(v.entry[i]).bytes;
        st = tsr_pool_for(pool, n, 1, verify_some, &v);
        if (st != TSR_OK)
            (void)tsr_fail(err, st, "interrupted");
        for (uint64_t i = 0; st == TSR_OK && i < n; i++)
            if (v.status[i] != TSR_OK)
                st =
                    check_hash(p, v.name[i], v.entry[i], NULL, NULL, err); /* again: its sentence */
    }
    free((void *)v.entry);
    free((void *)v.name);
    free(v.status);
    return st;
}
