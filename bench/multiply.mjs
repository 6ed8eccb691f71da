// Creates a ledger of many jobs from one job's record, because submitting 100,000 jobs would take too long.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';

/**
 * Writes records and claims for jobs 1 to `count - 1`, as copies of the existing job. That job is row `row-0` of batch
 * `clips`, with the prompt `boat number 0` and the task `task-1`.
 */
export function multiply(state, url, count) {
  const [jobs, claims] = [join(state, 'jobs'), join(state, 'claims')];
  const id = readdirSync(jobs)[0].slice(0, -'.jsonl'.length);
  const record = readFileSync(join(jobs, `${id}.jsonl`), 'utf8');
  const before = record.match(/"fingerprint":"([0-9a-f]{64})"/)[1];
  if (fingerprintOf(url, 0) !== before) throw new Error('the fingerprint is computed in a different way');
  const ids = Array.from(
    { length: count - 1 },
    (_, n) => `${id.slice(0, -5)}${String(n + 1).padStart(5, '0')}`,
  );
  for (const [at, ownId] of ids.entries()) {
    const n = at + 1;
    const fingerprint = fingerprintOf(url, n);
    const text = record
      .replaceAll(before, fingerprint)
      .replaceAll('row-0', `row-${n}`)
      .replaceAll('boat number 0', `boat number ${n}`)
      .replaceAll('task-1', `task-${n + 1}`);
    writeFileSync(join(jobs, `${ownId}.jsonl`), text.split('\n').map(checked).join('\n'));
    writeFileSync(
      join(claims, `key.clips%2Frow-${n}`),
      claim(JSON.stringify({ job: ownId, fingerprint, owner: nobody })),
    );
    writeFileSync(join(claims, `send.${ownId}.1`), claim('{}'));
  }
  // The next command rebuilds the index from the jobs.
  for (const name of ['index.log', 'index.count', 'handles.log', 'handles.count']) rmSync(join(state, name));
}

const nobody = { pid: 0, start: '', host: '' };

function fingerprintOf(url, n) {
  const body = JSON.stringify({ duration: 5, model: 'vendor-h3-mini', prompt: `boat number ${n}` });
  return sha256([url.replace('127.0.0.1', 'localhost'), 'c', body].join('\n'));
}

function checked(line) {
  const head = line.slice(0, -',"crc":"00000000"}'.length);
  return line === '' ? '' : `${head},"crc":"${crc(head)}"}`;
}

function claim(text) {
  return `${text} ${crc(text)}\n`;
}

function crc(text) {
  return crc32(text).toString(16).padStart(8, '0');
}

function sha256(text) {
  return createHash('sha256').update(text).digest('hex');
}
