/* plugin/choices.h - the option values for the engine's arithmetic: activations, KV cache, numerics.
 * Every verb, step and plan file uses these tables. */
#ifndef TSR_PLUGIN_CHOICES_H
#define TSR_PLUGIN_CHOICES_H

#include "tessera/backend.h"

#define TSR_NUMERICS_EXACT   0u /* docs/decisions/numerics.md, to the bit */
#define TSR_NUMERICS_FAST    1u /* also instructions without a portable twin */
#define TSR_NUMERICS_AUTO    2u /* what the backend has under that name; exact where it has none */
#define TSR_NUMERICS_CHOICES 3u

/* For a list that has one more in front. */
#define TSR_ACT_CHOICES                                                                            \
    { "f32", "activations as they are", TSR_ACT_F32 }, { "a16", "rounded to BF16", TSR_ACT_A16 },  \
    {                                                                                              \
        "a8", "int8 with a scale per block of columns", TSR_ACT_A8                                 \
    }

extern const struct tsr_choice tsr_act_choices[3];
#define TSR_KV_CHOICES 2u
#define TSR_KV_NAMES   "f32, f16"
/* Caches that are not coded, a dtype of tessera/kv_cache.h; and, last, any codec of a plugin (plugin/kv_codec.h). */
extern const struct tsr_choice tsr_kv_choices[TSR_KV_CHOICES + 1];
/* In front of these: F16 on a backend that has numerics: auto and runs by it, else F32. */
#define TSR_KV_AUTO 0
extern const struct tsr_choice tsr_kv_run_choices[TSR_KV_CHOICES + 2];
extern const struct tsr_choice tsr_numerics_choices[TSR_NUMERICS_CHOICES];

/* The name of a value of a list of n choices; "?" if it has none.  [any] */
const char *tsr_plugin_choice_name(const struct tsr_choice *list, size_t n, int64_t value);
/* "f32", "a16", "a8".  [any] */
const char *tsr_plugin_act_name(uint32_t act);
/* The number of a cache by its name: of tsr_kv_choices, or of a codec, which may not be there; -1: it cannot be one.  [any] */
int64_t tsr_plugin_kv_number(const char *name);
/* The text of a codec, or the name of a type of tessera/kv_cache.h, which is that of our plugin for it.  [any] */
const char *tsr_plugin_kv_name(int64_t dtype);
/* Bits that a type of a KV cache takes for an element, rounded down: without the scale of a whole head, and with the scales
 * of small groups.  Of a codec all that it takes; 0: its sizes are not known yet.  [any] */
uint32_t tsr_plugin_kv_bits(int64_t dtype);

#endif
