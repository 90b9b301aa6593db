/* Sentences that are put together. */
#include "compare/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void compare_add(char *text, size_t cap, const char *fmt, ...)
{
    size_t  at = strlen(text);
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(text + at, cap - at, fmt, list);
    va_end(list);
}
