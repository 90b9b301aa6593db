/* One choice of an answer: text or message, log-probabilities, why it ended. */
#include "batch/request.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

/* jansson returns NULL when memory is short; so does everything here that holds one. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

/* Six decimals: the rest is noise of the softmax's sum. */
static json_t *real(double v)
{
    return json_real(round(v * 1e6) / 1e6 + 0.0);
}

static json_t *token_number(uint32_t id)
{
    char number[24];
    (void)snprintf(number, sizeof number, "token_id:%u", id);
    return json_string(number);
}

static json_t *token_text(const struct tsr_tokenizer *t, uint32_t id, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    json_t                   *j = NULL;
    if (!t)
        return token_number(id);
    if (tsr_detokenize(t, &id, 1, false, &text, err) == TSR_OK)
        j = json_stringn(text.v ? text.v : "", text.n);
    tsr_tokenizer_text_free(&text);
    return j;
}

/* ---- completions -------------------------------------------------------- */

/* The tokens that a completion's logprobs have: with echo the prompt, whose first has none; new ones; with echo an
 * end-of-sequence token too. */
struct tokens {
    const struct tsr_engine_served *r;
    bool                            echo;
    uint64_t                        n;
};

static struct tokens tokens_of(const struct tsr_batch_request *q, const struct tsr_engine_served *r)
{
    return (struct tokens){ r, q->q.echo, r->n_logprobs + q->q.echo };
}

/* NULL: the first token of a prompt. */
static const struct tsr_engine_logprob *logprob_of(const struct tokens *t, uint64_t i)
{
    return t->echo && i == 0 ? NULL : &t->r->logprobs[i - t->echo];
}

static uint32_t id_of(const struct tokens *t, uint64_t i)
{
    const struct tsr_engine_logprob *l = logprob_of(t, i);
    return l ? l->id : t->r->prompt[0];
}

/* {"text": logprob, ...} of the likeliest tokens. */
static json_t *best_of(const struct tsr_engine_served *r, uint64_t at,
                       const struct tsr_tokenizer *t, struct tsr_err *err)
{
    json_t *best = json_object();
    bool    ok = best != NULL;
    for (uint32_t k = r->top; k-- > 0;) { /* of two with one text the better one stays */
        const struct tsr_engine_logprob *l = &r->tops[at * r->top + k];
        json_t                          *name = token_text(t, l->id, err);
        if (name && !tsr_json_word(name)) { /* keys have no NUL character */
            json_decref(name);
            name = token_number(l->id);
        }
        ok = name && put(best, json_string_value(name), real(l->value)) && ok;
        json_decref(name);
    }
    if (ok)
        return best;
    json_decref(best);
    return NULL;
}

static uint64_t characters(const char *text, uint64_t n)
{
    uint64_t c = 0;
    for (uint64_t i = 0; i < n; i++)
        c += ((unsigned char)text[i] & 0xc0) != 0x80;
    return c;
}

/* Characters of "text" before each token: those that the tokens before it have given.  What a stop string cut is
 * not counted.  null without a tokenizer. */
static json_t *offsets(const struct tokens *k, const struct tsr_tokenizer *t, struct tsr_err *err)
{
    struct tsr_detok         *detok = NULL;
    struct tsr_tokenizer_text text = { 0 };
    uint64_t                  at = 0, seen = 0;
    uint64_t                  all = k->r->text ? characters(k->r->text, k->r->text_bytes) : 0;
    json_t                   *list = json_array();
    if (!t || !list || tsr_tokenizer_detok_create(&detok, t, true, err) != TSR_OK) {
        json_decref(list);
        return t ? NULL : json_null();
    }
    bool ok = true;
    for (uint64_t i = 0; i < k->n && ok; i++) {
        at += characters(text.v ? text.v + seen : "", text.n - seen);
        seen = text.n;
        tsr_tokenizer_detok_show_special(detok, k->echo && i < k->r->n_prompt);
        ok = json_array_append_new(list, json_integer((json_int_t)(at < all ? at : all))) == 0 &&
             tsr_tokenizer_detok_push(detok, id_of(k, i), &text, err) == TSR_OK;
    }
    tsr_tokenizer_detok_destroy(detok);
    tsr_tokenizer_text_free(&text);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{...}] or null, "text_offset": [...]} */
static json_t *text_logprobs(const struct tsr_batch_request *q, const struct tsr_engine_served *r,
                             const struct tsr_tokenizer *t, struct tsr_err *err)
{
    struct tokens k = tokens_of(q, r);
    json_t       *tokens = json_array(), *values = json_array();
    json_t       *tops = r->top ? json_array() : json_null();
    bool          ok = true;
    for (uint64_t i = 0; i < k.n; i++) {
        const struct tsr_engine_logprob *l = logprob_of(&k, i);
        ok = json_array_append_new(tokens, token_text(t, id_of(&k, i), err)) == 0 && ok;
        ok = json_array_append_new(values, l ? real(l->value) : json_null()) == 0 && ok;
        if (r->top)
            ok = json_array_append_new(tops, l ? best_of(r, i - k.echo, t, err) : json_null()) ==
                     0 &&
                 ok;
    }
    json_t *o = json_object();
    ok = put(o, "tokens", tokens) && ok;
    ok = put(o, "token_logprobs", values) && ok;
    ok = put(o, "top_logprobs", tops) && ok;
    ok = put(o, "text_offset", offsets(&k, t, err)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- chats -------------------------------------------------------------- */

static json_t *chat_entry(const struct tsr_tokenizer *t, const struct tsr_engine_logprob *l,
                          struct tsr_err *err)
{
    json_t *o = json_object();
    bool    ok = put(o, "token", token_text(t, l->id, err));
    ok = put(o, "logprob", real(l->value)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* {"content": [{"token", "logprob", "top_logprobs": [...]}]} */
static json_t *chat_logprobs(const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                             struct tsr_err *err)
{
    json_t *content = json_array(), *o = json_object();
    bool    ok = true;
    for (uint64_t i = 0; r->logprobs && i < r->n_logprobs; i++) {
        json_t *one = chat_entry(t, &r->logprobs[i], err), *tops = json_array();
        for (uint32_t k = 0; k < r->top; k++)
            ok = json_array_append_new(tops, chat_entry(t, &r->tops[i * r->top + k], err)) == 0 &&
                 ok;
        ok = put(one, "top_logprobs", tops) && ok;
        ok = json_array_append_new(content, one) == 0 && ok;
    }
    ok = put(o, "content", content) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- choices ------------------------------------------------------------ */

/* Without a tokenizer ids are all there is. */
static json_t *plain_ids(const struct tsr_batch_request *q, const struct tsr_engine_served *r)
{
    json_t *ids = json_array();
    bool    ok = ids != NULL;
    for (uint64_t i = 0; q->q.echo && i < r->n_prompt; i++)
        ok = json_array_append_new(ids, json_integer(r->prompt[i])) == 0 && ok;
    for (uint64_t i = 0; i < r->n_tokens; i++)
        ok = json_array_append_new(ids, json_integer(r->tokens[i])) == 0 && ok;
    if (ok)
        return ids;
    json_decref(ids);
    return NULL;
}

json_t *tsr_batch_answer_choice(const struct tsr_batch_request *q, uint32_t choice,
                                const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                                struct tsr_err *err)
{
    json_t     *o = json_object();
    const char *why = r->finish == TSR_ENGINE_FINISH_LENGTH ? "length" : "stop";
    bool        ok = put(o, "index", json_integer(choice));
    json_t     *text = r->text ? json_stringn(r->text, r->text_bytes) : json_null();
    if (q->chat) {
        json_t *m = json_object();
        ok = put(m, "role", json_string("assistant")) && ok;
        ok = put(m, "content", text) && ok;
        ok = put(o, "message", m) && ok;
    } else {
        ok = put(o, "text", text) && ok;
    }
    if (!r->text)
        ok = put(o, "tokens", plain_ids(q, r)) && ok;
    ok = put(o, "logprobs",
             !q->q.logprobs ? json_null()
             : q->chat      ? chat_logprobs(r, t, err)
                            : text_logprobs(q, r, t, err)) &&
         ok;
    ok = put(o, "finish_reason", json_string(why)) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}
