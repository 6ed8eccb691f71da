// The minimal program that keeps mgw's promises for each row of a batch of Protocol C. It records `sending` before the
// first byte, sends the POST on a connection used for this row only, and records the handle, the poll, the result and
// the outcome. It syncs data before the next step relies on it. Run it in a folder for records/ and out/:
//
//   node bench/minimal-batch.mjs URL ROWS CONCURRENCY
import { Buffer } from 'node:buffer';
import { closeSync, fsync, linkSync, mkdirSync, openSync, unlinkSync, writeSync } from 'node:fs';
import http from 'node:http';
import { promisify } from 'node:util';

const [url, rows, concurrency] = process.argv.slice(2);
const sync = promisify(fsync);
const keepAliveAgent = new http.Agent({ keepAlive: true });
const folders = new Map();
for (const folder of ['records', 'out']) {
  mkdirSync(folder);
  folders.set(folder, { file: openSync(folder, 'r') });
}

let next = 0;
await Promise.all(Array.from({ length: Number(concurrency) }, worker));
keepAliveAgent.destroy();

async function worker() {
  while (next < Number(rows)) await row((next += 1));
}

async function row(n) {
  const prompt = `boat number ${n}`;
  const record = openSync(`records/${n}.jsonl`, 'wx');
  const note = (event) => {
    writeSync(record, `${JSON.stringify(event)}\n`);
    return sync(record);
  };
  await note({ type: 'sending', prompt });
  await syncNames('records');
  const body = JSON.stringify({ model: 'vendor-h3-mini', prompt, duration: 5 });
  const { task_id: task } = JSON.parse(await send('POST', '/v1/video/generations', false, body));
  await note({ type: 'accepted', task });
  await new Promise((resolve) => setTimeout(resolve, 20));
  const { status } = JSON.parse(await send('GET', `/v1/video/generations/${task}`, keepAliveAgent));
  if (status !== 'completed') throw new Error(status);
  const video = await send('GET', `/v1/videos/${task}/content`, keepAliveAgent);
  const part = openSync(`out/${n}.part`, 'wx');
  writeSync(part, video);
  await sync(part);
  closeSync(part);
  linkSync(`out/${n}.part`, `out/${n}.mp4`);
  await syncNames('out');
  unlinkSync(`out/${n}.part`);
  await note({ type: 'finished', bytes: video.length });
  closeSync(record);
}

// One folder sync is enough for all files created before the sync began.
function syncNames(name) {
  const folder = folders.get(name);
  if (folder.waiting !== undefined) return folder.waiting;
  const own = (folder.last ?? Promise.resolve()).then(() => {
    folder.waiting = undefined;
    return sync(folder.file);
  });
  folder.last = own;
  return (folder.waiting = own);
}

function send(method, path, agent, body) {
  return new Promise((resolve, reject) => {
    const headers = { authorization: 'Bearer sk-bench', ...(body && { 'content-type': 'application/json' }) };
    const request = http.request(url + path, { method, agent, headers }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => resolve(Buffer.concat(chunks)));
      response.on('error', reject);
    });
    request.on('error', reject).end(body);
  });
}
