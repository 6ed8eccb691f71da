import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import * as z from 'zod';
import { paidTools } from '../../src/mcp/paid-tools.ts';
import type { Job } from '../../src/job.ts';
import { agentText } from '../../src/mcp/result.ts';
import { unknownSpeechError } from '../../src/speech/errors.ts';
import { Root } from '../../src/mcp/tool.ts';
import { canaryKey, newUser, type User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { freshFolder, sendJson } from '../support/servers.ts';
import { connect } from './client.ts';
import { gateway, userOf, video, withoutPrefix } from './gateway.ts';

const args = ['mcp', '--budget', '100'];
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==',
  'base64',
);
const withImage = { model: 'veo-3', protocol: 'a', prompt: 'a boat', duration: 8 };

async function userOfA(url: string): Promise<User> {
  const user = await userOf(url);
  await user.run(['config', 'set', 'prices.a.veo-3', 'second=1']);
  return user;
}

test('invalid arguments of an MCP call cause a usage error at no charge, which refers to arguments instead of flags', async () => {
  const server = await gateway();
  const agent = await connect('v2', await userOf(server.url), args);
  const order = { key: 'one', ...video };
  const speech = { key: 'one', text: 'Hello.' };
  const calls: [tool: string, given: object, words: string][] = [
    ['models', { protocol: 'z' }, 'protocol'],
    ['submit_video', {}, 'key'],
    ['submit_video', { ...order, key: 5 }, 'key'],
    ['submit_video', { ...order, set: 'a=1' }, 'set'],
    ['submit_video', { ...order, duration: -1 }, 'duration'],
    ['speak', { ...speech, output: 'audio/' }, 'output: audio/ is a folder'],
    ['speak', { ...speech, output: '{id}.mp3' }, 'output: {id} is not known before the job exists'],
    ['submit_video', { ...order, model: 'zzz' }, 'Set protocol to one of: a, b, c.'],
  ];
  for (const [tool, given, words] of calls) {
    const refused = await agent.call(tool, { ...given });
    expect(refused).toMatchObject({ ok: false, charged: 'no', error: { code: 'usage', exit_code: 2 } });
    expect(refused.error?.message).toContain(words);
    expect(refused.error?.message).not.toContain('--');
    if (tool === 'models') expect(server.requests).toEqual([]);
  }
  expect(server.posts()).toBe(0);
  expect(await agent.call('models', { protocol: 'tts' })).toMatchObject({ ok: true });
  for (const name of ['__proto__', 'constructor', 'nothing'])
    await expect(agent.call(name)).rejects.toThrow(`Tool ${name} not found`);
});

test("a command that the MCP server suggests uses the server's gateway, files and standing budget, even in a different folder", async () => {
  const other = await gateway();
  const chosen = await gateway((_, response) => sendJson(response, { name: 'operations/1' }));
  const user = await userOfA(other.url);
  writeFileSync(join(user.cwd, 'boat.png'), png);
  await user.run(['budget', 'set', 'shared', '100']);
  const confirming = ['mcp', '--budget-name', 'shared', '--confirm-over', '3'];
  const agent = await connect('v1', user, ['--base-url', chosen.url, ...confirming]);
  const input = { key: 'one', ...withImage, image: 'boat.png' };
  const { command = [] } = await agent.call('submit_video', input);
  expect((await user.run(withoutPrefix(user, command).slice(1))).code).toBe(0);
  expect([chosen.posts(), other.posts()]).toEqual([1, 0]);
  expect(await agent.call('submit_video', input)).toMatchObject({ ok: true, resumed: true });
  expect((await agent.call('budget'))['budgets']).toMatchObject([{ spent: '8' }]);
});

test("text that looks like a flag does not remove the server's flags from the command that the MCP server suggests", async () => {
  const user = newUser();
  const agent = await connect('v1', user, ['--sandbox', 'mcp', '--budget', '9', '--confirm-over', '0']);
  for (const text of ['--sandbox', '--base-url', '--help']) {
    const input = { key: 'one', text, speaker: 'x', output: 'out.mp3' };
    const { command } = await agent.call('speak', input);
    expect(withoutPrefix(user, command).slice(0, 3)).toEqual(['mgw', '--sandbox', 'tts']);
  }
});

test('the environment of the MCP server is converted to flags in the command that the server suggests', async () => {
  const user = newUser(undefined, { MGW_SANDBOX: '1' });
  const agent = await connect('v1', user, ['mcp', '--budget', '100', '--confirm-over', '0']);
  const { command } = await agent.call('submit_video', { key: 'one', ...video });
  expect(withoutPrefix(user, command).slice(0, 3)).toEqual(['mgw', '--sandbox', 'video']);
  const server = await gateway((_, response) => response.destroy());
  const payer = await userOf(server.url);
  const paying = await connect('v1', payer, ['mcp', '--budget', '100']);
  const lost = await paying.call('submit_video', { key: 'one', ...video });
  expect(withoutPrefix(payer, lost.command)).toEqual([
    'mgw',
    '--base-url',
    server.url,
    'jobs',
    'resolve',
    lost.job?.id,
  ]);
});

test("an agent's image is read only below the root, and is never opened if it is a FIFO, a device or a link to a file outside", async () => {
  const server = await gateway((_, response) => sendJson(response, { name: 'operations/1' }));
  const user = await userOfA(server.url);
  const at = (name: string): string => join(user.cwd, name);
  writeFileSync(at('boat.png'), png);
  mkdirSync(at('folder'));
  execFileSync('mkfifo', [at('fifo')]);
  symlinkSync('/dev/zero', at('zero'));
  symlinkSync('/etc/hostname', at('outside'));
  symlinkSync(at('circle'), at('circle'));
  symlinkSync('boat.png', at('inside'));
  const agent = await connect('v1', user, args);
  const names = [
    'fifo',
    'zero',
    'outside',
    'circle',
    'folder',
    'missing',
    'boat.png/x',
    'x'.repeat(5000),
    '',
  ];
  for (const image of names)
    expect(await agent.call('submit_video', { key: 'one', ...withImage, image })).toMatchObject({
      ok: false,
      charged: 'no',
      error: { code: 'usage', message: expect.stringMatching(/^image: /) as string },
    });
  expect(server.posts()).toBe(0);
  const sent = await agent.call('submit_video', { key: 'one', ...withImage, image: 'inside' });
  expect(sent).toMatchObject({ ok: true, charged: 'yes' });
  expect(server.requests.find(({ method }) => method === 'POST')?.body).toContain(png.toString('base64'));
});

test('an agent can use the video of an earlier job only if it was saved below the root', async () => {
  const server = await gateway();
  const user = await userOfA(server.url);
  const { model, prompt, duration } = video;
  const flags = [
    '--model',
    model,
    '--duration',
    String(duration),
    '--key',
    'mine',
    '-o',
    '../mine.mp4',
    '--timeout',
    '100ms',
  ];
  await user.run(['video', 'c', 'submit', prompt, ...flags]);
  const agent = await connect('v1', user, args);
  const outside = await agent.call('submit_video', { key: 'one', ...withImage, image: '@mine:last' });
  expect(outside.error?.message).toContain('is outside ');
  const inside = await agent.call('submit_video', { key: 'job_two', ...video, prompt: 'a ship' });
  expect(inside).toMatchObject({ charged: 'yes' });
  const early = await agent.call('submit_video', { key: 'one', ...withImage, image: '@job_two:last' });
  expect(early).toMatchObject({ ok: false, charged: 'no', error: { code: 'usage' } });
  expect(early.error?.message).toContain('has not finished');
});

test('an agent can copy the speech of an earlier job only from a file below the root', async () => {
  const user = userHere(undefined, { MGW_SANDBOX: '1' });
  const agent = await connect('v1', user, args);
  const speech = { text: 'hello', speaker: 'en_female_1' };
  const tts = ['tts', speech.text, '--speaker', speech.speaker, '--key', 'theirs', '-o', '../theirs.mp3'];
  expect((await user.run(tts)).code).toBe(0);
  const copies = [
    await agent.call('fetch', { ref: '@theirs', output: 'copy.mp3' }),
    await agent.call('speak', { key: 'theirs', ...speech, output: 'copy.mp3' }),
  ];
  for (const each of copies) {
    expect(each).toMatchObject({ ok: false, charged: 'no', error: { code: 'usage' } });
    expect(each.error?.message).toContain('theirs.mp3 is outside ');
  }
  const own = { key: 'own', ...speech, text: 'hi', output: 'own.mp3' };
  expect(await agent.call('speak', own)).toMatchObject({ charged: 'yes' });
  await user.run(['jobs', 'fetch', '@own', '-o', '../own.mp3']);
  expect(await agent.call('speak', own)).toMatchObject({ ok: true, charged: 'no', resumed: true });
});

test.each([
  ['--duration: give 4 to 8. Nothing was sent.', 'duration: give 4 to 8. Nothing was sent.'],
  ['seed: there is no such field. To send it unchanged, use --no-check.', 'seed: there is no such field.'],
  ['out.mp4 already exists; --force replaces it', 'out.mp4 already exists.'],
  ['Another --key, or --new without one, pays for another take.', 'Another key pays for another take.'],
  [
    'The call was charged: --new pays for another take.',
    'The call was charged: another key pays for another take.',
  ],
  ['/a.mp3 exists: use another file, or replace it with --force.', '/a.mp3 exists: use another file.'],
  [
    'a is a symbolic link: use another file, or replace the link with --force. Nothing was sent.',
    'a is a symbolic link: use another file. Nothing was sent.',
  ],
  [
    'b is not a regular file: use another file, or -o - for standard output.',
    'b is not a regular file: use another file.',
  ],
  [
    'm.dat: its name must end in .csv. For any other name, use --format.',
    'm.dat: its name must end in .csv.',
  ],
  [
    'a.png is outside the folders that this batch can read. To allow it: --allow-files /a.b',
    'a.png is outside the folders that this batch can read.',
  ],
  [
    "a row's output must be a path; for a bucket, use -o s3://B/{id}.{ext}.",
    "a row's output must be a path.",
  ],
  ['Set it, or add --sandbox to try mgw offline.', 'Set it, or add --sandbox to try mgw offline.'],
  ['Start it with "mgw mcp --budget 5 --root a".', 'Start it with "mgw mcp --budget 5 --root a".'],
])('the text %j is returned to an agent as %j', (text, shown) => {
  expect(agentText(text)).toBe(shown);
});

test('the error for speech in doubt does not suggest another key to an agent, because every key is refused', () => {
  const job = { id: 'job_1', key: 'one' } as Job;
  const { message } = unknownSpeechError(job, 'The response was lost');
  expect(message).toContain(' another --key pays for another take.');
  expect(agentText(message)).toBe(
    'The response was lost. The gateway may have accepted and charged job job_1; it is not sent again. If the bill shows no charge, resolve the job as not created. The same command then sends it again.',
  );
});

test('the argument descriptions of MCP tools do not mention @FILE, which the tools refuse', () => {
  for (const { fields } of paidTools)
    expect(JSON.stringify(z.toJSONSchema(z.object(fields())))).not.toContain('@FILE');
});

test('the MCP server writes only messages to stdout, and continues, regardless of what clients, Node and the gateway send', async () => {
  const server = await gateway((_, response) =>
    sendJson(
      response,
      { error: { message: `\u001b[2J\u009b1m ${canaryKey} http://u:pw@x.example/a?X-Amz-Signature=abc` } },
      400,
    ),
  );
  const user = await userOf(server.url);
  const env = { ...user.env, NODE_OPTIONS: '--trace-warnings --pending-deprecation', NODE_DEBUG: 'http,net' };
  const child = spawn(process.execPath, [resolve('bin/mgw.js'), '-v', ...args], { cwd: user.cwd, env });
  const lines: string[] = [];
  const answers = createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
  const call = (id: number, method: string, given: object): string =>
    JSON.stringify({ jsonrpc: '2.0', id, method, params: given });
  const submit = { name: 'submit_video', arguments: { key: 'one', ...video } };
  child.stdin.write(`garbage\n${call(1, 'initialize', params)}\n`);
  // Two calls with the same id both receive a response, and create one job.
  child.stdin.write(`[${call(2, 'tools/call', submit)}]\n${call(3, 'tools/call', submit)}\n`);
  child.stdin.write(`${call(3, 'tools/call', submit)}\n`);
  while (lines.length < 5) await once(answers, 'line');
  child.stdin.end();
  await once(child, 'close');
  const messages = lines.map((line) => JSON.parse(line) as { id: unknown; error?: { code: number } });
  expect(messages.map(({ id }) => id).sort()).toEqual([1, 3, 3, null, null]);
  expect(messages.flatMap(({ error }) => (error === undefined ? [] : [error.code]))).toEqual([
    -32700, -32600,
  ]);
  expect(lines.join('')).not.toMatch(/\\u001b|\\u009b|u:pw|Signature=abc/);
  for (const text of [lines.join(''), stderr]) expect(text).not.toContain(canaryKey);
});

test.each([
  ['s3://bucket/a.mp4', 'is not a path'],
  ['gs://bucket/a.mp4', 'is not a path'],
  ['~/a.mp4', 'output: ~/a.mp4 must be a path without ~'],
  ['../a.mp4', 'is outside'],
  ['/etc/a.mp4', 'is outside'],
  ['link/a.mp4', 'is outside'],
  ['circle/a.mp4', 'ELOOP'],
])('the MCP server refuses the path %s', async (path, message) => {
  const folder = freshFolder();
  symlinkSync('/tmp', join(folder, 'link'));
  symlinkSync(join(folder, 'circle'), join(folder, 'circle'));
  const root = await Root.open(folder);
  await expect(root.file(path, 'output')).rejects.toThrow(message);
});

test('a root folder that does not exist is refused with the command that creates it', async () => {
  const missing = join(freshFolder(), 'clips');
  await expect(Root.open(missing)).rejects.toMatchObject({
    message: `--root: no such folder: ${missing}.`,
    next: ['mkdir', '-p', missing],
  });
});
