/* batch/adopt.h - what a resumed batch takes over from its journal: the lines that are done, each looked at
 * first, and what stood in the answers of the first run.
 */
#ifndef TSR_BATCH_ADOPT_H
#define TSR_BATCH_ADOPT_H

#include "batch/journal.h"
#include "batch/records.h"
#include "batch/request.h"

/* Member of the header's JSON that no hash covers: {"model": ..., "no_chat": ...}. */
#define TSR_BATCH_KEPT "kept"

struct tsr_adopt {
    const struct tsr_records    *records; /* NULL: requests are not known */
    const struct tsr_answer_ids *ids;     /* NULL: not known */
};
/* A tsr_journal_options.check: ctx is a struct tsr_adopt. */
tsr_status tsr_adopt_check(void *ctx, uint64_t index, bool error, const char *line, uint64_t len,
                           struct tsr_err *err);

/* What stands in answers and is no part of a batch's identity stays as in the first run: takes *model and *no_chat from
 * the text of the header of a journal that was there, and *kept, which owns them.  about NULL: the journal is
 * new, and nothing is changed. */
tsr_status tsr_adopt_names(json_t **kept, const char *about, const char *folder, const char **model,
                           const char **no_chat, struct tsr_err *err);
/* First and last record of the whole input that a journal is of, from its header, from 1; false: it does not say. */
bool tsr_adopt_stretch(const char *about, uint64_t *first, uint64_t *last);

#endif
