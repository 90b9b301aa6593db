#include "model/shards.h"

#include "base/json.h"
#include "base/mem.h"
#include "model/folder.h"
#include "model/prepacked.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_CAP   (UINT64_C(64) << 20)
#define INDEX_DEPTH 4
#define INDEX_NAME  "model.safetensors.index.json"

/* What else a folder holds. */
struct contents {
    bool     pickle, gguf, shard;
    uint64_t models;    /* packed ones, folders of safetensors, files */
    char     list[800]; /* their paths, with ", " between them */
    char    *one;       /* the last of them; owned */
};

static bool is_model(const char *path)
{
    static const char *const marks[] = { "packed.json", "model.safetensors", INDEX_NAME };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    bool                     yes = false;
    if (!tsr_path_is_dir(path))
        return tsr_prepacked_is(path);
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !yes; i++)
        yes = tsr_folder_has(path, marks[i], &yes, &e.err) == TSR_OK && yes;
    return yes;
}

static void note_model(struct contents *c, const char *folder, const char *name)
{
    char  *path = *name == '.' ? NULL : tsr_path_join(folder, name);
    size_t n = strlen(c->list);
    if (!path || !is_model(path)) {
        free(path);
        return;
    }
    c->models++;
    if (n + strlen(path) + 3 < sizeof c->list)
        (void)snprintf(c->list + n, sizeof c->list - n, "%s%s", n ? ", " : "", path);
    free(c->one);
    c->one = path;
}

static void look_into(struct contents *c, const char *folder)
{
    DIR *d = opendir(folder);
    memset(c, 0, sizeof *c);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        c->pickle |= strncmp(e->d_name, "pytorch_model", 13) == 0 ||
                     (n > 4 && strcmp(e->d_name + n - 4, ".pth") == 0);
        c->gguf |= n > 5 && strcmp(e->d_name + n - 5, ".gguf") == 0;
        c->shard |= n > 12 && strcmp(e->d_name + n - 12, ".safetensors") == 0;
        note_model(c, folder, e->d_name);
    }
    if (d)
        (void)closedir(d);
}

char *tsr_shards_only_model(const char *folder)
{
    struct contents c;
    if (!tsr_path_is_dir(folder) || is_model(folder))
        return NULL;
    look_into(&c, folder);
    if (c.models == 1)
        return c.one;
    free(c.one);
    return NULL;
}

/* No safetensors: what lies there instead decides the hint. */
tsr_status tsr_shards_absent(const char *folder, struct tsr_err *err)
{
    struct contents c;
    look_into(&c, folder);
    free(c.one);
    if (c.models) /* as in the folder of a job */
        return tsr_fail(err, TSR_E_INPUT, "%s: is no model, but holds some: %s; name one of them",
                        folder, c.list);
    if (c.shard)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: holds safetensors files, but neither model.safetensors nor " INDEX_NAME, folder);
    if (c.pickle)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds only PyTorch pickle files, which can run code when they are "
                        "read; convert them to safetensors first (in Python: "
                        "model.save_pretrained(folder, safe_serialization=True))",
                        folder);
    if (c.gguf)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds a GGUF file; name that file itself as the model", folder);
    return tsr_fail(err, TSR_E_INPUT, "%s: neither model.safetensors nor " INDEX_NAME " is there",
                    folder);
}

static tsr_status open_shard(struct tsr_shards *s, const char *folder, const char *name,
                             struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_folder_open(&f, folder, name, err));
    TSR_TRY(tsr_st_open_file(&s->files[s->n_files], &f, err));
    s->n_files++;
    return TSR_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tsr_stored *)a)->t->name, ((const struct tsr_stored *)b)->t->name);
}

/* One sorted list over all files. */
static tsr_status merge(struct tsr_shards *s, struct tsr_err *err)
{
    uint64_t n = 0, at = 0;
    for (uint32_t i = 0; i < s->n_files; i++)
        n += s->files[i].n;
    s->tensors = tsr_new(n, sizeof *s->tensors);
    if (!s->tensors)
        return tsr_fail_nomem(err, n * sizeof *s->tensors, "the list of tensors");
    for (uint32_t i = 0; i < s->n_files; i++)
        for (uint64_t k = 0; k < s->files[i].n; k++)
            s->tensors[at++] = (struct tsr_stored){ .t = &s->files[i].tensors[k], .file = i };
    s->n = n;
    if (n)
        qsort(s->tensors, n, sizeof *s->tensors, by_name);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(s->tensors[i - 1].t->name, s->tensors[i].t->name) == 0)
            return tsr_fail(err, TSR_E_INPUT, "%s: tensor \"%.200s\" is in %s too",
                            tsr_shards_path(s, &s->tensors[i]), s->tensors[i].t->name,
                            tsr_shards_path(s, &s->tensors[i - 1]));
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

/* Every tensor of the index is where it says. */
static tsr_status check_index(const struct tsr_shards *s, json_t *map, const char *path,
                              const char *const *names, uint32_t n, struct tsr_err *err)
{
    const char *key;
    json_t     *v;
    json_object_foreach (map, key, v) {
        uint32_t                 want = file_index(names, n, json_string_value(v));
        const struct tsr_stored *t = tsr_shards_find(s, key);
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
                            path, s->tensors[i].t->name, tsr_shards_path(s, &s->tensors[i]));
    return TSR_OK;
}

static tsr_status open_map(struct tsr_shards *s, const char *folder, json_t *map, const char *path,
                           struct tsr_err *err)
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

static tsr_status open_indexed(struct tsr_shards *s, const char *folder, struct tsr_err *err)
{
    char    *text, *path;
    uint64_t len;
    json_t  *j = NULL, *map = NULL;
    TSR_TRY(tsr_folder_slurp(folder, INDEX_NAME, INDEX_CAP, &text, &len, &path, err));
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

tsr_status tsr_shards_open_file(struct tsr_shards *s, const char *folder, const char *name,
                                struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    s->files = tsr_new(1, sizeof *s->files);
    tsr_status st =
        s->files ? open_shard(s, folder, name, err) : tsr_fail_nomem(err, sizeof *s->files, folder);
    if (st == TSR_OK)
        st = merge(s, err);
    if (st != TSR_OK)
        tsr_shards_close(s);
    return st;
}

tsr_status tsr_shards_open(struct tsr_shards *s, const char *folder, struct tsr_err *err)
{
    memset(s, 0, sizeof *s);
    bool       single, indexed;
    tsr_status st;
    TSR_TRY(tsr_folder_has(folder, "model.safetensors", &single, err));
    TSR_TRY(tsr_folder_has(folder, INDEX_NAME, &indexed, err));
    if (single) {
        st = tsr_shards_open_file(s, folder, "model.safetensors", err);
    } else if (indexed) {
        st = open_indexed(s, folder, err);
    } else {
        st = tsr_shards_absent(folder, err);
    }
    if (st != TSR_OK)
        tsr_shards_close(s);
    return st;
}

void tsr_shards_close(struct tsr_shards *s)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        tsr_st_close(&s->files[i]);
    free(s->files);
    free(s->tensors);
    memset(s, 0, sizeof *s);
}

struct tsr_stored *tsr_shards_find(const struct tsr_shards *s, const char *name)
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

const char *tsr_shards_path(const struct tsr_shards *s, const struct tsr_stored *t)
{
    return s->files[t->file].file.path;
}
