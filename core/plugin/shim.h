/* plugin/shim.h - the host's wrapper functions for a plugin's, with plugin/guard.h around each.
 *
 * A function of an ABI table receives only `self`.  So an instance is a struct of the host that knows
 * the plugin's instance and tables.  create() has no instance yet; therefore each component gets one of
 * many identical functions (shim.c). */
#ifndef TSR_PLUGIN_SHIM_H
#define TSR_PLUGIN_SHIM_H

#include "plugin/guard.h"

#include "plugin/internal.h"
#include "tessera/transport.h"

/* A component of this process, for its life. */
struct tsr_plugin_place {
    struct tsr_plugin_guarded_part     part;
    const struct tsr_component        *source; /* in the plugin; NULL: a place that is free */
    void                              *raw;    /* full-size copy of the plugin's table */
    void                              *table;  /* the same with the functions below */
    const struct tsr_plugin_shim_kind *kind;
};

/* The optional tables of an instance: the plugin's table and its wrapper. */
struct tsr_plugin_shim_extension {
    const char *id;
    const void
            *functions; /* as many as the struct of today has; NULL in it: data, which is copied */
    uint64_t size;
    uint64_t at; /* in the shim: const void *raw, then the struct */
};

#define TSR_SHIM_EXTENSION(shim, id, member, functions)                                            \
    {                                                                                              \
        id, &(functions), sizeof(functions), offsetof(shim, member)                                \
    }

struct tsr_plugin_shim_kind {
    const char                             *id;
    const void                             *functions; /* without create() */
    uint64_t                                size;      /* of the table */
    uint64_t                                shim_bytes;
    uint64_t                                create_at, extension_at, destroy_at; /* slots */
    const struct tsr_plugin_shim_extension *extensions;
    uint64_t                                n_extensions;
    const char *const                      *plain; /* ids of tables that do not take `self` */
    uint64_t                                n_plain;
};

/* The `self` of a wrapper table; the struct of each kind begins with it. */
struct tsr_plugin_shim {
    const struct tsr_plugin_place *place;
    void                          *self; /* the plugin's */
};

/* The plugin's table for `id`.  A table from one instance serves all instances of its kind, so this instance
 * may not have been asked for it.  [any] */
const void *tsr_plugin_shim_ask(const struct tsr_plugin_shim *shim, const void *const *raw,
                                const char *id);
static inline const void *tsr_shim_raw(const struct tsr_plugin_shim *shim, const void *const *raw,
                                       const char *id)
{
    const void *table = __atomic_load_n(raw, __ATOMIC_ACQUIRE);
    return table ? table : tsr_plugin_shim_ask(shim, raw, id);
}

/* Around one call: `shim` is the shim, TABLE the plugin's table. */
#define TSR_CALL(type, table, name, ...)                                                           \
    const struct type      *shim = (const void *)self;                                             \
    struct tsr_plugin_guard g;                                                                     \
    tsr_guard_enter(&g, &shim->base.place->part, #name, err);                                      \
    return tsr_guard_leave(&g, (table)->name(shim->base.self, __VA_ARGS__), err)

/* An operation of a stream. */
#define TSR_CALL_QUEUED(type, table, name, ...)                                                     \
    const struct type      *shim = (const void *)self;                                              \
    struct tsr_plugin_guard g;                                                                      \
    char                    text = tsr_guard_enter_queued(&g, &shim->base.place->part, #name, err); \
    return tsr_guard_leave_queued(&g, text, (table)->name(shim->base.self, __VA_ARGS__), err)

#define TSR_CALL_STEP(type, table, name, ...)                                                      \
    const struct type      *shim = (const void *)self;                                             \
    struct tsr_plugin_guard g;                                                                     \
    tsr_guard_enter(&g, &shim->base.place->part, #name, err);                                      \
    return tsr_plugin_guard_leave_step(&g, (table)->name(shim->base.self, __VA_ARGS__), err)

#define TSR_CALL_LIFE(type, table, name, ...)                                                      \
    const struct type      *shim = (const void *)self;                                             \
    struct tsr_plugin_guard g;                                                                     \
    struct tsr_plugin_state was;                                                                   \
    tsr_plugin_guard_enter_life(&g, &was, &shim->base.place->part, #name, err);                    \
    return tsr_plugin_guard_leave_life(&g, &was, (table)->name(shim->base.self, __VA_ARGS__), err)

/* A function that answers something else than a status. */
#define TSR_CALL_VALUE(type, table, result, name, args)                                            \
    const struct type      *shim = (const void *)self;                                             \
    struct tsr_plugin_guard g;                                                                     \
    tsr_guard_enter(&g, &shim->base.place->part, #name, NULL);                                     \
    result = (table)->name args;                                                                   \
    (void)tsr_guard_leave(&g, TSR_OK, NULL)

#define TSR_CALL_VOID(type, table, name, args)                                                     \
    const struct type      *shim = (const void *)self;                                             \
    struct tsr_plugin_guard g;                                                                     \
    tsr_guard_enter(&g, &shim->base.place->part, #name, NULL);                                     \
    (table)->name args;                                                                            \
    (void)tsr_guard_leave(&g, TSR_OK, NULL)

/* A slot of a table; function pointers are not object pointers, so the bytes are copied. */
void tsr_plugin_shim_slot(const void *table, uint64_t at, void *function);
/* raw with the host's functions where it has some: after their first eight bytes, tables are words. */
void tsr_plugin_shim_cover(void *table, const void *raw, const void *functions, uint64_t size);

void        tsr_plugin_shim_destroy(void *self);
const void *tsr_plugin_shim_extension(const void *self, const char *id);

extern const struct tsr_plugin_shim_kind tsr_shim_quantizer, tsr_shim_solver, tsr_shim_codec,
    tsr_shim_transport, tsr_shim_backend, tsr_shim_sampler, tsr_shim_step, tsr_shim_kv;

/* The wrapper table of a component, the same each time; path and id name the plugin.  TSR_E_INPUT
 * if this process has more components than slots.  [setup] */
tsr_status tsr_plugin_shim_table(const struct tsr_plugin_entry *e, const char *path, const char *id,
                                 const void **table, struct tsr_err *err);

#endif
