import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { buildStorm } from './build.ts';
import { scenarios } from './power-cut-scenarios.ts';
import { sweepPowerCut } from './power-cut.ts';

const folder = mkdtempSync(join(tmpdir(), 'mgw-power-cut-'));
let recorder: string;

beforeAll(async () => {
  ({ recorder } = await buildStorm(folder));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

// Whatever else a power cut may leave: npm run storm -- --power-cut
it.each(scenarios)(
  'a power cut at any moment of $name: nothing is paid twice or lost, the file is whole or absent',
  async (scenario) => {
    const { moments, violations } = await sweepPowerCut(scenario, recorder, ['lost']);
    expect(moments).toBeGreaterThan(10);
    expect(violations).toEqual([]);
  },
);
