#include "checkpoint/contents.h"

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/safetensors/folder.h"
#include "checkpoint/safetensors/shards.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What else a folder holds. */
struct contents {
    bool     pickle, gguf, shard;
    uint64_t models;    /* packed ones, folders of safetensors, files */
    char     list[800]; /* their paths, with ", " between them */
    char    *one;       /* the last of them; owned */
};

static bool is_model(const char *path)
{
    static const char *const marks[] = { "packed.json", "model.safetensors", TSR_SHARDS_INDEX };
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    bool                     yes = false;
    if (!tsr_path_is_dir(path))
        return tsr_prepacked_is(path);
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !yes; i++)
        yes = tsr_checkpoint_folder_has(path, marks[i], &yes, &e.err) == TSR_OK && yes;
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

char *tsr_checkpoint_contents_only_model(const char *folder)
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

tsr_status tsr_checkpoint_contents_config_alone(const char *folder, bool *yes, struct tsr_err *err)
{
    struct contents c;
    *yes = false;
    if (!tsr_path_is_dir(folder) || is_model(folder))
        return TSR_OK;
    TSR_TRY(tsr_checkpoint_folder_has(folder, "config.json", yes, err));
    look_into(&c, folder);
    free(c.one);
    *yes = *yes && !c.models && !c.shard && !c.pickle && !c.gguf;
    return TSR_OK;
}

/* No safetensors: the hint depends on the files found instead. */
tsr_status tsr_checkpoint_contents_absent(const char *folder, struct tsr_err *err)
{
    struct contents c;
    look_into(&c, folder);
    free(c.one);
    if (c.models) /* as in the folder of a job */
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is not a model, but holds some: %s; name one of them", folder, c.list);
    if (c.shard)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: holds safetensors files, but neither model.safetensors nor " TSR_SHARDS_INDEX,
            folder);
    if (c.pickle)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds only PyTorch pickle files, which can run code when they are "
                        "read; convert them to safetensors first (in Python: "
                        "model.save_pretrained(folder, safe_serialization=True))",
                        folder);
    if (c.gguf)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: holds a GGUF file; name that file itself as the model", folder);
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: neither model.safetensors nor " TSR_SHARDS_INDEX " is there", folder);
}

tsr_status tsr_checkpoint_contents_weights(const char *folder, struct tsr_err *err)
{
    bool single, indexed;
    TSR_TRY(tsr_checkpoint_folder_has(folder, "model.safetensors", &single, err));
    TSR_TRY(tsr_checkpoint_folder_has(folder, TSR_SHARDS_INDEX, &indexed, err));
    return single || indexed ? TSR_OK : tsr_checkpoint_contents_absent(folder, err);
}
