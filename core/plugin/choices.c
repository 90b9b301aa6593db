#include "plugin/choices.h"

const struct tsr_choice tsr_act_choices[3] = { TSR_ACT_CHOICES };

const struct tsr_choice tsr_kv_choices[3] = {
    { "f32", "F32 cache", TSR_F32 },
    { "f16", "F16 cache", TSR_F16 },
    { "int8", "int8 cache, a scale per head and token", TSR_I8 },
};

const struct tsr_choice tsr_numerics_choices[2] = {
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
    return tsr_plugin_choice_name(tsr_kv_choices, 3, dtype);
}
