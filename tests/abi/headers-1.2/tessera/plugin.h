/* tessera/plugin.h - plugin: the descriptor that a shared object exports.
 *
 * The plugin defines one constant, tsr_plugin_v1, and exports no other symbol.  The host reads its
 * first 16 bytes before it loads the file, and then the list of components.  This header includes
 * every header that a plugin of any kind needs.  The headers need only the C standard library, and
 * compile as C11 and as C++11.  ABI major 1 is append-only: docs/abi.md has the rules,
 * tests/abi/layout_v1.c the offsets.
 *
 * Example: the descriptor of a plugin with one component.
 *
 *     extern const struct tsr_component rows8;
 *     static const struct tsr_component *const components[] = { &rows8 };
 *     TSR_PLUGIN_SYMBOL(rows8) = {
 *         TSR_PLUGIN_HEADER,
 *         .id = "org.example.rows8", .version = "1.0.0", .license = "Apache-2.0",
 *         .build = "gcc 12, -O2",
 *         .components = components, .n_components = 1,
 *     };
 */
#ifndef TSR_PLUGIN_H
#define TSR_PLUGIN_H

#include "tessera/component.h"
#include "tessera/dtype.h"
#include "tessera/host.h"
#include "tessera/option.h"
#include "tessera/status.h"
#include "tessera/table.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ABI_MAJOR    1
#define TSR_ABI_MINOR    2
#define TSR_PLUGIN_MAGIC UINT64_C(0x314e474c50525354) /* "TSRPLGN1", LE */

/* The first 16 bytes never change, in any major version.  A reader checks them before it reads
 * more. */
struct tsr_plugin {
    uint64_t                           magic; /* TSR_PLUGIN_MAGIC                       */
    uint32_t                           struct_size;
    uint16_t                           abi_major, abi_minor; /* of the headers it was built with */
    const char                        *id;      /* reverse DNS: "org.example.rtn"        */
    const char                        *version; /* the plugin's own, semver              */
    const char                        *license; /* SPDX expression                       */
    const char                        *build;   /* compiler, flags, CUDA; for bug reports */
    const struct tsr_component *const *components;
    uint64_t                           n_components;
    uint32_t                           needs_minor; /* oldest host minor it can run on       */
    uint32_t                           reserved;    /* zero                                  */
};

/* Begins the definition of the descriptor.  Write it in a .c file, also for a plugin in CUDA or
 * C++, because neither accepts C99 designated initialisers everywhere.  With TSR_BUILTIN the plugin
 * is linked into a host, for tests, and its symbol is tsr_builtin_NAME. */
#if defined(TSR_BUILTIN)
#define TSR_PLUGIN_SYMBOL(name) const struct tsr_plugin tsr_builtin_##name
#else
#define TSR_PLUGIN_SYMBOL(name)                                                                    \
    __attribute__((visibility("default"))) extern const struct tsr_plugin tsr_plugin_v1;           \
    const struct tsr_plugin                                               tsr_plugin_v1
#endif

/* The first four members of the descriptor. */
#define TSR_PLUGIN_HEADER TSR_PLUGIN_MAGIC, sizeof(struct tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_MINOR

#ifdef __cplusplus
}
#endif
#endif
