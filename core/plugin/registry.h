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
#include "plugin/choices.h"

#include <stdbool.h>

struct tsr_registry;

/* The backend that is used if none is named, and that provides host->service. */
#define TSR_PLUGIN_DEFAULT_BACKEND "cpu"

/* docs/decisions/numerics.md, to the bit; or also instructions without a portable twin; or what the backend has
 * under the name auto, and exact where it has none. */
#define TSR_NUMERICS_EXACT   0u
#define TSR_NUMERICS_FAST    1u
#define TSR_NUMERICS_AUTO    2u
#define TSR_NUMERICS_CHOICES 3u
extern const struct tsr_choice tsr_numerics_choices[TSR_NUMERICS_CHOICES];

/* What models run on.  A job's head, a step's options or a command line name it once; it is passed down from
 * there to everything that makes an engine.  Zeros: all layers on the default backend, exact. */
struct tsr_plugin_run_on {
    const char
        *backend; /* component with options; "auto": "cuda" if it has a device; NULL: the default */
    /* 1 + how many of a model's layers, from the first, the backend runs; the others and the head go to the
     * default one.  0: all. */
    uint64_t layers;
    /* Layers, from the first, whose experts run on the default backend while the rest of the layer runs on `backend`. */
    uint64_t cpu_experts;
    /* [layers of the model] 1: the layer is one of them, whatever cpu_experts says; NULL: that counts.  Borrowed, and
     * outlives all engines. */
    const uint8_t *cpu_experts_of;
    uint32_t       numerics; /* TSR_NUMERICS_* */
};

/* pool (may be NULL) serves parallel_for and must outlive the registry.  [setup] */
tsr_status tsr_plugin_registry_create(struct tsr_registry **r, struct tsr_pool *pool,
                                      struct tsr_err *err);
/* The same where plugins' own linear algebra (host->service) follows what models run on.  [setup] */
tsr_status tsr_plugin_registry_create_on(struct tsr_registry **r, struct tsr_pool *pool,
                                         const struct tsr_plugin_run_on *on, struct tsr_err *err);
void       tsr_plugin_registry_destroy(struct tsr_registry *r);
/* One more, with the places that were added to `of`, over another pool: for a rank, whose memory is counted
 * apart and whose models run on `on`.  [setup] */
tsr_status tsr_plugin_registry_like(struct tsr_registry **r, const struct tsr_registry *of,
                                    struct tsr_pool *pool, const struct tsr_plugin_run_on *on,
                                    struct tsr_err *err);

/* Adds a file or folder that the user named (YAML plugins:, --plugin-path).  Paths are searched in
 * the order added, before the standard places (plugins/ next to the executable, then
 * ../lib/tessera, then the user's folder, user.h).  TSR_E_INPUT if the path does not exist. */
tsr_status tsr_plugin_registry_add_path(struct tsr_registry *r, const char *path,
                                        struct tsr_err *err);

/* Reads the plugins of one path that was added, now.  A file that is refused is forgotten, so that
 * its error comes once. */
tsr_status tsr_plugin_registry_scan_path(struct tsr_registry *r, const char *path,
                                         struct tsr_err *err);

/* Reads every plugin in the paths; find() calls it when needed.  A file that is not a plugin is
 * skipped with a debug line if it was found in a folder, and is an error if it was named.  A
 * rejected plugin is an error if it was named, else a warning that find()'s message repeats.
 * Memory or reading that fails is always an error. */
tsr_status tsr_plugin_registry_scan(struct tsr_registry *r, struct tsr_err *err);

/* One loaded plugin. */
struct tsr_plugin_info {
    const struct tsr_plugin *plugin;
    const char              *path; /* real path */
    char                     hash[48];
};
uint64_t                      tsr_plugin_registry_count(const struct tsr_registry *r);
const struct tsr_plugin_info *tsr_plugin_registry_plugin(const struct tsr_registry *r, uint64_t i);

/* Limits of quantizers and solvers that run in child processes.  0: the default. */
struct tsr_plugin_isolation {
    uint64_t time_us;      /* of one call; of a solver that has no deadline */
    uint64_t memory_bytes; /* more than this process holds at the call; half of the machine's */
    uint64_t grace_us;     /* of a solver beyond its deadline; 5 s */
};
#define TSR_PLUGIN_ISOLATED_TIME_US UINT64_C(600000000) /* 10 minutes */

/* A component as the registry keeps it: every table is a full-size copy, so later slots that
 * an older plugin lacks are NULL and the core calls plain pointers. */
struct tsr_plugin_found {
    const struct tsr_plugin_info      *info;
    const struct tsr_component        *component;
    const void                        *iface; /* struct tsr_quantizer_v1, ... by kind, full size */
    const struct tsr_host             *host;  /* for create(): log lines carry the plugin's id    */
    const struct tsr_plugin_isolation *isolate; /* NULL: its calls run in this process */
};

/* name is "rtn" or "org.example.rtn/rtn".  If no loaded plugin has it, searches asked/NAME.so of the folders,
 * the place of plugins with bundled libraries.  Not found: TSR_E_INPUT with the nearest name, the rejected
 * files and reasons, and the folders searched. */
tsr_status tsr_plugin_registry_find(struct tsr_registry *r, const char *kind, const char *name,
                                    struct tsr_plugin_found *found, struct tsr_err *err);
/* Loads asked/NAME.so of the first folder that has it, after scan(); *found: one exists that was
 * not loaded yet. */
tsr_status tsr_plugin_registry_ask(struct tsr_registry *r, const char *name, bool *found,
                                   struct tsr_err *err);
/* The i-th component over all plugins (scan() first); false past the end. */
bool tsr_plugin_registry_component(const struct tsr_registry *r, uint64_t i,
                                   struct tsr_plugin_found *found);

/* The i-th file that was refused so far, and the sentence; false past the end. */
bool tsr_plugin_registry_refused(const struct tsr_registry *r, uint64_t i, const char **path,
                                 const char **why);

/* The i-th folder or file that is searched; false past the end. */
bool tsr_plugin_registry_place(const struct tsr_registry *r, uint64_t i, const char **path);

/* A host table whose log lines have no plugin name; valid, like those of tsr_plugin_found, as long
 * as the registry. */
const struct tsr_host *tsr_plugin_registry_host(const struct tsr_registry *r);
struct tsr_pool       *tsr_plugin_registry_pool(const struct tsr_registry *r);
/* Bytes that plugins hold through host->alloc now, and the most they ever held. */
void tsr_plugin_registry_memory(const struct tsr_registry *r, uint64_t *now, uint64_t *peak);
/* Limits host->alloc to `bytes` in total; 0: no limit. */
void tsr_plugin_registry_set_limit(struct tsr_registry *r, uint64_t bytes);

/* The backend options that it was created with: only for the services. */
const struct tsr_plugin_run_on *tsr_plugin_registry_on(const struct tsr_registry *r);

/* Runs quantizers and solvers found from now on in child processes, with the CPU's linear algebra.
 * [setup] */
void tsr_plugin_registry_set_isolation(struct tsr_registry               *r,
                                       const struct tsr_plugin_isolation *limits);
/* NULL: they are not. */
const struct tsr_plugin_isolation *tsr_plugin_registry_isolation(const struct tsr_registry *r);

/* Sets what the service TSR_HERE reports to plugins of this registry: rank `rank` of `ranks` of this machine.
 * [setup] */
void tsr_plugin_registry_set_here(struct tsr_registry *r, uint32_t rank, uint32_t ranks);

/* Whether the backend has numerics: auto of its own; otherwise auto means exact. */
bool tsr_plugin_backend_has_auto(const struct tsr_component *c);
/* `numerics` into what create() of a backend is given.  TSR_E_CONFIG for fast when
 * the backend does not have it. */
tsr_status tsr_plugin_backend_set_numerics(const struct tsr_component *c, uint32_t numerics,
                                           void *block, struct tsr_err *err);

/* The process-wide stop flag: set by Ctrl-C, polled by host->cancelled and by long loops. */
void tsr_plugin_cancel(void);
bool tsr_plugin_cancelled(void);
/* While on, tsr_plugin_cancel() stops nothing and only makes asked() true: for a loop that first finishes what it has. */
void tsr_plugin_cancel_softly(bool on);
bool tsr_plugin_cancel_asked(void);
/* Clears it; tests only. */
void tsr_plugin_cancel_reset(void);

#endif
