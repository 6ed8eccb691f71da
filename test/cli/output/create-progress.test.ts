import { PassThrough } from 'node:stream';
import stringWidth from 'string-width';
import { expect, it } from 'vitest';
import { terminalProgress } from '../../../src/cli/output/create-progress.ts';
import { systemClock } from '../../../src/clock.ts';
import { readAll } from '../../support/read-all.ts';

it.each([
  'a paper boat that sails across the sea',
  '网关已接受该任务,正在生成视频,请稍候',
  'été 🚢🚢🚢🚢🚢🚢🚢🚢🚢🚢🚢🚢 fin',
])('a note fits the width of the terminal, even with wide characters: %s', (text) => {
  const stderr = Object.assign(new PassThrough(), { isTTY: true, columns: 20 });
  terminalProgress({ stderr, env: {}, quiet: false, color: false, clock: systemClock }).note(text);
  const lines = String(readAll(stderr)).trimEnd().split('\n');
  expect(lines.length).toBeGreaterThan(1);
  expect(Math.max(...lines.map((line) => stringWidth(line)))).toBeLessThanOrEqual(20);
  expect(lines.join('').replaceAll(' ', '')).toBe(text.replaceAll(' ', ''));
});
