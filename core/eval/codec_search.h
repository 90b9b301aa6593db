/* eval/codec_search.h - which codec to take, by the rule of arXiv 2411.09510: of those that raise
 * perplexity by less than a limit the one with the fewest bits. */
#ifndef TSR_EVAL_CODEC_SEARCH_H
#define TSR_EVAL_CODEC_SEARCH_H

#include "base/err.h"

#include <stdbool.h>

#define TSR_CODEC_LIMIT 3.0 /* percent */

struct tsr_eval_candidate {
    double bits;     /* a number, on the wire */
    double increase; /* of perplexity, in percent; NAN: not known, never chosen */
};
/* The index; for equal bits the one with the smaller increase; n if none is below the limit. */
uint64_t tsr_eval_codec_choose(const struct tsr_eval_candidate *c, uint64_t n, double limit);

/* Increases that were measured elsewhere: {"format": "tessera.codec-table/1", "models": [NAME, ...],
 * "rows": [{"codec": SPEC, "bits": B, "increase": [P, ...]}, ...]}, a number for each model. */
struct tsr_eval_codec_table {
    char                     **model; /* [models]; owned, as all of it */
    char                     **codec; /* [rows] */
    struct tsr_eval_candidate *cell;  /* [models][rows] */
    uint64_t                   models, rows;
};
/* TSR_E_INPUT with the place that is wrong.  name is for messages. */
tsr_status tsr_eval_codec_table_parse(struct tsr_eval_codec_table *t, const char *name,
                                      const char *text, uint64_t bytes, struct tsr_err *err);
tsr_status tsr_eval_codec_table_load(struct tsr_eval_codec_table *t, const char *path,
                                     struct tsr_err *err);
void       tsr_eval_codec_table_free(struct tsr_eval_codec_table *t);

#endif
