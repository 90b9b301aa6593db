/* grammar.h - a JSON schema as nodes, and how far a text has come in it.
 *
 *   schema (JSON) -> nodes -> a text is read byte by byte: step() says whether it can still become valid
 */
#ifndef TSR_PLUGINS_GRAMMAR_H
#define TSR_PLUGINS_GRAMMAR_H

#include "tessera/sampler.h"

#include <stdbool.h>

#define GRAMMAR_MAX_SCHEMA   (64u << 10) /* bytes of a schema                                    */
#define GRAMMAR_MAX_DEPTH    64u         /* of a schema, in JSON values                          */
#define GRAMMAR_FREE_DEPTH   16u         /* arrays and objects inside a value that may be any    */
#define GRAMMAR_PROPERTIES   64u         /* of an object: one bit each                           */
#define GRAMMAR_SPACES       16u         /* blanks after a new line between two parts          */
#define GRAMMAR_DIGITS       18u         /* of a number before its point, and after it            */
#define GRAMMAR_POWER_DIGITS 2u          /* of its exponent                                      */
#define GRAMMAR_ANY          0u          /* the node of a value that may be any                  */
#define GRAMMAR_NO_LIMIT     UINT32_MAX

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status st_ = (call);                                                                   \
        if (st_ != TSR_OK)                                                                         \
            return st_;                                                                            \
    } while (0)

/* ---- json.c: the schema as a tree ------------------------------------------------- */

enum json_type {
    JSON_IS_NULL,
    JSON_IS_FALSE,
    JSON_IS_TRUE,
    JSON_IS_NUMBER,
    JSON_IS_STRING,
    JSON_IS_ARRAY,
    JSON_IS_OBJECT
};
struct json {
    enum json_type     type;
    uint32_t           n, n_key; /* bytes of s and key            */
    const char        *s;        /* a string decoded, a number as it stands */
    const char        *key;      /* of a member, decoded          */
    const struct json *child, *next;
};
struct json_reader {
    const char     *text, *at; /* NUL at the end       */
    struct json    *value;     /* [text bytes + 1]     */
    uint64_t        n;
    char           *bytes; /* [text bytes + 1]     */
    struct tsr_err *err;
    tsr_status      st;
};
/* Parses r->text.  The values and bytes stay the caller's.  NULL: r->st and the sentence say why. */
const struct json *json_read(struct json_reader *r);
/* The member of an object, or NULL. */
const struct json *json_member(const struct json *object, const char *key);
/* Compact JSON of a value: at most as long as its source.  Returns the end. */
char *json_print(const struct json *v, char *to);
char *json_print_string(const char *s, uint32_t n, char *to);

/* ---- schema.c: the schema as nodes ---------------------------------------------- */

#define GRAMMAR_STRING  1u
#define GRAMMAR_NUMBER  2u
#define GRAMMAR_INTEGER 4u
#define GRAMMAR_OBJECT  8u
#define GRAMMAR_ARRAY   16u
#define GRAMMAR_BOOLEAN 32u
#define GRAMMAR_NULL    64u
#define GRAMMAR_ALL     127u

/* A text that stands for a whole value or for the key of a property, quotes included. */
struct grammar_word {
    const char *s;
    uint32_t    n;
    uint32_t    node; /* of a property's value */
    uint32_t    bit;  /* of a property         */
};
struct grammar_node {
    uint32_t types; /* GRAMMAR_*; those of literals are not in it */
    uint32_t literal, n_literals;
    uint32_t min_length, max_length; /* of a string, in characters */
    uint32_t items, min_items, max_items;
    uint32_t property, n_properties;
    uint64_t required; /* bits of properties                   */
    bool     free;     /* an object with any properties       */
};
struct grammar_schema {
    struct grammar_node *node;
    struct grammar_word *word; /* sorted within each list */
    char                *bytes;
    uint32_t             n_nodes, n_words;
    uint32_t             first;  /* the node of the whole text */
    uint32_t             frames; /* that a text can need     */
};
/* Room for a schema of `length` bytes: nodes, words and bytes of s point into it. */
uint64_t   grammar_schema_bytes(uint64_t length);
tsr_status grammar_compile(struct grammar_schema *s, const struct json *root, void *room,
                           uint64_t length, struct tsr_err *err);

/* ---- text.c: a text on its way ------------------------------------------------------- */

struct grammar_frame { /* an open array or object */
    uint64_t seen;     /* properties              */
    uint32_t node;
    uint32_t count; /* items                   */
    uint32_t array;
    uint32_t reserved;
};
struct grammar_text {
    uint32_t             mode, sub;
    uint32_t             node;         /* of the value that comes or runs       */
    uint32_t             first, last;  /* words that the bytes so far begin     */
    uint32_t             at;           /* bytes of them; value of an escape     */
    uint32_t             count;        /* characters of a string                */
    uint32_t             utf8, lo, hi; /* bytes of a character that must follow */
    uint32_t             spaces, depth;
    struct grammar_frame frame[];
};
uint64_t grammar_text_bytes(const struct grammar_schema *s);
void     grammar_text_start(const struct grammar_schema *s, struct grammar_text *t);
/* False: no valid text goes on with this byte, and t is undefined. */
bool grammar_text_step(const struct grammar_schema *s, struct grammar_text *t, unsigned char c);
/* Whether the text is a valid one as it is. */
bool grammar_text_complete(const struct grammar_schema *s, const struct grammar_text *t);
/* Characters that a string can take here without escapes, quotes and control characters; 0: none, or not in one. */
uint32_t grammar_text_room(const struct grammar_schema *s, const struct grammar_text *t);

#endif
