/* conformance/text.h - plugins that are text: the YAML file of a family or a task, and its golden.
 *
 * A golden is what another program computed for the file: NAME.golden.json next to NAME.yaml
 * (docs/formats/golden.md).  The rules of conformance/family and conformance/task compare with it.
 */
#ifndef TSR_CONFORMANCE_TEXT_H
#define TSR_CONFORMANCE_TEXT_H

#include "conformance/rule.h"

#include <jansson.h>

#define TSR_CONFORMANCE_TEXT_BYTES (UINT64_C(1) << 20) /* of a YAML file */

/* True for a path that ends with .yaml. */
bool tsr_conformance_is_text(const char *path);

struct tsr_conformance_text {
    const struct tsr_conformance_kind_rules *kind;
    char *name; /* what the file calls itself, "" if it does not; owned */
};
/* Reads the first level of a YAML file.  TSR_E_INPUT: it is no YAML, or neither a family nor a task.  [setup] */
tsr_status tsr_conformance_text_open(struct tsr_conformance_text *t, const char *path,
                                     struct tsr_err *err);

struct tsr_conformance_golden {
    char       *path;
    json_t     *root;
    const char *by;    /* the program that computed it; borrowed */
    json_t     *cases; /* an array with entries; borrowed */
};
/* Reads the golden of the file at `path`: its format, `by` and `cases`.  TSR_E_INPUT is one sentence for the
 * author.  Nothing is left to free after an error. */
tsr_status tsr_conformance_golden_open(struct tsr_conformance_golden *g, const char *path,
                                       const char *format, struct tsr_err *err);
void       tsr_conformance_golden_close(struct tsr_conformance_golden *g);

/* True for a YAML file whose first level says family: tessera.family/... or task: tessera.task/...; false also for one
 * that cannot be read.  [setup] */
bool tsr_conformance_text_is_ours(const char *path);

/* 1 to `most` lower-case letters, digits, '_' and '-', a letter first: a name that can be a file's. */
bool tsr_conformance_text_name_ok(const char *name, size_t most);

#endif
