import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Running } from '../support/cli.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { runHereAs } from '../support/one-process.ts';
import type { Deed } from './gateway.ts';
import { clips, openScene, type BatchJson, type Scene } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
});
afterEach(() => scene.gateway.close());

const mixed = [
  'id,protocol,model,duration,prompt,text,model-version',
  'one,a,video-a,5,a boat,,',
  'two,b,Kling,5,a cat,,2.0',
  'three,c,vendor-h3-mini,5,a dog,,',
  'four,tts,,,,good morning,',
  '',
].join('\n');

/** Makes the gateway respond differently to one submission of a prompt. */
function once(prompt: string, deed: Deed): void {
  let isDone = false;
  scene.gateway.judge = (asked) => {
    if (asked !== prompt || isDone) return undefined;
    isDone = true;
    return deed;
  };
}

function charges(): Record<string, number> {
  return Object.fromEntries(scene.gateway.charges);
}

describe('a batch run', () => {
  it('submits, waits for and saves every row, and a second run costs nothing', async () => {
    const file = scene.file('m.csv', mixed);
    const first = await scene.batch('run', file);
    expect(first.stderr).toContain('m: 4 done; 4 files saved.');
    expect(first.code).toBe(0);
    expect(first.stdout.trim().split('\n').sort()).toEqual(
      ['four.mp3', 'one.mp4', 'three.mp4', 'two.mp4'].map((name) => scene.at(name)),
    );
    for (const name of ['one', 'two', 'three'])
      expect(readFileSync(scene.at(`${name}.mp4`))).toEqual(scene.gateway.video);
    expect(readFileSync(scene.at('four.mp3'))).toEqual(scene.gateway.audio);
    scene.gateway.requests.splice(0);
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
    expect(scene.gateway.requests).toEqual(scene.gateway.listings());
  });

  it('pays only for added rows when rows are added, removed and reordered', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['', 'a cat'], ['c', 'a dog']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['d', 'a fox'], ['c', 'a dog'], ['', 'a cat']));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1, 'a fox': 1 });
  });

  it('saves a missing file again at no charge', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    rmSync(scene.at('a.mp4'));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(existsSync(scene.at('a.mp4'))).toBe(true);
    expect(charges()).toEqual({ 'a boat': 1 });
  });

  const below = 'id,protocol,model,duration,prompt,output\na,c,vendor-h3-mini,5,a boat,sub/{id}.{ext}\n';

  it.each([
    ["in a row's output path", 'm.csv', below, ['-o', 'out/']],
    [
      "in the manifest's output path",
      'm.yaml',
      'output: out/sub/{id}.{ext}\nrows: [{id: a, protocol: c, model: vendor-h3-mini, duration: 5, prompt: a boat}]',
      [],
    ],
  ])('does not follow a symbolic link out of the allowed folder (link %s)', async (_, name, text, output) => {
    const outside = freshFolder();
    mkdirSync(scene.at('out'));
    symlinkSync(outside, scene.at('out/sub'));
    const ran = await scene.user.run(['batch', 'run', scene.file(name, text), ...output]);
    expect(ran.code, ran.stderr).toBe(2);
    expect(ran.stderr).toContain('a symbolic link leads from');
    expect(scene.gateway.charges.size).toBe(0);
    expect(readdirSync(outside)).toEqual([]);
  });

  it.each(['/tmp/x/{id}.{ext}', '../{id}.{ext}', '.git/hooks/{id}', 's3://bucket/{id}.{ext}'])(
    "refuses a manifest's output outside the manifest's folder: %s",
    async (output) => {
      const row = { id: 'a', protocol: 'c', model: 'vendor-h3-mini', duration: 5, prompt: 'a boat' };
      const file = scene.file('m.yaml', JSON.stringify({ output, rows: [row] }));
      const refused = await runHereAs(scene.user, ['batch', 'run', file]);
      expect([refused.code, refused.stderr]).toEqual([
        2,
        expect.stringContaining('is outside the current folder'),
      ]);
      expect(await scene.batch('plan', file)).toMatchObject({ code: 0 });
      expect(scene.gateway.requests).toEqual([]);
    },
  );

  it('saves nothing through a symbolic link created after payment', async () => {
    const outside = freshFolder();
    scene.gateway.judge = () => {
      rmSync(scene.at('out/sub'), { recursive: true });
      symlinkSync(outside, scene.at('out/sub'));
      return undefined;
    };
    const run = ['batch', 'run', scene.file('m.csv', below), '-o', 'out/', '--json'];
    const { code, json } = await runHereAs(scene.user, run);
    expect(code).toBe(11);
    expect(JSON.stringify(json)).toContain('a symbolic link leads from');
    expect(readdirSync(outside)).toEqual([]);
    expect(charges()).toEqual({ 'a boat': 1 });
  });

  it('pays for nothing if a row is invalid, but skips invalid rows if --skip-bad is given', async () => {
    const file = scene.file('m.csv', `${clips(['a', 'a boat'])}b,c,vendor-h3-mini,4,a cat\n`);
    expect(await scene.batch('run', file)).toMatchObject({ code: 2 });
    expect(scene.gateway.requests).toEqual([]);
    const { exit_code, batch } = await scene.read('run', file, '--skip-bad');
    expect(exit_code).toBe(11);
    expect(batch).toMatchObject({ rows: 2, bad: 1, states: { done: 1 } });
    expect(charges()).toEqual({ 'a boat': 1 });
  });

  it('does not pay for a row whose output appeared after the plan', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    scene.gateway.judge = () => {
      scene.file('b.mp4', 'of another program');
      return undefined;
    };
    const { exit_code, rows } = await scene.read('run', file, '--concurrency', '1');
    expect(exit_code).toBe(11);
    expect(rows).toMatchObject([{ id: 'b', message: expect.stringContaining('b.mp4 exists') as string }]);
    expect(charges()).toEqual({ 'a boat': 1 });
  });

  it("does not pay again for a row if the row's record is lost", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    const jobs = join(scene.user.env['MGW_STATE_DIR'] ?? '', 'jobs');
    for (const name of readdirSync(jobs)) rmSync(join(jobs, name));
    rmSync(scene.at('a.mp4'));
    expect((await scene.read('plan', file)).batch.states).toMatchObject({ unknown: 1 });
    expect(await scene.read('run', file)).toMatchObject({ rows: [{ id: 'a', state: 'unknown' }] });
    expect(charges()).toEqual({ 'a boat': 1 });
  });

  it('continues with the other rows if a row is in doubt, and does not send that row again', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    once('a boat', { kind: 'lose' });
    const { exit_code, batch, rows } = await scene.read('run', file);
    expect(exit_code).toBe(11);
    expect(batch.states).toMatchObject({ unknown: 1, done: 1 });
    expect(rows).toMatchObject([
      {
        id: 'a',
        state: 'unknown',
        next: ['mgw', 'jobs', 'resolve', expect.any(String)],
      },
    ]);
    expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
    expect(await runHereAs(scene.user, ['jobs', 'resolve', '@m/a', '--adopt', 'task-1'])).toMatchObject({
      code: 0,
    });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
  });

  it('retries rate-limited rows, with fewer rows in progress', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    let turned = 0;
    scene.gateway.judge = () => ((turned += 1) <= 2 ? { kind: 'limit', seconds: 1 } : undefined);
    const { stderr, code } = await scene.batch('run', file, '--concurrency', '2');
    expect(stderr).toContain('at most 1 from now on');
    expect(code).toBe(0);
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1 });
  });

  it('sends a refused row again, because the refusal cost nothing', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    once('a boat', { kind: 'refuse' });
    expect((await scene.read('run', file)).batch.states).toMatchObject({ rejected: 1 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  });

  it('continues with the other rows if the key may not use the model of a row, but stops if the key is refused', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a kite']));
    const run = (): Promise<BatchJson> => scene.read('run', file, '--concurrency', '1');
    let message = 'user is banned';
    scene.gateway.judge = (prompt) => (prompt === 'a boat' ? { kind: 'forbid', message } : undefined);
    expect((await run()).batch.states).toMatchObject({ rejected: 1, new: 2 });
    message = 'This token has no access to model vendor-h3';
    expect(await run()).toMatchObject({ exit_code: 11, batch: { states: { rejected: 1, done: 2 } } });
  });

  it('writes a result line for each row when it ends', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    once('a cat', { kind: 'doom' });
    await scene.batch('run', file, '--results', scene.at('r.jsonl'));
    const lines = readFileSync(scene.at('r.jsonl'), 'utf8').trim().split('\n');
    const results = lines.map((line) => JSON.parse(line) as { id: string; state: string; exit_code: number });
    expect(results.sort((one, other) => one.id.localeCompare(other.id))).toMatchObject([
      { id: 'a', state: 'done', exit_code: 0, files: [{ path: scene.at('a.mp4') }] },
      { id: 'b', state: 'failed', exit_code: 5, error: { code: 'task_failed' } },
    ]);
  });

  it("refuses --results if it is the manifest or a row's output, before anything is paid for", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    symlinkSync(file, scene.at('link'));
    for (const path of [file, scene.at('link'), scene.at('a.mp4')]) {
      const { code, json } = await scene.batch('run', file, '--results', path, '--json');
      expect([code, json.error?.next]).toEqual([2, expect.arrayContaining([`${path}.results.jsonl`])]);
      expect(readFileSync(file, 'utf8')).toBe(clips(['a', 'a boat']));
    }
    expect(scene.gateway.posts()).toEqual([]);
  });

  it('refuses a URL for --results, before anything is paid for', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    const { code, stderr } = await scene.batch('run', file, '--results', 's3://bucket/r.jsonl');
    expect([code, stderr]).toEqual([2, expect.stringContaining('must be a path, not a URL')]);
    expect([scene.gateway.posts(), existsSync(scene.at('s3:'))]).toEqual([[], false]);
  });

  it('writes a step summary in GitHub Actions', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    once('a boat', { kind: 'doom' });
    scene.user.env['GITHUB_STEP_SUMMARY'] = scene.at('summary.md');
    await scene.batch('run', file);
    expect(readFileSync(scene.at('summary.md'), 'utf8')).toMatch(/1 failed[^]*\| a \| failed \|/);
  });
});

describe('mgw batch retry', () => {
  it('pays again for a failed row, but mgw batch run does not', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    once('a boat', { kind: 'doom' });
    expect(await scene.read('run', file)).toMatchObject({
      exit_code: 11,
      rows: [
        {
          id: 'a',
          state: 'failed',
          next: ['mgw', 'batch', 'retry', file, '-o', scene.at('{id}.{ext}'), '--id', 'a'],
        },
      ],
    });
    expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
    expect(await scene.batch('retry', file, '--failed')).toMatchObject({
      code: 0,
      stdout: `${scene.at('a.mp4')}\n`,
    });
    expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1 });
    for (const again of [['run'], ['retry', '--failed']])
      expect(await scene.batch(again[0] ?? '', file, ...again.slice(1))).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1 });
    const shown = await runHereAs(scene.user, ['jobs', 'show', '@m/a', '--json']);
    expect(shown.json.job).toMatchObject({ key: 'm/a/2', state: 'succeeded' });
  });

  it('remakes a done row with --id, without replacing the first file', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    await scene.batch('run', file);
    const retry = ['retry', file, '--id', 'a'] as const;
    const again = await scene.batch(...retry);
    expect(again).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(again.stderr).toContain('Already paid for, but will be remade and paid for again: a.');
    expect(await scene.batch(...retry, '--force')).toMatchObject({
      code: 0,
      stdout: `${scene.at('a.2.mp4')}\n`,
    });
    expect(charges()).toEqual({ 'a boat': 3, 'a cat': 1 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
  });

  it("saves to a file that is neither another row's output nor an existing file", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a boat'], ['a.2', 'a cat']));
    writeFileSync(scene.at('a.3.mp4'), 'my own');
    for (const [number, flag] of ['--id a', '--id a', '--rated 2'].entries()) {
      await runHereAs(scene.user, ['jobs', 'rate', '@m/a', '2']);
      const retried = await scene.batch('retry', file, ...flag.split(' '));
      expect(retried).toMatchObject({ code: 0, stdout: `${scene.at(`a.${4 + number}.mp4`)}\n` });
    }
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(charges()).toEqual({ 'a boat': 4, 'a cat': 1 });
  });

  it('keeps the file of an earlier retry if a row with the same output is added, even if the retried row is cached or --force is given', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    await scene.batch('retry', file, '--id', 'a');
    for (const args of [[], ['--force']]) {
      scene.file('m.csv', clips(['a', 'a boat'], ['a.2', 'a cat']));
      const problem = {
        line: 3,
        message: expect.stringMatching(/a\.2\.mp4 is also the output of line 2$/) as string,
      };
      expect(await scene.read('run', file, ...args)).toMatchObject({ exit_code: 2, problems: [problem] });
      scene.file('m.csv', clips(['a', 'a boat']));
      expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
    }
    expect(charges()).toEqual({ 'a boat': 2 });
  });

  it('refuses an unknown id', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    expect(await scene.batch('retry', file, '--id', 'b')).toMatchObject({ code: 2 });
    expect(scene.gateway.posts()).toEqual([]);
  });
});

it('a batch run removes the leftovers of killed runs next to the files of done and failed rows', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  const leave = (): void => ['a.mp4.part.json', 'b.mp4.part.json'].forEach((name) => scene.file(name, ''));
  const left = (): string[] => readdirSync(scene.user.cwd).filter((name) => name.includes('.part'));
  once('a boat', { kind: 'doom' });
  leave();
  await scene.batch('run', file);
  expect(left()).toEqual([]);
  leave();
  await scene.batch('run', file);
  expect(left()).toEqual([]);
});

describe('a gateway that loses the responses', () => {
  it('receives no more submissions after five consecutive rows are in doubt', async () => {
    const file = scene.file(
      'm.csv',
      clips(...Array.from({ length: 12 }, (_, n): [string, string] => [`r${n}`, `boat ${n}`])),
    );
    scene.gateway.judge = () => ({ kind: 'lose' });
    const { code, stderr } = await scene.batch('run', file, '--concurrency', '1');
    expect([code, stderr]).toEqual([
      11,
      expect.stringContaining('The run stopped after 5 consecutive failures. The last one:'),
    ]);
    expect(stderr).toContain(
      'This run may have paid for 5 rows in doubt. Running the command again does not pay',
    );
    expect(stderr).toContain(`→ mgw batch run ${file} `);
    expect(scene.gateway.posts()).toHaveLength(5);
    scene.gateway.judge = () => undefined;
    expect((await scene.read('run', file)).batch.states).toMatchObject({ done: 7, unknown: 5 });
  });
});

it('a batch run stops after five rows in doubt even if it has saved rows that were already paid for', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat']));
  scene.gateway.polls = Infinity;
  await scene.batch('run', file, '--timeout', '1s');
  scene.gateway.polls = 1;
  const rows = Array.from({ length: 9 }, (_, n): [string, string] => [`r${n}`, `boat ${n}`]);
  scene.file('m.csv', clips(...rows.slice(0, 4), ['a', 'a boat'], ...rows.slice(4)));
  scene.gateway.judge = () => ({ kind: 'lose' });
  expect(await scene.batch('run', file, '--concurrency', '1')).toMatchObject({ code: 11 });
  expect(scene.gateway.posts()).toHaveLength(1 + 5);
});

it('a batch run continues if the gateway accepts a row between rows whose responses are lost', async () => {
  const rows = Array.from({ length: 9 }, (_, n): [string, string] => [`r${n}`, `boat ${n}`]);
  const file = scene.file('m.csv', clips(...rows));
  scene.gateway.polls = Infinity;
  scene.gateway.judge = (prompt) => {
    if (prompt === 'boat 8') scene.gateway.polls = 0;
    return prompt === 'boat 4' || prompt === 'boat 8' ? undefined : { kind: 'lose' };
  };
  const { batch } = await scene.read('run', file, '--concurrency', '2', '--timeout', '3s');
  expect(batch.states).toMatchObject({ done: 2, unknown: 7 });
});

it('a batch run continues if the gateway refuses a row between rows whose responses are lost', async () => {
  const rows = Array.from({ length: 12 }, (_, n): [string, string] => [`r${n}`, `boat ${n}`]);
  const file = scene.file('m.csv', clips(...rows));
  scene.gateway.judge = (prompt) => ({ kind: Number(prompt.slice(5)) % 2 === 0 ? 'lose' : 'refuse' });
  const { batch } = await scene.read('run', file, '--concurrency', '1');
  expect(batch.states).toMatchObject({ rejected: 6, unknown: 6 });
});

it('a retry of failed rows suggests one command for all its rows, which pays once for each', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  scene.gateway.judge = () => ({ kind: 'doom' });
  await scene.batch('run', file);
  scene.gateway.judge = (prompt) => ({ kind: prompt === 'a boat' ? 'refuse' : 'doom' });
  const { stderr } = await scene.batch('retry', file, '--failed');
  expect(stderr.match(/^→ .*$/gm)).toEqual([expect.stringMatching(/ retry .*--failed$/)]);
  scene.gateway.judge = () => undefined;
  const [, command = ''] = /^→ mgw (.*)$/m.exec(stderr) ?? [];
  expect(await runHereAs(scene.user, command.split(' '))).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 2, 'a cat': 3 });
});

it('a retry by id that continues a running row does not pay again if the result is gone', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat']));
  scene.gateway.polls = Infinity;
  await scene.batch('run', file, '--timeout', '1s');
  scene.gateway.polls = 0;
  scene.gateway.gone.add(scene.gateway.taskOf('a boat'));
  expect(await scene.batch('retry', file, '--id', 'a')).toMatchObject({ code: 11 });
  expect(charges()).toEqual({ 'a boat': 1 });
});

describe('a row that was changed after it was paid for', () => {
  it('is printed with the difference, and is paid for only by retry', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a ship'], ['b', 'a cat']));
    const { exit_code, rows } = await scene.read('run', file);
    expect(exit_code).toBe(11);
    expect(rows).toMatchObject([
      {
        id: 'a',
        state: 'changed',
        message: expect.stringContaining('prompt was "a boat", is "a ship"') as string,
      },
    ]);
    expect(scene.gateway.charges.has('a ship')).toBe(false);
    const retry = ['retry', file, '--id', 'a'] as const;
    expect(await scene.batch(...retry)).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
    expect(existsSync(scene.at('a.mp4'))).toBe(true);
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a ship': 1 });
  });

  it('is printed with both gateways if the base URL was changed', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    const url = 'https://gateway.example/prefix';
    const { rows } = await scene.read('plan', file, '--base-url', url);
    const changes = [`the gateway was ${scene.gateway.url}, is ${url}`];
    expect(rows).toMatchObject([{ state: 'changed', changes }]);
  });

  it('is printed with both formats or protocols if only they were changed', async () => {
    const speech = (format: string): string =>
      scene.file('s.csv', `id,protocol,text,format\na,tts,a boat,${format}\n`);
    await scene.batch('run', speech('wav'));
    const { rows } = await scene.read('plan', speech('pcm'));
    expect(rows).toMatchObject([{ state: 'changed', changes: ['the format was wav, is pcm'] }]);
    const clip = scene.file('s.csv', clips(['a', 'a boat']));
    const [row] = (await scene.read('plan', clip)).rows;
    expect(row?.changes?.[0]).toBe('the protocol was tts, is c');
  });

  it('is not paid for again, even by retry, while its job is in doubt', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    once('a boat', { kind: 'lose' });
    expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
    scene.file('m.csv', clips(['a', 'a ship']));
    const { exit_code, rows } = await scene.read('run', file);
    const message = expect.stringContaining('prompt was "a boat", is "a ship"') as string;
    expect([exit_code, rows]).toMatchObject([11, [{ state: 'unknown', message }]]);
    for (const choice of [['--changed'], ['--id', 'a']])
      expect((await scene.read('retry', file, ...choice)).rows).toMatchObject([{ state: 'unknown' }]);
    const [, , , id = ''] = (await scene.read('status', file)).rows[0]?.next ?? [];
    await scene.user.run(['jobs', 'resolve', id, '--not-created']);
    expect(await scene.batch('retry', file, '--changed')).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 1, 'a ship': 1 });
  });

  it('is not paid for again while its job is in progress, and the suggested command saves the video', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    scene.gateway.polls = Infinity;
    await scene.batch('run', file, '--timeout', '1s');
    scene.file('m.csv', clips(['a', 'a ship']));
    for (const command of [['run'], ['retry', '--changed'], ['retry', '--id', 'a']]) {
      const [word = '', ...choice] = command;
      const { exit_code, rows } = await scene.read(word, file, ...choice);
      expect([exit_code, rows]).toMatchObject([11, [{ state: 'running' }]]);
    }
    scene.gateway.polls = 0;
    const [, ...next] = (await scene.read('status', file)).rows[0]?.next ?? [];
    expect(await scene.user.run(next)).toMatchObject({ code: 0, stdout: `${scene.at('a.mp4')}\n` });
    const retry = await scene.batch('retry', file, '--changed');
    expect(retry).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(charges()).toEqual({ 'a boat': 1, 'a ship': 1 });
  });

  it('is retried after each change without replacing the files of earlier takes', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    const retry = (prompt: string, output = '{id}.{ext}'): ReturnType<typeof scene.batch> => {
      scene.file('m.csv', clips(['a', prompt]));
      return scene.batch('retry', file, '--changed', '-o', scene.at(output));
    };
    const saved = (name: string): object => ({ code: 0, stdout: `${scene.at(name)}\n` });
    expect(await retry('a ship')).toMatchObject(saved('a.2.mp4'));
    expect(await retry('a boat')).toMatchObject(saved('a.3.mp4'));
    expect(await retry('a ship', 'other/{id}.{ext}')).toMatchObject(saved('other/a.mp4'));
    expect(await retry('a boat')).toMatchObject(saved('a.5.mp4'));
    rmSync(scene.at('a.5.mp4'));
    expect(await retry('a ship')).toMatchObject(saved('a.5.mp4'));
    expect(charges()).toEqual({ 'a boat': 3, 'a ship': 3 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
  });

  it('is retried by the single command that run suggests for all rows that need attention', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['', 'a cat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a ship'], ['', 'a cat'], ['', 'a fox']));
    once('a fox', { kind: 'doom' });
    const { code, stderr } = await scene.batch('run', file);
    expect(code).toBe(11);
    expect(stderr).toMatch(/^"a fox" failed: /m);
    expect(stderr.split('\n').filter((line) => line.startsWith('→'))).toEqual([
      expect.stringMatching(/^→ mgw batch retry \S+ .*--failed --changed$/),
    ]);
    const retried = (): ReturnType<typeof scene.batch> => scene.batch('retry', file, '--failed', '--changed');
    const first = await retried();
    expect(first).toMatchObject({ code: 0 });
    expect(first.stderr).toContain('To view the results: mgw jobs gallery --batch m --serve');
    expect(await retried()).toMatchObject({ code: 0, stdout: '' });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a ship': 1, 'a fox': 2 });
  });

  it('replaces its file if it is retried with --force', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a ship']));
    const retry = await scene.batch('retry', file, '--id', 'a', '--force');
    expect(retry).toMatchObject({ code: 0, stdout: `${scene.at('a.mp4')}\n` });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  });
});

describe('an interruption of a batch run', () => {
  const prompts = ['a boat', 'a cat', 'a dog', 'a fox'];

  /** Starts a run of four rows, and waits until two rows have been sent and are waiting for their responses. */
  async function interrupted(): Promise<{
    running: Running;
    file: string;
    answer: () => void;
    told: Promise<void>;
  }> {
    const rows = prompts.map((prompt): [string, string] => [prompt.slice(2), prompt]);
    const file = scene.file('m.csv', clips(...rows));
    let answer = (): void => undefined;
    const until = new Promise<void>((resolve) => (answer = resolve));
    let asked = 0;
    const both = new Promise<void>((resolve) => {
      scene.gateway.judge = () => {
        if ((asked += 1) === 2) resolve();
        return { kind: 'wait', until };
      };
    });
    const more = ['-o', scene.at('{id}.{ext}'), '--poll-interval', '10ms', '--concurrency', '2'];
    const running = scene.user.start(['batch', 'run', file, ...more, '-v', '--json']);
    await both;
    const told = new Promise<void>((resolve) =>
      running.child.stderr?.on('data', (text) => /Interrupted/.test(String(text)) && resolve()),
    );
    return { running, file, answer, told };
  }

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)(
    'stops new submissions but waits for pending responses if it is %s, and a rerun pays for the remaining rows',
    async (signal, code) => {
      const { running, file, answer, told } = await interrupted();
      running.child.kill(signal);
      await told;
      answer();
      const ended = await running.result;
      expect(ended.code).toBe(code);
      expect(scene.gateway.posts()).toHaveLength(2);
      const { batch, rows } = ended.json as unknown as BatchJson;
      expect(batch.states).toMatchObject({ running: 2, new: 2 });
      expect(rows.filter(({ state }) => state === 'running').map(({ next }) => next.slice(0, 3))).toEqual([
        ['mgw', 'batch', 'run'],
        ['mgw', 'batch', 'run'],
      ]);
      expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
      expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1, 'a fox': 1 });
    },
  );

  it('leaves rows in doubt, which the next run reports, if it is SIGKILL', async () => {
    const { running, file, answer } = await interrupted();
    running.child.kill('SIGKILL');
    await running.result;
    answer();
    const { rows } = await scene.read('run', file);
    const lost = { state: 'unknown', message: 'its process ended before the response arrived' };
    expect(rows).toMatchObject([lost, lost]);
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1, 'a fox': 1 });
  });

  it('abandons pending responses if it is repeated; their rows remain in doubt and are never sent again', async () => {
    const { running, file, answer, told } = await interrupted();
    running.child.kill('SIGINT');
    await told;
    running.child.kill('SIGINT');
    const ended = await running.result;
    expect(ended.code).toBe(130);
    expect((ended.json as unknown as BatchJson).batch.states).toMatchObject({ unknown: 2, new: 2 });
    answer();
    scene.gateway.judge = () => undefined;
    const again = await scene.read('run', file);
    expect(again).toMatchObject({ exit_code: 11, batch: { states: { unknown: 2, done: 2 } } });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1, 'a fox': 1 });
  });
});

describe('output file names of a batch', () => {
  it("contain the file's job and number if the template contains them", async () => {
    scene.gateway.samples = 2;
    const row = 'id,protocol,model,duration,sample-count,prompt\none,a,video-a,5,2,a boat\n';
    const file = scene.file('m.csv', row);
    const { exit_code } = await scene.read('run', file, '-o', scene.at('out/{job}-{n}.{ext}'));
    expect(exit_code).toBe(0);
    const { json } = await runHereAs(scene.user, ['jobs', 'show', '@m/one', '--json']);
    expect(readdirSync(scene.at('out')).sort()).toEqual([`${json.job.id}-1.mp4`, `${json.job.id}-2.mp4`]);
    expect(await scene.read('run', file, '-o', scene.at('out/{job}-{n}.{ext}'))).toMatchObject({
      exit_code: 0,
      batch: { states: { done: 1 } },
    });
    expect(charges()).toEqual({ 'a boat': 1 });
    const retry = ['retry', file, '--id', 'one', '-o', scene.at('out/{job}-{n}.{ext}')];
    expect(await scene.batch(...retry)).toMatchObject({ code: 0 });
    expect(readdirSync(scene.at('out'))).toHaveLength(4);
  });

  it('may have the number of the file in a folder name', async () => {
    scene.gateway.samples = 2;
    const row = 'id,protocol,model,duration,sample-count,prompt\none,a,video-a,5,2,a boat\n';
    const file = scene.file('m.csv', row);
    for (const name of ['{id}', '{job}']) {
      const output = `${name}/take{n}/clip.{ext}`;
      const fetched = name === '{id}' ? [] : ['--force'];
      const ran = await scene.read('run', file, '-o', scene.at(`out/${output}`), ...fetched);
      expect(ran).toMatchObject({ exit_code: 0 });
    }
    const folders = readdirSync(scene.at('out')).map((name) => readdirSync(join(scene.at('out'), name)));
    expect(folders).toEqual([
      ['take1', 'take2'],
      ['take1', 'take2'],
    ]);
    expect(charges()).toEqual({ 'a boat': 1 });
  });
});

describe('a row whose result is no longer available at the gateway', () => {
  it('is reported, and is paid for again only by retry', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    scene.gateway.judge = () => {
      scene.gateway.gone.add('task-1');
      return undefined;
    };
    expect(await scene.read('run', file, '--concurrency', '1')).toMatchObject({
      exit_code: 11,
      rows: [{ id: 'a', next: expect.arrayContaining(['retry', '--id', 'a']) as string[] }],
    });
    expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
    expect(await scene.batch('retry', file, '--id', 'a')).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  });

  it.each(['refuse', 'limit'] as const)('is paid for once by a retry of a row after %s', async (kind) => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    scene.gateway.judge = () => ({ kind });
    await scene.batch('run', file, '--retries', '0');
    scene.gateway.judge = () => void scene.gateway.gone.add('task-1').add('task-2');
    expect(await scene.batch('retry', file, '--id', 'a')).toMatchObject({ code: 11 });
    expect(charges()).toEqual({ 'a boat': 1 });
  });
});

it('a finished row whose task has expired is reported at once, with the retry that remakes it', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat']));
  await scene.batch('run', file);
  rmSync(scene.at('a.mp4'));
  scene.gateway.isExpired = true;
  const { exit_code, rows } = await scene.read('run', file, '--timeout', '3s');
  expect({ exit_code, rows }).toMatchObject({
    exit_code: 11,
    rows: [{ id: 'a', next: expect.arrayContaining(['retry', '--id', 'a']) as string[] }],
  });
});

it('a retry suggests only commands for its own rows, and one command for those that are in progress', async () => {
  const rows = ['a', 'b', 'c', 'd', 'e'].map((id): [string, string] => [id, `boat ${id}`]);
  const file = scene.file('m.csv', clips(...rows));
  scene.gateway.polls = Infinity;
  scene.gateway.judge = (prompt) => (prompt === 'boat c' ? { kind: 'refuse' } : undefined);
  const retry = ['retry', file, '--id', 'a', '--id', 'b', '--id', 'c', '--timeout', '20s'] as const;
  const { json, stderr } = await scene.batch(...retry, '--json');
  const ended = (json as unknown as BatchJson).rows;
  expect(ended).toHaveLength(3);
  for (const { id, next } of ended) expect(next.slice(-2)).toEqual(['--id', id]);
  expect(stderr.match(/^→ .*$/gm)).toEqual([expect.stringMatching(/ retry .*--id a --id b --id c$/)]);
  scene.gateway.polls = 1;
  scene.gateway.judge = () => undefined;
  const [, command = ''] = /^→ mgw (.*)$/m.exec(stderr) ?? [];
  expect(await runHereAs(scene.user, command.split(' '))).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'boat a': 1, 'boat b': 1, 'boat c': 1 });
});

it('a retry whose download is damaged suggests a command that saves the result at no charge', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  const whole = scene.gateway.videoOf;
  scene.gateway.videoOf = () => Buffer.from('<html>busy</html>');
  const { rows } = await scene.read('retry', file, '--id', 'a');
  scene.gateway.videoOf = whole;
  expect(await runHereAs(scene.user, rows[0]?.next.slice(1) ?? [])).toMatchObject({ code: 0 });
  expect((await scene.read('status', file)).rows).toMatchObject([{ state: 'done' }, { state: 'new' }]);
  expect(charges()).toEqual({ 'a boat': 1 });
});

it('a retry of failed rows reports a failed row that was changed, and does not remake it', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  once('a boat', { kind: 'doom' });
  await scene.batch('run', file);
  scene.file('m.csv', clips(['a', 'a ship'], ['b', 'a fox']));
  const { code, json, stderr } = await scene.batch('retry', file, '--failed', '--json');
  expect([code, json]).toMatchObject([11, { rows: [{ id: 'a', state: 'changed' }] }]);
  expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
  // The suggested command does not remake b, which was paid for.
  const [, command = ''] = /^→ mgw (.*)$/m.exec(stderr) ?? [];
  const result = await runHereAs(scene.user, command.replaceAll("'", '').split(' '));
  expect(result, command).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a ship': 1 });
});

it('a row whose download failed is saved at no charge by the suggested command', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat']));
  const whole = scene.gateway.videoOf;
  scene.gateway.videoOf = () => Buffer.from('<html>busy</html>');
  const { rows } = await scene.read('run', file);
  expect(rows).toMatchObject([
    { id: 'a', next: expect.arrayContaining(['mgw', 'batch', 'run']) as string[] },
  ]);
  scene.gateway.videoOf = whole;
  expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 1 });
});

describe('a sidecar', () => {
  it("records its file's request and job", async () => {
    const file = scene.file('m.csv', mixed);
    expect(await scene.batch('run', file, '--sidecar')).toMatchObject({ code: 0 });
    const told = JSON.parse(readFileSync(scene.at('three.mp4.json'), 'utf8')) as Record<string, unknown>;
    expect(told).toMatchObject({
      key: 'm/three',
      protocol: 'c',
      model: 'vendor-h3-mini',
      gateway: scene.gateway.url,
      request: { prompt: 'a dog' },
      file: { name: 'three.mp4', bytes: scene.gateway.video.length },
    });
    expect(existsSync(scene.at('four.mp3.json'))).toBe(true);
  });

  it.each([
    [
      'clip.mp4',
      ['video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini', '--poll-interval', '10ms'],
      'c',
    ],
    ['voice.mp3', ['tts', 'good morning'], 'tts'],
  ])('is written by the command %s', async (name, command, protocol) => {
    const args = [...command, '-o', scene.at(name), '--sidecar'];
    expect(await runHereAs(scene.user, args)).toMatchObject({ code: 0 });
    const { stdout } = await runHereAs(scene.user, ['jobs', 'show', '@last', '--json']);
    const { job } = JSON.parse(stdout) as { job: { id: string; request: unknown } };
    expect(JSON.parse(readFileSync(scene.at(`${name}.json`), 'utf8'))).toMatchObject({
      job: job.id,
      protocol,
      request: job.request,
      file: { name, bytes: readFileSync(scene.at(name)).length },
    });
  });

  it("does not replace another program's file, and the row is not paid for", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    scene.file('a.mp4.json', '{"mine":true}');
    expect((await scene.read('run', file, '--sidecar')).rows).toMatchObject([{ id: 'a', state: 'new' }]);
    expect(scene.gateway.posts()).toEqual([]);
  });
});

it('--skip-bad, which mgw suggests if the output of a row exists, runs the other rows', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  scene.file('b.mp4', 'mine');
  const { exit_code, error } = await scene.read('run', file);
  expect({ exit_code, next: error?.next.at(-1) }).toEqual({ exit_code: 2, next: '--skip-bad' });
  expect(await runHereAs(scene.user, error?.next.slice(1) ?? [])).toMatchObject({ code: 11 });
  expect(charges()).toEqual({ 'a boat': 1 });
  expect(readFileSync(scene.at('b.mp4'), 'utf8')).toBe('mine');
});

describe('the budget of a batch', () => {
  beforeEach(() => runHereAs(scene.user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']));

  it('applies to all runs of a batch together, and a run that would exceed the budget exits 12', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog'], ['d', 'a fox']));
    const kept = ['--concurrency', '1', '--skip-bad', '--results', scene.at('r.jsonl'), '--timeout', '5m'];
    const first = await scene.read('run', file, '--budget', '2', ...kept);
    expect(first).toMatchObject({ exit_code: 12, batch: { states: { done: 2, new: 2 } } });
    expect(first.rows[0]?.next).toEqual(expect.arrayContaining([...kept, '--budget', '4']));
    const second = await scene.batch('run', file, '--budget', '2');
    expect(second.code).toBe(12);
    // Only the error suggests a command. The suggested budget is enough for all remaining rows.
    expect(second.stderr.match(/batch run/g)).toHaveLength(1);
    expect(second.stderr).toContain('--budget 4\n');
    expect(second.stderr).toContain('For the rest of the batch: --budget 4.');
    expect(scene.gateway.posts()).toHaveLength(2);
    expect(await scene.batch('run', file, '--budget', '4')).toMatchObject({ code: 0 });
    expect(await scene.batch('run', file, '--budget', '1')).toMatchObject({ code: 0 });
  });

  it('counts the runs without a budget, even if their price was unknown', async () => {
    await runHereAs(scene.user, ['config', 'unset', 'prices.c.vendor-h3-mini']);
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    await runHereAs(scene.user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    const { stderr } = await scene.batch('plan', file, '--budget', '2.5');
    expect(stderr).toContain('0.5 of 2.5 left');
    const { exit_code, error } = await scene.read('run', file, '--budget', '2.5');
    const left = expect.stringContaining('0.5 is left (2 spent, 0 reserved') as string;
    expect({ exit_code, error }).toMatchObject({ exit_code: 12, error: { message: left } });
    expect(error?.next).toEqual(expect.arrayContaining(['--budget', '3']));
    expect(scene.gateway.posts()).toHaveLength(2);
    expect(await scene.batch('run', file, '--budget', '3')).toMatchObject({ code: 0 });
  });

  it('leaves the rows unchanged if a retry would exceed it, and is raised by the suggested retry', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    await scene.batch('run', file);
    const retry = ['retry', file, '--budget', '2.5'] as const;
    const done = await scene.read(...retry, '--id', 'a');
    expect(done).toMatchObject({ exit_code: 12, rows: [{ id: 'a', state: 'new' }] });
    expect(done.error?.next).toEqual(expect.arrayContaining(['retry', '--budget', '3', '--id', 'a']));
    scene.file('m.csv', clips(['a', 'a ship'], ['b', 'a cat']));
    for (const rows of [['--changed'], ['--id', 'a']]) {
      const { exit_code, rows: left, error } = await scene.read(...retry, ...rows);
      expect({ exit_code, left }).toMatchObject({ exit_code: 12, left: [{ id: 'a', state: 'changed' }] });
      expect(error?.next).toEqual(expect.arrayContaining(['retry', '--budget', '3', ...rows]));
    }
    expect(scene.gateway.posts()).toHaveLength(2);
    expect(await scene.batch('retry', file, '--budget', '3', '--changed')).toMatchObject({ code: 0 });
  });

  it.each([
    ['a low budget', 1, undefined],
    ['an empty balance', 9, { kind: 'forbid', message: 'insufficient balance' }],
    ['rows in doubt', 9, { kind: 'lose' }],
    ['a long Retry-After', 9, { kind: 'limit', seconds: 3600 }],
  ] as const)(
    'still saves a row that is already paid for after %s stops the others',
    async (_, budget, deed) => {
      const file = scene.file('m.csv', clips(['a', 'a boat']));
      scene.gateway.polls = Infinity;
      await scene.batch('run', file, '--budget', '1', '--timeout', '1s');
      scene.gateway.polls = 1;
      scene.gateway.judge = () => deed;
      const others = Array.from({ length: 6 }, (__, n): [string, string] => [`n${n}`, `boat ${n}`]);
      scene.file('m.csv', clips(...others, ['a', 'a boat']));
      const limits = ['--budget', String(budget), '--concurrency', '1'];
      const { error, batch } = await scene.read('run', file, ...limits);
      expect({ error, states: batch.states }).toMatchObject({ error: {}, states: { done: 1 } });
      expect(batch.states['running']).toBe(0);
      expect(charges()).toMatchObject({ 'a boat': 1 });
    },
  );

  it('counts a row in doubt as spent, and the error suggests a budget that covers the other rows', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    once('a boat', { kind: 'lose' });
    const args = ['run', file, '--concurrency', '1', '--budget'] as const;
    const { code, stderr } = await scene.batch(...args, '1');
    expect(code).toBe(12);
    expect(stderr).toContain('0 files saved; at most 1 credits spent.');
    expect(stderr).toContain(
      'For the rest of the batch: --budget 3. This run may have paid for 1 row in doubt',
    );
    expect(stderr).toContain(
      'Some rows may have been charged. Running it again pays only for the other rows.',
    );
    expect(stderr).not.toContain('Nothing was sent');
    const { error, batch } = await scene.read(...args, '3');
    expect({ error, states: batch.states }).toMatchObject({ states: { done: 2, unknown: 1 } });
    expect(error).toBeUndefined();
  });

  it('causes an error with the numbers of paid rows and rows in doubt if it is too low', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    once('a cat', { kind: 'lose' });
    const { error } = await scene.read('run', file, '--concurrency', '1', '--budget', '2');
    expect(error).toMatchObject({
      charged: 'yes',
      retry: 'resume',
      message: expect.stringMatching(
        / paid for 1 row before that and may have paid for 1 row in doubt\./,
      ) as string,
    });
  });

  it('is raised once for the whole batch by the suggested command if it was set earlier', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog'], ['d', 'a fox']));
    await runHereAs(scene.user, ['budget', 'set', '2', '2', '--per', 'day']);
    const args = ['run', file, '--concurrency', '1', '--budget-name', '2'] as const;
    const { exit_code, error } = await scene.read(...args);
    expect({ exit_code, error }).toMatchObject({
      exit_code: 12,
      error: {
        next: ['mgw', 'budget', 'set', '2', '4', '--per', 'day'],
        message: expect.stringContaining('The rest of the batch needs a limit of 4.') as string,
      },
    });
    expect(await runHereAs(scene.user, error?.next.slice(1) ?? [])).toMatchObject({ code: 0 });
    expect(await scene.batch(...args)).toMatchObject({ code: 0 });
    expect(Object.values(charges())).toEqual([1, 1, 1, 1]);
  });

  it('can be set to the maximum cost that the plan reports', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    expect((await scene.read('plan', file)).cost.at_most).toBe('2');
  });
});

describe('a batch that was run', () => {
  it('can be specified in later commands by its name', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    once('a boat', { kind: 'doom' });
    await scene.batch('run', file);
    const told = await runHereAs(scene.user, ['batch', 'status', 'm']);
    expect(told).toMatchObject({
      code: 11,
      stdout: expect.stringMatching(/done +1\nfailed +1[^]*line 2: a failed/) as string,
    });
    const args = ['batch', 'retry', 'm', '--failed', '--poll-interval', '10ms'];
    expect(await runHereAs(scene.user, args)).toMatchObject({ code: 0 });
    expect(await runHereAs(scene.user, ['batch', 'status', 'm'])).toMatchObject({ code: 0 });
    const listed = await runHereAs(scene.user, ['jobs', 'ls', '--batch', 'm', '--json']);
    expect(listed.json['jobs']).toHaveLength(3);
  });

  it('is the only batch with a known name: `batch status` exits 2 for any other name', async () => {
    expect(await runHereAs(scene.user, ['batch', 'status', 'nobody'])).toMatchObject({ code: 2 });
  });
});

it('mgw schema prints the JSON Schema of a batch and of each request body', async () => {
  for (const [what, field] of [
    ['batch', 'defaults'],
    ['video a', 'instances'],
    ['video b', 'ModelVersion'],
    ['video c', 'aspect_ratio'],
    ['tts', 'sample_rate'],
  ] as const) {
    const { code, stdout } = await runHereAs(scene.user, ['schema', ...what.split(' ')]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining(`"${field}": {`) as string });
  }
});
