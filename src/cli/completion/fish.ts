import { valuedFlags, type CommandEntry, type FlagEntry, type Value } from './tree.ts';

/** A completion script for fish 3 and newer. */
export function fishCompletion(entries: readonly CommandEntry[]): string {
  const paths = entries.map(({ path }) => path).filter((path) => path !== '');
  return `# fish completion for mgw, written by "mgw completion fish"
function __mgw_path
    set -l path ''
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word ${valuedFlags(entries).join(' ')}
            set skip 1
        else if not string match -q -- '-*' $word
            set -l longer (string trim -- "$path $word")
            contains -- $longer ${paths.map(quote).join(' ')}; and set path $longer
        end
    end
    echo -- $path
end

function __mgw_at
    test (__mgw_path) = "$argv[1]"
end

complete -c mgw -f
${entries.flatMap(lines).join('\n')}
`;
}

function lines({ path, commands, flags, argument }: CommandEntry): string[] {
  const at = `complete -c mgw -n ${quote(`__mgw_at ${quote(path)}`)}`;
  return [
    ...commands.map(({ name, description }) => `${at} -a ${quote(name)} -d ${quote(description)}`),
    ...flags.map((flag) => `${at}${flagNames(flag)}${takes(flag.value, true)} -d ${quote(flag.description)}`),
    ...(argument.kind === 'free' ? [] : [`${at}${takes(argument, false)}`]),
  ];
}

function flagNames({ short, long }: FlagEntry): string {
  return `${short === undefined ? '' : ` -s ${short.slice(1)}`}${long === undefined ? '' : ` -l ${long.slice(2)}`}`;
}

function takes(value: Value | undefined, required: boolean): string {
  if (value === undefined) return '';
  const needs = required ? ' -r' : '';
  if (value.kind === 'words') return `${needs} -a ${quote(value.words.join(' '))}`;
  return value.kind === 'file' ? `${needs} -F` : needs;
}

function quote(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
