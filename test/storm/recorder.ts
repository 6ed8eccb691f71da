// Preloaded into a process (`node --import`), this module records every disk operation below the folder MGW_STORM_ROOT
// in the file MGW_STORM_LOG. The gateway records in the same file, so the lines are in the order of the events.
import fs from 'node:fs';
import { Socket } from 'node:net';
import { relative, resolve, sep } from 'node:path';
import { watchDisk } from '../support/disk-operations.ts';
import { recordTo } from './recording.ts';
import { identityOf, treeOf } from './tree.ts';

const { MGW_STORM_ROOT: root = '', MGW_STORM_LOG: log = '' } = process.env;
const { fstatSync } = fs;
const record = recordTo(log);
const known = new Set<string>();
let [trees, last] = [0, ''];

/** Records the folder's current content, and returns the number of its tree. */
function look(): number {
  const tree = treeOf(root, (hash, bytes) => {
    if (!known.has(hash)) record({ kind: 'content', hash, base64: bytes.toString('base64') });
    known.add(hash);
  });
  const text = JSON.stringify(tree);
  if (text === last) return trees - 1;
  last = text;
  record({ kind: 'tree', tree });
  return trees++;
}

look();
await watchDisk(({ name, path, descriptor }, run) => {
  const full = path && resolve(path);
  if (full === undefined || !`${full}${sep}`.startsWith(`${root}${sep}`)) return run();
  const before = look();
  const isSync = descriptor !== undefined && (name === 'sync' || name === 'datasync');
  const synced = isSync ? { synced: identityOf(fstatSync(descriptor, { bigint: true })) } : {};
  const done = <T>(result: T): T => {
    record({ kind: 'operation', name, path: relative(root, full), before, after: look(), ...synced });
    return result;
  };
  const result = run();
  return result instanceof Promise ? result.then(done) : done(result);
});

const sockets = Socket.prototype as unknown as { write: (this: Socket, ...args: [Uint8Array]) => boolean };
const { write } = sockets;
sockets.write = function (...args): boolean {
  const isSocket = this.remoteAddress !== undefined;
  if (isSocket && Buffer.from(args[0]).toString('latin1', 0, 5) === 'POST ') record({ kind: 'sent' });
  return write.apply(this, args);
};

const print = process.stdout.write.bind(process.stdout);
process.stdout.write = ((...args: Parameters<typeof print>): boolean => {
  record({ kind: 'printed', text: String(args[0]) });
  return print(...args);
}) as typeof print;
