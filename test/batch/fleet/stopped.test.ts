import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import type { CliResult } from '../../support/cli.ts';
import { hurried, runHereAs } from '../../support/one-process.ts';
import type { Seen } from '../../support/origin.ts';
import { stoppable } from '../../support/test-clock.ts';
import type { BatchGateway } from '../gateway.ts';
import { describeBothWays } from './place.ts';

/** `stop` stops a runner during its work. The runner receives and sends nothing until it resumes. */
interface Moment {
  gateway: BatchGateway;
  proxy: CuttingProxy;
  stop: () => void;
}

/** How and when to stop a runner. */
interface Stop {
  /** Calls `stop` at some point, and returns a function that releases the held message. */
  arrange: (moment: Moment) => () => void;
  /** An event that the database has recorded once the runner is stopped. */
  recorded?: string;
}

/** A phase of a submission or a download, and the outcome if a runner is stopped in the phase. */
interface Phase extends Stop {
  phase: string;
  /** Whether the phase is also tested through a pool. */
  isPooled?: true;
  /** The row's outcome on a second machine that keeps running. */
  other: 'done' | 'unknown';
  /** The total number of submissions by both runners. */
  posts: 0 | 1;
  /** Whether the resumed runner finds the other runner's file (`done`) or fails (`ended`). */
  woken: 'done' | 'ended';
}

/** Stops at a message to the database, and holds the message (`isHeld`) or only the response. */
function atMessage(pattern: RegExp, isHeld = true): Stop['arrange'] {
  return ({ proxy, stop }) => {
    proxy.before(pattern, () => {
      stop();
      if (isHeld) proxy.hold();
      else queueMicrotask(() => proxy.hold());
    });
    return () => proxy.up();
  };
}

/** Stops after the database has recorded an event of the given type, and holds the response. */
function afterEvent(type: string): Stop {
  return { arrange: atMessage(new RegExp(`type\\W+${type}\\W`), false), recorded: type };
}

/** Stops at a request, before the gateway responds. */
function atCall(isCall: (seen: Seen) => boolean): Stop['arrange'] {
  return ({ gateway, stop }) => {
    let answer = (): void => undefined;
    const until = new Promise<void>((resolve) => (answer = resolve));
    gateway.before = (seen) => {
      if (!isCall(seen)) return undefined;
      gateway.before = () => undefined;
      stop();
      return until;
    };
    return answer;
  };
}

const isLook = ({ method, path }: Seen): boolean => method === 'GET' && /task-\d+$/.test(path);
const isFile = ({ path }: Seen): boolean => path.endsWith('/content');

const phases: Phase[] = [
  // A database statement or its response is held.
  {
    phase: 'before it claims the attempt',
    arrange: atMessage(/send\..*\.1/),
    other: 'done',
    posts: 1,
    woken: 'done',
  },
  {
    phase: 'after it claims the attempt',
    isPooled: true,
    arrange: atMessage(/type\W+sending\W/),
    other: 'done',
    posts: 1,
    woken: 'ended',
  },
  {
    phase: 'before the first byte',
    isPooled: true,
    ...afterEvent('sending'),
    other: 'unknown',
    posts: 0,
    woken: 'ended',
  },
  {
    phase: 'before the response is recorded',
    arrange: atMessage(/type\W+reply\W/),
    other: 'unknown',
    posts: 1,
    woken: 'ended',
  },
  {
    phase: 'after the download, before the file is recorded',
    arrange: atMessage(/type\W+file\W/),
    other: 'done',
    posts: 1,
    woken: 'done',
  },
  {
    phase: 'before it publishes the file',
    ...afterEvent('file'),
    other: 'done',
    posts: 1,
    woken: 'done',
  },
  // A request to the gateway is held.
  {
    phase: 'before the response',
    arrange: atCall(({ method }) => method === 'POST'),
    other: 'unknown',
    posts: 1,
    woken: 'ended',
  },
  { phase: 'during a poll', arrange: atCall(isLook), other: 'done', posts: 1, woken: 'ended' },
  { phase: 'during a download', arrange: atCall(isFile), other: 'done', posts: 1, woken: 'ended' },
];

describeBothWays('', (place, isPooled) => {
  let proxy: CuttingProxy;
  let file: string;
  beforeEach(async () => {
    proxy = await CuttingProxy.open(place.port);
    file = place.machines.manifest(1);
  });

  const args = (): string[] => [
    ...['batch', 'run', file, ...place.machines.output],
    ...['--poll-interval', '10ms'],
  ];
  const output = (): string => join(place.machines.shared, 'out', 'row-0.mp4');
  const versionOfOutput = (): string => {
    if (!existsSync(output())) return 'none';
    const { ino, mtimeMs } = statSync(output());
    return `${ino} ${mtimeMs}`;
  };

  const run = (...more: string[]): Promise<CliResult> =>
    runHereAs(place.machines.machine(), [...args(), ...more]);

  // Waits for the event while the lease is valid, because the database refuses events under an expired lease.
  async function isRecorded(type: string): Promise<void> {
    const found = `select count(*) from mgw.events where line like '%"type":"${type}"%'`;
    await expect.poll(() => place.query(found)).toBe('1');
  }

  /**
   * Starts a runner and stops it in a phase until its lease has ended. Returns a function that resumes the runner.
   */
  async function stoppedIn({ arrange, recorded }: Stop): Promise<() => Promise<CliResult>> {
    const clock = stoppable(hurried());
    const machine = place.machines.machine(place.url('lease=30s', proxy.port));
    let release = (): void => undefined;
    let result: Promise<CliResult> | undefined;
    await new Promise<void>((stopped) => {
      const stop = (): void => {
        clock.stop(31_000);
        stopped();
      };
      release = arrange({ gateway: place.gateway, proxy, stop });
      result = runHereAs(machine, args(), '', clock);
    });
    if (recorded !== undefined) await isRecorded(recorded);
    await place.query('update mgw.leases set until = clock_timestamp()');
    return () => {
      release();
      return result as Promise<CliResult>;
    };
  }

  it.each(phases.filter((phase) => !isPooled || phase.isPooled))(
    'a runner that was stopped $phase until its lease ended sends and publishes nothing when it resumes',
    async (each) => {
      const wake = await stoppedIn(each);
      const { code, json, stderr } = await run('--json');
      const { states } = json['batch'] as { states: Record<string, number> };
      expect([code, states[each.other]], stderr).toEqual([each.other === 'done' ? 0 : 11, 1]);
      const version = versionOfOutput();
      const woken = await wake();
      // The runner's pending statement may have timed out before the runner resumes.
      const end = { done: [0, /row-0 done/], ended: [11, /for longer than its lease|does not respond/] }[
        each.woken
      ];
      expect([woken.code, woken.stderr]).toEqual([end[0], expect.stringMatching(end[1] as RegExp)]);
      expect(place.gateway.posts()).toHaveLength(each.posts);
      expect(versionOfOutput()).toBe(version);
      if (each.other === 'done') expect(readFileSync(output()).equals(place.gateway.video)).toBe(true);
    },
  );

  if (isPooled) return;
  it('a runner that is stopped during a poll publishes nothing when it resumes, and the next run publishes the file', async () => {
    const wake = await stoppedIn({ arrange: atCall(isLook) });
    expect((await wake()).code).toBe(11);
    expect(existsSync(output())).toBe(false);
    expect((await run()).code).toBe(0);
    expect(readFileSync(output()).equals(place.gateway.video)).toBe(true);
    expect(place.gateway.posts()).toHaveLength(1);
  });
});
