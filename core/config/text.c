#include "config/doc.h"

#include <string.h>
#include <utf8proc.h>

static bool refuse(const struct tsr_config_source *s, uint64_t at, struct tsr_diag *d,
                   const char *hint, const char *what)
{
    struct tsr_config_mark m = { s, 1, 1, 1 };
    for (uint64_t i = 0; i < at; i++) {
        unsigned char c = (unsigned char)s->text[i];
        bool          crlf = c == '\r' && i + 1 < s->len && s->text[i + 1] == '\n';
        if (c == '\n' || (c == '\r' && !crlf)) {
            m.line++;
            m.column = 1;
        } else if ((c & 0xc0) != 0x80 && !crlf) {
            m.column++;
        }
    }
    tsr_config_diag_error(d, &m, hint, "%s", what);
    return false;
}

bool tsr_config_yaml_check_text(const struct tsr_config_source *s, struct tsr_diag *d)
{
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)s->text;
    char                    what[80];
    if (s->len >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff)))
        return refuse(s, 0, d, "save it as UTF-8", "the file is UTF-16");
    if (s->len >= 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf)
        return refuse(s, 0, d, "save it as UTF-8 without one",
                      "the file begins with a byte order mark");
    for (uint64_t i = 0; i < s->len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate(p + i, (utf8proc_ssize_t)(s->len - i), &c);
        if (n <= 0) {
            (void)snprintf(what, sizeof what, "byte 0x%02x is not UTF-8", p[i]);
            return refuse(s, i, d, "save it as UTF-8", what);
        }
        if (c == 0)
            return refuse(s, i, d, "is this a text file?", "a NUL byte");
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7f && c < 0xa0) ||
            c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff) {
            (void)snprintf(what, sizeof what, "character U+%04X cannot stand in YAML as it is",
                           (unsigned)c);
            return refuse(s, i, d, "write it as an escape in double quotes", what);
        }
        i += (uint64_t)n;
    }
    return true;
}
