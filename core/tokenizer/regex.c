/* regex.c - literals and regexes over a piece of text.  PCRE2 runs with fixed limits, with its JIT
 * if available; hitting a limit is an error and never "no match". */
#include "tokenizer/internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tok_regex {
    pcre2_code *code;
};

tsr_status tok_span_push(struct tok_spans *s, uint64_t at, uint64_t end, bool match,
                         struct tsr_err *err)
{
    if (s->n == s->cap) {
        uint64_t         cap = s->cap ? s->cap * 2 : 64;
        struct tok_span *v = tsr_renew(s->v, cap, sizeof *v);
        if (!v)
            return tsr_fail_nomem(err, cap * sizeof *v, "a split text");
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct tok_span){ at, end, match };
    return TSR_OK;
}

static tsr_status compile(pcre2_code **out, const char *name, const char *s, uint64_t n,
                          struct tsr_err *err)
{
    struct tsr_tokenizer_text text = { 0 };
    tsr_status                st = tok_syntax(&text, name, s, n, err);
    if (st == TSR_OK && text.n > UINT64_C(4) * TOK_MAX_REGEX)
        st = tsr_fail(err, TSR_E_INPUT, "%s: a regex is too large once its sets are written out",
                      name);
    pcre2_compile_context *cc = st == TSR_OK ? pcre2_compile_context_create(NULL) : NULL;
    if (st == TSR_OK && !cc)
        st = tsr_fail_nomem(err, 64, "a regex");
    if (st == TSR_OK) {
        int        code = 0;
        PCRE2_SIZE at = 0;
        (void)pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
        (void)pcre2_set_bsr(cc, PCRE2_BSR_UNICODE);
        *out = pcre2_compile((PCRE2_SPTR)(text.v ? text.v : ""), text.n,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &code, &at, cc);
        if (!*out && code == PCRE2_ERROR_NOMEMORY) {
            st = tsr_fail_nomem(err, n, "a regex");
        } else if (!*out) {
            char msg[128] = "";
            (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof msg);
            st = tsr_fail(err, TSR_E_INPUT, "%s: the regex \"%.80s\" cannot be used: %s", name, s,
                          msg);
        }
    }
    pcre2_compile_context_free(cc);
    tsr_tokenizer_text_free(&text);
    return st;
}

tsr_status tok_pattern_init(struct tok_pattern *p, const char *name, const char *text, uint64_t n,
                            bool is_regex, struct tsr_err *err)
{
    if (n > TOK_MAX_REGEX)
        return tsr_fail(err, TSR_E_INPUT, "%s: a pattern of %llu bytes is longer than %u", name,
                        (unsigned long long)n, TOK_MAX_REGEX);
    if (!is_regex) {
        p->text = tsr_new(n + 1, 1);
        if (!p->text)
            return tsr_fail_nomem(err, n, "a pattern");
        memcpy(p->text, text, n);
        p->n = n;
        return TSR_OK;
    }
    p->regex = tsr_new(1, sizeof *p->regex);
    if (!p->regex)
        return tsr_fail_nomem(err, sizeof *p->regex, "a regex");
    TSR_TRY(compile(&p->regex->code, name, text, n, err));
    /* Without a JIT (SELinux, other CPUs) pcre2_match() interprets under the same limits. */
    (void)pcre2_jit_compile(p->regex->code, PCRE2_JIT_COMPLETE);
    return TSR_OK;
}

void tok_pattern_free(struct tok_pattern *p)
{
    free(p->text);
    if (p->regex)
        pcre2_code_free(p->regex->code);
    free(p->regex);
    memset(p, 0, sizeof *p);
}

/* This thread's own time: a busy machine must not turn a good text into an error. */
static uint64_t cpu_us(void)
{
    struct timespec t = { 0 };
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void tok_ctx_init(struct tok_ctx *c, const struct tsr_tokenizer *t, uint64_t text,
                  struct tsr_err *err)
{
    memset(c, 0, sizeof *c);
    c->t = t;
    c->name = t->name;
    c->err = err;
    /* one second for a record, and one more for every MiB */
    c->deadline_us = cpu_us() + 1000000 + (text >> 20) * 1000000;
}

void tok_ctx_free(struct tok_ctx *c)
{
    pcre2_match_data_free(c->match);
    pcre2_match_context_free(c->match_context);
    pcre2_jit_stack_free(c->jit_stack);
    free(c->spans.v);
    free(c->symbol);
    free(c->heap);
    free(c->best);
    tsr_tokenizer_text_free(&c->scratch);
    memset(c, 0, sizeof *c);
}

static tsr_status prepare(struct tok_ctx *c)
{
    if (c->match)
        return TSR_OK;
    c->match_context = pcre2_match_context_create(NULL);
    pcre2_match_data *match = c->match_context ? pcre2_match_data_create(1, NULL) : NULL;
    if (!match)
        return tsr_fail_nomem(c->err, 1024, "a regex match");
    c->match = match;
    (void)pcre2_set_depth_limit(c->match_context, TOK_DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(c->match_context, TOK_HEAP_LIMIT);
    c->jit_stack = pcre2_jit_stack_create(32 << 10, TOK_JIT_STACK, NULL);
    if (c->jit_stack) /* else the JIT uses its 32 KiB on the stack */
        pcre2_jit_stack_assign(c->match_context, NULL, c->jit_stack);
    return TSR_OK;
}

static tsr_status search(const struct tok_regex *re, struct tok_ctx *c, const char *s, uint64_t n,
                         uint64_t from, uint64_t *at, uint64_t *end, bool *found)
{
    *found = false;
    if (++c->since_check % 64 == 0 && cpu_us() > c->deadline_us)
        return tsr_fail(c->err, TSR_E_INPUT,
                        "%s: TOKENIZER_LIMIT: a regex spends too much time on this text", c->name);
    int rc = pcre2_match(re->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, c->match,
                         c->match_context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return TSR_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return tsr_fail_nomem(c->err, n, "a regex match");
    if (rc < 0) {
        char msg[128] = "";
        (void)pcre2_get_error_message(rc, (PCRE2_UCHAR *)msg, sizeof msg);
        return tsr_fail(c->err, TSR_E_INPUT, "%s: TOKENIZER_LIMIT: a regex fails on this text: %s",
                        c->name, msg);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(c->match);
    *at = v[0];
    *end = v[1];
    *found = true;
    return TSR_OK;
}

/* The search of the reference: skips an empty match directly after the previous one. */
static tsr_status regex_spans(const struct tok_regex *re, struct tok_ctx *c, const char *s,
                              uint64_t n, struct tok_spans *out)
{
    uint64_t from = 0, last = UINT64_MAX, done = 0;
    TSR_TRY(prepare(c));
    uint64_t limit = TOK_MATCH_LIMIT + n * TOK_MATCH_PER_BYTE;
    (void)pcre2_set_match_limit(c->match_context,
                                limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    while (from <= n) {
        uint64_t at, end;
        bool     found;
        TSR_TRY(search(re, c, s, n, from, &at, &end, &found));
        if (!found)
            break;
        if (at == end && end == last) {
            unsigned len = 1;
            if (from < n)
                (void)tok_char(s + from, n - from, &len);
            from += len;
            continue;
        }
        if (done != at)
            TSR_TRY(tok_span_push(out, done, at, false, c->err));
        TSR_TRY(tok_span_push(out, at, end, true, c->err));
        done = from = last = end;
    }
    if (done != n)
        TSR_TRY(tok_span_push(out, done, n, false, c->err));
    return TSR_OK;
}

tsr_status tok_pattern_spans(const struct tok_pattern *p, struct tok_ctx *c, const char *s,
                             uint64_t n, struct tok_spans *out)
{
    out->n = 0;
    if (n == 0)
        return tok_span_push(out, 0, 0, false, c->err);
    if (p->regex)
        return regex_spans(p->regex, c, s, n, out);
    uint64_t done = 0;
    while (p->n) {
        const char *hit = memmem(s + done, n - done, p->text, p->n);
        if (!hit)
            break;
        uint64_t at = (uint64_t)(hit - s);
        if (at != done)
            TSR_TRY(tok_span_push(out, done, at, false, c->err));
        TSR_TRY(tok_span_push(out, at, at + p->n, true, c->err));
        done = at + p->n;
    }
    if (done != n)
        TSR_TRY(tok_span_push(out, done, n, false, c->err));
    return TSR_OK;
}
