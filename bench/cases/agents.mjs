// Measures `mgw mcp`: the time until it answers `initialize`, compared with bare Node, and
// memory over a thousand calls.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { peakOf } from '../measure.mjs';

export default async function* agents(bench) {
  const url = await bench.serve('gateway');
  const env = bench.env(url);
  const runs = await bench.interleaved(
    bench.rounds(31, 11),
    {
      bare: () => bench.measured([process.execPath, '-e', '0'], { env }),
      mcp: () => started(bench, env),
    },
    { warmUp: true },
  );
  yield {
    figure: 'mgw mcp until initialize is answered',
    value: runs.of('mcp') * 1000,
    unit: 'ms',
    peer: 'node -e 0',
    peerValue: runs.of('bare') * 1000,
    ratio: runs.ratio('mcp', 'bare'),
    target: { ratio: 4 },
  };
  const calls = bench.rounds(1000, 300);
  // V8 does not collect garbage while memory is free. With a small heap, any growth is therefore memory still in use.
  const small = { ...env, NODE_OPTIONS: '--max-semi-space-size=1 --max-old-space-size=40' };
  const server = await serve(bench, small);
  await callOften(server, 700);
  const before = peakOf(server.pid);
  await callOften(server, calls);
  const after = peakOf(server.pid);
  server.end();
  yield {
    figure: `memory of mgw mcp in a small heap after ${calls} more calls`,
    value: after,
    unit: 'MB',
    peer: 'after 700',
    peerValue: before,
    ratio: after / before,
    target: { ratio: 1.15 },
  };
}

async function started(bench, env) {
  const began = performance.now();
  const server = await serve(bench, env);
  const wall = (performance.now() - began) / 1000;
  server.end();
  await server.ended;
  return { wall, cpu: 0, rss: 0 };
}

// Starts a server, and resolves once it has answered `initialize`.
async function serve(bench, env) {
  const [node, ...args] = [...bench.mgw(), 'mcp', '--budget', '100', '--root', bench.folder];
  const child = spawn(node, args, { env, stdio: ['pipe', 'pipe', 'ignore'] });
  const waiting = new Map();
  createInterface({ input: child.stdout }).on('line', (line) => {
    const { id, result } = JSON.parse(line);
    waiting.get(id)?.(result);
    waiting.delete(id);
  });
  let requests = 0;
  const request = (method, params) => {
    const id = (requests += 1);
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    return new Promise((resolve) => waiting.set(id, resolve));
  };
  const clientInfo = { name: 'bench', version: '1' };
  await request('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo });
  child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })}\n`);
  return { pid: child.pid, request, end: () => child.stdin.end(), ended: once(child, 'close') };
}

// Submits repeatedly under one key, and queries the job. Only the first call pays.
async function callOften({ request }, times) {
  const video = { key: 'boat', protocol: 'c', model: 'vendor-h3-mini', prompt: 'a boat', duration: 5 };
  for (let done = 0; done < times; done += 2) {
    await request('tools/call', { name: 'submit_video', arguments: video });
    await request('tools/call', { name: 'jobs', arguments: {} });
  }
}
