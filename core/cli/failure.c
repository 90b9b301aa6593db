#include "cli/failure.h"

#include "base/json.h"

#include <stdlib.h>

json_t *tsr_cli_failure_item(const struct tsr_config_diag_item *v)
{
    json_t *j = json_pack("{s:s, s:s, s:i, s:i, s:i, s:s}", "file", v->file, "severity",
                          v->warning ? "warning" : "error", "line", (int)v->line, "column",
                          (int)v->column, "length", (int)v->length, "message", v->text);
    if (v->hint)
        tsr_json_set(&j, "hint", json_string(v->hint));
    return j;
}

tsr_status tsr_cli_failure_keep(struct tsr_cli *c, struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_config_diag_item v;
    if (!c->json) {
        tsr_config_diag_print(d, stderr, c->colour);
        return TSR_OK;
    }
    if (!c->diagnostics)
        c->diagnostics = json_array();
    for (uint64_t i = 0; tsr_config_diag_at(d, i, &v); i++)
        tsr_json_add(&c->diagnostics, tsr_cli_failure_item(&v));
    return c->diagnostics ? TSR_OK : tsr_fail_nomem(err, 256, "the list of errors");
}

static json_t *failure(const struct tsr_cli *c, tsr_status st, const struct tsr_err *err,
                       const char *text)
{
    const char *object;
    uint32_t    n = tsr_err_object(err, &object);
    json_t     *j = json_pack("{s:s, s:i, s:s}", "status", tsr_status_word(st), "exit_code",
                              tsr_exit_code(st), "message", text);
    if (n)
        tsr_json_set(&j, "object", json_stringn(object, n));
    if (n && err->line)
        tsr_json_set(&j, "line", json_integer(err->line));
    if (n && err->line && err->column)
        tsr_json_set(&j, "column", json_integer(err->column));
    if (json_array_size(c->diagnostics))
        tsr_json_set(&j, "diagnostics", json_incref(c->diagnostics));
    return json_pack("{s:s, s:o}", "format", "tessera.error/1", "error", j);
}

void tsr_cli_failure_print(const struct tsr_cli *c, tsr_status st, const struct tsr_err *err)
{
    const char *text = *err->text ? err->text : "failed without a reason (a bug)";
    json_t     *j = c->json ? failure(c, st, err, text) : NULL;
    char       *line = NULL;
    uint64_t    n;
    if (j && tsr_json_text(j, JSON_COMPACT, &line, &n, NULL) == TSR_OK)
        (void)fprintf(stderr, "%s\n", line);
    else if (st == TSR_E_CANCELLED)
        (void)fprintf(stderr, "tessera: interrupted%s%s; the same command goes on\n",
                      *err->text ? ": " : "", err->text);
    else
        (void)fprintf(stderr, "tessera: %serror:%s %s\n", c->colour ? "\033[1;31m" : "",
                      c->colour ? "\033[0m" : "", text);
    free(line);
    json_decref(j);
}
