import { describe, expect, it } from 'vitest';
import { canBeCached } from '../../../src/batch/done-row-cache.ts';
import { listItems } from '../../../src/batch/manifest/fields.ts';
import { openManifest } from '../../../src/batch/manifest/manifest.ts';
import type { Row } from '../../../src/batch/manifest/row.ts';
import { mayRefer } from '../../../src/batch/row-graph.ts';

async function rowOf(name: string, content: string): Promise<Row> {
  const manifest = await openManifest(name, { content: Buffer.from(content) });
  for await (const item of manifest.items())
    if ('row' in item) return item.row;
    else throw new Error(item.problems[0]?.message);
  throw new Error('the manifest has no row');
}

describe('a list in one text', () => {
  const [a, b] = ['https://h/a.png', 'https://h/b.png'];

  it.each([
    [`${a} ${b}`, [a, b]],
    [`${a}, ${b}`, [a, b]],
    [`${a}; ${b}`, [a, b]],
    [`${a} ,${b}`, [a, b]],
    [`${a} , ;\n${b}`, [a, b]],
    [`${a},${b};HTTP://h/c`, [a, b, 'HTTP://h/c']],
    [
      `${a},@s1:last;sha256:00,data:image/png;base64,AA==`,
      [a, '@s1:last', 'sha256:00', 'data:image/png;base64,AA=='],
    ],
    [`,${a},, ${b},;`, [a, b]],
    [', ;', []],
    ['https://h/w_1,h_2;v=1,/a.png?x=1,2', ['https://h/w_1,h_2;v=1,/a.png?x=1,2']],
    ['a.png,b.png', ['a.png,b.png']],
  ])('is split at separators that are not part of a URL: %j', async (text, items) => {
    const csv = `protocol,reference-image\nc,"${text}"`;
    expect((await rowOf('m.csv', csv)).flags['reference-image']).toEqual(items);
    const json = JSON.stringify({ protocol: 'c', reference_image: text });
    expect((await rowOf('m.jsonl', json)).flags['reference-image']).toEqual(items);
  });

  it('is split in the same way if the field is tags', async () => {
    const { tags } = await rowOf('m.csv', 'protocol,tags\nc,"red, blue;"');
    expect(tags).toEqual(['red', 'blue']);
  });

  it('is not split if it is an item of an array', async () => {
    const json = JSON.stringify({ protocol: 'c', reference_image: [`${a}, ${b}`] });
    expect((await rowOf('m.jsonl', json)).flags['reference-image']).toEqual([`${a}, ${b}`]);
  });

  it.each([',', ', ', 'a,'])('is split in linear time: %j', (text) => {
    const items = listItems(`x${text.repeat(2 ** 20)}x`);
    expect(items.at(-1)).toMatch(/x$/);
  });

  it.each(['https://h/a.png,@s1:last', 'https://h/a.png;@s1', '@s1'])('may refer to a job: %s', (value) => {
    expect(mayRefer({ name: 'Reference Image', value })).toBe(true);
    expect(mayRefer({ name: 'prompt', value })).toBe(false);
  });

  it.each([
    ['https://h/a.png, b.png', false],
    ['https://h/a.png b.png', false],
    ['https://h/a.png, https://h/b.png', true],
    ['https://h/w_1,h_2/a.png', true],
  ])('may contain a local file, whose row cannot be cached: %s', (value, isCacheable) => {
    expect(canBeCached([{ name: 'reference-image', value, line: 1 }])).toBe(isCacheable);
  });
});
