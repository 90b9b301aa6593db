/* One choice of an answer, whole or in parts: text or message, log-probabilities, why it ended. */
#include "batch/part.h"

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
    uint64_t                        from, n; /* those before `from` were given */
};

static struct tokens tokens_of(const struct tsr_batch_request *q, const struct tsr_engine_served *r,
                               uint64_t from)
{
    return (struct tokens){ r, q->q.echo, from, r->n_logprobs + q->q.echo };
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
 * not counted.  null without a tokenizer.  Before the end of the choice it has those tokens that are certain: text
 * before a token that a stop string can still cut ends the list, and k->n. */
static json_t *offsets(struct tsr_batch_part *p, struct tokens *k, bool over,
                       const struct tsr_tokenizer *t, struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    json_t                   *list = json_array();
    if (!t || !list ||
        (!p->detok && tsr_tokenizer_detok_create(&p->detok, t, true, err) != TSR_OK)) {
        json_decref(list);
        return t ? NULL : json_null();
    }
    bool ok = true;
    for (uint64_t i = k->from; i < k->n && ok; i++) {
        uint64_t at = p->offset;
        if (at > p->characters && !over)
            k->n = i;
        at = at < p->characters ? at : p->characters;
        if (i == k->n)
            break;
        text.n = 0;
        tsr_tokenizer_detok_show_special(p->detok, k->echo && i < k->r->n_prompt);
        ok = json_array_append_new(list, json_integer((json_int_t)at)) == 0 &&
             tsr_tokenizer_detok_push(p->detok, id_of(k, i), &text, err) == TSR_OK;
        p->offset += ok ? characters(text.v ? text.v : "", text.n) : 0;
    }
    tsr_tokenizer_text_free(&text);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{...}] or null, "text_offset": [...]} */
static json_t *text_logprobs(struct tsr_batch_part *p, const struct tsr_batch_request *q,
                             const struct tsr_engine_served *r, bool over,
                             const struct tsr_tokenizer *t, struct tsr_err *err)
{
    struct tokens k = tokens_of(q, r, p->tokens);
    json_t       *tokens = json_array(), *values = json_array();
    json_t       *tops = r->top ? json_array() : json_null();
    json_t       *places = offsets(p, &k, over, t, err); /* first: it says how many */
    bool          ok = true;
    for (uint64_t i = k.from; i < k.n; i++) {
        const struct tsr_engine_logprob *l = logprob_of(&k, i);
        ok = json_array_append_new(tokens, token_text(t, id_of(&k, i), err)) == 0 && ok;
        ok = json_array_append_new(values, l ? real(l->value) : json_null()) == 0 && ok;
        if (r->top)
            ok = json_array_append_new(tops, l ? best_of(r, i - k.echo, t, err) : json_null()) ==
                     0 &&
                 ok;
    }
    p->tokens = k.n;
    json_t *o = json_object();
    ok = put(o, "tokens", tokens) && ok;
    ok = put(o, "token_logprobs", values) && ok;
    ok = put(o, "top_logprobs", tops) && ok;
    ok = put(o, "text_offset", places) && ok;
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
static json_t *chat_logprobs(struct tsr_batch_part *p, const struct tsr_engine_served *r,
                             const struct tsr_tokenizer *t, struct tsr_err *err)
{
    json_t *content = json_array(), *o = json_object();
    bool    ok = true;
    for (uint64_t i = p->tokens; r->logprobs && i < r->n_logprobs; i++) {
        json_t *one = chat_entry(t, &r->logprobs[i], err), *tops = json_array();
        for (uint32_t k = 0; k < r->top; k++)
            ok = json_array_append_new(tops, chat_entry(t, &r->tops[i * r->top + k], err)) == 0 &&
                 ok;
        ok = put(one, "top_logprobs", tops) && ok;
        ok = json_array_append_new(content, one) == 0 && ok;
    }
    p->tokens = r->n_logprobs;
    ok = put(o, "content", content) && ok;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- choices ------------------------------------------------------------ */

/* Without a tokenizer ids are all there is. */
static json_t *plain_ids(struct tsr_batch_part *p, const struct tsr_batch_request *q,
                         const struct tsr_engine_served *r)
{
    uint64_t echoed = q->q.echo ? r->n_prompt : 0;
    json_t  *ids = json_array();
    bool     ok = ids != NULL;
    for (; p->ids < echoed + r->n_tokens; p->ids++) {
        uint32_t id = p->ids < echoed ? r->prompt[p->ids] : r->tokens[p->ids - echoed];
        ok = json_array_append_new(ids, json_integer(id)) == 0 && ok;
    }
    if (ok)
        return ids;
    json_decref(ids);
    return NULL;
}

/* The text that is new. */
static json_t *text_of(struct tsr_batch_part *p, const struct tsr_engine_served *r)
{
    const char *text = r->text ? r->text + p->bytes : NULL;
    uint64_t    n = r->text_bytes - p->bytes;
    if (!text)
        return json_null();
    p->bytes += n;
    p->characters += characters(text, n);
    return json_stringn(text, n);
}

/* {"role", "content"}: the role in the first part, a content that is empty in none after it. */
static json_t *message(struct tsr_batch_part *p, json_t *text)
{
    json_t *m = json_object();
    bool    ok = m != NULL && text != NULL;
    if (!p->begun)
        ok = put(m, "role", json_string("assistant")) && ok;
    if (!p->begun || json_string_length(text))
        ok = put(m, "content", text) && ok;
    else
        json_decref(text);
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}

/* All that is new; with `whole` in the form of an answer that does not come in parts. */
static json_t *choice_of(struct tsr_batch_part *p, const struct tsr_batch_request *q,
                         uint32_t choice, const struct tsr_engine_served *r, bool over, bool whole,
                         const struct tsr_tokenizer *t, struct tsr_err *err)
{
    json_t     *o = json_object(), *text = text_of(p, r);
    const char *why = r->finish == TSR_ENGINE_FINISH_LENGTH ? "length" : "stop";
    bool        ok = put(o, "index", json_integer(choice));
    if (q->chat)
        ok = put(o, whole ? "message" : "delta", message(p, text)) && ok;
    else
        ok = put(o, "text", text) && ok;
    if (!r->text)
        ok = put(o, "tokens", plain_ids(p, q, r)) && ok;
    ok = put(o, "logprobs",
             !q->q.logprobs ? json_null()
             : q->chat      ? chat_logprobs(p, r, t, err)
                            : text_logprobs(p, q, r, over, t, err)) &&
         ok;
    ok = put(o, "finish_reason", over ? json_string(why) : json_null()) && ok;
    p->begun = true;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

json_t *tsr_batch_answer_choice(const struct tsr_batch_request *q, uint32_t choice,
                                const struct tsr_engine_served *r, const struct tsr_tokenizer *t,
                                struct tsr_err *err)
{
    struct tsr_batch_part p = { 0 };
    json_t               *o = choice_of(&p, q, choice, r, true, true, t, err);
    tsr_batch_part_free(&p);
    return o;
}

tsr_status tsr_batch_part_next(struct tsr_batch_part *p, const struct tsr_batch_request *q,
                               uint32_t choice, const struct tsr_engine_served *r, bool over,
                               const struct tsr_tokenizer *t, json_t **delta, struct tsr_err *err)
{
    uint64_t bytes = p->bytes, tokens = p->tokens, ids = p->ids;
    bool     role = q->chat && !p->begun;
    *delta = choice_of(p, q, choice, r, over, false, t, err);
    if (!*delta)
        return tsr_fail_nomem(err, r->text_bytes + r->n_tokens, "a part of an answer");
    if (tokens == p->tokens && (tokens || !over) &&
        json_object_set_new(*delta, "logprobs", json_null()) != 0)
        return tsr_fail_nomem(err, 64, "a part of an answer");
    if (!over && !role && p->bytes == bytes && p->tokens == tokens && p->ids == ids) {
        json_decref(*delta);
        *delta = NULL;
    }
    return TSR_OK;
}

void tsr_batch_part_free(struct tsr_batch_part *p)
{
    tsr_tokenizer_detok_destroy(p->detok);
    memset(p, 0, sizeof *p);
}
