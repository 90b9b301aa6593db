/* plugin/registry.h - finds, checks, loads and names plugins; the host's services.
 *
 * Everything that a plugin provides is reached through here, also what ships with
 * Tessera: the core knows no plugin by name.  Loaded files stay loaded.
 *
 *   registry -> add paths -> find(kind, name) -> create an instance -> use its table
 */
#ifndef TSR_PLUGIN_REGISTRY_H
#define TSR_PLUGIN_REGISTRY_H

#include "base/err.h"
#include "base/pool.h"

#include <stdbool.h>

struct tsr_registry;

/* The backend that is used where none is named, and that serves host->service. */
#define TSR_DEFAULT_BACKEND "cpu"

/* pool (may be NULL) serves parallel_for and must outlive the registry.  [setup] */
tsr_status tsr_registry_create(struct tsr_registry **r, struct tsr_pool *pool, struct tsr_err *err);
void       tsr_registry_destroy(struct tsr_registry *r);
/* One more, with the places that were added to `of` and its numerics, over another pool: for a rank,
 * whose memory is counted apart.  [setup] */
tsr_status tsr_registry_like(struct tsr_registry **r, const struct tsr_registry *of,
                             struct tsr_pool *pool, struct tsr_err *err);

/* A file or a folder that the user named (YAML plugins:, --plugin-path), searched in the
 * order added and before the standard places (plugins/ beside the executable, then
 * ../lib/tessera).  A path that does not exist is TSR_E_INPUT. */
tsr_status tsr_registry_add_path(struct tsr_registry *r, const char *path, struct tsr_err *err);

/* Reads the plugins of one path that was added, now.  A file that is refused is forgotten, so that
 * its error comes once. */
tsr_status tsr_registry_scan_path(struct tsr_registry *r, const char *path, struct tsr_err *err);

/* Reads every plugin in the paths; called by find() when needed.  A file that is no plugin
 * is skipped with a debug line when it was found in a folder and is an error when it was
 * named; a plugin that is refused is an error when named, else a warning that is also kept
 * for find()'s message. */
tsr_status tsr_registry_scan(struct tsr_registry *r, struct tsr_err *err);

/* One loaded plugin. */
struct tsr_plugin_info {
    const struct tsr_plugin *plugin;
    const char              *path; /* real path */
    char                     hash[48];
};
uint64_t                      tsr_registry_count(const struct tsr_registry *r);
const struct tsr_plugin_info *tsr_registry_plugin(const struct tsr_registry *r, uint64_t i);

/* Quantizers and solvers at work in processes of their own.  0: the default. */
struct tsr_isolation {
    uint64_t time_us;      /* of one call; of a solver that has no deadline */
    uint64_t memory_bytes; /* more than this process holds at the call; half of the machine's */
    uint64_t grace_us;     /* of a solver beyond its deadline; 5 s */
};
#define TSR_ISOLATED_TIME_US UINT64_C(600000000) /* 10 minutes */

/* A component as the registry keeps it: every table is a full-size copy, so later slots that
 * an older plugin lacks are NULL and the core calls plain pointers. */
struct tsr_found {
    const struct tsr_plugin_info *info;
    const struct tsr_component   *component;
    const void                   *iface;   /* struct tsr_quantizer_v1, ... by kind, full size */
    const struct tsr_host        *host;    /* for create(): log lines carry the plugin's id    */
    const struct tsr_isolation   *isolate; /* NULL: its calls run in this process */
};

/* name is "rtn" or "org.example.rtn/rtn".  What no loaded plugin has is looked for in asked/NAME.so
 * of the folders, where plugins are that bring a library with them.  Not found: TSR_E_INPUT with the nearest name, what
 * was refused and why, and the folders searched. */
tsr_status tsr_registry_find(struct tsr_registry *r, const char *kind, const char *name,
                             struct tsr_found *found, struct tsr_err *err);
/* Loads asked/NAME.so of the first folder that has it, after scan(); *found: there was one that was
 * not loaded yet. */
tsr_status tsr_registry_ask(struct tsr_registry *r, const char *name, bool *found,
                            struct tsr_err *err);
/* The i-th component over all plugins (scan() first); false past the end. */
bool tsr_registry_component(const struct tsr_registry *r, uint64_t i, struct tsr_found *found);

/* The i-th file that was refused so far, and the sentence; false past the end. */
bool tsr_registry_refused(const struct tsr_registry *r, uint64_t i, const char **path,
                          const char **why);

/* The i-th folder or file that is searched; false past the end. */
bool tsr_registry_place(const struct tsr_registry *r, uint64_t i, const char **path);

/* A host table without a plugin's name in front of its log lines; valid, like those of
 * tsr_found, as long as the registry. */
const struct tsr_host *tsr_registry_host(const struct tsr_registry *r);
struct tsr_pool       *tsr_registry_pool(const struct tsr_registry *r);
/* Bytes that plugins hold through host->alloc now, and the most they ever held. */
void tsr_registry_memory(const struct tsr_registry *r, uint64_t *now, uint64_t *peak);
/* From now on host->alloc refuses what would go beyond `bytes`; 0: no limit. */
void tsr_registry_set_limit(struct tsr_registry *r, uint64_t bytes);

/* `numerics` of every backend that is made from now on; exact at first.  [setup] */
#define TSR_NUMERICS_EXACT 0u /* docs/decisions/numerics.md, to the bit */
#define TSR_NUMERICS_FAST  1u /* also instructions without a portable twin */
extern const struct tsr_choice tsr_numerics_choices[2];
void                           tsr_registry_set_numerics(struct tsr_registry *r, uint32_t numerics);
uint32_t                       tsr_registry_numerics(const struct tsr_registry *r);

/* What runs models where an engine's options name no backend: a component's name, which outlives the
 * registry, or NULL for the default; and options.on_backend of such engines (engine/engine.h).  [setup] */
void        tsr_registry_set_backend(struct tsr_registry *r, const char *name, uint64_t on_backend);
const char *tsr_registry_backend(const struct tsr_registry *r, uint64_t *on_backend);

/* Quantizers and solvers found from now on are to be run in processes of their own, and their linear
 * algebra is the CPU's.  [setup] */
void tsr_registry_set_isolation(struct tsr_registry *r, const struct tsr_isolation *limits);
/* NULL: they are not. */
const struct tsr_isolation *tsr_registry_isolation(const struct tsr_registry *r);

/* What the service TSR_HERE tells plugins of this registry: rank `rank` of `ranks` of this machine.  [setup] */
void tsr_registry_set_here(struct tsr_registry *r, uint32_t rank, uint32_t ranks);

/* `numerics` into what create() of a backend is given, mostly the registry's.  TSR_E_CONFIG for fast when
 * the backend does not have it. */
tsr_status tsr_backend_set_numerics(const struct tsr_component *c, uint32_t numerics, void *block,
                                    struct tsr_err *err);
/* A block with defaults and `numerics`; free() takes it. */
tsr_status tsr_backend_options(const struct tsr_component *c, uint32_t numerics, void **block,
                               struct tsr_err *err);

/* The process-wide stop flag: set by Ctrl-C, seen by host->cancelled and by long loops. */
void tsr_cancel(void);
bool tsr_cancelled(void);
/* Clears it; tests only. */
void tsr_cancel_reset(void);

#endif
