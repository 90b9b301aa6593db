/* template/template.h - chat templates in Jinja: text that is compiled once and rendered with JSON values.
 *
 * What a template can do is what those of models need (docs/decisions/chat-templates.md); anything else is
 * refused with its line and column.  A template reads nothing but its values, and each rendering has limits
 * for steps, depth, memory and output.
 *
 *   struct tsr_template *t;
 *   TSR_TRY(tsr_template_compile(&t, "chat_template", text, bytes, err));
 *   tsr_status st = tsr_template_render(t, &values, &out, err);
 *   tsr_template_destroy(t);
 */
#ifndef TSR_TEMPLATE_TEMPLATE_H
#define TSR_TEMPLATE_TEMPLATE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct tsr_template;

/* Bytes of the output that came from input: [begin, end). */
struct tsr_template_span {
    uint64_t begin, end;
};

struct tsr_template_text {
    char                     *s; /* with a NUL after n bytes */
    uint64_t                  n;
    struct tsr_template_span *spans; /* in order */
    uint64_t                  n_spans;
    /* of a failed rendering: what the template gave to raise_exception(), at most 800 bytes; or NULL */
    char    *raised;
    uint64_t n_raised;
};

struct tsr_template_values {
    const json_t *input; /* an object: messages, tools, ...; its texts are input */
    const json_t *own;   /* an object: bos_token, ...; its texts count as the template's */
    int64_t       date;  /* of strftime_now: seconds since 1970, UTC */
    bool strict; /* a value that is missing is an error where it would be printed or listed */
};

/* text: UTF-8, at most 1 MiB; copied.  name: of the template in messages.  TSR_E_INPUT: it is not a
 * template that can run; err has its line and column.  [setup] */
tsr_status tsr_template_compile(struct tsr_template **t, const char *name, const char *text,
                                uint64_t bytes, struct tsr_err *err);
void       tsr_template_destroy(struct tsr_template *t);

/* TSR_E_INPUT: the template refuses the values, fails or meets a limit; err has the line and column.  Free out with
 * tsr_template_text_free(), after a failure too.  [any] */
tsr_status tsr_template_render(const struct tsr_template *t, const struct tsr_template_values *v,
                               struct tsr_template_text *out, struct tsr_err *err);
void       tsr_template_text_free(struct tsr_template_text *out);

/* "2024-07-26" as seconds since 1970. */
bool tsr_template_date(const char *text, int64_t *seconds);

#endif
