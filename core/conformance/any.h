/* conformance/any.h - the rules that hold for every plugin, by file; any.c has their words. */
#ifndef TSR_CONFORMANCE_ANY_H
#define TSR_CONFORMANCE_ANY_H

#include "conformance/internal.h"

/* any_file.c: the shared object itself */
void tsr_any_loads(struct tsr_case *c);
void tsr_any_one_symbol(struct tsr_case *c);
void tsr_any_no_host_symbols(struct tsr_case *c);
void tsr_any_load_100(struct tsr_case *c);
void tsr_any_unloads(struct tsr_case *c);
/* dlopen(); a file that the host would not open, or that the loader does not take, is a skip. */
void *tsr_any_open(struct tsr_case *c);
/* any_constructors.c */
void tsr_any_no_constructors(struct tsr_case *c);
/* any_text.c: what the descriptor says */
void tsr_any_semver(struct tsr_case *c);
void tsr_any_spdx(struct tsr_case *c);
void tsr_any_sentences(struct tsr_case *c);
/* any_ends.c */
void tsr_any_no_exit(struct tsr_case *c);
void tsr_any_no_crash(struct tsr_case *c);
/* any_options.c */
void tsr_any_works(struct tsr_case *c);
void tsr_any_options_covered(struct tsr_case *c);
void tsr_any_options_boundaries(struct tsr_case *c);
/* Calls f with one option after the other at a boundary of its range, c->options set so; what
 * says which ("option group = 8"). */
void tsr_any_each_boundary(struct tsr_case *c, void (*f)(struct tsr_case *c, const char *what));
/* any_memory.c */
void tsr_any_alloc_fails(struct tsr_case *c);
void tsr_any_leaks(struct tsr_case *c);
void tsr_any_growth(struct tsr_case *c);
void tsr_any_releases(struct tsr_case *c);
void tsr_any_memory_guarded(struct tsr_case *c);
/* Calls f with the 1st, 2nd ... allocation of an exercise set to fail. */
void tsr_any_each_alloc(struct tsr_case *c, void (*f)(struct tsr_case *c, const char *what));
/* any_process.c */
void tsr_any_silent(struct tsr_case *c);
void tsr_any_no_threads(struct tsr_case *c);
void tsr_any_no_forks(struct tsr_case *c);
void tsr_any_fp_mode(struct tsr_case *c);
void tsr_any_locale(struct tsr_case *c);
void tsr_any_signals(struct tsr_case *c);
void tsr_any_signal_mask(struct tsr_case *c);
void tsr_any_working_folder(struct tsr_case *c);
void tsr_any_environment(struct tsr_case *c);
void tsr_any_umask(struct tsr_case *c);
void tsr_any_limits(struct tsr_case *c);
void tsr_any_open_files(struct tsr_case *c);
void tsr_any_host_files(struct tsr_case *c);
void tsr_any_closed_files(struct tsr_case *c);
/* any_host.c */
void tsr_any_destroy_null(struct tsr_case *c);
void tsr_any_host_older(struct tsr_case *c);
void tsr_any_host_newer(struct tsr_case *c);
void tsr_any_no_services(struct tsr_case *c);
void tsr_any_extension_unknown(struct tsr_case *c);
void tsr_any_log_lines(struct tsr_case *c);
void tsr_any_cancel(struct tsr_case *c);
/* any_err.c */
void tsr_any_status_known(struct tsr_case *c);
void tsr_any_err_sentence(struct tsr_case *c);
void tsr_any_err_null(struct tsr_case *c);
void tsr_any_err_small(struct tsr_case *c);

#endif
