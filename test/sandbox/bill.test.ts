import { appendFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { BillLine } from '../../src/sandbox/bill.ts';
import { charge, fingerprint, readBill, refund, reset } from '../../src/sandbox/bill.ts';
import { freshState, sandbox } from './harness.ts';

const LINE: BillLine = { task: 't1', area: 'c', model: 'm', amount: 5, fingerprint: 'f', key: 'k', at: 1000 };

describe('the bill', () => {
  test('is empty where nothing was charged', () => {
    expect(readBill(freshState())).toEqual([]);
  });

  test('keeps charges in order, and counts a refund from its time on', () => {
    const state = freshState();
    charge(state, LINE, 2000);
    charge(state, { ...LINE, task: 't2' });
    refund(state, 't2', 3000);
    const refunded = (now: number): unknown[] => readBill(state, now).map((line) => line.refunded);
    expect(readBill(state, 1999)).toEqual([LINE, { ...LINE, task: 't2' }]);
    expect(refunded(2000)).toEqual([true, undefined]);
    expect(refunded(3000)).toEqual([true, true]);
  });

  test('loses to a torn line that line only', () => {
    const state = freshState();
    charge(state, LINE);
    appendFileSync(join(state, 'bill.jsonl'), '\n{"kind":"charge","li');
    charge(state, { ...LINE, task: 't3' });
    expect(readBill(state).map(({ task }) => task)).toEqual(['t1', 't3']);
  });
});

describe('reset', () => {
  test('forgets tasks, charges and counts, and keeps what is not the sandbox’s', async () => {
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

  test('does nothing where there is nothing', () => {
    const state = freshState();
    reset(state);
    mkdirSync(state);
    reset(state);
    expect(readBill(state)).toEqual([]);
  });
});

describe('a fingerprint', () => {
  test('does not depend on the order of members', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (value) => {
        const turned = Object.fromEntries(Object.entries(value).reverse());
        expect(fingerprint(turned)).toBe(fingerprint(value));
      }),
    );
  });

  test.each<[unknown, unknown]>([
    [{ a: 1 }, { a: 2 }],
    [{ a: [1, 2] }, { a: [2, 1] }],
    [{ a: 1 }, { a: '1' }],
    [{}, []],
  ])('of %j is not that of %j', (left, right) => {
    expect(fingerprint(left)).not.toBe(fingerprint(right));
  });
});
