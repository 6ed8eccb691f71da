import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkedLine } from '../../src/ledger/event-log.ts';
import { runHereAs } from '../support/one-process.ts';
import { clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
let file: string;
beforeEach(async () => {
  scene = await openScene();
  file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
  expect((await scene.batch('run', file)).code).toBe(0);
  scene.gateway.requests.splice(0);
});
afterEach(() => scene.gateway.close());

function known(): string {
  const folder = join(scene.user.env['MGW_STATE_DIR'] ?? '', 'batches');
  const [name = ''] = readdirSync(folder).filter((each) => each.endsWith('.rows'));
  return join(folder, name);
}

const lines = (): number => readFileSync(known(), 'utf8').split('\n').length - 1;

describe('the cache of done rows', () => {
  it('is filled by the first run, and filled again if it is lost or damaged, or if a record lacks a field', async () => {
    const run = async (): Promise<number> => {
      expect((await scene.read('run', file)).batch).toMatchObject({ rows: 3, states: { done: 3 } });
      return lines();
    };
    expect(lines()).toBe(3);
    // The second run does not add the rows to the cache again.
    expect(await run()).toBe(3);
    const text = readFileSync(known(), 'utf8');
    writeFileSync(known(), text.replaceAll('"take":1', '"take":2').replace('\n', '\nx\n'));
    expect(await run()).toBe(7);
    rmSync(known());
    expect(await run()).toBe(3);
    const older = text
      .split('\n')
      .filter(Boolean)
      .map((line) => checkedLine({ ...(JSON.parse(line) as object), crc: undefined, count: undefined }));
    writeFileSync(known(), `${older.join('\n')}\n`);
    expect(await run()).toBe(6);
    expect(scene.gateway.requests).toEqual([]);
  });

  it('is not used for rows whose jobs have changed', async () => {
    const user = scene.user;
    expect((await runHereAs(user, ['jobs', 'rate', '@m/a', '1'])).code).toBe(0);
    expect((await runHereAs(user, ['jobs', 'rm', '@m/b', '--force'])).code).toBe(0);
    const problem = { line: 3, message: expect.stringContaining('already exists') as string };
    expect(await scene.read('run', file)).toMatchObject({ exit_code: 2, problems: [problem] });
    rmSync(scene.at('b.mp4'));
    expect((await scene.read('run', file)).batch).toMatchObject({ states: { done: 3 } });
    expect(scene.gateway.charges.get('a cat')).toBe(2);
  });

  it('is not used for a row whose later take has a different request', async () => {
    scene.file('m.csv', clips(['a', 'a ship'], ['b', 'a cat'], ['c', 'a dog']));
    scene.gateway.judge = () => ({ kind: 'doom' });
    expect((await scene.batch('retry', file, '--id', 'a', '--force')).code).not.toBe(0);
    scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat'], ['c', 'a dog']));
    expect((await scene.read('run', file)).batch.states).toMatchObject({ done: 2, changed: 1 });
  });

  it('does not prevent the check for duplicate ids and requests', async () => {
    const rows: [string, string][] = [
      ['a', 'a boat'],
      ['b', 'a cat'],
      ['c', 'a dog'],
    ];
    scene.file('m.csv', clips(...rows, ['b', 'a cow']));
    expect(await scene.read('run', file)).toMatchObject({ exit_code: 2, problems: [{ line: 5 }] });
    scene.file('m.csv', clips(['d', 'a boat'], ...rows));
    expect((await scene.batch('run', file)).stderr).toContain('m.csv:3: same request as line 2');
  });

  it('is not used if a default has changed', async () => {
    const changed = await scene.read('run', file, '-d', 'aspect-ratio=9:16');
    expect(changed).toMatchObject({ exit_code: 11, batch: { states: { changed: 3 } } });
    expect((await scene.read('run', file)).batch.states).toMatchObject({ done: 3 });
    const before = known();
    const setting = 'defaults.video.c.vendor-h3-mini.aspect-ratio';
    expect((await runHereAs(scene.user, ['config', 'set', setting, '9:16'])).code).toBe(0);
    expect((await scene.read('run', file)).batch.states).toMatchObject({ done: 3 });
    expect([known() === before, lines()]).toEqual([false, 3]);
    expect(scene.gateway.posts()).toEqual([]);
  });

  it('is not used for a row whose text comes from a file', async () => {
    writeFileSync(scene.at('text.txt'), 'a boat');
    const text = `id,protocol,file\na,tts,${scene.at('text.txt')}\n`;
    const speech = scene.file('speech.csv', text);
    const speaker = ['-d', 'speaker=anna'];
    expect((await scene.read('run', speech, ...speaker)).batch.states).toMatchObject({ done: 1 });
    writeFileSync(scene.at('text.txt'), 'a ship');
    expect((await scene.read('run', speech, ...speaker)).batch.states).toMatchObject({ changed: 1 });
  });
});
