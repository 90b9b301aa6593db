/* Dates that a user gives. */
#include "template/template.h"

#include <string.h>
#include <time.h>

bool tsr_template_date(const char *text, int64_t *seconds)
{
    struct tm   tm = { 0 };
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (!end || *end || strlen(text) != 10)
        return false;
    struct tm same = tm; /* timegm() makes 1 March of 29 February */
    *seconds = (int64_t)timegm(&same);
    return same.tm_mday == tm.tm_mday && same.tm_mon == tm.tm_mon;
}
