#include "checkpoint/hub.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART    128 /* bytes of an organisation, a name or a revision */
#define REF_CAP 256

struct id {
    char org[PART], name[PART], revision[PART]; /* org "": the name alone */
};

static bool is_word(const char *s, size_t n, const char *more)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (n == 0 || n >= PART || (n <= 2 && strncmp(s, "..", n) == 0))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr(letters, s[i]) && !strchr(more, s[i]))
            return false;
    return strstr(s, "..") == NULL;
}

static tsr_status parse(const char *text, struct id *id, struct tsr_err *err)
{
    const char *at = text + strlen(TSR_HUB_PREFIX), *slash = strchr(at, '/');
    const char *name = slash && (!strchr(at, '@') || slash < strchr(at, '@')) ? slash + 1 : at;
    size_t      n = strcspn(name, "@"), org = name > at ? (size_t)(name - 1 - at) : 0;
    const char *revision = name[n] ? name + n + 1 : "main";
    if ((name > at && !is_word(at, org, "")) || !is_word(name, n, "") ||
        !is_word(revision, strlen(revision), "/"))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is not the name of a model on the hub, as hf:ORG/NAME or "
                        "hf:ORG/NAME@REVISION",
                        text);
    (void)snprintf(id->org, sizeof id->org, "%.*s", (int)org, at);
    (void)snprintf(id->name, sizeof id->name, "%.*s", (int)n, name);
    (void)snprintf(id->revision, sizeof id->revision, "%s", revision);
    return TSR_OK;
}

static char *join3(const char *a, const char *b, const char *c)
{
    char *ab = a ? tsr_path_join(a, b) : NULL, *abc = ab ? tsr_path_join(ab, c) : NULL;
    free(ab);
    return abc;
}

static const char *chosen; /* by tsr_checkpoint_hub_use() */

void tsr_checkpoint_hub_use(const char *folder)
{
    chosen = folder && *folder ? folder : NULL;
}

/* The cache; fresh memory, NULL: out of memory or no home. */
static char *cache_of(void)
{
    const char *user = getenv("HOME");
    if (chosen)
        return tsr_strdup(chosen);
    return user && *user ? tsr_path_join(user, ".cache/huggingface/hub") : NULL;
}

/* The snapshot of a revision in a models-- folder; *folder NULL: it is not there. */
static tsr_status snapshot(const char *model, const char *revision, char **folder,
                           struct tsr_err *err)
{
    char    *ref = join3(model, "refs", revision), *text = NULL;
    uint64_t len = 0;
    *folder = NULL;
    if (!ref)
        return tsr_fail_nomem(err, strlen(model), model);
    tsr_status st = TSR_OK;
    if (tsr_path_exists(ref) && !tsr_path_is_dir(ref))
        st = tsr_file_slurp(ref, REF_CAP, &text, &len, err);
    free(ref);
    if (st != TSR_OK)
        return st;
    if (text)
        text[strcspn(text, " \r\n\t")] = '\0';
    const char *commit = text ? text : revision;
    if (is_word(commit, strlen(commit), "")) {
        *folder = join3(model, "snapshots", commit);
        st = *folder ? TSR_OK : tsr_fail_nomem(err, strlen(model), model);
    }
    free(text);
    if (*folder && !tsr_path_is_dir(*folder)) {
        free(*folder);
        *folder = NULL;
    }
    return st;
}

tsr_status tsr_checkpoint_hub_find(const char *name, char **folder, struct tsr_err *err)
{
    struct id id;
    char      base[2 * PART + 32];
    TSR_TRY(parse(name, &id, err));
    (void)snprintf(base, sizeof base, "models--%s%s%s", id.org, *id.org ? "--" : "", id.name);
    char *cache = cache_of();
    if (!cache)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: there is no cache of the hub, because the user has no home folder; "
                        "--hf-cache FOLDER names one",
                        name);
    char      *model = tsr_path_join(cache, base);
    tsr_status st =
        model ? snapshot(model, id.revision, folder, err) : tsr_fail_nomem(err, 64, name);
    if (st == TSR_OK && !*folder)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: is not in the cache %s; `hf download %s%s%s%s%s` puts it into the "
                      "cache under the home folder, --hf-cache names another",
                      name, cache, id.org, *id.org ? "/" : "", id.name,
                      strcmp(id.revision, "main") != 0 ? " --revision " : "",
                      strcmp(id.revision, "main") != 0 ? id.revision : "");
    free(model);
    free(cache);
    return st;
}

tsr_status tsr_checkpoint_hub_data_set(const char *name, char **folder, struct tsr_err *err)
{
    char        base[2 * PART + 32];
    const char *slash = strchr(name, '/');
    size_t      org = slash ? (size_t)(slash - name) : 0;
    const char *rest = slash ? slash + 1 : name;
    *folder = NULL;
    if ((slash && !is_word(name, org, "")) || !is_word(rest, strlen(rest), ""))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: is not the name of a data set on the hub, as ORG/NAME", name);
    (void)snprintf(base, sizeof base, "datasets--%.*s%s%s", (int)org, name, org ? "--" : "", rest);
    char *cache = cache_of(), *set = cache ? tsr_path_join(cache, base) : NULL;
    free(cache);
    if (!set) /* no home: there is no cache */
        return TSR_OK;
    tsr_status st = snapshot(set, "main", folder, err);
    free(set);
    return st;
}

tsr_status tsr_checkpoint_hub_open(const char *path, char **folder, struct tsr_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/')
        at--;
    *folder = NULL;
    return strncmp(path + at, "models--", 8) == 0 ? snapshot(path, "main", folder, err) : TSR_OK;
}
