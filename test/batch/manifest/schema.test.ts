import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { manifestJsonSchema, rowSchema } from '../../../src/batch/manifest/schema.ts';
import { openManifest } from '../../../src/batch/manifest/manifest.ts';
import { kinds } from '../../../src/batch/manifest/fields.ts';
import { at, isObject, type JsonObject } from '../../../src/json.ts';
import { longName } from '../../../src/protocols/compose.ts';
import { protocols } from '../../../src/protocols/registry.ts';
import { speechFlags } from '../../../src/speech/flags.ts';

const schema = manifestJsonSchema();
const rows = at(schema, '$defs.row.anyOf') as JsonObject[];

const accepts = (row: object): boolean => z.safeParse(z.fromJSONSchema(schema), { rows: [row] }).success;

async function problemsOf(row: object): Promise<unknown[]> {
  const manifest = await openManifest('m.jsonl', { content: Buffer.from(JSON.stringify(row)) });
  const problems: unknown[] = [];
  for await (const item of manifest.items()) if ('problems' in item) problems.push(...item.problems);
  return problems;
}

describe("a manifest's JSON Schema", () => {
  it("contains set.PATH and each command's flags, spelled with hyphens and with underscores", () => {
    expect(rows.map((row) => at(row, 'properties.protocol.anyOf.0.const'))).toEqual(kinds);
    const flags = [protocols.a.flags, protocols.b.flags, protocols.c.flags, speechFlags];
    for (const [index, table] of flags.entries()) {
      const names = Object.keys((rows[index]?.['properties'] ?? {}) as object);
      expect(names).toEqual(expect.arrayContaining(table.map(longName)));
      expect(names).toEqual(expect.arrayContaining(table.map((flag) => longName(flag).replaceAll('-', '_'))));
      expect(rows[index]).toMatchObject({
        patternProperties: { '^[Ss][Ee][Tt]\\..': {}, '^#': {} },
        additionalProperties: false,
      });
    }
  });

  it('describes the fields outside the rows', () => {
    const names = ['name', 'output', 'concurrency', 'budget', 'defaults', 'matrix', 'rows'];
    expect(Object.keys(schema['properties'] as object)).toEqual(names);
  });

  it('accepts a number only for numeric flags', () => {
    const typeOf = (index: number, name: string): unknown => at(rows[index], `properties.${name}.type`);
    expect(typeOf(2, 'duration')).toEqual(['string', 'number']);
    expect(typeOf(3, 'sample-rate')).toEqual(['string', 'number']);
    expect(typeOf(1, 'model-version')).toBe('string');
  });

  it('can be converted to a zod schema that accepts the same rows', () => {
    const again = z.fromJSONSchema(schema);
    const row = { id: 1, protocol: 'c', prompt: 'x', aspect_ratio: '1:1', 'set.a.b': 5 };
    expect(z.safeParse(again, { name: 'x', rows: [row], matrix: { seed: [1] } }).success).toBe(true);
    expect(z.safeParse(again, { rows: [{ ...row, sed: 5 }] }).success).toBe(false);
    expect(isObject(schema)).toBe(true);
    expect(z.safeParse(rowSchema('c'), { prompt: 'x' }).success).toBe(true);
  });

  it.each([
    { protocol: 'TTS', text: 'x' },
    { protocol: 'Tts', text: 'x' },
    { protocol: 'C', prompt: 'x' },
    { protocol: 'a', prompt: 'x', audio: 'TRUE' },
    { protocol: 'c', Prompt: 'x', DURATION: 5, 'Aspect Ratio': '1:1', Reference_Image: ['https://h/a'] },
    { ID: 'one', protocol: 'c', prompt: 'x', 'Set.a.b': 5 },
    { protocol: 'c', prompt: 'x', Notes: 'own', REMARK: 5, comment: null },
    { protocol: 'c', prompt: 'a {animal}', '#animal': 'fox' },
  ])('accepts a row that mgw runs: %j', async (row) => {
    expect(await problemsOf(row)).toEqual([]);
    expect(accepts(row)).toBe(true);
  });

  it.each([
    { protocol: 'D', prompt: 'x' },
    { protocol: 'TTS', prompt: 'x' },
    { protocol: 'c', prompt: 'x', Duraton: 5 },
    { protocol: 'c', prompt: 'x', Duration: [5] },
    { protocol: 'c', prompt: 'x', notess: 'own' },
    { protocol: 'a', prompt: 'x', audio: 'truee' },
  ])('rejects a row that mgw refuses: %j', async (row) => {
    expect(await problemsOf(row)).not.toEqual([]);
    expect(accepts(row)).toBe(false);
  });

  it('says how to name a column that only a template uses', () => {
    expect(at(schema, '$defs.row.description')).toContain('#animal');
  });

  // Validators such as ajv refuse a schema in which a pattern matches the name of a property.
  it('has no pattern that matches the name of a property', () => {
    for (const row of rows) {
      const patterns = Object.keys(row['patternProperties'] as object).map(
        (source) => new RegExp(source, 'u'),
      );
      for (const name of Object.keys(row['properties'] as object))
        expect(patterns.filter((pattern) => pattern.test(name))).toEqual([]);
    }
  });
});
