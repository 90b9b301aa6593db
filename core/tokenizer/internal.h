/* tokenizer/internal.h - internals of the tokenizer; only this folder and checkpoint/gguf include it.
 *
 *   text -> added tokens -> normalizers -> added tokens (normalized) -> pre-tokenizers
 *        -> model (BPE or Unigram) -> template
 *
 * Between the stages the text is a struct tok_work: pieces in one buffer, some of which are already a token.
 * Every stage reads one work and writes another.  The code follows the reference, even where it looks odd;
 * these places have a comment.
 */
#ifndef TSR_TOKENIZER_INTERNAL_H
#define TSR_TOKENIZER_INTERNAL_H

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "tokenizer/tokenizer.h"

#define TOK_MAX_FILE  (256ull << 20)
#define TOK_MAX_DEPTH 32u
#define TOK_MAX_IDS   (4u << 20)  /* ids are below this                           */
#define TOK_MAX_REGEX (16u << 10) /* bytes of a pattern, and four times translated */
#define TOK_MAX_ADDED 1024u       /* bytes of an added token                      */
#define TOK_MAX_TEXT  (1u << 30)  /* bytes of a text                              */
#define TOK_MAX_PARTS 64u         /* components of one kind                       */
/* PCRE2 steps of one match: a fixed part, and one for each byte that a pattern may walk back
 * over.  "\s*[\r\n]+" costs a step per space of a run, so that without the second part a
 * megabyte of spaces would be refused by the patterns of real models. */
#define TOK_MATCH_LIMIT    1000000u
#define TOK_MATCH_PER_BYTE 8u
#define TOK_DEPTH_LIMIT    10000u
#define TOK_HEAP_LIMIT     (64u << 10) /* KiB                                          */
#define TOK_JIT_STACK      (1u << 20)

/* ---- map.c --------------------------------------------------------- */

struct tok_entry {
    uint64_t at;
    uint32_t len, value, tag; /* tag: upper half of the hash */
};
/* Strings to numbers; a second put of a key replaces its value. */
struct tok_strmap {
    char             *bytes;
    uint64_t          n_bytes, cap_bytes;
    struct tok_entry *entry;
    uint32_t          n, cap;
    uint32_t         *slot; /* entry + 1, 0: free */
    uint64_t          mask;
};
/* Returns the index of the entry through *at if at is given. */
tsr_status tok_strmap_put(struct tok_strmap *m, const char *s, uint64_t n, uint32_t value,
                          uint32_t *at, struct tsr_err *err);
int64_t    tok_strmap_get(const struct tok_strmap *m, const char *s, uint64_t n); /* -1: none */
void       tok_strmap_free(struct tok_strmap *m);

/* 64-bit keys (never all ones) to 64-bit values. */
struct tok_map {
    uint64_t *key, *value;
    uint64_t  n, mask;
};
tsr_status tok_map_put(struct tok_map *m, uint64_t key, uint64_t value, struct tsr_err *err);
bool       tok_map_get(const struct tok_map *m, uint64_t key, uint64_t *value);
void       tok_map_free(struct tok_map *m);

/* Prefix tree over bytes; node 0 is the root. */
struct tok_trie {
    struct tok_map edges; /* node << 8 | byte -> node */
    int32_t       *value; /* per node, -1: none       */
    uint32_t       n, cap;
    bool           first[256]; /* a key starts with it     */
};
tsr_status tok_trie_put(struct tok_trie *t, const char *s, uint64_t n, int32_t value, int32_t *old,
                        struct tsr_err *err);
/* Child of node by byte, 0 if there is none. */
uint32_t tok_trie_step(const struct tok_trie *t, uint32_t node, unsigned char byte);
void     tok_trie_free(struct tok_trie *t);

/* ---- text.c -------------------------------------------------------- */

/* One code point of valid UTF-8 (n > 0); its bytes through *len. */
uint32_t   tok_char(const char *s, uint64_t n, unsigned *len);
unsigned   tok_put_char(char out[4], uint32_t c);
tsr_status tok_append_char(struct tsr_tokenizer_text *t, uint32_t c, struct tsr_err *err);
bool       tok_valid(const char *s, uint64_t n);
/* Bytes of the valid or invalid sequence at s and whether it is valid; *open is set when more
 * bytes could make it valid.  Invalid sequences are maximal subparts (Unicode 3.9, U+FFFD). */
unsigned tok_sequence(const char *s, uint64_t n, bool *valid, bool *open);
/* Appends s with U+FFFD for every invalid sequence. */
tsr_status tok_append_lossy(struct tsr_tokenizer_text *t, const char *s, uint64_t n,
                            struct tsr_err *err);

bool     tok_is_space(uint32_t c);       /* White_Space               */
bool     tok_is_word(uint32_t c);        /* \w of UTS 18              */
bool     tok_is_numeric(uint32_t c);     /* Nd, Nl, No                */
bool     tok_is_punct(uint32_t c);       /* P* and ASCII punctuation  */
bool     tok_is_mark(uint32_t c);        /* M*                        */
uint32_t tok_byte_char(unsigned char b); /* GPT-2's alphabet          */
int      tok_char_byte(uint32_t c);      /* -1: not in it             */

/* ---- regex.c, syntax.c ----------------------------------------- */

struct tok_ctx;
struct tok_regex;
/* A literal or a regex. */
struct tok_pattern {
    char             *text;
    uint64_t          n;
    struct tok_regex *regex; /* NULL: literal text */
    bool              empty; /* the empty string   */
};
struct tok_span {
    uint64_t at, end;
    bool     match;
};
struct tok_spans {
    struct tok_span *v;
    uint64_t         n, cap;
};
tsr_status tok_span_push(struct tok_spans *s, uint64_t at, uint64_t end, bool match,
                         struct tsr_err *err);
tsr_status tok_pattern_init(struct tok_pattern *p, const char *name, const char *text, uint64_t n,
                            bool is_regex, struct tsr_err *err);
void       tok_pattern_free(struct tok_pattern *p);
/* Contiguous spans over all of s, in the reference's order of search. */
tsr_status tok_pattern_spans(const struct tok_pattern *p, struct tok_ctx *c, const char *s,
                             uint64_t n, struct tok_spans *out);
/* Oniguruma's (Ruby's) syntax to PCRE2's. */
tsr_status tok_syntax(struct tsr_tokenizer_text *out, const char *name, const char *pattern,
                      uint64_t n, struct tsr_err *err);

/* ---- components -------------------------------------------------------- */

enum tok_kind {
    /* normalizers */
    TOK_NFC,
    TOK_NFD,
    TOK_NFKC,
    TOK_NFKD,
    TOK_LOWER,
    TOK_STRIP_ACCENTS,
    TOK_STRIP,
    TOK_REPLACE,
    TOK_PREPEND,
    TOK_CHARSMAP,
    TOK_BYTES,
    TOK_NMT,
    TOK_BERT,
    /* pre-tokenizers */
    TOK_BYTE_LEVEL,
    TOK_SPLIT,
    TOK_METASPACE,
    TOK_WHITESPACE,
    TOK_WHITESPACE_SPLIT,
    TOK_DIGITS,
    TOK_PUNCTUATION,
    TOK_DELIMITER,
    TOK_BERT_SPLIT,
    TOK_FIXED,
    /* decoders, in addition to BYTE_LEVEL, METASPACE, STRIP and REPLACE */
    TOK_BYTE_FALLBACK,
    TOK_FUSE,
};
enum tok_behavior {
    TOK_REMOVED,
    TOK_ISOLATED,
    TOK_MERGED_PREVIOUS,
    TOK_MERGED_NEXT,
    TOK_CONTIGUOUS
};
enum tok_scheme { TOK_ALWAYS, TOK_FIRST, TOK_NEVER };

struct tok_charsmap;
struct tok_part {
    enum tok_kind        kind;
    struct tok_pattern   pattern;
    char                *text; /* content, prepend, replacement */
    uint64_t             n_text;
    uint32_t             c; /* a character                   */
    enum tok_behavior    behavior;
    enum tok_scheme      scheme;
    bool                 invert, prefix_space, use_regex, split, left, right;
    bool                 clean, chinese, accents, lower;
    uint64_t             start, stop;
    struct tok_charsmap *map;
};
struct tok_parts {
    struct tok_part *v;
    uint32_t         n, cap;
};
void tok_parts_free(struct tok_parts *p);
/* {"String": s} or {"Regex": r} */
tsr_status tok_load_pattern(struct tok_pattern *p, const char *name, const json_t *j,
                            struct tsr_err *err);
/* A string member copied with its length. */
tsr_status tok_load_text(const json_t *j, const char *name, const char *key, char **s, uint64_t *n,
                         struct tsr_err *err);
/* A string member of exactly one character. */
tsr_status tok_load_char(const json_t *j, const char *name, const char *key, uint32_t *c,
                         struct tsr_err *err);
/* Replacement, scheme and split of a Metaspace. */
tsr_status tok_load_metaspace(struct tok_part *p, const char *name, const json_t *j,
                              struct tsr_err *err);
tsr_status tok_norm_add(struct tok_part *p, const char *name, const char *type, const json_t *j,
                        struct tsr_err *err);
tsr_status tok_pre_add(struct tok_part *p, const char *name, const char *type, const json_t *j,
                       struct tsr_err *err);
tsr_status tok_dec_add(struct tok_part *p, const char *name, const char *type, const json_t *j,
                       struct tsr_err *err);

/* A text being normalized.  zero: the number of leading bytes that form the first character of the
 * whole input; the scheme "first" of Metaspace needs it. */
struct tok_string {
    struct tsr_tokenizer_text t;
    uint64_t                  zero;
};
/* The string becomes *out, unless st says that making it failed; out is used up.  Returns st. */
static inline tsr_status tok_become(struct tok_string *s, struct tsr_tokenizer_text *out,
                                    uint64_t zero, tsr_status st)
{
    if (st != TSR_OK) {
        tsr_tokenizer_text_free(out);
        return st;
    }
    tsr_tokenizer_text_free(&s->t);
    s->t = *out;
    s->zero = zero;
    return TSR_OK;
}
tsr_status tok_normalize(const struct tok_parts *p, struct tok_ctx *c, struct tok_string *s);
tsr_status tok_unicode(struct tok_string *s, enum tok_kind form, struct tsr_err *err);
tsr_status tok_charsmap_load(struct tok_charsmap **m, const char *name, const json_t *j,
                             struct tsr_err *err);
void       tok_charsmap_free(struct tok_charsmap *m);
tsr_status tok_charsmap_run(const struct tok_charsmap *m, struct tok_string *s,
                            struct tsr_err *err);

struct tok_piece {
    uint64_t at, len, zero;
    int64_t  id; /* a token already, or -1 */
};
struct tok_work {
    struct tsr_tokenizer_text text;
    struct tok_piece         *v;
    uint64_t                  n, cap;
};
/* Appends a piece; drops an empty one that is not a token. */
tsr_status tok_work_push(struct tok_work *w, const char *s, uint64_t n, uint64_t zero, int64_t id,
                         struct tsr_err *err);
void       tok_work_free(struct tok_work *w);
tsr_status tok_pretokenize(const struct tok_part *p, struct tok_ctx *c, const struct tok_work *in,
                           struct tok_work *out);

/* ---- models ------------------------------------------------------------ */

struct tok_symbol {
    uint32_t id, len;
    int32_t  prev, next;
};
struct tok_merge {
    uint32_t rank, pos, id;
};
/* What one call needs; nothing of a tokenizer changes while it encodes. */
struct tok_ctx {
    const struct tsr_tokenizer *t;
    const char                 *name;
    struct tsr_err             *err;
    uint64_t                    deadline_us, since_check;
    void                       *match, *match_context, *jit_stack; /* PCRE2's */
    struct tok_spans            spans;
    struct tok_symbol          *symbol;
    uint64_t                    n_symbol, cap_symbol;
    struct tok_merge           *heap;
    uint64_t                    n_heap, cap_heap;
    struct tok_best            *best;
    uint64_t                    cap_best;
    struct tsr_tokenizer_text   scratch;
};
void tok_ctx_init(struct tok_ctx *c, const struct tsr_tokenizer *t, uint64_t text,
                  struct tsr_err *err);
void tok_ctx_free(struct tok_ctx *c);

struct tok_bpe {
    struct tok_map merges; /* left << 32 | right -> rank << 32 | id */
    char          *unk, *prefix, *suffix;
    uint64_t       n_prefix, n_suffix;
    int64_t        unk_id; /* -1: not in the vocabulary */
    bool           fuse_unk, ignore_merges;
};
struct tok_unigram {
    struct tok_trie trie;
    double         *score;
    double          unk_score;
    int64_t         unk_id;
};
tsr_status tok_bpe_load(struct tsr_tokenizer *t, const json_t *model, struct tsr_err *err);
tsr_status tok_bpe_encode(struct tok_ctx *c, const char *s, uint64_t n,
                          struct tsr_tokenizer_ids *ids);
tsr_status tok_unigram_load(struct tsr_tokenizer *t, const json_t *model, struct tsr_err *err);
tsr_status tok_unigram_encode(struct tok_ctx *c, const char *s, uint64_t n,
                              struct tsr_tokenizer_ids *ids);

/* ---- added tokens ------------------------------------------------------ */

struct tok_added {
    char    *content;
    uint64_t n;
    char    *normal; /* its normalized form if that differs, or NULL */
    uint64_t n_normal;
    uint32_t id;
    bool     single_word, lstrip, rstrip, normalized, special;
};
tsr_status tok_added_load(struct tsr_tokenizer *t, const json_t *list, struct tsr_err *err);
/* Splits every piece at the tokens of a trie; special ones that touch one of the spans are passed
 * over. */
tsr_status tok_added_split(const struct tsr_tokenizer *t, const struct tok_trie *trie,
                           bool skip_special, const struct tsr_tokenizer_text_span *spans,
                           uint64_t n_spans, const char *s, uint64_t n, uint64_t zero,
                           struct tok_work *out, struct tsr_err *err);

/* ---- template, decoders, the whole ------------------------------------- */

struct tok_slot { /* the text (n == 0 and text) or ids of the template */
    bool     text;
    uint32_t first, n;
};
struct tok_template {
    struct tok_slot         *slot;
    uint32_t                 n;
    struct tsr_tokenizer_ids ids;
    bool                     set;
};
tsr_status tok_post_load(struct tsr_tokenizer *t, const json_t *post, struct tsr_err *err);
tsr_status tok_post_config(struct tsr_tokenizer *t, const char *name, const json_t *config,
                           struct tsr_err *err);
tsr_status tok_post_run(const struct tok_template *p, const struct tsr_tokenizer_ids *text,
                        bool special, struct tsr_tokenizer_ids *ids, struct tsr_err *err);
void       tok_template_free(struct tok_template *p);

struct tok_token { /* by id */
    const char *s; /* borrowed; NULL: no such id */
    uint64_t    n;
    bool        special, skip;
};
/* The byte of "<0x41>", or -1. */
int tok_byte_token(const char *s, uint64_t n);
/* Applies a decoder that sees one token at a time (REPLACE, STRIP, METASPACE). */
tsr_status tok_dec_token(const struct tok_part *p, struct tok_ctx *c, bool first, const char *s,
                         uint64_t n, struct tsr_tokenizer_text *out);
/* Bytes of a token of the byte-level alphabet. */
tsr_status tok_dec_bytes(const char *s, uint64_t n, struct tsr_tokenizer_text *out,
                         struct tsr_err *err);

enum tok_model { TOK_BPE, TOK_UNIGRAM };
struct tsr_tokenizer {
    char               *name;
    char                hash[TSR_HASH_TEXT];
    enum tok_model      model;
    struct tok_strmap   vocab;
    uint32_t            n_vocab; /* as the reference counts it */
    bool                byte_fallback;
    int32_t             byte_id[256]; /* -1: none */
    struct tok_bpe      bpe;
    struct tok_unigram  unigram;
    struct tok_token   *token;
    uint32_t            n_token;
    struct tok_added   *added;
    uint32_t            n_added;
    struct tok_strmap   added_map;     /* content -> index in added */
    struct tok_trie     plain, normal; /* added tokens in raw and in normalized text */
    struct tok_parts    norm, pre, dec;
    bool                has_dec;
    struct tok_template post;
};

#endif
