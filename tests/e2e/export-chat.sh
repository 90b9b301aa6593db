#!/bin/bash
# tests/e2e/export-chat.sh TESSERA - a model keeps its chat templates through every format, wherever they stand in it.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
chatml() { jq -j '.templates[] | select(.key == "chatml") | .template' "$ROOT/tests/golden/chat/chat.json"; }
chatml >"$WORK/chatml"
run convert @demo -o plain --to hf
ok "a folder, got $rc" test "$rc" = 0
C=tokenizer_config.json

# place NAME COMMAND: a copy of the folder, in which the command puts the template somewhere
place() {
    cp -r "$WORK/plain" "$WORK/$1"
    (cd "$WORK/$1" && eval "$2")
}
place jinja 'cp ../chatml chat_template.jinja'
# shellcheck disable=SC2016 # jq reads these
place config 'jq --rawfile t ../chatml ". + {chat_template: \$t}" ../plain/$C >$C'
# shellcheck disable=SC2016
place list 'jq --rawfile t ../chatml ". + {chat_template: [{name: \"tool-use\", template: \"{{ tools }}\\n\"}, {name: \"default\", template: \$t}]}" ../plain/$C >$C'
# shellcheck disable=SC2016
place processor 'jq -n --rawfile t ../chatml "{chat_template: \$t}" >chat_template.json'
# the file wins over what tokenizer_config.json says
# shellcheck disable=SC2016
place both 'cp ../chatml chat_template.jinja && jq ". + {chat_template: \"{{ other }}\"}" ../plain/$C >$C'

template() { # FOLDER: the text that stands in it, in whichever place
    if [ -e "$WORK/$1/chat_template.jinja" ]; then
        cat "$WORK/$1/chat_template.jinja"
    elif [ "$(jq '.chat_template' "$WORK/$1/$C")" != null ]; then
        jq -j '.chat_template | if type == "array" then .[] | select(.name == "default") | .template else . end' "$WORK/$1/$C"
    else
        jq -j .chat_template "$WORK/$1/chat_template.json"
    fi
}
says() { # MODEL: an answer to a chat
    run generate "$1" --chat --prompt Hello --system 'You are.' --max-tokens 8 --greedy
    ok "a chat with $1, got $rc" test "$rc" = 0
    cat "$WORK/out"
}
fails "no template" 2 '' generate plain --chat --prompt x
run quantize jinja --use rtn --bits 4 --group 32 --symmetric -o packed -q
want=$(says jinja)
ok "a packed folder keeps it" cmp -s "$WORK/chatml" <(template packed)
for from in jinja config list processor both; do
    ok "$from: the same answer" test "$(says "$from")" = "$want"
    run convert "$from" -o "$from.gguf" --to gguf
    ok "$from to gguf, got $rc" test "$rc" = 0
    ok "$from: the file answers the same" test "$(says "$from.gguf")" = "$want"
    run convert "$from" -o "$from.tsr" --to prepacked
    ok "$from: a prepacked file answers the same" test "$(says "$from.tsr")" = "$want"
    run convert "$from.gguf" -o "$from.again.gguf" --to gguf
    ok "$from: gguf to gguf answers the same" test "$(says "$from.again.gguf")" = "$want"
    for to in "$from" "$from.gguf"; do
        run convert "$to" -o "$to.hf" --to hf
        ok "$to to a folder, got $rc" test "$rc" = 0
        ok "$to: to the last byte" cmp -s "$WORK/chatml" <(template "$to.hf")
        ok "$to: the folder answers the same" test "$(says "$to.hf")" = "$want"
    done
done
ok "other templates go along, by the names of llama.cpp" json '.chat_template | length == 2 and
    any(.[]; .name == "tool_use" and .template == "{{ tools }}\n")' "$WORK/list.gguf.hf/$C"
for to in gptq compressed-tensors; do
    run convert packed -o "as-$to" --to $to
    ok "$to keeps it, got $rc" cmp -s "$WORK/chatml" <(template "as-$to")
done
run convert packed -o packed.gguf --to gguf
ok "packed to gguf, got $rc" test "$rc" = 0
run convert packed.gguf -o packed.gptq --to gptq
ok "gguf to gptq keeps it" cmp -s "$WORK/chatml" <(template packed.gptq)

# further templates in a folder of their own: by name, in every format
place named 'cp ../chatml chat_template.jinja && mkdir additional_chat_templates &&
    echo "rag: {{ messages[0].content }}" >additional_chat_templates/rag.jinja &&
    echo "{{ raise_exception(1) }}" >additional_chat_templates/second.jinja &&
    echo "x" >additional_chat_templates/README.md &&
    jq ". + {chat_template: [{name: \"rag\", template: \"other\"}, {name: \"third\", template: \"t\"}]}" ../plain/$C >$C'
want_named=$(run generate named --chat --template rag --prompt Hello --max-tokens 8 --greedy && cat "$WORK/out")
ok "the named template is another one" test "$want_named" != "$want" -a -n "$want_named"
ok "the default is what it was" test "$(says named)" = "$want"
run inspect named --json
ok "inspect lists the names" json '.model.chat_templates == ["default", "rag", "second", "third"]' "$WORK/out"
run inspect named
ok "and prints them" grep -q 'chat templates: default, rag, second, third' "$WORK/out"
run inspect ./plain --json
ok "a model without templates" json '.model.chat_templates == []' "$WORK/out"
fails "a name that is not there" 2 fourth generate named --chat --template fourth --prompt x
run quantize named --use rtn --bits 4 --group 32 --symmetric -o named-packed -q
for form in named.hf:hf named.tsr:prepacked named.gguf:gguf; do
    run convert named -o "${form%:*}" --to "${form#*:}"
    ok "$form, got $rc" test "$rc" = 0
    run generate "${form%:*}" --chat --template rag --prompt Hello --max-tokens 8 --greedy
    ok "$form: the same answer by name" test "$(cat "$WORK/out")" = "$want_named"
    run inspect "${form%:*}" --json
    ok "$form: the names are there" json '.model.chat_templates == ["default", "rag", "second", "third"]' "$WORK/out"
done
for to in named.hf named-packed; do
    ok "$to: the files are the same" diff -r --exclude README.md "$WORK/named/additional_chat_templates" \
        "$WORK/$to/additional_chat_templates"
done
# in the hub's cache the files are links to its blobs; other links are refused
H=$WORK/hub/models--a--b
mkdir -p "$H/blobs" "$H/snapshots/1/additional_chat_templates" "$H/refs"
cp "$WORK"/plain/* "$H/snapshots/1/"
cp "$WORK/named/additional_chat_templates/rag.jinja" "$H/blobs/r"
ln -s ../../../blobs/r "$H/snapshots/1/additional_chat_templates/rag.jinja"
run generate hub/models--a--b/snapshots/1 --chat --template rag --prompt Hello --max-tokens 8 --greedy
ok "a link to a blob of the hub, got $rc" test "$(cat "$WORK/out")" = "$want_named"
echo secret >"$WORK/outside"
ln -s "$WORK/outside" "$H/snapshots/1/additional_chat_templates/out.jinja"
fails "a link out of the folder" 2 '*/out.jinja' generate hub/models--a--b/snapshots/1 --chat --template out --prompt x
run generate hub/models--a--b/snapshots/1 --chat --template rag --prompt Hello --max-tokens 8 --greedy
ok "next to one that is chosen, it is a warning, got $rc" test "$(cat "$WORK/out")" = "$want_named"
ok "the warning names it" grep -q 'warning.*/out.jinja' "$WORK/err"
# a file that is no text fails the chats that choose it, not the others
place wrong 'cp ../chatml chat_template.jinja && mkdir additional_chat_templates &&
    printf "\\377" >additional_chat_templates/rag.jinja && printf "\\377" >additional_chat_templates/tool_use.jinja &&
    jq ". + {chat_template: [{name: \"rag\", template: \"other\"}]}" ../plain/$C >$C'
ok "a default next to bad ones" test "$(says wrong)" = "$want"
ok "the warnings name them" test "$(grep -c 'warning.*\(rag\|tool_use\).jinja: is not UTF-8 text' "$WORK/err")" = 2
fails "a bad one" 2 '*/rag.jinja' generate wrong --chat --template rag --prompt x
fails "a bad one in a GGUF file" 2 '*/rag.jinja*' convert wrong -o x.gguf --to gguf
for tools in '' ',"tools":[{"a":1}]'; do
    echo '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}],"max_tokens":2'"$tools"'}}'
done | jq -c '.custom_id += "\(input_line_number)"' >"$WORK/tools.jsonl"
run batch wrong -i tools.jsonl -o tools.out
ok "only the conversation with tools fails" json -s 'map(.error.message // "" | test("tool_use.jinja: is not UTF-8")) | sort ==
    [false, true]' "$WORK/tools.out"
mkdir "$WORK/elsewhere"
echo "x" >"$WORK/elsewhere/a.jinja"
place linked 'ln -s ../elsewhere additional_chat_templates'
fails "a folder that is a link out of it" 2 '*/a.jinja' generate linked --chat --template a --prompt x

# what a GGUF file cannot hold is refused before there is a file
# shellcheck disable=SC2016
place twice 'jq ". + {chat_template: [{name: \"a b\", template: \"x\"}, {name: \"a_b\", template: \"y\"}]}" ../plain/$C >$C'
fails "two names become one" 2 'x.gguf' convert twice -o x.gguf --to gguf
# shellcheck disable=SC2016
place nul 'jq ". + {chat_template: \"a\\u0000b\"}" ../plain/$C >$C'
fails "NUL" 2 'x.gguf' convert nul -o x.gguf --to gguf
ok "no file" test ! -e "$WORK/x.gguf"
finish
