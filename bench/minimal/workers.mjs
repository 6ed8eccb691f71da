// The minimal worker on PostgreSQL that keeps mgw's promises for a row of Protocol C. It claims the row and
// commits `sending` before the first byte, then the handle, then the result with its hash and the row's end. Run
// the worker in a folder for out/:
//
//   node bench/minimal/workers.mjs init DATABASE ROWS
//   node bench/minimal/workers.mjs work DATABASE URL CONCURRENCY
import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { open, rename } from 'node:fs/promises';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const [what, database, ...args] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: database, max: 4 });
const keepAliveAgent = new http.Agent({ keepAlive: true });

if (what === 'init') {
  await pool.query(`create table rows (n int primary key, state text not null default 'waiting');
    create index on rows (n) where state = 'waiting';
    create table events (n int not null, line text not null)`);
  await pool.query('insert into rows select n from generate_series(1, $1::int) n', [args[0]]);
  await pool.end();
} else await Promise.all(Array.from({ length: Number(args[1]) }, worker));

async function worker() {
  for (;;) {
    const { rows } = await pool.query(
      `update rows set state = 'taken'
       where n = (select n from rows where state = 'waiting' order by n limit 1 for update skip locked) returning n`,
    );
    if (rows.length === 0) await sleep(500);
    else await row(rows[0].n);
  }
}

async function row(n) {
  const note = (event) => pool.query('insert into events values ($1, $2)', [n, JSON.stringify(event)]);
  const prompt = `boat number ${n}`;
  await note({ type: 'sending', prompt });
  const body = JSON.stringify({ model: 'vendor-h3-mini', prompt, duration: 5 });
  const { task_id: task } = JSON.parse(await send('POST', '/v1/video/generations', false, body));
  await note({ type: 'accepted', task });
  await sleep(20);
  await send('GET', `/v1/video/generations/${task}`, keepAliveAgent);
  const video = await send('GET', `/v1/videos/${task}/content`, keepAliveAgent);
  const part = await open(`out/${n}.part`, 'wx');
  await part.write(video);
  await part.sync();
  await part.close();
  await rename(`out/${n}.part`, `out/${n}.mp4`);
  const sha256 = createHash('sha256').update(video).digest('hex');
  await pool.query(
    `with event as (insert into events values ($1, $2)) update rows set state = 'ended' where n = $1`,
    [n, JSON.stringify({ type: 'finished', sha256 })],
  );
}

function send(method, path, agent, body) {
  return new Promise((resolve, reject) => {
    const headers = { authorization: 'Bearer sk-bench', ...(body && { 'content-type': 'application/json' }) };
    const request = http.request(args[0] + path, { method, agent, headers }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => resolve(Buffer.concat(chunks)));
      response.on('error', reject);
    });
    request.on('error', reject).end(body);
  });
}
