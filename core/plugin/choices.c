#include "plugin/choices.h"

#include "plugin/kv_sizes.h"

const struct tsr_choice tsr_act_choices[3] = { TSR_ACT_CHOICES };

const struct tsr_choice tsr_kv_choices[TSR_KV_CHOICES + 1] = {
    { "f32", "F32 cache", TSR_F32 },
    { "f16", "F16 cache", TSR_F16 },
    { "int8", "int8 cache, a scale per head and token", TSR_I8 },
    { "fp8", "FP8 E4M3 cache, a scale per head and token", TSR_E4M3 },
    { "int4",
      "4-bit cache: keys with a scale and minimum per channel and 32 positions, values per token "
      "and 32 channels",
      TSR_Q4 },
    { "CODEC", "a codec of a plugin, NAME or NAME:key=value,key=value", TSR_CONFIG_OTHER },
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

const char *tsr_plugin_kv_name(int64_t dtype)
{
    const char *codec = tsr_config_name_text(dtype);
    return codec ? codec : tsr_plugin_choice_name(tsr_kv_choices, TSR_KV_CHOICES, dtype);
}

uint32_t tsr_plugin_kv_bits(int64_t dtype)
{
    struct tsr_kv_layout l[2];
    uint64_t             dim;
    if (tsr_plugin_kv_is_codec(dtype))
        return tsr_plugin_kv_layouts(dtype, 0, &dim, l)
                   ? (uint32_t)(4 * (l[0].bytes * l[1].positions + l[1].bytes * l[0].positions) /
                                (dim * l[0].positions * l[1].positions))
                   : 0;
    return dtype == TSR_F32 ? 32u : dtype == TSR_F16 ? 16u : dtype == TSR_Q4 ? 5u : 8u;
}
