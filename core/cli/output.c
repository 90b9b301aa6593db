#include "cli/cli.h"

#include "base/json.h"
#include "base/stdout.h"

#include <jansson.h>
#include <stdlib.h>

tsr_status tsr_cli_flush(struct tsr_err *err)
{
    return tsr_stdout_flush(err);
}

tsr_status tsr_cli_print_json(json_t *j, struct tsr_err *err)
{
    if (!j)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: the JSON result");
    /* the whole text or nothing; 17 digits: every double survives a round trip */
    char      *text = NULL;
    uint64_t   len = 0;
    tsr_status st = tsr_json_text(j, JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY, &text, &len, err);
    json_decref(j);
    TSR_TRY(st);
    (void)puts(text);
    free(text);
    return tsr_cli_flush(err);
}
