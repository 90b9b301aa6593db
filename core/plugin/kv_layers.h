/* plugin/kv_layers.h - the type of the KV cache by layer, as text: "0-1=f16,7=int8". */
#ifndef TSR_PLUGIN_KV_LAYERS_H
#define TSR_PLUGIN_KV_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/plugin.h"

#define TSR_KV_LAYERS_HELP                                                                         \
    "Types of the KV cache of some layers, counted from 0; others take kv. Example: "              \
    "0-1=f16,7=int8."

/* text: items with a comma between them, each a layer or a range FIRST-LAST of layers, '=', and a name of
 * tsr_kv_choices or of a codec of a plugin, with options: "0-3=kivi:bits=2,7=int8".  of [layers]: TSR_* of each layer, kv where the text names none; NULL: only the text is checked.
 * layers: UINT64_MAX if unknown.  TSR_E_INPUT names the item that is wrong; no layer may come twice.  [any] */
tsr_status tsr_plugin_kv_layers(const char *text, uint32_t kv, uint64_t layers, uint32_t *of,
                                struct tsr_err *err);
/* The type of the next item of a text that was checked, which *text then is past; false: there is no other.  [any] */
bool tsr_plugin_kv_layers_next(const char **text, uint32_t *kv);

#endif
