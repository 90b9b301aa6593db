/* tokenizer/tokenizer.h - text to ids and back, from tokenizer.json (+ tokenizer_config.json).
 *
 * Byte-level BPE, SentencePiece-type BPE with byte fallback, and Unigram, with the
 * normalizers, pre-tokenizers, post-processors and decoders that the families use.
 * A component or a regex feature that is not known is refused by name at load, never skipped.
 * "truncation" and "padding" of the file are not applied: they belong to batches of a trainer.
 * Where the file has no template, "add_bos_token" and "add_eos_token": true of
 * tokenizer_config.json make one for the Llama, CodeLlama and Gemma classes; else the file's
 * template alone decides.  Ids without a token decode to nothing.
 */
#ifndef TSR_TOKENIZER_TOKENIZER_H
#define TSR_TOKENIZER_TOKENIZER_H

#include "base/err.h"

#include <stdbool.h>

struct tsr_tokenizer;

/* Growing list of ids or bytes; zero-initialise, free with *_free. */
struct tsr_tokenizer_ids {
    uint32_t *v;
    uint64_t  n, cap;
};
struct tsr_tokenizer_text {
    char    *v; /* NUL-terminated when n > 0 or after any append */
    uint64_t n, cap;
};
void       tsr_tokenizer_ids_free(struct tsr_tokenizer_ids *ids);
void       tsr_tokenizer_text_free(struct tsr_tokenizer_text *t);
tsr_status tsr_tokenizer_ids_push(struct tsr_tokenizer_ids *ids, uint32_t id, struct tsr_err *err);
tsr_status tsr_tokenizer_text_append(struct tsr_tokenizer_text *t, const char *s, uint64_t n,
                                     struct tsr_err *err);

/* From the text of tokenizer.json and of tokenizer_config.json (NULL: none).  name is for messages.  [setup] */
tsr_status tsr_tokenizer_parse(struct tsr_tokenizer **t, const char *name, const char *json,
                               uint64_t len, const char *config, uint64_t config_len,
                               struct tsr_err *err);
void       tsr_tokenizer_destroy(struct tsr_tokenizer *t);

/* A text file, as tsr_file_slurp() reads it.  TSR_E_INPUT names the first byte that is not UTF-8; a
 * character truncated by the end of the file is accepted.  [any] */
tsr_status tsr_tokenizer_text_load(const char *path, uint64_t cap, char **text, uint64_t *len,
                                   struct tsr_err *err);

#define TSR_TOKENIZER_SPECIAL     1u /* add BOS/EOS as the template says                  */
#define TSR_TOKENIZER_NO_SPECIALS 2u /* special strings inside the text are plain text    */

/* Appends the ids of text (UTF-8; invalid bytes become U+FFFD as the reference does).
 * A regex that hits its limit is TSR_E_INPUT, never "no match".  [any] */
tsr_status tsr_tokenize(const struct tsr_tokenizer *t, const char *text, uint64_t len,
                        unsigned flags, struct tsr_tokenizer_ids *ids, struct tsr_err *err);
/* A stretch of bytes of a text: [begin, end). */
struct tsr_tokenizer_text_span {
    uint64_t begin, end;
};
/* The same without BOS and EOS; special strings that overlap one of the n spans (in order) are plain
 * text: for a chat template around messages.  If there are spans, a tokenizer with a normalized special
 * token is TSR_E_UNSUPPORTED; text must be UTF-8.  [any] */
tsr_status tsr_tokenize_around(const struct tsr_tokenizer *t, const char *text, uint64_t len,
                               const struct tsr_tokenizer_text_span *spans, uint64_t n,
                               struct tsr_tokenizer_ids *ids, struct tsr_err *err);
/* Appends the text of ids. */
tsr_status tsr_detokenize(const struct tsr_tokenizer *t, const uint32_t *ids, uint64_t n,
                          bool skip_special, struct tsr_tokenizer_text *text, struct tsr_err *err);

/* Streaming: feed one id, get the text that is now certain.  Never half a character; the sum
 * of all pieces and the final flush equals tsr_detokenize() of all ids. */
struct tsr_detok;
tsr_status tsr_tokenizer_detok_create(struct tsr_detok **s, const struct tsr_tokenizer *t,
                                      bool skip_special, struct tsr_err *err);
tsr_status tsr_tokenizer_detok_push(struct tsr_detok *s, uint32_t id,
                                    struct tsr_tokenizer_text *out, struct tsr_err *err);
tsr_status tsr_tokenizer_detok_flush(struct tsr_detok *s, struct tsr_tokenizer_text *out,
                                     struct tsr_err *err);
/* Whether special tokens that are pushed from now on give text. */
void tsr_tokenizer_detok_show_special(struct tsr_detok *s, bool show);
void tsr_tokenizer_detok_destroy(struct tsr_detok *s);

/* Appends what an id adds to a text that it does not begin: bytes, perhaps of half a character.  Nothing for a special
 * token and for an id without a token.  TSR_E_UNSUPPORTED: the tokenizer's decoder has no text of a single token.  [any] */
tsr_status tsr_tokenizer_token_text(const struct tsr_tokenizer *t, uint32_t id,
                                    struct tsr_tokenizer_text *text, struct tsr_err *err);

uint64_t    tsr_tokenizer_size(const struct tsr_tokenizer *t); /* 1 + the largest id */
const char *tsr_tokenizer_hash(const struct tsr_tokenizer *t); /* of tokenizer.json */

#endif
