#include "plugin/internal.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/elf.h"
#include "plugin/fpmode.h"
#include "plugin/trust.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SYMBOL "tsr_plugin_v1"
#define PREFIX "tsr_plugin_v"

/* Every file that dlopen() took, for the life of the process: plugins are never unloaded, so that
 * no other file gets the inode of one.  A second registry gets the same verdict as the first. */
struct mapped {
    struct mapped  *next;
    struct tsr_file file; /* its former identity; closed */
    uint64_t        number;
    void           *handle;
    bool            changed_fp;
};

static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapped  *mapped_all;

/* dlopen() returns the loaded file for a name that it has seen, and descriptor numbers are reused.
 * The file's number is therefore encoded in the name, as a '/' or "/./" for each of its bits, so
 * that the descriptor need not stay open for the life of the process. */
static void name_open_file(char *name, size_t cap, int fd, uint64_t number)
{
    size_t n = (size_t)snprintf(name, cap, "/proc/self/fd");
    for (int bit = 15; bit >= 0; bit--)
        n += (size_t)snprintf(name + n, cap - n, "%s", number >> bit & 1 ? "/./" : "/");
    (void)snprintf(name + n, cap - n, "%d", fd);
}

/* The loader reports reasons only as text, and gives no detail if a map fails. */
static bool lacks_resources(const char *why)
{
    if (strstr(why, "memory protection")) /* of pages that a damaged file does not have */
        return false;
    if (strstr(why, strerror(ENOMEM)) || strstr(why, "out of memory") ||
        strstr(why, strerror(EMFILE)) || strstr(why, strerror(ENFILE)))
        return true;
    if (!strstr(why, "failed to map segment"))
        return false;
    const size_t room = (size_t)64 << 20; /* more than any of our libraries needs */
    void *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return true;
    (void)munmap(p, room);
    return false;
}

static tsr_status map_new(struct tsr_file *f, struct mapped **out, struct tsr_err *err)
{
    uint64_t number = mapped_all ? mapped_all->number + 1 : 0;
    if (number > UINT16_MAX)
        return tsr_fail(err, TSR_E_NOMEM, "%s: is one plugin more than a process can load, %d",
                        f->path, UINT16_MAX + 1);
    struct mapped *m = tsr_new(1, sizeof *m);
    if (!m)
        return tsr_fail_nomem(err, sizeof *m, f->path);
    char name[96];
    name_open_file(name, sizeof name, f->fd, number);
    struct tsr_plugin_fpmode before = tsr_fpmode_get();
    errno = 0;
    m->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    bool                     no_memory = errno == ENOMEM;
    struct tsr_plugin_fpmode after = tsr_fpmode_get();
    m->changed_fp = !tsr_fpmode_equal(before, after);
    if (m->changed_fp)
        tsr_fpmode_set(before);
    if (!m->handle) {
        const char *why = dlerror();
        size_t      n = strlen(name);
        if (why && strncmp(why, name, n) == 0 && strncmp(why + n, ": ", 2) == 0)
            why += n + 2; /* f->path says more */
        free(m);
        if (no_memory || (why && lacks_resources(why)))
            return tsr_fail(err, TSR_E_NOMEM, "%s: no memory or descriptors to load it (%s)",
                            f->path, why ? why : "no reason given");
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: cannot be loaded (%s); install what it needs or build it again",
                        f->path, why ? why : "no reason given");
    }
    m->file = *f;
    m->file.fd = -1;
    m->file.path = NULL;
    m->number = number;
    m->next = mapped_all;
    mapped_all = m;
    *out = m;
    return TSR_OK;
}

/* Maps the opened file, or finds that it is mapped. */
static tsr_status map_file(struct tsr_file *f, struct mapped **out, struct tsr_err *err)
{
    pthread_mutex_lock(&mapped_lock);
    struct mapped *m = mapped_all;
    while (m && !(m->file.dev == f->dev && m->file.ino == f->ino))
        m = m->next;
    tsr_status st = TSR_OK;
    if (!m)
        st = map_new(f, &m, err);
    else if (m->file.mtime_ns != f->mtime_ns || m->file.size != f->size)
        st = tsr_fail(err, TSR_E_INPUT, "%s: changed after it was loaded; start the program again",
                      f->path);
    pthread_mutex_unlock(&mapped_lock);
    *out = m;
    return st;
}

static tsr_status hash_open_file(const struct tsr_file *f, char *text, struct tsr_err *err)
{
    enum { CHUNK = 1 << 18 };
    struct tsr_hasher *h = NULL;
    char               digest[TSR_HASH_TEXT] = "";
    void              *buf = tsr_new(1, CHUNK);
    tsr_status         st = buf ? tsr_hasher_create(&h, err) : tsr_fail_nomem(err, CHUNK, f->path);
    for (uint64_t at = 0; st == TSR_OK && at < f->size;) {
        uint64_t n = f->size - at < CHUNK ? f->size - at : CHUNK;
        st = tsr_file_read(f, at, buf, n, err);
        if (st == TSR_OK)
            tsr_hasher_update(h, buf, n);
        at += n;
    }
    tsr_hasher_finish(h, digest);
    free(buf);
    memcpy(text, digest, sizeof digest);
    return st;
}

static tsr_status load_open_file(struct tsr_plugin_loaded *l, struct tsr_file *f, bool *is_plugin,
                                 struct tsr_err *err)
{
    const char                  *path = l->path;
    struct tsr_plugin_elf_plugin probe;
    TSR_TRY(tsr_plugin_elf_probe(f, SYMBOL, PREFIX, &probe, is_plugin, err));
    TSR_TRY(tsr_plugin_check_head(probe.head, path, err));
    TSR_TRY(hash_open_file(f, l->info.hash, err));
    TSR_TRY(tsr_file_unchanged(f, err));
    l->dev = f->dev;
    l->ino = f->ino;
    struct mapped *m;
    TSR_TRY(map_file(f, &m, err));
    if (m->changed_fp)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: switched the processor's floating-point mode when it was loaded (flush to "
            "zero, as -ffast-math or -Ofast in the link command does), which would change "
            "every result; link it without them",
            path);
    const struct tsr_plugin *p = dlsym(m->handle, SYMBOL);
    if (!p)
        return tsr_fail(err, TSR_E_INPUT, "%s: the loader does not find %s; build it again", path,
                        SYMBOL);
    if (memcmp(p, probe.head, sizeof probe.head) != 0)
        return tsr_fail(
            err, TSR_E_INPUT,
            "%s: its descriptor in memory differs from the file's; plugin descriptors must be "
            "constant",
            path);
    return tsr_plugin_check_plugin(p, path, l, err);
}

tsr_status tsr_plugin_load(struct tsr_plugin_loaded **out, const char *real, bool *is_plugin,
                           struct tsr_err *err)
{
    *is_plugin = true; /* one that cannot be read may be one, too: refused, not skipped */
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, real, err));
    struct tsr_plugin_loaded *l = tsr_new(1, sizeof *l);
    if (l)
        l->path = tsr_strdup(real);
    tsr_status st = l && l->path ? TSR_OK : tsr_fail_nomem(err, sizeof *l, real);
    if (st == TSR_OK)
        st = tsr_plugin_path_trusted(real, err);
    if (st == TSR_OK)
        st = load_open_file(l, &f, is_plugin, err);
    tsr_file_close(&f);
    if (st != TSR_OK) {
        tsr_plugin_loaded_free(l);
        return st;
    }
    l->info.plugin = &l->plugin;
    l->info.path = l->path;
    tsr_logf(TSR_LOG_DEBUG, "%s: plugin %s %s, %s", real, l->plugin.id, l->plugin.version,
             l->info.hash);
    *out = l;
    return TSR_OK;
}

void tsr_plugin_loaded_free(struct tsr_plugin_loaded *l)
{
    if (!l)
        return;
    for (uint64_t i = 0; i < l->n; i++) {
        free(l->entries[i].iface);
        free(l->entries[i].options);
    }
    free(l->entries);
    free(l->path);
    free(l);
}
