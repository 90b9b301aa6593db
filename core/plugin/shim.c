/* Wrapped components, as the registry returns them. */
#include "plugin/shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 256u /* of components in one process, and, apart from them, of transports */
#define PORTS  64u

typedef tsr_status create_fn(const struct tsr_host *, const void *, void **, struct tsr_err *);
typedef void       destroy_fn(void *);

static struct tsr_plugin_place places[PLACES], ports[PORTS];
static pthread_mutex_t         lock = PTHREAD_MUTEX_INITIALIZER; /* of places */

/* ---- create: one function to a component ------------------------------------------------------- */

static tsr_status make(const struct tsr_plugin_place *p, struct tsr_plugin_shim **shim,
                       struct tsr_err *err)
{
    *shim = calloc(1, p->kind->shim_bytes);
    if (!*shim)
        return tsr_fail_nomem(err, p->kind->shim_bytes, p->part.who);
    (*shim)->place = p;
    return TSR_OK;
}

static tsr_status made(struct tsr_plugin_shim *shim, tsr_status st, void **self)
{
    if (st != TSR_OK)
        free(shim);
    else
        *self = shim;
    return st;
}

static tsr_status create_at(const struct tsr_plugin_place *p, const struct tsr_host *host,
                            const void *opts, void **self, struct tsr_err *err)
{
    struct tsr_plugin_guard g;
    struct tsr_plugin_state was;
    struct tsr_plugin_shim *shim;
    create_fn              *create;
    TSR_TRY(make(p, &shim, err));
    tsr_plugin_shim_slot(p->raw, p->kind->create_at, &create);
    tsr_plugin_guard_enter_life(&g, &was, &p->part, "create", err);
    tsr_status st = create(host, opts, &shim->self, err);
    bool       whole = st == TSR_OK;
    st = tsr_plugin_guard_leave_life(&g, &was, st, err);
    if (whole && st != TSR_OK) { /* it exists, and nothing will request it */
        destroy_fn *destroy;
        tsr_plugin_shim_slot(p->raw, p->kind->destroy_at, &destroy);
        destroy(shim->self);
    }
    return made(shim, st, self);
}

static tsr_status join_at(const struct tsr_plugin_place *p, const struct tsr_host *host,
                          const void *opts, const struct tsr_transport_world *world, void **self,
                          struct tsr_err *err)
{
    const struct tsr_transport_v1 *t = p->raw;
    struct tsr_plugin_guard        g;
    struct tsr_plugin_state        was;
    struct tsr_plugin_shim        *shim;
    TSR_TRY(make(p, &shim, err));
    tsr_plugin_guard_enter_life(&g, &was, &p->part, "create", err);
    tsr_status st = t->create(host, opts, world, &shim->self, err);
    bool       whole = st == TSR_OK;
    st = tsr_plugin_guard_leave_life(&g, &was, st, err);
    if (whole && st != TSR_OK)
        t->destroy(shim->self);
    return made(shim, st, self);
}

static uint64_t world_bytes_at(const struct tsr_plugin_place *p, const void *opts, uint32_t ranks)
{
    const struct tsr_transport_v1 *t = p->raw;
    struct tsr_plugin_guard        g;
    tsr_guard_enter(&g, &p->part, "world_bytes", NULL);
    uint64_t bytes = t->world_bytes(opts, ranks);
    (void)tsr_guard_leave(&g, TSR_OK, NULL);
    return bytes;
}

static const char *via_at(const struct tsr_plugin_place *p, const void *opts)
{
    const struct tsr_transport_v1 *t = p->raw;
    struct tsr_plugin_guard        g;
    tsr_guard_enter(&g, &p->part, "via", NULL);
    const char *via = t->via(opts);
    (void)tsr_guard_leave(&g, TSR_OK, NULL);
    return via;
}

#define EACH_16(X, h)                                                                              \
    X(h##0)                                                                                        \
    X(h##1)                                                                                        \
    X(h##2)                                                                                        \
    X(h##3)                                                                                        \
    X(h##4) X(h##5) X(h##6) X(h##7) X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define EACH_64(X, h) EACH_16(X, h##0) EACH_16(X, h##1) EACH_16(X, h##2) EACH_16(X, h##3)
#define EACH_PORT(X)  EACH_64(X, 0x)
#define EACH_PLACE(X)                                                                              \
    EACH_PORT(X)                                                                                   \
    EACH_16(X, 0x4)                                                                                \
    EACH_16(X, 0x5)                                                                                \
    EACH_16(X, 0x6)                                                                                \
    EACH_16(X, 0x7)                                                                                \
    EACH_16(X, 0x8)                                                                                \
    EACH_16(X, 0x9)                                                                                \
    EACH_16(X, 0xa) EACH_16(X, 0xb) EACH_16(X, 0xc) EACH_16(X, 0xd) EACH_16(X, 0xe) EACH_16(X, 0xf)

#define CREATE(n)                                                                                  \
    static tsr_status create_##n(const struct tsr_host *host, const void *opts, void **self,       \
                                 struct tsr_err *err)                                              \
    {                                                                                              \
        return create_at(&places[n], host, opts, self, err);                                       \
    }
#define PORT(n)                                                                                    \
    static tsr_status join_##n(const struct tsr_host *host, const void *opts,                      \
                               const struct tsr_transport_world *world, void **self,               \
                               struct tsr_err *err)                                                \
    {                                                                                              \
        return join_at(&ports[n], host, opts, world, self, err);                                   \
    }                                                                                              \
    static uint64_t world_bytes_##n(const void *opts, uint32_t ranks)                              \
    {                                                                                              \
        return world_bytes_at(&ports[n], opts, ranks);                                             \
    }                                                                                              \
    static const char *via_##n(const void *opts)                                                   \
    {                                                                                              \
        return via_at(&ports[n], opts);                                                            \
    }
/* clang-format off */
EACH_PLACE(CREATE)
EACH_PORT(PORT)
/* clang-format on */

#define CREATE_NAME(n) create_##n,
#define PORT_NAMES(n)  { .create = join_##n, .world_bytes = world_bytes_##n, .via = via_##n },
static create_fn *const              creates[PLACES] = { EACH_PLACE(CREATE_NAME) };
static const struct tsr_transport_v1 port_slots[PORTS] = { EACH_PORT(PORT_NAMES) };

/* ---- tables ------------------------------------------------------------------------------------------ */

static const struct tsr_plugin_shim_kind *kind_of(const char *id)
{
    static const struct tsr_plugin_shim_kind *const kinds[] = {
        &tsr_shim_quantizer, &tsr_shim_solver,  &tsr_shim_codec, &tsr_shim_transport,
        &tsr_shim_backend,   &tsr_shim_sampler, &tsr_shim_step,  &tsr_shim_kv
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->id, id) == 0)
            return kinds[i];
    return NULL;
}

static tsr_status fill(struct tsr_plugin_place *p, uint64_t n, const struct tsr_plugin_entry *e,
                       const struct tsr_plugin_shim_kind *k, const char *path, const char *id,
                       struct tsr_err *err)
{
    const char *noun = tsr_plugin_kind_find(e->component.kind)->noun;
    size_t      room = strlen(path) + strlen(noun) + strlen(e->component.name) + strlen(id) + 16;
    p->part.who = malloc(room);
    p->raw = malloc(k->size);
    p->table = malloc(k->size);
    if (!p->part.who || !p->raw || !p->table) {
        free(p->part.who);
        free(p->raw);
        free(p->table);
        return tsr_fail_nomem(err, room + 2 * k->size, path);
    }
    (void)snprintf(p->part.who, room, "%s: %s \"%s\" of %s", path, noun, e->component.name, id);
    memcpy(p->raw, e->iface, k->size);
    tsr_plugin_shim_cover(p->table, p->raw, k->functions, k->size);
    if (k == &tsr_shim_transport)
        tsr_plugin_shim_cover(p->table, p->table, &port_slots[n], k->size);
    else
        memcpy((char *)p->table + k->create_at, &creates[n], sizeof creates[n]);
    p->kind = k;
    p->source = e->source;
    return TSR_OK;
}

tsr_status tsr_plugin_shim_table(const struct tsr_plugin_entry *e, const char *path, const char *id,
                                 const void **table, struct tsr_err *err)
{
    const struct tsr_plugin_shim_kind *k = kind_of(e->component.kind);
    bool                               port = k == &tsr_shim_transport;
    struct tsr_plugin_place           *all = port ? ports : places;
    uint64_t                           cap = port ? PORTS : PLACES, n = 0;
    tsr_status                         st = TSR_OK;
    if (!k) {
        *table = e->iface;
        return TSR_OK;
    }
    tsr_plugin_guard_watch();
    pthread_mutex_lock(&lock);
    while (n < cap && all[n].source && all[n].source != e->source)
        n++;
    if (n == cap)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: this process has %llu components of plugins, which is all that it has "
                      "room for; name fewer plugins",
                      path, (unsigned long long)cap);
    else if (!all[n].source)
        st = fill(&all[n], n, e, k, path, id, err);
    if (st == TSR_OK)
        *table = all[n].table;
    pthread_mutex_unlock(&lock);
    return st;
}
