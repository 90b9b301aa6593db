#include "tokenizer/chat.h"

#include "tokenizer/chat_forms.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct tsr_chat {
    const struct tsr_tokenizer_chat_form *form;
    char                                 *bos, *eos; /* "" if the model has none */
    const struct tsr_tokenizer           *tokenizer;
};

const char *tsr_tokenizer_chat_name(const struct tsr_chat *c)
{
    return c->form->name;
}

void tsr_tokenizer_chat_ends(const struct tsr_chat *c, const char **bos, const char **eos)
{
    *bos = c->bos;
    *eos = c->eos;
}

/* ---- recognizing -------------------------------------------------------- */

static tsr_status unknown(const char *hash, struct tsr_err *err)
{
    char                                  names[400] = "";
    size_t                                n = 0;
    const struct tsr_tokenizer_chat_form *f;
    for (uint64_t i = 0; (f = tsr_tokenizer_chat_form_get(i)) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", f->name);
    return tsr_fail(err, TSR_E_UNSUPPORTED,
                    "the chat template with the hash %s is not known (known are those of %s); "
                    "put the conversation together yourself and send it as a completion",
                    hash, names);
}

tsr_status tsr_tokenizer_chat_create_hash(struct tsr_chat **out, const char *hash, const char *bos,
                                          const char *eos, const struct tsr_tokenizer *t,
                                          struct tsr_err *err)
{
    const struct tsr_tokenizer_chat_form *form = tsr_tokenizer_chat_form_find(hash);
    *out = NULL;
    if (!form)
        return unknown(hash, err);
    struct tsr_chat *c = tsr_new(1, sizeof *c);
    if (c) {
        c->form = form;
        c->tokenizer = t;
        c->bos = tsr_strdup(bos ? bos : "");
        c->eos = tsr_strdup(eos ? eos : "");
    }
    if (!c || !c->bos || !c->eos) {
        tsr_tokenizer_chat_destroy(c);
        return tsr_fail_nomem(err, sizeof *c, "a chat template");
    }
    *out = c;
    return TSR_OK;
}

tsr_status tsr_tokenizer_chat_create(struct tsr_chat **out, const char *text, uint64_t bytes,
                                     const char *bos, const char *eos,
                                     const struct tsr_tokenizer *t, struct tsr_err *err)
{
    char hash[TSR_HASH_TEXT];
    tsr_hash_bytes(text, bytes, hash);
    return tsr_tokenizer_chat_create_hash(out, hash, bos, eos, t, err);
}

void tsr_tokenizer_chat_destroy(struct tsr_chat *c)
{
    if (!c)
        return;
    free(c->bos);
    free(c->eos);
    free(c);
}

/* ---- rendering ---------------------------------------------------------- */

/* Text of the template with the places of what came from messages. */
struct rendering {
    const struct tsr_chat          *c;
    struct tsr_tokenizer_text       text;
    struct tsr_tokenizer_text_span *spans;
    uint64_t                        n, cap;
};

static tsr_status literal(struct rendering *r, const char *s, struct tsr_err *err)
{
    for (; *s; s++) {
        const char *own = *s == *TSR_CHAT_BOS ? r->c->bos : *s == *TSR_CHAT_EOS ? r->c->eos : NULL;
        TSR_TRY(tsr_tokenizer_text_append(&r->text, own ? own : s, own ? strlen(own) : 1, err));
    }
    return TSR_OK;
}

static tsr_status foreign(struct rendering *r, const char *s, uint64_t n, bool strip,
                          struct tsr_err *err)
{
    static const char white[] = " \t\n\r\v\f";
    while (strip && n && *s && strchr(white, *s)) {
        s++;
        n--;
    }
    while (strip && n && s[n - 1] && strchr(white, s[n - 1]))
        n--;
    if (r->n == r->cap) {
        uint64_t                        cap = r->cap ? r->cap * 2 : 16;
        struct tsr_tokenizer_text_span *v = tsr_renew(r->spans, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "a conversation");
        r->spans = v;
        r->cap = cap;
    }
    r->spans[r->n++] = (struct tsr_tokenizer_text_span){ r->text.n, r->text.n + n };
    return tsr_tokenizer_text_append(&r->text, s, n, err);
}

static int role_of(const char *role)
{
    static const char *const names[] = { "system", "user", "assistant" };
    for (int i = 0; i < 3; i++)
        if (strcmp(role, names[i]) == 0)
            return i;
    return -1;
}

static tsr_status check(const struct tsr_chat *c, const struct tsr_tokenizer_chat_message *m,
                        uint64_t n, struct tsr_err *err)
{
    const struct tsr_tokenizer_chat_form *f = c->form;
    uint64_t                              turn = 0;
    for (uint64_t i = 0; i < n; i++) {
        int role = role_of(m[i].role);
        if (role < 0 || !f->before[role])
            return tsr_fail(err, TSR_E_INPUT,
                            "message %llu: the chat template '%s' knows no role \"%.40s\"",
                            (unsigned long long)i + 1, f->name, m[i].role);
        if (role == TSR_CHAT_SYSTEM && (i > 0 || (f->system_in_user && n == 1)) && f->system_once)
            return tsr_fail(err, TSR_E_INPUT,
                            "message %llu: the chat template '%s' takes a system message only in "
                            "front of a user's",
                            (unsigned long long)i + 1, f->name);
        if (role == TSR_CHAT_SYSTEM && f->system_in_last && role_of(m[n - 1].role) != TSR_CHAT_USER)
            return tsr_fail(
                err, TSR_E_INPUT,
                "message %llu: the chat template '%s' takes a system message only where "
                "the last one is a user's",
                (unsigned long long)i + 1, f->name);
        if (role == TSR_CHAT_SYSTEM && (f->system_in_user || f->system_in_last))
            continue;
        if (f->alternate && (role == TSR_CHAT_USER) != (turn++ % 2 == 0))
            return tsr_fail(err, TSR_E_INPUT,
                            "message %llu: the chat template '%s' needs alternating user and "
                            "assistant messages",
                            (unsigned long long)i + 1, f->name);
    }
    return TSR_OK;
}

/* A system message before a user's: stripped together, as in the template. */
static tsr_status merged(struct rendering *r, const struct tsr_tokenizer_chat_message *system,
                         const struct tsr_tokenizer_chat_message *user, struct tsr_err *err)
{
    const struct tsr_tokenizer_chat_form *f = r->c->form;
    uint64_t                              n = user->bytes;
    while (f->strip[TSR_CHAT_USER] && n && strchr(" \t\n\r\v\f", user->text[n - 1]))
        n--;
    TSR_TRY(literal(r, f->before[TSR_CHAT_USER], err));
    TSR_TRY(literal(r, f->before[TSR_CHAT_SYSTEM], err));
    TSR_TRY(foreign(r, system->text, system->bytes, false, err));
    TSR_TRY(literal(r, f->after[TSR_CHAT_SYSTEM], err));
    TSR_TRY(foreign(r, user->text, n, false, err));
    return literal(r, f->after[TSR_CHAT_USER], err);
}

/* The system message that this template always begins with. */
static tsr_status open_with(struct rendering *r, const struct tsr_tokenizer_chat_message *system,
                            struct tsr_err *err)
{
    const struct tsr_tokenizer_chat_form *f = r->c->form;
    TSR_TRY(literal(r, f->opening, err));
    if (system)
        TSR_TRY(foreign(r, system->text, system->bytes, f->strip[TSR_CHAT_SYSTEM], err));
    return literal(r, f->after[TSR_CHAT_SYSTEM], err);
}

static tsr_status render(struct rendering *r, const struct tsr_tokenizer_chat_message *m,
                         uint64_t n, struct tsr_err *err)
{
    const struct tsr_tokenizer_chat_form    *f = r->c->form;
    const struct tsr_tokenizer_chat_message *system = NULL;
    uint64_t                                 i = 0;
    TSR_TRY(check(r->c, m, n, err));
    TSR_TRY(literal(r, f->first ? f->first : "", err));
    if (n && role_of(m[0].role) == TSR_CHAT_SYSTEM)
        system = m;
    if (f->no_system && n && !system) {
        TSR_TRY(literal(r, f->before[TSR_CHAT_SYSTEM], err));
        TSR_TRY(literal(r, f->no_system, err));
        TSR_TRY(literal(r, f->after[TSR_CHAT_SYSTEM], err));
    }
    if (f->opening)
        TSR_TRY(open_with(r, system, err));
    if (system && (f->opening || f->system_in_last))
        i = 1;
    if (system && f->system_in_user && n > 1) {
        TSR_TRY(merged(r, m, m + 1, err));
        i = 2;
    }
    for (; i < n; i++) {
        int role = role_of(m[i].role);
        if (role == TSR_CHAT_SYSTEM && (f->drop_system || (f->drop_empty_system && !m[i].bytes)))
            continue;
        if (system && f->system_in_last && i + 1 == n) {
            TSR_TRY(merged(r, system, m + i, err));
            continue;
        }
        TSR_TRY(literal(r, f->before[role], err));
        TSR_TRY(foreign(r, m[i].text, m[i].bytes, f->strip[role], err));
        TSR_TRY(literal(r, f->after[role], err));
    }
    TSR_TRY(literal(r, f->answer, err));
    return r->text.n ? TSR_OK
                     : tsr_fail(err, TSR_E_INPUT,
                                "the chat template '%s' makes nothing of this conversation; add a "
                                "message of the user's",
                                f->name);
}

tsr_status tsr_tokenizer_chat_render(const struct tsr_chat                   *c,
                                     const struct tsr_tokenizer_chat_message *m, uint64_t n,
                                     bool allow_special, struct tsr_tokenizer_ids *ids,
                                     struct tsr_err *err)
{
    struct rendering r = { .c = c };
    tsr_status       st = render(&r, m, n, err);
    if (st == TSR_OK)
        st = tsr_tokenize_around(c->tokenizer, r.text.v ? r.text.v : "", r.text.n, r.spans,
                                 allow_special ? 0 : r.n, ids, err);
    tsr_tokenizer_text_free(&r.text);
    free(r.spans);
    return st;
}
