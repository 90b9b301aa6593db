/* batch/adopt.h - what a resumed batch takes from its journal: the finished lines, each checked first, and
 * the fields that were in the answers of the first run.
 */
#ifndef TSR_BATCH_ADOPT_H
#define TSR_BATCH_ADOPT_H

#include "batch/journal.h"
#include "batch/records.h"
#include "batch/request.h"

/* Member of the header's JSON that no hash covers: {"model": ..., "no_chat": ...}. */
#define TSR_BATCH_KEPT "kept"

struct tsr_batch_adopt {
    const struct tsr_batch_records    *records; /* NULL: requests are not known */
    const struct tsr_batch_answer_ids *ids;     /* NULL: not known */
};
/* A tsr_batch_journal_options.check: ctx is a struct tsr_batch_adopt. */
tsr_status tsr_batch_adopt_check(void *ctx, uint64_t index, bool error, const char *line,
                                 uint64_t len, struct tsr_err *err);

/* Fields that appear in answers but are not part of a batch's identity keep the values of the first run: takes
 * *model and *no_chat from the header text of an existing journal, and *kept, which owns them.  about NULL: the
 * journal is new, and nothing changes. */
tsr_status tsr_batch_adopt_names(json_t **kept, const char *about, const char *folder,
                                 const char **model, const char **no_chat, struct tsr_err *err);
/* First and last record of the whole input that a journal is of, from its header, from 1; false: it does not say. */
bool tsr_batch_adopt_stretch(const char *about, uint64_t *first, uint64_t *last);

#endif
