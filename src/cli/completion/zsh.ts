/** A completion script for zsh, to be a file named `_mgw` on the fpath or to be sourced, which asks mgw itself. */
export const zshCompletion = `#compdef mgw
# zsh completion for mgw, written by "mgw completion zsh"

_mgw() {
  local -a answer values shown
  local kind line
  answer=("\${(@f)$(mgw __complete -- "\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  kind=$answer[1]
  [[ $PREFIX == --*=* ]] && compset -P '*='
  for line in "\${(@)answer[2,-1]}"; do
    values+=("\${line%%$'\\t'*}")
    shown+=("\${line/$'\\t'/  -- }")
  done
  if (( \${#values} )); then
    if [[ $values == *= ]]; then compadd -S '' -l -d shown -a values
    else compadd -l -d shown -a values
    fi
  fi
  case $kind in
    program\\ *)
      (( CURRENT -= \${kind#* } + 1 ))
      words=("\${(@)words[\${kind#* } + 2,-1]}")
      _normal ;;
    'files @')
      if [[ $PREFIX == @* ]]; then compset -P '@'; _files
      else compadd -S '' -- @
      fi ;;
    files) _files ;;
  esac
}

if [[ \${zsh_eval_context[-1]} == loadautofunc ]]; then _mgw "$@"
else compdef _mgw mgw
fi
`;
