/* probe.h - the table of tessera/draft/probe.h. */
#ifndef TSR_CPU_PROBE_H
#define TSR_CPU_PROBE_H

#include "tessera/draft/probe.h"

/* The extension for an instance. Its rates depend on the instruction set; of AVX-512 the first call measures them,
 * for some milliseconds.  [any] */
const struct tsr_probe_v1 *tsr_cpu_probe(const void *self);
/* What part of 512 bits an instruction makes a cycle, in units of 256 bits, next to two instructions of 256 bits:
 * the power of two from a half to two that is nearest to the measured ratio of their lanes.  [any] */
double tsr_cpu_probe_width(double ratio);

#endif
