/* conformance/any/any.h - the rules that hold for every plugin, by file; any.c has their words. */
#ifndef TSR_CONFORMANCE_ANY_ANY_H
#define TSR_CONFORMANCE_ANY_ANY_H

#include "conformance/internal.h"

/* file.c: the shared object itself */
void tsr_any_loads(struct tsr_conformance_case *c);
void tsr_any_one_symbol(struct tsr_conformance_case *c);
void tsr_any_no_host_symbols(struct tsr_conformance_case *c);
void tsr_any_load_100(struct tsr_conformance_case *c);
void tsr_any_unloads(struct tsr_conformance_case *c);
/* dlopen(); a file that the host would not open, or that the loader does not take, is a skip. */
void *tsr_any_open(struct tsr_conformance_case *c);
/* constructors.c */
void tsr_any_no_constructors(struct tsr_conformance_case *c);
/* text.c: the content of the descriptor */
void tsr_any_semver(struct tsr_conformance_case *c);
void tsr_any_spdx(struct tsr_conformance_case *c);
void tsr_any_sentences(struct tsr_conformance_case *c);
/* ends.c */
void tsr_any_no_exit(struct tsr_conformance_case *c);
void tsr_any_no_crash(struct tsr_conformance_case *c);
/* options.c */
void tsr_any_works(struct tsr_conformance_case *c);
void tsr_any_options_covered(struct tsr_conformance_case *c);
void tsr_any_options_boundaries(struct tsr_conformance_case *c);
/* Calls f once for each boundary of an option's range, with c->options set to it; what names it ("option
 * group = 8"). */
void tsr_any_each_boundary(struct tsr_conformance_case *c,
                           void (*f)(struct tsr_conformance_case *c, const char *what));
/* memory.c */
void tsr_any_alloc_fails(struct tsr_conformance_case *c);
void tsr_any_leaks(struct tsr_conformance_case *c);
void tsr_any_growth(struct tsr_conformance_case *c);
void tsr_any_releases(struct tsr_conformance_case *c);
void tsr_any_memory_guarded(struct tsr_conformance_case *c);
/* Calls f with the 1st, 2nd ... allocation of an exercise set to fail. */
void tsr_any_each_alloc(struct tsr_conformance_case *c,
                        void (*f)(struct tsr_conformance_case *c, const char *what));
/* process.c */
void tsr_any_silent(struct tsr_conformance_case *c);
void tsr_any_no_threads(struct tsr_conformance_case *c);
void tsr_any_no_forks(struct tsr_conformance_case *c);
void tsr_any_fp_mode(struct tsr_conformance_case *c);
void tsr_any_locale(struct tsr_conformance_case *c);
void tsr_any_signals(struct tsr_conformance_case *c);
void tsr_any_signal_mask(struct tsr_conformance_case *c);
void tsr_any_working_folder(struct tsr_conformance_case *c);
void tsr_any_environment(struct tsr_conformance_case *c);
void tsr_any_umask(struct tsr_conformance_case *c);
void tsr_any_limits(struct tsr_conformance_case *c);
void tsr_any_open_files(struct tsr_conformance_case *c);
void tsr_any_host_files(struct tsr_conformance_case *c);
void tsr_any_closed_files(struct tsr_conformance_case *c);
/* host.c */
void tsr_any_destroy_null(struct tsr_conformance_case *c);
void tsr_any_host_older(struct tsr_conformance_case *c);
void tsr_any_host_newer(struct tsr_conformance_case *c);
void tsr_any_no_services(struct tsr_conformance_case *c);
void tsr_any_extension_unknown(struct tsr_conformance_case *c);
void tsr_any_log_lines(struct tsr_conformance_case *c);
void tsr_any_cancel(struct tsr_conformance_case *c);
/* err.c */
void tsr_any_status_known(struct tsr_conformance_case *c);
void tsr_any_err_sentence(struct tsr_conformance_case *c);
void tsr_any_err_null(struct tsr_conformance_case *c);
void tsr_any_err_small(struct tsr_conformance_case *c);

#endif
