/* Tests: what stands behind "is". */
#include "template/internal.h"

#include <string.h>

/* A test of the value alone. */
#define PLAIN(name, condition)                                                                     \
    TPL_RUN(name)                                                                                  \
    {                                                                                              \
        *out = tpl_bool(condition);                                                                \
        return TSR_OK;                                                                             \
    }
#define COMPARE(name, op)                                                                          \
    TPL_RUN(name)                                                                                  \
    {                                                                                              \
        bool yes;                                                                                  \
        TSR_TRY(tpl_compare(c, op, self, &a[0], &yes));                                            \
        *out = tpl_bool(yes);                                                                      \
        return TSR_OK;                                                                             \
    }

PLAIN(is_defined, self->kind != TPL_UNDEFINED)
PLAIN(is_undefined, self->kind == TPL_UNDEFINED)
PLAIN(is_none, self->kind == TPL_NONE)
PLAIN(is_boolean, self->kind == TPL_BOOL)
PLAIN(is_true, self->kind == TPL_BOOL && self->b)
PLAIN(is_false, self->kind == TPL_BOOL && !self->b)
PLAIN(is_integer, self->kind == TPL_INT)
PLAIN(is_float, self->kind == TPL_FLOAT)
PLAIN(is_number, self->kind == TPL_BOOL || self->kind == TPL_INT || self->kind == TPL_FLOAT)
PLAIN(is_string, self->kind == TPL_STRING)
PLAIN(is_mapping, self->kind == TPL_DICT)
PLAIN(is_sequence, self->kind == TPL_STRING || self->kind == TPL_LIST || self->kind == TPL_TUPLE ||
                       self->kind == TPL_RANGE || self->kind == TPL_DICT ||
                       self->kind == TPL_UNDEFINED)
PLAIN(is_iterable, tpl_is_list(self) || self->kind == TPL_STRING || self->kind == TPL_GENERATOR ||
                       self->kind == TPL_DICT || self->kind == TPL_UNDEFINED ||
                       self->kind == TPL_LOOP)
PLAIN(is_callable, self->kind == TPL_FUNCTION || self->kind == TPL_METHOD ||
                       self->kind == TPL_MACRO || self->kind == TPL_UNDEFINED ||
                       self->kind == TPL_LOOP)
PLAIN(is_escaped, false)

COMPARE(is_eq, TPL_EQ)
COMPARE(is_ne, TPL_NE)
COMPARE(is_lt, TPL_LT)
COMPARE(is_le, TPL_LE)
COMPARE(is_gt, TPL_GT)
COMPARE(is_ge, TPL_GE)
COMPARE(is_in, TPL_IN)

TPL_RUN(is_sameas)
{
    bool same = false;
    if (self->kind == a[0].kind && (self->kind < TPL_LIST))
        TSR_TRY(tpl_equal(c, self, &a[0], &same));
    else if (self->kind == a[0].kind)
        same = self->list == a[0].list;
    *out = tpl_bool(same);
    return TSR_OK;
}

static tsr_status remainder_is(struct tpl_ctx *c, const struct tpl_value *v,
                               const struct tpl_value *by, int64_t want, struct tpl_value *out)
{
    struct tpl_value r, w = tpl_int(want);
    bool             same;
    TSR_TRY(tpl_binary(c, TPL_MOD, v, by, &r));
    TSR_TRY(tpl_equal(c, &r, &w, &same));
    *out = tpl_bool(same);
    return TSR_OK;
}

TPL_RUN(is_odd)
{
    struct tpl_value two = tpl_int(2);
    return remainder_is(c, self, &two, 1, out);
}
TPL_RUN(is_even)
{
    struct tpl_value two = tpl_int(2);
    return remainder_is(c, self, &two, 0, out);
}
TPL_RUN(is_divisibleby)
{
    return remainder_is(c, self, &a[0], 0, out);
}

static tsr_status case_is(struct tpl_ctx *c, const struct tpl_value *self, bool upper,
                          struct tpl_value *out)
{
    const struct tpl_text *t;
    TSR_TRY(tpl_string(c, self, &t));
    *out = tpl_bool(tpl_is_case(t, upper));
    return tpl_charge(c, t->n);
}
TPL_RUN(is_upper)
{
    return case_is(c, self, true, out);
}
TPL_RUN(is_lower)
{
    return case_is(c, self, false, out);
}

TPL_RUN(is_filter)
{
    *out = tpl_bool(self->kind == TPL_STRING && c->filter(self->s->s, self->s->n));
    return TSR_OK;
}
TPL_RUN(is_test)
{
    *out = tpl_bool(self->kind == TPL_STRING && c->test(self->s->s, self->s->n));
    return TSR_OK;
}

const struct tpl_function *tpl_test(const char *s, uint64_t n)
{
    static const struct tpl_function all[] = {
        { "defined", "", 0, is_defined },
        { "undefined", "", 0, is_undefined },
        { "none", "", 0, is_none },
        { "boolean", "", 0, is_boolean },
        { "true", "", 0, is_true },
        { "false", "", 0, is_false },
        { "integer", "", 0, is_integer },
        { "float", "", 0, is_float },
        { "number", "", 0, is_number },
        { "string", "", 0, is_string },
        { "mapping", "", 0, is_mapping },
        { "sequence", "", 0, is_sequence },
        { "iterable", "", 0, is_iterable },
        { "callable", "", 0, is_callable },
        { "escaped", "", 0, is_escaped },
        { "odd", "", 0, is_odd },
        { "even", "", 0, is_even },
        { "divisibleby", "num", 1, is_divisibleby },
        { "upper", "", 0, is_upper },
        { "lower", "", 0, is_lower },
        { "sameas", "other", 1, is_sameas },
        { "in", "seq", 1, is_in },
        { "eq", ".", 1, is_eq },
        { "equalto", ".", 1, is_eq },
        { "==", ".", 1, is_eq },
        { "ne", ".", 1, is_ne },
        { "!=", ".", 1, is_ne },
        { "lt", ".", 1, is_lt },
        { "lessthan", ".", 1, is_lt },
        { "<", ".", 1, is_lt },
        { "le", ".", 1, is_le },
        { "<=", ".", 1, is_le },
        { "gt", ".", 1, is_gt },
        { "greaterthan", ".", 1, is_gt },
        { ">", ".", 1, is_gt },
        { "ge", ".", 1, is_ge },
        { ">=", ".", 1, is_ge },
        { "filter", "", 0, is_filter },
        { "test", "", 0, is_test },
    };
    return tpl_find(all, sizeof all / sizeof *all, s, n);
}
