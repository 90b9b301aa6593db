/* eval/layers.h - logits of windows from a pass over the layers: several windows go through a layer before the next one is
 * read, so that a model takes the memory of a layer.  The numbers are those of an engine that has all layers, to the bit.
 */
#ifndef TSR_EVAL_LAYERS_H
#define TSR_EVAL_LAYERS_H

#include "engine/engine.h"
#include "eval/windows.h"

struct tsr_eval_layers;

/* at_once: windows of a pass; their hidden states are in memory, between 1 and all.  The model, best loaded by
 * tsr_model_load_streamed(), and the windows must outlive it.  act and on as in the engine's options; the cache is F32.
 * TSR_E_INPUT: a prepacked file.  [setup] */
tsr_status tsr_eval_layers_open(struct tsr_eval_layers **l, struct tsr_registry *r,
                                const struct tsr_model *m, const struct tsr_eval_windows *w,
                                uint64_t at_once, uint32_t act, const struct tsr_plugin_run_on *on,
                                struct tsr_err *err);
void       tsr_eval_layers_close(struct tsr_eval_layers *l); /* NULL is allowed */
/* Logits [n, vocab] behind positions [first, first + n) of a window; windows in ascending order cost one pass for
 * at_once of them.  [worker] */
tsr_status tsr_eval_layers_logits(struct tsr_eval_layers *l, uint64_t window, uint64_t first,
                                  uint64_t n, float *logits, struct tsr_err *err);
/* What ran the layers, for its device, its activations and the rows that logits are computed from. */
struct tsr_engine *tsr_eval_layers_engine(const struct tsr_eval_layers *l);

#endif
