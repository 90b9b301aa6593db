#include "batch/records.h"

#include "base/json.h"
#include "base/mem.h"
#include "batch/prompt.h"
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define WINDOW (1u << 20)

/* ---- lines -------------------------------------------------------------- */

static tsr_status add_line(struct tsr_batch_records *r, uint64_t *cap, uint64_t at,
                           struct tsr_err *err)
{
    if (r->lines + 2 > *cap) {
        uint64_t  more = *cap ? *cap * 2 : 1024;
        uint64_t *v = tsr_renew(r->at, more, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, more * sizeof *v, "the lines of a batch");
        r->at = v;
        *cap = more;
    }
    r->at[r->lines++] = at;
    return TSR_OK;
}

static tsr_status split(struct tsr_batch_records *r, char *window, struct tsr_err *err)
{
    struct tsr_hasher *h;
    uint64_t           cap = 0;
    bool               begins = true;
    tsr_status         st = TSR_OK;
    TSR_TRY(tsr_hasher_create(&h, err));
    for (uint64_t at = 0; at < r->file.size && st == TSR_OK; at += WINDOW) {
        uint64_t n = r->file.size - at < WINDOW ? r->file.size - at : WINDOW;
        st = tsr_file_read(&r->file, at, window, n, err);
        if (st == TSR_OK)
            tsr_hasher_update(h, window, n);
        for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
            if (begins)
                st = add_line(r, &cap, at + i, err);
            const char *nl = memchr(window + i, '\n', n - i);
            begins = nl != NULL;
            i = nl ? (uint64_t)(nl - window) : n;
        }
        if (st == TSR_OK && tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "while reading %s", r->file.path);
    }
    tsr_hasher_finish(h, r->hash);
    TSR_TRY(st);
    if (r->lines == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: has no lines; write one request in each",
                        r->file.path);
    r->at[r->lines] = r->file.size;
    return tsr_file_unchanged(&r->file, err);
}

static tsr_status read_line(const struct tsr_batch_records *r, uint64_t i, char **line,
                            uint64_t *len, struct tsr_err *err)
{
    uint64_t n = r->at[i + 1] - r->at[i];
    if (n > TSR_LINE_MOST + 2)
        return tsr_fail(err, TSR_E_INPUT, "the line has %llu bytes, more than %u",
                        (unsigned long long)n, TSR_LINE_MOST);
    char *p = tsr_new(n + 1, 1);
    if (!p)
        return tsr_fail_nomem(err, n, "an input line");
    tsr_status st = tsr_file_read(&r->file, r->at[i], p, n, err);
    if (st != TSR_OK) {
        free(p);
        return st == TSR_E_INPUT ? TSR_E_IO : st; /* not the line's fault */
    }
    if (n && p[n - 1] == '\n')
        n--;
    if (n && p[n - 1] == '\r')
        n--;
    p[n] = '\0';
    *line = p;
    *len = n;
    return TSR_OK;
}

/* ---- ids ---------------------------------------------------------------- */

/* custom_id -> line, by 128-bit hashes in a table at most half full. */
struct ids {
    struct {
        XXH128_hash_t hash;
        uint64_t      line; /* + 1; 0: empty */
    } * v;
    uint64_t mask;
};

static tsr_status note_id(const struct tsr_batch_records *r, struct ids *ids, const char *id,
                          size_t n, uint64_t line, struct tsr_err *err)
{
    XXH128_hash_t h = XXH3_128bits(id, n);
    uint64_t      k = h.low64 & ids->mask;
    for (; ids->v[k].line; k = (k + 1) & ids->mask)
        if (XXH128_isEqual(ids->v[k].hash, h))
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: lines %llu and %llu have the same custom_id \"%.80s\"; give every "
                            "line its own",
                            r->file.path, (unsigned long long)ids->v[k].line,
                            (unsigned long long)line + 1, id);
    ids->v[k].hash = h;
    ids->v[k].line = line + 1;
    return TSR_OK;
}

static tsr_status check_line(struct tsr_batch_records *r, struct ids *ids, uint64_t i,
                             struct tsr_err *err)
{
    struct tsr_errbuf ignored = TSR_ERRBUF(ignored);
    char             *line = NULL;
    uint64_t          len = 0;
    json_t           *j = NULL;
    tsr_status        st = read_line(r, i, &line, &len, err);
    r->choices++;
    if (st != TSR_OK)
        return st == TSR_E_INPUT ? TSR_OK : st; /* too long: an error line later */
    st = tsr_json_parse(&j, "line", line, len, 32, &ignored.err);
    free(line);
    if (st == TSR_OK) {
        const json_t *id = json_object_get(j, "custom_id");
        r->choices += tsr_batch_prompts_choices(j) - 1;
        if (json_is_string(id))
            st = note_id(r, ids, json_string_value(id), json_string_length(id), i, err);
        json_decref(j);
        return st;
    }
    return st == TSR_E_NOMEM ? tsr_fail(err, st, "%s", ignored.text) : TSR_OK;
}

static tsr_status check_ids(struct tsr_batch_records *r, struct tsr_err *err)
{
    struct ids ids = { .mask = 1 };
    while (ids.mask < 2 * r->lines)
        ids.mask *= 2;
    ids.v = tsr_new(ids.mask, sizeof *ids.v);
    if (!ids.v)
        return tsr_fail_nomem(err, ids.mask * sizeof *ids.v, "the ids of a batch");
    ids.mask--;
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < r->lines && st == TSR_OK; i++) {
        st = check_line(r, &ids, i, err);
        if (st == TSR_OK && tsr_plugin_cancelled())
            st = tsr_fail(err, TSR_E_CANCELLED, "while reading %s", r->file.path);
    }
    free(ids.v);
    return st;
}

/* ---- life --------------------------------------------------------------- */

tsr_status tsr_batch_records_open(struct tsr_batch_records *r, const char *path, uint64_t limit,
                                  uint64_t shard, uint64_t shards, struct tsr_err *err)
{
    memset(r, 0, sizeof *r);
    r->file.fd = -1;
    TSR_TRY(tsr_file_open(&r->file, path, err));
    char      *window = tsr_new(WINDOW, 1);
    tsr_status st = window ? split(r, window, err) : tsr_fail_nomem(err, WINDOW, path);
    free(window);
    if (st == TSR_OK)
        st = check_ids(r, err);
    if (st != TSR_OK) {
        tsr_batch_records_close(r);
        return st;
    }
    uint64_t n = limit && limit < r->lines ? limit : r->lines;
    /* n / shards each, the first ones one more */
    uint64_t each = n / shards, more = n % shards;
    r->first = (shard - 1) * each + (shard - 1 < more ? shard - 1 : more);
    r->n = each + (shard - 1 < more);
    r->choices -= r->lines - r->n; /* each line of another part has one */
    return TSR_OK;
}

void tsr_batch_records_close(struct tsr_batch_records *r)
{
    tsr_file_close(&r->file);
    free(r->at);
    r->at = NULL;
}

tsr_status tsr_batch_records_read(const struct tsr_batch_records *r, uint64_t index, char **line,
                                  uint64_t *len, struct tsr_err *err)
{
    return read_line(r, r->first + index, line, len, err);
}

uint64_t tsr_batch_records_line(const struct tsr_batch_records *r, uint64_t index)
{
    return r->first + index + 1;
}
