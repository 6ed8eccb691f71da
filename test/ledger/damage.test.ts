import { spawnSync } from 'node:child_process';
import {
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Reply } from '../../src/exchange.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { decodeEvents } from '../../src/ledger/event-log.ts';
import type { Order } from '../../src/jobs/order.ts';
import { freshFolder } from '../support/servers.ts';
import { depsFor, orderOf, run, type TestDeps } from '../jobs/harness.ts';

type Outcome = 'accepts' | 'is busy' | 'breaks off' | 'never answers';

/** A gateway that counts its requests. */
interface Counted {
  posts: number;
  outcomes: Outcome[];
  /** Resolves when a request that never gets a response has been sent. */
  hanging: Promise<void>;
  hang: () => void;
}

async function depsWith(counted: Counted, state: string): Promise<TestDeps> {
  const deps = await depsFor('http://127.0.0.1:9', state);
  const answers: Record<Exclude<Outcome, 'never answers'>, () => Reply> = {
    accepts: () => ({ status: 200, headers: {}, text: '{"task_id":"task_1"}', complete: true }),
    'is busy': () => ({ status: 429, headers: {}, text: '{}', complete: true }),
    'breaks off': () => {
      throw new TransportError('sent', 'broken', 'reset');
    },
  };
  const exchange: GatewayClient['exchange'] = async (_, options) => {
    await options.onConnected?.();
    counted.posts += 1;
    const outcome = counted.outcomes.shift() ?? 'accepts';
    if (outcome !== 'never answers') return answers[outcome]();
    counted.hang();
    return new Promise(() => undefined);
  };
  return { ...deps, client: { ...deps.client, exchange } };
}

function gateway(...outcomes: Outcome[]): Counted {
  let hang = (): void => undefined;
  const hanging = new Promise<void>((resolve) => (hang = resolve));
  return { posts: 0, outcomes, hanging, hang: () => hang() };
}

/** A run that dies after a byte may have been sent. */
interface Stage {
  name: string;
  outcomes: Outcome[];
  /** The number of lines removed from the end of the job's log, as if the run had not written them. */
  dropLines: number;
  exits: number[];
}

const stages: Stage[] = [
  { name: 'while it was sending', outcomes: ['never answers'], dropLines: 0, exits: [2, 7, 10] },
  {
    name: 'during its second attempt',
    outcomes: ['is busy', 'never answers'],
    dropLines: 0,
    exits: [2, 7, 10],
  },
  { name: 'after it recorded the response', outcomes: ['accepts'], dropLines: 1, exits: [0, 2, 7, 10] },
  { name: 'after it recorded the acceptance', outcomes: ['accepts'], dropLines: 0, exits: [0, 2, 7, 10] },
  { name: 'after the response was lost', outcomes: ['breaks off'], dropLines: 0, exits: [2, 7, 10] },
];

/** The state folder as a run left it. The files are restored before they are damaged again. */
interface SavedRun {
  state: string;
  files: Map<string, Buffer>;
  /** The dependencies used by every rerun. */
  deps: TestDeps;
  counted: Counted;
}

async function saveRun(stage: Stage, order: Order): Promise<SavedRun> {
  const state = freshFolder();
  const counted = gateway(...stage.outcomes);
  await Promise.race([run(await depsWith(counted, state), order), counted.hanging]);
  expect(counted.posts).toBe(stage.outcomes.length);
  const files = new Map<string, Buffer>();
  for (const folder of ['jobs', 'claims'])
    for (const name of readdirSync(join(state, folder)).filter((each) => each !== '.complete'))
      files.set(join(state, folder, name), readFileSync(join(state, folder, name)));
  for (const name of readdirSync(state).filter((each) => /\.(log|count)$/.test(each)))
    files.set(join(state, name), readFileSync(join(state, name)));
  const log = [...files.keys()].find(isLog) ?? '';
  const lines = (files.get(log)?.toString() ?? '').split(/(?<=\n)/);
  files.set(log, Buffer.from(lines.slice(0, lines.length - stage.dropLines).join('')));
  const rerun = gateway();
  return { state, files, counted: rerun, deps: await depsWith(rerun, state) };
}

function isLog(path: string): boolean {
  return path.endsWith('.jsonl');
}

function putBack({ files }: SavedRun): void {
  for (const [path, bytes] of files) writeFileSync(path, bytes);
}

// Makes a claim look old, because mgw waits for the content of a recent claim.
function age(path: string): void {
  lutimesSync(path, 0, 0);
}

async function expectNothingSent(saved: SavedRun, stage: Stage, order: Order, what: string): Promise<void> {
  const ran = await run(saved.deps, order);
  expect(saved.counted.posts, what).toBe(0);
  expect(stage.exits, what).toContain(ran.exit);
  if (ran.exit === 0) expect(ran.job?.handle, what).toBe('task_1');
}

// Returns the part of a damaged file that mgw can read. Each readable part is tested only once. A damaged claim is
// either empty or unreadable.
function reading(path: string, bytes: Buffer): string {
  const text = bytes.toString();
  if (/index\.(log|count)$/.test(path)) return bytes.toString('hex');
  if (!isLog(path)) return bytes.length > 0 ? 'damaged' : '';
  const protocol = /"protocol":"(a|b|c|tts)"/.exec(text)?.[1] ?? '';
  return JSON.stringify([decodeEvents(text), text.endsWith('\n'), protocol]);
}

async function expectNothingSentWith(
  saved: SavedRun,
  stage: Stage,
  order: Order,
  damage: (bytes: Buffer) => Iterable<Buffer>,
): Promise<void> {
  for (const [path, bytes] of saved.files) {
    const tried = new Set<string>();
    for (const damaged of damage(bytes)) {
      const read = reading(path, damaged);
      if (tried.has(read)) continue;
      tried.add(read);
      putBack(saved);
      writeFileSync(path, damaged);
      age(path);
      await expectNothingSent(saved, stage, order, `${path} with ${JSON.stringify(damaged.toString())}`);
    }
    expect(tried.size).toBeGreaterThan(isLog(path) ? 4 : 0);
    putBack(saved);
  }
}

function* cuts(bytes: Buffer): Iterable<Buffer> {
  for (let cut = 0; cut < bytes.length; cut += 1) yield bytes.subarray(0, cut);
}

// Yields copies of `bytes`, each with one flipped bit. Every fifth bit is flipped, so every byte and every bit position
// is covered.
function* flips(bytes: Buffer): Iterable<Buffer> {
  for (let bit = 0; bit < bytes.length * 8; bit += 5) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    yield flipped;
  }
}

// A run with a key makes one more claim, so it is tested at every stage. Without a key, one stage is enough.
const runs = [
  ...stages.map((stage) => ({ stage, key: 'boat' })),
  { stage: stages[0] as Stage, key: undefined },
];

describe.each(runs)('the job of a run (key: $key) that died $stage.name', ({ stage, key }) => {
  const order = orderOf({ key });

  it('is not sent again if any record is truncated at any byte', async () => {
    const saved = await saveRun(stage, order);
    putBack(saved);
    await expectNothingSent(saved, stage, order, 'whole');
    await expectNothingSentWith(saved, stage, order, cuts);
  });

  // The readable part of a record rarely depends on how the rest was damaged, so two stages are enough.
  if (stage !== stages[0] && stage !== stages[3]) return;

  it('is not sent again if any bit of any record is flipped', async () => {
    await expectNothingSentWith(await saveRun(stage, order), stage, order, flips);
  });

  it('is not sent again if any record is replaced by other content', async () => {
    const saved = await saveRun(stage, order);
    const odd: ((path: string) => void)[] = [
      (path) => writeFileSync(path, ''),
      (path) => writeFileSync(path, '{"v":2,"type":"prepared","crc":"00000000"}\n'),
      (path) => symlinkSync('/etc/hostname', path),
      (path) => symlinkSync('/nowhere', path),
      (path) => mkdirSync(path),
      (path) => expect(spawnSync('mkfifo', [path]).status).toBe(0),
    ];
    for (const path of saved.files.keys()) {
      for (const [kind, put] of odd.entries()) {
        rmSync(path, { recursive: true });
        put(path);
        age(path);
        await expectNothingSent(saved, stage, order, `${path} replaced by ${kind}`);
        rmSync(path, { recursive: true });
        putBack(saved);
      }
    }
  });
});
