#include "cli/program.h"

#include "base/event.h"
#include "base/log.h"
#include "base/output.h"
#include "base/stdout.h"
#include "checkpoint/hub.h"
#include "cli/args.h"
#include "cli/failure.h"
#include "cli/help.h"
#include "cli/jobs.h"
#include "cli/supervise.h"
#include "model/family.h"
#include "plugin/guard.h"
#include "quant/decoder.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wants_colour(enum tsr_color choice)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (choice != TSR_CLI_COLOR_AUTO)
        return choice == TSR_CLI_COLOR_ALWAYS;
    return !(no && *no) && !(term && strcmp(term, "dumb") == 0) && isatty(STDERR_FILENO);
}

static tsr_status set_log(const struct tsr_cli_common *o, struct tsr_err *err)
{
    const char *env = getenv("TSR_LOG");
    int32_t     level = TSR_LOG_WARN;
    if (env && *env) {
        static const char *const names[] = { "debug", "info", "warn" };
        level = -1;
        for (int32_t i = 0; i < 3; i++)
            if (strcmp(env, names[i]) == 0)
                level = i;
        if (level < 0)
            return tsr_fail(err, TSR_E_INPUT, "TSR_LOG is '%s'; it must be debug, info or warn",
                            env);
    }
    if (o->verbose)
        level = o->verbose > 1 ? TSR_LOG_DEBUG : TSR_LOG_INFO;
    tsr_log_set_level(level);
    tsr_progress_quiet(o->quiet);
    return TSR_OK;
}

static tsr_status add_families(struct tsr_cli *c, const struct tsr_cli_strings *files,
                               struct tsr_err *err)
{
    for (uint64_t i = 0; i < files->n; i++) {
        struct tsr_diag *d;
        TSR_TRY(tsr_config_diag_create(&d, err));
        tsr_status st = tsr_model_family_add(files->v[i], d, err);
        if (tsr_config_diag_errors(d))
            st = tsr_cli_diag(c, d, files->v[i], err);
        tsr_config_diag_destroy(d);
        TSR_TRY(st);
    }
    return TSR_OK;
}

static tsr_status run(struct tsr_cli_args *a, struct tsr_cli *c, struct tsr_err *err)
{
    const struct tsr_cli_common *o = &a->common;
    TSR_TRY(set_log(o, err));
    if (o->version) {
        (void)printf("%s\n", tsr_cli_version_line());
        return tsr_cli_flush(err);
    }
    if (o->help || o->help_all || !a->verb) {
        if (a->verb)
            tsr_cli_help_verb(a->verb, o->help_all != 0, stdout);
        else
            tsr_cli_help_program(stdout);
        return tsr_cli_flush(err);
    }
    c->json = o->json != 0;
    tsr_event_json(c->json);
    c->quiet = o->quiet != 0;
    c->colour = wants_colour((enum tsr_color)o->color);
    c->threads = (uint32_t)o->threads;
    c->plugin_paths = o->plugin_path.v;
    c->n_plugin_paths = o->plugin_path.n;
    c->sets = o->set.v;
    c->n_sets = o->set.n;
    c->verb = a->verb;
    tsr_checkpoint_hub_use(o->hf_cache);
    TSR_TRY(add_families(c, &o->family, err));
    TSR_TRY(a->verb->run(c, a->opts, a->args, a->n_args, err));
    return tsr_cli_flush(err);
}

int tsr_cli_main(int argc, char **argv)
{
    struct tsr_errbuf   e = TSR_ERRBUF(e);
    struct tsr_cli_args a;
    struct tsr_cli      c = { .argc = argc, .argv = argv };
    tsr_status          st = tsr_cli_args_parse(&a, argc, argv, &e.err);
    if (st == TSR_OK)
        st = run(&a, &c, &e.err);
    tsr_quant_decoders_close();
    tsr_plugin_registry_destroy(c.registry);
    tsr_pool_destroy(c.pool);
    tsr_plugin_guard_look_held();
    if (st == TSR_OK && tsr_plugin_guard_fault())
        st = tsr_fail(&e.err, TSR_E_PLUGIN, "%s", tsr_plugin_guard_fault());
    c.json = a.common.json != 0;
    for (int i = 1; i < argc && st != TSR_OK && !c.json; i++) /* --json after the error */
        c.json = strcmp(argv[i], "--json") == 0;
    c.colour = wants_colour((enum tsr_color)a.common.color);
    tsr_cli_args_free(&a);
    if (st == TSR_E_CANCELLED || (st != TSR_OK && !tsr_stdout_gone()))
        tsr_cli_failure_print(&c, st, &e.err);
    json_decref(c.diagnostics);
    int code = st == TSR_OK && c.ended ? c.code : st == TSR_OK && c.no ? 1 : tsr_exit_code(st);
    if (code != 0)
        tsr_output_unmake();
    tsr_cli_tell_code(code);
    if (c.hard) {
        (void)fflush(NULL);
        _exit(code);
    }
    return code;
}
