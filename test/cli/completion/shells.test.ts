import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newShell, type Shell } from '../../support/shell.ts';

const has = (shell: string): boolean => spawnSync(shell, ['-c', 'true']).status === 0;
let shell: Shell;

beforeAll(async () => {
  shell = newShell({ MGW_SANDBOX: '1', TERM: 'dumb' });
  mkdirSync(join(shell.home, 'fpath'));
  for (const line of [
    'mgw video c submit "a boat" -m vendor-h3-mini --key boat-1',
    'mgw completion bash > mgw.bash',
    'mgw completion zsh > fpath/_mgw',
    'mgw completion fish > mgw.fish',
  ]) {
    const ran = await shell.run(line);
    expect(ran.code, ran.stderr).toBe(0);
  }
  for (const name of ['body.json', 'my clip.mp4']) writeFileSync(join(shell.home, name), '{}');
});
afterAll(() => shell.close());

/** Runs a script with the given lines as arguments, and returns its output. */
async function output(program: string, script: string, ...lines: string[]): Promise<string> {
  writeFileSync(join(shell.home, '.script'), script);
  const words = lines.map((line) => `'${line.replaceAll("'", `'\\''`)}'`);
  const { stdout, stderr } = await shell.run(`${program} .script ${words.join(' ')}`);
  expect(stderr).toBe('');
  return stdout;
}

/** Command lines that end with the word to complete, and the expected completions. */
type Cases = Record<string, string>;

const bashScript = `
source mgw.bash
for typed in "$@"; do
# As bash itself splits a line: at blanks, = and :.
COMP_LINE="mgw $typed" COMP_POINT=\${#COMP_LINE}
COMP_WORDS=() word=''
for ((i = 0; i < \${#COMP_LINE}; i++)); do
  letter=\${COMP_LINE:i:1}
  case $letter in
    ' ') [[ -n $word ]] && COMP_WORDS+=("$word"); word='' ;;
    [=:]) [[ -n $word ]] && COMP_WORDS+=("$word"); COMP_WORDS+=("$letter"); word='' ;;
    *) word+=$letter ;;
  esac
done
[[ -n $word || \${COMP_LINE: -1} == ' ' ]] && COMP_WORDS+=("$word")
COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
COMPREPLY=()
_mgw 2>/dev/null
printf '%s,' "\${COMPREPLY[@]}"
echo
done`;

// Starts a zsh inside another zsh, and sends it keystrokes. The inner zsh prints the completed line.
const zshScript = `
zmodload zsh/zpty zsh/zselect
zpty shell zsh -f -i
zpty -w shell "PS1=''; fpath=(\\$PWD/fpath \\$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell "tell() { print -r -- \\"<\\$BUFFER>\\" > line }; zle -N tell; bindkey '^X' tell; touch ready"
repeat 2000; do [[ -e ready ]] && break; zselect -t 1; done
for typed in "$@"; do
  rm -f line
  zpty -w -n shell $'\\x15'"mgw $typed"$'\\t\\x18'
  repeat 2000; do [[ -s line ]] && break; zselect -t 1; done
  cat line
done
zpty -d shell`;

const fishScript = `
source mgw.fish
for typed in $argv
complete -C "mgw $typed" | string split --fields 1 \\t | string join ,
end`;

function linesOf(text: string): string[] {
  return text.split('\n').filter((line) => line !== '');
}

// test/cli/commands/completion.test.ts covers the other completions.
describe.skipIf(!has('bash'))('completion in bash', () => {
  it('completes words in a command line, but not after --, and executes no code in a key', async () => {
    const cases: Cases = {
      'jobs show @la': '@last,',
      'jobs show @bo': '@boat-1,',
      "jobs show '@bo": '@boat-1,',
      'video c submit --aspect-ratio 16:': '9,',
      'video c submit --body=@bo': '@body.json,',
      'video c submit -o my': 'my clip.mp4,',
      'batch run clips.csv -d reso': 'resolution=,',
      'video c submit --prompt ': ',',
      'sandbox exec -- my': 'my clip.mp4,',
    };
    const lines = linesOf(await output('bash --norc', bashScript, ...Object.keys(cases)));
    expect(lines).toEqual(Object.values(cases));
  });
});

describe.skipIf(!has('zsh'))('completion in zsh', () => {
  it('completes words in a command line', async () => {
    const cases: Cases = {
      'jobs show @bo': 'jobs show @boat-1 ',
      'video c submit --resolution=2': 'video c submit --resolution=2K ',
      'video c submit --body=@bo': 'video c submit --body=@body.json ',
      'video c submit -o my': 'video c submit -o my\\ clip.mp4 ',
      'batch run clips.csv -d reso': 'batch run clips.csv -d resolution=',
    };
    const lines = linesOf(await output('zsh -f', zshScript, ...Object.keys(cases)));
    expect(lines).toEqual(Object.values(cases).map((line) => `<mgw ${line}>`));
  });
});

describe.skipIf(!has('fish'))('completion in fish', () => {
  it('completes words in a command line', async () => {
    const cases: Cases = {
      'jobs show @bo': '@boat-1',
      'video c submit --resolution=2': '--resolution=2K',
      'video c submit --body @bo': '@body.json',
      'video c submit -o my': 'my clip.mp4',
    };
    const lines = linesOf(await output('fish --no-config', fishScript, ...Object.keys(cases)));
    expect(lines).toEqual(Object.values(cases));
  });
});

it('the test log lists shells that are not tested', () => {
  const missing = ['bash', 'zsh', 'fish'].filter((name) => !has(name));
  if (missing.length > 0)
    console.warn(`Completion was not tested in ${missing.join(', ')}, which this machine lacks.`);
  expect(readFileSync(join(shell.home, 'mgw.bash'), 'utf8')).toContain('complete -F _mgw mgw');
});
