/* The page that lm-evaluation-harness's task `wikitext` scores: its detokenizer is a list of
 * literal replacements and five regular expressions, kept here in its order. */
#include "eval/wikitext.h"
#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* What \s means for Python's str; PCRE2's set differs in U+001C..1F and U+180E. */
#define SPACE                                                                                      \
    "[\\x09-\\x0d\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"                            \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}]"

struct change {
    const char *from, *to;
    bool        regex;
};

static const struct change changes[] = {
    { "s '", "s'", false },
    { "/' [0-9]/", "/'[0-9]/", true }, /* the replacement is literal text */
    { " @-@ ", "-", false },
    { " @,@ ", ",", false },
    { " @.@ ", ".", false },
    { " : ", ": ", false },
    { " ; ", "; ", false },
    { " . ", ". ", false },
    { " ! ", "! ", false },
    { " ? ", "? ", false },
    { " , ", ", ", false },
    { "\\(" SPACE "*([^\\)]*?)" SPACE "*\\)", "(${1})", true },
    { "\\[" SPACE "*([^\\]]*?)" SPACE "*\\]", "[${1}]", true },
    { "\\{" SPACE "*([^}]*?)" SPACE "*\\}", "{${1}}", true },
    { "\"" SPACE "*([^\"]*?)" SPACE "*\"", "\"${1}\"", true },
    { "'" SPACE "*([^']*?)" SPACE "*'", "'${1}'", true },
    { "= = = =", "====", false },
    { "= = =", "===", false },
    { "= =", "==", false },
    { " \xc2\xb0 ", "\xc2\xb0", false },
    { " \n", "\n", false },
    { "\n ", "\n", false },
    { " N ", " 1 ", false },
    { " 's", "'s", false },
};

static tsr_status replace(const struct tsr_tokenizer_text *in, const struct change *c,
                          struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    size_t      from = strlen(c->from), to = strlen(c->to);
    const char *p = in->v, *end = in->v + in->n, *hit;
    while (p < end && (hit = memmem(p, (size_t)(end - p), c->from, from)) != NULL) {
        TSR_TRY(tsr_tokenizer_text_append(out, p, (uint64_t)(hit - p), err));
        TSR_TRY(tsr_tokenizer_text_append(out, c->to, to, err));
        p = hit + from;
    }
    return tsr_tokenizer_text_append(out, p, (uint64_t)(end - p), err);
}

static tsr_status regex_fail(int rc, struct tsr_err *err)
{
    PCRE2_UCHAR8 text[160];
    if (rc == PCRE2_ERROR_NOMEMORY)
        return tsr_fail_nomem(err, 0, "a regular expression");
    (void)pcre2_get_error_message(rc, text, sizeof text);
    if (rc <= PCRE2_ERROR_UTF8_ERR1 && rc >= PCRE2_ERROR_UTF8_ERR21)
        return tsr_fail(err, TSR_E_INPUT, "the text is not UTF-8: %s", (const char *)text);
    return tsr_fail(err, TSR_E_INPUT, "the text cannot be detokenized: %s", (const char *)text);
}

static tsr_status substitute(const struct tsr_tokenizer_text *in, const struct change *c,
                             pcre2_code *code, struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    PCRE2_SIZE cap = in->n + 64, n;
    for (int attempt = 0;; attempt++) {
        char *buf = tsr_new(cap, 1);
        if (!buf)
            return tsr_fail_nomem(err, cap, "a text");
        n = cap;
        int rc =
            pcre2_substitute(code, (PCRE2_SPTR8)(in->v ? in->v : ""), in->n, 0,
                             PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH, NULL, NULL,
                             (PCRE2_SPTR8)c->to, PCRE2_ZERO_TERMINATED, (PCRE2_UCHAR8 *)buf, &n);
        if (rc == PCRE2_ERROR_NOMEMORY && attempt == 0 && n > cap) {
            cap = n;
            free(buf);
            continue;
        }
        tsr_status st = rc < 0 ? regex_fail(rc, err) : tsr_tokenizer_text_append(out, buf, n, err);
        free(buf);
        return st;
    }
}

static tsr_status change(const struct tsr_tokenizer_text *in, const struct change *c,
                         struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    if (!c->regex)
        return replace(in, c, out, err);
    int         rc;
    PCRE2_SIZE  at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR8)c->from, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &rc, &at, NULL);
    if (!code)
        return regex_fail(rc, err);
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    tsr_status st = substitute(in, c, code, out, err);
    pcre2_code_free(code);
    return st;
}

tsr_status tsr_eval_wikitext_detokenize(const char *page, uint64_t len,
                                        struct tsr_tokenizer_text *out, struct tsr_err *err)
{
    struct tsr_tokenizer_text now = { 0 };
    TSR_TRY(tsr_tokenizer_text_append(&now, page, len, err));
    for (uint64_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct tsr_tokenizer_text next = { 0 };
        tsr_status                st = change(&now, &changes[i], &next, err);
        tsr_tokenizer_text_free(&now);
        if (st != TSR_OK) {
            tsr_tokenizer_text_free(&next);
            return st;
        }
        now = next;
    }
    tsr_status st = tsr_tokenizer_text_append(out, now.v, now.n, err);
    tsr_tokenizer_text_free(&now);
    return st;
}
