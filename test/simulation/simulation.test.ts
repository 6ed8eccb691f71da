import { execFileSync, type ExecFileException } from 'node:child_process';
import { expect, it } from 'vitest';

function simulate(...words: string[]): string {
  try {
    return execFileSync(process.execPath, ['test/simulation/run.mjs', ...words], { encoding: 'utf8' });
  } catch (error) {
    return (error as ExecFileException).stdout?.toString() ?? String(error);
  }
}

it('no schedule of the first seeds breaks a promise', { timeout: 120_000 }, () => {
  expect(simulate('--seed', '1', '--runs', '40')).toMatch(/^0 of 40 schedules broke a promise/);
});

it('no schedule that once broke a promise breaks it again', { timeout: 60_000 }, () => {
  expect(simulate('--stories')).toMatch(/^0 of 5 schedules broke a promise/);
});

it('a seed replays exactly', { timeout: 60_000 }, () => {
  const [one, other] = [simulate('--seed', '7', '--trace'), simulate('--seed', '7', '--trace')];
  const withoutRate = (text: string): string => text.replace(/[\d.]+ schedules a second/, '');
  expect(one).toContain('POST /v1/video/generations');
  expect(withoutRate(one)).toBe(withoutRate(other));
});
