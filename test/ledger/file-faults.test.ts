import { constants } from 'node:fs';
import type * as fs from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { describe, expect, it, vi } from 'vitest';
import { freshFolder, httpServer, type HttpServer } from '../support/servers.ts';
import { depsFor, jobsOf, orderOf, run, type Ran } from '../jobs/harness.ts';

type Fault = 'ENOSPC' | 'EIO' | 'short write' | 'death';

/** What the file system does next: the operation with this number goes wrong. */
const disk = vi.hoisted(() => ({
  operations: [] as string[],
  fatal: 0,
  fault: '',
  isDead: false,
  opened: [] as FileHandle[],
  die: (): void => undefined,
}));

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof fs>();
  const never = (): Promise<never> => {
    disk.isDead = true;
    disk.die();
    return new Promise(() => undefined);
  };
  const step = async <T>(name: string, action: () => Promise<T>, half?: () => Promise<T>): Promise<T> => {
    if (disk.isDead) return never();
    disk.operations.push(name);
    if (disk.operations.length !== disk.fatal) return action();
    if (disk.fault === 'death') return never();
    if (disk.fault === 'short write' && half !== undefined) return half();
    const code = disk.fault === 'short write' ? 'ENOSPC' : disk.fault;
    throw Object.assign(new Error(`${code}: it went wrong, ${name}`), { code });
  };
  const watched = (file: FileHandle): FileHandle =>
    new Proxy(file, {
      get: (target, name: keyof FileHandle) => {
        if (name === 'write')
          return (bytes: Buffer) =>
            step(
              'write',
              () => target.write(bytes),
              () => target.write(bytes, 0, bytes.length >> 1),
            );
        if (name === 'sync') return () => step('sync', () => target.sync());
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  const isRead = (flags: unknown): boolean => (Number(flags) & (constants.O_WRONLY | constants.O_RDWR)) === 0;
  const path = (value: unknown): string => String(value).replace(/.*\/(jobs|claims|index)/, '$1');
  return {
    ...real,
    open: (...args: Parameters<typeof real.open>) =>
      step(`${isRead(args[1]) ? 'read' : 'open'} ${path(args[0])}`, async () => {
        const file = await real.open(...args);
        disk.opened.push(file);
        return watched(file);
      }),
    mkdir: (...args: Parameters<typeof real.mkdir>) =>
      step(`mkdir ${path(args[0])}`, () => real.mkdir(...args)),
    link: (...args: Parameters<typeof real.link>) => step(`link ${path(args[1])}`, () => real.link(...args)),
    unlink: (...args: Parameters<typeof real.unlink>) =>
      step(`unlink ${path(args[0])}`, () => real.unlink(...args)),
  };
});

interface Faulty {
  server: HttpServer;
  state: string;
  /** Undefined where the process died. */
  first: Ran | undefined;
  operations: string[];
}

/** A run whose n-th operation on the disk goes wrong; the disk is well again behind it. */
async function faultyRun(fault: Fault, fatal: number, key?: string): Promise<Faulty> {
  const [server, state] = [await httpServer(), freshFolder()];
  const deps = await depsFor(server.url, state);
  const death = new Promise<undefined>((resolve) => (disk.die = () => resolve(undefined)));
  Object.assign(disk, { operations: [], fatal, fault, isDead: false });
  const first = await Promise.race([run(deps, orderOf({ key })), death]);
  const { operations } = disk;
  // The system closes what a dead process had open.
  for (const file of disk.opened.splice(0)) await file.close();
  Object.assign(disk, { operations: [], fatal: 0, isDead: false });
  return { server, state, first, operations };
}

describe.each<Fault>(['ENOSPC', 'EIO', 'short write', 'death'])(
  '%s at any operation on the disk',
  (fault) => {
    it.each([undefined, 'boat'])('pays at most once, and tells the truth (key: %s)', async (key) => {
      const { operations, first } = await faultyRun(fault, 0, key);
      expect(first?.exit).toBe(0);
      expect(operations.length).toBeGreaterThan(20);
      for (let fatal = 1; fatal <= operations.length; fatal += 1) {
        const faulty = await faultyRun(fault, fatal, key);
        await check(faulty, `${fatal}: ${faulty.operations[fatal - 1] ?? 'nothing'}`, key);
      }
    });
  },
);

async function check({ server, state, first }: Faulty, where: string, key?: string): Promise<void> {
  if (first !== undefined) expectHonest(first, server, where);
  const shown = first?.error?.handle !== undefined;
  const [again, third] = [
    await run(await depsFor(server.url, state), orderOf({ key })),
    await run(await depsFor(server.url, state), orderOf({ key })),
  ];
  expect(server.created, where).toBeLessThanOrEqual(1);
  expect([0, 7], where).toContain(again.exit);
  expect(third.exit, where).toBe(again.exit);
  const { ledger } = await depsFor(server.url, state);
  const states = (await jobsOf(ledger)).map((job) => job.handle ?? job.state);
  if (server.created === 1 && !shown) expect(states.join(), where).toMatch(/task_0001|unknown/);
}

// Exit 10 before anything was sent; behind that the handle is kept or shown, or the doubt is told.
function expectHonest(first: Ran, server: HttpServer, where: string): void {
  if (server.requests.length === 0 && first.exit === 7) {
    // A record that cannot be read is one in doubt, though nothing was sent.
    expect(where).toMatch(/^\d+: read jobs/);
    return;
  }
  if (server.requests.length === 0) {
    expect(first, where).toMatchObject({ exit: 10, error: { code: 'local_io', charged: 'no' } });
    return;
  }
  const isKept = first.exit === 0 && first.job?.handle === 'task_0001';
  const isShown = first.error?.handle !== undefined && first.error.message.includes('task_0001');
  expect(isKept || isShown, `${where} ended with ${first.exit} ${first.error?.message ?? ''}`).toBe(true);
}
