#include "cli/failure.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* A path, or what a plugin wrote, may be no UTF-8; such bytes become '?'. */
static json_t *string(const char *s, size_t n)
{
    json_t *j = json_stringn(s, n);
    char   *copy = j ? NULL : tsr_strndup(s, n);
    if (!copy)
        return j;
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t bytes =
            utf8proc_iterate((const utf8proc_uint8_t *)copy + i, (utf8proc_ssize_t)(n - i), &c);
        if (bytes <= 0)
            copy[i] = '?';
        i += bytes > 0 ? (size_t)bytes : 1;
    }
    j = json_stringn(copy, n);
    free(copy);
    return j;
}

json_t *tsr_cli_failure_item(const struct tsr_config_diag_item *v)
{
    json_t *j =
        json_pack("{s:o, s:s, s:i, s:i, s:i, s:o}", "file", string(v->file, strlen(v->file)),
                  "severity", v->warning ? "warning" : "error", "line", (int)v->line, "column",
                  (int)v->column, "length", (int)v->length, "message",
                  string(v->text, strlen(v->text)));
    if (v->object)
        tsr_json_set(&j, "object", string(v->object, strlen(v->object)));
    if (v->hint)
        tsr_json_set(&j, "hint", string(v->hint, strlen(v->hint)));
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

static json_t *first_error(const json_t *diagnostics)
{
    for (size_t i = 0; i < json_array_size(diagnostics); i++) {
        json_t *v = json_array_get(diagnostics, i);
        if (strcmp(json_string_value(json_object_get(v, "severity")), "error") == 0)
            return v;
    }
    return NULL;
}

/* The place of the first error of a YAML file or option, else the object of that error. */
static bool put_first(json_t **j, const json_t *diagnostics)
{
    const json_t *v = first_error(diagnostics);
    json_t       *file = json_object_get(v, "file"), *object = json_object_get(v, "object");
    bool          in_file = file && *json_string_value(file);
    if (!in_file && !object)
        return false;
    tsr_json_set(j, "object", json_incref(in_file ? file : object));
    if (!in_file)
        return true;
    tsr_json_set(j, "line", json_incref(json_object_get(v, "line")));
    tsr_json_set(j, "column", json_incref(json_object_get(v, "column")));
    return true;
}

static json_t *failure(const struct tsr_cli *c, tsr_status st, const struct tsr_err *err,
                       const char *text)
{
    const char *object;
    uint32_t    n = tsr_err_object(err, &object);
    json_t     *j = json_pack("{s:s, s:i, s:o}", "status", tsr_status_word(st), "exit_code",
                              tsr_exit_code(st), "message", string(text, strlen(text)));
    if (!put_first(&j, c->diagnostics) && n) {
        tsr_json_set(&j, "object", string(object, n));
        if (err->line)
            tsr_json_set(&j, "line", json_integer(err->line));
        if (err->line && err->column)
            tsr_json_set(&j, "column", json_integer(err->column));
    }
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
