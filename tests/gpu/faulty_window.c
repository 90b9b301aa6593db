/* faulty_window.c - window.cu with one fault: FAULT is the kernel's name, or its start, and IS_... what is wrong with it. */
#include "k_norm_step.h"
#include "k_window.h"

#define CAT_(a, b)    a##b
#define CAT(a, b)     CAT_(a, b)
#define k_window_sum  FAULT
#define k_window_step CAT(FAULT, _step)
#if defined IS_NO_WAIT /* every flag is there at once */
#undef flag_look
#define flag_look(p) (simt_flag_look(p), INT32_MAX)
#elif defined IS_EARLY /* of the sum before */
#undef flag_look
#define flag_look(p) (simt_flag_look(p) + 1)
#elif defined IS_UNORDERED /* flags are raised before all threads have written, and read */
#undef __syncthreads
#define __syncthreads() ((void)0)
#elif defined IS_UNFENCED /* neither the numbers before a flag nor those behind it are in order */
#undef __threadfence_system
#define __threadfence_system() ((void)0)
#elif defined IS_UNRELEASED /* the numbers before a flag are not */
#undef flag_raise
#define flag_raise(p, v) simt_flag_raise((p), (v))
#elif defined IS_UNSEEN /* those behind it */
#undef flag_seen
#define flag_seen() ((void)0)
#elif defined IS_APART /* the norm does not wait for the sum of its block's threads */
#undef sum_seen
#define sum_seen() ((void)0)
#endif
#include "window.cu"
