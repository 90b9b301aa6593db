/* Operators on numbers, texts and lists, as Python has them, with integers of 64 bits. */
#include "template/internal.h"

#include <math.h>

static const char *sign_of(enum tpl_op op)
{
    static const char *const signs[] = {
        [TPL_ADD] = "+",       [TPL_SUB] = "-", [TPL_MUL] = "*", [TPL_DIV] = "/",
        [TPL_FLOORDIV] = "//", [TPL_MOD] = "%", [TPL_POW] = "**"
    };
    return signs[op];
}

static tsr_status too_large(struct tpl_ctx *c)
{
    return tpl_fail(c, "the result has more than the 64 bits of an integer here");
}

/* ---- integers ----------------------------------------------------------- */

static tsr_status int_power(struct tpl_ctx *c, int64_t a, int64_t b, struct tpl_value *out)
{
    int64_t r = 1;
    if (b < 0) {
        if (a == 0)
            return tpl_fail(c, "0 has no negative power");
        *out = tpl_float(pow((double)a, (double)b));
        return TSR_OK;
    }
    for (; b; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r))
            return too_large(c);
        if (b > 1 && __builtin_mul_overflow(a, a, &a))
            return too_large(c);
    }
    *out = tpl_int(r);
    return TSR_OK;
}

static tsr_status int_divide(struct tpl_ctx *c, enum tpl_op op, int64_t a, int64_t b,
                             struct tpl_value *out)
{
    if (b == 0)
        return tpl_fail(c, "division by zero");
    if (a == INT64_MIN && b == -1) {
        *out = tpl_int(0);
        return op == TPL_MOD ? TSR_OK : too_large(c);
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *out = tpl_int(op == TPL_MOD ? r : q);
    return TSR_OK;
}

static tsr_status of_ints(struct tpl_ctx *c, enum tpl_op op, int64_t a, int64_t b,
                          struct tpl_value *out)
{
    int64_t r = 0;
    bool    over = false;
    switch (op) {
    case TPL_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case TPL_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case TPL_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case TPL_DIV:
        if (b == 0)
            return tpl_fail(c, "division by zero");
        *out = tpl_float((double)((long double)a / (long double)b));
        return TSR_OK;
    case TPL_POW:
        return int_power(c, a, b, out);
    default:
        return int_divide(c, op, a, b, out);
    }
    *out = tpl_int(r);
    return over ? too_large(c) : TSR_OK;
}

/* ---- floats ------------------------------------------------------------- */

static double python_mod(double a, double b)
{
    double r = fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0))
        r += b;
    return r != 0 ? r : copysign(0.0, b);
}

/* As Python's float: the quotient of what the remainder leaves. */
static double python_floor(double a, double b)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (mod < 0) != (b < 0))
        div -= 1.0;
    if (div == 0)
        return copysign(0.0, a / b);
    double floored = floor(div);
    return div - floored > 0.5 ? floored + 1.0 : floored;
}

static tsr_status of_floats(struct tpl_ctx *c, enum tpl_op op, double a, double b,
                            struct tpl_value *out)
{
    if (b == 0 && (op == TPL_DIV || op == TPL_FLOORDIV || op == TPL_MOD))
        return tpl_fail(c, "division by zero");
    switch (op) {
    case TPL_ADD:
        *out = tpl_float(a + b);
        return TSR_OK;
    case TPL_SUB:
        *out = tpl_float(a - b);
        return TSR_OK;
    case TPL_MUL:
        *out = tpl_float(a * b);
        return TSR_OK;
    case TPL_DIV:
        *out = tpl_float(a / b);
        return TSR_OK;
    case TPL_MOD:
        *out = tpl_float(python_mod(a, b));
        return TSR_OK;
    case TPL_FLOORDIV:
        *out = tpl_float(python_floor(a, b));
        return TSR_OK;
    default:
        break;
    }
    if ((a == 0 && b < 0) || (a < 0 && b != floor(b)))
        return tpl_fail(c, "the power is not a real number");
    double r = pow(a, b);
    *out = tpl_float(r);
    return isinf(r) && !isinf(a) && !isinf(b) ? tpl_fail(c, "the power is too large") : TSR_OK;
}

/* ---- texts and lists ---------------------------------------------------- */

static tsr_status repeat(struct tpl_ctx *c, const struct tpl_value *a, int64_t n,
                         struct tpl_value *out)
{
    struct tpl_build b = { 0 };
    if (a->kind == TPL_STRING) {
        for (int64_t i = 0; i < n && a->s->n; i++)
            TSR_TRY(tpl_add_text(c, &b, a->s));
        return tpl_finish(c, &b, out);
    }
    TSR_TRY(tpl_list(c, a->kind, 0, out));
    for (int64_t i = 0; i < n && a->list->n; i++)
        for (uint64_t k = 0; k < a->list->n; k++)
            TSR_TRY(tpl_push(c, out->list, &a->list->v[k]));
    return TSR_OK;
}

static bool is_sequence(const struct tpl_value *v)
{
    return v->kind == TPL_STRING || v->kind == TPL_LIST || v->kind == TPL_TUPLE;
}

static tsr_status join(struct tpl_ctx *c, const struct tpl_value *a, const struct tpl_value *b,
                       struct tpl_value *out)
{
    struct tpl_build text = { 0 };
    if (a->kind == TPL_STRING) {
        TSR_TRY(tpl_add_text(c, &text, a->s));
        TSR_TRY(tpl_add_text(c, &text, b->s));
        return tpl_finish(c, &text, out);
    }
    TSR_TRY(tpl_list(c, a->kind, a->list->n + b->list->n, out));
    for (uint64_t i = 0; i < a->list->n; i++)
        TSR_TRY(tpl_push(c, out->list, &a->list->v[i]));
    for (uint64_t i = 0; i < b->list->n; i++)
        TSR_TRY(tpl_push(c, out->list, &b->list->v[i]));
    return TSR_OK;
}

tsr_status tpl_binary(struct tpl_ctx *c, enum tpl_op op, const struct tpl_value *a,
                      const struct tpl_value *b, struct tpl_value *out)
{
    int64_t x, y;
    double  f, g;
    if (tpl_is_int(a, &x) && tpl_is_int(b, &y))
        return of_ints(c, op, x, y, out);
    if (tpl_is_number(a, &f) && tpl_is_number(b, &g))
        return of_floats(c, op, f, g, out);
    if (op == TPL_MOD && a->kind == TPL_STRING)
        return tpl_percent(c, a->s, b, out);
    if (op == TPL_ADD && a->kind == b->kind && is_sequence(a))
        return join(c, a, b, out);
    if (op == TPL_MUL && is_sequence(a) && tpl_is_int(b, &y))
        return repeat(c, a, y, out);
    if (op == TPL_MUL && is_sequence(b) && tpl_is_int(a, &x))
        return repeat(c, b, x, out);
    if (a->kind == TPL_UNDEFINED || b->kind == TPL_UNDEFINED)
        return tpl_fail_undefined(c, a->kind == TPL_UNDEFINED ? a : b);
    return tpl_fail(c, "'%s' does not take a %s and a %s", sign_of(op), tpl_type_name(a),
                    tpl_type_name(b));
}

tsr_status tpl_sign(struct tpl_ctx *c, bool negate, const struct tpl_value *a,
                    struct tpl_value *out)
{
    int64_t i;
    if (tpl_is_int(a, &i)) {
        if (negate && i == INT64_MIN)
            return too_large(c);
        *out = tpl_int(negate ? -i : i);
        return TSR_OK;
    }
    if (a->kind == TPL_FLOAT) {
        *out = tpl_float(negate ? -a->f : a->f);
        return TSR_OK;
    }
    return a->kind == TPL_UNDEFINED ? tpl_fail_undefined(c, a)
                                    : tpl_fail(c, "a %s has no sign", tpl_type_name(a));
}
