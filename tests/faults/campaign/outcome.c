/* faults/campaign/outcome.c - what lies in a folder, as digests of bytes without what differs from run to run. */
#include "campaign.h"

#include <dirent.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t digest_bytes(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    return h ? h : 1;
}

static char *read_all(const char *path, size_t *n)
{
    FILE       *f = fopen(path, "rb");
    struct stat st;
    char       *p = NULL;
    if (f && fstat(fileno(f), &st) == 0 && (p = malloc((size_t)st.st_size + 1)) != NULL) {
        *n = fread(p, 1, (size_t)st.st_size, f);
        p[*n] = '\0';
    }
    if (f)
        (void)fclose(f);
    return p;
}

static void drop_keys(json_t *j, const struct drop *d)
{
    const char *key;
    void       *next;
    json_t     *v;
    size_t      i;
    if (json_is_array(j)) {
        json_array_foreach (j, i, v)
            drop_keys(v, d);
    } else if (json_is_object(j)) {
        json_object_foreach_safe (j, next, key, v) {
            bool drops = false;
            for (int k = 0; k < d->n; k++)
                drops |= fnmatch(d->key[k], key, 0) == 0;
            if (drops)
                (void)json_object_del(j, key);
            else
                drop_keys(v, d);
        }
    }
}

/* How long the letter and sign of an exponent are, as in 9.8e-05; 0: it is another letter. */
static size_t exponent(const char *text)
{
    size_t n = text[1] == '-' || text[1] == '+' ? 2 : 1;
    return text[n] >= '0' && text[n] <= '9' ? n : 0;
}

/* The text without the folder's name, and where it is asked for without numbers, also as 9.8e-05 and 3.1·10⁻⁴. */
static size_t plain(char *text, size_t n, const char *folder, bool numbers)
{
    size_t len = strlen(folder), out = 0;
    char   before = '\0'; /* the text is moved over what stood there */
    for (size_t i = 0; i < n;) {
        size_t more =
            numbers && text[i] == 'e' && before >= '0' && before <= '9' ? exponent(text + i) : 0;
        before = text[i];
        if (n - i >= len && memcmp(text + i, folder, len) == 0) {
            text[out++] = '@';
            i += len;
        } else if (more) {
            i += more;
        } else if (numbers && (strchr("0123456789 .-", text[i]) || (unsigned char)text[i] > 127)) {
            i++;
        } else
            text[out++] = text[i++];
    }
    text[out] = '\0';
    return out;
}

static bool is_text(const char *name)
{
    static const char *const ends[] = { ".json", ".jsonl", ".yaml", ".html", "-", NULL };
    size_t                   n = strlen(name);
    for (int i = 0; ends[i]; i++) {
        size_t k = strlen(ends[i]);
        if (n >= k && strcmp(name + n - k, ends[i]) == 0)
            return true;
    }
    return false;
}

uint64_t digest_of(const char *path, const char *name, const char *folder,
                   const struct campaign_case *c)
{
    size_t     n = 0;
    char      *text = read_all(path, &n), *dumped = NULL;
    uint64_t   h;
    const bool numbers = words_match(&c->numbers, name);
    json_t    *j = NULL;
    if (!text)
        return 0;
    for (int i = 0; i < c->n_drop; i++)
        if (words_match(&(struct words){ .n = 1, .at = { c->drop[i].file } }, name)) {
            if (!j)
                j = json_loadb(text, n, 0, NULL);
            if (j)
                drop_keys(j, &c->drop[i]);
        }
    if (j && (dumped = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS)) != NULL) {
        free(text);
        text = dumped;
        n = strlen(text);
    }
    json_decref(j);
    if (numbers || is_text(name))
        n = plain(text, n, folder, numbers);
    h = digest_bytes(text, n);
    free(text);
    return h;
}

static bool walk(struct outcome *o, const char *folder, const char *below,
                 const struct campaign_case *c, char *why)
{
    char path[600], name[300];
    (void)snprintf(path, sizeof path, "%s/%s", folder, below);
    DIR *d = opendir(path);
    if (!d)
        return true; /* not there */
    bool good = true;
    for (struct dirent *e; good && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        (void)snprintf(name, sizeof name, "%.120s%s%.120s", below, *below ? "/" : "", e->d_name);
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        if (lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            good = walk(o, folder, name, c, why);
            continue;
        }
        if (o->n == MOST_FILES) {
            (void)snprintf(why, 200, "more than %d files", MOST_FILES);
            good = false;
            break;
        }
        struct seen_file *f = &o->file[o->n++];
        (void)snprintf(f->path, sizeof f->path, "%.199s", name);
        f->kind = S_ISREG(st.st_mode) ? 'f' : S_ISLNK(st.st_mode) ? 'l' : 'p';
        f->digest = f->kind == 'f' ? digest_of(path, name, folder, c) : 0;
    }
    (void)closedir(d);
    return good;
}

bool outcome_take(struct outcome *o, const char *folder, const struct campaign_case *c, char *why)
{
    o->n = 0;
    return walk(o, folder, "", c, why);
}

const struct seen_file *outcome_find(const struct outcome *o, const char *path)
{
    for (int i = 0; i < o->n; i++)
        if (strcmp(o->file[i].path, path) == 0)
            return &o->file[i];
    return NULL;
}
