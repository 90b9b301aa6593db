/* tokenizer/syntax.h - translation of a regex pattern: syntax.c outside of sets, syntax_set.c
 * sets, syntax_char.c what both have. */
#ifndef TSR_TOKENIZER_SYNTAX_H
#define TSR_TOKENIZER_SYNTAX_H

#include "tokenizer/internal.h"

#define TOK_SPACE                                                                                  \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}"                      \
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define TOK_NOSPACE                                                                                \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}"                   \
    "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}"                 \
    "\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
#define TOK_ALPHA "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

/* Oniguruma's \w also contains the six numbers of Latin-1, except inside a set. */
#define TOK_WORD     TOK_ALPHA "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define TOK_HEX      "0-9a-fA-F"
#define TOK_MAX_NEST 64

struct tok_syntax_group {
    uint64_t at;     /* in out */
    unsigned closes; /* isolated options opened inside it */
};

struct tok_syntax {
    const char                *s, *name;
    uint64_t                   n, i;
    struct tsr_tokenizer_text *out;
    uint64_t                   atom; /* start of the last atom in out, or none */
    bool                       quantified;
    struct tok_syntax_group    group[TOK_MAX_NEST + 1];
    unsigned                   depth, classes;
    struct tsr_err            *err;
};

tsr_status tok_syntax_refuse(struct tok_syntax *x, const char *what);
tsr_status tok_syntax_put_code(struct tsr_tokenizer_text *out, uint32_t c, struct tsr_err *err);
/* \p{name} from after the p.  Scripts mean the Script property, not Script_Extensions. */
tsr_status tok_syntax_property(struct tok_syntax *x, bool negated, struct tsr_tokenizer_text *out);
/* An escape for one character, from after the backslash; *got is false for other escapes. */
tsr_status tok_syntax_escape_char(struct tok_syntax *x, uint32_t *c, bool *got);
tsr_status tok_syntax_set(struct tok_syntax *x);
tsr_status tok_syntax_put(struct tok_syntax *x, const char *text);

#endif
