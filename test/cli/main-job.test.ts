import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canaryKey, type User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { fakeMp4 } from '../support/film.ts';
import { userHere } from '../support/one-process.ts';

const submit = ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--prompt', 'a paper boat'];
const fast = ['--poll-interval', '50ms'];

let gateway: FaultGateway;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c', video: fakeMp4() });
  user = userHere(gateway.url);
});

afterEach(() => gateway.close());

function file(name: string): Buffer {
  return readFileSync(join(user.cwd, name));
}

describe('submit -o', () => {
  it('saves the video with one POST, and prints one JSON document', async () => {
    const run = await user.run([...submit, '-o', 'out.mp4', ...fast, '--json']);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(gateway.served.content);
    expect(gateway.submissions).toHaveLength(1);
    expect(run.json).toMatchObject({
      ok: true,
      exit_code: 0,
      job: { handle: 'task_0001', state: 'succeeded' },
    });
    expect(run.json.files[0]?.sha256).toBe(createHash('sha256').update(gateway.served.content).digest('hex'));
    expect(JSON.parse(gateway.submissions[0]?.body ?? '')).toEqual({
      model: 'vendor-h3-mini',
      prompt: 'a paper boat',
    });
    expect(gateway.submissions[0]?.headers['authorization']).toBe(`Bearer ${canaryKey}`);
  });

  it('reads the prompt from standard input for -, with and without --prompt, and if no prompt is given', async () => {
    for (const prompt of [['--prompt', '-'], ['-'], []])
      await user.run([...submit.slice(0, -2), ...prompt], { stdin: 'a boat\n' });
    await user.run(['video', 'c', 'submit', '-m', 'vendor-h3'], { stdin: 'a boat\n' });
    expect(gateway.submissions.map(({ body }) => JSON.parse(body) as unknown)).toMatchObject(
      Array.from({ length: 4 }, () => ({ prompt: 'a boat' })),
    );
  });

  it('prints each request with -v, including the download and its redirects, but no secrets from query strings', async () => {
    const moved = { status: 302, headers: { location: '/v1/videos/x/content?access=capability/content' } };
    gateway.script.content.push(moved);
    const run = await user.run([...submit, '-o', 'out.mp4', ...fast, '-v']);
    const calls = run.stderr.split('\n').filter((line) => /^[<>] /.test(line));
    expect(calls.slice(-4)).toEqual([
      `> GET ${gateway.url}/v1/videos/task_0001/content`,
      '< 302 application/json',
      `> GET ${gateway.url}/v1/videos/x/content?…`,
      '< 200 video/mp4',
    ]);
    expect(run.stderr).not.toContain('capability');
  });
});

describe('submit, status and fetch as separate commands', () => {
  it('accept the id and @last, and the handle even with a different state folder', async () => {
    const submitted = await user.run(submit);
    expect(submitted.stdout).toMatch(/^job_[0-9a-z]{14}\n$/);
    const id = submitted.stdout.trim();
    expect((await user.run(['video', 'c', 'status', id])).stdout).toMatch(
      new RegExp(`^${id} (queued|running|succeeded)`),
    );
    expect((await user.run(['video', 'c', 'fetch', '@last', '-o', 'a.mp4', ...fast])).code).toBe(0);
    expect((await user.run(['video', 'c', 'fetch', id.slice(-6), '-o', 'b.mp4', ...fast])).code).toBe(0);
    const other = userHere(gateway.url);
    const fetched = await other.run(['video', 'c', 'fetch', 'task_0001', '-o', 'c.mp4', ...fast]);
    expect(fetched.code, fetched.stderr).toBe(0);
    expect(readFileSync(join(other.cwd, 'c.mp4'))).toEqual(gateway.served.content);
    expect(gateway.created).toHaveLength(1);
  });
});

it('a job that the gateway refused causes the same exit code in each command', async () => {
  gateway.script.submit.push({ status: 401, body: { error: { message: 'Invalid token' } } });
  expect((await user.run([...submit, '--key', 'k'])).code).toBe(3);
  for (const ask of [
    ['video', 'c', 'status', '@k'],
    ['video', 'c', 'fetch', '@k', '-o', 'x.mp4'],
    ['jobs', 'wait', '@k'],
  ])
    expect((await user.run(ask)).code, ask.join(' ')).toBe(3);
  expect(gateway.seen).toHaveLength(1);
});

it('submit exits with 2 without configuration, and suggests the two commands that provide a key', async () => {
  const run = await userHere().run(submit);
  expect(run.code).toBe(2);
  expect(run.stderr).toMatch(/mgw auth login.*--sandbox/s);
});

it('submit without -o exits with 5 if its --key belongs to a failed job', async () => {
  gateway.script.query.push({ body: { task_id: 'task_0001', status: 'failed', error: 'no luck' } });
  expect((await user.run([...submit, '--key', 'k', '--wait', ...fast])).code).toBe(5);
  const again = await user.run([...submit, '--key', 'k']);
  expect([again.code, again.stdout]).toEqual([5, '']);
  expect(gateway.created).toHaveLength(1);
});

describe('submit --on-done', () => {
  it("runs a command once the job has ended, with the JSON document on the command's stdin, and reserves mgw's stdout for data", async () => {
    const hook = `cat > done.json; echo told`;
    const run = await user.start([...submit, '-o', 'out.mp4', ...fast, '--on-done', hook]).result;
    expect(run).toMatchObject({ code: 0, stdout: `${join(user.cwd, 'out.mp4')}\n` });
    expect(run.stderr).toMatch(/^told$/m);
    expect(JSON.parse(file('done.json').toString())).toMatchObject({
      ok: true,
      exit_code: 0,
      job: { state: 'succeeded' },
      files: [{ path: join(user.cwd, 'out.mp4') }],
    });
  });

  it("runs the command even if the job fails, and does not let a failing command change mgw's exit code", async () => {
    const hook = `cat > '${join(user.cwd, 'done.json')}'; exit 3`;
    const run = await user.run(['video', 'c', 'fetch', '@nothing', '--on-done', hook]);
    expect(run.code).toBe(2);
    expect(run.stderr).toContain('mgw: --on-done failed: it exited with 3');
    expect(JSON.parse(file('done.json').toString())).toMatchObject({ ok: false, exit_code: 2 });
  });

  it('exits with 2 and sends nothing if the command is empty', async () => {
    const run = await user.run([...submit, '--on-done', '']);
    expect([run.code, run.stderr]).toEqual([
      2,
      expect.stringContaining('--on-done "": must be a command line'),
    ]);
    expect(gateway.submissions).toEqual([]);
  });
});

it('jobs show accepts several REFs, and continues after a REF that matches no job', async () => {
  const ids = [];
  for (const key of ['one', 'two']) ids.push((await user.run([...submit, '--key', key])).stdout.trim());
  const shown = await user.run(['jobs', 'show', '@one', '@none', '-', '--json'], { stdin: '@two' });
  expect(shown).toMatchObject({
    code: 11,
    json: { jobs: [{ id: ids[0] }, { ref: '@none' }, { id: ids[1] }] },
  });
  expect(shown.json['jobs']).toMatchObject([
    { history: [{ event: 'prepared' }, {}, {}, {}, {}, {}] },
    {},
    {},
  ]);
  const text = await user.run(['jobs', 'show', '@one', '@two']);
  expect(text.stdout).toMatch(new RegExp(`^id +${ids[0]}[^]*\\n\\nid +${ids[1]}`));
});

it('a job refused by a budget leaves no record', async () => {
  expect((await user.run(['config', 'set', 'prices.c.vendor-h3-mini', 'video=2'])).code).toBe(0);
  expect((await user.run([...submit, '--budget', '1'])).code).toBe(12);
  const list = async (...args: string[]): Promise<unknown> =>
    (await user.run(['jobs', 'ls', ...args, '--json'])).json['jobs'];
  expect(await list()).toEqual([]);
  expect(await list('--state', 'prepared')).toEqual([]);
});

it('jobs ls shows the newest 20 jobs, but -q prints the id of every job', async () => {
  const jobs = 21;
  for (let index = 0; index < jobs; index += 1) await user.run([...submit, '--key', `job-${index}`]);
  const list = async (...args: string[]): Promise<string[]> =>
    (await user.run(['jobs', 'ls', ...args])).stdout.trim().split('\n');
  expect(await list()).toHaveLength(1 + 20);
  expect(await list('-q')).toHaveLength(jobs);
  expect(await list('-q', '--limit', '2')).toHaveLength(2);
  expect((await user.run(['jobs', 'ls', '--state', 'running'])).stderr).toBe('No job matches.\n');
});
