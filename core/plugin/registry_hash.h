/* plugin/registry_hash.h - whether two machines have the same plugins. */
#ifndef TSR_PLUGIN_REGISTRY_HASH_H
#define TSR_PLUGIN_REGISTRY_HASH_H

#include "base/hash.h"
#include "plugin/registry.h"

/* Of the hashes of all plugins, independent of discovery order; scans first.  [setup] */
tsr_status tsr_plugin_registry_hash(struct tsr_registry *r, char text[TSR_HASH_TEXT],
                                    struct tsr_err *err);

#endif
