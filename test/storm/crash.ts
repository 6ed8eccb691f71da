import promises, { type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { basename, dirname } from 'node:path';

/**
 * What becomes of the n-th file operation that changes something (counted from 1): the process is killed before or
 * behind it, or half-way through a write; or it fails, once, also although it took effect, or from then on.
 */
export interface Crash {
  at: number;
  how: 'killed-before' | 'killed-after' | 'torn' | 'ENOSPC' | 'EIO-after' | 'full';
}

let armed: Crash | undefined;
let count = 0;
let seen: string[] = [];

/** Starts counting anew; undefined lets every operation pass. */
export function armCrash(crash: Crash | undefined): void {
  armed = crash;
  count = 0;
  if (crash !== undefined) seen = [];
}

/** The operations since a crash was armed, by name and file. */
export function countedOperations(): string[] {
  return seen;
}

type Operation = (...args: unknown[]) => Promise<unknown>;
type Holder = Record<string, Operation>;

const fail = (code: string): Error => Object.assign(new Error(`${code}: made to fail`), { code });

function wrap(
  holder: Holder,
  name: string,
  what: (self: unknown, args: unknown[]) => string | undefined,
): void {
  const real = holder[name];
  if (real === undefined) throw new Error(`there is no ${name}`);
  holder[name] = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    const label = armed === undefined ? undefined : what(this, args);
    if (armed === undefined || label === undefined) return real.apply(this, args);
    seen.push(`${name} ${label}`);
    count += 1;
    const run = (): Promise<unknown> => real.apply(this, args);
    if (armed.how === 'full' && count >= armed.at && takesRoom.has(name)) throw fail('ENOSPC');
    return count === armed.at ? strike(armed.how, run, (part) => real.apply(this, part), args) : run();
  };
}

const takesRoom = new Set(['open', 'mkdir', 'link', 'rename', 'write', 'writev', 'writeFile', 'mkdtemp']);

async function strike(
  how: Crash['how'],
  run: () => Promise<unknown>,
  runPart: (args: unknown[]) => Promise<unknown>,
  args: unknown[],
): Promise<unknown> {
  if (how === 'killed-before') die();
  if (how === 'ENOSPC') throw fail('ENOSPC');
  if (how === 'full') return run();
  const [bytes, ...rest] = args;
  const half = how === 'torn' && bytes instanceof Uint8Array && rest.length === 0;
  if (half) await runPart([bytes.subarray(0, Math.ceil(bytes.length / 2))]);
  const done = how === 'torn' ? undefined : await run().catch(() => undefined);
  if (how !== 'EIO-after') return die();
  // Whoever is told that it failed will not close it.
  if (typeof done === 'object' && done !== null && 'close' in done) await (done as FileHandle).close();
  throw fail('EIO');
}

function die(): never {
  process.kill(process.pid, 'SIGKILL');
  throw new Error('killed');
}

const names = new WeakMap<object, string>();
const short = (path: unknown): string => `${basename(dirname(String(path)))}/${basename(String(path))}`;

// A folder that is opened to be synced changes nothing by being opened.
function opensToWrite(flags: unknown): boolean {
  return typeof flags === 'number' ? (flags & 3) !== 0 : typeof flags === 'string' && flags !== 'r';
}

const holder = promises as unknown as Holder;
const realOpen = promises.open.bind(promises);
holder['open'] = (async (...args: Parameters<typeof promises.open>) => {
  const file = await realOpen(...args);
  names.set(file, short(args[0]));
  return file;
}) as Operation;
wrap(holder, 'open', (_, [path, flags]) => (opensToWrite(flags) ? short(path) : undefined));
for (const name of ['mkdir', 'unlink', 'rm', 'writeFile', 'mkdtemp'])
  wrap(holder, name, (_, [path]) => short(path));
for (const name of ['link', 'rename']) wrap(holder, name, (_, [, path]) => short(path));

const probe = await realOpen('/dev/null', 'r');
const prototype = Object.getPrototypeOf(probe) as FileHandle & Holder;
await probe.close();
for (const name of ['write', 'writev', 'writeFile', 'sync', 'datasync', 'truncate'])
  wrap(prototype, name, (self) => names.get(self as object) ?? 'a file');
syncBuiltinESMExports();
