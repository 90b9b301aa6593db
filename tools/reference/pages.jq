# Pages of docs/reference from `tessera help --json` (.help) and the components of `tessera inspect --json`
# (.components; what devices a plugin was built for is left out), with the paragraphs of `tessera help VERB` (.details): a list of {path, text}.

def cell: gsub("\\|"; "\\|") | gsub("\n"; " ");
def sentence: (.[0:1] | ascii_upcase) + .[1:] | if test("[.!?:]$") then . else . + "." end;
def code: "`" + . + "`";

# 9e18 and 1e300 stand for no limit in the tables.
def range:
    if .min == null then ""
    elif .max >= 9e18 then " from \(.min)"
    elif .min <= -9e18 then " up to \(.max)"
    else " \(.min) to \(.max)" end;

def kind:
    if .type == "string" and .unit then .unit | ascii_downcase | gsub("\\|"; " or ") else
    ({bool: "switch", int: "integer", real: "number", enum: "name", string: "text", yaml: "YAML", list: "list"}[.type])
    + range end;

# An integer as an integer: jq prints 5E+9 and the like otherwise.
def number: if . == floor and fabs < 1e15 then (. + 0 | tostring) else tostring end;

def default:
    if .required then "required"
    elif .default == null or .default == "" then ""
    elif (.default | type) == "boolean" then (if .default then "on" else "off" end)
    elif (.default | type) == "number" then .default | number
    else .default | tostring | cell | code end;

def choices:
    [.[] | select(.choices and any(.choices[]; .help)) |
        "Values of `\(.shown)`:\n\n" + ([.choices[] | "- `\(.name)`" + (if .help then ": \(.help)" else "" end)] | join("\n"))]
    | if length > 0 then "\n\n" + join("\n\n") else "" end;

def table($head):
    if length == 0 then "None."
    else "| \($head) | Type | Default | Unit | Meaning |\n|---|---|---|---|---|\n" +
        ([.[] | "| \(.shown | cell | code) | \(if .choices then [.choices[].name] | join(", ") else kind end | cell)"
            + " | \(default) | \(if .type == "string" then "" else .unit // "" end) | \(.help // "" | sentence | cell)"
            + (if .replaced_by then " Deprecated; use `\(.replaced_by)`." else "" end) + " |"] | join("\n"))
        + choices end;

def flags: map(.shown = (if .letter then "-\(.letter), " else "" end)
    + (if .type == "bool" and .default == true then "--no-" else "--" end) + .flag
    + (if .value == "" then "" else " " + .value end));
def keys_of: map(.shown = .name);

def verb_page($details): {path: "verbs/\(.name).md", text:
    ("# tessera \(.name)\n\n\(.summary | sentence)\n\n```\ntessera \(.name)"
    + (if (.options | length) > 0 then " [OPTION...]" else "" end) + (if .args != "" then " " + .args else "" end) + "\n```\n\n"
    + (if $details[.name] != "" then "```text\n\($details[.name])\n```\n\n" else "" end)
    + "## Options\n\n" + (.options | flags | table("Option"))
    + (if .step then "\n\nThe verb runs the step [\(.step)](../steps/\(.step).md) of a job." else "" end)
    + "\n\n[Options of every verb](../verbs.md#options-of-every-verb)\n")};

def step_page: {path: "steps/\(.name).md", text:
    ("# Step \(.name)\n\n\(.summary | sentence)\n\n## Keys\n\n" + (.options | keys_of | table("Key"))
    + (if .open then "\n\nFurther keys are options of the plugin that the step uses." else "" end) + "\n")};

def plugin_page: {path: "plugins/\(.kind)-\(.name).md", text:
    ("# \(.kind | sentence | rtrimstr(".")) \(.name)\n\n\(.summary | sub("; built for .*"; ".") | sentence)\n\n| | |\n|---|---|\n| Plugin | `\(.id)` |\n| Licence | \(.license) |\n"
    + (if .dtypes then "| Takes | \(.dtypes | join(", ")) |\n" else "" end)
    + (if (.promises // []) != [] then "| Promises | \(.promises | join(", ")) |\n" else "" end)
    + (if (.supports // []) != [] then "| Supports | \(.supports | join(", ")) |\n" else "" end)
    + (if (.functions // []) != [] then "| Optional functions | \(.functions | join(", ")) |\n" else "" end)
    + "\n## Options\n\n" + (.options | keys_of | table("Option")) + "\n")};

def verbs_index: {path: "verbs.md", text:
    ("# Verbs\n" + ([.help.verbs | group_by(.group)[] | "\n## \(.[0].group | sentence | rtrimstr("."))\n\n"
        + ([.[] | "- [\(.name)](verbs/\(.name).md): \(.summary)"] | join("\n"))] | join("\n"))
    + "\n\n## Options of every verb\n\n" + (.help.common | flags | table("Option")) + "\n")};

def job_page: {path: "job.md", text:
    ("# Job file\n\nKeys at the top of a job file; `pipeline` lists the [steps](README.md#steps).\n\n"
    + (.help.job | keys_of | table("Key")) + "\n")};

[verbs_index, job_page, (.details as $details | .help.verbs[] | verb_page($details)), (.help.steps[] | select(.plugin == null) | step_page), (.components[] | plugin_page)]
