import { namesOf, quoted, valuedFlags, type CommandEntry, type FlagEntry } from './tree.ts';

/** A completion script for bash 3.2 and newer: it needs no other package and starts no process. */
export function bashCompletion(entries: readonly CommandEntry[]): string {
  return `# bash completion for mgw, written by "mgw completion bash"
_mgw_words() {
  case $1 in
${entries.map(wordsCase).join('\n')}
  esac
}

_mgw_flags() {
  case $1 in
${entries.map(flagsCase).join('\n')}
  esac
}

_mgw_value() {
  case "$1 $2" in
${entries.flatMap(valueCases).join('\n')}
  esac
}

_mgw_takes_value() {
  case $1 in
    ${valuedFlags(entries).join(' | ')}) return 0 ;;
  esac
  return 1
}

${walk}`;
}

// Walks the words typed so far to the command that is meant, and offers what can follow.
const walk = `_mgw() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} path='' arguments='' word i value
  COMPREPLY=()
  # bash splits --flag=value into three words.
  if [[ $cur == '=' ]]; then cur=''
  elif [[ $prev == '=' ]]; then prev=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if [[ $word == '--' ]]; then arguments=1; break
    elif [[ $word == '=' ]]; then ((i++))
    elif [[ $word == -* ]]; then
      _mgw_takes_value "$word" && [[ \${COMP_WORDS[i + 1]} != '=' ]] && ((i++))
    elif [[ " $(_mgw_words "$path") " == *" $word "* ]]; then path="\${path:+$path }$word"
    fi
  done
  if [[ -n $arguments ]]; then
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -A command -A file -- "$cur"))
    return
  elif _mgw_takes_value "$prev"; then value=$(_mgw_value "$path" "$prev")
  elif [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$(_mgw_flags "$path")" -- "$cur"))
    return
  else value="$(_mgw_words "$path") $(_mgw_value "$path" '')"
  fi
  if [[ $value == *'<file>'* ]]; then
    compopt -o filenames 2>/dev/null
    local IFS=$'\\n'
    COMPREPLY=($(compgen -f -- "$cur"))
  else COMPREPLY=($(compgen -W "$value" -- "$cur"))
  fi
}

complete -F _mgw mgw
`;

function wordsCase({ path, commands }: CommandEntry): string {
  return `    ${quoted(path)}) echo ${quoted(commands.map(({ name }) => name).join(' '))} ;;`;
}

function flagsCase({ path, flags }: CommandEntry): string {
  return `    ${quoted(path)}) echo ${quoted(flags.flatMap(namesOf).join(' '))} ;;`;
}

// One line for each flag whose value can be completed, and one for the arguments of the command.
function valueCases({ path, flags, argument }: CommandEntry): string[] {
  const known = (flag: FlagEntry): boolean => flag.value !== undefined && flag.value.kind !== 'free';
  const lines = flags.filter(known).map((flag) => {
    const patterns = namesOf(flag).map((name) => quoted(`${path} ${name}`));
    return `    ${patterns.join(' | ')}) echo ${quoted(offered(flag.value))} ;;`;
  });
  return argument.kind === 'free'
    ? lines
    : [...lines, `    ${quoted(`${path} `)}) echo ${quoted(offered(argument))} ;;`];
}

function offered(value: FlagEntry['value']): string {
  return value?.kind === 'words' ? value.words.join(' ') : '<file>';
}
