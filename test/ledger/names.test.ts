import { describe, expect, it } from 'vitest';
import {
  claimFileName,
  holderText,
  isAttempt,
  jobIdPattern,
  names,
  newJobId,
  readHolder,
  readOwner,
  timeOf,
} from '../../src/ledger/names.ts';

const owner = { pid: 7, start: '1', host: 'here', instance: 'i', lease: '3' };
const now = 1_795_000_000_000;

describe('a job id', () => {
  it.each([0, 1, 31, 32, now, now + 1, 32 ** 9 - 1])(
    'contains its creation time in a fixed format: %i',
    (time) => {
      const id = newJobId(time);
      expect([timeOf(id), jobIdPattern.test(id)]).toEqual([time, true]);
    },
  );

  it('sorts by its creation time', () => {
    const ids = [0, 1, 31, 32, 1023, now - 1, now, now + 1, 2 ** 44].map((time) => newJobId(time));
    expect([...ids].sort()).toEqual(ids);
  });

  it('is higher than the previous id, even if the clock was set back', () => {
    let last = newJobId(now);
    for (const time of [now - 5000, now, now + 5000]) {
      const id = newJobId(time, last);
      expect(id > last).toBe(true);
      expect(timeOf(id)).toBe(Math.max(time, timeOf(last) + 1));
      last = id;
    }
    expect(newJobId(now)).not.toBe(newJobId(now));
  });
});

it('a claim name contains the claimed key, take or attempt', () => {
  expect(names.first({ fingerprint: 'f' })).toBe('take.f');
  expect(names.first({ key: 'k', fingerprint: 'f' })).toBe('key.k');
  expect([names.after('j'), names.attempt('j', 2)]).toEqual(['take.j', 'send.j.2']);
  expect(['send.j.2', 'take.j', 'key.send.'].map(isAttempt)).toEqual([true, false, false]);
});

it.each([
  ['key.a b/..', 'key.a%20b%2F..'],
  ['x'.repeat(200), 'x'.repeat(200)],
])('the claim "%s" is stored in the file %s', (name, file) => {
  expect(claimFileName(name)).toBe(file);
});

it("a long claim's file name is the hash of the claim's name", () => {
  const [one, other] = ['x'.repeat(201), `${'x'.repeat(200)}y`].map(claimFileName);
  expect(one).toMatch(/^long-[\da-f]{64}$/);
  expect(one).not.toBe(other);
});

describe("a claim's content", () => {
  const holder = { job: 'j', fingerprint: 'f', owner };

  it("is read back unchanged, with the owner's data", () => {
    expect(readHolder(holderText(holder))).toEqual(holder);
    expect(readOwner(JSON.stringify(owner))).toEqual(owner);
    const bare = { pid: 7, start: '', host: '' };
    expect(readOwner(JSON.stringify({ ...bare, instance: 1, lease: 2 }))).toEqual(bare);
  });

  it.each<[string, object | string]>([
    ['is not an object', '[1]'],
    ['is not JSON', 'nonsense'],
    ['has no job', { ...holder, job: 1 }],
    ['has no fingerprint', { ...holder, fingerprint: 1 }],
    ['has no owner', { ...holder, owner: 'x' }],
    ['has an owner without an id', { ...holder, owner: { ...owner, pid: '7' } }],
    ['has an owner without a start', { ...holder, owner: { ...owner, start: 1 } }],
    ['has an owner without a host', { ...holder, owner: { ...owner, host: 1 } }],
  ])('is damaged if it %s', (_, value) => {
    expect(readHolder(typeof value === 'string' ? value : JSON.stringify(value))).toBeUndefined();
  });
});
