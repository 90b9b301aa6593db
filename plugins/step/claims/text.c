/* JSON and cells of a table. */
#include "claims.h"

#include <math.h>
#include <string.h>

/* Room for n more bytes and the NUL. */
static bool reserve(struct claims_text *t, uint64_t n)
{
    if (t->lost)
        return false;
    if (t->cap - t->n > n)
        return true;
    uint64_t cap = 2 * t->cap + n + 256;
    char    *text = t->host->alloc(t->host->ctx, cap, 16);
    if (!text) {
        t->lost = true;
        return false;
    }
    if (t->text)
        memcpy(text, t->text, t->n + 1);
    t->host->release(t->host->ctx, t->text, t->cap);
    t->text = text;
    t->cap = cap;
    return true;
}

void claims_text_add(struct claims_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(t, (uint64_t)n)) {
        t->lost = true;
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(t->text + t->n, t->cap - t->n, fmt, ap);
    va_end(ap);
    t->n += (uint64_t)n;
}

void claims_text_string(struct claims_text *t, const char *s)
{
    claims_text_add(t, "\"");
    while (*s) {
        const char *end = s;
        while ((unsigned char)*end >= ' ' && *end != '"' && *end != '\\')
            end++;
        claims_text_add(t, "%.*s", (int)(end - s), s);
        if (*end)
            claims_text_add(t, "\\u%04x", (unsigned char)*end++);
        s = end;
    }
    claims_text_add(t, "\"");
}

void claims_text_real(struct claims_text *t, double v)
{
    char number[40] = "null";
    if (isfinite(v))
        (void)snprintf(number, sizeof number, "%.17g", v);
    claims_text_add(t, "%s%s", number,
                    isfinite(v) && !strpbrk(number, ".e") ? ".0" : ""); /* a real stays one */
}

void claims_text_free(struct claims_text *t)
{
    t->host->release(t->host->ctx, t->text, t->cap);
    *t = (struct claims_text){ .host = t->host };
}

tsr_status claims_text_put(struct claims_text *t, const struct tsr_step_job *j, const char *product,
                           struct tsr_err *err)
{
    tsr_status st = t->lost ? tsr_fail(err, TSR_E_NOMEM, "claims: out of memory for '%s'", product)
                            : j->put(j->ctx, product, t->text, t->n, err);
    claims_text_free(t);
    return st;
}

const char *claims_cell(char cell[CLAIMS_CELL], int digits, double v)
{
    (void)snprintf(cell, CLAIMS_CELL, "-");
    if (isfinite(v))
        (void)snprintf(cell, CLAIMS_CELL, "%.*f", digits, v);
    return cell;
}

const char *claims_range(char cell[CLAIMS_CELL], int digits, double low, double high)
{
    (void)snprintf(cell, CLAIMS_CELL, "-");
    if (isfinite(low) && isfinite(high))
        (void)snprintf(cell, CLAIMS_CELL, "[%.*f, %.*f]", digits, low, digits, high);
    return cell;
}
