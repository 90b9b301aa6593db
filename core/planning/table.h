/* planning/table.h - parts of the tables that plans are shown in, 80 columns wide. */
#ifndef TSR_PLANNING_TABLE_H
#define TSR_PLANNING_TABLE_H

#include "base/json.h"

#include <stdio.h>

#define TSR_TABLE_CELL     64
#define TSR_TABLE_SENTENCE 1500

/* Values of an object's key; NaN, 0 and "" for a missing key. */
double      tsr_planning_table_real(const json_t *j, const char *key);
long long   tsr_planning_table_int(const json_t *j, const char *key);
const char *tsr_planning_table_text(const json_t *j, const char *key);
/* "15.3 s", "812 ms" */
const char *tsr_planning_table_time(double ms, char buf[TSR_TABLE_CELL]);
/* Words after a label, wrapped to the line width, further lines aligned with the first word. */
void tsr_planning_table_wrap(FILE *to, const char *label, const char *text);
/* "gptq-4" as "4" where no other candidate of r has that ending. */
const char *tsr_planning_table_candidate(const json_t *r, const char *name);
/* {"gptq-3": 4, "gptq-4": 8} as "3x4 4x8", in buf. */
const char *tsr_planning_table_bits(const json_t *r, json_t *bits, char *buf, size_t cap);
/* Model, cluster and work of a planning; plan NULL: micro-batches are not one pair. */
void tsr_planning_table_problem(const json_t *r, const json_t *plan, FILE *to);
/* A plan's stages under their heads. */
void tsr_planning_table_stages(const json_t *r, const json_t *list, FILE *to);
/* The draft model of a planning in words, in text; false: none. */
bool tsr_planning_table_draft(const json_t *r, char *text, size_t cap);
/* What a solver of a plan did not consider, after `lead`, in text; 0 where there is nothing. */
size_t tsr_planning_table_ignored(const json_t *plan, const char *lead, char *text, size_t cap);
/* The same of a list of plans by other solvers, as a line. */
void tsr_planning_table_not_considered(const json_t *list, FILE *to);
/* The bottlenecks of a plan, and what changes would buy; nothing without r's "explain". */
void tsr_planning_table_explained(const json_t *r, const json_t *plan, FILE *to);
/* Codecs of the stages' links and sums, where r has lists to choose from. */
void tsr_planning_table_codecs(const json_t *r, const json_t *list, FILE *to);

#endif
