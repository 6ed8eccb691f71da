import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import type { Running } from '../../support/cli.ts';
import type { BatchGateway } from '../gateway.ts';
import { read } from './machines.ts';
import { bothWays, describeFleet } from './place.ts';

/** Of the one that is stopped: it has to come as far as its phase in that time, on a machine that is busy. */
const lease = 'lease=2s';

/** What stops a runner is called at a moment of its work; `release` lets go on what was held up. */
interface Moment {
  gateway: BatchGateway;
  proxy: CuttingProxy;
  stop: () => void;
}

/** A phase of a submission or a download, and what comes of it. */
interface Phase {
  phase: string;
  /** Has `stop` called in that phase; gives what is done before the runner wakes. */
  arrange: (moment: Moment) => (() => void) | undefined;
  /** What becomes of the row with another machine, that goes on meanwhile. */
  other: 'done' | 'unknown';
  /** Requests that submit, of both together. */
  posts: 0 | 1;
  /** It finds the file of whoever went on, or ends. */
  woken: 'done' | 'ended';
}

/** Stops at a message to the database, which passes the runner's network, or does not until it wakes. */
function atMessage(pattern: RegExp, isHeld: boolean): Phase['arrange'] {
  return ({ proxy, stop }) => {
    proxy.before(pattern, () => {
      stop();
      if (isHeld) proxy.hold();
    });
    return () => proxy.up();
  };
}

/** Stops at a call that the gateway answers. */
function atCall(which: 'onLook' | 'onFile'): Phase['arrange'] {
  return ({ gateway, stop }) => {
    gateway[which] = () => {
      gateway[which] = () => undefined;
      stop();
    };
    return undefined;
  };
}

const phases: Phase[] = [
  {
    phase: 'before it claims the attempt',
    arrange: atMessage(/send\..*\.1/, true),
    other: 'done',
    posts: 1,
    woken: 'done',
  },
  {
    phase: 'after the claim',
    arrange: atMessage(/"type":"sending"/, true),
    other: 'done',
    posts: 1,
    woken: 'ended',
  },
  {
    phase: 'before the first byte',
    arrange: atMessage(/"type":"sending"/, false),
    other: 'unknown',
    posts: 0,
    woken: 'ended',
  },
  {
    phase: 'before the answer',
    arrange: ({ gateway, stop }) => {
      let answer = (): void => undefined;
      const until = new Promise<void>((resolve) => (answer = resolve));
      gateway.judge = () => {
        stop();
        return { kind: 'wait', until };
      };
      return answer;
    },
    other: 'unknown',
    posts: 1,
    woken: 'ended',
  },
  {
    phase: 'before the answer is recorded',
    arrange: atMessage(/"type":"reply"/, true),
    other: 'unknown',
    posts: 1,
    woken: 'ended',
  },
  { phase: 'in a poll', arrange: atCall('onLook'), other: 'done', posts: 1, woken: 'ended' },
  { phase: 'in a download', arrange: atCall('onFile'), other: 'done', posts: 1, woken: 'ended' },
  {
    phase: 'between the download and the file',
    arrange: atMessage(/"type":"file"/, true),
    other: 'done',
    posts: 1,
    woken: 'done',
  },
  {
    phase: 'before the file gets its name',
    arrange: atMessage(/"type":"file"/, false),
    other: 'done',
    posts: 1,
    woken: 'done',
  },
];

for (const { way, isPooled } of bothWays)
  describeFleet(`a runner that is stopped past the end of its lease, ${way}`, { isPooled }, (place) => {
    let proxy: CuttingProxy;
    let file: string;
    beforeEach(async () => {
      proxy = await CuttingProxy.open(place.port);
      file = place.machines.manifest(1);
    });

    const args = (): string[] => [
      ...['batch', 'run', file, ...place.machines.output],
      ...['--poll-interval', '10ms', '--timeout', '20s'],
    ];
    const output = (): string => join(place.machines.shared, 'out', 'row-0.mp4');
    const versionOfOutput = (): string => {
      if (!existsSync(output())) return 'none';
      const { ino, mtimeMs } = statSync(output());
      return `${ino} ${mtimeMs}`;
    };

    /** Starts a runner and lets it be stopped in a phase; gives what wakes it. */
    async function stoppedIn(arrange: Phase['arrange']): Promise<() => Running> {
      let stopped: Running | undefined;
      let release: (() => void) | undefined;
      await new Promise<void>((resolve) => {
        const stop = (): void => {
          stopped?.child.kill('SIGSTOP');
          resolve();
        };
        release = arrange({ gateway: place.gateway, proxy, stop });
        stopped = place.machines.machine(place.url(lease, proxy.port)).start(args());
      });
      const alive = 'select count(*) from mgw.leases where until > clock_timestamp()';
      await expect.poll(() => place.query(alive)).toBe('0');
      return () => {
        release?.();
        stopped?.child.kill('SIGCONT');
        return stopped as Running;
      };
    }

    it.each(phases)('$phase: sends nothing and publishes nothing when it wakes', async (each) => {
      const wake = await stoppedIn(each.arrange);
      const { code, view, stderr } = await read(place.machines.machine(), ...args());
      const { states } = view['batch'] as { states: Record<string, number> };
      expect([code, states[each.other]], stderr).toEqual([each.other === 'done' ? 0 : 11, 1]);
      const version = versionOfOutput();
      const woken = await wake().result;
      // What it had asked of the database may have been asked for too long when it wakes.
      const end = { done: [0, /row-0 done/], ended: [11, /for longer than its lease|does not answer/] }[
        each.woken
      ];
      expect([woken.code, woken.stderr]).toEqual([end[0], expect.stringMatching(end[1] as RegExp)]);
      expect(place.gateway.posts()).toHaveLength(each.posts);
      expect(versionOfOutput()).toBe(version);
      if (each.other === 'done') expect(readFileSync(output()).equals(place.gateway.video)).toBe(true);
    });

    it('in a poll, with nobody else: publishes nothing when it wakes, and the next run does', async () => {
      const wake = await stoppedIn(atCall('onLook'));
      expect((await wake().result).code).toBe(11);
      expect(existsSync(output())).toBe(false);
      expect((await place.machines.machine().run(args())).code).toBe(0);
      expect(readFileSync(output()).equals(place.gateway.video)).toBe(true);
      expect(place.gateway.posts()).toHaveLength(1);
    });
  });
