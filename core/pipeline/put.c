#include "pipeline/put.h"

#include "base/mem.h"
#include "plugin/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool tsr_pipeline_json_put_act(json_t *object, uint32_t act, const uint64_t ran[3])
{
    return tsr_pipeline_json_put_text(object, "act", tsr_plugin_act_name(act)) &&
           tsr_pipeline_json_put(object, "packed_linears",
                                 json_pack("{s:I, s:I, s:I}", "f32", (json_int_t)ran[TSR_ACT_F32],
                                           "a16", (json_int_t)ran[TSR_ACT_A16], "a8",
                                           (json_int_t)ran[TSR_ACT_A8]));
}

uint32_t tsr_pipeline_act_ran(uint32_t act, const uint64_t ran[3])
{
    return ran[act] ? act : TSR_ACT_F32;
}

const char *tsr_pipeline_act_also(const json_t *object, char text[64])
{
    const char *act = json_string_value(json_object_get(object, "act"));
    long long   f32 =
        json_integer_value(json_object_get(json_object_get(object, "packed_linears"), "f32"));
    text[0] = 0;
    if (act && strcmp(act, "f32") != 0 && f32 > 0) /* formats that support nothing else */
        (void)snprintf(text, 64, ", f32 on %lld packed linears", f32);
    return text;
}

bool tsr_pipeline_json_put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

bool tsr_pipeline_json_put_real(json_t *object, const char *key, double value)
{
    return tsr_pipeline_json_put(object, key, isfinite(value) ? json_real(value) : json_null());
}

bool tsr_pipeline_json_put_int(json_t *object, const char *key, uint64_t value)
{
    return tsr_pipeline_json_put(object, key, json_integer((json_int_t)value));
}

/* A path may hold any bytes; JSON only UTF-8. */
bool tsr_pipeline_json_put_text(json_t *object, const char *key, const char *value)
{
    json_t *j = value ? json_string(value) : json_null();
    if (!j) {
        char *plain = tsr_strdup(value);
        for (char *p = plain; p && *p; p++)
            if ((unsigned char)*p >= 0x80)
                *p = '?';
        j = plain ? json_string(plain) : NULL;
        free(plain);
    }
    return tsr_pipeline_json_put(object, key, j);
}
