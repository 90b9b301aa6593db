/* pipeline/put.h - members of JSON results, and how packed linears ran. */
#ifndef TSR_PIPELINE_PUT_H
#define TSR_PIPELINE_PUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* object[key] = value, a number, or null where it is not finite.  false: out of memory.  The
 * first takes the reference. */
bool tsr_pipeline_json_put(json_t *object, const char *key, json_t *value);
bool tsr_pipeline_json_put_real(json_t *object, const char *key, double value);
bool tsr_pipeline_json_put_int(json_t *object, const char *key, uint64_t value);
bool tsr_pipeline_json_put_text(json_t *object, const char *key,
                                const char *value); /* NULL: null */

/* "act", the requested activation type, and "packed_linears", how many linears ran with each
 * (tsr_engine_acts). */
bool tsr_pipeline_json_put_act(json_t *object, uint32_t act, const uint64_t ran[3]);
/* The act that packed linears ran with: act, or f32 if none of them has a form for it. */
uint32_t tsr_pipeline_act_ran(uint32_t act, const uint64_t ran[3]);
/* ", f32 on 7 packed linears" if an object of tsr_pipeline_json_put_act() has a second act; else "". */
const char *tsr_pipeline_act_also(const json_t *object, char text[64]);

#endif
