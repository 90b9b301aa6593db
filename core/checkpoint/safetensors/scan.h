/* checkpoint/safetensors/scan.h - a reader of the JSON subset that safetensors headers use: objects, strings,
 * arrays of whole numbers.  It works in one pass over the text and keeps no tree, so that memory
 * is bounded by the header.  Errors name the file and the byte.
 */
#ifndef TSR_CHECKPOINT_SAFETENSORS_SCAN_H
#define TSR_CHECKPOINT_SAFETENSORS_SCAN_H

#include "base/err.h"

#include <stdbool.h>

struct tsr_checkpoint_scan {
    const char     *file; /* for messages */
    const char     *begin, *p, *end;
    char           *text; /* decoded strings go here; room for end - begin bytes */
    struct tsr_err *err;
};

/* "FILE: header byte N: WHAT" */
tsr_status tsr_checkpoint_scan_fail(const struct tsr_checkpoint_scan *s, const char *what);
void       tsr_checkpoint_scan_space(struct tsr_checkpoint_scan *s);
/* Skips white space and consumes c, or reports what was expected. */
tsr_status tsr_checkpoint_scan_char(struct tsr_checkpoint_scan *s, char c, const char *what);
/* Takes c if it is next. */
bool tsr_checkpoint_scan_if(struct tsr_checkpoint_scan *s, char c);
/* A string, decoded, checked as UTF-8, NUL-terminated, without NUL inside; *n its bytes. */
tsr_status tsr_checkpoint_scan_string(struct tsr_checkpoint_scan *s, const char **v, uint64_t *n);
/* A whole number of 0 to 2^64-1 without sign, fraction, exponent or leading zero. */
tsr_status tsr_checkpoint_scan_u64(struct tsr_checkpoint_scan *s, uint64_t *v);

#endif
