import { describe, expect, it, vi } from 'vitest';
import { lostFingerprint, type Job } from '../../src/job.ts';
import { enrol, enrolAll, findJobById, follow, type Link } from '../../src/ledger/chain.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { holderText, names, type ClaimState } from '../../src/ledger/names.ts';

const owner = { pid: 7, start: '1', host: 'here' };
const submission = { key: 'k', fingerprint: 'f' };
const holder = (job: string): string => holderText({ job, fingerprint: 'f', owner });

interface Made {
  key?: string | undefined;
  fingerprint?: string;
  attempts?: number;
  sentBy?: object;
}

const jobOf = (id: string, { key = 'k', fingerprint = 'f', attempts = 0, sentBy }: Made = {}): Job =>
  ({ id, key, record: { fingerprint, attempts, sentBy } }) as unknown as Job;

/** Returns a ledger with the given claims, jobs (oldest first) and claim states. */
function ledgerOf(
  claims: Record<string, string>,
  jobs: Job[] = [],
  fates: Record<string, ClaimState> = {},
): Ledger {
  const ledger: Partial<Ledger> = {
    claimed: (name) => Promise.resolve(claims[name]),
    claim: (name, content) => {
      const there = claims[name];
      claims[name] ??= content;
      return Promise.resolve(there);
    },
    read: (id) => Promise.resolve(jobs.find((job) => job.id === id)),
    claimState: (id) => Promise.resolve(fates[id] ?? 'not-created'),
    ids: () => Promise.resolve(jobs.map(({ id }) => id).reverse()),
  };
  return ledger as Ledger;
}

describe("a name's chain of claims", () => {
  const walk = async (
    ledger: Ledger,
    last?: string,
    of: typeof submission | { fingerprint: string } = submission,
  ): Promise<unknown[]> => {
    const seen: string[] = [];
    const end = await follow(ledger, of, ({ name, holder: { job }, claimState }: Link) => {
      seen.push(`${name} ${job} ${claimState}`);
      return job === last;
    });
    return [...seen, end];
  };
  const claims = { 'key.k': holder('j1'), 'take.j1': holder('j2'), 'take.j2': holder('j3') };

  it('leads from job to job to the first free name, or to the requested job', async () => {
    const ledger = ledgerOf(claims, [jobOf('j2')], { j1: 'removed', j3: 'lost' });
    const links = ['key.k j1 removed', 'take.j1 j2 exists', 'take.j2 j3 lost'];
    expect(await walk(ledger)).toEqual([...links, { name: 'take.j3', isFree: true }]);
    expect(await walk(ledger, 'j2')).toEqual([...links.slice(0, 2), undefined]);
    expect(await walk(ledgerOf({}))).toEqual([{ name: 'key.k', isFree: true }]);
  });

  it("leads past a damaged claim to the name's next job, if there is one", async () => {
    const jobs = [jobOf('j0', { key: 'other' }), jobOf('j1'), jobOf('j2'), jobOf('j3', { key: 'other' })];
    const damaged = { ...claims, 'take.j1': '', 'take.j2': 'nonsense' };
    const ledger = ledgerOf(damaged, jobs);
    expect(await walk(ledger)).toEqual([
      'key.k j1 exists',
      'take.j1 j2 exists',
      { name: 'take.j2', isFree: false },
    ]);
    const takes = { 'take.f': '' };
    const unnamed = (id: string, fingerprint: string): Job => ({
      ...jobOf(id, { fingerprint }),
      key: undefined,
    });
    const others = [unnamed('j1', 'g'), unnamed('j2', 'f'), unnamed('j3', 'f')];
    expect(await walk(ledgerOf(takes, others), 'j2', { fingerprint: 'f' })).toEqual([
      'take.f j2 exists',
      undefined,
    ]);
    expect(await walk(ledgerOf(takes, [jobOf('j1')]), 'j1', { fingerprint: 'f' })).toEqual([
      { name: 'take.f', isFree: false },
    ]);
    expect(await walk(ledgerOf({ 'key.k': '' }, [jobOf('j1', { fingerprint: 'g' })]), 'j1')).toEqual([
      'key.k j1 exists',
      undefined,
    ]);
    const ids = (): Promise<string[]> => Promise.resolve(['j1', 'removed']);
    expect(await walk({ ...ledgerOf({ 'key.k': '' }, [jobOf('j1')]), ids }, 'j1')).toEqual([
      'key.k j1 exists',
      undefined,
    ]);
  });

  it('includes a job created between two reads', async () => {
    let looks = 0;
    const ledger = {
      read: () => Promise.resolve((looks += 1) > 1 ? jobOf('j1') : undefined),
      claimState: () => Promise.resolve('exists'),
    } as Partial<Ledger> as Ledger;
    expect(await findJobById(ledger, 'j1')).toMatchObject({ claimState: 'exists', job: { id: 'j1' } });
  });
});

describe('the names of a job without claims', () => {
  it('are claimed at the end of the chain, and only once', async () => {
    const claims: Record<string, string> = {};
    const ledger = ledgerOf(claims);
    const [one, two] = [jobOf('j1', { attempts: 2, sentBy: { pid: 9 } }), jobOf('j2')];
    await enrolAll(ledger, [one, two, jobOf('j3', { key: 'other' })], owner);
    expect(claims).toEqual({
      'send.j1.1': JSON.stringify({ pid: 9 }),
      'key.k': holder('j1'),
      'take.j1': holder('j2'),
      'key.other': holder('j3'),
    });
    const before = { ...claims };
    expect(await enrol(ledger, two, owner)).toBe('take.j2');
    expect(await enrol(ledger, jobOf('j4'), owner, 'take.j2')).toBe('take.j4');
    expect(claims).toEqual({ ...before, 'take.j2': holder('j4') });
  });

  it('need one claim per job, even if many jobs have the same name', async () => {
    const ledger = ledgerOf({});
    const claim = vi.spyOn(ledger, 'claim');
    const jobs = Array.from({ length: 30 }, (_, at) => jobOf(`j${at}`));
    await enrolAll(ledger, jobs, owner);
    expect(claim).toHaveBeenCalledTimes(30);
  });

  it("consist only of the attempt if the job's fingerprint is lost, and never replace a damaged claim", async () => {
    const claims: Record<string, string> = { 'key.k': 'nonsense' };
    const ledger = ledgerOf(claims);
    for (const fingerprint of ['', lostFingerprint])
      for (const key of ['k', 'free'])
        expect(await enrol(ledger, jobOf('j1', { key, fingerprint, attempts: 1 }), owner)).toBe('take.j1');
    expect(claims).toEqual({ 'key.k': 'nonsense', [names.attempt('j1', 1)]: JSON.stringify(owner) });
    expect(await enrol(ledger, jobOf('j2'), owner)).toBe('take.j2');
    expect(claims['key.k']).toBe('nonsense');
  });
});
