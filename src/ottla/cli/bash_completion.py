"""Completion in bash, which splits words at ``=`` and ``:`` as well, so that ``KEY=VALUE`` and ``host:port`` reach click in pieces.

The script here passes the line instead, and takes back what follows the last of these characters. Importing this module has click use it.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion type value
    for completion in $(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_BREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete $1); do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class WholeWordsInBash(BashComplete):
    """Completion in bash whose words end at blanks alone."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        self._incomplete = "" if not words or line[-1:].isspace() else words.pop()
        return words[1:], self._incomplete

    def format_completion(self, item: CompletionItem) -> str:
        breaks = re.escape("".join({*os.environ["COMP_BREAKS"]} & {*"=:"}))
        kept = re.match(f".*[{breaks}]", self._incomplete) if breaks else None
        return f"{item.type},{item.value[kept.end() if kept else 0 :]}"
