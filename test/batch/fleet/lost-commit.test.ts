import { beforeEach, expect, it } from 'vitest';
import type { User } from '../../support/cli.ts';
import { CuttingProxy, type Cut } from '../../support/cutting-proxy.ts';
import { runHereAs } from '../../support/one-process.ts';
import { describeBothWays } from './place.ts';

// mgw waits one second for a response. The pauses between attempts are shorter.
const parameters = 'connect_timeout=1';
const [sending, reply] = [/type\W+sending/, /type\W+reply/];

/** Makes a connection fail at the first matching message. */
type Trouble = (proxy: CuttingProxy, at: RegExp) => void;

const goneWith =
  (lose: Cut['lose']): Trouble =>
  (proxy, at) =>
    void proxy.cutAt({ at, lose }).then(() => proxy.down());

const lasting: { trouble: string; make: Trouble; sendingStands: boolean }[] = [
  {
    trouble: 'the database is lost together with its response',
    make: goneWith('answer'),
    sendingStands: true,
  },
  {
    trouble: 'the database is lost before it receives the statement',
    make: goneWith('message'),
    sendingStands: false,
  },
  { trouble: 'the connection is too slow', make: goneWith('patience'), sendingStands: true },
];

const passing: { trouble: string; make: Trouble }[] = [
  { trouble: 'is lost', make: (proxy, at) => void proxy.cutAt({ at, lose: 'answer' }) },
  {
    trouble: 'arrives on a half-closed connection',
    make: (proxy, at) => proxy.before(at, () => proxy.halfClose()),
  },
  { trouble: 'is slow', make: (proxy, at) => proxy.before(at, () => proxy.delay(20)) },
];

describeBothWays(parameters, (place, isPooled) => {
  let proxy: CuttingProxy;
  let machine: User;
  let args: string[];
  beforeEach(async () => {
    proxy = await CuttingProxy.open(place.port);
    machine = place.machines.machine(place.url(parameters, proxy.port));
    args = [
      ...['batch', 'run', place.machines.manifest(1), ...place.machines.output],
      ...['--poll-interval', '10ms'],
    ];
  });

  const paid = (): number => place.gateway.charges.get('prompt 0') ?? 0;

  async function mended(): Promise<void> {
    proxy.up();
    // The process has ended, so do not wait for its lease to expire.
    await place.query('update mgw.leases set until = clock_timestamp()');
  }

  it.each(isPooled ? lasting.slice(0, 1) : lasting)(
    'a row is not sent while mgw cannot tell whether its "sending" event was committed: $trouble',
    async ({ make, sendingStands }) => {
      make(proxy, sending);
      const first = await runHereAs(machine, args);
      expect([first.code, paid()]).toEqual([11, 0]);
      await mended();
      // Another machine cannot know whether the statement took effect.
      const { json } = await runHereAs(place.machines.machine(), [...args, '--json']);
      expect((json['batch'] as { states: object }).states).toMatchObject(
        sendingStands ? { unknown: 1 } : { done: 1 },
      );
      expect(paid()).toBe(sendingStands ? 0 : 1);
      expect((await runHereAs(machine, args)).code).toBe(0);
      expect(paid()).toBe(1);
    },
  );

  it.each(isPooled ? passing.slice(0, 1) : passing)(
    'a row is submitted exactly once if the response to the commit of its "sending" event $trouble',
    async ({ make }) => {
      make(proxy, sending);
      const { code } = await runHereAs(place.machines.machine(place.url('', proxy.port)), args);
      expect([code, paid()]).toEqual([0, 1]);
    },
  );

  // A pool affects statements, but not how a runner handles the outcome.
  if (isPooled) return;

  it('if the database is lost during the commit of an acceptance, the handle is printed, and kept in a file until the database is back', async () => {
    goneWith('message')(proxy, reply);
    const first = await runHereAs(machine, args);
    expect(first.stderr).toContain('accepted the task as task-1');
    expect(first.code).not.toBe(0);
    await mended();
    const second = await runHereAs(machine, args);
    expect([second.code, paid()]).toEqual([0, 1]);
  });

  it("the run continues if the response to the commit of a row's acceptance is lost", async () => {
    void proxy.cutAt({ at: reply, lose: 'answer' });
    const { code } = await runHereAs(place.machines.machine(place.url('', proxy.port)), args);
    expect([code, paid()]).toEqual([0, 1]);
  });

  it('a row is reported as running and paid for if the database is lost during the commit of its "finished" event', async () => {
    goneWith('message')(proxy, /type\W+finished\W/);
    expect((await runHereAs(machine, args)).stderr).toMatch(/^row-0 running: /m);
  });

  it("a row is reported as running and paid for if the database is lost after the row's file is saved", async () => {
    proxy.before(/type\W+file\W/, () => goneWith('message')(proxy, /SELECT job, line/));
    expect((await runHereAs(machine, args)).stderr).toMatch(/^row-0 running: /m);
  });

  it('the summary counts running rows as paid if the database is lost', async () => {
    const { gateway } = place;
    gateway.polls = Infinity;
    const queried = new Set<string>();
    // mgw queries a row's task only after recording that the row was paid for.
    gateway.before = ({ method, path }) => {
      if (method === 'GET' && /task-\d+$/.test(path)) queried.add(path);
      if (queried.size === 2) {
        proxy.down();
        gateway.polls = 0;
      }
      return undefined;
    };
    const file = place.machines.manifest(3);
    const run = ['batch', 'run', file, ...place.machines.output, '--concurrency', '2'];
    const { code, stderr } = await runHereAs(machine, [...run, '--poll-interval', '10ms']);
    expect([code, stderr.match(/\(exit \d+\)/)?.[0]]).toEqual([11, '(exit 11)']);
    expect(stderr).toContain('This run paid for 2 rows before');
    expect(stderr).not.toContain('Nothing was charged');
  });
});
