/* The texts of a model's tokens, as samplers see them. */
#include "engine/sampler.h"

#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>

struct tsr_engine_tokens {
    _Atomic uint32_t          holders;
    struct tsr_sampler_tokens table;
    struct tsr_tokenizer_text text;
    uint64_t                 *start;
    uint8_t                  *ends;
};

static tsr_status fill(struct tsr_engine_tokens *k, const struct tsr_tokenizer *t, uint64_t vocab,
                       const uint32_t *ends, uint32_t n_ends, struct tsr_err *err)
{
    uint64_t known = tsr_tokenizer_size(t);
    k->start = tsr_new(vocab + 1, sizeof *k->start);
    k->ends = tsr_new(vocab, sizeof *k->ends);
    if (!k->start || !k->ends)
        return tsr_fail_nomem(err, vocab * 9, "the texts of tokens");
    for (uint64_t i = 0; i < vocab && i < known; i++) {
        k->start[i] = k->text.n;
        TSR_TRY(tsr_tokenizer_token_text(t, (uint32_t)i, &k->text, err));
    }
    for (uint64_t i = known; i < vocab; i++) /* the matrix of a model may have more rows */
        k->start[i] = k->text.n;
    k->start[vocab] = k->text.n;
    for (uint32_t i = 0; i < n_ends; i++)
        if (ends[i] < vocab)
            k->ends[ends[i]] = 1;
    k->table = (struct tsr_sampler_tokens){ .struct_size = sizeof k->table,
                                            .vocab = vocab,
                                            .bytes = k->text.v ? k->text.v : "",
                                            .start = k->start,
                                            .ends = k->ends };
    return TSR_OK;
}

tsr_status tsr_engine_tokens_create(struct tsr_engine_tokens  **tokens,
                                    const struct tsr_tokenizer *t, uint64_t vocab,
                                    const uint32_t *ends, uint32_t n_ends, struct tsr_err *err)
{
    struct tsr_engine_tokens *k = tsr_new(1, sizeof *k);
    *tokens = NULL;
    if (!k)
        return tsr_fail_nomem(err, sizeof *k, "the texts of tokens");
    k->holders = 1;
    tsr_status st = fill(k, t, vocab, ends, n_ends, err);
    if (st == TSR_OK)
        *tokens = k;
    else
        tsr_engine_tokens_drop(k);
    return st;
}

struct tsr_engine_tokens *tsr_engine_tokens_hold(struct tsr_engine_tokens *tokens)
{
    if (tokens)
        (void)atomic_fetch_add(&tokens->holders, 1);
    return tokens;
}

void tsr_engine_tokens_drop(struct tsr_engine_tokens *tokens)
{
    if (!tokens || atomic_fetch_sub(&tokens->holders, 1) != 1)
        return;
    tsr_tokenizer_text_free(&tokens->text);
    free(tokens->start);
    free(tokens->ends);
    free(tokens);
}

const struct tsr_sampler_tokens *tsr_engine_tokens_table(const struct tsr_engine_tokens *tokens)
{
    return &tokens->table;
}
