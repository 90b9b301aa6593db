#include "checkpoint/safetensors/shards.h"

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/safetensors/folder.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_CAP   (UINT64_C(64) << 20)
#define INDEX_DEPTH 4
#define INDEX_NAME  TSR_SHARDS_INDEX

static tsr_status open_shard(struct tsr_checkpoint_shards *s, const char *folder, const char *name,
                             struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_checkpoint_folder_open(&f, folder, name, err));
    TSR_TRY(tsr_safetensors_open_file(&s->files[s->n_files], &f, err));
    s->n_files++;
    return TSR_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tsr_checkpoint_stored *)a)->t->name,
                  ((const struct tsr_checkpoint_stored *)b)->t->name);
}

/* One sorted list over all files. */
static tsr_status merge(struct tsr_checkpoint_shards *s, struct tsr_err *err)
{
    uint64_t n = 0, at = 0;
    for (uint32_t i = 0; i < s->n_files; i++)
        n += s->files[i].n;
    s->tensors = tsr_new(n, sizeof *s->tensors);
    if (!s->tensors)
        return tsr_fail_nomem(err, n * sizeof *s->tensors, "the list of tensors");
    for (uint32_t i = 0; i < s->n_files; i++)
        for (uint64_t k = 0; k < s->files[i].n; k++)
            s->tensors[at++] =
                (struct tsr_checkpoint_stored){ .t = &s->files[i].tensors[k], .file = i };
    s->n = n;
    if (n)
        qsort(s->tensors, n, sizeof *s->tensors, by_name);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(s->tensors[i - 1].t->name, s->tensors[i].t->name) == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%.200s\" is in %s too",
                            tsr_checkpoint_shards_path(s, &s->tensors[i]), s->tensors[i].t->name,
                            tsr_checkpoint_shards_path(s, &s->tensors[i - 1]));
    return TSR_OK;
}

/* Position of a file name in names[0..n), or n. */
static uint32_t file_index(const char *const *names, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return n;
}

/* Checks that every tensor of the index is in its file. */
static tsr_status check_index(const struct tsr_checkpoint_shards *s, json_t *map, const char *path,
                              const char *const *names, uint32_t n, struct tsr_err *err)
{
    const char *key;
    json_t     *v;
    json_object_foreach (map, key, v) {
        uint32_t                            want = file_index(names, n, json_string_value(v));
        const struct tsr_checkpoint_stored *t = tsr_checkpoint_shards_find(s, key);
        if (!t || t->file != want)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: tensor \"%.200s\" is not in %s as the index says", path, key,
                            s->files[want].file.path);
    }
    if (s->n == json_object_size(map))
        return TSR_OK;
    for (uint64_t i = 0; i < s->n; i++)
        if (!json_object_get(map, s->tensors[i].t->name))
            return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%.200s\" of %s is not in the index",
                            path, s->tensors[i].t->name,
                            tsr_checkpoint_shards_path(s, &s->tensors[i]));
    return TSR_OK;
}

static tsr_status open_map(struct tsr_checkpoint_shards *s, const char *folder, json_t *map,
                           const char *path, struct tsr_err *err)
{
    const char *names[TSR_MAX_SHARDS];
    const char *key;
    json_t     *v;
    uint32_t    n = 0;
    json_object_foreach (map, key, v) {
        const char *name = tsr_json_word(v);
        if (!name)
            return tsr_fail(err, TSR_E_INPUT, "%s: \"weight_map\": \"%.200s\" has no file name",
                            path, key);
        if (file_index(names, n, name) < n)
            continue;
        if (n == TSR_MAX_SHARDS)
            return tsr_fail(err, TSR_E_INPUT, "%s: more than %d shards", path, TSR_MAX_SHARDS);
        names[n++] = name;
    }
    if (n == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"weight_map\" is empty", path);
    s->files = tsr_new(n, sizeof *s->files);
    if (!s->files)
        return tsr_fail_nomem(err, n * sizeof *s->files, path);
    for (uint32_t i = 0; i < n; i++) {
        tsr_status st = open_shard(s, folder, names[i], err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "%s", path);
    }
    TSR_TRY(merge(s, err));
    return check_index(s, map, path, names, n, err);
}

static tsr_status open_indexed(struct tsr_checkpoint_shards *s, const char *folder,
                               struct tsr_err *err)
{
    char    *text, *path;
    uint64_t len;
    json_t  *j = NULL, *map = NULL;
    TSR_TRY(tsr_checkpoint_folder_slurp(folder, INDEX_NAME, INDEX_CAP, &text, &len, &path, err));
    tsr_status st = tsr_json_parse(&j, path, text, len, INDEX_DEPTH, err);
    free(text);
    if (st == TSR_OK && !json_is_object(j))
        st = tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", path);
    if (st == TSR_OK)
        st = tsr_json_sub(j, path, "weight_map", true, JSON_OBJECT, &map, err);
    if (st == TSR_OK)
        st = open_map(s, folder, map, path, err);
    json_decref(j);
    free(path);
    return st;
}

tsr_status tsr_checkpoint_shards_open_file(struct tsr_checkpoint_shards *s, const char *folder,
                                           const char *name, struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    s->files = tsr_new(1, sizeof *s->files);
    tsr_status st =
        s->files ? open_shard(s, folder, name, err) : tsr_fail_nomem(err, sizeof *s->files, folder);
    if (st == TSR_OK)
        st = merge(s, err);
    if (st != TSR_OK)
        tsr_checkpoint_shards_close(s);
    return st;
}

tsr_status tsr_checkpoint_shards_open(struct tsr_checkpoint_shards *s, const char *folder,
                                      struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    bool       single, indexed;
    tsr_status st;
    TSR_TRY(tsr_checkpoint_folder_has(folder, "model.safetensors", &single, err));
    TSR_TRY(tsr_checkpoint_folder_has(folder, INDEX_NAME, &indexed, err));
    if (single) {
        st = tsr_checkpoint_shards_open_file(s, folder, "model.safetensors", err);
    } else if (indexed) {
        st = open_indexed(s, folder, err);
    } else {
        st = tsr_fail(err, TSR_E_INPUT, "%s: neither model.safetensors nor " INDEX_NAME " is there",
                      folder);
    }
    if (st != TSR_OK)
        tsr_checkpoint_shards_close(s);
    return st;
}

void tsr_checkpoint_shards_close(struct tsr_checkpoint_shards *s)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        tsr_safetensors_close(&s->files[i]);
    free(s->files);
    free(s->tensors);
    memset(s, 0, sizeof *s);
}

struct tsr_checkpoint_stored *tsr_checkpoint_shards_find(const struct tsr_checkpoint_shards *s,
                                                         const char                         *name)
{
    uint64_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int      c = strcmp(name, s->tensors[mid].t->name);
        if (c == 0)
            return &s->tensors[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const char *tsr_checkpoint_shards_path(const struct tsr_checkpoint_shards *s,
                                       const struct tsr_checkpoint_stored *t)
{
    return s->files[t->file].file.path;
}
