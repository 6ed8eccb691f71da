import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import {
  allFaults,
  FaultSyntaxError,
  resetFaultCounts,
  parseFaults,
  startChaos,
  useFault,
} from '../../src/sandbox/faults.ts';
import { freshState, sandbox } from './harness.ts';

describe('the fault syntax', () => {
  test.each([
    ['poll-502', { name: 'poll-502', maxHits: Infinity, percent: 100 }],
    ['poll-502x3', { name: 'poll-502', maxHits: 3, percent: 100 }],
    ['download-cut', { name: 'download-cut', maxHits: Infinity, percent: 50 }],
    ['download-cut@40%', { name: 'download-cut', maxHits: Infinity, percent: 40 }],
    ['download-cut@12.5%', { name: 'download-cut', maxHits: Infinity, percent: 12.5 }],
    ['download-cutx2@40%', { name: 'download-cut', maxHits: 2, percent: 40 }],
    ['download-cut@40%x2', { name: 'download-cut', maxHits: 2, percent: 40 }],
  ])('reads %s', (text, fault) => {
    expect(parseFaults([text])).toEqual([{ ...fault, text }]);
  });

  test('reads several faults, from one or several flags', () => {
    const names = (texts: string[]): string[] => parseFaults(texts).map(({ text }) => text);
    expect(names(['poll-429x2, task-fails', '', 'tts-cut,'])).toEqual([
      'poll-429x2',
      'task-fails',
      'tts-cut',
    ]);
    expect(names([])).toEqual([]);
  });

  test.each([
    ['pol-502', /Did you mean poll-502\?/],
    ['download-cutt@40%', /Did you mean download-cut\?/],
    ['POLL-502', /Did you mean poll-502\?/],
    ['lost', /Did you mean submit-reply-lost\?/],
    ['unheard-of-fault', /There is no fault "unheard-of-fault"\. To list all faults: mgw sandbox faults/],
    ['poll-502x0', /1 to 10000/],
    ['poll-502x99999', /1 to 10000/],
    ['poll-502@40%', /accepts no percentage/],
    ['download-cut@101%', /0 to 100/],
    ['download-cutx1@40%x2', /only one count/],
    ['poll-502x', /There is no fault/],
    ['poll-502x-1', /There is no fault/],
  ])('refuses %s', (text, message) => {
    expect(() => parseFaults([text])).toThrow(FaultSyntaxError);
    expect(() => parseFaults([text])).toThrow(message);
  });

  test('reads every fault with any count, and throws only usage errors', () => {
    const names = fc.constantFrom(...allFaults.map(({ name }) => name));
    fc.assert(
      fc.property(names, fc.integer({ min: 1, max: 10_000 }), (name, maxHits) => {
        expect(parseFaults([`${name}x${maxHits}`])).toMatchObject([{ name, maxHits }]);
      }),
      { numRuns: 40 },
    );
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          parseFaults([text]);
        } catch (error) {
          expect(error).toBeInstanceOf(FaultSyntaxError);
        }
      }),
    );
  });
});

describe('the fault counter', () => {
  test('applies a fault the requested number of times, even with several processes', () => {
    const state = freshState();
    const [here, there] = [parseFaults(['poll-502x3']), parseFaults(['poll-502x3'])];
    const hits = [here, there, here, there, here].map((faults) => useFault(state, faults, 'poll-502')?.name);
    expect(hits).toEqual(['poll-502', 'poll-502', 'poll-502', undefined, undefined]);
    expect(useFault(state, parseFaults(['poll-502']), 'poll-503')).toBeUndefined();
  });

  test('does not use up a fault for a request to which the fault does not apply', () => {
    const state = freshState();
    const faults = parseFaults(['download-cutx1@40%']);
    expect(useFault(state, faults, 'download-cut', (percent) => percent > 40)).toBeUndefined();
    expect(useFault(state, faults, 'download-cut')).toEqual({ name: 'download-cut', percent: 40 });
    expect(useFault(state, faults, 'download-cut')).toBeUndefined();
  });

  test('starts from zero after a reset', () => {
    const state = freshState();
    const faults = parseFaults(['poll-502x1']);
    expect(useFault(state, faults, 'poll-502')).toBeDefined();
    resetFaultCounts(state);
    expect(useFault(state, faults, 'poll-502')).toBeDefined();
    expect(useFault(state, faults, 'poll-502')).toBeUndefined();
  });
});

test('the fault catalogue lists each fault once, in --fault syntax', () => {
  expect(new Set(allFaults.map(({ name }) => name)).size).toBe(allFaults.length);
  expect(parseFaults(allFaults.map(({ name }) => name)).map(({ name }) => name)).toEqual(
    allFaults.map(({ name }) => name),
  );
});

const kinds = ['submit', 'poll', 'download', 'list', 'tts', 'responses'] as const;

function fates(seed: number, probability: number, calls = 60): (string | undefined)[] {
  const chaos = startChaos(seed);
  return Array.from({ length: calls }, (_, index) => {
    const kind = kinds[index % kinds.length] ?? 'poll';
    const hit = chaos({ kind, area: 'b', subject: 'x' }, probability);
    return hit && `${hit.name}@${hit.percent}`;
  });
}

describe('chaos', () => {
  test('is the same for the same seed, and different for a different seed', () => {
    expect(fates(7, 50)).toEqual(fates(7, 50));
    expect(fates(7, 50)).not.toEqual(fates(8, 50));
  });

  test('does not depend on other requests in between', () => {
    const [alone, among] = [startChaos(3), startChaos(3)];
    const call = { kind: 'submit', area: 'c', subject: 'x' } as const;
    for (let count = 0; count < 50; count += 1) {
      among({ ...call, kind: 'poll' }, 50);
      among({ ...call, subject: 'y' }, 50);
      expect(among(call, 50)).toEqual(alone(call, 50));
    }
  });

  test('never applies a fault at 0 %, always at 100 %, and about as often as requested in between', () => {
    expect(fates(1, 0).filter(Boolean)).toEqual([]);
    expect(fates(1, 100).filter(Boolean)).toHaveLength(60);
    const share = fates(1, 20, 1500).filter(Boolean).length / 1500;
    expect(share).toBeGreaterThan(0.17);
    expect(share).toBeLessThan(0.23);
  });

  test('chooses among all faults for a kind of request, but never a fault of another protocol', () => {
    const seen = (area: 'b' | 'c'): Set<string> => {
      const chaos = startChaos(1);
      const hits = kinds.flatMap((kind) =>
        Array.from({ length: 200 }, () => chaos({ kind, area, subject: 'x' }, 100)?.name),
      );
      return new Set(hits.filter((name) => name !== undefined));
    };
    const cases = allFaults
      .map(({ name }) => name)
      .filter(
        (name) =>
          /^(b-)?(submit|poll|download|url|models|tts|responses)-/.test(name) && name !== 'download-stall',
      );
    expect([...seen('b')].sort()).toEqual([...cases].sort());
    expect([...seen('c')].filter((name) => name.startsWith('b-'))).toEqual([]);
  });
});

describe('a sandbox under chaos', () => {
  const body = { model: 'vendor-h3', prompt: 'a red kite', duration: 4 };

  async function outcomes(faults: string[], seed: number): Promise<{ seen: string[]; charges: number }> {
    const gateway = await sandbox({ faults, seed, paceMs: 1 });
    const seen: string[] = [];
    for (let count = 0; count < 20; count += 1) {
      const answer = await gateway.call('POST', '/v1/videos', { body }).catch(() => undefined);
      seen.push(String(answer?.status ?? 'broken'));
    }
    return { seen, charges: readBill(gateway.stateDir).length };
  }

  test('behaves identically if the seed is the same, and keeps a correct bill', async () => {
    const [one, two] = [await outcomes(['chaos@60%'], 5), await outcomes(['chaos@60%'], 5)];
    expect(one).toEqual(two);
    expect(new Set(one.seen).size).toBeGreaterThan(3);
    expect(one.charges).toBeGreaterThan(5);
    expect(one.charges).toBeLessThan(20);
  });

  test('applies each fault the configured number of times', async () => {
    const { seen } = await outcomes(['chaosx3@100%', 'submit-429x1'], 5);
    expect(seen.slice(4)).toEqual(Array.from({ length: 16 }, () => '200'));
  });
});
