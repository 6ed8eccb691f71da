import * as prettier from 'prettier';
import { expect, it } from 'vitest';
import { toJSONSchema } from 'zod/v4/core';
import type { Protocol } from '../../src/protocols/protocol.ts';
import { protocols, type ProtocolName } from '../../src/protocols/registry.ts';
import { typeText, type JsonSchema } from './type-text.ts';

const file = 'src/library/bodies.ts';

const titles: Record<ProtocolName, readonly [string, string]> = {
  a: ['BodyA', 'The body of Protocol A; `model` goes into the path (specification 2.1, 4.1).'],
  b: ['BodyB', 'The body of Protocol B (specification 2.3).'],
  c: ['BodyC', 'The body of Protocol C, of the official model or of a self-hosted one (specification 2.5).'],
};

// A field that the model list provides may be omitted.
const filled = ['ModelVersion'];

it('the body types match the schemas that check bodies (vitest --update writes the types)', async () => {
  const types = await Promise.all(
    Object.entries<Protocol>(protocols).map(async ([name, protocol]) => {
      const { schema } = await protocol.checks();
      const json = toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as JsonSchema;
      const [title, comment] = titles[name as ProtocolName];
      return `/** ${comment} */\nexport type ${title} = ${typeText(json, filled)};\n`;
    }),
  );
  const text = [
    '// Generated from the schemas of src/protocols by test/library/bodies.test.ts.\n',
    ...types,
  ].join('\n');
  const options = (await prettier.resolveConfig(file)) ?? {};
  await expect(await prettier.format(text, { ...options, filepath: file })).toMatchFileSnapshot(
    `../../${file}`,
  );
});
