import { expect, it } from 'vitest';
import { promptOf } from '../../src/protocols/requested-value.ts';
import type { JobKind } from '../../src/job.ts';
import { applySets, longName } from '../../src/protocols/compose.ts';
import { protocols } from '../../src/protocols/registry.ts';

it.each(Object.values(protocols).map((protocol) => ({ protocol, name: protocol.name })))(
  'the requested value of a Protocol $name job is its --prompt',
  ({ protocol, name }) => {
    const field = protocol.flags.find((flag) => longName(flag) === 'prompt')?.field ?? '';
    const request = {};
    applySets(request, [`${field}=a paper boat`]);
    expect(promptOf({ protocol: name, request })).toBe('a paper boat');
  },
);

it('the requested value of a speech job is its text, or undefined if the record has no text', () => {
  expect(promptOf({ protocol: 'tts', request: { req_params: { text: 'Hello.' } } })).toBe('Hello.');
  for (const request of [undefined, {}, { prompt: '' }, { prompt: { sha256: 'x' } }])
    expect(promptOf({ protocol: 'c' satisfies JobKind, request })).toBeUndefined();
});
