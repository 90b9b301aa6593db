/* conformance/on.h - the device that --on names, for rules about code that runs on one. */
#ifndef TSR_CONFORMANCE_ON_H
#define TSR_CONFORMANCE_ON_H

#include "conformance/rule.h"
#include "tessera/backend.h"

/* The first backend of that plugin and an instance of it with its defaults, for the life of the rule's process.  Skips the
 * rule where there is none, with the reason. */
const struct tsr_backend_v1 *tsr_conformance_on(struct tsr_conformance_case *c, void **device);

#endif
