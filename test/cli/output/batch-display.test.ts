import { execFileSync } from 'node:child_process';
import { constants, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import stringWidth from 'string-width';
import { afterEach, expect, it, vi } from 'vitest';
import type { PlannedRow } from '../../../src/batch/planned-row.ts';
import { Tally } from '../../../src/batch/row-state.ts';
import { BatchDisplay, openResults } from '../../../src/cli/output/batch-display.ts';
import { protocolNamed } from '../../../src/protocols/registry.ts';
import { freshFolder } from '../../support/fresh-folder.ts';
import { TestClock } from '../../support/test-clock.ts';

afterEach(() => {
  vi.useRealTimers();
});

it('a batch without a terminal prints its progress every minute, and nothing after the batch ends', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const lines: string[] = [];
  const stderr = new Writable({
    write: (text, _, done) => {
      lines.push(String(text));
      done();
    },
  });
  const [clock, tally] = [new TestClock(), new Tally()];
  for (let row = 0; row < 10; row += 1) tally.count('new', true);
  const options = { stderr: stderr as never, env: {}, quiet: false, color: false, clock };
  const display = new BatchDisplay(options, tally, () => '0.5 spent');
  await display.start();
  const minute = (): void => {
    clock.advance(60_000);
    vi.advanceTimersByTime(60_000);
  };
  minute();
  for (let row = 0; row < 4; row += 1) tally.move('new', 'done');
  tally.ended = 4;
  minute();
  expect(lines).toEqual([
    '10 new; after 1m00s; 0.5 spent\n',
    '6 new, 4 done; after 2m00s, 2.0 a minute, about 3m00s left; 0.5 spent\n',
  ]);
  display.stop();
  minute();
  expect(lines).toHaveLength(2);
});

it('on a terminal, each line fits its columns, a control character in a prompt is escaped once, and the elapsed time grows', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const shown: string[] = [];
  const stderr = new PassThrough().on('data', (data) => shown.push(String(data)));
  const clock = new TestClock();
  const screen = Object.assign(stderr, {
    isTTY: true,
    columns: 40,
    cursorTo: () => true,
    clearLine: () => true,
    moveCursor: () => true,
  });
  const options = { stderr: screen, env: {}, quiet: false, color: false, clock };
  const display = new BatchDisplay(options, new Tally(), () => '');
  for (const prompt of [`a\u202eb`, '一艘纸船在海上航行'.repeat(4)]) {
    const work = { protocol: protocolNamed('c'), body: { prompt } };
    display.rowStarted({ key: prompt, row: {}, id: 'x', work } as unknown as PlannedRow);
  }
  await display.start();
  clock.advance(7000);
  vi.advanceTimersByTime(1000);
  display.stop();
  expect(shown.join('')).toContain('after 7s');
  const lines = shown.flatMap((text) => text.split('\n'));
  expect(lines.filter((line) => stringWidth(line) > 40)).toEqual([]);
  expect(lines.join('\n')).toContain('"a\\u{202e}b"');
  expect(lines.join('\n')).toContain('"一艘纸船');
});

it.skipIf(process.platform === 'win32')('--results can be a named pipe', async () => {
  const pipe = join(freshFolder(), 'results');
  execFileSync('mkfifo', [pipe]);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  const results = await openResults(pipe, (text) => text);
  await results?.add({ id: 'a' });
  await results?.close();
  expect(readFileSync(reader, 'utf8')).toBe('{"id":"a"}\n');
});
