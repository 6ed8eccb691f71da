// A gateway that responds immediately. Its argument is a JSON object: `state` of each task (default:
// completed), `videoBytes` of each result, `inlineBytes` of the JSON of Protocol A's result, and `frameBytes`
// and `speechBytes` of speech.
import { Buffer } from 'node:buffer';
import { createServer } from 'node:http';

const {
  state = 'completed',
  videoBytes = 96,
  inlineBytes = 0,
  frameBytes = 0,
  speechBytes = 0,
} = JSON.parse(process.argv[2] ?? '{}');
const mib = 1024 * 1024;
const block = Buffer.alloc(mib, 'x');
let tasks = 0;
let polls = 0;

const server = createServer((request, response) => {
  request.resume();
  const { method, url } = request;
  if (url === '/polls') response.end(String(polls));
  else if (url.endsWith('/content')) void sendVideo(response);
  else if (url.endsWith('/unidirectional')) void sendSpeech(response);
  else if (url.startsWith('/v1beta/')) void sendOperation(method, response);
  else if (method === 'POST') send(response, { task_id: `task-${(tasks += 1)}`, status: 'queued' });
  else {
    polls += 1;
    send(response, { task_id: url.split('/').pop(), status: state, progress: 10 });
  }
});
server.listen(0, '127.0.0.1', () => process.send(`http://127.0.0.1:${server.address().port}`));

function send(response, body) {
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(body));
}

// Returns an MP4 of the given size: its boxes, and a last box that fills the remaining bytes.
function boxes(bytes) {
  const head = '00000018667479706d703432000000006d70343269736f6d000000086d6f6f76';
  const rest = Buffer.alloc(16);
  rest.writeUInt32BE(1, 0);
  rest.write('mdat', 4);
  rest.writeBigUInt64BE(BigInt(bytes - head.length / 2), 8);
  return Buffer.concat([Buffer.from(head, 'hex'), rest]);
}

async function sendVideo(response) {
  const head = boxes(videoBytes);
  response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': videoBytes, etag: '"bench"' });
  response.write(head);
  await fill(response, block, videoBytes - head.length);
  response.end();
}

// Sends a response that contains the video as Base64. The video's last box has size 0, so it extends to the end of the
// video.
async function sendOperation(method, response) {
  const name = 'models/m/operations/1';
  if (method === 'POST') return send(response, { name, done: false });
  const head =
    '00000018667479706d703432000000006d70343269736f6d000000086d6f6f760000000866726565000000006d646174';
  response.writeHead(200, { 'content-type': 'application/json' });
  response.write(
    `{"name":"${name}","done":true,"response":{"generateVideoResponse":{"generatedSamples":[{"video":{"encodedVideo":"${Buffer.from(head, 'hex').toString('base64')}`,
  );
  await fill(response, Buffer.alloc(mib, 'eHh4'), Math.floor(inlineBytes / 4) * 4);
  response.end('","encoding":"video/mp4"}}]}}}');
}

async function sendSpeech(response) {
  const audio = Buffer.alloc(Math.floor((frameBytes - 40) / 4) * 3, 7).toString('base64');
  const frame = Buffer.from(`${JSON.stringify({ code: 0, message: '', data: audio })}\n`);
  // Sends many small frames at once, so the server is not the bottleneck.
  const frames = Buffer.alloc(frame.length * Math.ceil(mib / frame.length), frame);
  await fill(response, frames, Math.ceil(speechBytes / frame.length) * frame.length);
  response.end('{"code":20000000,"message":"ok","data":null}');
}

function fill(response, piece, bytes) {
  return new Promise((resolve) => {
    let remaining = bytes;
    const write = () => {
      while (remaining > 0) {
        const next = remaining < piece.length ? piece.subarray(0, remaining) : piece;
        remaining -= next.length;
        if (!response.write(next)) return void response.once('drain', write);
      }
      resolve();
    };
    response.once('close', resolve);
    write();
  });
}
