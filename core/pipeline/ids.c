/* Token ids as text: "1,5,9". */
#include "pipeline/step.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_pipeline_step_ids(const char *text, uint32_t **ids, uint64_t *n, struct tsr_err *err)
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
