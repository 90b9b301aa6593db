/* pipeline/indicators.h - the result of the step `indicators` for people. */
#ifndef TSR_PIPELINE_INDICATORS_H
#define TSR_PIPELINE_INDICATORS_H

#include "base/file.h"

#include <jansson.h>
#include <stdio.h>

/* r: a tessera.indicators/1 object. */
void tsr_indicators_print(const json_t *r, FILE *to);
void tsr_indicators_html(const json_t *r, struct tsr_writer *w);

#endif
