/** A completion script for bash 3.2 and newer, which asks mgw itself. */
export const bashCompletion = `# bash completion for mgw, written by "mgw completion bash"
_mgw() {
  local line=\${COMP_LINE:0:COMP_POINT} word='' words=() i kind head cur IFS=$' \\t\\n'
  # bash splits words at = and : too; what no blank stands between in the line is one word.
  line=\${line#*"\${COMP_WORDS[0]}"}
  for ((i = 1; i <= COMP_CWORD; i++)); do
    cur=\${COMP_WORDS[i]}
    if [[ $line == [[:space:]]* ]]; then
      ((i > 1)) && words+=("$word")
      word=''
      line=\${line#"\${line%%[![:space:]]*}"}
    fi
    ((i == COMP_CWORD)) && cur=$line
    word+=$cur
    line=\${line#"$cur"}
  done
  words+=("$word")
  # A quote that is open belongs to the shell.
  for i in "\${!words[@]}"; do
    case \${words[i]} in
      \\"*) words[i]=\${words[i]#?}; words[i]=\${words[i]%\\"} ;;
      \\'*) words[i]=\${words[i]#?}; words[i]=\${words[i]%\\'} ;;
    esac
  done
  word=\${words[\${#words[@]} - 1]}
  COMPREPLY=()
  # What readline takes for the word is the last of the pieces.
  cur=\${COMP_WORDS[COMP_CWORD]#[\\"\\']}
  [[ $cur == [=:] ]] && cur=''
  head=\${word%"$cur"}
  [[ $word == --*=* ]] && head=\${head#*=}
  local first=1
  while IFS= read -r cur; do
    if [[ -n $first ]]; then kind=$cur first=''; continue; fi
    cur=\${cur%%$'\\t'*}
    cur=\${cur#"$head"}
    COMPREPLY+=("$(printf '%q' "$cur")")
  done < <(mgw __complete -- "\${words[@]}" 2>/dev/null)
  case $kind in
    program*)
      compopt -o filenames 2>/dev/null
      while IFS= read -r cur; do COMPREPLY+=("$cur"); done < <(compgen -A command -A file -- "$word") ;;
    'files @')
      [[ $word == --*=* ]] && word=\${word#*=}
      compopt -o nospace 2>/dev/null
      if [[ $word != @* ]]; then COMPREPLY+=(@)
      else
        while IFS= read -r cur; do COMPREPLY+=("@$(printf '%q' "$cur")"); done < <(compgen -f -- "\${word#@}")
      fi ;;
    files)
      compopt -o filenames 2>/dev/null
      [[ $word == --*=* ]] && word=\${word#*=}
      while IFS= read -r cur; do COMPREPLY+=("$cur"); done < <(compgen -f -- "$word") ;;
  esac
  [[ \${#COMPREPLY[@]} -eq 1 && \${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}

complete -F _mgw mgw
`;
