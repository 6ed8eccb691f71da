import { existsSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { budgetPath } from '../../src/budget/file-budget.ts';
import type { CliResult } from '../support/cli.ts';
import { runHereAs } from '../support/one-process.ts';
import { clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
});
afterEach(() => scene.gateway.close());

/** Runs an `mgw batch` command without `--output`. */
function batch(...args: string[]): Promise<CliResult> {
  const polls = args[0] === 'run' || args[0] === 'retry' ? ['--poll-interval', '10ms'] : [];
  return runHereAs(scene.user, ['batch', ...args, ...polls]);
}

const charges = (): number => [...scene.gateway.charges.values()].reduce((sum, times) => sum + times, 0);

describe('a batch run with --output, --name and -d', () => {
  let file: string;
  beforeEach(async () => {
    file = scene.file('shots.csv', clips(['a', 'a boat'], ['b', 'a cat']).replace(/,5,/g, ',,'));
    const options = ['-o', scene.at('out/{id}.{ext}'), '--name', 'film', '-d', 'duration=5'];
    expect(await batch('run', file, ...options)).toMatchObject({ code: 0 });
    scene.gateway.requests.splice(0);
  });

  it.each(['file', 'name'])(
    'is reported as done, and retried with the same options, if the argument is its %s',
    async (by) => {
      const argument = by === 'file' ? file : 'film';
      for (const command of ['status', 'plan', 'run']) {
        const { code, json } = await batch(command, argument, '--json');
        expect({ code, batch: json.batch }).toMatchObject({
          code: 0,
          batch: { name: 'film', states: { done: 2 } },
        });
      }
      expect(scene.gateway.posts()).toEqual([]);
      const retried = { code: 0, stdout: `${scene.at('out/a.2.mp4')}\n` };
      expect(await batch('retry', argument, '--id', 'a')).toMatchObject(retried);
      expect(charges()).toBe(3);
    },
  );

  it('is listed with its rows and its file, and counts a retried row once', async () => {
    expect(await batch('retry', file, '--id', 'a')).toMatchObject({ code: 0 });
    const { json, code } = await batch('ls', '--json');
    expect(code).toBe(0);
    expect(json['batches']).toEqual([
      { name: 'film', file, states: { succeeded: 2 }, spent: 'unknown', last: expect.any(String) as string },
    ]);
    expect((await batch('ls')).stdout).toMatch(/^film +2 succeeded +unknown /m);
    const { jobs } = (await runHereAs(scene.user, ['jobs', 'ls', '--batch', 'film', '--json'])).json;
    expect(jobs).toHaveLength(3);
  });

  it("uses a later command's output and field values instead if that command sets them", async () => {
    const other = scene.at('other/{id}.{ext}');
    expect(await batch('run', file, '-o', other)).toMatchObject({ code: 0 });
    expect(existsSync(scene.at('other/a.mp4'))).toBe(true);
    expect(charges()).toBe(2);
    expect((await batch('plan', file, '-d', 'duration=6', '--json')).json.batch).toMatchObject({
      states: { changed: 2 },
    });
    expect(await batch('plan', file, '-d', 'duration=')).toMatchObject({ code: 0 });
  });

  it('is not confused with a batch of the same name from another file', async () => {
    const other = scene.file('other.csv', clips(['a', 'a fox']));
    const { stdout, stderr } = await batch('plan', other, '--name', 'film', '--json');
    expect(stdout).not.toContain(scene.at('out'));
    expect(stderr).toContain(`The batch film was last run from a different file, ${file}.`);
    expect((await batch('plan', file)).stderr).not.toContain('a different file');
  });
});

it("a batch uses its last run's budget and sidecar setting until a command sets a different budget", async () => {
  const file = scene.file('dear.csv', clips(['a', 'a boat'], ['b', 'a cat']));
  await runHereAs(scene.user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
  const output = ['-o', scene.at('{id}.{ext}')];
  expect(await batch('run', file, ...output, '--budget', '1', '--sidecar')).toMatchObject({ code: 12 });
  const refused = await batch('run', file, '--budget', '90', '--results', file);
  expect(refused).toMatchObject({ code: 2 });
  const planned = await batch('plan', file, '--json');
  expect(planned.json['exceeded']).toMatchObject([{ limit: '1', left: '0' }]);
  for (const command of [['run'], ['retry', '--id', 'a']]) {
    const { code, json, stderr } = await batch(...(command as [string]), file, '--json');
    expect(code, stderr).toBe(12);
    expect(stderr).toContain("Using the batch's last --budget: 1.");
    expect(json['error']).toMatchObject({
      next: expect.arrayContaining([command[0], '--budget', '2', '--sidecar']) as string[],
    });
  }
  expect(charges()).toBe(1);
  expect(await batch('run', file, '--budget', '2')).toMatchObject({ code: 0 });
  for (const id of ['a', 'b']) expect(existsSync(scene.at(`${id}.mp4.json`))).toBe(true);
});

it('a batch uses the output in the manifest if the manifest was edited after the last run', async () => {
  const text = (folder: string): string =>
    `output: ${scene.at(folder)}/{id}.{ext}\nrows: [{id: a, protocol: c, model: vendor-h3-mini, duration: 5, prompt: a boat}]`;
  const file = scene.file('film.yaml', text('one'));
  expect(await batch('run', file)).toMatchObject({ code: 0 });
  expect((await batch('status', file)).code).toBe(0);
  scene.file('film.yaml', text('two'));
  expect((await batch('status', file)).code).toBe(11);
});

it('batch plan reports that a batch exceeds its budget, and creates no budget file', async () => {
  const file = scene.file('dear.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a fox']));
  await runHereAs(scene.user, ['config', 'set', 'prices.c.vendor-h3-mini', 'second=1']);
  const above = await batch('plan', file, '--budget', '10');
  expect(above).toMatchObject({ code: 0 });
  expect(above.stderr).toContain(
    'This may cost up to 15 credits, more than the budget of the batch dear allows: 10 of 10 left.',
  );
  expect((await batch('plan', file, '--budget', '10', '--json')).json['exceeded']).toEqual([
    { budget: 'the budget of the batch dear', limit: '10', left: '10' },
  ]);
  expect((await batch('plan', file, '--budget', '15', '--json')).json['exceeded']).toBeUndefined();
  expect(existsSync(budgetPath(scene.user.env['MGW_STATE_DIR'] ?? '', 'batch', 'dear'))).toBe(false);
});

it('a batch can be specified by a name that contains a dot, even if a folder has the same name', async () => {
  const file = scene.file('promo.v2.csv', clips(['a', 'a boat']));
  const output = scene.at('promo.v2/{id}.{ext}');
  expect(await batch('run', file, '-o', output)).toMatchObject({ code: 0 });
  expect(await scene.user.run(['batch', 'status', 'promo.v2', '--json'])).toMatchObject({
    json: { exit_code: 0, batch: { name: 'promo.v2', file, states: { done: 1 } } },
  });
});

it('batch retry suggests itself with --ignore-columns if a column is unknown', async () => {
  const text = clips(['a', 'a boat']).replace('id,', 'Owner,id,').replace('\na,', '\nme,a,');
  const file = scene.file('shots.csv', text);
  for (const selection of ['--changed --stale', '--rated 2', '--id a --id b']) {
    const typed = ['retry', file, ...selection.split(' '), '--concurrency', '8', '--timeout', '5m'];
    const { json } = await batch(...typed, '--json');
    expect(json.error?.next).toEqual(['mgw', 'batch', ...typed, '--ignore-columns', 'Owner']);
  }
});

it('the error for an unknown batch name suggests mgw batch ls, but a path with --format is a file', async () => {
  const { json } = await batch('status', 'nope', '--json');
  expect(json).toMatchObject({ exit_code: 2, error: { next: ['mgw', 'batch', 'ls'] } });
  const missing = await batch('run', 'missing.txt', '--format', 'csv', '--json');
  const message = expect.stringContaining('missing.txt') as string;
  expect(missing.json).toMatchObject({ exit_code: 2, error: { message } });
  expect(missing.stdout).not.toContain('No batch named');
});

describe('a batch whose rows were piped with --name', () => {
  const rows = clips(['a', 'a boat'], ['b', 'a cat']);
  const pipe = (...args: string[]): Promise<CliResult> =>
    runHereAs(scene.user, ['batch', ...args, '--json'], rows, undefined);
  beforeEach(async () => {
    await runHereAs(scene.user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    const options = ['--format', 'csv', '--name', 'piped', '-o', scene.at('out/{id}.{ext}')];
    const { code } = await pipe('run', '-', ...options, '--budget', '2', '--poll-interval', '10ms');
    expect(code).toBe(0);
  });

  it('is listed, and its output, format and budget apply to later runs, but it cannot be read by its name', async () => {
    expect((await batch('ls', '--json')).json['batches']).toMatchObject([
      { name: 'piped', file: '-', states: { succeeded: 2 }, spent: '2' },
    ]);
    const again = await pipe('run', '-', '--name', 'piped');
    expect(again.json).toMatchObject({ exit_code: 0, batch: { states: { done: 2 } } });
    expect(await pipe('retry', '-', '--name', 'piped', '--id', 'a')).toMatchObject({ code: 12 });
    expect(charges()).toBe(2);
    const { json } = await batch('retry', 'piped', '--id', 'a', '--budget', '3', '--json');
    const message = expect.stringContaining('standard input') as string;
    expect(json).toMatchObject({ exit_code: 2, error: { message } });
    // The error suggests the command to pipe the rows to.
    const next = json.error?.next ?? [];
    expect(next.join(' ')).toMatch(/^mgw batch retry - --format csv --name piped --id a --budget 3 /);
    expect((await runHereAs(scene.user, next.slice(1), rows)).code).toBe(0);
    expect(existsSync(scene.at('out/a.2.mp4'))).toBe(true);
  });

  it('is not confused with a batch of the same name from a file', async () => {
    const file = scene.file('other.csv', rows);
    const { json, stderr } = await batch('plan', file, '--name', 'piped', '--json');
    expect(JSON.stringify(json)).not.toContain(scene.at('out'));
    expect(stderr).toContain('The batch piped was last run from standard input.');
  });
});
