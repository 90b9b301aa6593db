#include "batch/reasons.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* What fits, cut at the start of a character. */
static void cut(char *to, size_t cap, const char *text)
{
    size_t n = strlen(text);
    if (n >= cap) {
        n = cap - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(to, text, n);
    to[n] = '\0';
}

static void add(struct tsr_batch_reasons *s, const char *code, const char *message, uint64_t line)
{
    uint64_t i = 0;
    while (i < s->n && strncmp(s->v[i].code, code, sizeof s->v[i].code - 1) != 0)
        i++;
    if (i == TSR_REASONS_MOST)
        i--; /* with the last of them: none is left out of the count */
    if (i == s->n) {
        s->n++;
        s->v[i].line = line;
        cut(s->v[i].code, sizeof s->v[i].code, code);
        cut(s->v[i].message, sizeof s->v[i].message, message);
    }
    s->v[i].records++;
}

tsr_status tsr_batch_reasons_read(struct tsr_batch_reasons *s, const struct tsr_batch_journal *j,
                                  const struct tsr_batch_records *r, struct tsr_err *err)
{
    *s = (struct tsr_batch_reasons){ 0 };
    for (uint64_t i = 0; i < r->n; i++) {
        const struct tsr_batch_record *one = tsr_batch_journal_record(j, i);
        char                          *line;
        json_t                        *root = NULL;
        if (one->state != TSR_BATCH_RECORD_ERROR)
            continue;
        TSR_TRY(tsr_batch_journal_read_line(j, i, &line, err));
        tsr_status st = tsr_json_parse(&root, "an error line", line, one->len, 32, err);
        free(line);
        TSR_TRY(st);
        const json_t *e = json_object_get(root, "error");
        const char   *code = json_string_value(json_object_get(e, "code"));
        const char   *message = json_string_value(json_object_get(e, "message"));
        add(s, code ? code : "?", message ? message : "", tsr_batch_records_line(r, i));
        json_decref(root);
    }
    return TSR_OK;
}
