/* template/tree.h - a template as a tree. */
#ifndef TSR_TEMPLATE_TREE_H
#define TSR_TEMPLATE_TREE_H

#include "template/value.h"

enum tpl_type {
    /* expressions */
    TPL_CONST,
    TPL_NAME,
    TPL_LIST_OF,
    TPL_TUPLE_OF,
    TPL_DICT_OF, /* items: key, value, key, ... */
    TPL_ATTRIBUTE,
    TPL_ITEM,
    TPL_SLICE_OF,
    TPL_CALL,
    TPL_FILTER,
    TPL_TEST,
    TPL_COMPARE, /* a, then each of the items with its op */
    TPL_CONCAT,
    TPL_BINARY,
    TPL_NEGATE,
    TPL_PLUS,
    TPL_NOT,
    TPL_AND,
    TPL_OR,
    TPL_CONDITION,  /* a if b else c */
    TPL_MEMBER,     /* NAME.attribute as a target */
    TPL_BLOCK_TEXT, /* what a filter of a block gets */
    /* statements */
    TPL_DATA,
    TPL_PRINT,
    TPL_FOR, /* target a, list b, test c; items, otherwise */
    TPL_IF,  /* test a; items, otherwise */
    TPL_SET, /* target a, value b */
    TPL_SET_BLOCK,
    TPL_MACRO_OF,
    TPL_CALL_BLOCK,
    TPL_FILTER_BLOCK,
    TPL_WITH, /* targets and values in args; items */
    TPL_SCOPE,
    TPL_BREAK,
    TPL_CONTINUE
};

enum tpl_op {
    TPL_ADD,
    TPL_SUB,
    TPL_MUL,
    TPL_DIV,
    TPL_FLOORDIV,
    TPL_MOD,
    TPL_POW,
    TPL_EQ,
    TPL_NE,
    TPL_LT,
    TPL_LE,
    TPL_GT,
    TPL_GE,
    TPL_IN,
    TPL_NOT_IN
};

struct tpl_node {
    enum tpl_type          type;
    enum tpl_op            op;
    uint32_t               line, column;
    struct tpl_node       *next; /* in its list */
    struct tpl_node       *a, *b, *c;
    struct tpl_node       *items, *otherwise;
    const struct tpl_text *name; /* interned */
    struct tpl_value       value;
    struct tpl_node       *args, *keywords, *star, *star2; /* of a call, filter, test or macro */
    const struct tpl_function *function;                   /* filter, test */
    bool                       varargs, kwargs, caller;    /* macro: the body names them */
    bool                       elif;
};

#endif
