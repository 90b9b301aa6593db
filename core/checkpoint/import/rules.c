/* Patterns of module names in quantization configs. */
#include "base/mem.h"
#include "checkpoint/import/import.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

#define PATTERN_MAX 4096u
#define MATCH_LIMIT 100000u /* steps; a module's name is short */

tsr_status tsr_import_rule_init(struct tsr_import *im, struct tsr_import_rule *r, const char *text,
                                bool regex)
{
    *r = (struct tsr_import_rule){ .text = tsr_strdup(text) };
    if (!r->text)
        return tsr_fail_nomem(im->err, strlen(text), "a rule");
    if (!regex)
        return TSR_OK;
    if (strlen(text) > PATTERN_MAX)
        return tsr_fail(im->err, TSR_E_INPUT, "%s: a pattern of %zu bytes is longer than %u",
                        im->where, strlen(text), PATTERN_MAX);
    int        code = 0;
    PCRE2_SIZE at = 0;
    r->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                            PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (r->code)
        return TSR_OK;
    if (code == PCRE2_ERROR_NOMEMORY)
        return tsr_fail_nomem(im->err, strlen(text), "a pattern");
    char msg[128] = "";
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof msg);
    return tsr_fail(im->err, TSR_E_INPUT, "%s: the pattern \"%.100s\" cannot be used: %s",
                    im->where, text, msg);
}

tsr_status tsr_import_rule_match(struct tsr_import *im, const struct tsr_import_rule *r,
                                 const char *name, bool *yes)
{
    if (!r->code) {
        *yes = strcmp(r->text, name) == 0;
        return TSR_OK;
    }
    pcre2_match_data    *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int                  n = PCRE2_ERROR_NOMEMORY;
    if (data && context) {
        (void)pcre2_set_match_limit(context, MATCH_LIMIT);
        (void)pcre2_set_depth_limit(context, MATCH_LIMIT);
        n = pcre2_match(r->code, (PCRE2_SPTR)name, strlen(name), 0, 0, data, context);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    *yes = n >= 0;
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH)
        return TSR_OK;
    if (n == PCRE2_ERROR_NOMEMORY)
        return tsr_fail_nomem(im->err, 256, "a match");
    return tsr_fail(im->err, TSR_E_INPUT,
                    "%s: the pattern \"%.100s\" takes too long on \"%.200s\"; write it more simply",
                    im->where, r->text, name);
}

void tsr_import_rule_free(struct tsr_import_rule *r)
{
    pcre2_code_free(r->code);
    free(r->text);
    *r = (struct tsr_import_rule){ 0 };
}
