/* probe.h - the table of tessera/draft/probe.h. */
#ifndef TSR_CPU_PROBE_H
#define TSR_CPU_PROBE_H

#include "tessera/draft/probe.h"

/* The extension for an instance; its rates depend on the instruction set. */
const struct tsr_probe_v1 *tsr_cpu_probe(const void *self);

#endif
