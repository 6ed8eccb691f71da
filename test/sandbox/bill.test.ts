import { appendFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { BillLine } from '../../src/sandbox/bill.ts';
import { appendToBill, fingerprint, readBill, totalOf } from '../../src/sandbox/bill.ts';
import { reset } from '../../src/sandbox/state.ts';
import { freshState, sandbox } from './harness.ts';

const LINE: BillLine = { task: 't1', area: 'c', model: 'm', amount: 5, fingerprint: 'f', key: 'k', at: 1000 };

describe('the sandbox bill', () => {
  test('is empty if nothing was charged', () => {
    expect(readBill(freshState())).toEqual([]);
  });

  test('lists charges in order, and includes a refund once it is due', () => {
    const state = freshState();
    appendToBill(state, { kind: 'charge', line: LINE }, { kind: 'refund', task: 't1', at: 2000 });
    appendToBill(state, { kind: 'charge', line: { ...LINE, task: 't2' } });
    expect(readBill(state, 1999)).toEqual([LINE, { ...LINE, task: 't2' }]);
    expect(readBill(state, 2000).map(({ refunded }) => refunded)).toEqual([true, undefined]);
    expect([totalOf(readBill(state, 1999)), totalOf(readBill(state, 2000))]).toEqual([10, 5]);
  });

  test('omits a torn line, and keeps all other lines', () => {
    const state = freshState();
    appendToBill(state, { kind: 'charge', line: LINE });
    appendFileSync(join(state, 'bill.jsonl'), '\n{"kind":"charge","li');
    appendToBill(state, { kind: 'charge', line: { ...LINE, task: 't3' } });
    expect(readBill(state).map(({ task }) => task)).toEqual(['t1', 't3']);
  });

  test('contains an exact total', () => {
    const tenths = Array.from({ length: 10 }, (_, index) => ({ ...LINE, task: `t${index}`, amount: 0.1 }));
    expect(totalOf(tenths)).toBe(1);
    expect(
      totalOf([
        { ...LINE, amount: 2400 },
        { ...LINE, amount: 3.51 },
        { ...LINE, amount: 0.015 },
      ]),
    ).toBe(2403.525);
  });
});

describe('sandbox reset', () => {
  test('removes tasks, charges and counts, but not files of other programs', async () => {
    const gateway = await sandbox({ faults: ['poll-502x1'], seed: 1 });
    const submit = (): Promise<unknown> =>
      gateway
        .call('POST', '/v1/videos', { body: { model: 'vendor-h3', prompt: 'x' } })
        .then(({ body }) => body);
    const first = await submit();
    writeFileSync(join(gateway.stateDir, 'notes.txt'), 'mine');
    reset(gateway.stateDir);
    expect(readBill(gateway.stateDir)).toEqual([]);
    expect(existsSync(join(gateway.stateDir, 'notes.txt'))).toBe(true);
    expect(await submit()).toEqual(first);
  });

  test('does nothing if there is no state', () => {
    const state = freshState();
    reset(state);
    mkdirSync(state);
    reset(state);
    expect(readBill(state)).toEqual([]);
  });
});

describe('the fingerprint of a request body', () => {
  test('does not depend on the order of the members', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (value) => {
        const turned = Object.fromEntries(Object.entries(value).reverse());
        expect(fingerprint(turned)).toBe(fingerprint(value));
      }),
      { numRuns: 30 },
    );
  });

  test.each<[unknown, unknown]>([
    [{ a: 1 }, { a: 2 }],
    [{ a: [1, 2] }, { a: [2, 1] }],
    [{ a: 1 }, { a: '1' }],
    [{}, []],
  ])('is different for %j and %j', (left, right) => {
    expect(fingerprint(left)).not.toBe(fingerprint(right));
  });
});
