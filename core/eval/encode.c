#include "eval/encode.h"
#include "eval/text.h"

#include <string.h>

static tsr_status prefix_token(const struct tsr_eval_encoding *c, uint32_t *id, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &c->model->hp;
    if (hp->bos < 0 && hp->n_eos == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "a text needs a BOS or EOS token before its first word, and model '%s' "
                        "names neither",
                        c->model->path);
    *id = hp->bos >= 0 ? (uint32_t)hp->bos : hp->eos[0];
    return TSR_OK;
}

/* Of one text. */
static tsr_status encode(const struct tsr_eval_encoding *c, const char *text, uint64_t n,
                         struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    uint64_t       at = ids->n;
    const int64_t  bos = c->model->hp.bos;
    const unsigned flags = c->no_bos ? 0 : TSR_TOKENIZER_SPECIAL;
    TSR_TRY(tsr_tokenize(c->tokenizer, text ? text : "", n, flags, ids, err));
    if (!flags || bos < 0 || ids->n < at + 2 || ids->v[at] != (uint32_t)bos ||
        ids->v[at + 1] != (uint32_t)bos)
        return TSR_OK;
    ids->n = at;
    return tsr_tokenize(c->tokenizer, text, n, 0, ids, err);
}

/* Without a context: the prefix token, which a continuation that begins with it brings along. */
static tsr_status encode_alone(const struct tsr_eval_encoding  *c,
                               const struct tsr_tokenizer_text *continuation,
                               struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    struct tsr_tokenizer_ids own = { 0 };
    uint32_t                 prefix = 0;
    tsr_status               st = prefix_token(c, &prefix, err);
    if (st == TSR_OK)
        st = tsr_tokenize(c->tokenizer, continuation->v ? continuation->v : "", continuation->n, 0,
                          &own, err);
    if (st == TSR_OK && (own.n == 0 || own.v[0] != prefix))
        st = tsr_tokenizer_ids_push(ids, prefix, err);
    for (uint64_t i = 0; st == TSR_OK && i < own.n; i++)
        st = tsr_tokenizer_ids_push(ids, own.v[i], err);
    tsr_tokenizer_ids_free(&own);
    return st;
}

/* The context's own ids, and those of the whole text from as many on: a token across the border stays out of the
 * context, and is not made whole again. */
static tsr_status encode_after(const struct tsr_eval_encoding  *c,
                               const struct tsr_tokenizer_text *context,
                               const struct tsr_tokenizer_text *continuation,
                               struct tsr_tokenizer_ids *ids, uint64_t *head, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    struct tsr_tokenizer_ids  whole = { 0 };
    uint64_t                  at = ids->n;
    tsr_status                st = tsr_tokenizer_text_append(&text, context->v, context->n, err);
    if (st == TSR_OK && continuation->n)
        st = tsr_tokenizer_text_append(&text, continuation->v, continuation->n, err);
    if (st == TSR_OK)
        st = encode(c, text.v, text.n, &whole, err);
    if (st == TSR_OK)
        st = encode(c, context->v, tsr_eval_stripped(context->v, context->n), ids, err);
    *head = ids->n - at;
    for (uint64_t i = *head; st == TSR_OK && i < whole.n; i++)
        st = tsr_tokenizer_ids_push(ids, whole.v[i], err);
    tsr_tokenizer_text_free(&text);
    tsr_tokenizer_ids_free(&whole);
    return st;
}

tsr_status tsr_eval_encode_pair(const struct tsr_eval_encoding  *c,
                                const struct tsr_tokenizer_text *context,
                                const struct tsr_tokenizer_text *continuation,
                                struct tsr_tokenizer_ids *ids, uint64_t *from, struct tsr_err *err)
{
    uint64_t at = ids->n, head = 1;
    if (context->n == 0)
        TSR_TRY(encode_alone(c, continuation, ids, err));
    else
        TSR_TRY(encode_after(c, context, continuation, ids, &head, err));
    *from = at + head;
    if (head == 0 || *from >= ids->n)
        return tsr_fail(err, TSR_E_INPUT,
                        head ? "the continuation '%.60s' has no separate token"
                             : "nothing precedes the continuation '%.60s', and the tokenizer puts "
                               "no token there",
                        continuation->n ? continuation->v : "");
    return TSR_OK;
}

tsr_status tsr_eval_encode_rolling(const struct tsr_eval_encoding  *c,
                                   const struct tsr_tokenizer_text *text,
                                   struct tsr_tokenizer_ids *ids, struct tsr_err *err)
{
    uint32_t prefix = 0;
    TSR_TRY(prefix_token(c, &prefix, err));
    TSR_TRY(tsr_tokenizer_ids_push(ids, prefix, err));
    return encode(c, text->v, text->n, ids, err);
}

void tsr_eval_rolling_window(uint64_t n, uint64_t max, uint64_t done, uint64_t *begin,
                             uint64_t *end)
{
    uint64_t left = n - 1 - done, take = left < max ? left : max;
    *end = done + take;
    *begin = *end > max ? *end - max : 0;
}
