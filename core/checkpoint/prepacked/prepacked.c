/* A prepacked file: head and index. */
#include "checkpoint/prepacked/prepacked.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define VERSION   2u
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
    bool weight = json_is_array(entry);
    return (struct tsr_prepacked_place){
        .at = (uint64_t)json_integer_value(weight ? json_array_get(entry, 0)
                                                  : json_object_get(entry, "at")),
        .bytes = (uint64_t)json_integer_value(weight ? json_array_get(entry, 1)
                                                     : json_object_get(entry, "bytes")),
        .hash = weight ? NULL : tsr_json_word(json_object_get(entry, "hash"))
    };
}

uint64_t tsr_prepacked_kind(const json_t *weight)
{
    return (uint64_t)json_integer_value(json_array_get(weight, 2));
}

/* The entry of a weight: [at, bytes, kind].  There are many, and a start waits for them: the words of an
 * error are made when there is one. */
static tsr_status check_weight(const struct tsr_prepacked *p, const char *name, const json_t *j,
                               uint64_t end, struct tsr_err *err)
{
    static const char *const names[] = { "at", "bytes", "kind" };
    json_int_t               n[3] = { 0 }, least = TSR_PREPACKED_HEAD, most = (json_int_t)end;
    char                     where[400];
    size_t                   i = 0;
    bool                     whole = json_array_size(j) == 3;
    for (; whole && i < 3; i++) {
        const json_t *v = json_array_get(j, i);
        whole = json_is_integer(v);
        n[i] = json_integer_value(v);
        if (!whole || n[i] < least || n[i] > most)
            break;
        least = 0;
        most = i == 0 ? (json_int_t)end - n[0] : (json_int_t)json_array_size(p->kinds) - 1;
    }
    if (i == 3 && n[0] % TSR_PREPACKED_PAGE == 0)
        return TSR_OK;
    (void)snprintf(where, sizeof where, "%s: index: \"%.200s\"", p->path, name);
    if (!whole)
        return tsr_fail(err, TSR_E_INPUT, "%s: is not [at, bytes, kind], three integers", where);
    if (i < 3)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\": %lld is not from %lld to %lld", where,
                        names[i], (long long)n[i], (long long)least, (long long)most);
    return tsr_fail(err, TSR_E_INPUT, "%s: \"at\": %lld is not a multiple of %u", where,
                    (long long)n[0], TSR_PREPACKED_PAGE);
}

static tsr_status check_weights(const struct tsr_prepacked *p, uint64_t end, struct tsr_err *err)
{
    const char *name;
    json_t     *j;
    if (json_array_size(p->kinds) == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: index: \"kinds\" has no entry", p->path);
    json_object_foreach (p->weights, name, j)
        TSR_TRY(check_weight(p, name, j, end, err));
    return TSR_OK;
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
    TSR_TRY(tsr_json_sub(p->index, p->path, "kinds", true, JSON_ARRAY, &p->kinds, err));
    TSR_TRY(tsr_json_sub(p->index, p->path, "details", true, JSON_OBJECT, &p->details, err));
    TSR_TRY(check_weights(p, h->index_at, err));
    TSR_TRY(
        tsr_json_sub(p->index, p->path, "compensation", false, JSON_OBJECT, &p->compensation, err));
    TSR_TRY(check_place(p, "vectors", p->vectors, h->index_at, err));
    TSR_TRY(check_place(p, "details", p->details, h->index_at, err));
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
