/* tasks/documents.h - the requests of a task's rows, in the order of lm-evaluation-harness. */
#ifndef TSR_TASKS_DOCUMENTS_H
#define TSR_TASKS_DOCUMENTS_H

#include "tasks/rows.h"
#include "tokenizer/tokenizer.h"

/* A row's requests: request i is context i % n_contexts with continuation i % n_continuations, and those from `n` on,
 * if the task measures mutual information, the continuations without context. */
struct tsr_tasks_document {
    struct tsr_tokenizer_text *context, *continuation; /* of a text: one continuation */
    uint64_t                   n_contexts, n_continuations;
    uint64_t                   n, n_requests;
    uint64_t                   answer;
    uint64_t                  *characters, *bytes; /* [n] of each choice */
    uint64_t                   words, text_bytes;  /* of a text, before it is detokenized */
    uint64_t                   group;
};
void tsr_tasks_request(const struct tsr_tasks_document *d, uint64_t i,
                       const struct tsr_tokenizer_text **context,
                       const struct tsr_tokenizer_text **continuation);
void tsr_tasks_document_free(struct tsr_tasks_document *d);

struct tsr_tasks_reader;
/* shots: how many; from: their rows, which may be `rows`, or NULL without shots.  All outlive the reader.  [setup] */
tsr_status tsr_tasks_reader_create(struct tsr_tasks_reader **r, const struct tsr_tasks_task *t,
                                   const struct tsr_tasks_rows *rows,
                                   const struct tsr_tasks_rows *from, uint64_t shots,
                                   struct tsr_err *err);
void       tsr_tasks_reader_destroy(struct tsr_tasks_reader *r);
/* Back to the first row. */
void     tsr_tasks_reader_restart(struct tsr_tasks_reader *r);
uint64_t tsr_tasks_reader_rows(const struct tsr_tasks_reader *r);
/* Of the field `by`: 1 and "" without it. */
uint64_t    tsr_tasks_reader_groups(const struct tsr_tasks_reader *r);
const char *tsr_tasks_reader_group(const struct tsr_tasks_reader *r, uint64_t i);
/* The next document, which the caller frees.  TSR_E_INPUT: the row lacks something; the error names it. */
tsr_status tsr_tasks_reader_next(struct tsr_tasks_reader *r, struct tsr_tasks_document *d,
                                 struct tsr_err *err);

#endif
