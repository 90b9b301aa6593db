/* plan/file/write_schemes.h - the rules of a plan file: which scheme which layer, linear or group of experts has. */
#ifndef TSR_PLAN_FILE_WRITE_SCHEMES_H
#define TSR_PLAN_FILE_WRITE_SCHEMES_H

#include "base/output.h"
#include "plan/search/search.h"

#define TSR_PLAN_RULE_TEXT 800

/* Appends n bytes of s at *at as a YAML value: quoted where it is more than a word or number; false where it does not
 * fit. */
bool tsr_plan_write_value(char *buf, size_t cap, size_t *at, const char *s, size_t n);
/* "use: gptq, bits: 4, group: 128" or "keep: true"; false where it does not fit. */
bool tsr_plan_write_rule(const struct tsr_plan_candidate *c, char *buf, size_t cap);
/* Rules for the stage's layers: a line for each candidate that it uses; false where one does not fit. */
bool tsr_plan_write_schemes(struct tsr_writer *w, const struct tsr_plan_problem *p,
                            const struct tsr_plan_outcome       *o,
                            const struct tsr_plan_outcome_stage *s);

#endif
