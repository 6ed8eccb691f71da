import fs from 'node:fs';
import type { Tree } from './tree.ts';
import { UnsyncedDisk, type Remains } from './unsynced.ts';

/** One line of a recording. Trees are numbered in order, from 0. */
export type Entry =
  | { kind: 'content'; hash: string; base64: string }
  | { kind: 'tree'; tree: Tree }
  /** An operation that changed the tree `before` to `after`; `synced` is the tree that was durable before it. */
  | { kind: 'operation'; name: string; path: string; before: number; after: number; synced?: string }
  /** The process begins to send a request that may cost money. */
  | { kind: 'sent' }
  /** The gateway has created a task, and charges for it. */
  | { kind: 'created'; handle: string; body: string }
  /** The gateway responds to a submission without having created a task. */
  | { kind: 'declined' }
  | { kind: 'printed'; text: string };

/** A task that the gateway created, and the body that requested it. */
export interface Created {
  handle: string;
  body: string;
}

/** The state of the world between two lines of a recording. */
export interface Moment {
  /** The number of the moment, counted from 1. */
  n: number;
  /** The name of the last operation. */
  after: string;
  /** Returns the disk as it would be if the power were cut at this moment. */
  disk: (what: Remains) => Tree;
  created: readonly Created[];
  /** A task that may exist at this moment, because its request was in transit. */
  outstanding?: Created | undefined;
  printed: string;
}

/** A recorded run, moment by moment, and the contents of its files by hash. */
export interface Recording {
  moments: Moment[];
  contents: ReadonlyMap<string, Buffer>;
}

/**
 * Returns a function that appends an entry to a recording immediately. Several processes may append to one recording.
 */
export function recordTo(path: string): (entry: Entry) => void {
  // Uses the original write function, because a preload may have replaced it with one that records.
  const { writeSync } = fs;
  const file = fs.openSync(path, 'a');
  return (entry) => void writeSync(file, `${JSON.stringify(entry)}\n`);
}

/** Reads a recording from a file. */
export function readRecording(path: string): Recording {
  const lines = fs.readFileSync(path, 'utf8').trimEnd().split('\n');
  const entries = lines.map((line) => JSON.parse(line) as Entry);
  const contents = new Map<string, Buffer>();
  for (const entry of entries)
    if (entry.kind === 'content') contents.set(entry.hash, Buffer.from(entry.base64, 'base64'));
  return { moments: momentsOf(entries, contents), contents };
}

function momentsOf(entries: readonly Entry[], contents: Map<string, Buffer>): Moment[] {
  const trees = entries.flatMap((entry) => (entry.kind === 'tree' ? [entry.tree] : []));
  const created = entries.filter((entry) => entry.kind === 'created');
  const disk = new UnsyncedDisk(trees[0] ?? {});
  const moments: Moment[] = [];
  let [sent, known, printed] = [0, 0, ''];
  for (const entry of entries) {
    if (entry.kind === 'content' || entry.kind === 'tree') continue;
    if (entry.kind === 'operation') {
      const [before = {}, after = {}] = [trees[entry.before], trees[entry.after]];
      disk.change(before, after, entry.name);
      if (entry.synced !== undefined) disk.sync(entry.synced, before);
    } else if (entry.kind === 'printed') printed += entry.text;
    else if (entry.kind === 'created') known += 1;
    else sent += entry.kind === 'sent' ? 1 : -1;
    const seen = disk.copy();
    moments.push({
      n: moments.length + 1,
      after: nameOf(entry),
      disk: (what) => seen.after(what, contents),
      created: created.slice(0, known),
      outstanding: sent > known ? created[known] : undefined,
      printed,
    });
  }
  return moments;
}

function nameOf(entry: Exclude<Entry, { kind: 'content' | 'tree' }>): string {
  if (entry.kind === 'operation') return `${entry.name} ${entry.path || '.'}`;
  if (entry.kind === 'created') return `the gateway creates ${entry.handle}`;
  if (entry.kind === 'declined') return 'the gateway creates nothing';
  return entry.kind === 'sent' ? 'a POST leaves' : `${JSON.stringify(entry.text)} is printed`;
}
