import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { writeBudgetFile } from '../../src/budget/budget-entries.ts';
import { openBudget, openBudgetLog, type BudgetLog } from '../../src/budget/file-budget.ts';
import { MgwError } from '../../src/errors.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk } from '../support/disk-operations.ts';
import { freshFolder } from '../support/fresh-folder.ts';

async function textOf(log: BudgetLog): Promise<string> {
  let text = '';
  for await (const part of log.read()) text += part;
  return text;
}

describe('a budget log', () => {
  it('is created together with its folder, and both are accessible only to their owner', async () => {
    const path = join(freshFolder(), 'budgets', 'a.jsonl');
    await (await openBudgetLog(path)).close();
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700);
  });

  it('is not reported as truncated if another process appends to it during a read', async () => {
    const path = join(freshFolder(), 'a.jsonl');
    const log = await openBudgetLog(path);
    const file = await open(path);
    const handles = Object.getPrototypeOf(file) as FileHandle;
    // eslint-disable-next-line @typescript-eslint/unbound-method
    const { stat } = handles;
    vi.spyOn(handles, 'stat').mockImplementationOnce(async function (this: FileHandle) {
      const before = await stat.call(this);
      appendFileSync(path, 'of another\n');
      await textOf(log);
      return before;
    });
    await log.append('own\n', false);
    expect(await textOf(log)).toBe('own\n');
    await Promise.all([log.close(), file.close()]);
  });

  it('causes an error if only part of an entry is written', async () => {
    const path = join(freshFolder(), 'a.jsonl');
    const log = await openBudgetLog(path);
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, half }, run) => (name === 'write' && half ? half() : run()));
    await expect(log.append('an entry\n', true)).rejects.toMatchObject({ code: 'local_io' });
    await log.close();
  });

  it('returns every line once to each reader, regardless of the writer', async () => {
    const path = join(freshFolder(), 'a.jsonl');
    const [one, other] = [await openBudgetLog(path), await openBudgetLog(path)];
    await one.append('first ü\n', true);
    await other.append('second\n', false);
    expect(await textOf(one)).toBe('first ü\nsecond\n');
    await one.append('third\n', true);
    expect(await textOf(one)).toBe('third\n');
    expect(await textOf(other)).toBe('first ü\nsecond\nthird\n');
    await Promise.all([one.close(), other.close()]);
  });

  it('is read correctly even if a read ends inside a character', async () => {
    const path = join(freshFolder(), 'a.jsonl');
    const log = await openBudgetLog(path);
    appendFileSync(path, Buffer.from('ü').subarray(0, 1));
    expect(await textOf(log)).toBe('');
    appendFileSync(path, Buffer.from('ü').subarray(1));
    expect(await textOf(log)).toBe('ü');
    await log.close();
  });

  it.each<[string, (path: string) => void]>([
    ['moved away', (path) => renameSync(path, `${path}.old`)],
    [
      'replaced',
      (path) => {
        renameSync(path, `${path}.old`);
        writeFileSync(path, 'first\n');
      },
    ],
    ['truncated', (path) => truncateSync(path, 1)],
  ])('is not written to after its file was %s', async (_, change) => {
    const path = join(freshFolder(), 'a.jsonl');
    const log = await openBudgetLog(path);
    await log.append('first\n', true);
    await textOf(log);
    change(path);
    await expect(log.append('second\n', true)).rejects.toThrow(MgwError);
    await log.close();
  });

  it.runIf(process.platform === 'linux').each<[string, (path: string) => Promise<unknown>]>([
    ['closing a log', async (path) => (await openBudgetLog(path)).close()],
    [
      'closing a budget',
      async (path) => {
        const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
        await (await openBudget(path, { now: () => 0, outcomeOf })).close();
      },
    ],
    ['copying a budget', (path) => writeBudgetFile(path, { entries: [] })],
    [
      'refusing a FIFO',
      async (path) => {
        execFileSync('mkfifo', [path]);
        await expect(openBudgetLog(path)).rejects.toThrow(MgwError);
      },
    ],
  ])('leaves no file or folder open (checked after %s)', async (_, use) => {
    const folder = freshFolder();
    await use(join(folder, 'a.jsonl'));
    const open = readdirSync('/proc/self/fd').map((file) => {
      // The descriptor that this listing used is already closed.
      const link = join('/proc/self/fd', file);
      return existsSync(link) ? readlinkSync(link) : '';
    });
    expect(open.filter((path) => path.startsWith(folder))).toEqual([]);
  });

  it.each<[string, (path: string) => unknown]>([
    ['a link', (path) => symlinkSync(`${path}.other`, path)],
    ['a folder', (path) => mkdirSync(path)],
    ['a FIFO', (path) => execFileSync('mkfifo', [path])],
  ])('is refused if it is %s', async (_, make) => {
    const path = join(freshFolder(), 'a.jsonl');
    make(path);
    await expect(openBudgetLog(path)).rejects.toMatchObject({
      code: 'local_io',
      exitCode: 10,
      charged: 'no',
    });
  });
});
