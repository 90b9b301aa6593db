/* plugin/internal.h - declarations shared by the files of the registry. */
#ifndef TSR_PLUGIN_INTERNAL_H
#define TSR_PLUGIN_INTERNAL_H

#include "plugin/spec.h"
#include "tessera/here.h"

#include <pthread.h>
#include <stdatomic.h>

/* Bytes that plugins hold through their hosts, over all of them. */
struct tsr_plugin_account {
    _Atomic uint64_t now, peak, limit; /* limit 0: none */
};

/* The services of host->service; created at first use from the default backend, or under numerics:
 * fast from the one that runs the models. */
struct tsr_plugin_services {
    /* The table, or NULL; logs once why there is none.  [any] */
    const void *(*find)(struct tsr_plugin_services *s, const char *id);
    pthread_mutex_t              lock; /* guards the rest */
    struct tsr_registry         *registry;
    bool                         tried;
    const struct tsr_backend_v1 *backend; /* NULL: none was made */
    struct tsr_plugin_spec       spec;
    void                        *self;
    const void                  *linalg; /* struct tsr_linalg_v1, or NULL */
    struct tsr_here_v1           here;   /* ranks 0: of no rank; not under the lock: set at first */
};
void tsr_plugin_services_init(struct tsr_plugin_services *s, struct tsr_registry *r);
void tsr_plugin_services_free(struct tsr_plugin_services *s);

/* One host table per plugin, so that its log lines carry its id. */
struct tsr_plugin_host_ctx {
    struct tsr_host             host;
    struct tsr_pool            *pool;
    struct tsr_plugin_account  *account;
    struct tsr_plugin_services *services;
    const char                 *id; /* NULL: no prefix */
};
void tsr_plugin_host_init(struct tsr_plugin_host_ctx *c, struct tsr_pool *pool,
                          struct tsr_plugin_account *account, struct tsr_plugin_services *services,
                          const char *id);

/* A checked component with full-size copies of its tables. */
struct tsr_plugin_entry {
    struct tsr_component        component;
    struct tsr_option          *options;
    void                       *iface;   /* of the plugin's own functions */
    const void                 *guarded; /* the wrapper instance (shim.h); NULL outside of one */
    const struct tsr_component *source;  /* in the plugin */
};

struct tsr_plugin_loaded {
    struct tsr_plugin_info     info;
    struct tsr_plugin          plugin; /* full-size copy */
    struct tsr_plugin_host_ctx host;
    uint64_t                   dev, ino;
    char                      *path;
    struct tsr_plugin_entry   *entries;
    uint64_t                   n;
};

/* Checks everything that can be checked without dlopen, then loads a file by its canonical path
 * and checks the descriptor.  On success *out is fresh.  *is_plugin as in tsr_plugin_elf_probe(). */
tsr_status tsr_plugin_load(struct tsr_plugin_loaded **out, const char *real, bool *is_plugin,
                           struct tsr_err *err);
void       tsr_plugin_loaded_free(struct tsr_plugin_loaded *l);

/* The first 16 bytes: magic, struct_size, abi_major, abi_minor. */
tsr_status tsr_plugin_check_head(const unsigned char *head, const char *path, struct tsr_err *err);

/* Sizes and strides of the ABI: structs grow by 8 bytes, so no struct ends at another size. */
tsr_status tsr_plugin_check_whole(uint32_t size, const char *where, const char *what,
                                  struct tsr_err *err);

/* Checks the mapped descriptor and its components without calling into them, and fills
 * l->plugin, l->entries and l->n.  Components of unknown kinds are left out. */
tsr_status tsr_plugin_check_plugin(const struct tsr_plugin *p, const char *path,
                                   struct tsr_plugin_loaded *l, struct tsr_err *err);

/* UTF-8 without control characters: it is printed and goes into reports. */
bool tsr_plugin_check_text(const char *s);

/* An option table alone; where: "PATH: quantizer \"rtn\"". */
tsr_status tsr_plugin_check_options(const struct tsr_component *c, const char *where,
                                    struct tsr_option **copy, struct tsr_err *err);

/* The table type of a component kind. */
struct tsr_plugin_kind {
    const char *id;   /* "tessera.quantizer/1" */
    const char *noun; /* "quantizer"           */
    uint64_t    size; /* of the whole table; a plugin's table may end after the required slots */
    const struct tsr_plugin_slot {
        uint64_t    offset;
        const char *name;
    } * required;
    uint64_t n_required;
};
const struct tsr_plugin_kind *tsr_plugin_kind_find(const char *id);

#endif
