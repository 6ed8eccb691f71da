import { randomUUID } from 'node:crypto';
import { closeSync, lstatSync, unlinkSync } from 'node:fs';
import {
  append,
  identityHash,
  isInPlace,
  isUnclaimed,
  logsOf,
  openLog,
  partState,
  readClaimLog,
  removeTestFile,
  textOf,
  unlinkAll,
  type LogFile,
} from './claim-log.ts';
import type { Claimant } from './output-lock.ts';

/**
 * Removes the leftovers of an output that now exists, or will never be created. Keeps the files of live processes and
 * of other results, and any temporary file that may contain more than the output.
 * @throws the errors of the file system
 */
export async function removeLeftovers(target: string, identity: string, claimant: Claimant): Promise<void> {
  removeTestFile(target);
  const own = identityHash(identity);
  for (const path of logsOf(target, own)) {
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) continue;
    const log = openLog(path);
    if (log === undefined) continue;
    try {
      await removeLeftover(log, target, own, claimant);
    } finally {
      closeSync(log.file);
    }
  }
}

async function removeLeftover(
  log: LogFile,
  target: string,
  identity: string,
  { owner, lifeOf }: Claimant,
): Promise<void> {
  const text = textOf(log);
  const { latest, released, metadata } = readClaimLog(text);
  // A process may die before it has written its claim.
  const isOwn = latest === undefined ? isUnclaimed(text) : metadata.identity === identity;
  const life = latest === undefined || released ? 'dead' : await lifeOf(latest.owner);
  if (!isOwn || life === 'alive') return;
  // After this claim no process takes the log over. A concurrent claim belongs to another process.
  const claim = randomUUID();
  append(log, { claim, after: latest?.claim ?? '', owner, identity });
  if (readClaimLog(textOf(log)).latest?.claim !== claim || !isInPlace(log)) return;
  // A process on another machine that is making this output will find that the file exists.
  const { part = [], durable, scratch } = metadata;
  const state = partState(target, metadata.part);
  const isSpare = durable !== undefined || state === 'output' || (state === 'empty' && life === 'dead');
  unlinkAll(target, [isSpare ? part : [], scratch].flat());
  unlinkSync(log.path);
}
