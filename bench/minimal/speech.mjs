// The minimal Node program that saves streamed speech: it receives, parses each frame, decodes, writes and syncs.
//
//   node speech.mjs URL PATH
import { Buffer } from 'node:buffer';
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { request } from 'node:http';

const [url, path] = process.argv.slice(2);
const file = openSync(path, 'w');
let rest = Buffer.alloc(0);

const call = request(url, { method: 'POST', agent: false, highWaterMark: 1024 * 1024 }, (response) => {
  response.on('data', (chunk) => {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let start = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, start)) {
      take(bytes.latin1Slice(start, end));
      start = end + 1;
    }
    rest = bytes.subarray(start);
  });
  response.once('end', () => {
    fsyncSync(file);
    closeSync(file);
  });
});
call.end('{}');

function take(line) {
  const { data } = JSON.parse(line);
  if (data !== null) writeSync(file, Buffer.from(data, 'base64'));
}
