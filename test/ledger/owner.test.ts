import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs, { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { hostname } from 'node:os';
import { Worker } from 'node:worker_threads';
import { describe, expect, it, vi } from 'vitest';
import { currentOwner, lifeOf } from '../../src/ledger/owner.ts';
import { onEnd } from '../support/clean-ups.ts';
import { deadOwner } from '../jobs/harness.ts';

const hasProc = existsSync('/proc/self/stat');

describe('a process', () => {
  it('is alive while it runs', () => {
    expect(lifeOf(currentOwner())).toBe('alive');
    expect(currentOwner()).toEqual(currentOwner());
  });

  it('is not considered alive if it has ended or runs on another machine', () => {
    const own = currentOwner();
    for (const otherOwner of [deadOwner(), { ...own, host: 'elsewhere' }, { ...own, host: '' }])
      expect(lifeOf(otherOwner), JSON.stringify(otherOwner)).not.toBe('alive');
  });

  it('is dead if it ends while its start time is being read', () => {
    const owner = deadOwner();
    const kill = process.kill.bind(process);
    const checks = vi.spyOn(process, 'kill').mockImplementation((pid, signal) => {
      checks.mockImplementation(kill);
      expect([pid, signal]).toEqual([owner.pid, 0]);
      return true;
    });
    onEnd(() => checks.mockRestore());
    expect(lifeOf(owner)).toBe('dead');
  });

  it.each([0, -1, Number.NaN])('is dead if its pid is %d', (pid) => {
    expect([lifeOf({ ...currentOwner(), pid }), lifeOf({ pid, start: '', host: '' })]).toEqual([
      'dead',
      'dead',
    ]);
  });

  it.skipIf(!hasProc)(
    'is identified by its start time, and by its machine, boot and process namespace',
    () => {
      const { start, host } = currentOwner();
      expect(start).toMatch(/^\d+$/);
      const [machine, boot = '', namespace = ''] = host.split(' ');
      expect(machine).toBe(hostname());
      expect(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').slice(0, 8)).toBe(boot);
      expect(readlinkSync('/proc/self/ns/pid')).toBe(`pid:[${namespace}]`);
    },
  );

  it.skipIf(!hasProc)('is not considered alive if its pid now belongs to another process', () => {
    expect(lifeOf({ ...currentOwner(), start: '1', instance: undefined })).not.toBe('alive');
    expect(lifeOf({ ...currentOwner(), pid: process.ppid })).not.toBe('alive');
  });

  it.skipIf(!hasProc)('is dead even if its parent has not waited for it to exit', async () => {
    const shell = spawn('sh', ['-c', 'sleep 30 & echo $!; exec sleep 30'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    onEnd(() => void shell.kill());
    const [line] = (await once(shell.stdout, 'data')) as [Buffer];
    const pid = Number(line.toString());
    const fields = (): string[] =>
      readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop()?.split(' ') ?? [];
    const owner = { ...currentOwner(), pid, start: fields()[19] ?? '', instance: undefined };
    expect(lifeOf(owner)).toBe('alive');
    // Once `sleep` has replaced the shell, nothing waits for the child.
    await expect.poll(() => readFileSync(`/proc/${shell.pid ?? 0}/comm`, 'utf8').trim()).toBe('sleep');
    process.kill(pid, 'SIGKILL');
    await expect.poll(() => fields()[0]).toBe('Z');
    expect([lifeOf(owner), lifeOf({ ...owner, start: '' })]).toEqual(['dead', 'dead']);
  });

  it.skipIf(!hasProc)(
    'is alive while it runs, even if it belongs to another user and cannot be signalled',
    () => {
      const stat = readFileSync(`/proc/${process.ppid}/stat`, 'utf8');
      const start = stat.split(') ').pop()?.split(' ')[19] ?? '';
      const parent = { ...currentOwner(), pid: process.ppid, start, instance: 'its own' };
      expect(lifeOf(parent)).toBe('alive');
      for (const [code, life] of [
        ['EPERM', 'alive'],
        ['ESRCH', 'dead'],
      ] as const) {
        vi.spyOn(process, 'kill').mockImplementation(() => {
          throw Object.assign(new Error(code), { code });
        });
        onEnd(() => void vi.restoreAllMocks());
        expect(lifeOf(parent)).toBe(life);
      }
    },
  );

  it.skipIf(!hasProc)('is identified by the start time from ps on systems without /proc', () => {
    const args = ['-o', 'lstart=', '-p', String(process.ppid)];
    const start = execFileSync('ps', args, { encoding: 'utf8' }).trim();
    const parent = { ...currentOwner(), pid: process.ppid, instance: undefined, start };
    vi.spyOn(process, 'platform', 'get').mockReturnValue('darwin');
    onEnd(() => void vi.restoreAllMocks());
    expect([lifeOf(parent), lifeOf({ ...parent, start: 'Thu Jan  1 00:00:00 1970' })]).toEqual([
      'alive',
      'dead',
    ]);
  });

  it.skipIf(!hasProc)('is neither alive nor dead if it may be another thread whose id is unknown', () => {
    const other = { ...currentOwner(), instance: 'of the thread' };
    expect([lifeOf(other), lifeOf({ ...other, start: '' })]).toEqual(['unknown', 'unknown']);
  });

  it.skipIf(!hasProc)(
    'is alive while its thread of the current process runs, and dead afterwards',
    async () => {
      const code = `const { parentPort } = require('node:worker_threads');
      parentPort.postMessage(require('node:fs').readlinkSync('/proc/thread-self'));
      parentPort.on('message', () => {});`;
      const worker = new Worker(code, { eval: true });
      const [link] = (await once(worker, 'message')) as [string];
      const other = { ...currentOwner(), instance: `other.${link.split('/').pop() ?? ''}` };
      expect(lifeOf(other)).toBe('alive');
      await worker.terminate();
      await expect.poll(() => lifeOf(other)).toBe('dead');
      expect(lifeOf({ ...other, pid: process.ppid, start: '' })).toBe('unknown');
    },
  );

  it.skipIf(!hasProc)('is neither alive nor dead if it may be an earlier process with the same ids', () => {
    const thread = /\d+$/.exec(readlinkSync('/proc/thread-self'))?.[0] ?? '';
    expect(currentOwner().instance).toMatch(new RegExp(`\\.${thread}$`));
    expect(lifeOf({ ...currentOwner(), instance: `earlier.${thread}` })).toBe('unknown');
  });

  it.skipIf(!hasProc)('has no thread id if /proc describes another process namespace', async () => {
    const { readlinkSync: read } = fs;
    const readlink = vi
      .spyOn(fs, 'readlinkSync')
      .mockImplementation(((path: string) =>
        path === '/proc/thread-self' ? '4194306/task/4194306' : read(path)) as typeof read);
    const key = Symbol.for('mgw.instance');
    const own: unknown = Reflect.get(globalThis, key);
    onEnd(() => {
      readlink.mockRestore();
      syncBuiltinESMExports();
      Reflect.set(globalThis, key, own);
    });
    syncBuiltinESMExports();
    Reflect.deleteProperty(globalThis, key);
    const url = '../../src/ledger/owner.ts?namespace';
    const copy = (await import(url)) as { currentOwner: typeof currentOwner };
    expect(copy.currentOwner().instance).toMatch(/\.$/);
  });

  it.skipIf(!hasProc)('is dead if the current process has the same pid but started at another time', () => {
    expect(lifeOf({ ...currentOwner(), start: '1', instance: 'before the restart' })).toBe('dead');
  });

  it('is identified as the same process by another copy of mgw in its thread', async () => {
    const own = currentOwner();
    const copyUrl = '../../src/ledger/owner.ts?copy';
    const copy = (await import(copyUrl)) as { currentOwner: typeof currentOwner; lifeOf: typeof lifeOf };
    expect(copy.currentOwner).not.toBe(currentOwner);
    expect(copy.currentOwner()).toEqual(own);
    expect(copy.lifeOf(own)).toBe('alive');
  });

  it('is neither alive nor dead if it is on another machine or its start time is unknown', () => {
    const other = { ...currentOwner(), pid: process.ppid, instance: undefined };
    expect(lifeOf({ ...other, host: 'elsewhere' })).toBe('unknown');
    expect(lifeOf({ ...other, start: '' })).toBe('unknown');
    expect(lifeOf({ ...currentOwner(), start: '' })).toBe('alive');
    // Simulates Windows.
    vi.spyOn(process, 'platform', 'get').mockReturnValue('win32');
    vi.stubEnv('PATH', '/nowhere');
    onEnd(() => void vi.restoreAllMocks());
    onEnd(() => void vi.unstubAllEnvs());
    expect(lifeOf(other)).toBe('unknown');
  });
});
