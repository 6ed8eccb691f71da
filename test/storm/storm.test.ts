import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildStorm } from './build.ts';
import { checkStorm, type Violations } from './check.ts';
import { outputOf, tokenOf, type Ended } from './drive.ts';
import { planStorm } from './plan.ts';
import { countOf, storm, summaryOf } from './storm.ts';
import { openWorld, stormKey, type World } from './world.ts';

describe('a storm schedule', () => {
  it('is the same for the same seed, but differs between jobs and between seeds', () => {
    expect(planStorm(40, 7)).toEqual(planStorm(40, 7));
    expect(planStorm(400, 7).slice(0, 40)).toEqual(planStorm(40, 7));
    expect(planStorm(40, 8)).not.toEqual(planStorm(40, 7));
  });

  it('contains every kind of job in every variant, and kills many runs of each', () => {
    const plans = planStorm(500, 1);
    const ways = new Set(plans.map(({ kind, way }) => `${kind} ${way}`));
    expect(ways.size).toBe(4 * 5 + 3);
    const kills = plans.flatMap((plan) => plan.kills.flat());
    const share = kills.filter((after) => after !== undefined).length / kills.length;
    expect(share).toBeGreaterThan(0.2);
    expect(share).toBeLessThan(0.4);
  });
});

it('a short storm breaks no promise', async () => {
  const worker = (await buildStorm()).worker;
  // This seed kills the first run of each job at a disk operation.
  const result = await storm({ jobs: 2, seed: 172, worker });
  expect(result.violations, summaryOf(result)).toEqual({
    'double charges': [],
    'lost handles': [],
    'wrong outputs': [],
    'damaged records': [],
    'key leaks': [],
    bugs: [],
    'unended jobs': [],
  });
  expect(result.ended).toHaveLength(2);
  expect(result.killed).toBeGreaterThanOrEqual(2);
  expect(summaryOf(result)).toMatch(/^0 double charges, 0 lost handles, /);
});

describe('the check of a storm', () => {
  let world: World;
  let ended: Ended[];
  beforeAll(async () => {
    world = await openWorld({ worker: '', paceMs: 1 });
    const plan = { n: 1, kind: 'c', way: 'plain', isOwnProcess: false, kills: [[]] } as const;
    ended = [{ plan: { ...plan, kills: [[]] }, codes: [0], runs: 1 }];
  });
  afterAll(async () => {
    await world.close();
    world.remove();
  });

  async function submit(): Promise<void> {
    await fetch(`${world.sandbox.url}/v1/videos`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${stormKey}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ model: 'vendor-h3', prompt: tokenOf(1), duration: 4 }),
    });
  }

  async function found(name: keyof Violations): Promise<number> {
    return (await checkStorm(world, ended))[name].length;
  }

  it('reports only the missing file if no command was run', async () => {
    const violations = await checkStorm(world, ended);
    expect(countOf(violations)).toBe(1);
    expect(violations['wrong outputs']).toHaveLength(1);
  });

  it('reports a task that the ledger does not contain, and a second unrecorded task as a double charge', async () => {
    await submit();
    expect([await found('lost handles'), await found('double charges')]).toEqual([1, 0]);
    await submit();
    expect([await found('lost handles'), await found('double charges')]).toEqual([2, 1]);
  });

  it("reports a file whose content differs from the result's", async () => {
    writeFileSync(outputOf(ended[0]?.plan as Ended['plan'], world), 'not a video');
    expect(await found('wrong outputs')).toBe(1);
  });

  it('reports an unreadable record', async () => {
    writeFileSync(join(world.state, 'jobs', 'job_00000000000000.jsonl'), '{"v":1}\n');
    expect(await found('damaged records')).toBe(1);
  });

  it('reports the key in a file, in plain text, in hexadecimal and in Base64', async () => {
    const note = join(world.root, 'note.txt');
    for (const text of [
      stormKey,
      Buffer.from(stormKey).toString('hex'),
      Buffer.from(`user:${stormKey}@`).toString('base64'),
    ]) {
      writeFileSync(note, text);
      expect(await found('key leaks'), text).toBe(1);
    }
    rmSync(note);
  });

  it('reports an internal error, and a job that does not end', async () => {
    world.runs.push({ code: 1, stdout: '', stderr: 'mgw: This is a bug in mgw', operations: 0 });
    expect(await found('bugs')).toBe(1);
    ended = [{ ...(ended[0] as Ended), codes: [-1] }];
    expect(await found('unended jobs')).toBe(1);
  });
});
