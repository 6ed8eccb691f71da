import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { startChaos } from '../../src/sandbox/faults.ts';
import { FAULTS } from '../../src/sandbox/fault-catalogue.ts';
import { sandbox } from './harness.ts';

const kinds = ['submit', 'poll', 'download', 'list', 'tts', 'responses'] as const;

function fates(seed: number, probability: number, calls = 60): (string | undefined)[] {
  const chaos = startChaos(seed);
  return Array.from({ length: calls }, (_, index) => {
    const kind = kinds[index % kinds.length] ?? 'poll';
    const hit = chaos({ kind, area: 'b', subject: 'x' }, probability);
    return hit && `${hit.name}@${hit.percent}`;
  });
}

describe('chance', () => {
  test('is the same for the same seed, and another for another', () => {
    expect(fates(7, 50)).toEqual(fates(7, 50));
    expect(fates(7, 50)).not.toEqual(fates(8, 50));
  });

  test('does not depend on the other calls in between', () => {
    const [alone, among] = [startChaos(3), startChaos(3)];
    const call = { kind: 'submit', area: 'c', subject: 'x' } as const;
    for (let count = 0; count < 50; count += 1) {
      among({ ...call, kind: 'poll' }, 50);
      among({ ...call, subject: 'y' }, 50);
      expect(among(call, 50)).toEqual(alone(call, 50));
    }
  });

  test('strikes never at 0, always at 100, and about as often as it should in between', () => {
    expect(fates(1, 0).filter(Boolean)).toEqual([]);
    expect(fates(1, 100).filter(Boolean)).toHaveLength(60);
    const share = fates(1, 20, 5000).filter(Boolean).length / 5000;
    expect(share).toBeGreaterThan(0.17);
    expect(share).toBeLessThan(0.23);
  });

  test('chooses among every fault of a kind of call, and of no other protocol', () => {
    const seen = (area: 'b' | 'c'): Set<string> => {
      const chaos = startChaos(1);
      const hits = kinds.flatMap((kind) =>
        Array.from({ length: 500 }, () => chaos({ kind, area, subject: 'x' }, 100)?.name),
      );
      return new Set(hits.filter((name) => name !== undefined));
    };
    const ways = FAULTS.map(({ name }) => name).filter(
      (name) =>
        /^(b-)?(submit|poll|download|url|models|tts|responses)-/.test(name) && name !== 'download-stall',
    );
    expect([...seen('b')].sort()).toEqual([...ways].sort());
    expect([...seen('c')].filter((name) => name.startsWith('b-'))).toEqual([]);
  });
});

describe('a sandbox under chaos', () => {
  const body = { model: 'vendor-h3', prompt: 'a red kite', duration: 4 };

  async function outcomes(faults: string[], seed: number): Promise<{ seen: string[]; charges: number }> {
    const gateway = await sandbox({ faults, seed, paceMs: 1 });
    const seen: string[] = [];
    for (let count = 0; count < 40; count += 1) {
      const answer = await gateway.call('POST', '/v1/videos', { body }).catch(() => undefined);
      seen.push(String(answer?.status ?? 'broken'));
    }
    return { seen, charges: readBill(gateway.stateDir).length };
  }

  test('fares the same under the same seed, and keeps its bill through it', async () => {
    const [one, two] = [await outcomes(['chaos@60%'], 5), await outcomes(['chaos@60%'], 5)];
    expect(one).toEqual(two);
    expect(new Set(one.seen).size).toBeGreaterThan(4);
    expect(one.charges).toBeGreaterThan(10);
    expect(one.charges).toBeLessThan(40);
  });

  test('strikes as often as it is told to', async () => {
    const { seen } = await outcomes(['chaosx3@100%', 'submit-429x1'], 5);
    expect(seen.slice(4)).toEqual(Array.from({ length: 36 }, () => '200'));
  });
});
