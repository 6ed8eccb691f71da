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
  const ran = await shell.run(
    `mgw video c submit "a boat" -m vendor-h3-mini --key boat-1 &&
     mgw completion bash > mgw.bash && mgw completion zsh > fpath/_mgw && mgw completion fish > mgw.fish`,
  );
  expect(ran.code, ran.stderr).toBe(0);
  for (const name of ['body.json', 'my clip.mp4']) writeFileSync(join(shell.home, name), '{}');
});
afterAll(() => shell.close());

function output(program: string, args: string[]): string {
  const { stdout, stderr } = spawnSync(program, args, { cwd: shell.home, env: shell.env, encoding: 'utf8' });
  expect(stderr).toBe('');
  return stdout;
}

/** A line that ends with the word to complete, and its completions. */
type Case = [line: string, offered: string[]];

// Other completions: test/cli/commands/completion.test.ts.
const cases: Case[] = [
  ['video c submit -m vendor-h3-m', ['vendor-h3-mini']],
  ['jobs show @bo', ['@boat-1']],
  ['jobs show @la', ['@last']],
];

const bashScript = `
source mgw.bash
# As bash itself splits a line: at blanks, = and :.
COMP_LINE="mgw $1" COMP_POINT=\${#COMP_LINE}
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
_mgw 2>/dev/null
printf '%s\\n' "\${COMPREPLY[@]}"`;

function inBash(line: string): string[] {
  return linesOf(output('bash', ['--norc', '-c', bashScript, 'bash', line]));
}

// A zsh inside zsh, which types into it: the completion appears on its line.
const zshScript = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=''; fpath=(\\$PWD/fpath \\$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell "tell() { print -r -- \\"<\\$BUFFER>\\" > line }; zle -N tell; bindkey '^X' tell; touch ready"
repeat 2000; do [[ -e ready ]] && break; sleep 0.01; done
zpty -w -n shell "mgw $1"$'\\t\\x18'
repeat 2000; do [[ -s line ]] && break; sleep 0.01; done
cat line
zpty -d shell`;

function inZsh(line: string): string {
  spawnSync('rm', ['-f', 'line', 'ready'], { cwd: shell.home });
  return output('zsh', ['-f', '-c', zshScript, 'zsh', line]).trim();
}

function inFish(line: string): string[] {
  const script = `source mgw.fish; complete -C 'mgw ${line}'`;
  return linesOf(output('fish', ['--no-config', '-c', script])).map((each) => each.split('\t')[0] ?? '');
}

function linesOf(text: string): string[] {
  return text.split('\n').filter((line) => line !== '');
}

describe.skipIf(!has('bash'))('completion in bash', () => {
  it.each(cases)('completes "mgw %s"', (line, offered) => expect(inBash(line)).toEqual(offered));

  it.each<Case>([
    ['video c submit --resolution=2', ['2K']],
    ['video c submit --aspect-ratio 16:', ['9']],
    ['video c submit --aspect-ratio=21:', ['9']],
    ['video c submit --body @bo', ['@body.json']],
    ['video c submit --body=@bo', ['@body.json']],
    ['video c submit -o my', ['my clip.mp4']],
    ['batch run clips.csv -d reso', ['resolution=']],
    ['video c submit --prompt ', []],
  ])('completes "mgw %s"', (line, offered) => expect(inBash(line)).toEqual(offered));

  it('leaves words after -- to the shell', () => {
    expect(inBash('sandbox exec -- body')).toContain('body.json');
  });

  it('runs no code in a key', () => {
    expect(inBash("jobs show '@bo")).toEqual(['@boat-1']);
  });
});

describe.skipIf(!has('zsh'))('completion in zsh', () => {
  it.each(cases)('completes "mgw %s"', (line, [offered = '']) => {
    const head = line.slice(0, line.lastIndexOf(' ') + 1);
    expect(inZsh(line)).toBe(`<mgw ${head}${offered} >`);
  });

  it.each([
    ['video c submit --resolution=2', 'video c submit --resolution=2K '],
    ['video c submit --body @bo', 'video c submit --body @body.json '],
    ['video c submit --body=@bo', 'video c submit --body=@body.json '],
    ['video c submit -o my', 'video c submit -o my\\ clip.mp4 '],
    ['batch run clips.csv -d reso', 'batch run clips.csv -d resolution='],
  ])('completes "mgw %s"', (line, completed) => expect(inZsh(line)).toBe(`<mgw ${completed}>`));
});

describe.skipIf(!has('fish'))('completion in fish', () => {
  it.each(cases)('completes "mgw %s"', (line, offered) => expect(inFish(line)).toEqual(offered));

  it.each<Case>([
    ['video c submit --resolution=2', ['--resolution=2K']],
    ['video c submit --body @bo', ['@body.json']],
    ['video c submit --body=@bo', ['--body=@body.json']],
    ['video c submit -o my', ['my clip.mp4']],
  ])('completes "mgw %s"', (line, offered) => expect(inFish(line)).toEqual(offered));
});

it('the test log names the shells that were tested', () => {
  const missing = ['bash', 'zsh', 'fish'].filter((name) => !has(name));
  if (missing.length > 0)
    console.warn(`Completion was not tried in ${missing.join(', ')}: not on this machine.`);
  expect(readFileSync(join(shell.home, 'mgw.bash'), 'utf8')).toContain('complete -F _mgw mgw');
});
