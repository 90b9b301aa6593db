/* plugin/semver.h - versions of plugins, as semver.org 2.0.0 has them: "1.2.3-rc.1+build". */
#ifndef TSR_PLUGIN_SEMVER_H
#define TSR_PLUGIN_SEMVER_H

#include <stdbool.h>

bool tsr_plugin_semver_valid(const char *s);
/* Also accepts "1" and "1.2"; omitted parts count as 0. */
bool tsr_plugin_semver_valid_short(const char *s);

/* Negative, 0 or positive; both are valid or short.  A pre-release comes before its release;
 * build data does not count. */
int tsr_plugin_semver_compare(const char *a, const char *b);

#endif
