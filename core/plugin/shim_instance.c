/* Wrapped instances, and the tables of their extensions. */
#include "plugin/shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef void        destroy_fn(void *);
typedef const void *extension_fn(const void *, const char *);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of shims' extensions */

void tsr_plugin_shim_slot(const void *table, uint64_t at, void *function)
{
    memcpy(function, (const char *)table + at, sizeof(void (*)(void)));
}

void tsr_plugin_shim_cover(void *table, const void *raw, const void *functions, uint64_t size)
{
    uint32_t n;
    memcpy(&n, raw, sizeof n);
    if (n > size)
        n = (uint32_t)size;
    if (table != raw) {
        memset(table, 0, size);
        memcpy(table, raw, n);
    }
    memcpy(table, &n, sizeof n);
    for (uint64_t at = 8; at + 8 <= n; at += 8) {
        uint64_t mine, its;
        memcpy(&mine, (const char *)functions + at, 8);
        memcpy(&its, (const char *)raw + at, 8);
        if (mine && its)
            memcpy((char *)table + at, &mine, 8);
    }
}

void tsr_plugin_shim_destroy(void *self)
{
    struct tsr_plugin_shim *shim = self;
    struct tsr_plugin_guard g;
    struct tsr_plugin_state was;
    destroy_fn             *destroy;
    if (!shim)
        return;
    tsr_plugin_shim_slot(shim->place->raw, shim->place->kind->destroy_at, &destroy);
    tsr_plugin_guard_enter_life(&g, &was, &shim->place->part, "destroy", NULL);
    destroy(shim->self);
    (void)tsr_plugin_guard_leave_life(&g, &was, TSR_OK, NULL);
    free(shim);
}

/* The host's wrapper of one of the plugin's tables; the instance owns it and creates it on first
 * request. */
static const void *extend(struct tsr_plugin_shim *shim, const struct tsr_plugin_shim_extension *x,
                          const void *raw)
{
    const void **its = (const void **)(void *)((char *)shim + x->at);
    void        *mine = its + 1;
    pthread_mutex_lock(&lock);
    if (*its != raw) {
        tsr_plugin_shim_cover(mine, raw, x->functions, x->size);
        __atomic_store_n(its, raw, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return mine;
}

const void *tsr_plugin_shim_extension(const void *self, const char *id)
{
    struct tsr_plugin_shim            *shim = (struct tsr_plugin_shim *)(uintptr_t)self;
    const struct tsr_plugin_shim_kind *k = shim->place->kind;
    struct tsr_plugin_guard            g;
    extension_fn                      *extension;
    tsr_plugin_shim_slot(shim->place->raw, k->extension_at, &extension);
    tsr_guard_enter(&g, &shim->place->part, "extension", NULL);
    const void *raw = extension(shim->self, id);
    (void)tsr_guard_leave(&g, TSR_OK, NULL);
    if (!raw)
        return NULL;
    for (uint64_t i = 0; i < k->n_extensions; i++)
        if (strcmp(k->extensions[i].id, id) == 0)
            return extend(shim, &k->extensions[i], raw);
    for (uint64_t i = 0; i < k->n_plain; i++)
        if (strcmp(k->plain[i], id) == 0)
            return raw;
    return NULL; /* its functions would be given the host's instance for the plugin's */
}

const void *tsr_plugin_shim_ask(const struct tsr_plugin_shim *shim, const void *const *raw,
                                const char *id)
{
    (void)tsr_plugin_shim_extension(shim, id);
    return __atomic_load_n(raw, __ATOMIC_ACQUIRE);
}
