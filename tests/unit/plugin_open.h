/* plugin_open.h - tests reach in-tree plugins through the registry, as the program does. */
#ifndef TSR_TEST_PLUGIN_OPEN_H
#define TSR_TEST_PLUGIN_OPEN_H

#include "plugin/registry.h"

/* Opens a registry on this build's plugins and finds one; fails the test otherwise. */
static inline struct tsr_registry *open_plugin(const char *kind, const char *name,
                                               struct tsr_plugin_found *found)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_registry *r = NULL;
    if (tsr_plugin_registry_create(&r, NULL, &e.err) != TSR_OK ||
        tsr_plugin_registry_add_path(r, TSR_TEST_PLUGINS, &e.err) != TSR_OK ||
        tsr_plugin_registry_find(r, kind, name, found, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return r;
}

#endif
