/* A chat template, a line "----", and values in JSON: it renders to UTF-8 text with spans in order, or it is an error with
 * a line. */
#include "base/json.h"
#include "template/template.h"

#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void check(const struct tsr_template_text *t)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < t->n;) {
        utf8proc_int32_t ch;
        utf8proc_ssize_t k =
            utf8proc_iterate((const utf8proc_uint8_t *)t->s + i, (utf8proc_ssize_t)(t->n - i), &ch);
        must(k > 0);
        i += (uint64_t)k;
    }
    for (uint64_t i = 0; i < t->n_spans; i++) {
        must(t->spans[i].begin >= at && t->spans[i].end > t->spans[i].begin &&
             t->spans[i].end <= t->n);
        at = t->spans[i].end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char        line[] = "\n----\n";
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_template     *t;
    struct tsr_template_text out;
    json_t                  *input = NULL;
    const char              *text = (const char *)data, *cut = memmem(data, size, line, 6);
    size_t                   n = cut ? (size_t)(cut - text) : size;
    if (cut && tsr_json_parse(&input, "values", cut + 6, size - n - 6, 32, &e.err) != TSR_OK)
        return 0;
    tsr_status st = tsr_template_compile(&t, "the template", text, n, &e.err);
    if (st == TSR_OK) {
        struct tsr_template_values v = { .input = input };
        st = tsr_template_render(t, &v, &out, &e.err);
        if (st == TSR_OK)
            check(&out);
        tsr_template_text_free(&out);
        tsr_template_destroy(t);
    }
    must(st == TSR_OK || (st == TSR_E_INPUT && *e.text && e.err.line > 0));
    json_decref(input);
    return 0;
}
