/* base/json_differ.h - in which keys two JSON values differ, as a refused resume says it. */
#ifndef TSR_BASE_JSON_DIFFER_H
#define TSR_BASE_JSON_DIFFER_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* "run.seed: 3 => 4; model.hash: absent => \"xxh3:...\"": dotted keys with the old and the new value,
 * a long value cut.  Keys that do not fit are counted: "; and 2 more". */
struct tsr_differences {
    unsigned n;    /* of the keys */
    unsigned left; /* of them not in text */
    char     text[1400];
};

/* Adds the differences between an old value and a new one, each NULL if it is absent.  name: of both; "": the
 * root.  Members of objects named "options" and items of lists named "pipeline" use only their own names as
 * paths.  Lists of objects with an "id" use these ids, others numbers from 1.  [any] */
void tsr_differences_add(struct tsr_differences *d, const char *name, const json_t *old,
                         const json_t *now);
/* One key with texts for its values. */
void tsr_differences_say(struct tsr_differences *d, const char *name, const char *old,
                         const char *now);
/* Ends the text with the count of differences that did not fit, and returns it. */
const char *tsr_differences_text(struct tsr_differences *d);

#endif
