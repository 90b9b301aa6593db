/* A text byte by byte.  Each mode says what the next byte may be; a byte that ends a number or a word is taken by what
 * follows the value. */
#include "grammar.h"

#include <string.h>

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

enum number { MINUS, ZERO, WHOLE, POINT, FRACTION, EXPONENT, SIGN, POWER };

/* sub in a string: 0, after '\', digits of \u, and those of the second half of a pair */
enum string { PLAIN, ESCAPE, HEX1, HEX2, HEX3, HEX4, PAIR, PAIR_U, LOW1, LOW2, LOW3, LOW4 };

uint64_t grammar_text_bytes(const struct grammar_schema *s)
{
    return sizeof(struct grammar_text) + s->frames * sizeof(struct grammar_frame);
}

void grammar_text_start(const struct grammar_schema *s, struct grammar_text *t)
{
    memset(t, 0, grammar_text_bytes(s));
    t->mode = VALUE;
    t->node = s->first;
}

static bool is_space(unsigned char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static void to(struct grammar_text *t, enum mode mode)
{
    t->mode = mode;
    t->sub = t->at = t->count = t->spaces = 0;
}

/* ---- words ------------------------------------------------------------------------ */

/* Keeps the words that have c at t->at; false: none, and nothing has changed. */
static bool narrow(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    uint32_t first = t->first, last = t->last, at = t->at;
    while (first < last && (s->word[first].n <= at || (unsigned char)s->word[first].s[at] < c))
        first++;
    while (first < last && (unsigned char)s->word[last - 1].s[at] > c)
        last--;
    if (first == last)
        return false;
    t->first = first;
    t->last = last;
    t->at++;
    return true;
}

static bool word_is_whole(const struct grammar_schema *s, const struct grammar_text *t)
{
    return s->word[t->first].n == t->at;
}

/* ---- strings ------------------------------------------------------------------------ */

static uint32_t most(const struct grammar_schema *s, const struct grammar_text *t)
{
    return t->mode == FREE_KEY ? GRAMMAR_NO_LIMIT : s->node[t->node].max_length;
}

/* The first byte of a character of several; Unicode 3.9, table 3-7. */
static bool begin_utf8(struct grammar_text *t, unsigned char c)
{
    if (c < 0xc2 || c > 0xf4)
        return false;
    t->utf8 = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    t->lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    t->hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    return true;
}

static int hex(unsigned char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool step_escape(struct grammar_text *t, unsigned char c)
{
    int d = hex(c);
    switch ((enum string)t->sub) {
    case ESCAPE:
        t->at = 0;
        if (c == 'u') {
            t->sub = HEX1;
            return true;
        }
        if (!c || !strchr("\"\\/bfnrt", c))
            return false;
        break;
    case HEX1:
    case HEX2:
    case HEX3:
        t->at = t->at * 16 + (uint32_t)d;
        t->sub++;
        return d >= 0 &&
               !(t->sub == HEX3 && t->at >= 0xdc && t->at <= 0xdf); /* no second half alone */
    case HEX4:
        if (d < 0)
            return false;
        if (t->at >= 0xd80 && t->at <= 0xdbf) {
            t->sub = PAIR;
            return true;
        }
        break;
    case PAIR:
        t->sub++;
        return c == '\\';
    case PAIR_U:
        t->sub++;
        return c == 'u';
    case LOW1:
        t->sub++;
        return d == 13;
    case LOW2:
        t->sub++;
        return d >= 12;
    case LOW3:
        t->sub++;
        return d >= 0;
    default:
        if (d < 0)
            return false;
        break;
    }
    t->sub = PLAIN;
    t->count++;
    return true;
}

static bool step_string(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    if (t->utf8) {
        bool fits = c >= t->lo && c <= t->hi;
        t->lo = 0x80;
        t->hi = 0xbf;
        t->utf8--;
        return fits;
    }
    if (t->sub != PLAIN)
        return step_escape(t, c);
    if (c == '"') {
        bool key = t->mode == FREE_KEY;
        if (!key && t->count < s->node[t->node].min_length)
            return false;
        to(t, key ? COLON : AFTER);
        if (key)
            t->node = GRAMMAR_ANY;
        return true;
    }
    if (c < 0x20 || t->count >= most(s, t))
        return false;
    if (c == '\\') {
        t->sub = ESCAPE;
        return true;
    }
    t->count++;
    return c < 0x80 || begin_utf8(t, c);
}

/* ---- numbers ------------------------------------------------------------------------ */

static bool number_is_whole(uint32_t sub)
{
    return sub == ZERO || sub == WHOLE || sub == FRACTION || sub == POWER;
}

/* Every integer fits into 64 bits and every number is a finite double: a reader may want that, and JSON does not say. */
static bool another_digit(struct grammar_text *t, uint32_t most)
{
    return t->count++ < most;
}

/* False: the byte is no part of the number. */
static bool step_number(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    bool real = (s->node[t->node].types & GRAMMAR_NUMBER) != 0;
    bool e = (c | 32) == 'e' && real;
    switch ((enum number)t->sub) {
    case MINUS:
        t->sub = c == '0' ? ZERO : WHOLE;
        t->count = 1;
        return is_digit(c);
    case ZERO:
    case WHOLE:
        if (is_digit(c) && t->sub == WHOLE)
            return another_digit(t, GRAMMAR_DIGITS);
        if (c == '.' && real) {
            t->sub = POINT;
            return true;
        }
        break;
    case POINT:
        t->sub = FRACTION;
        t->count = 1;
        return is_digit(c);
    case FRACTION:
        if (is_digit(c))
            return another_digit(t, GRAMMAR_DIGITS);
        break;
    case EXPONENT:
        t->sub = is_digit(c) ? POWER : SIGN;
        t->count = is_digit(c);
        return is_digit(c) || c == '+' || c == '-';
    case SIGN:
        t->sub = POWER;
        t->count = 1;
        return is_digit(c);
    case POWER:
        return is_digit(c) && another_digit(t, GRAMMAR_POWER_DIGITS);
    }
    if (!e)
        return false;
    t->sub = EXPONENT;
    return true;
}

/* ---- arrays and objects ---------------------------------------------------------------- */

static bool push(const struct grammar_schema *s, struct grammar_text *t, bool array)
{
    if (t->depth == s->frames)
        return false;
    t->frame[t->depth++] = (struct grammar_frame){ .node = t->node, .array = array };
    to(t, array ? OPEN_ARRAY : OPEN_OBJECT);
    return true;
}

static bool pop(struct grammar_text *t)
{
    t->frame[--t->depth] = (struct grammar_frame){ 0 };
    to(t, AFTER);
    return true;
}

static bool begin_value(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    const struct grammar_node *n = &s->node[t->node];
    t->first = n->literal;
    t->last = n->literal + n->n_literals;
    t->at = 0;
    if (narrow(s, t, c)) {
        t->mode = WORD;
        t->spaces = 0;
        return true;
    }
    if (c == '"' && (n->types & GRAMMAR_STRING)) {
        to(t, STRING);
        return true;
    }
    if ((c == '-' || is_digit(c)) && (n->types & (GRAMMAR_NUMBER | GRAMMAR_INTEGER))) {
        to(t, NUMBER);
        t->sub = c == '-' ? MINUS : c == '0' ? ZERO : WHOLE;
        t->count = 1;
        return true;
    }
    if (c == '[' && (n->types & GRAMMAR_ARRAY))
        return push(s, t, true);
    return c == '{' && (n->types & GRAMMAR_OBJECT) && push(s, t, false);
}

static bool begin_item(const struct grammar_schema *s, struct grammar_text *t)
{
    struct grammar_frame      *f = &t->frame[t->depth - 1];
    const struct grammar_node *n = &s->node[f->node];
    if (f->count >= n->max_items)
        return false;
    f->count++;
    to(t, VALUE);
    t->node = n->items;
    return true;
}

static bool has_more_keys(const struct grammar_node *n, const struct grammar_frame *f)
{
    uint64_t all = n->n_properties == 64 ? UINT64_MAX : (UINT64_C(1) << n->n_properties) - 1;
    return n->free || (f->seen & all) != all;
}

static bool begin_key(const struct grammar_schema *s, struct grammar_text *t)
{
    const struct grammar_frame *f = &t->frame[t->depth - 1];
    const struct grammar_node  *n = &s->node[f->node];
    if (!has_more_keys(n, f))
        return false;
    to(t, n->free ? FREE_KEY : KEY);
    t->first = n->property;
    t->last = n->property + n->n_properties;
    t->at = 1; /* the quote */
    return true;
}

/* A key that is there already does not come again, nor does the beginning of none but such keys. */
static bool step_key(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    struct grammar_frame *f = &t->frame[t->depth - 1];
    bool                  open = false;
    if (!narrow(s, t, c))
        return false;
    for (uint32_t i = t->first; i < t->last; i++)
        open = open || !(f->seen >> s->word[i].bit & 1);
    if (!open || !word_is_whole(s, t))
        return open;
    f->seen |= UINT64_C(1) << s->word[t->first].bit;
    t->node = s->word[t->first].node;
    to(t, COLON);
    return true;
}

static bool can_close(const struct grammar_schema *s, const struct grammar_text *t)
{
    const struct grammar_frame *f = &t->frame[t->depth - 1];
    const struct grammar_node  *n = &s->node[f->node];
    return f->array ? f->count >= n->min_items : (n->required & ~f->seen) == 0;
}

/* One blank, or a new line with blanks: models that may write white space without end do.  None before ':' and ',', and so
 * none after a value that must be followed by ','. */
static bool step_space(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    if (t->mode == COLON || (t->mode == AFTER && (t->depth == 0 || !can_close(s, t))))
        return false;
    if (t->spaces == 0) {
        t->spaces = c == '\n' && t->depth ? 1 : 1 + GRAMMAR_SPACES;
        return c != '\r';
    }
    return (c == ' ' || c == '\t') && t->spaces++ <= GRAMMAR_SPACES;
}

static bool step_after(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    if (t->depth == 0)
        return false;
    const struct grammar_frame *f = &t->frame[t->depth - 1];
    bool                        more = c == ',' && t->spaces == 0;
    if (c == (f->array ? ']' : '}'))
        return can_close(s, t) && pop(t);
    if (f->array)
        return more && begin_item(s, t);
    if (!more || !has_more_keys(&s->node[f->node], f))
        return false;
    to(t, NEXT_KEY);
    return true;
}

static bool step_between(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    switch ((enum mode)t->mode) {
    case VALUE:
        return begin_value(s, t, c);
    case OPEN_ARRAY:
        if (c == ']')
            return s->node[t->frame[t->depth - 1].node].min_items == 0 && pop(t);
        return begin_item(s, t) && begin_value(s, t, c);
    case OPEN_OBJECT:
        if (c == '}')
            return s->node[t->frame[t->depth - 1].node].required == 0 && pop(t);
        return c == '"' && begin_key(s, t);
    case NEXT_KEY:
        return c == '"' && begin_key(s, t);
    case COLON:
        to(t, VALUE);
        return c == ':';
    default:
        return step_after(s, t, c);
    }
}

bool grammar_text_step(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
{
    switch ((enum mode)t->mode) {
    case WORD:
        if (narrow(s, t, c))
            return true;
        if (!word_is_whole(s, t))
            return false;
        to(t, AFTER);
        break;
    case NUMBER: {
        uint32_t was = t->sub;
        if (step_number(s, t, c))
            return true;
        if (!number_is_whole(was) || is_digit(c))
            return false;
        to(t, AFTER);
        break;
    }
    case STRING:
    case FREE_KEY:
        return step_string(s, t, c);
    case KEY:
        return step_key(s, t, c);
    default:
        break;
    }
    if (is_space(c))
        return step_space(s, t, c);
    return step_between(s, t, c);
}

bool grammar_text_complete(const struct grammar_schema *s, const struct grammar_text *t)
{
    return t->depth == 0 && (t->mode == AFTER || (t->mode == WORD && word_is_whole(s, t)) ||
                             (t->mode == NUMBER && number_is_whole(t->sub)));
}

uint32_t grammar_text_room(const struct grammar_schema *s, const struct grammar_text *t)
{
    if ((t->mode != STRING && t->mode != FREE_KEY) || t->utf8 || t->sub != PLAIN)
        return 0;
    return most(s, t) - t->count;
}
