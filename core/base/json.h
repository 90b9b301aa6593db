/* base/json.h - JSON files through jansson, with limits and with errors that name
 * file, line and key.  Duplicate keys, deep nesting and non-UTF-8 are refused.
 * Integers come through as 64-bit, never as doubles. */
#ifndef TSR_BASE_JSON_H
#define TSR_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* Parses a block.  name is for messages.  depth bounds nesting of arrays and objects.
 * Returns a new reference. */
tsr_status tsr_json_parse(json_t **out, const char *name, const char *data, uint64_t len,
                          unsigned depth, struct tsr_err *err);
/* Reads and parses a file of at most cap bytes. */
tsr_status tsr_json_load(json_t **out, const char *path, uint64_t cap, unsigned depth,
                         struct tsr_err *err);

/* A value as text, in fresh memory, with flags of jansson.  Unlike json_dumps(), which may leave a key
 * out when memory runs out, it fails then. */
tsr_status tsr_json_text(const json_t *j, size_t flags, char **text, uint64_t *len,
                         struct tsr_err *err);
/* Writes the text and a newline to a file, atomically. */
tsr_status tsr_json_store(const char *path, const json_t *j, size_t flags, struct tsr_err *err);

/* A copy in depth; NULL when memory runs out.  json_deep_copy() and json_copy() leave members out then. */
json_t *tsr_json_copy(const json_t *j);
/* Builders that cannot lose a part silently: they take ownership of v.  If v is NULL or memory runs out, they
 * free the list or object and set it to NULL, which json_pack() and tsr_json_text() reject.  [any] */
void tsr_json_add(json_t **list, json_t *v);
void tsr_json_set(json_t **object, const char *key, json_t *v);

/* Typed members of an object.  A missing or null member leaves *v alone and is TSR_OK unless
 * `required`; a wrong type or a value outside [lo,hi] is TSR_E_INPUT:
 * "NAME: \"key\": 1.5 is not an integer from 1 to 64".  name is the file. */
tsr_status tsr_json_int(const json_t *o, const char *name, const char *key, bool required,
                        int64_t lo, int64_t hi, int64_t *v, struct tsr_err *err);
/* Finite numbers only; integers are numbers. */
tsr_status tsr_json_real(const json_t *o, const char *name, const char *key, bool required,
                         double lo, double hi, double *v, struct tsr_err *err);
tsr_status tsr_json_bool(const json_t *o, const char *name, const char *key, bool required, bool *v,
                         struct tsr_err *err);
/* Borrowed from o. */
tsr_status tsr_json_str(const json_t *o, const char *name, const char *key, bool required,
                        const char **v, struct tsr_err *err);
/* An object or array member, borrowed; NULL if absent. type: JSON_OBJECT or JSON_ARRAY. */
/* The string of v, for names and words; NULL if v is not a string or contains a NUL character.  For text
 * with arbitrary characters use json_string_length(). */
const char *tsr_json_word(const json_t *v);
tsr_status  tsr_json_sub(const json_t *o, const char *name, const char *key, bool required,
                         json_type type, json_t **v, struct tsr_err *err);

#endif
