/* Strings and numbers byte by byte. */
#include "text_internal.h"

#include <string.h>

enum number { MINUS, ZERO, WHOLE, POINT, FRACTION, EXPONENT, SIGN, POWER };

/* sub in a string: 0, after '\', digits of \u, and those of the second half of a pair */
enum string { PLAIN, ESCAPE, HEX1, HEX2, HEX3, HEX4, PAIR, PAIR_U, LOW1, LOW2, LOW3, LOW4 };

/* ---- strings ------------------------------------------------------------------------ */

uint32_t grammar_most(const struct grammar_schema *s, const struct grammar_text *t)
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

bool grammar_step_string(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
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
    if (c < 0x20 || t->count >= grammar_most(s, t))
        return false;
    if (c == '\\') {
        t->sub = ESCAPE;
        return true;
    }
    t->count++;
    return c < 0x80 || begin_utf8(t, c);
}

/* ---- numbers ------------------------------------------------------------------------ */

bool grammar_number_is_whole(uint32_t sub)
{
    return sub == ZERO || sub == WHOLE || sub == FRACTION || sub == POWER;
}

/* Every integer fits into 64 bits and every number is a finite double: a reader may want that, and JSON does not say. */
static bool another_digit(struct grammar_text *t, uint32_t most)
{
    return t->count++ < most;
}

/* False: the byte is no part of the number. */
bool grammar_step_number(const struct grammar_schema *s, struct grammar_text *t, unsigned char c)
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

void grammar_begin_number(struct grammar_text *t, unsigned char c)
{
    to(t, NUMBER);
    t->sub = c == '-' ? MINUS : c == '0' ? ZERO : WHOLE;
    t->count = 1;
}

bool grammar_string_is_plain(const struct grammar_text *t)
{
    return !t->utf8 && t->sub == PLAIN;
}
