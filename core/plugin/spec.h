/* plugin/spec.h - a plugin with options as one argument: "uniform:labels=64,..." */
#ifndef TSR_PLUGIN_SPEC_H
#define TSR_PLUGIN_SPEC_H

#include "plugin/registry.h"

struct tsr_plugin_spec {
    char                   *text; /* option strings point into it */
    struct tsr_plugin_found found;
    void                   *options; /* the component's struct, filled */
};

/* NAME[:key=value,...]; an option that is unknown, wrong or missing is TSR_E_INPUT.  After a
 * failure too tsr_plugin_spec_close() is allowed. */
tsr_status tsr_plugin_spec_open(struct tsr_plugin_spec *s, struct tsr_registry *r, const char *kind,
                                const char *text, struct tsr_err *err);
/* The same for a backend, "cuda:device=1", under `numerics`, which the text may not name. */
tsr_status tsr_plugin_spec_backend(struct tsr_plugin_spec *s, struct tsr_registry *r,
                                   const char *text, uint32_t numerics, struct tsr_err *err);
/* Its instance; the error names the backend.  [setup] */
tsr_status tsr_plugin_spec_backend_create(const struct tsr_plugin_spec *s, struct tsr_registry *r,
                                          void **self, struct tsr_err *err);
/* Whether this process created a backend other than the default.  A device driver may be running then,
 * and a forked process cannot use it. */
bool tsr_plugin_spec_backend_made(void);
/* All defaults of a component that was found already; the first required option is an error. */
tsr_status tsr_plugin_spec_defaults(struct tsr_plugin_spec *s, const struct tsr_plugin_found *found,
                                    struct tsr_err *err);
/* A component with all defaults in `options`, for a caller that fills them and checks the required ones. */
tsr_status tsr_plugin_spec_start(struct tsr_plugin_spec *s, struct tsr_registry *r,
                                 const char *kind, const char *name, struct tsr_err *err);
/* The same with one option, whose value is copied as it stands. */
tsr_status tsr_plugin_spec_one(struct tsr_plugin_spec *s, struct tsr_registry *r, const char *kind,
                               const char *name, const char *key, const char *value,
                               struct tsr_err *err);
/* The component with its options as text, "org.example.rtn/rtn:bits=4", which opens it again; fresh memory.
 * TSR_E_UNSUPPORTED for an option whose value has a comma. */
tsr_status tsr_plugin_spec_text(const struct tsr_plugin_found *f, const void *options, char **text,
                                struct tsr_err *err);
void       tsr_plugin_spec_close(struct tsr_plugin_spec *s);

#endif
