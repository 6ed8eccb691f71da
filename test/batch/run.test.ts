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
import type { CliResult, Running } from '../support/cli.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { runHereAs } from '../support/one-process.ts';
import type { Deed } from './gateway.ts';
import { clips, openScene, shortWait, type BatchJson, type Scene } from './scene.ts';

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

/** Makes the gateway respond differently to each submission of the given prompts. */
function judge(deeds: Record<string, Deed['kind']>): void {
  scene.gateway.judge = (prompt) => deeds[prompt] && ({ kind: deeds[prompt] } as Deed);
}

function charges(): Record<string, number> {
  return Object.fromEntries(scene.gateway.charges);
}

function mgw(...args: string[]): Promise<CliResult> {
  return runHereAs(scene.user, args);
}

/** Runs the command that a report suggests. */
function suggested(next: string[] | undefined): Promise<CliResult> {
  return mgw(...(next?.slice(1) ?? []));
}

/** Writes a manifest with one row, and ends its run before the video is finished. */
async function leaveRunning(...flags: string[]): Promise<string> {
  const file = scene.file('m.csv', clips(['a', 'a boat']));
  scene.gateway.polls = Infinity;
  await scene.batch('run', file, ...shortWait, ...flags);
  scene.gateway.polls = 0;
  return file;
}

describe('a batch run', () => {
  it('submits, waits for and saves every row with its sidecar, and later runs pay only for added rows', async () => {
    scene.gateway.polls = 1;
    const file = scene.file('m.csv', mixed);
    const first = await scene.batch('run', file, '--sidecar');
    expect(first.stderr).toContain('m: 4 done; 4 files saved.');
    expect(first.code).toBe(0);
    expect(first.stdout.trim().split('\n').sort()).toEqual(
      ['four.mp3', 'one.mp4', 'three.mp4', 'two.mp4'].map((name) => scene.at(name)),
    );
    for (const name of ['one', 'two', 'three'])
      expect(readFileSync(scene.at(`${name}.mp4`))).toEqual(scene.gateway.video);
    expect(readFileSync(scene.at('four.mp3'))).toEqual(scene.gateway.audio);
    expect(JSON.parse(readFileSync(scene.at('three.mp4.json'), 'utf8'))).toMatchObject({
      key: 'm/three',
      protocol: 'c',
      model: 'vendor-h3-mini',
      gateway: scene.gateway.url,
      request: { prompt: 'a dog' },
      file: { name: 'three.mp4', bytes: scene.gateway.video.length },
    });
    expect(existsSync(scene.at('four.mp3.json'))).toBe(true);
    scene.gateway.requests.splice(0);
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
    expect(scene.gateway.requests).toEqual(scene.gateway.listings());
    rmSync(scene.at('three.mp4'));
    const [head = '', one = '', , three = ''] = mixed.split('\n');
    const added = 'five,c,vendor-h3-mini,5,a fox,,';
    scene.file('m.csv', [head, added, three, one, ''].join('\n'));
    const saved = await scene.batch('run', file);
    expect(saved.stdout.trim().split('\n').sort()).toEqual([scene.at('five.mp4'), scene.at('three.mp4')]);
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1, 'good morning': 1, 'a fox': 1 });
  });

  const below = 'id,protocol,model,duration,prompt,output\na,c,vendor-h3-mini,5,a boat,sub/{id}.{ext}\n';

  it("follows no symbolic link out of the allowed folder, in a row's output path or in that of the manifest", async () => {
    const outside = freshFolder();
    mkdirSync(scene.at('out'));
    symlinkSync(outside, scene.at('out/sub'));
    const yaml =
      'output: out/sub/{id}.{ext}\nrows: [{id: a, protocol: c, model: vendor-h3-mini, duration: 5, prompt: a boat}]';
    const [ofRow, ofManifest] = [scene.file('m.csv', below), scene.file('m.yaml', yaml)];
    // The manifest's path is relative to the current folder, which only a separate process can change.
    const runs = [mgw('batch', 'run', ofRow, '-o', 'out/'), scene.user.run(['batch', 'run', ofManifest])];
    for (const { code, stderr } of await Promise.all(runs))
      expect([code, stderr]).toEqual([2, expect.stringContaining('a symbolic link leads from')]);
    expect(scene.gateway.charges.size).toBe(0);
    expect(readdirSync(outside)).toEqual([]);
  });

  it("refuses a manifest's output outside the manifest's folder", async () => {
    const row = { id: 'a', protocol: 'c', model: 'vendor-h3-mini', duration: 5, prompt: 'a boat' };
    for (const output of [
      '/tmp/x/{id}.{ext}',
      '../{id}.{ext}',
      '.git/hooks/{id}',
      's3://bucket/{id}.{ext}',
    ]) {
      const file = scene.file('m.yaml', JSON.stringify({ output, rows: [row] }));
      const refused = await mgw('batch', 'run', file);
      const message = expect.stringContaining('is outside the current folder') as string;
      expect([output, refused.code, refused.stderr]).toEqual([output, 2, message]);
    }
    expect(scene.gateway.requests).toEqual([]);
  });

  it('saves nothing through a symbolic link created after payment', async () => {
    const outside = freshFolder();
    scene.gateway.judge = () => {
      rmSync(scene.at('out/sub'), { recursive: true });
      symlinkSync(outside, scene.at('out/sub'));
      return undefined;
    };
    const { code, json } = await mgw('batch', 'run', scene.file('m.csv', below), '-o', 'out/', '--json');
    expect(code).toBe(11);
    expect(JSON.stringify(json)).toContain('a symbolic link leads from');
    expect(readdirSync(outside)).toEqual([]);
    expect(charges()).toEqual({ 'a boat': 1 });
  });

  it('pays for nothing if a row is invalid or its output exists, but runs the other rows with --skip-bad, which it suggests', async () => {
    const invalid = 'b,c,vendor-h3-mini,4,a cat\n';
    const file = scene.file('m.csv', clips(['a', 'a boat']) + invalid);
    expect(await scene.batch('run', file)).toMatchObject({ code: 2 });
    const valid = clips(['a', 'a boat'], ['c', 'a dog']);
    scene.file('m.csv', valid);
    scene.file('c.mp4', 'mine');
    const { exit_code, error } = await scene.read('run', file);
    expect({ exit_code, next: error?.next.at(-1) }).toEqual({ exit_code: 2, next: '--skip-bad' });
    expect(scene.gateway.requests).toEqual([]);
    expect(await suggested(error?.next)).toMatchObject({ code: 11, stdout: `${scene.at('a.mp4')}\n` });
    scene.file('m.csv', valid + invalid);
    const { batch } = await scene.read('run', file, '--skip-bad');
    expect(batch).toMatchObject({ rows: 3, bad: 2, states: { done: 1 } });
    expect(charges()).toEqual({ 'a boat': 1 });
    expect(readFileSync(scene.at('c.mp4'), 'utf8')).toBe('mine');
  });

  it("does not pay for a row whose output appeared after the plan, or whose sidecar would replace another program's file", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    scene.file('c.mp4.json', '{"mine":true}');
    scene.gateway.judge = () => {
      scene.file('b.mp4', 'of another program');
      return undefined;
    };
    const { exit_code, rows } = await scene.read('run', file, '--concurrency', '1', '--sidecar');
    expect(exit_code).toBe(11);
    expect(rows).toMatchObject([
      { id: 'b', message: expect.stringContaining('b.mp4 exists') as string },
      { id: 'c', state: 'new' },
    ]);
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
    const next = ['mgw', 'jobs', 'resolve', expect.any(String) as string];
    expect(await scene.read('run', file)).toMatchObject({
      exit_code: 11,
      batch: { states: { unknown: 1, done: 1 } },
      rows: [{ id: 'a', state: 'unknown', next }],
    });
    expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
    expect(await mgw('jobs', 'resolve', '@m/a', '--adopt', 'task-1')).toMatchObject({ code: 0 });
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

  it('continues with the other rows if the key cannot use the model of a row, but stops if the key is refused', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a kite']));
    const run = (): Promise<BatchJson> => scene.read('run', file, '--concurrency', '1');
    let message = 'user is banned';
    scene.gateway.judge = (prompt) => (prompt === 'a boat' ? { kind: 'forbid', message } : undefined);
    expect((await run()).batch.states).toMatchObject({ rejected: 1, new: 2 });
    message = 'This token has no access to model vendor-h3';
    expect(await run()).toMatchObject({ exit_code: 11, batch: { states: { rejected: 1, done: 2 } } });
  });

  it('writes a result line for each row when it ends, and a step summary in GitHub Actions', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    judge({ 'a cat': 'doom', 'a dog': 'refuse' });
    scene.user.env['GITHUB_STEP_SUMMARY'] = scene.at('summary.md');
    await scene.batch('run', file, '--results', scene.at('r.jsonl'));
    const lines = readFileSync(scene.at('r.jsonl'), 'utf8').trim().split('\n');
    const results = lines.map((line) => JSON.parse(line) as { id: string; state: string; exit_code: number });
    expect(results.sort((one, other) => one.id.localeCompare(other.id))).toMatchObject([
      { id: 'a', state: 'done', exit_code: 0, files: [{ path: scene.at('a.mp4') }] },
      { id: 'b', state: 'failed', exit_code: 5, error: { code: 'task_failed' } },
      { id: 'c', state: 'rejected' },
    ]);
    expect(readFileSync(scene.at('summary.md'), 'utf8')).toMatch(/1 failed[^]*\| b \| failed \|/);
  });

  it("refuses --results if it is the manifest, a row's output or a URL, before anything is paid for", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    symlinkSync(file, scene.at('link'));
    for (const path of [file, scene.at('link'), scene.at('a.mp4')]) {
      const { code, json } = await scene.batch('run', file, '--results', path, '--json');
      expect([code, json.error?.next]).toEqual([2, expect.arrayContaining([`${path}.results.jsonl`])]);
      expect(readFileSync(file, 'utf8')).toBe(clips(['a', 'a boat']));
    }
    const { code, stderr } = await scene.batch('run', file, '--results', 's3://bucket/r.jsonl');
    expect([code, stderr]).toEqual([2, expect.stringContaining('must be a path, not a URL')]);
    expect([scene.gateway.posts(), existsSync(scene.at('s3:'))]).toEqual([[], false]);
  });
});

describe('mgw batch retry', () => {
  it('pays again for a failed row, but mgw batch run pays only for a refused row, and removes the leftovers of killed runs', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    judge({ 'a boat': 'doom', 'a dog': 'refuse' });
    const next = ['mgw', 'batch', 'retry', file, '-o', scene.at('{id}.{ext}'), '--id', 'a'];
    expect(await scene.read('run', file)).toMatchObject({
      exit_code: 11,
      batch: { states: { failed: 1, done: 1, rejected: 1 } },
      rows: expect.arrayContaining([expect.objectContaining({ id: 'a', state: 'failed', next })]) as object,
    });
    judge({});
    for (const name of ['a.mp4.part.json', 'b.mp4.part.json']) scene.file(name, '');
    expect(await scene.batch('run', file)).toMatchObject({ code: 11, stdout: `${scene.at('c.mp4')}\n` });
    expect(readdirSync(scene.user.cwd).filter((name) => name.includes('.part'))).toEqual([]);
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a dog': 1 });
    const retried = await scene.batch('retry', file, '--failed');
    expect(retried).toMatchObject({ code: 0, stdout: `${scene.at('a.mp4')}\n` });
    expect(retried.stderr).not.toContain('Already paid for');
    for (const again of [['run'], ['retry', '--failed']])
      expect(await scene.batch(again[0] ?? '', file, ...again.slice(1))).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 2, 'a cat': 1, 'a dog': 1 });
    const shown = await mgw('jobs', 'show', '@m/a', '--json');
    expect(shown.json.job).toMatchObject({ key: 'm/a/2', state: 'succeeded' });
  });

  it('remakes a done row with --id, without replacing the first file, and refuses an unknown id', async () => {
    const file = scene.file('m.csv', clips(['a 1', 'a boat'], ['b', 'a cat']));
    await scene.batch('run', file);
    expect(await scene.batch('retry', file, '--id', 'none')).toMatchObject({ code: 2 });
    const retry = ['retry', file, '--id', 'a 1'] as const;
    const saved = { code: 0, stdout: `${scene.at('a-1.2.mp4')}\n` };
    const again = await scene.batch(...retry);
    expect(again).toMatchObject(saved);
    expect(again.stderr).toContain('Already paid for, but will be remade and paid for again: a-1.');
    expect(await scene.batch(...retry, '--force')).toMatchObject(saved);
    expect(charges()).toEqual({ 'a boat': 3, 'a cat': 1 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
  });

  it("saves to a file that is neither another row's output nor an existing file", async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a boat'], ['a.2', 'a cat']));
    writeFileSync(scene.at('a.3.mp4'), 'my own');
    for (const [number, flag] of ['--id a', '--rated 2'].entries()) {
      await mgw('jobs', 'rate', '@m/a', '2');
      const retried = await scene.batch('retry', file, ...flag.split(' '));
      expect(retried).toMatchObject({ code: 0, stdout: `${scene.at(`a.${4 + number}.mp4`)}\n` });
    }
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(charges()).toEqual({ 'a boat': 3, 'a cat': 1 });
  });

  it('keeps the file of an earlier retry if a row with the same output is added, even if the retried row is cached or --force is given', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    await scene.batch('retry', file, '--id', 'a');
    const message = expect.stringMatching(/a\.2\.mp4 is also the output of line 2$/) as string;
    for (const args of [[], ['--force']]) {
      scene.file('m.csv', clips(['a', 'a boat'], ['a.2', 'a cat']));
      const problems = [{ line: 3, message }];
      expect(await scene.read('run', file, ...args)).toMatchObject({ exit_code: 2, problems });
      scene.file('m.csv', clips(['a', 'a boat']));
      expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
    }
    expect(charges()).toEqual({ 'a boat': 2 });
  });
});

describe('a batch run whose gateway loses responses', () => {
  const rows = (count: number): [string, string][] =>
    Array.from({ length: count }, (_, n) => [`r${n}`, `boat ${n}`]);

  it('stops after five consecutive rows in doubt, even if it saves a row that was already paid for in between', async () => {
    const file = await leaveRunning();
    const others = rows(6);
    scene.file('m.csv', clips(...others.slice(0, 4), ['a', 'a boat'], ...others.slice(4)));
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
    expect(scene.gateway.posts()).toHaveLength(1 + 5);
    judge({});
    expect((await scene.read('run', file)).batch.states).toMatchObject({ done: 2, unknown: 5 });
  });

  it('continues if the gateway accepts a row in between', async () => {
    const file = scene.file('m.csv', clips(...rows(9)));
    scene.gateway.polls = Infinity;
    scene.gateway.judge = (prompt) => {
      if (prompt === 'boat 8') scene.gateway.polls = 0;
      return prompt === 'boat 4' || prompt === 'boat 8' ? undefined : { kind: 'lose' };
    };
    const { batch } = await scene.read('run', file, '--concurrency', '2');
    expect(batch.states).toMatchObject({ done: 2, unknown: 7 });
  });

  it('continues if the gateway refuses a row in between', async () => {
    const file = scene.file('m.csv', clips(...rows(7)));
    scene.gateway.judge = (prompt) => ({ kind: prompt === 'boat 3' ? 'refuse' : 'lose' });
    const { batch } = await scene.read('run', file, '--concurrency', '1');
    expect(batch.states).toMatchObject({ rejected: 1, unknown: 6 });
  });
});

it('a retry of failed rows suggests one command for all its rows, which pays once for each', async () => {
  const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  judge({ 'a boat': 'doom', 'a cat': 'doom' });
  await scene.batch('run', file);
  judge({ 'a boat': 'refuse', 'a cat': 'doom' });
  const { stderr } = await scene.batch('retry', file, '--failed');
  expect(stderr.match(/^→ .*$/gm)).toEqual([expect.stringMatching(/ retry .*--failed$/)]);
  judge({});
  const [, command = ''] = /^→ mgw (.*)$/m.exec(stderr) ?? [];
  expect(await mgw(...command.split(' '))).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 2, 'a cat': 3 });
});

it('a retry by id that continues a running row does not pay again if the result is gone', async () => {
  const file = await leaveRunning();
  scene.gateway.gone.add(scene.gateway.taskOf('a boat'));
  expect(await scene.batch('retry', file, '--id', 'a')).toMatchObject({ code: 11 });
  expect(charges()).toEqual({ 'a boat': 1 });
});

describe('a row that was changed after it was paid for', () => {
  it('is printed with the difference, and is paid for only by retry', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a ship'], ['b', 'a cat']));
    const message = expect.stringContaining('prompt was "a boat", is "a ship"') as string;
    expect(await scene.read('run', file)).toMatchObject({
      exit_code: 11,
      rows: [{ id: 'a', state: 'changed', message }],
    });
    expect(scene.gateway.charges.has('a ship')).toBe(false);
    const retry = ['retry', file, '--id', 'a'] as const;
    expect(await scene.batch(...retry)).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
    expect(existsSync(scene.at('a.mp4'))).toBe(true);
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a ship': 1 });
  });

  it('is printed with both gateways, formats or protocols if only they were changed', async () => {
    const speech = (format: string): string =>
      scene.file('s.csv', `id,protocol,text,format\na,tts,a boat,${format}\n`);
    await scene.batch('run', speech('wav'));
    const changes = async (file: string, ...flags: string[]): Promise<unknown> =>
      (await scene.read('plan', file, ...flags)).rows.map((row) => row.changes?.[0]);
    expect(await changes(speech('pcm'))).toEqual(['the format was wav, is pcm']);
    const url = 'https://gateway.example/prefix';
    const notes = [`the gateway was ${scene.gateway.url}, is ${url}`];
    expect(await changes(speech('wav'), '--base-url', url)).toEqual(notes);
    const clip = scene.file('s.csv', clips(['a', 'a boat']));
    expect(await changes(clip)).toEqual(['the protocol was tts, is c']);
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
    await mgw('jobs', 'resolve', id, '--not-created');
    expect(await scene.batch('retry', file, '--changed')).toMatchObject({ code: 0 });
    expect(charges()).toEqual({ 'a boat': 1, 'a ship': 1 });
  });

  it('is not paid for again while its job is in progress, and the suggested command saves the video', async () => {
    const file = await leaveRunning();
    scene.gateway.polls = Infinity;
    scene.file('m.csv', clips(['a', 'a ship']));
    for (const [word = '', ...choice] of [['run'], ['retry', '--changed'], ['retry', '--id', 'a']]) {
      const { exit_code, rows } = await scene.read(word, file, ...choice);
      expect([exit_code, rows]).toMatchObject([11, [{ state: 'running' }]]);
    }
    scene.gateway.polls = 0;
    const saved = await suggested((await scene.read('status', file)).rows[0]?.next);
    expect(saved).toMatchObject({ code: 0, stdout: `${scene.at('a.mp4')}\n` });
    const retry = await scene.batch('retry', file, '--changed');
    expect(retry).toMatchObject({ code: 0, stdout: `${scene.at('a.2.mp4')}\n` });
    expect(charges()).toEqual({ 'a boat': 1, 'a ship': 1 });
  });

  it('is retried after each change without replacing the files of earlier takes', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    const retry = (prompt: string, output = '{id}.{ext}'): Promise<CliResult> => {
      scene.file('m.csv', clips(['a', prompt]));
      return scene.batch('retry', file, '--changed', '-o', scene.at(output));
    };
    const saved = (name: string): object => ({ code: 0, stdout: `${scene.at(name)}\n` });
    expect(await retry('a ship')).toMatchObject(saved('a.2.mp4'));
    expect(await retry('a boat', 'other/{id}.{ext}')).toMatchObject(saved('other/a.mp4'));
    expect(await retry('a ship')).toMatchObject(saved('a.4.mp4'));
    rmSync(scene.at('a.4.mp4'));
    expect(await retry('a boat')).toMatchObject(saved('a.4.mp4'));
    expect(charges()).toEqual({ 'a boat': 3, 'a ship': 2 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0, stdout: '' });
  });

  it('is retried by the single command that run suggests for all rows that need attention', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    scene.file('m.csv', clips(['a', 'a ship'], ['', 'a fox']));
    once('a fox', { kind: 'doom' });
    const { code, stderr } = await scene.batch('run', file);
    expect(code).toBe(11);
    expect(stderr).toMatch(/^"a fox" failed: /m);
    expect(stderr.match(/^→ .*$/gm)).toEqual([
      expect.stringMatching(/^→ mgw batch retry \S+ .*--failed --changed$/),
    ]);
    const first = await scene.batch('retry', file, '--failed', '--changed');
    expect(first).toMatchObject({ code: 0 });
    expect(first.stderr).toContain('To view the results: mgw jobs gallery --batch m --serve');
    const again = await scene.batch('retry', file, '--failed', '--changed');
    expect(again).toMatchObject({ code: 0, stdout: '' });
    expect(charges()).toEqual({ 'a boat': 1, 'a ship': 1, 'a fox': 2 });
  });
});

describe('an interruption of a batch run', () => {
  const prompts = ['a boat', 'a cat', 'a dog', 'a fox'];
  const paidOnce = Object.fromEntries(prompts.map((prompt) => [prompt, 1]));

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
    let callCount = 0;
    const both = new Promise<void>((resolve) => {
      scene.gateway.judge = () => {
        if ((callCount += 1) === 2) resolve();
        return { kind: 'wait', until };
      };
    });
    const more = ['-o', scene.at('{id}.{ext}'), '--poll-interval', '10ms', '--concurrency', '2'];
    const running = scene.user.start(['batch', 'run', file, ...more, '-v', '--json']);
    await both;
    const noted = new Promise<void>((resolve) =>
      running.child.stderr?.on('data', (text) => /Interrupted/.test(String(text)) && resolve()),
    );
    return { running, file, answer, told: noted };
  }

  it('stops new submissions but waits for pending responses if it is SIGTERM, and a rerun pays for the remaining rows', async () => {
    const { running, file, answer, told } = await interrupted();
    running.child.kill('SIGTERM');
    await told;
    answer();
    const ended = await running.result;
    expect(ended.code).toBe(143);
    expect(scene.gateway.posts()).toHaveLength(2);
    const { batch, rows } = ended.json as unknown as BatchJson;
    expect(batch.states).toMatchObject({ running: 2, new: 2 });
    const next = rows.filter(({ state }) => state === 'running').map((row) => row.next.slice(0, 3));
    expect(next).toEqual(Array(2).fill(['mgw', 'batch', 'run']));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(charges()).toEqual(paidOnce);
  });

  it('leaves rows in doubt, which the next run reports, if it is SIGKILL', async () => {
    const { running, file, answer } = await interrupted();
    running.child.kill('SIGKILL');
    await running.result;
    answer();
    const lost = { state: 'unknown', message: 'The process ended before the response arrived' };
    expect((await scene.read('run', file)).rows).toMatchObject([lost, lost]);
    expect(charges()).toEqual(paidOnce);
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
    judge({});
    const again = await scene.read('run', file);
    expect(again).toMatchObject({ exit_code: 11, batch: { states: { unknown: 2, done: 2 } } });
    expect(charges()).toEqual(paidOnce);
  });
});

it("output file names of a batch contain the file's job and number if the template contains them, also in a folder name", async () => {
  scene.gateway.samples = 2;
  const row = 'id,protocol,model,duration,sample-count,prompt\none,a,video-a,5,2,a boat\n';
  const file = scene.file('m.csv', row);
  const run = async (template: string): Promise<void> =>
    expect(await scene.read('run', file, '-o', scene.at(template))).toMatchObject({
      exit_code: 0,
      batch: { states: { done: 1 } },
    });
  await run('out/{job}-{n}.{ext}');
  const { json } = await mgw('jobs', 'show', '@m/one', '--json');
  expect(readdirSync(scene.at('out')).sort()).toEqual([`${json.job.id}-1.mp4`, `${json.job.id}-2.mp4`]);
  await run('out/{job}-{n}.{ext}');
  await run('{id}/take{n}/clip.{ext}');
  expect(readdirSync(scene.at('one'))).toEqual(['take1', 'take2']);
  expect(charges()).toEqual({ 'a boat': 1 });
  const retry = ['retry', file, '--id', 'one', '-o', scene.at('out/{job}-{n}.{ext}')];
  expect(await scene.batch(...retry)).toMatchObject({ code: 0 });
  expect(readdirSync(scene.at('out'))).toHaveLength(4);
});

describe('a row whose result is no longer available at the gateway', () => {
  it('is reported, and is paid for again only by retry', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    scene.gateway.judge = () => void scene.gateway.gone.add('task-1');
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

  it('is paid for once by a retry of a row that was refused or rate-limited', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    judge({ 'a boat': 'refuse', 'a cat': 'limit' });
    await scene.batch('run', file, '--retries', '0');
    scene.gateway.judge = () => void [1, 2, 3, 4].map((n) => scene.gateway.gone.add(`task-${n}`));
    expect(await scene.batch('retry', file, '--id', 'a', '--id', 'b')).toMatchObject({ code: 11 });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
  });

  it('is reported immediately, with the retry that remakes it, if its task has expired', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat']));
    await scene.batch('run', file);
    rmSync(scene.at('a.mp4'));
    scene.gateway.isExpired = true;
    expect(await scene.read('run', file, ...shortWait)).toMatchObject({
      exit_code: 11,
      rows: [{ id: 'a', next: expect.arrayContaining(['retry', '--id', 'a']) as string[] }],
    });
  });
});

it('a retry suggests only commands for its own rows, and one command for those that are in progress', async () => {
  const rows = ['a', 'b', 'c', 'd', 'e'].map((id): [string, string] => [id, `boat ${id}`]);
  const file = scene.file('m.csv', clips(...rows));
  scene.gateway.polls = Infinity;
  judge({ 'boat c': 'refuse' });
  const ids = ['--id', 'a', '--id', 'b', '--id', 'c'];
  const wait = ['--timeout', '20s', '--poll-interval', '5s'];
  const { json, stderr } = await scene.batch('retry', file, ...ids, ...wait, '--json');
  const ended = (json as unknown as BatchJson).rows;
  expect(ended).toHaveLength(3);
  for (const { id, next } of ended) expect(next.slice(-2)).toEqual(['--id', id]);
  expect(stderr.match(/^→ .*$/gm)).toEqual([expect.stringMatching(/ retry .*--id a --id b --id c$/)]);
  scene.gateway.polls = 0;
  judge({});
  const [, command = ''] = /^→ mgw (.*)$/m.exec(stderr) ?? [];
  const ran = await mgw(...command.split(' '));
  expect(ran.code, ran.stderr).toBe(0);
  expect(charges()).toEqual({ 'boat a': 1, 'boat b': 1, 'boat c': 1 });
});

it.each([['run'], ['retry', '--id', 'a']])(
  'a %s whose download is damaged suggests a command that saves the result at no charge',
  async (command, ...choice) => {
    const others: [string, string][] = command === 'retry' ? [['b', 'a cat']] : [];
    const file = scene.file('m.csv', clips(['a', 'a boat'], ...others));
    const whole = scene.gateway.videoOf;
    scene.gateway.videoOf = () => Buffer.from('<html>busy</html>');
    const { rows } = await scene.read(command, file, ...choice);
    scene.gateway.videoOf = whole;
    expect(await suggested(rows[0]?.next)).toMatchObject({ code: 0 });
    expect((await scene.read('status', file)).batch.states).toMatchObject({ done: 1, new: others.length });
    expect(charges()).toEqual({ 'a boat': 1 });
  },
);

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
  const result = await mgw(...command.replaceAll("'", '').split(' '));
  expect(result, command).toMatchObject({ code: 0 });
  expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1, 'a ship': 1 });
});

describe('the budget of a batch', () => {
  beforeEach(() => mgw('config', 'set', 'prices.c.vendor-h3-mini', 'video=1'));

  it('applies to all runs of a batch together, and a run that would exceed the budget exits with 12', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog'], ['d', 'a fox']));
    expect((await scene.read('plan', file)).cost.at_most).toBe('4');
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
    await mgw('config', 'unset', 'prices.c.vendor-h3-mini');
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    await mgw('config', 'set', 'prices.c.vendor-h3-mini', 'video=1');
    scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    const { stderr } = await scene.batch('plan', file, '--budget', '2.5');
    expect(stderr).toContain('0.5 of 2.5 left');
    const { exit_code, error } = await scene.read('run', file, '--budget', '2.5');
    const left = expect.stringContaining('0.5 is left (2 spent, 0 reserved') as string;
    expect({ exit_code, error }).toMatchObject({ exit_code: 12, error: { message: left } });
    expect(error?.next).toEqual(expect.arrayContaining(['--budget', '3']));
    expect(scene.gateway.posts()).toHaveLength(2);
  });

  it('leaves the rows unchanged if a retry would exceed it, and is raised by the suggested retry', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    await scene.batch('run', file);
    const retry = ['retry', file, '--budget', '2.5'] as const;
    const refused = async (rows: string[], state: string): Promise<string[] | undefined> => {
      const { exit_code, rows: left, error } = await scene.read(...retry, ...rows);
      expect({ exit_code, left }).toMatchObject({ exit_code: 12, left: [{ id: 'a', state }] });
      expect(error?.next).toEqual(expect.arrayContaining(['retry', '--budget', '3', ...rows]));
      return error?.next;
    };
    await refused(['--id', 'a'], 'new');
    scene.file('m.csv', clips(['a', 'a ship'], ['b', 'a cat']));
    await refused(['--id', 'a'], 'changed');
    const next = await refused(['--changed'], 'changed');
    expect(scene.gateway.posts()).toHaveLength(2);
    expect(await suggested(next)).toMatchObject({ code: 0 });
  });

  it.each([
    ['a low budget', 1, undefined],
    ['an empty balance', 9, { kind: 'forbid', message: 'insufficient balance' }],
    ['rows in doubt', 9, { kind: 'lose' }],
    ['a long Retry-After', 9, { kind: 'limit', seconds: 3600 }],
  ] as const)(
    'still saves a row that is already paid for after %s stops the others',
    async (_, budget, deed) => {
      const file = await leaveRunning('--budget', '1');
      scene.gateway.judge = () => deed;
      const others = Array.from({ length: 6 }, (__, n): [string, string] => [`n${n}`, `boat ${n}`]);
      scene.file('m.csv', clips(...others, ['a', 'a boat']));
      const limits = ['--budget', String(budget), '--concurrency', '1'];
      const { error, batch } = await scene.read('run', file, ...limits);
      expect({ error, states: batch.states }).toMatchObject({ error: {}, states: { done: 1, running: 0 } });
      expect(charges()).toMatchObject({ 'a boat': 1 });
    },
  );

  it('counts a row in doubt as spent, and the error suggests a budget that covers the other rows', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog'], ['d', 'a fox']));
    judge({ 'a boat': 'lose', 'a dog': 'lose' });
    const args = ['run', file, '--concurrency', '1', '--budget'] as const;
    const { code, stderr } = await scene.batch(...args, '1');
    expect(code).toBe(12);
    expect(stderr).toContain('0 files saved; at most 1 credits spent.');
    expect(stderr).toContain(
      'For the rest of the batch: --budget 4. This run may have paid for 1 row in doubt.',
    );
    expect(stderr).toContain(
      'Some rows may have been charged. Running it again pays only for the other rows.',
    );
    expect(stderr).not.toContain('Nothing was sent');
    const { error } = await scene.read(...args, '3');
    const message = expect.stringContaining(
      'This run paid for 1 row before that and may have paid for 1 row in doubt.',
    ) as string;
    expect(error).toMatchObject({ charged: 'yes', retry: 'resume', message });
    const last = await scene.read(...args, '4');
    expect(last.batch.states).toMatchObject({ done: 2, unknown: 2 });
    expect(last.error).toBeUndefined();
  });

  it('is raised once for the whole batch by the suggested command if it was set earlier', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog'], ['d', 'a fox']));
    await mgw('budget', 'set', '2', '2', '--per', 'day');
    const args = ['run', file, '--concurrency', '1', '--budget-name', '2'] as const;
    const { exit_code, error } = await scene.read(...args);
    expect({ exit_code, error }).toMatchObject({
      exit_code: 12,
      error: {
        next: ['mgw', 'budget', 'set', '2', '4', '--per', 'day'],
        message: expect.stringContaining('The rest of the batch needs a limit of 4.') as string,
      },
    });
    expect(await suggested(error?.next)).toMatchObject({ code: 0 });
    expect(await scene.batch(...args)).toMatchObject({ code: 0 });
    expect(Object.values(charges())).toEqual([1, 1, 1, 1]);
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
    const { code, stdout } = await mgw('schema', ...what.split(' '));
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining(`"${field}": {`) as string });
  }
});
