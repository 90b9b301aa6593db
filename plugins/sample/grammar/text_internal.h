/* text_internal.h - what text.c and scalars.c share: where a text is. */
#ifndef TSR_PLUGINS_GRAMMAR_TEXT_INTERNAL_H
#define TSR_PLUGINS_GRAMMAR_TEXT_INTERNAL_H

#include "grammar.h"

enum mode {
    VALUE,       /* a value of `node` comes                       */
    WORD,        /* in one of the words [first, last)             */
    STRING,      /* in a string                                   */
    FREE_KEY,    /* in a key that may be any                      */
    NUMBER,      /* in a number                                   */
    AFTER,       /* after a value                                 */
    OPEN_ARRAY,  /* after '['                                     */
    OPEN_OBJECT, /* after '{'                                     */
    NEXT_KEY,    /* after ',' of an object                        */
    KEY,         /* in one of the keys [first, last)              */
    COLON        /* after a key                                   */
};

static inline bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static inline void to(struct grammar_text *t, enum mode mode)
{
    t->mode = mode;
    t->sub = t->at = t->count = t->spaces = 0;
}

/* One more byte of a string or of a key that may be any. */
bool grammar_step_string(const struct grammar_schema *s, struct grammar_text *t, unsigned char c);
/* The characters that it may have. */
uint32_t grammar_most(const struct grammar_schema *s, const struct grammar_text *t);
bool     grammar_string_is_plain(const struct grammar_text *t); /* no escape or character is open */

/* The first byte of a number, then one more; false: the byte is no part of it. */
void grammar_begin_number(struct grammar_text *t, unsigned char c);
bool grammar_step_number(const struct grammar_schema *s, struct grammar_text *t, unsigned char c);
/* Whether a number may end with t->sub. */
bool grammar_number_is_whole(uint32_t sub);

#endif
