/* eval/kld.h - base files of llama.cpp's llama-perplexity (--kl-divergence-base): the reference's
 * log-probabilities of every scored position in 16 bits each.
 *
 *   "_logits_" | i32 n_ctx | i32 n_vocab | i32 n_chunk | i32 tokens[n_chunk * n_ctx]
 *   then for each chunk (n_ctx - 1 - n_ctx/2) rows of 2 * ((n_vocab + 1) / 2) + 4 words of 16 bits:
 *   f32 scale | f32 min_log_prob | u16 code[n_vocab] | a padding word where n_vocab is odd
 *   log p(i) = scale * code[i] + min_log_prob
 *
 * Logits more than 16 below the row's largest are clamped to that floor, so the probabilities of a
 * row sum to slightly more than 1.  Reading returns the stored log-probabilities unchanged.
 */
#ifndef TSR_EVAL_KLD_H
#define TSR_EVAL_KLD_H

#include "base/file.h"
#include "eval/windows.h"

struct tsr_kld_out;
struct tsr_eval_kld {
    struct tsr_file file;
    uint64_t        context, vocab, chunks;
    uint64_t        rows; /* of a chunk */
    uint64_t        row_bytes, data;
    uint32_t       *tokens; /* [chunks * context]; owned */
    char            hash[48];
};

/* Opens a file and checks header, size and tokens.  [setup] */
tsr_status tsr_eval_kld_open(struct tsr_eval_kld **k, const char *path, struct tsr_err *err);
void       tsr_eval_kld_close(struct tsr_eval_kld *k);
uint64_t   tsr_eval_kld_vocab(const struct tsr_eval_kld *k);
/* Rows [first, first + n) of a chunk as log-probabilities, [n][vocab].  A row with an invalid scale
 * or floor is TSR_E_INPUT naming its byte. */
tsr_status tsr_eval_kld_read(const struct tsr_eval_kld *k, uint64_t chunk, uint64_t first,
                             uint64_t n, float *out, struct tsr_err *err);
/* KL of logits q, with known lse, from a row of log-probabilities, as llama.cpp computes it.  Entries
 * of at most e^-16, the floor, do not count, and nothing is normalized, so the result may be slightly
 * below 0. */
double tsr_eval_kld_divergence(const float *log_p, const float *q, double q_lse, uint64_t vocab);
/* The windows that the file was made from, as llamacpp-512 scores them.  bos >= 0 replaces each
 * window's first token, as llama.cpp does if the model requires a BOS.  max: 0 for all. */
tsr_status tsr_eval_kld_windows(const struct tsr_eval_kld *k, int64_t bos, uint64_t max,
                                struct tsr_eval_windows **w, struct tsr_err *err);

/* Header parser alone, also for the fuzzer: data is the file's first 20 bytes, size its length. */
tsr_status tsr_eval_kld_parse(struct tsr_eval_kld *k, const char *name, const void *data,
                              uint64_t bytes, uint64_t size, struct tsr_err *err);

/* Writing: windows of the protocol llamacpp-512 (their length may differ), then every row. */
tsr_status tsr_eval_kld_create(struct tsr_kld_out **o, const char *path,
                               const struct tsr_eval_windows *w, uint64_t vocab,
                               struct tsr_err *err);
/* logits [vocab] of the next scored position.  Errors are sticky; commit reports them. */
void       tsr_eval_kld_put(struct tsr_kld_out *o, const float *logits);
tsr_status tsr_eval_kld_commit(struct tsr_kld_out *o,
                               struct tsr_err     *err);  /* frees o, also on error */
void       tsr_eval_kld_abort(struct tsr_kld_out *o); /* NULL is allowed */

#endif
