import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import stringWidth from 'string-width';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { allCommands, loadAll, topics } from '../../src/cli/command-tree.ts';
import { createProgram } from '../../src/cli/program.ts';
import { runOnScreen } from '../support/screen.ts';

const home = mkdtempSync(join(tmpdir(), 'mgw-screen-'));
const env = {
  HOME: home,
  MGW_STATE_DIR: join(home, 'state'),
  MGW_CONFIG_DIR: join(home, 'config'),
  MGW_SANDBOX: '1',
  TERM: 'xterm',
};

beforeAll(async () => {
  const run = (...args: string[]) => runOnScreen(args, env);
  const prompt = 'a paper boat at sea, in the style of an old woodcut, seen from far above, at night';
  for (const args of [
    ['config', 'set', 'sandbox.pace', '10ms'],
    ['video', 'c', 'submit', prompt, '-m', 'vendor-h3-mini', '--key', 'boat-1', '-o', join(home, 'boat.mp4')],
    ['video', 'a', 'submit', prompt, '-m', 'video-a', '-d', '4'],
    ['tts', 'Good morning.', '-o', join(home, 'morning.mp3')],
    ['budget', 'set', 'clips', '100', '--per', 'month'],
  ])
    expect((await run(...args)).code, args.join(' ')).toBe(0);
  writeFileSync(
    join(home, 'clips.csv'),
    'id,protocol,model,duration,prompt\nintro,c,vendor-h3-mini,5,a boat\n',
  );
  writeFileSync(
    join(home, 'failed.csv'),
    `protocol,model,duration,prompt\nc,vendor-h3-mini,5,"[fail] ${prompt}"\n`,
  );
  writeFileSync(join(home, 'bad.csv'), 'protocol,model,duration,prompt\nc,vendor-h3-mini,4,a boat\n');
  expect((await run('batch', 'run', join(home, 'failed.csv'))).code).toBe(11);
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

const { root } = createProgram([], () => Promise.resolve());
await loadAll(root);
const helps = allCommands(root)
  .filter((command) => !['help'].includes(command.parent?.name() ?? ''))
  .flatMap((command) => ['--help', '--help-all'].map((flag) => [...pathOf(command), flag]));

type Node = (typeof root)['parent'];
function pathOf(command: NonNullable<Node>): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}

// One command for each kind of output: tables, lines, and each kind of error that does not need the network.
const others = [
  [],
  ...topics.map(({ name }) => ['help', name]),
  ['jobs', 'ls'],
  ['jobs', 'show', '@boat-1'],
  ['jobs', 'wait', '@boat-1'],
  ['video', 'c', 'status', '@boat-1'],
  ['models'],
  ['spend'],
  ['budget', 'ls'],
  ['config', 'list'],
  ['config', 'path'],
  ['auth', 'status'],
  ['doctor'],
  ['sandbox', 'bill'],
  ['sandbox', 'faults'],
  ['batch', 'plan', join(home, 'clips.csv')],
  ['batch', 'status', join(home, 'clips.csv')],
  ['batch', 'plan', join(home, 'failed.csv')],
  ['batch', 'status', join(home, 'failed.csv')],
  ['batch', 'run', join(home, 'bad.csv')],
  ['batch', 'ls'],
  ['nonsense'],
  ['video'],
  ['video', 'c', 'submit', 'a boat', '--modell', 'vendor-h3-mini'],
  ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-d', '4', '--resolution', '2K'],
  [
    'video',
    'c',
    'submit',
    'a boat',
    '-m',
    'vendor-h3-mini',
    '--set',
    'refrence_image_urls[0]=https://example.com/a.png',
  ],
  ['jobs', 'show', '@nobody'],
  ['config', 'set', 'nothing', '1'],
  ['tts', 'hello'],
];

// Commands whose output is not truncated to the terminal's width, because people and programs copy it.
const whole = new Set(['config path']);

const codes = /\x1b\[[\d;?]*[a-zA-Z]|\x1b\][^\x07]*\x07/g;
const linesOf = (text: string): string[] => text.replace(codes, '').split(/[\n\r]/);

it.each([
  [40, [...helps, ...others]],
  [80, [...helps.filter((args) => args.at(-1) === '--help-all'), ...others]],
  [200, others],
])('at a width of %i columns, the output of every command fits', async (columns, lines) => {
  for (const args of lines.filter((each) => !whole.has(each.join(' ')))) {
    const { stdout, stderr } = await runOnScreen(args, env, columns);
    const long = [...linesOf(stdout), ...linesOf(stderr)].filter((each) => stringWidth(each) > columns);
    expect(long, args.join(' ')).toEqual([]);
  }
});

async function helpOf(path: string[], flag: string): Promise<string> {
  return (await runOnScreen([...path, flag], env, 200)).stdout.replace(codes, '');
}

it('the help of every command lists at most ten flags with --help, and all of them with --help-all', async () => {
  const commands = allCommands(root).filter(({ parent }) => parent !== null && parent.name() !== 'help');
  for (const command of commands) {
    const path = pathOf(command);
    const count = async (flag: string): Promise<number> =>
      [...(await helpOf(path, flag)).matchAll(/^ {2}(?:-\w, | {4})--/gm)].length;
    const [first, all] = [await count('--help'), await count('--help-all')];
    expect([path, first]).toEqual([path, Math.min(all, 10)]);
    expect(all > 0).toBe(command.options.some(({ hidden, long }) => !hidden && long !== '--help'));
  }
});

it('mgw batch ls names the unit of the amounts', async () => {
  expect((await runOnScreen(['batch', 'ls'], env)).stdout).toMatch(/ spent \(credits\) .*\n.* failed +0 /);
});

it('mgw --help-all lists the commands for fleets, and mgw --help omits them', async () => {
  expect(await helpOf([], '--help')).not.toMatch(/worker|fleet|state {3}/);
  expect(await helpOf([], '--help-all')).toMatch(/ worker [^]* state [^]*, fleet,/);
});

it('in a pipe, the output of every command contains no control codes', async () => {
  for (const args of [...helps.filter((each) => each.at(-1) === '--help-all'), ...others]) {
    const { code, stdout, stderr } = await runOnScreen(args, { ...env, FORCE_COLOR: '1' });
    expect(stdout + stderr, args.join(' ')).not.toMatch(/[\0-\x08\x0b-\x1f\x7f-\x9f]/);
    // Usage errors go to stderr only, because stdout is for data.
    if (code === 2) expect(stdout).toBe('');
  }
});

it.each([{ NO_COLOR: '1' }, { TERM: 'dumb' }])(
  'help contains no colour codes if colour is disabled: %j',
  async (wish) => {
    const { stderr } = await runOnScreen(['nonsense'], { ...env, ...wish }, 80);
    expect(stderr).not.toContain('\x1b');
    expect((await runOnScreen(['nonsense'], env, 80)).stderr).toContain('\x1b[31mmgw:');
    expect((await runOnScreen(['nonsense', '--no-color'], env, 80)).stderr).not.toContain('\x1b');
  },
);

describe('mgw video c submit without a prompt', () => {
  const submit = ['video', 'c', 'submit', '-m', 'vendor-h3-mini', '--dry-run'];

  it('reads the prompt from a terminal', async () => {
    const { code, stdout, stderr } = await runOnScreen(submit, env, 80, 'a paper boat\n');
    expect({ code, asked: stderr.includes('Prompt: ') }).toEqual({ code: 0, asked: true });
    expect(stdout).toContain('"prompt": "a paper boat"');
  });

  it.each([
    [['--no-input'], {}],
    [[], { CI: 'true' }],
  ])('reports the missing prompt and exits immediately: flags %j, environment %j', async (flags, more) => {
    const { code, stdout, stderr } = await runOnScreen([...submit, ...flags], { ...env, ...more }, 80, '');
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('--prompt: missing');
  });
});

describe('mgw video a submit without a model', () => {
  const submit = ['video', 'a', 'submit', 'a boat', '-d', '4', '--dry-run'];

  it('reads the model from a terminal, and refuses a misspelt one', async () => {
    const typed = await runOnScreen(submit, env, 80, 'video-a\n');
    expect(typed).toMatchObject({ code: 0, stdout: expect.stringContaining('/video-a:') as string });
    const misspelt = await runOnScreen(submit, env, 80, 'vidoe-a\n');
    expect(misspelt).toMatchObject({ code: 2, stdout: '' });
    expect(misspelt.stderr).toContain('no model vidoe-a. Did you mean video-a?');
  });
});

it.each([
  [['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini']],
  [['video', 'c', 'fetch', '@boat-1']],
  [['jobs', 'fetch', '@boat-1']],
  [['jobs', 'resolve', '@boat-1', '--resubmit']],
  [['tts', 'Good morning.']],
])('the command %j writes no media to a terminal', async (args) => {
  const { code, stdout, stderr } = await runOnScreen([...args, '-o', '-'], env, 80);
  expect([code, stdout, stderr]).toEqual([
    2,
    '',
    expect.stringContaining('media cannot be written to a terminal'),
  ]);
});
