import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { buildStorm } from './build.ts';
import { checkStorm } from './check.ts';
import { sweepCrashes, type Point, type Sweep } from './crash-points.ts';
import { countOf } from './storm.ts';
import { openWorld, type World } from './world.ts';

const folder = mkdtempSync(join(tmpdir(), 'mgw-storm-worker-'));
let world: World;
let intents = 0;
const points: Point[] = [];

beforeAll(async () => {
  world = await openWorld({ worker: (await buildStorm(folder)).worker, paceMs: 1 });
});
afterAll(async () => {
  await world.close();
  world.remove();
  rmSync(folder, { recursive: true, force: true });
});

async function sweep(options: Sweep): Promise<Point[]> {
  const struck = await sweepCrashes(options, world, () => intents++);
  points.push(...struck);
  return struck;
}

/** How the reruns ended, in order, without repetition. */
function course(struck: readonly Point[]): string {
  const codes = struck.flatMap(({ ended }) => ended.codes);
  return codes.filter((code, index) => code !== codes[index - 1]).join(' ');
}

// Every point in every way: npm run storm -- --crash-points. Those at which a run dies: power-cut.test.ts.
it('a disk that is full from some point on: exit 10 or a result, and the rerun ends well', async () => {
  const struck = await sweep({ kind: 'a-inline', how: 'full', from: 4, every: 17 });
  for (const { struck: code } of struck) expect([0, 10]).toContain(code);
  expect(course(struck)).toMatch(/^0( 7 0)?$/);
});

it('an operation that fails although it took effect', async () => {
  const struck = await sweep({ kind: 'a', how: 'EIO-after', from: 5, every: 17 });
  for (const { struck: code } of struck) expect([0, 7, 10]).toContain(code);
});

it('nothing was paid twice, lost, damaged or leaked on the way', async () => {
  const violations = await checkStorm(
    world,
    points.map(({ ended }) => ended),
  );
  expect(points.length).toBeGreaterThan(5);
  expect(countOf(violations), JSON.stringify(violations, undefined, 2)).toBe(0);
});
