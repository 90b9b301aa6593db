/* A JSON reader for schemas: a tree in memory of the caller. */
#include "grammar.h"

#include <string.h>

static const struct json *value(struct json_reader *r, uint32_t depth);

static const struct json *bad(struct json_reader *r, const char *what)
{
    if (r->st == TSR_OK)
        r->st = tsr_fail(r->err, TSR_E_CONFIG, "schema: byte %llu: %s",
                         (unsigned long long)(r->at - r->text) + 1, what);
    return NULL;
}

static void skip(struct json_reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

static int hex4(const char *s)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int  d = c >= '0' && c <= '9'   ? c - '0'
                 : c >= 'a' && c <= 'f' ? c - 'a' + 10
                 : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                        : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xe0 | c >> 12);
        } else {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 63));
        }
        *to++ = (char)(0x80 | (c >> 6 & 63));
    }
    *to++ = (char)(0x80 | (c & 63));
    return to;
}

/* After "\u"; a pair of surrogates is one character. */
static bool unicode(struct json_reader *r)
{
    int a = hex4(r->at), b;
    if (a < 0 || (a >= 0xdc00 && a < 0xe000))
        return false;
    r->at += 4;
    uint32_t c = (uint32_t)a;
    if (a >= 0xd800 && a < 0xdc00) {
        b = r->at[0] == '\\' && r->at[1] == 'u' ? hex4(r->at + 2) : -1;
        if (b < 0xdc00 || b >= 0xe000)
            return false;
        r->at += 6;
        c = 0x10000 + (((uint32_t)a & 0x3ff) << 10 | ((uint32_t)b & 0x3ff));
    }
    r->bytes = put_utf8(r->bytes, c);
    return true;
}

/* The string that begins at r->at, decoded.  The text is UTF-8: the host has checked options. */
static bool string(struct json_reader *r, const char **s, uint32_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char       *start = r->bytes;
    r->at++;
    while (*r->at != '"') {
        const char *e;
        if ((unsigned char)*r->at < 0x20)
            return bad(r, "a string does not end") != NULL;
        if (*r->at != '\\') {
            *r->bytes++ = *r->at++;
            continue;
        }
        r->at++;
        if (*r->at == 'u') {
            r->at++;
            if (!unicode(r))
                return bad(r, "expected four hex digits of a character") != NULL;
        } else if (*r->at && (e = strchr(from, *r->at)) != NULL) {
            *r->bytes++ = to[e - from];
            r->at++;
        } else {
            return bad(r, "an escape that JSON does not have") != NULL;
        }
    }
    r->at++;
    *s = start;
    *n = (uint32_t)(r->bytes - start);
    return true;
}

static bool digits(const char **p)
{
    const char *s = *p;
    *p += strspn(s, "0123456789");
    return *p != s;
}

static bool number(struct json_reader *r, struct json *v)
{
    const char *p = r->at + (*r->at == '-');
    bool        zero = *p == '0';
    const char *whole = p;
    v->s = r->at;
    if (!digits(&p) || (zero && p - whole > 1))
        return bad(r, "expected a value") != NULL;
    if (*p == '.') {
        p++;
        if (!digits(&p))
            return bad(r, "a number without digits after its point") != NULL;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        if (!digits(&p))
            return bad(r, "a number without digits in its exponent") != NULL;
    }
    v->n = (uint32_t)(p - r->at);
    r->at = p;
    return true;
}

/* Members or items up to the closing byte. */
static bool list(struct json_reader *r, struct json *v, uint32_t depth)
{
    const struct json **end = &v->child;
    char                close = v->type == JSON_IS_OBJECT ? '}' : ']';
    r->at++;
    skip(r);
    if (*r->at == close)
        return r->at++ != NULL;
    for (;;) {
        const char *key = NULL;
        uint32_t    n_key = 0;
        skip(r);
        if (close == '}') {
            if (*r->at != '"')
                return bad(r, "expected a key") != NULL;
            if (!string(r, &key, &n_key))
                return false;
            skip(r);
            if (*r->at++ != ':')
                return bad(r, "expected ':'") != NULL;
        }
        struct json *one = (struct json *)(uintptr_t)value(r, depth + 1);
        if (!one)
            return false;
        one->key = key;
        one->n_key = n_key;
        *end = one;
        end = &one->next;
        skip(r);
        if (*r->at == close)
            return r->at++ != NULL;
        if (*r->at != ',')
            return bad(r, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'") != NULL;
        r->at++;
    }
}

static const struct json *value(struct json_reader *r, uint32_t depth)
{
    static const struct {
        const char    *s;
        enum json_type type;
    } words[] = { { "null", JSON_IS_NULL }, { "false", JSON_IS_FALSE }, { "true", JSON_IS_TRUE } };
    struct json *v = &r->value[r->n++];
    *v = (struct json){ .type = JSON_IS_NUMBER };
    skip(r);
    if (depth > GRAMMAR_MAX_DEPTH)
        return bad(r, "values inside values, more than 64 deep");
    for (unsigned i = 0; i < 3; i++)
        if (strncmp(r->at, words[i].s, strlen(words[i].s)) == 0) {
            r->at += strlen(words[i].s);
            v->type = words[i].type;
            return v;
        }
    if (*r->at == '"') {
        v->type = JSON_IS_STRING;
        return string(r, &v->s, &v->n) ? v : NULL;
    }
    if (*r->at == '{' || *r->at == '[') {
        v->type = *r->at == '{' ? JSON_IS_OBJECT : JSON_IS_ARRAY;
        return list(r, v, depth) ? v : NULL;
    }
    return number(r, v) ? v : NULL;
}

const struct json *json_read(struct json_reader *r)
{
    r->at = r->text;
    r->n = 0;
    r->st = TSR_OK;
    const struct json *v = value(r, 0);
    skip(r);
    return v && *r->at ? bad(r, "text after the value") : v;
}

const struct json *json_member(const struct json *object, const char *key)
{
    size_t n = strlen(key);
    for (const struct json *m = object->child; m; m = m->next)
        if (m->n_key == n && memcmp(m->key, key, n) == 0)
            return m;
    return NULL;
}

char *json_print_string(const char *s, uint32_t n, char *to)
{
    static const char from[] = "\"\\\b\f\n\r\t", name[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    *to++ = '"';
    for (uint32_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        const char   *e = c ? strchr(from, (char)c) : NULL;
        if (e) {
            *to++ = '\\';
            *to++ = name[e - from];
        } else if (c < 0x20) {
            memcpy(to, "\\u00", 4);
            to[4] = hex[c >> 4];
            to[5] = hex[c & 15];
            to += 6;
        } else {
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    return to;
}

char *json_print(const struct json *v, char *to)
{
    static const char *const words[] = { "null", "false", "true" };
    if (v->type <= JSON_IS_TRUE) {
        size_t n = strlen(words[v->type]);
        memcpy(to, words[v->type], n);
        return to + n;
    }
    if (v->type == JSON_IS_STRING)
        return json_print_string(v->s, v->n, to);
    if (v->type == JSON_IS_NUMBER) {
        memcpy(to, v->s, v->n);
        return to + v->n;
    }
    bool object = v->type == JSON_IS_OBJECT;
    *to++ = object ? '{' : '[';
    for (const struct json *m = v->child; m; m = m->next) {
        if (object) {
            to = json_print_string(m->key, m->n_key, to);
            *to++ = ':';
        }
        to = json_print(m, to);
        if (m->next)
            *to++ = ',';
    }
    *to++ = object ? '}' : ']';
    return to;
}
