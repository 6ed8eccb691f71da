import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { MgwError } from '../../src/errors.ts';
import { parseJson, type Json, type JsonObject } from '../../src/json.ts';
import { compose, longName, type ComposeInput } from '../../src/protocols/compose.ts';
import { text, wholeNumber } from '../../src/protocols/flag.ts';
import type { Flag, Protocol } from '../../src/protocols/protocol.ts';

const flags: Flag[] = [
  { flags: '--prompt <text>', description: '', field: 'instances.0.prompt', kind: 'text', parse: text },
  {
    flags: '-d, --duration <seconds>',
    description: '',
    field: 'duration',
    kind: 'text',
    parse: wholeNumber,
    aliases: ['seconds'],
  },
  { flags: '--first <url>', description: '', field: 'files', kind: 'text', parse: (url) => [{ first: url }] },
  { flags: '--reference <url...>', description: '', field: 'files', kind: 'list', parse: (url) => ({ url }) },
  {
    flags: '--audio',
    description: '',
    field: 'audio',
    kind: 'switch',
    parse: (on) => (on ? 'Enabled' : 'Disabled'),
  },
  { flags: '--enhance', description: '', field: 'parameters.enhance', kind: 'switch' },
  { flags: '--image <file>', description: '', field: 'instances.0.image', kind: 'file', fromFile: readImage },
];
const protocol = { name: 'c', flags } as unknown as Protocol;

function readImage(bytes: Uint8Array): Json {
  if (bytes.length === 0) throw new Error('an image that is not empty');
  return { size: bytes.length };
}

function composed(input: Partial<ComposeInput>): JsonObject {
  return compose(protocol, { flags: {}, ...input });
}

describe('compose', () => {
  it('puts each kind of flag into its field', () => {
    const request = {
      prompt: 'a cat',
      duration: '5',
      reference: ['u', 'v'],
      audio: false,
      enhance: true,
      image: new Uint8Array(3),
    };
    expect(composed({ flags: request })).toEqual({
      instances: [{ prompt: 'a cat', image: { size: 3 } }],
      duration: 5,
      files: [{ url: 'u' }, { url: 'v' }],
      audio: 'Disabled',
      parameters: { enhance: true },
    });
  });

  it('prefers --set to flags, flags to the body, and the body to defaults', () => {
    const input = {
      defaults: { duration: 1, enhance: true, prompt: 'default' },
      body: { duration: 2, instances: [{ prompt: 'body', other: 1 }], kept: [1] },
      flags: { duration: '3' },
      set: ['duration=4'],
    };
    expect(composed(input)).toEqual({
      duration: 4,
      instances: [{ prompt: 'body', other: 1 }],
      kept: [1],
      parameters: { enhance: true },
    });
    expect(composed({ ...input, set: [] })).toMatchObject({ duration: 3 });
    expect(composed({ ...input, set: [], flags: {} })).toMatchObject({ duration: 2 });
    expect(composed({ defaults: { duration: 1 } })).toEqual({ duration: 1 });
  });

  it("does not change the caller's body", () => {
    const body = { instances: [{ prompt: 'old' }] };
    composed({ body, flags: { prompt: 'new' }, set: ['instances.0.seed=1'] });
    expect(body).toEqual({ instances: [{ prompt: 'old' }] });
  });

  it("joins the values of flags that share a list, in the order of the flag table, and replaces the body's list", () => {
    const input = { body: { files: [0] }, flags: { reference: ['r'], first: 'f' } };
    expect(composed(input)).toEqual({ files: [{ first: 'f' }, { url: 'r' }] });
  });

  it('ignores a default if a field with the same meaning is set', () => {
    expect(composed({ defaults: { duration: 5 }, body: { seconds: '8' } })).toEqual({ seconds: '8' });
    expect(composed({ defaults: { duration: 5 }, set: ['seconds=8'] })).toEqual({ seconds: 8 });
  });

  it('ignores a default if its parent in the body is not an object', () => {
    expect(composed({ defaults: { enhance: true }, body: { parameters: 'text' } })).toEqual({
      parameters: 'text',
    });
  });

  it.each([
    ['a=1', { a: 1 }],
    ['a="1"', { a: '1' }],
    ['a=one', { a: 'one' }],
    ['a=', { a: '' }],
    ['a=b=c', { a: 'b=c' }],
    ['a=null', { a: null }],
    ['a={"b":[true]}', { a: { b: [true] } }],
    ['a.b.c=1', { a: { b: { c: 1 } } }],
    ['a.0.b=1', { a: [{ b: 1 }] }],
    ['a[0].b=1', { a: [{ b: 1 }] }],
    ['a[0][0]=1', { a: [[1]] }],
    ['a=[x', { a: '[x' }],
    ['a="12345678901234567890"', { a: '12345678901234567890' }],
  ])('reads --set %s', (set, body) => {
    expect(composed({ set: [set] })).toEqual(body);
  });

  it("appends to a list, and sets an object's member even if the member's name is a number", () => {
    expect(composed({ body: { a: [1], o: {} }, set: ['a.1=2', 'a.0=0', 'o.7=x'] })).toEqual({
      a: [0, 2],
      o: { 7: 'x' },
    });
  });

  const refusals: [string, Partial<ComposeInput>, string][] = [
    ['--set without =', { set: ['abc'] }, '--set abc: write it as path=value.'],
    ['--set without a path', { set: ['=1'] }, '--set =1: write it as path=value.'],
    ['an empty segment in a path', { set: ['a..b=1'] }, '--set a..b: the path has an empty segment.'],
    [
      'an inherited member in a path',
      { set: ['__proto__.x=1'] },
      '--set __proto__.x: __proto__ is not allowed in a path.',
    ],
    [
      'constructor',
      { set: ['a.constructor=1'] },
      '--set a.constructor: constructor is not allowed in a path.',
    ],
    ['prototype', { set: ['prototype=1'] }, '--set prototype: prototype is not allowed in a path.'],
    [
      'a number that would be sent as another one',
      { set: ['a={"b":12345678901234567890}'] },
      '--set a: the number 12345678901234567890 would lose precision; quote it to send it as text.',
    ],
    ['a path twice', { set: ['a=1', 'a=2'] }, '--set a conflicts with --set a.'],
    ['a path twice in two forms', { set: ['a[0]=1', 'a.0=2'] }, '--set a.0 conflicts with --set a.0.'],
    ['a path inside another', { set: ['a={}', 'a.b=2'] }, '--set a.b conflicts with --set a.'],
    ['a path around another', { set: ['a.b=2', 'a={}'] }, '--set a conflicts with --set a.b.'],
    [
      'a member of a string',
      { body: { a: 'x' }, set: ['a.b=1'] },
      '--set a.b: a is not an object or a list.',
    ],
    ['a member of null', { body: { a: null }, set: ['a.b=1'] }, '--set a.b: a is not an object or a list.'],
    [
      'a name as the index of a list',
      { body: { a: [] }, set: ['a.b=1'] },
      '--set a.b: a is a list: the next segment must be a number.',
    ],
    [
      'an index beyond the end of a list',
      { set: ['a.1=1'] },
      '--set a.1: a has 0 entries, so the next index is 0.',
    ],
    ['control characters', { set: ['\u001b..=1'] }, '--set \\u{1b}..: the path has an empty segment.'],
    ['an unknown flag', { flags: { nope: 'x' } }, '--nope is not a flag of Protocol C.'],
    [
      'an unknown default',
      { defaults: { nope: 1 } },
      'The config has a default for nope, which is not a flag of Protocol C.',
    ],
    [
      'a default for a file flag',
      { defaults: { image: 'x' } },
      'The config has a default for image, which is not a flag of Protocol C.',
    ],
    [
      'a flag twice',
      { flags: { duration: ['5', '6'] } },
      '--duration was given more than once, but accepts only one value.',
    ],
    [
      'a bad number',
      { flags: { duration: '1e3' } },
      '--duration: 1e3 is not allowed; allowed: a whole number in digits, such as 5',
    ],
    [
      'blank text',
      { flags: { prompt: ' ' } },
      '--prompt (instances.0.prompt): " " is not allowed; allowed: non-empty text',
    ],
    [
      'a bad file',
      { flags: { image: new Uint8Array() } },
      '--image (instances.0.image): the file is not allowed; allowed: an image that is not empty',
    ],
    [
      'a bad default',
      { defaults: { duration: 4.5 } },
      'The default duration (duration): "4.5" is not allowed; allowed: a whole number in digits, such as 5',
    ],
    [
      'a default of another type',
      { defaults: { audio: 'yes' } },
      'The default audio (audio): yes is not allowed; allowed: true or false',
    ],
    [
      'a flag whose parent in the body is not an object',
      { body: { instances: 'x' }, flags: { prompt: 'a' } },
      '--prompt: instances is not an object or a list.',
    ],
  ];
  it.each(refusals)('refuses %s', (_, input, message) => {
    const error = thrownBy(() => composed(input));
    expect(error).toMatchObject({ name: 'MgwError', code: 'usage', exitCode: 2, charged: 'no' });
    expect(error.message).toBe(message);
  });

  it('accepts members called __proto__ without changing any prototype', () => {
    const body = parseJson(
      '{"__proto__":{"polluted":1},"a":{"constructor":{"prototype":{"polluted":1}}}}',
    ) as JsonObject;
    const result = composed({ body, set: ['b={"__proto__":{"polluted":1}}'] });
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    expect(JSON.stringify(result)).toBe(
      '{"__proto__":{"polluted":1},"a":{"constructor":{"prototype":{"polluted":1}}},"b":{"__proto__":{"polluted":1}}}',
    );
  });

  it('throws only usage errors, and never changes a prototype, for any flags', () => {
    const path = fc.array(fc.constantFrom('a', 'b', '0', '1', '', '__proto__', 'toString'), { maxLength: 4 });
    const set = fc
      .tuple(path, fc.oneof(fc.json(), fc.string()))
      .map(([steps, value]) => `${steps.join('.')}=${value}`);
    fc.assert(
      fc.property(fc.array(set, { maxLength: 4 }), (sets) => {
        const error = thrownBy(() => composed({ set: sets }));
        expect(error?.code ?? 'usage').toBe('usage');
        expect(Object.getOwnPropertyNames(Object.prototype)).toHaveLength(12);
      }),
      { numRuns: 50 },
    );
  });
});

describe('longName', () => {
  it.each([
    ['--last-frame <url>', 'last-frame'],
    ['-m, --model <name>', 'model'],
    ['--audio', 'audio'],
  ])('converts %s to %s', (written, name) => {
    expect(longName({ flags: written, description: '', field: 'x', kind: 'text' })).toBe(name);
  });
});

function thrownBy(run: () => unknown): MgwError {
  try {
    run();
  } catch (error) {
    return error as MgwError;
  }
  return undefined as unknown as MgwError;
}
