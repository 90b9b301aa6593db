/* A text byte by byte.  Each mode says what the next byte may be; a byte that ends a number or a word is taken by what
 * follows the value. */
#include "text_internal.h"

#include <string.h>

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
        grammar_begin_number(t, c);
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
        if (grammar_step_number(s, t, c))
            return true;
        if (!grammar_number_is_whole(was) || is_digit(c))
            return false;
        to(t, AFTER);
        break;
    }
    case STRING:
    case FREE_KEY:
        return grammar_step_string(s, t, c);
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
                             (t->mode == NUMBER && grammar_number_is_whole(t->sub)));
}

uint32_t grammar_text_room(const struct grammar_schema *s, const struct grammar_text *t)
{
    if ((t->mode != STRING && t->mode != FREE_KEY) || !grammar_string_is_plain(t))
        return 0;
    return grammar_most(s, t) - t->count;
}
