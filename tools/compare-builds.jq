# tools/compare-builds.jq - a JSON file as one "path = value" a line, in order, without the values that a second run of the
# same program changes, too.  Each entry is a regular expression over a path ("*" is the number of an element), with its
# reason above.
def dropped: [
    # Seconds that passed: of a step, of a linear in a journal, of a solver, to load, to the first token.
    "(^|/)seconds(/.*)?$", "_s$", "/ttft_s/(least|median|most|each/[*])$",
    # Rates of a run on this machine, and their ratios.  Those of a plan are predictions and stay.
    "(^|results/)run/(tokens_per_second|emulated_tokens_per_second)$", "speed/(prefill|decode)_(tokens_per_s|runs|ratio)(/.*)?$",
    # Times of decode steps in a sweep.
    "(^|/)sweep(\\[[0-9]+\\])?/(.*/)?(decode_|base_)*(ms|slower)$",
    # The most memory that a process had: it depends on the order in which threads take and give back blocks.
    "(^|/)(peak_memory_bytes|peak|load_peak|resident_peak)$",
    # Work on emulated devices that took longer than its pace, and the chart of the times.
    "(^|/)(overrun_ms|overruns)$", "/chart/.*",
    # The hash of a plugin's file, which every change of a source changes: of an inspection, a manifest and a fingerprint.
    "^(plugins|components)/[*]/hash$", "^plugins/org[.][a-z0-9_.]+$",
    # Memory that is free on the machine.
    "^devices/[*]/free_bytes$",
    # The version of Tessera.
    "^version$"
];
# The speed in the sentence of a verdict is measured.
def spoken: if type == "string" then sub("; (prefill|decode) x[0-9].*$"; "") else . end;
# A sweep's point at a target slow-down: its channels follow from measured times, and its perplexity from them.
def aimed: if type == "object" and has("target") and has("slower") then {target} else . end;
dropped as $dropped
| walk(aimed)
| . as $all
| [paths(type != "object" and type != "array" or length == 0)]
| map(. as $path | {at: map(if type == "number" then "*" else . end) | join("/"), path: map(tostring) | join("/"),
        value: $all | getpath($path)} | select(.at as $at | any($dropped[]; . as $re | $at | test($re)) | not))
| sort_by(.path)[]
| "\(.path) = \(.value | spoken | tojson)"
