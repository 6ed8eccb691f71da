import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { onEnd } from '../support/clean-ups.ts';
import type { CliResult, User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { userHere } from '../support/one-process.ts';

let gateway: FaultGateway;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  gateway.polls = 0;
  user = userHere(gateway.url);
});

afterEach(() => gateway.close());

const waiting = ['--poll-interval', '50ms'];

function submit(...args: string[]): Promise<CliResult> {
  const prompt = ['a paper boat at sea', '--model', 'vendor-h3-mini', '--duration', '5'];
  return user.run(['video', 'c', 'submit', ...prompt, ...waiting, ...args]);
}

function fetch(...args: string[]): Promise<CliResult> {
  return user.run(['jobs', 'fetch', ...args, ...waiting]);
}

function paths(...names: string[]): string {
  return names.map((name) => `${join(user.cwd, name)}\n`).join('');
}

describe('jobs fetch', { concurrent: false }, () => {
  it("saves to the submission's output path, and repeating the submission then costs nothing", async () => {
    gateway.script.query.push({ status: 401 });
    const first = await submit('-o', 'boat.mp4');
    expect(first.code).toBe(3);
    expect(await fetch('@last')).toMatchObject({ code: 0, stdout: paths('boat.mp4') });
    expect(await submit('-o', 'boat.mp4')).toMatchObject({ code: 0, stdout: paths('boat.mp4') });
    expect(gateway.submissions).toHaveLength(1);
  });

  it("saves each job once in a new folder, and names the file after the job's key or else its id", async () => {
    const { stdout: keyed } = await submit('--key', 'boat-1');
    const { stdout: plain } = await submit('--new');
    const refs = `${plain}${keyed}@boat-1\n`;
    const ran = await user.run(['jobs', 'fetch', '-', '-o', 'new/out/', ...waiting], { stdin: refs });
    expect(ran.stdout).toBe(paths(`new/out/${plain.trim()}.mp4`, 'new/out/boat-1.mp4'));
    expect(ran.code).toBe(0);
    const again = await user.run(['jobs', 'fetch', '-', '-o', 'new/out/', ...waiting], { stdin: refs });
    expect(again).toMatchObject({ code: 0, stdout: ran.stdout });
    expect(gateway.submissions).toHaveLength(2);
  });

  it.each([
    ['a missing folder', 'no', 'mkdir -p '],
    ['a file', 'file/no', 'mgw doctor'],
  ])(
    'checks the temporary folder before a submission, and suggests a fix if TMPDIR is %s',
    async (_, name, fix) => {
      writeFileSync(join(user.cwd, 'file'), '');
      await submit('--key', 'one');
      vi.stubEnv('TMPDIR', join(user.cwd, name));
      onEnd(() => void vi.unstubAllEnvs());
      for (const { code, stderr } of [
        await submit('-o', '-'),
        await user.run(['jobs', 'import', '-']),
        await user.run(['sandbox', 'exec', '--', 'true']),
      ])
        expect([code, stderr]).toEqual([10, expect.stringContaining(`  next: ${fix}`)]);
      expect(gateway.submissions).toHaveLength(1);
      const { code, stderr } = await fetch('@one', '-o', '-');
      expect([code, stderr]).toEqual([10, expect.stringContaining('was charged')]);
    },
  );

  it('names files according to a template that may contain folders', async () => {
    await submit('--key', 'one');
    await submit('--key', 'two');
    const ran = await fetch('@one', '@two', '-o', 'out/{protocol}/{index}-{slug}-{key}.{ext}');
    expect(ran.stdout).toBe(
      paths('out/c/1-a-paper-boat-at-sea-one.mp4', 'out/c/2-a-paper-boat-at-sea-two.mp4'),
    );
  });

  it('refuses an invalid -o for two jobs before it sends a request', async () => {
    const invalid: [string, RegExp][] = [
      ['out/{model}/clip.mp4', /would both be saved as .*out\/vendor-h3-mini\/clip\.mp4/],
      ['out/{key}/../../../{id}.mp4', /is not in the output folder/],
      ['out/{colour}.mp4', /no such placeholder: \{colour\}/],
      ['out/{seed}.mp4', /no value is known for \{seed\}/],
      ['clip.mp4', /is one file, but there are 2 jobs/],
      ['-', /Standard output can hold only one result/],
    ];
    await submit('--key', 'one');
    await submit('--key', 'two');
    const before = gateway.seen.length;
    for (const [output, message] of invalid) {
      const ran = await fetch('@one', '@two', '-o', output);
      expect([output, ran.code, ran.stderr]).toEqual([output, 2, expect.stringMatching(message)]);
    }
    expect(gateway.seen).toHaveLength(before);
  });

  it("refuses two jobs with the same output, and does not change another job's file", async () => {
    await submit('-o', 'boat.mp4');
    await submit('-o', 'boat.mp4', '--force');
    const ids = await user.run(['jobs', 'ls', '-q']);
    const both = await fetch(...ids.stdout.trim().split('\n'));
    expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining('would both be saved') as string });
    writeFileSync(join(user.cwd, 'boat.mp4'), 'mine');
    expect(await fetch('@last')).toMatchObject({ code: 10 });
    expect(readFileSync(join(user.cwd, 'boat.mp4'), 'utf8')).toBe('mine');
  });

  it('continues with the other jobs if one cannot be fetched, and reports the failed job', async () => {
    await submit('--key', 'one');
    const ran = await fetch('@one', '@none', '-o', 'out/', '--json');
    expect(ran.code).toBe(11);
    expect(ran.json.files.map(({ path }) => path)).toEqual([join(user.cwd, 'out/one.mp4')]);
    expect(ran.stderr).toContain('@none: No such job: @none.');
  });

  it('sends one query with --no-wait, and saves the result if the task has succeeded', async () => {
    gateway.polls = 1000;
    await submit();
    expect(await fetch('@last', '--no-wait')).toMatchObject({ code: 8 });
    expect(gateway.seen.filter(({ method }) => method === 'GET')).toHaveLength(1);
    gateway.polls = 0;
    const saved = { code: 0, stdout: paths('boat.mp4') };
    expect(await fetch('@last', '--no-wait', '-o', 'boat.mp4')).toMatchObject(saved);
  });
});

it('jobs fetch copies speech from a complete local file, and reports an error if that file does not exist', async () => {
  const speaker = userHere(undefined, { MGW_SANDBOX: '1' });
  const result = await speaker.run(['tts', 'Good morning.', '--key', 'hello', '-o', 'hello.mp3']);
  expect(result.code, result.stderr).toBe(0);
  const saved = join(speaker.cwd, 'hello.mp3');
  expect(await speaker.run(['jobs', 'fetch', '@hello'])).toMatchObject({ code: 0, stdout: `${saved}\n` });
  const copied = await speaker.run(['jobs', 'fetch', '@hello', '-o', 'out/']);
  expect(copied).toMatchObject({ code: 0, stdout: `${join(speaker.cwd, 'out/hello.mp3')}\n` });
  expect(readFileSync(join(speaker.cwd, 'out/hello.mp3'))).toEqual(readFileSync(saved));
  rmSync(saved);
  rmSync(join(speaker.cwd, 'out/hello.mp3'));
  expect(await speaker.run(['jobs', 'fetch', '@hello', '-o', 'out/'])).toMatchObject({ code: 9 });
  expect(existsSync(join(speaker.cwd, 'out/hello.mp3'))).toBe(false);
});

it('jobs fetch names the joined file of a piece of long speech, and does not suggest paying again', async () => {
  const speaker = userHere(undefined, { MGW_SANDBOX: '1' });
  const split = ['tts', 'One sentence. Another one.', '--split', '--piece-length', '15', '-o', 's.mp3'];
  expect((await speaker.run(split)).code).toBe(0);
  for (const more of [[], ['-o', 'p.mp3'], ['-o', '-']]) {
    const { code, stderr } = await speaker.run(['jobs', 'fetch', '@last', ...more]);
    expect(code).toBe(9);
    expect(stderr).toMatch(/is piece \d of a long text.*after joining them into \S+\/s\.mp3\./);
    expect(stderr).not.toMatch(/--new|another take/);
  }
});
