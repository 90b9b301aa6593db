/* registry_fixture.h - what the registry says about a file: one sentence that names it. */
#ifndef TSR_TEST_REGISTRY_FIXTURE_H
#define TSR_TEST_REGISTRY_FIXTURE_H

#include "../fixtures/error_is.h"
#include "base/file.h"
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXTURE(name) TSR_FIXTURES "/" name ".so"

static char scratch[] = "/tmp/tessera-registry-XXXXXX"; /* main() makes the folder of it */

static inline struct tsr_registry *fresh(void)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_registry *r = NULL;
    assert_int_equal(tsr_plugin_registry_create(&r, NULL, &e.err), TSR_OK);
    return r;
}

/* What is said about a file that the user named. */
static inline tsr_status load(const char *path, struct tsr_errbuf *e)
{
    struct tsr_registry *r = fresh();
    tsr_status           st = tsr_plugin_registry_add_path(r, path, &e->err);
    if (st == TSR_OK)
        st = tsr_plugin_registry_scan(r, &e->err);
    tsr_plugin_registry_destroy(r);
    return st;
}

/* The file is refused, with an error about it and its part. */
static inline void refused(const char *path, const char *part, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = load(path, &e);
    char              about[512];
    (void)snprintf(about, sizeof about, "%s%s", path, part);
    if (st != TSR_E_INPUT || !error_is(&e.err, about, facts))
        fail_msg("%s: status %d: %s", path, st, st == TSR_OK ? "nothing" : e.text);
}

static inline char *read_all(const char *path, uint64_t *n)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *data = NULL;
    assert_int_equal(tsr_file_slurp(path, 1 << 24, &data, n, &e.err), TSR_OK);
    return data;
}

static inline const char *write_all(const char *name, const void *data, uint64_t n)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", scratch, name);
    (void)unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

#endif
