/* plugin/spec.h - a plugin with options as one argument: "uniform:labels=64,..." */
#ifndef TSR_PLUGIN_SPEC_H
#define TSR_PLUGIN_SPEC_H

#include "plugin/registry.h"

struct tsr_spec {
    char            *text; /* option strings point into it */
    struct tsr_found found;
    void            *options; /* the component's struct, filled */
};

/* NAME[:key=value,...]; an option that is unknown, wrong or missing is TSR_E_INPUT.  After a
 * failure too tsr_spec_close() is allowed. */
tsr_status tsr_spec_open(struct tsr_spec *s, struct tsr_registry *r, const char *kind,
                         const char *text, struct tsr_err *err);
/* The same for a backend, "cuda:device=1", under `numerics`, which the text may not name. */
tsr_status tsr_spec_backend(struct tsr_spec *s, struct tsr_registry *r, const char *text,
                            uint32_t numerics, struct tsr_err *err);
/* Its instance; the error names the backend.  [setup] */
tsr_status tsr_spec_backend_create(const struct tsr_spec *s, struct tsr_registry *r, void **self,
                                   struct tsr_err *err);
/* Has this process made one of another backend than the default?  The driver of a device may be started
 * then, and a process that is forked has no use of it. */
bool tsr_spec_backend_made(void);
/* All defaults of a component that was found already; the first required option is an error. */
tsr_status tsr_spec_defaults(struct tsr_spec *s, const struct tsr_found *found,
                             struct tsr_err *err);
void       tsr_spec_close(struct tsr_spec *s);

#endif
