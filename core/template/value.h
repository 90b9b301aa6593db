/* template/value.h - the values that a template computes with. */
#ifndef TSR_TEMPLATE_VALUE_H
#define TSR_TEMPLATE_VALUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum tpl_kind {
    TPL_MISSING, /* an argument that was not given */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_TUPLE,
    TPL_RANGE,
    TPL_VIEW,      /* dict.items(), .keys(), .values() */
    TPL_GENERATOR, /* what filters such as map return: iterated once */
    TPL_DICT,
    TPL_NAMESPACE,
    TPL_LOOP,
    TPL_FUNCTION, /* built in */
    TPL_METHOD,   /* with its object */
    TPL_MACRO,
    TPL_SLICE
};

/* Where a text came from: the template, the input, or parts from both by a mask with a byte for each byte.  Special
 * tokens count in what came from the template only. */
enum tpl_from { TPL_OWN, TPL_INPUT, TPL_MIXED };

struct tpl_text {
    const char          *s; /* UTF-8 */
    uint64_t             n;
    const unsigned char *mask;
    enum tpl_from        from;
};

struct tpl_value {
    enum tpl_kind kind;
    enum tpl_kind of; /* undefined: the kind of what has no such member, TPL_MISSING: a variable */
    union {
        bool                       b;
        int64_t                    i;
        double                     f;
        const struct tpl_text     *s; /* undefined: the name, or NULL */
        struct tpl_list           *list;
        struct tpl_dict           *dict;
        struct tpl_loop           *loop;
        const struct tpl_function *function;
        const struct tpl_bound    *bound;
        const struct tpl_macro    *macro;
        const struct tpl_slice    *slice;
    };
};

struct tpl_list {
    struct tpl_value *v;
    uint64_t          n, cap;
    int64_t           start, stop, step; /* range */
    const char       *view;              /* "dict_items" */
    bool              used;              /* generator */
};

struct tpl_pair {
    struct tpl_value key, value;
};
struct tpl_dict {
    struct tpl_pair *v;
    uint64_t         n, cap;
};

struct tpl_slice {
    struct tpl_value start, stop, step; /* none or int */
};

struct tpl_loop {
    const struct tpl_list *items;
    uint64_t               at, depth0;
    struct tpl_value       changed;
};

struct tpl_keyword {
    const struct tpl_text *name;
    struct tpl_value       value;
};
struct tpl_args {
    struct tpl_value   *v;
    struct tpl_keyword *k;
    uint64_t            n, n_k;
};

struct tpl_ctx;
#define TPL_MAX_ARGS 6
/* The names of the arguments in order, separated by spaces; "." instead of a name takes no keyword.  NULL: the
 * function reads args, else a has TPL_MAX_ARGS values, TPL_MISSING where none was given. */
struct tpl_function {
    const char *name, *names;
    uint64_t    least;
    tsr_status (*run)(struct tpl_ctx *c, const struct tpl_value *self, const struct tpl_args *args,
                      const struct tpl_value *a, struct tpl_value *out);
};
#define TPL_UNUSED __attribute__((unused))
#define TPL_RUN(name)                                                                              \
    static tsr_status name(TPL_UNUSED struct tpl_ctx *c, TPL_UNUSED const struct tpl_value *self,  \
                           TPL_UNUSED const struct tpl_args  *args,                                \
                           TPL_UNUSED const struct tpl_value *a, TPL_UNUSED struct tpl_value *out)
struct tpl_bound {
    struct tpl_value           self;
    const struct tpl_function *function;
};

#endif
