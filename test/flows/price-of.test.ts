import { describe, expect, it } from 'vitest';
import { resolveSettings } from '../../src/config/resolve.ts';
import { currencyOf, priceOf, pricesOfModel } from '../../src/flows/prices.ts';
import { speechModel } from '../../src/speech/wire.ts';

const real = resolveSettings({ flags: {}, env: {}, file: { profiles: {} } });
const sandbox = resolveSettings({ flags: { sandbox: true }, env: {}, file: { profiles: {} } });

/** Returns settings with a price for every model of the given kinds. */
const withPrice = (price: string, ...kinds: string[]): typeof real => ({
  ...real,
  priceOf: (kind) => (kinds.includes(kind) ? { value: price, source: 'profile' } : undefined),
});

describe('the price of a submission', () => {
  it.each([
    ['c', 'vendor-h3', 'vendor-h3 (Protocol C)', ['prices.c.vendor-h3', 'second=AMOUNT']],
    ['c', '', 'no model (Protocol C)', undefined],
    ['tts', '', 'speech', ['prices.tts', '10k_characters=AMOUNT']],
  ])(
    'is unknown if it is not set, and the command that sets it is suggested for a known model: protocol %s, model "%s", printed as "%s"',
    (protocol, model, what, setting) => {
      const priced = priceOf({ protocol, model, body: {} }, real);
      const command = setting && ['mgw', 'config', 'set', ...setting];
      expect([priced.subject, priced.cost, priced.priceCommand]).toEqual([what, undefined, command]);
      expect(priceOf({ protocol, model, body: {} }, sandbox).priceCommand).toBeUndefined();
    },
  );

  it('is computed from the settings and their multipliers, or from its own price in the sandbox', () => {
    const order = { protocol: 'c', model: 'vendor-h3', body: { model: 'vendor-h3', duration: 5 } };
    const settings = withPrice('second=2', 'c');
    expect(priceOf(order, settings).cost).toEqual({ at_most: '10' });
    const twice = { ...settings, groupMultiplier: { value: '2', source: 'profile' as const } };
    const more = { ...twice, userMultiplier: { value: '1.5', source: 'profile' as const } };
    expect([priceOf(order, twice).cost?.at_most, priceOf(order, more).cost?.at_most]).toEqual(['20', '30']);
    const played = priceOf(order, sandbox).cost;
    const inSandbox = { ...more, sandbox: sandbox.sandbox };
    expect([played === undefined, priceOf(order, inSandbox).cost]).toEqual([false, played]);
    expect([
      currencyOf(sandbox),
      currencyOf({ ...real, currency: { value: 'USD', source: 'profile' } }),
    ]).toEqual(['credits', 'USD']);
    // A duration that is not a number leaves the cost unknown.
    expect(priceOf({ ...order, body: { duration: 'long' } }, settings).cost).toBeUndefined();
    const speech = { protocol: 'tts', body: { req_params: { text: 'abc' } } };
    expect(priceOf(speech, withPrice('10k_characters=2', 'tts')).cost?.per_10k_characters).toBe('2');
    expect(priceOf(speech, sandbox).cost).toBeDefined();
  });

  it('causes an error with the name of its setting, and the command that sets it, if it is invalid', () => {
    const order = { protocol: 'c', model: 'm', body: {} };
    expect(() => priceOf(order, withPrice('nonsense', 'c'))).toThrow(
      expect.objectContaining({
        code: 'config',
        next: ['mgw', 'config', 'set', 'prices.c.m', 'second=AMOUNT'],
        message: expect.stringMatching(
          /^prices\.c\.m in .*: nonsense is not written as NAME=VALUE/,
        ) as string,
      }),
    );
  });
});

describe("a model's prices", () => {
  it('are listed for each of its protocols, with the cost of a clip', () => {
    const settings = withPrice('second=2', 'a', 'c');
    const names = (protocols: string[]): string[] =>
      pricesOfModel({ id: 'm', protocols }, settings).map(({ protocol }) => protocol);
    expect([names([]), names(['c']), names(['b'])]).toEqual([['a', 'c'], ['c'], []]);
    const clip = pricesOfModel({ id: 'm', protocols: ['c'] }, settings, { duration: '5', colour: 'red' });
    expect(clip).toEqual([{ protocol: 'c', price: 'second=2', cost: '10' }]);
    expect(pricesOfModel({ id: 'm', protocols: ['c'] }, withPrice('video=2', 'c'))).toEqual([
      { protocol: 'c', price: 'video=2' },
    ]);
    expect(pricesOfModel({ id: 'm', protocols: ['a'] }, settings, {})).toEqual([
      { protocol: 'a', price: 'second=2' },
    ]);
  });

  it('are a single price for speech', () => {
    const model = { id: speechModel, protocols: [] };
    expect(pricesOfModel(model, real)).toEqual([]);
    expect(pricesOfModel(model, withPrice('10k_characters=2', 'tts'))).toEqual([
      { protocol: 'tts', price: '10k_characters=2' },
    ]);
  });
});
