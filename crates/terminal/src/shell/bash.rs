//! The completion script for bash. Bash parts words at `=` and `:`, which settings and names of tunnels have: the
//! script joins them before it asks, and gives bash the part that is missing.

use super::VARIABLE;

const SCRIPT: &str = r#"_NAME_complete() {
    local word before line=$COMP_LINE index=0 n
    local -a words=()
    for ((n = 0; n < ${#COMP_WORDS[@]}; n++)); do
        word=${COMP_WORDS[n]}
        before=$line
        line=${line#"${line%%[![:space:]]*}"}
        if ((n > 0)) && [[ $line == "$before" ]] &&
            [[ $word == [=:]* || ${words[${#words[@]} - 1]} == *[=:] ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        line=${line#"$word"}
        ((n == COMP_CWORD)) && index=$((${#words[@]} - 1))
    done
    local whole=${words[index]} missing=$2
    local known=${whole%"$missing"}
    mapfile -t COMPREPLY < <(VARIABLE=bash _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$index \
        _CLAP_COMPLETE_COMP_TYPE=$COMP_TYPE _CLAP_COMPLETE_SPACE=false \
        NAME -- "${words[@]}" 2> /dev/null)
    COMPREPLY=("${COMPREPLY[@]#"$known"}")
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} != *[=/:] ]]; then
        compopt +o nospace 2> /dev/null
    fi
}
complete -o nospace -o bashdefault -F _NAME_complete NAME
"#;

/// The script for a command.
pub(super) fn script(name: &str) -> String {
    SCRIPT.replace("NAME", name).replace("VARIABLE", VARIABLE)
}
