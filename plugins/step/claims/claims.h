/* claims.h - a comparison next to published figures, and whether the orders that the figures claim hold.
 *
 *   claims.c   the component: options, check(), run()
 *   arms.c     the figure of every arm, next to the published ones
 *   orders.c   the difference of every pair, and its verdict
 *   tree.c     reading the comparison and the options
 *   text.c     JSON and cells of a table, in memory of the host
 */
#ifndef TSR_PLUGINS_CLAIMS_H
#define TSR_PLUGINS_CLAIMS_H

#include "tessera/step.h"

#include <stdbool.h>

#define CLAIMS_COLUMNS 59u /* published columns: a table of the section has at most 64 */

/* What run() reads. */
struct claims_job {
    const struct tsr_host     *host;
    const struct tsr_step_job *job;
    const char                *source;
    bool increase; /* figures are by how many percent the perplexity is above the original's */
    struct tsr_step_value compare; /* the result of that step, docs/formats/results.md */
    struct tsr_step_value paper;   /* {column: {arm: number}}, or another type: none   */
    struct tsr_step_value order;   /* [[better, worse], ...], or another type: none    */
};

/* ---- tree.c ------------------------------------------------------------------------- */

struct tsr_step_value claims_member(const struct tsr_step_job *j, const struct tsr_step_value *of,
                                    const char *key);
struct tsr_step_value claims_item(const struct tsr_step_job *j, const struct tsr_step_value *of,
                                  uint64_t i);
/* Items of a list or members of a map; 0 of another type than this. */
uint64_t claims_count(const struct tsr_step_value *v, uint32_t type);
/* The number or text of a member: NaN, "" if it is not one. */
double      claims_number(const struct tsr_step_job *j, const struct tsr_step_value *of,
                          const char *key);
const char *claims_string(const struct tsr_step_job *j, const struct tsr_step_value *of,
                          const char *key);
bool claims_has(const struct tsr_step_job *j, const struct tsr_step_value *of, const char *key);
/* An arm of the comparison by its name; false: it has none. */
bool claims_arm(const struct claims_job *c, const char *name, struct tsr_step_value *arm);
/* The two names of an item of `order`, as the user wrote them: an arm may be called 4.  false: it is something else. */
bool claims_pair(const struct tsr_step_job *j, const struct tsr_step_value *item,
                 const char **better, const char **worse);

/* ---- text.c ------------------------------------------------------------------------- */

/* A text that grows; zeroed but for the host it is empty.  lost: memory was out, the text is incomplete. */
struct claims_text {
    const struct tsr_host *host;
    char                  *text; /* [cap], ends with a NUL; or NULL */
    uint64_t               n, cap;
    bool                   lost;
};

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void claims_text_add(struct claims_text *t, const char *fmt, ...);
/* A JSON string; a JSON number, null if it is not finite. */
void claims_text_string(struct claims_text *t, const char *s);
void claims_text_real(struct claims_text *t, double v);
void claims_text_free(struct claims_text *t);
/* Gives the text as a product, and frees it.  TSR_E_NOMEM if it was lost. */
tsr_status claims_text_put(struct claims_text *t, const struct tsr_step_job *j, const char *product,
                           struct tsr_err *err);

/* Cells of a row. */
#define CLAIMS_CELL 96u
/* "-" if v is not finite. */
const char *claims_cell(char cell[CLAIMS_CELL], int digits, double v);
/* "[low, high]", or "-". */
const char *claims_range(char cell[CLAIMS_CELL], int digits, double low, double high);

/* ---- arms.c, orders.c --------------------------------------------------------------- */

/* The products `columns` and `arms`, and their table. */
tsr_status claims_put_arms(const struct claims_job *c, struct tsr_err *err);
/* The products `orders`, `held`, `contradicted` and `undecided`, and their table.
 * TSR_E_CONFIG: an arm that the comparison lacks, a pair that it did not measure. */
tsr_status claims_put_orders(const struct claims_job *c, struct tsr_err *err);

#endif
