/* cli/program.h - the program, from its arguments to its exit code. */
#ifndef TSR_CLI_PROGRAM_H
#define TSR_CLI_PROGRAM_H

/* The whole program but for signals: parses, runs, prints errors; returns the exit code. */
int tsr_cli_main(int argc, char **argv);

#endif
