// The minimal Node program that downloads a file: it receives, writes, hashes and syncs.
//
//   node download.mjs URL PATH
import { createHash } from 'node:crypto';
import { closeSync, fsyncSync, openSync, writevSync } from 'node:fs';
import { get } from 'node:http';

const [url, path] = process.argv.slice(2);
const atOnce = 1024 * 1024;
const file = openSync(path, 'w');
const hash = createHash('sha256');
let chunks = [];
let bytes = 0;

get(url, { agent: false, highWaterMark: atOnce }, (answer) => {
  answer.on('data', (chunk) => {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes >= atOnce) put();
  });
  answer.once('end', () => {
    put();
    fsyncSync(file);
    closeSync(file);
    console.log(hash.digest('hex'));
  });
});

function put() {
  if (bytes === 0) return;
  writevSync(file, chunks);
  for (const chunk of chunks) hash.update(chunk);
  chunks = [];
  bytes = 0;
}
