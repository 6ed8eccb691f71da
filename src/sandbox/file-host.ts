import { createHmac } from 'node:crypto';
import { carriesKey } from './auth.ts';
import { gatewayError, unknownPath } from './envelopes.ts';
import type { Call, Gateway, Reply, Route } from './exchange.ts';
import { serveVideo } from './files.ts';
import { note } from './journal.ts';
import type { Task } from './tasks.ts';
import { findTask, progressOf } from './tasks.ts';

/** How long a signed address holds, in milliseconds. The specification leaves it open. */
const ADDRESS_LIFE_MS = 24 * 3600 * 1000;

/**
 * The host of Protocol B's result files, a separate origin. It takes signed addresses only, and a key
 * must never reach it (specification 4.2). One that does is refused with HTTP 400, and is a finding.
 */
export const fileHost: readonly Route[] = [
  { method: 'GET', pattern: /^\/(.+)\.mp4$/, area: 'b', kind: 'download', auth: 'none', handle: serve },
];

/** The address of a finished task's file, new at each call, and when it expires (milliseconds since 1970). */
export function signedUrl(gateway: Gateway, task: Task): { url: string; expiresAt: number } {
  const expiresAt = gateway.now() + ADDRESS_LIFE_MS;
  const url = `${gateway.fileUrl}/${task.id}.mp4?t=${expiresAt}&sign=${sign(task, String(expiresAt))}`;
  return { url, expiresAt };
}

function serve(call: Call, id: string): Reply {
  const { gateway, query, path } = call;
  const { stateDir, now } = gateway;
  if (carriesKey(stateDir, call.headers, query.toString())) {
    note(stateDir, { kind: 'key-at-file-host', at: now(), path });
    return gatewayError(400, 'A key was sent to the file host.', { code: 'key_at_file_host' });
  }
  const task = findTask(stateDir, 'b', id);
  const finishedAt = task && progressOf(task, now()).finishedAt;
  if (task === undefined || finishedAt === undefined) return unknownPath('GET', path);
  const expiry = query.get('t') ?? '';
  if (query.get('sign') !== sign(task, expiry)) return gatewayError(403, 'The signature does not fit.');
  if (now() > Number(expiry)) return gatewayError(403, 'The address has expired.');
  return serveVideo(call, task, finishedAt);
}

/** Signs with fields of the task's file, which only this user can read and which is the same for every process. */
function sign({ id, key, createdAt }: Task, expiry: string): string {
  return createHmac('sha256', `${key} ${createdAt}`).update(`${id} ${expiry}`).digest('hex');
}
