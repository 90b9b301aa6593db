#include "plugin/choices.h"

#include "plugin/kv_sizes.h"

#include <string.h>

const struct tsr_choice tsr_act_choices[3] = { TSR_ACT_CHOICES };

#define KV_CHOICES                                                                                 \
    { "f32", "F32 cache", TSR_F32 }, { "f16", "F16 cache", TSR_F16 },                              \
    {                                                                                              \
        "CODEC", "a codec of a plugin, NAME or NAME:key=value,key=value", TSR_CONFIG_OTHER         \
    }
const struct tsr_choice tsr_kv_choices[TSR_KV_CHOICES + 1] = { KV_CHOICES };
const struct tsr_choice tsr_kv_run_choices[TSR_KV_CHOICES + 2] = {
    { "auto", "f32; f16 on a GPU with numerics: auto", TSR_KV_AUTO }, KV_CHOICES
};

const struct tsr_choice tsr_numerics_choices[TSR_NUMERICS_CHOICES] = {
    { "auto",
      "exact on a CPU; on a GPU also tensor cores, for prompts and for linears without int8",
      TSR_NUMERICS_AUTO },
    { "exact", "the same bytes on every machine", TSR_NUMERICS_EXACT },
    { "fast", "also instructions that only some machines have", TSR_NUMERICS_FAST },
};

const char *tsr_plugin_choice_name(const struct tsr_choice *list, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].value == value)
            return list[i].name;
    return "?";
}

const char *tsr_plugin_act_name(uint32_t act)
{
    return tsr_plugin_choice_name(tsr_act_choices, 3, act);
}

int64_t tsr_plugin_kv_number(const char *name)
{
    for (size_t i = 0; i < TSR_KV_CHOICES; i++)
        if (strcmp(tsr_kv_choices[i].name, name) == 0)
            return tsr_kv_choices[i].value;
    return tsr_config_name_number(name);
}

const char *tsr_plugin_kv_name(int64_t dtype)
{
    static const char *const types[] = {
        [TSR_KV_AUTO] = "auto", [TSR_F32] = "f32",  [TSR_F16] = "f16",
        [TSR_I8] = "int8",      [TSR_E4M3] = "fp8", [TSR_Q4] = "int4"
    };
    const char *codec = tsr_config_name_text(dtype);
    if (!codec && dtype >= 0 && dtype < (int64_t)(sizeof types / sizeof *types))
        codec = types[dtype];
    return codec ? codec : "?";
}

uint32_t tsr_plugin_kv_bits(int64_t dtype)
{
    struct tsr_kv_layout l[2];
    uint64_t             dim;
    dtype = tsr_plugin_kv_type(dtype);
    if (tsr_plugin_kv_is_codec(dtype))
        return tsr_plugin_kv_layouts(dtype, 0, &dim, l)
                   ? (uint32_t)(4 * (l[0].bytes * l[1].positions + l[1].bytes * l[0].positions) /
                                (dim * l[0].positions * l[1].positions))
                   : 0;
    return dtype == TSR_F32 ? 32u : dtype == TSR_F16 ? 16u : dtype == TSR_Q4 ? 5u : 8u;
}
