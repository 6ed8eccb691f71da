import { expect, it } from 'vitest';
import { promptOf } from '../../src/protocols/requested-value.ts';
import type { JobKind } from '../../src/job.ts';
import { applySets, longName } from '../../src/protocols/compose.ts';
import { protocols } from '../../src/protocols/registry.ts';

it.each(Object.values(protocols).map((protocol) => ({ protocol, name: protocol.name })))(
  'the prompt of a job of Protocol $name is the value of --prompt',
  ({ protocol, name }) => {
    const field = protocol.flags.find((flag) => longName(flag) === 'prompt')?.field ?? '';
    const request = {};
    applySets(request, [`${field}=a paper boat`]);
    expect(promptOf({ protocol: name, request })).toBe('a paper boat');
  },
);

it('the requested value of speech is its text, and a record without a text has no value', () => {
  expect(promptOf({ protocol: 'tts', request: { req_params: { text: 'Hello.' } } })).toBe('Hello.');
  for (const request of [undefined, {}, { prompt: '' }, { prompt: { sha256: 'x' } }])
    expect(promptOf({ protocol: 'c' satisfies JobKind, request })).toBeUndefined();
});
