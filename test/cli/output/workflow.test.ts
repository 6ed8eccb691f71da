import { closeSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { beforeEach, describe, expect, it } from 'vitest';
import { notification, openerOf, openFile, runOnDone } from '../../../src/cli/end-actions.ts';
import { commandFilter, isClosed } from '../../../src/cli/io.ts';
import { annotation, reportToWorkflow } from '../../../src/cli/output/github.ts';
import type { Settings } from '../../../src/config/resolve.ts';
import { MgwError } from '../../../src/errors.ts';

const file = { path: '/clips/boat.mp4', bytes: 7, sha256: '0' };
const job = { id: 'job_1', state: 'succeeded', model: 'm|<b>', key: 'boat-1', cost: { at_most: '10' } };

let folder: string;
let notes: string[];
let env: NodeJS.ProcessEnv;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-workflow-'));
  notes = [];
  env = { GITHUB_OUTPUT: join(folder, 'output'), GITHUB_STEP_SUMMARY: join(folder, 'summary') };
});

function tell(outcome: Parameters<typeof reportToWorkflow>[0]): Promise<void> {
  const redact = (text: string): string => text.replaceAll('sk_secret', '[redacted]');
  return reportToWorkflow(outcome, {
    io: { env },
    redact,
    settings: () => Promise.resolve({ sandbox: { value: true } } as Settings),
    progress: { note: (text) => void notes.push(text) },
  });
}

// Parses the output file as GitHub's runner does.
function outputs(): Record<string, string> {
  const text = readFileSync(join(folder, 'output'), 'utf8');
  const found = [...text.matchAll(/^(\w+)<<(.+)\n([^]*?)\n\2$/gm)];
  return Object.fromEntries(found.map(([, name = '', , value = '']) => [name, value]));
}

describe('mgw in a workflow', () => {
  it('outputs the job, its state, its files and the exit code', async () => {
    await tell({ json: { job, files: [file] } });
    expect(outputs()).toEqual({
      job: 'job_1',
      jobs: 'job_1',
      state: 'succeeded',
      file: '/clips/boat.mp4',
      files: '/clips/boat.mp4',
      exit_code: '0',
    });
  });

  it('outputs one line per job and per file, and no values injected by a file name', async () => {
    const path = '/clips/x\njob<<EOF\nevil\nEOF\nfile=evil';
    await tell({
      json: { jobs: [job, { id: 'job_2', state: 'failed' }], files: [file, { ...file, path }] },
      exitCode: 11,
    });
    expect(outputs()).toMatchObject({ job: 'job_2', jobs: 'job_1\njob_2', exit_code: '11' });
    expect(outputs()['files']).toContain('evil');
  });

  it('writes a summary table whose cells are plain text and do not contain the key', async () => {
    const error = new MgwError(
      'task_failed',
      'It said\n| sk_secret <img> https://b.example/a?X-Amz-Credential=AKIA_1%2F&X-Amz-Signature=ab_cd',
      {
        next: ['mgw', 'jobs', 'show', 'job_1'],
      },
    );
    await tell({ json: { job, files: [file] }, error });
    const summary = readFileSync(join(folder, 'summary'), 'utf8');
    expect(summary.split('\n').slice(0, 9)).toEqual([
      '### mgw',
      '',
      '| job | model | state | cost at most |',
      '|---|---|---|---|',
      '| job\\_1 (boat-1) | m\\|\\<b\\> | succeeded | 10 credits |',
      '',
      '- /clips/boat.mp4, 7 bytes',
      '',
      expect.stringMatching(/^It said \\\| \\\[redacted\\\] \\<img\\> https:.*Next: `mgw jobs show job_1`$/),
    ]);
    expect(summary.replaceAll('\\', '')).not.toMatch(/sk_secret|ab_cd|AKIA_1/);
  });

  it('writes a summary row for each REF, even if the REF matches no job', async () => {
    const failed = { ref: '@nope', outcome: { message: 'No such job: @nope.' } };
    const rejected = { id: 'job_0', state: 'rejected' };
    await tell({ json: { jobs: [rejected, { ref: '@boat-1', ...job }, failed] }, exitCode: 11 });
    const summary = readFileSync(join(folder, 'summary'), 'utf8');
    expect(summary).toContain('\n| @nope |  | No such job: @nope. |  |\n');
    expect(summary).toContain('\n| job\\_0 |  | rejected | 0 credits |\n');
    expect(outputs()).toMatchObject({ job: 'job_1', state: 'succeeded', exit_code: '11' });
  });

  it('writes a summary in which a command cannot break out of its code span or its line', async () => {
    const next = ['mgw', 'a `b` ``` [c](d)\n\n# e'];
    await tell({ json: { job }, error: new MgwError('task_failed', '~~~', { next }) });
    expect(readFileSync(join(folder, 'summary'), 'utf8').trim().split('\n').at(-1)).toBe(
      "\\~\\~\\~ Next: ```` mgw 'a `b` ``` [c](d) # e' ````",
    );
  });

  it('writes a summary without any part of a key, even if a cell truncates the key', async () => {
    await tell({ json: { job }, error: new MgwError('task_failed', `${'x'.repeat(995)}sk_secret`) });
    expect(readFileSync(join(folder, 'summary'), 'utf8').replaceAll('\\', '')).not.toContain('xsk_');
  });

  it('writes nothing if the workflow sets no output file, and prints a note if the output file cannot be written', async () => {
    env = {};
    await tell({ json: { job } });
    env = { GITHUB_OUTPUT: join(folder, 'no', 'file') };
    await tell({ json: { job } });
    expect(notes).toEqual([expect.stringMatching(/^GITHUB_OUTPUT cannot be written: ENOENT/)]);
  });
});

describe("on a workflow's stderr,", () => {
  it('an error is printed as a single escaped annotation line', () => {
    const error = new MgwError('submit_unknown', '100%: a\r\n##[b]', {
      next: ['mgw', 'jobs', 'show', 'a b'],
    });
    expect(annotation(error)).toBe(
      "::error title=mgw%3A submit_unknown (exit 7)::100%25: a%0A## [b]%0Anext: mgw jobs show 'a b'",
    );
    expect(annotation(new MgwError('pending', 'x'))).toMatch(/^::warning /);
  });

  it.each([
    [
      ['a::b\n::add-mask::x\n  ::stop-commands::y\n##[add-path]z'],
      'a::b\n: :add-mask::x\n  : :stop-commands::y\n## [add-path]z',
    ],
    [['a\r   ', '::x\r:', ':y'], 'a\r   : :x\r: :y'],
    [['#', '#[a]#', '#', '[b]\n', ':', ':c'], '## [a]## [b]\n: :c'],
    [['\u{85}::a\n\u{3000}', '::b'], '\u{85}: :a\n\u{3000}: :b'],
    [
      [Buffer.from('\u{85}::a\n\u{2003}::b\u{ff}').toString('latin1')],
      Buffer.from('\u{85}: :a\n\u{2003}: :b\u{ff}').toString('latin1'),
    ],
  ])('foreign text is never a workflow command, regardless of how it is split: %j', (pieces, shown) => {
    expect(pieces.map(commandFilter()).join('')).toBe(shown);
  });
});

describe('a notification', () => {
  const tty = { isTTY: true } as never;
  it.each<[NodeJS.ProcessEnv, string]>([
    [{ TERM: 'xterm-256color' }, '\u0007'],
    [{ TERM: 'xterm-256color', TERM_PROGRAM: 'iTerm.app' }, '\u001b]9;a, b\u0007'],
    [{ TERM: 'foot' }, '\u001b]777;notify;mgw;a, b\u0007'],
    [{ TERM: 'foot', TMUX: '/tmp/tmux' }, '\u0007'],
  ])('depends on the terminal: the environment %j leads to %j', (variables, written) => {
    expect(notification('a; b', { stderr: tty, env: variables })).toBe(written);
  });

  it('contains no foreign control codes, and is sent only to terminals', () => {
    const foot = { TERM: 'foot' };
    expect(
      notification('a\u0007\u001b]0;x', { stderr: tty, env: foot })?.match(/[\u0007\u001b]/g),
    ).toHaveLength(2);
    expect(notification('a', { stderr: {} as never, env: foot })).toBeUndefined();
    expect(notification('a', { stderr: tty, env: { TERM: 'dumb' } })).toBeUndefined();
  });
});

describe('--open', () => {
  it.each([
    ['linux', 'xdg-open'],
    ['darwin', 'open'],
    ['win32', 'explorer.exe'],
  ] as const)('opens a file on %s with %s, passing the path as one argument', (platform, program) => {
    expect(openerOf('/a b/$(x);.mp4', platform)).toEqual([program, ['/a b/$(x);.mp4']]);
  });

  it('explains why a file cannot be opened', async () => {
    await expect(openFile('/x', ['mgw-no-such-program', []])).rejects.toThrow('ENOENT');
    await expect(openFile('/x', [process.execPath, ['-e', 'process.exit(3)']])).rejects.toThrow(
      'exited with 3',
    );
    await openFile('/x', [process.execPath, ['-e', '']]);
  });
});

it.each(['', 'a\0b'])(
  'mgw reports an --on-done command that cannot be started, and does not fail: %j',
  async (command) => {
    let output = '';
    const stderr = new PassThrough().on('data', (text: Buffer) => (output += text.toString()));
    await runOnDone(command, '{}', { ...process, stderr });
    expect(output).toMatch(/^mgw: --on-done failed: .+\n$/);
  },
);

it.skipIf(process.platform === 'win32').each([
  ['/dev/null', 'r+', true],
  ['/dev/null', 'w', false],
  [import.meta.filename, 'r+', false],
])('a stream that is open on %s in mode %s is treated as closed: %s', (path, mode, closed) => {
  const fd = openSync(path, mode);
  try {
    expect(isClosed(Object.assign(new PassThrough(), { fd }))).toBe(closed);
  } finally {
    closeSync(fd);
  }
});
