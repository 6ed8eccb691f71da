import { describe, expect, it } from 'vitest';
import type { JobEvent, RecordedEvent } from '../../src/job.ts';
import { newJobId } from '../../src/ledger/names.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';

export const now = 1_795_000_000_000;

export const prepared: JobEvent & { type: 'prepared' } = {
  type: 'prepared',
  protocol: 'a',
  base_url: 'https://gateway.example',
  fingerprint: 'f1',
  account: 'a1',
};
export const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };

/** The storage of a ledger. Each test has its own storage. */
export interface Place {
  /** Opens the ledger as a separate process would. */
  open: () => Promise<Ledger>;
}

/** Defines the tests that every kind of ledger must pass. `newPlace` returns empty storage. */
export function conformance(newPlace: () => Promise<Place>): void {
  const made = async (...events: JobEvent[]): Promise<Place & { ledger: Ledger; id: string }> => {
    const place = await newPlace();
    const ledger = await place.open();
    const id = newJobId(now);
    await ledger.create(id, [prepared, ...events]);
    return { ...place, ledger, id };
  };

  describe('a job', () => {
    it('is returned as recorded, even after the ledger is opened again, and has a new version after each event', async () => {
      const { ledger, open, id } = await made(accepted);
      const versions = [await ledger.version(id)];
      await ledger.append(id, { type: 'finished', state: 'succeeded', native_status: 'ok' });
      versions.push(await ledger.version(id), await ledger.version(id));
      const job = await (await open()).read(id);
      const { record: own, ...shown } = (await ledger.read(id)) ?? {};
      expect(job).toMatchObject({ ...shown, record: { ...own, lifeOf: expect.any(Function) as unknown } });
      expect(job).toMatchObject({ id, protocol: 'a', state: 'succeeded', handle: 'task_1' });
      expect(job?.created_at).toBe(new Date(now).toISOString());
      await ledger.remove(id);
      const [first, second, again, removed] = [...versions, await ledger.version(id)];
      expect([first === second, second === again, removed]).toEqual([false, true, undefined]);
    });

    it('can be created only once, even after it is removed, and never exists under an invalid id', async () => {
      const { ledger, id } = await made();
      expect(await ledger.create(id, [prepared, accepted])).toBe(false);
      expect(await ledger.claimState(id)).toBe('exists');
      await ledger.remove(id);
      expect([await ledger.read(id), await ledger.claimState(id)]).toEqual([undefined, 'removed']);
      expect(await ledger.ids()).toEqual([]);
      expect(await ledger.create(id, [prepared])).toBe(false);
      await ledger.claim('x.jsonl', 'mine');
      for (const odd of ['', '..', '../claims/x', `${id}/..`, 'job_', `${id}.jsonl`])
        expect(await ledger.read(odd)).toBeUndefined();
      await expect(ledger.append(id, accepted)).rejects.toMatchObject({ code: 'local_io' });
    });

    it('preserves all text exactly, and the time of each event that has a time', async () => {
      const { ledger, id } = await made();
      const text = `\0 \n " \\ 'quoted' \ud800 \u{1f6f6} ${'x'.repeat(70_000)}`;
      const at = '2026-01-02T03:04:05.678Z';
      const handle = `models/${'9'.repeat(4000)}`;
      const copied: RecordedEvent = { type: 'reply', attempt: 1, at, reply: replyOf(text) };
      const other = newJobId(now + 1);
      await ledger.create(other, [{ ...prepared, at }, copied, undefined]);
      await ledger.append(id, { type: 'accepted', handle, native_status: text });
      const [, event] = await ledger.events(id);
      expect(event).toMatchObject({ handle, native_status: text, at: new Date(now).toISOString() });
      expect(await ledger.lookup('handle', handle)).toEqual([id]);
      expect((await ledger.events(other)).slice(1)).toMatchObject([{ at, reply: { text } }, undefined]);
      expect(await ledger.read(other)).toMatchObject({ state: 'unknown', created_at: at });
    });

    it('lists its events in the order in which they were added, from any number of concurrent writers', async () => {
      const { ledger, open, id } = await made(accepted);
      const others = await Promise.all([open(), open()]);
      const counts = Array.from({ length: 10 }, (_, index) => index);
      const add = async (by: Ledger, name: string): Promise<void> => {
        for (const count of counts)
          await by.append(id, { type: 'observed', state: 'running', native_status: `${name} ${count}` });
      };
      await Promise.all([ledger, ...others].map((by, index) => add(by, `p${index}`)));
      const events = await ledger.events(id);
      expect(events).toHaveLength(2 + 3 * counts.length);
      const seen = events.flatMap((event) => (event?.type === 'observed' ? [event.native_status] : []));
      for (const name of ['p0', 'p1', 'p2'])
        expect(seen.filter((each) => each.startsWith(name))).toEqual(
          counts.map((count) => `${name} ${count}`),
        );
      expect(await ledger.read(id)).toMatchObject({ native_status: seen.at(-1), record: { damaged: 0 } });
    });

    it('is omitted from a list of unfinished jobs only if it is known to have succeeded', async () => {
      const { ledger, open, id } = await made(accepted);
      const other = newJobId(now + 1);
      await ledger.create(other, [prepared, accepted]);
      await (await open()).append(id, { type: 'finished', state: 'succeeded', native_status: 'ok' });
      await ledger.read(id);
      await ledger.append(other, { type: 'finished', state: 'failed', native_status: 'no' });
      const openIds = await unfinished(ledger);
      expect(openIds).toContain(other);
      expect(await ledger.ids()).toEqual([other, id]);
      await ledger.append(other, { type: 'finished', state: 'succeeded', native_status: 'ok' });
      expect(await unfinished(ledger)).toEqual(openIds.filter((each) => each === id));
      await ledger.append(id, { type: 'rated', rating: 3 });
      expect(await unfinished(ledger)).toEqual([]);
    });

    it('is listed by id, newest first, and is unfinished from its creation until it succeeds, even after it has failed', async () => {
      const { ledger, id } = await made();
      const [succeeded, failed, doubtful] = [now + 3, now + 1, now + 2].map((at) => newJobId(at)) as [
        string,
        string,
        string,
      ];
      const error = { code: 'server_error', message: 'no' };
      const ended = { type: 'finished', native_status: '' } as const;
      await ledger.create(succeeded, [prepared, accepted, { ...ended, state: 'succeeded' }]);
      await ledger.create(failed, [prepared, accepted, { ...ended, state: 'failed' }]);
      await ledger.create(doubtful, [prepared, { type: 'unknown', attempt: 1, error }]);
      expect(await unfinished(ledger)).toEqual([doubtful, failed, id]);
      const sorted = [succeeded, doubtful, failed, id];
      expect(await ledger.ids()).toEqual(sorted);
      expect((await ledger.listed()).slice()).toEqual(sorted);
    });

    it('is no longer listed once it is removed, and is listed again when it is restored', async () => {
      const { ledger, id } = await made();
      const other = newJobId(now + 1);
      await ledger.create(other, [prepared]);
      await ledger.remove(other);
      expect(await ledger.read(other)).toBeUndefined();
      expect((await ledger.listed()).slice()).toEqual([id]);
      expect(await ledger.create(other, [prepared, accepted], true)).toBe(true);
      expect(await ledger.create(other, [prepared], true)).toBe(false);
      expect((await ledger.listed()).slice()).toEqual([other, id]);
      expect([await ledger.read(other), await ledger.claimState(other)]).toMatchObject([
        { handle: 'task_1' },
        'exists',
      ]);
      expect(await ledger.ids()).toEqual([other, id]);
      await ledger.append(other, { type: 'accepted', handle: 'again' });
    });

    it('cannot be created once its id is forbidden, and its id cannot be forbidden once the job exists', async () => {
      const { ledger, open, id } = await made();
      const other = newJobId(now + 1);
      expect(await ledger.claimState(other)).toBe('not-created');
      expect([await ledger.forbid(other), await ledger.forbid(other), await ledger.forbid(id)]).toEqual([
        true,
        true,
        false,
      ]);
      expect(await (await open()).create(other, [prepared])).toBe(false);
      expect([await ledger.claimState(other), await ledger.claimState(id)]).toEqual(['removed', 'exists']);
      expect(await ledger.ids()).toEqual([id]);
    });

    it('is lost if an attempt to send it was claimed but it has no record', async () => {
      const { ledger, id } = await made();
      const other = newJobId(now + 1);
      await ledger.claim(`send.${other}.1`, '{}');
      expect(await ledger.claimState(other)).toBe('lost');
      // A new job has a higher id than all earlier jobs, even if the clock is set back.
      expect((await ledger.newId(now - 1000)) > id).toBe(true);
    });
  });

  describe('a claim', () => {
    it('permanently belongs to one process, and keeps its content, regardless of its name', async () => {
      const { ledger, open } = await made();
      const other = await open();
      expect(await ledger.claimed('key.boat')).toBeUndefined();
      expect(await ledger.claim('key.boat', 'one')).toBeUndefined();
      expect(await other.claim('key.boat', 'two')).toBe('one');
      expect(await ledger.claim('key.boat', 'one')).toBe('one');
      expect(await other.claimed('key.boat')).toBe('one');
      const names = [
        'key.../../x',
        'key.a/b',
        'key.é',
        'key.\n',
        `key.${'@'.repeat(128)}`,
        `key.${'@'.repeat(127)}`,
      ];
      for (const name of names) expect(await ledger.claim(name, name.slice(0, 6).trim())).toBeUndefined();
      for (const name of names) expect(await ledger.claimed(name)).toBe(name.slice(0, 6).trim());
      for (const name of ['take.f1', `take.${newJobId(now)}`, 'send.1']) await ledger.claim(name, 'one');
      const firstNames = ['key.boat', ...names.slice(0, 4), 'take.f1'];
      expect((await other.firstNames()).sort()).toEqual(firstNames.sort());
    });

    it('is won by exactly one of several processes', async () => {
      const { ledger, open } = await made();
      const all = [ledger, await open(), await open()];
      const tries = Array.from({ length: 12 }, (_, index) =>
        (all[index % 3] ?? ledger).claim('send', `p${index}`),
      );
      const results = await Promise.all(tries);
      expect(results.filter((held) => held === undefined)).toHaveLength(1);
      expect(new Set(results.filter((held) => held !== undefined)).size).toBe(1);
    });
  });

  it("an index lookup returns a value's jobs, newest first, and a handle's job, even if the handle was recorded later", async () => {
    const { ledger, id } = await made();
    const ids: string[] = [];
    for (const time of [3, 1, 2]) {
      const each = newJobId(time);
      const created: JobEvent = { type: 'accepted', handle: `task_of_${each}` };
      await ledger.create(each, [{ ...prepared, fingerprint: 'f9' }, created]);
      ids.push(each);
    }
    expect(await ledger.lookup('fingerprint', 'f9')).toEqual([...ids].reverse());
    for (const each of ids) expect(await ledger.lookup('handle', `task_of_${each}`)).toEqual([each]);
    expect(await ledger.lookup('handle', 'boat')).toEqual([]);
    await ledger.append(id, { type: 'accepted', handle: 'late' });
    expect(await ledger.lookup('handle', 'late')).toEqual([id]);
  });

  it('a process is considered alive while it runs, and neither alive nor dead if it cannot be checked from this machine', async () => {
    const { ledger, open, id } = await made();
    const lease = await ledger.lease();
    lease.assertLease();
    await ledger.append(id, { type: 'sending', attempt: 1, owner: lease.owner });
    for (const each of [ledger, await open()]) {
      expect(await each.lifeOf(lease.owner)).toBe('alive');
      expect((await each.read(id))?.record.lifeOf(lease.owner)).toBe('alive');
    }
    expect(await ledger.lifeOf({ pid: 7, start: '1', host: 'elsewhere' })).toBe('unknown');
  });
}

async function unfinished(ledger: Ledger): Promise<string[]> {
  return (await ledger.listed({ excludeSucceeded: true })).slice();
}

function replyOf(text: string): {
  status: number;
  headers: Record<string, string>;
  text: string;
  complete: boolean;
} {
  return { status: 200, headers: {}, text, complete: true };
}
