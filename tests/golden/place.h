/* place.h - the tree and the plugins of tests that tools/gpu-check runs: those of the build, or, carried to
 * another machine, where the environment says. */
#ifndef TSR_TEST_PLACE_H
#define TSR_TEST_PLACE_H

#include <stdlib.h>

static inline const char *test_place(const char *variable, const char *built)
{
    const char *s = getenv(variable);
    return s && *s ? s : built;
}

#define TEST_ROOT    test_place("TSR_CARRIED_ROOT", TSR_SOURCE_ROOT)
#define TEST_PLUGINS test_place("TSR_CARRIED_PLUGINS", TSR_TEST_PLUGINS)

#endif
