import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JobEvent } from '../../src/job.ts';
import { decodeEvents, encodeEvent, tornEnd } from '../../src/ledger/event-log.ts';
import { anyCharacter } from '../support/any-character.ts';

const now = 1_795_000_000_000;
const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const lost: JobEvent = {
  type: 'unknown',
  attempt: 1,
  error: { code: 'submit_unknown', message: 'no\nanswer "é"' },
};
const log = [accepted, lost].map((event) => encodeEvent(event, now)).join('');

describe('an event log', () => {
  it('returns every event with its time', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: anyCharacter }), { maxLength: 5 }),
        fc.jsonValue(),
        (handles, details) => {
          const events = [
            ...handles.map((handle): JobEvent => ({ type: 'accepted', handle })),
            { type: 'finished', state: 'succeeded', native_status: 'ok', details } satisfies JobEvent,
          ];
          const text = events.map((event) => encodeEvent(event, now)).join('');
          expect(text.split('\n')).toHaveLength(events.length + 1);
          const at = new Date(now).toISOString();
          const read = decodeEvents(text).map((event) => ({ ...event, crc: undefined }));
          expect(JSON.stringify(read)).toBe(JSON.stringify(events.map((event) => ({ v: 1, at, ...event }))));
        },
      ),
    );
  });

  it('loses only the last line if that line is torn, even if a newline was added', () => {
    const whole = encodeEvent(accepted, now);
    for (let cut = whole.length; cut < log.length; cut += 1) {
      const torn = log.slice(0, cut);
      expect(decodeEvents(torn)).toMatchObject([accepted]);
      if (cut > whole.length)
        expect(decodeEvents(torn + tornEnd + whole)).toMatchObject([accepted, accepted]);
    }
  });

  it('has lost its beginning if it contains no complete line', () => {
    const whole = encodeEvent(accepted, now);
    for (let cut = 0; cut < whole.length; cut += 1) {
      expect(decodeEvents(whole.slice(0, cut))).toEqual([undefined]);
      expect(decodeEvents(whole.slice(0, cut) + tornEnd)).toEqual([undefined]);
    }
  });

  // Every third bit is flipped, so every byte and every bit position is covered.
  it('reports a flipped bit as an unreadable line, or as a torn last line', () => {
    const bytes = Buffer.from(log);
    const first = Buffer.byteLength(encodeEvent(accepted, now));
    for (let bit = 0; bit < bytes.length * 8; bit += 3) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      const read = decodeEvents(flipped.toString());
      const isEnd = bit >> 3 === bytes.length - 1;
      if (isEnd) expect(read).toMatchObject([accepted]);
      else expect(read.filter((event) => event === undefined).length, String(bit)).toBeGreaterThan(0);
      const other = bit >> 3 < first ? lost : accepted;
      if (bit >> 3 !== first - 1) expect(read).toContainEqual(expect.objectContaining(other));
    }
  });

  it.each([
    ['of a later version', (line: string) => line.replace('"v":1', '"v":2')],
    ['that is not an object', () => '[1]'],
    ['that is not JSON', () => 'task_1'],
    ['that is empty', () => ''],
  ])('does not read a line %s', async (_, change) => {
    const { crc32 } = await import('node:zlib');
    const head = change(encodeEvent(accepted, now).trimEnd()).replace(/,"crc":.*$/, '');
    const sum = crc32(head).toString(16).padStart(8, '0');
    expect(decodeEvents(`${head},"crc":"${sum}"}\n${encodeEvent(lost, now)}`)).toMatchObject([
      undefined,
      lost,
    ]);
  });

  it('ignores the second terminator if two processes terminate the same torn line', () => {
    expect(decodeEvents(`${log}${tornEnd}${encodeEvent(accepted, now)}`)).toHaveLength(3);
  });
});
