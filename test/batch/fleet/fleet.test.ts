import { expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import type { User } from '../../support/cli.ts';
import { runHereAs } from '../../support/one-process.ts';
import { Fleet } from './fleet.ts';
import { describeFleet } from './place.ts';

describeFleet('through a transaction pool,', { isPooled: true }, (place) => {
  it('a batch on many machines is paid for once, even if processes are killed and connections fail', async () => {
    const trial = { rows: 12, runners: 2, concurrency: 4, every: 4, maxIdle: '1s' };
    const fleet = await Fleet.open(trial, place.server, place.port);
    const outcome = await fleet.run();
    expect(outcome).toMatchObject({ paidTwice: [], astray: [] });
    // The first fault may leave three rows in doubt whose requests never reach the gateway. The other nine rows are
    // enough for two faults. The second fault may leave three more rows in doubt. In addition, the gateway loses one
    // response, fails one task and refuses one submission.
    expect(outcome.deaths).toBeGreaterThanOrEqual(2);
    expect(outcome.done).toBeGreaterThanOrEqual(12 - 3 - 3 - 3);
  });
});

describeFleet('without a pool,', {}, (place) => {
  it('a batch on many machines never exceeds its shared pace and budget, as counted by the gateway', async () => {
    const { gateway, machines } = place;
    gateway.polls = 3;
    let max = 0;
    gateway.judge = () => {
      max = Math.max(max, gateway.underWay() + 1);
      return undefined;
    };
    const file = machines.manifest(8);
    const all = Array.from({ length: 2 }, () => machines.machine());
    for (const { env } of all) env['MGW_CONFIG_DIR'] = machines.shared;
    await runHereAs(all[0] as User, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=0.5']);
    const pace = ['--concurrency', '2', '--per-minute', '300', '--budget', '2.5'];
    const args = ['batch', 'run', file, ...pace, ...machines.output, '--poll-interval', '50ms'];
    const runs = await Promise.all(all.map((each) => runHereAs(each, args, '', systemClock)));
    expect(runs.map(({ code }) => code)).toEqual(all.map(() => 12));
    const times = gateway.posts().map(({ at }) => at);
    expect(times).toHaveLength(5);
    expect(max).toBeLessThanOrEqual(2);
    // The first submission may have arrived late, so one interval is ignored.
    expect((times.at(-1) ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(3 * 200);
  });
});
