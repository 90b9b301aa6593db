/* compare/claims.h - a comparison next to published figures; checks the rankings that they claim
 * with the comparison's own intervals. */
#ifndef TSR_COMPARE_CLAIMS_H
#define TSR_COMPARE_CLAIMS_H

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* spec: the step's options as JSON: source, figure ("perplexity" or "increase"), paper {column:
 * {arm: number}}, order [[better, worse], ...].  compare: that step's result (docs/formats/results.md).
 * TSR_E_INPUT: an arm that the comparison does not have, an order without a pair. */
tsr_status tsr_compare_claims_make(const json_t *spec, const json_t *compare, json_t **out,
                                   struct tsr_err *err);
void       tsr_compare_claims_print(const json_t *claims, FILE *to);

#endif
