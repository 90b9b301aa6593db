#include "cli/cli.h"

#include "base/json.h"
#include "base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool stdout_gone;

bool tsr_cli_stdout_gone(void)
{
    return stdout_gone;
}

tsr_status tsr_cli_flush(struct tsr_err *err)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return TSR_OK;
    int e = errno ? errno : EIO;
    if (e == EPIPE)
        stdout_gone = true;
    tsr_status st = tsr_fail_errno(err, e, "standard output", "write");
    return st == TSR_E_INPUT ? TSR_E_IO : st;
}

tsr_status tsr_cli_print_json(json_t *j, struct tsr_err *err)
{
    if (!j)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: the JSON result");
    /* whole or not at all; 17 digits: every double reads back as itself */
    char      *text = NULL;
    uint64_t   len = 0;
    tsr_status st = tsr_json_text(j, JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY, &text, &len, err);
    json_decref(j);
    TSR_TRY(st);
    (void)puts(text);
    free(text);
    return tsr_cli_flush(err);
}

tsr_status tsr_cli_ids(const char *text, uint32_t **ids, uint64_t *n, struct tsr_err *err)
{
    uint64_t count = 1;
    for (const char *s = text; *s; s++)
        count += *s == ',';
    uint32_t *v = tsr_new(count, sizeof *v);
    if (!v)
        return tsr_fail_nomem(err, count * sizeof *v, "token ids");
    const char *s = text;
    for (uint64_t i = 0; i < count; i++) {
        size_t      len = strcspn(s, ",");
        const char *p = s, *end = s + len;
        while (p < end && *p == ' ')
            p++;
        while (end > p && end[-1] == ' ')
            end--;
        uint64_t x = 0;
        bool     ok = p < end;
        for (; ok && p < end; p++) {
            ok = *p >= '0' && *p <= '9';
            x = x * 10 + (ok ? (uint64_t)(*p - '0') : 0);
            ok = ok && x <= UINT32_MAX;
        }
        if (!ok) {
            free(v);
            return tsr_fail(err, TSR_E_INPUT,
                            "item %llu of the token list, '%.*s', is not a token "
                            "id; write ids as 1,5,9",
                            (unsigned long long)(i + 1), (int)(len < 40 ? len : 40), s);
        }
        v[i] = (uint32_t)x;
        s += len + 1;
    }
    *ids = v;
    *n = count;
    return TSR_OK;
}
