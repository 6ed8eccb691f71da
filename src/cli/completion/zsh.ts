import { namesOf, quoted, valuedFlags, type CommandEntry, type FlagEntry, type Value } from './tree.ts';

/** A completion script for zsh, to be a file named `_mgw` on the fpath or to be sourced. */
export function zshCompletion(entries: readonly CommandEntry[]): string {
  return `#compdef mgw
# zsh completion for mgw, written by "mgw completion zsh"

_mgw_load() {
  commands=() flags=() argument=''
  case $1 in
${entries.map(loadCase).join('\n')}
  esac
}

_mgw_value() {
  case "$1 $2" in
${entries.flatMap(valueCases).join('\n')}
  esac
}

_mgw_offer() {
  case $1 in
    '<file>') _files ;;
    '') _message 'value' ;;
    *) compadd -- \${=1} ;;
  esac
}

_mgw() {
  local -a commands flags valued
  local path_='' argument='' arguments='' word='' i=0
  valued=(${valuedFlags(entries).join(' ')})
  _mgw_load ''
  for ((i = 2; i < CURRENT; i++)); do
    word=\${words[i]}
    if [[ $word == '--' ]]; then arguments=1; break
    elif [[ $word == -* ]]; then (( \${valued[(Ie)$word]} )) && ((i++))
    elif (( \${\${(@)commands%%:*}[(Ie)$word]} )); then
      path_="\${path_:+$path_ }$word"
      _mgw_load "$path_"
    fi
  done
  word=\${words[CURRENT - 1]}
  if [[ -n $arguments ]]; then
    words=("\${(@)words[i + 1,-1]}") CURRENT=$((CURRENT - i))
    _normal
  elif (( CURRENT > 2 && \${valued[(Ie)$word]} )); then _mgw_offer "$(_mgw_value "$path_" "$word")"
  elif [[ \${words[CURRENT]} == -* ]]; then _describe -o 'flag' flags
  elif (( \${#commands} )); then _describe 'command' commands
  else _mgw_offer "$argument"
  fi
}

if [[ \${zsh_eval_context[-1]} == loadautofunc ]]; then _mgw "$@"
else compdef _mgw mgw
fi
`;
}

function loadCase({ path, commands, flags, argument }: CommandEntry): string {
  const described = commands.map(({ name, description }) => entry(name, description));
  const offeredFlags = flags.flatMap((flag) => namesOf(flag).map((name) => entry(name, flag.description)));
  return `    ${quoted(path)})
      commands=(${described.join(' ')})
      flags=(${offeredFlags.join(' ')})
      argument=${quoted(offered(argument))} ;;`;
}

function valueCases({ path, flags }: CommandEntry): string[] {
  return flags.filter(known).map((flag) => {
    const patterns = namesOf(flag).map((name) => quoted(`${path} ${name}`));
    return `    ${patterns.join(' | ')}) echo ${quoted(offered(flag.value))} ;;`;
  });
}

function known({ value }: FlagEntry): boolean {
  return value !== undefined && value.kind !== 'free';
}

function offered(value: Value | undefined): string {
  if (value?.kind === 'words') return value.words.join(' ');
  return value?.kind === 'file' ? '<file>' : '';
}

// _describe splits at the first colon that is not escaped.
function entry(name: string, description: string): string {
  return quoted(
    `${name.replaceAll(':', '\\:')}:${description.replaceAll('\\', '\\\\').replaceAll(':', '\\:')}`,
  );
}
