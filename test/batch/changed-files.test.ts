import { appendFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
beforeEach(async () => {
  scene = await openScene();
});
afterEach(() => scene.gateway.close());

/** Calls `change` when the gateway receives the submission of a prompt. */
function during(prompt: string, change: () => void): void {
  scene.gateway.judge = (submitted) => {
    if (submitted === prompt) change();
    return undefined;
  };
}

function charges(): Record<string, number> {
  return Object.fromEntries(scene.gateway.charges);
}

describe('a batch run whose manifest is changed while rows are in progress', () => {
  it('ends normally if it has already read every row that it runs', async () => {
    const file = scene.file('m.csv', clips(['a', 'a boat'], ['b', 'a cat']));
    during('a boat', () => appendFileSync(file, 'c,c,vendor-h3-mini,5,a dog\n'));
    const { exit_code, error, batch } = await scene.read('run', file, '--concurrency', '1');
    expect({ exit_code, error, batch }).toMatchObject({ exit_code: 0, batch: { states: { done: 2 } } });
    expect(charges()).toEqual({ 'a boat': 1, 'a cat': 1 });
  });

  // A row with a note is long enough that the file is not read in one piece.
  const long = (ids: readonly string[]): string =>
    ['id,protocol,model,duration,prompt,#note', ...ids.map(longRow), ''].join('\n');
  const longRow = (id: string): string => `${id},c,vendor-h3-mini,5,a ${id},${'x'.repeat(8000)}`;
  const ids = Array.from({ length: 40 }, (_, index) => `r${100 + index}`);
  const [first = '', second = '', secondLast = '', last = ''] = [...ids.slice(0, 2), ...ids.slice(-2)];

  it('does not remake a row whose position another row now has, and reports what it has paid for', async () => {
    const file = scene.file('big.csv', long([first, second, secondLast, last]));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    writeFileSync(file, long(ids));
    during(`a ${first}`, () => writeFileSync(file, long(['r999', ...ids.slice(0, -1)])));
    const retried = [first, second, last].flatMap((id) => ['--id', id]);
    const { exit_code, error, batch } = await scene.read('retry', file, ...retried, '--concurrency', '1');
    expect({ exit_code, error, batch }).toMatchObject({
      exit_code: 11,
      error: {
        charged: 'yes',
        retry: 'never',
        message: expect.stringMatching(
          /was changed.* paid for 2 rows .*only the other rows, use --id/,
        ) as string,
      },
      batch: { files: 2 },
    });
    expect(charges()).toEqual({
      ...{ [`a ${first}`]: 2, [`a ${second}`]: 2 },
      ...{ [`a ${secondLast}`]: 1, [`a ${last}`]: 1 },
    });
  });
});

it('a batch run skips a row whose input file disappeared after the plan, and continues with the other rows', async () => {
  // The run reads some rows ahead. The file of the second last row disappears before that row is read.
  const ids = Array.from({ length: 12 }, (_, index) => String(index + 1));
  for (const id of ids) scene.file(`${id}.txt`, `text ${id}`);
  const rows = ids.map((id) => JSON.stringify({ id, protocol: 'tts', file: scene.at(`${id}.txt`) }));
  const file = scene.file('m.jsonl', rows.join('\n'));
  during('text 1', () => rmSync(scene.at('11.txt')));
  const { code, stderr } = await scene.batch('run', file, '--concurrency', '1');
  expect(code, stderr).toBe(11);
  expect(stderr).toMatch(/m\.jsonl:11: file: .*11\.txt/);
  expect(stderr).toContain('m: 11 done, 1 skipped; 11 files saved');
  expect(stderr).not.toContain('Nothing was sent');
  expect(charges()).toEqual(
    Object.fromEntries(ids.flatMap((id) => (id === '11' ? [] : [[`text ${id}`, 1]]))),
  );
});
