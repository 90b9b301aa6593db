/* tessera/status.h - status: the result of a call that can fail, and its error text.
 *
 * Host and plugins both return a status.  The caller owns the error text; the failing function
 * writes one sentence with tsr_fail().  The sentence says what is wrong, where, and what was
 * expected; tsr_fail() notes which part of it names the object.  After a failure the outputs are unspecified, and nothing is leaked.  tsr_fail() may
 * run on any thread, with an err that no other thread uses.
 *
 * Example: a check of an option.
 *
 *     static tsr_status check_block(uint64_t block, struct tsr_err *err)
 *     {
 *         if (block == 0 || block % 32 != 0)
 *             return tsr_fail(err, TSR_E_CONFIG, "block is %u; expected a multiple of 32",
 *                             (unsigned)block);
 *         return TSR_OK;
 *     }
 */
#ifndef TSR_STATUS_H
#define TSR_STATUS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t tsr_status;
#define TSR_OK            0
#define TSR_E_INVAL       (-1) /* the caller broke the contract                    */
#define TSR_E_CONFIG      (-2) /* the user's options cannot work                   */
#define TSR_E_UNSUPPORTED (-3) /* valid, but this plugin cannot do it              */
#define TSR_E_NOMEM       (-4) /* an allocation failed                             */
#define TSR_E_IO          (-5) /* a file or a stream failed                        */
#define TSR_E_DEVICE      (-6) /* a device, its driver or a link failed            */
#define TSR_E_NUMERIC     (-7) /* NaN or Inf, not positive definite, or divergence */
#define TSR_E_CANCELLED   (-8) /* the user stopped the call                        */

/* Where a failing function puts its sentence.  The caller owns the struct and the text, and may
 * pass NULL.  A function writes it only if it returns a negative status.
 *
 * The last four fields are for programs, which cannot read the sentence: what it is about, as a part
 * of the text, and a position in that object.  They are there if struct_size says so. */
struct tsr_err {
    uint32_t struct_size;
    uint32_t cap; /* bytes at text, with the NUL; 0: no text */
    char    *text;
    uint32_t object_at, object_bytes; /* a file, tensor, key, ...; 0 bytes: none was named */
    uint32_t line, column;            /* from 1; 0: no position */
};

/* Finds the object: an option that the format begins with, as in "--m is not a number"; the first
 * argument, if the format begins with "%s:" or "%s "; else the first "%s" between quotation marks.
 * "%.60s" counts as "%s".  After "%s:" a line and a column may follow, as in "%s:%u:%u: no such key".
 * It stops at another conversion. */
static inline void tsr_err_find_object_(struct tsr_err *err, const char *fmt, va_list arguments)
{
    const char *object = NULL, *f = fmt, *t;
    uint32_t    at = 0, n = 0, v;
    err->object_at = err->object_bytes = err->line = err->column = 0;
    if (f[0] == '-' && f[1] == '-' && f[2] > ' ' && f[2] != '%')
        for (object = f; f[n] > ' ' && f[n] != ':' && f[n] != ',' && f[n] != '%';)
            n++;
    for (; *f && !object; f++, at++) {
        const char *begin = f;
        uint32_t    most = ~(uint32_t)0;
        if (*f != '%' || *++f == '%')
            continue;
        if (*f == '.')
            for (most = 0, f++; *f >= '0' && *f <= '9' && most < 1000; f++)
                most = most * 10 + (uint32_t)(*f - '0');
        if (*f != 's')
            return;
        object = va_arg(arguments, const char *);
        for (n = 0; object && n < most && object[n];)
            n++;
        if (begin == fmt ? f[1] == ':' || f[1] == ' '
                         : begin[-1] == f[1] && (f[1] == '\'' || f[1] == '"'))
            break;
        object = NULL;
        at += n - 1;
    }
    if (!object || n >= err->cap || at >= err->cap - n)
        return;
    err->object_at = at;
    err->object_bytes = n;
    for (t = err->text + n; at == 0 && *t == ':' && t[1] >= '0' && t[1] <= '9' && !err->column;) {
        for (v = 0, t++; *t >= '0' && *t <= '9' && v < 100000000u; t++)
            v = v * 10 + (uint32_t)(*t - '0');
        if (*t != ':')
            return;
        if (err->line)
            err->column = v;
        else
            err->line = v;
    }
}

/* Formats the sentence into err and returns st.  The text is one line: a control character, for
 * example in a name from a file, becomes '?'.  A sentence names its object first: "%s: is not ...", or
 * between quotation marks: "unknown key '%s'".  The function is compiled into the plugin, so no
 * variable arguments cross the ABI. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), unused))
#endif
static inline tsr_status
tsr_fail(struct tsr_err *err, tsr_status st, const char *fmt, ...)
{
    if (err && err->cap) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(err->text, err->cap, fmt, ap);
        va_end(ap);
        for (uint32_t i = 0; i < err->cap && err->text[i]; i++)
            if ((unsigned char)err->text[i] < ' ' || err->text[i] == 127)
                err->text[i] = '?';
        if (err->struct_size >= sizeof *err) {
            va_start(ap, fmt);
            tsr_err_find_object_(err, fmt, ap);
            va_end(ap);
        }
    }
    return st;
}

#ifdef __cplusplus
}
#endif
#endif
