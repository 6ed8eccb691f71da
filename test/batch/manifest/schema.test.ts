import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { manifestJsonSchema, rowSchema } from '../../../src/batch/manifest/schema.ts';
import { kinds } from '../../../src/batch/manifest/fields.ts';
import { at, isObject, type JsonObject } from '../../../src/json.ts';
import { longName } from '../../../src/protocols/compose.ts';
import { protocols } from '../../../src/protocols/registry.ts';
import { speechFlags } from '../../../src/speech/flags.ts';

const schema = manifestJsonSchema();
const rows = at(schema, '$defs.row.anyOf') as JsonObject[];

describe("a manifest's JSON Schema", () => {
  it("contains set.PATH and each command's flags, spelled with hyphens and with underscores", () => {
    expect(rows.map((row) => at(row, 'properties.protocol.const'))).toEqual(kinds);
    const flags = [protocols.a.flags, protocols.b.flags, protocols.c.flags, speechFlags];
    for (const [index, table] of flags.entries()) {
      const names = Object.keys((rows[index]?.['properties'] ?? {}) as object);
      expect(names).toEqual(expect.arrayContaining(table.map(longName)));
      expect(names).toEqual(expect.arrayContaining(table.map((flag) => longName(flag).replaceAll('-', '_'))));
      expect(rows[index]).toMatchObject({
        patternProperties: { '^set\\..': {} },
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
});
