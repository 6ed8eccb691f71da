import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  at,
  canonicalJson,
  idAt,
  isObject,
  maxLevels,
  parseBodyJson,
  parseCutJson,
  parseJson,
  parseUniqueJson,
  textAt,
  tryParseJson,
  type Json,
} from '../src/json.ts';
import { anyCharacter } from './support/any-character.ts';

describe('parseJson', () => {
  it.each<[string, Json]>([
    ['{"id":12345678901234567890}', { id: '12345678901234567890' }],
    ['[9007199254740992,-9007199254740993]', ['9007199254740992', '-9007199254740993']],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
    ['1234567890123456', 1234567890123456],
    ['{"a":0.12345678901234567890}', { a: 0.12345678901234568 }],
    [
      '[1.2345678901234567890e3,12345678901234567890.5,12345678901234567890e1]',
      ['1.2345678901234567890e3', '12345678901234567890.5', '12345678901234567890e1'].map(Number),
    ],
    ['[1e1234567890123456]', [Infinity]],
    ['{"a":"id 12345678901234567890"}', { a: 'id 12345678901234567890' }],
    [
      '{"12345678901234567890":"\\"12345678901234567890"}',
      { '12345678901234567890': '"12345678901234567890' },
    ],
    ['["\\\\",12345678901234567890]', ['\\', '12345678901234567890']],
    ['\ufeff{"a":1}', { a: 1 }],
    ['\ufeff[12345678901234567890]', ['12345678901234567890']],
  ])('reads %s', (text, value) => {
    expect(parseJson(text)).toEqual(value);
  });

  it.each(['', '{', '{"a":12345678901234567890', 'undefined', "{'a':1}", '[1,]', '\ufeff\ufeff1'])(
    'refuses %j',
    (text) => {
      expect(() => parseJson(text)).toThrow(SyntaxError);
      expect(tryParseJson(text)).toBeUndefined();
    },
  );

  it('reads literals of any length in JSON with long integers', () => {
    const long = '\\n'.repeat(500_000);
    expect(at(parseJson(`{"a":"${long}","id":12345678901234567890}`), 'id')).toBe('12345678901234567890');
  });

  it('reads values that are nested too deeply as null, and all other values unchanged', () => {
    const deep = (levels: number): string => `${'['.repeat(levels)}7${']'.repeat(levels)}`;
    expect(canonicalJson(parseJson(deep(maxLevels)))).toBe(deep(maxLevels));
    expect(canonicalJson(parseJson(deep(maxLevels + 1)))).toBe(deep(maxLevels).replace('7', 'null'));
    const text = `{"a":{"b":${deep(50_000)}},"id":"t-1","__proto__":${deep(300)}}`;
    expect(textAt(parseJson(text), 'id')).toBe('t-1');
    expect(JSON.stringify(parseJson(text)).length).toBeLessThan(1000);
  });

  it('differs from JSON.parse only in long integers', () => {
    const exact = (_: string, value: unknown): unknown =>
      Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value as number) < 1e21
        ? String(value)
        : value;
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.constantFrom(0, 1, 2), (value, indent) => {
        const text = JSON.stringify({ value, long: '1'.repeat(20) }, null, indent);
        expect(parseJson(text)).toEqual(JSON.parse(text, exact));
      }),
    );
  });

  it('returns every digit of every integer', () => {
    fc.assert(
      fc.property(fc.bigInt(-(10n ** 30n), 10n ** 30n), (number) => {
        const { id } = parseJson(`{"id": ${number.toString()} }`) as { id: Json };
        expect(BigInt(id as string | number)).toBe(number);
      }),
    );
  });
});

describe('parseCutJson', () => {
  it.each<[string, Json | undefined]>([
    ['{"a":1}', { a: 1 }],
    ['{"a":"b"', { a: 'b' }],
    ['{"a":"b","c":"d', { a: 'b' }],
    ['{"a":"b","c', { a: 'b' }],
    ['{"a":"b","c":', { a: 'b' }],
    ['{"a":12', {}],
    ['{"a":12,', { a: 12 }],
    ['{"a":12345678901234567890,"b":"', { a: '12345678901234567890' }],
    ['{"a":tru', {}],
    ['{"a":true,"b":nul', { a: true }],
    ['{"a":{"b":["c","d', { a: { b: ['c'] } }],
    ['{"a":{"b":1},"c":[{"d":"e"', { a: { b: 1 }, c: [{ d: 'e' }] }],
    ['{"a":"x\\"y', {}],
    ['{"a":"x\\"y"', { a: 'x"y' }],
    ['{"a":"x\\\\"', { a: 'x\\' }],
    ['{"a":"}]","b":"[{"', { a: '}]', b: '[{' }],
    ['\ufeff{"a":"b",', { a: 'b' }],
    ['{', {}],
    ['[', []],
    ['', undefined],
    ['"a', undefined],
    ['12', 12],
    ['<html>{"a":"b"', undefined],
    ['}{"a"', undefined],
  ])('reads %s as %j', (text, value) => {
    expect(parseCutJson(text)).toEqual(value);
  });

  it.each([
    ['brackets alone', '['.repeat(100_000)],
    ['pairs far inside', `${'['.repeat(300)}${'[],'.repeat(100_000)}`],
  ])('returns the members before a member that is nested too deeply: %s', (_, member) => {
    expect(textAt(parseCutJson(`{"id":"t-1","c":${member}`), 'id')).toBe('t-1');
  });

  it('returns part of the complete value, wherever the text is truncated', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })), fc.nat(), (value, where) => {
        const text = JSON.stringify(value);
        const cut = parseCutJson(text.slice(0, where % (text.length + 1)));
        if (cut !== undefined) expectPart(cut, parseJson(text));
      }),
    );
  });

  it('reads the start of long text regardless of its end', () => {
    const long = '\\n'.repeat(500_000);
    expect(at(parseCutJson(`{"id":"x","a":"${long}`), 'id')).toBe('x');
    expect(at(parseCutJson(`{"id":"x","a":"${long}","b":[${'[],'.repeat(100_000)}`), 'id')).toBe('x');
    expect(parseCutJson(`{"id":"x"${']'.repeat(1000)}`)).toBeUndefined();
  });

  it('never throws', () => {
    fc.assert(fc.property(fc.string({ unit: anyCharacter }), (text) => void parseCutJson(`{"a":"b"${text}`)));
  });
});

function expectPart(part: Json, whole: Json): void {
  if (typeof part !== 'object' || part === null) {
    expect(part).toEqual(whole);
    return;
  }
  for (const [name, value] of Object.entries(part)) {
    expect(Object.hasOwn(whole as object, name)).toBe(true);
    expectPart(value as Json, (whole as Record<string, Json>)[name] as Json);
  }
}

describe('at, textAt and idAt', () => {
  const value = parseJson('{"a":[{"b":"x","n":5,"f":1.5,"e":"","o":{}}],"__proto__":{"b":"evil"},"z":null}');
  it.each([
    ['a.0.b', 'x', 'x', 'x'],
    ['a.0.n', 5, undefined, '5'],
    ['a.0.f', 1.5, undefined, undefined],
    ['a.0.e', '', undefined, undefined],
    ['a.0.o', {}, undefined, undefined],
    ['a.1.b', undefined, undefined, undefined],
    ['z', null, undefined, undefined],
    ['z.b', undefined, undefined, undefined],
    ['a.0.b.length', undefined, undefined, undefined],
    ['constructor', undefined, undefined, undefined],
    ['a.0.toString', undefined, undefined, undefined],
    ['missing.b', undefined, undefined, undefined],
  ])('return the value at the path %s', (path, found, text, id) => {
    expect([at(value, path), textAt(value, path), idAt(value, path)]).toEqual([found, text, id]);
  });

  it('read only own members', () => {
    expect(at(value, '__proto__.b')).toBe('evil');
    expect(at({}, '__proto__')).toBeUndefined();
    expect(at(undefined, 'a')).toBeUndefined();
  });
});

describe('isObject', () => {
  it('is true only for objects', () => {
    expect([{}, [], null, 'x', 5, undefined].map(isObject)).toEqual([
      true,
      false,
      false,
      false,
      false,
      false,
    ]);
  });
});

describe('canonicalJson', () => {
  it.each<[Json | undefined, string]>([
    [{ b: 1, a: [{ d: null, c: 'x' }] }, '{"a":[{"c":"x","d":null}],"b":1}'],
    [{ a: undefined }, '{}'],
    [undefined, 'null'],
    ['\u2028"', '"\u2028\\""'],
  ])('converts %j to %s', (value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  it('returns the same text for equal values, and the text can be parsed', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })), (value) => {
        const shuffled = Object.fromEntries(Object.entries(value).reverse()) as Json;
        expect(canonicalJson(shuffled)).toBe(canonicalJson(value as Json));
        expect(JSON.parse(canonicalJson(value as Json))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });
});

describe('parseBodyJson', () => {
  it.each([
    ['{"seed":9007199254740993}', '9007199254740993'],
    ['[-12345678901234567890]', '-12345678901234567890'],
    ['{"a":"\\"1","b":{"c":[1,9007199254740992]}}', '9007199254740992'],
    ['[1e999]', '1e999'],
    ['[-1.5E400]', '-1.5E400'],
  ])('refuses %s, because it would be sent as a different value', (text, number) => {
    expect(() => parseBodyJson(text)).toThrow(RangeError);
    expect(() => parseBodyJson(text)).toThrow(number);
  });

  it.each([
    '{"a":9007199254740991,"b":-9007199254740991}',
    '{"a":"9007199254740993 \\" 1e999","12345678901234567890":null}',
    '[0.1,1e21,1.5e300,-0,0.12345678901234567890]',
  ])('accepts %s unchanged', (text) => {
    expect(parseBodyJson(text)).toEqual(JSON.parse(text));
  });

  it('refuses values that are nested too deeply', () => {
    expect(() => parseBodyJson(`${'['.repeat(maxLevels + 1)}${']'.repeat(maxLevels + 1)}`)).toThrow(
      /^it is nested deeper than 200 levels$/,
    );
  });

  it("throws the parser's error for invalid JSON", () => {
    expect(() => parseBodyJson('{"a":1e999')).toThrow(SyntaxError);
  });
});

// JSON text of objects whose names may repeat, including names with escapes, quotes and braces, with the nested names.
const names = fc.oneof(
  fc.constantFrom('a', 'b', '', '"', '\\', '{', '}', ':', '":', '__proto__', '\u00e9'),
  fc.string({ unit: 'binary', maxLength: 3 }),
);
const blank = fc.constantFrom('', ' ', '\t');
// Escapes all characters or only those that JSON requires, so that one name has several spellings.
const spelled = (name: string, isEscaped: boolean): string =>
  isEscaped
    ? `"${Array.from({ length: name.length }, (_, at) => `\\u${name.charCodeAt(at).toString(16).padStart(4, '0')}`).join('')}"`
    : JSON.stringify(name);
interface Written {
  text: string;
  isRepeated: boolean;
}
const { value: written } = fc.letrec<{ value: Written }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.oneof(names, fc.integer(), fc.boolean(), fc.constant(null)).map((value) => ({
      text: JSON.stringify(value),
      isRepeated: false,
    })),
    fc.array(tie('value'), { maxLength: 3 }).map((items) => ({
      text: `[${items.map(({ text }) => text).join(',')}]`,
      isRepeated: items.some(({ isRepeated }) => isRepeated),
    })),
    fc.array(fc.tuple(names, fc.boolean(), blank, tie('value')), { maxLength: 4 }).map((members) => ({
      text: `{${members.map(([name, isEscaped, space, { text }]) => `${space}${spelled(name, isEscaped)}${space}:${space}${text}`).join(',')}}`,
      isRepeated:
        new Set(members.map(([name]) => name)).size < members.length ||
        members.some(([, , , { isRepeated }]) => isRepeated),
    })),
  ),
}));

describe('parseUniqueJson', () => {
  it('refuses exactly the texts in which an object repeats a name', () => {
    fc.assert(
      fc.property(written, ({ text, isRepeated }) => {
        if (isRepeated) expect(() => parseUniqueJson(text)).toThrow(/^duplicate field /);
        else expect(parseUniqueJson(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['{"prompt":"a","prompt":"b"}', 'prompt'],
    ['{"a":1,"\\u0061":1}', 'a'],
    ['[{"body":{"x":[{"y":1,"y":1}]}}]', 'y'],
    ['{"":1,"":1}', '""'],
    ['{"a":{"b":1},"b":{},"a":1}', 'a'],
  ])('refuses %s and shows the name', (text, name) => {
    expect(() => parseUniqueJson(text)).toThrow(new RangeError(`duplicate field ${name}`));
  });

  it('refuses what parseBodyJson refuses', () => {
    expect(() => parseUniqueJson('{"a":1,"a"')).toThrow(SyntaxError);
    expect(() => parseUniqueJson('[9007199254740993]')).toThrow('would lose precision');
  });
});
