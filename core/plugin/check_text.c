/* Sizes and texts of descriptors, options and tables. */
#include "plugin/internal.h"

tsr_status tsr_plugin_check_whole(uint32_t size, const char *where, const char *what,
                                  struct tsr_err *err)
{
    if (size % 8 == 0)
        return TSR_OK;
    return tsr_fail(
        err, TSR_E_INPUT,
        "%s: %s says %u bytes, a size is a multiple of 8; set it to the struct's sizeof", where,
        what, size);
}

bool tsr_plugin_check_text(const char *s)
{
    if (!s)
        return false;
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        unsigned more = *p < 0x80                 ? 0
                        : *p >= 0xc2 && *p < 0xe0 ? 1
                        : *p >= 0xe0 && *p < 0xf0 ? 2
                        : *p >= 0xf0 && *p < 0xf5 ? 3
                                                  : 9;
        if (more == 9 || *p < 0x20 || *p == 0x7f)
            return false;
        /* overlong forms, surrogates, and values above U+10FFFF */
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
            (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
            return false;
        for (p++; more; more--, p++)
            if ((*p & 0xc0) != 0x80)
                return false;
    }
    return true;
}
