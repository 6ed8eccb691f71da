import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { onEnd } from '../support/clean-ups.ts';
import { listen } from '../support/origin.ts';
import type { User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { userHere } from '../support/one-process.ts';

let gateway: FaultGateway;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  gateway.polls = 0;
  user = userHere(gateway.url);
  for (const name of ['OUTPUT', 'STEP_SUMMARY']) user.env[`GITHUB_${name}`] = join(user.cwd, name);
  user.env['GITHUB_ACTIONS'] = 'true';
});

afterEach(() => gateway.close());

const boat = [
  'a paper boat at sea',
  '--model',
  'vendor-h3-mini',
  '--duration',
  '5',
  '--poll-interval',
  '50ms',
];

const dead = { MGW_BASE_URL: 'http://127.0.0.1:5' };
const noState = { MGW_STATE_DIR: '/dev/null/state' };

it('a workflow step passes its job and file to the next step', async () => {
  const ran = await user.run(['video', 'c', 'submit', ...boat, '-o', 'boat.mp4']);
  expect(ran.stderr).toMatch(/^Saved \S*boat\.mp4 \([\d.]+ kB\) after \d+s\.$/m);
  expect(ran.stdout).toBe(`${join(user.cwd, 'boat.mp4')}\n`);
  const output = readFileSync(join(user.cwd, 'OUTPUT'), 'utf8');
  expect(output).toMatch(/^job<<(\S+)\njob_\w{14}\n\1\n/);
  expect(output).toContain(join(user.cwd, 'boat.mp4'));
  expect(readFileSync(join(user.cwd, 'STEP_SUMMARY'), 'utf8')).toContain('| job | model | state |');
});

it('each command in the summary and in --json keeps the flags that choose the gateway', async () => {
  const flags = ['--base-url', gateway.url];
  const run = async (...args: string[]): Promise<Record<string, unknown>> =>
    (await user.run([...flags, ...args, '--json'])).json;
  const withFlags = { next: expect.arrayContaining(['mgw', ...flags]) as unknown };
  gateway.script.submit.push({ status: 500, body: 'no' });
  expect(await run('video', 'c', 'submit', ...boat)).toMatchObject({ error: withFlags });
  expect(await run('jobs', 'show', '@a', '@b')).toMatchObject({ jobs: [{ outcome: withFlags }, {}] });
  expect(await run('video', 'c', 'status', '@a', '@b')).toMatchObject({ jobs: [{ query: withFlags }, {}] });
  gateway.script.submit.push({ status: 500, body: 'no' });
  const row = { id: 'a', protocol: 'c', model: 'vendor-h3-mini', prompt: 'a boat' };
  const results = join(user.cwd, 'results');
  writeFileSync(join(user.cwd, 'm.jsonl'), JSON.stringify(row));
  expect(await run('batch', 'run', 'm.jsonl', '--results', results)).toMatchObject({ rows: [withFlags] });
  expect(JSON.parse(readFileSync(results, 'utf8'))).toMatchObject({ error: withFlags });
  const summary = readFileSync(join(user.cwd, 'STEP_SUMMARY'), 'utf8');
  expect(summary).toContain(` Next: \`mgw ${flags.join(' ')} jobs resolve job`);
  expect(summary).toContain(`| mgw ${flags.join(' ')} jobs resolve job`);
  expect(summary).not.toMatch(/(`|\| )mgw (?!--base-url)/);
});

it.each<[string, number, string[], NodeJS.ProcessEnv?]>([
  ['a model of unknown protocol', 6, ['video', 'submit', 'hi', '-m', 'video-a', '--retries', '0'], dead],
  ['a folder that cannot be created', 10, ['video', 'c', 'submit', ...boat, '-o', 'file/out/']],
  ['a state folder that cannot be created', 10, ['jobs', 'wait', '@last'], noState],
  ['a job that must be resolved', 7, ['jobs', 'resolve', '@boat']],
])('%s is reported to the workflow (exit %i): %j', async (_, code, args, env = {}) => {
  writeFileSync(join(user.cwd, 'file'), '');
  if (code === 7) {
    gateway.script.submit.push({ status: 500, body: {} });
    await user.run(['video', 'c', 'submit', ...boat, '--key', 'boat', '--retries', '0']);
  }
  const path = join(user.cwd, 'step');
  expect(await user.run(args, { env: { ...env, GITHUB_OUTPUT: path } })).toMatchObject({ code });
  expect(readFileSync(path, 'utf8')).toMatch(new RegExp(`^exit_code<<(\\S+)\n${code}\n\\1\n`, 'm'));
});

it('neither exit 2, a dry run nor jobs show is reported to the workflow', async () => {
  await user.run(['video', 'c', 'submit', ...boat, '--key', 'boat']);
  const env = { GITHUB_OUTPUT: join(user.cwd, 'step') };
  for (const args of [
    ['video', 'c', 'submit', ...boat, '--duration', '-1'],
    ['video', 'c', 'submit', ...boat, '--dry-run'],
    ['jobs', 'show', '@last', '@boat'],
  ])
    await user.run(args, { env });
  expect(existsSync(env.GITHUB_OUTPUT)).toBe(false);
});

it('an error is annotated once, on stderr, and the gateway cannot inject a workflow command', async () => {
  gateway.script.submit.push({ status: 400, body: { error: { message: 'no\n::add-mask::boat' } } });
  const ran = await user.run(['video', 'c', 'submit', ...boat, '--json']);
  expect(ran.json).toMatchObject({ ok: false, exit_code: 4 });
  expect(ran.stderr.match(/^::.*/gm)).toEqual([
    expect.stringMatching(/^::error title=mgw%3A invalid_request \(exit 4\)::.*%0A::add-mask::boat/),
  ]);
  const plain = await user.run(['video', 'c', 'submit', ...boat]);
  expect(plain.code).toBe(0);
});

it('a gateway and a manifest cannot inject a workflow command or a control character', async () => {
  const message = 'no\n::add-mask::boat\n##[error]boat \u{1b}[2J';
  gateway.script.submit.push({ status: 400, body: { error: { message } } });
  const row = { id: 'a', protocol: 'c', model: 'vendor-h3-mini', prompt: 'a boat' };
  writeFileSync(join(user.cwd, 'm.jsonl'), JSON.stringify(row));
  const ran = await user.run(['batch', 'run', 'm.jsonl']);
  const shown = await user.run(['jobs', 'show', '@last']);
  const document = await user.run(['jobs', 'show', '@last', '--json']);
  for (const { stdout, stderr } of [ran, shown, document]) {
    expect(`${stdout}\n${stderr}`).not.toMatch(/^\s*::(?!error title)|##\[|\u{1b}/mu);
  }
  expect(document.json.job).toMatchObject({
    error: { message: expect.stringContaining('##[error]') as string },
  });
});

it('a text response to mgw api cannot inject a workflow command', async () => {
  const server = await listen((_, response) => {
    response.setHeader('content-type', 'text/plain');
    response.end('é\n::add-mask::x\n \u{a0}::error::y\n##[error]z');
  });
  onEnd(() => server.close());
  const { stdout } = await user.run(['api', 'GET', '/x', '--base-url', server.url]);
  expect(stdout).toBe('é\n: :add-mask::x\n \u{a0}: :error::y\n## [error]z');
});

it('mgw prints the REF on SIGTERM while the response is pending', async () => {
  let answer = (): void => undefined;
  const requested = new Promise<void>((resolve) => {
    gateway.script.submit.push(({ response }) => {
      answer = () => response.end(JSON.stringify({ task_id: 'task_1', status: 'queued' }));
      resolve();
    });
  });
  const running = user.start(['video', 'c', 'submit', ...boat, '--wait']);
  await requested;
  const firstLine = new Promise<string>((resolve) => {
    let text = '';
    running.child.stderr?.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const [id] = /job_\w{14}/.exec(text) ?? [];
      if (id !== undefined) resolve(id);
    });
  });
  running.child.kill('SIGTERM');
  const id = await firstLine;
  answer();
  expect(await running.result).toMatchObject({ code: 143 });
  expect(readFileSync(join(user.cwd, 'OUTPUT'), 'utf8')).toContain(id);
});
