import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
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
    const run = await user.start([...submit, '-o', 'out.mp4', ...fast, '--json']).result;
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

  it('reads the prompt from standard input for -, with and without --prompt', async () => {
    for (const prompt of [['--prompt', '-'], ['-']])
      await user.run([...submit.slice(0, -2), ...prompt], { stdin: 'a boat\n' });
    expect(gateway.submissions.map(({ body }) => JSON.parse(body) as unknown)).toMatchObject([
      { prompt: 'a boat' },
      { prompt: 'a boat' },
    ]);
  });

  it('prints only the path on stdout, without control codes in a pipe', async () => {
    const run = await user.start([...submit, '-o', 'out.mp4', ...fast]).result;
    expect(run.stdout).toBe(`${join(user.cwd, 'out.mp4')}\n`);

    expect(run.stdout + run.stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
  });

  it('makes a second take if a successful command is repeated', async () => {
    await user.run([...submit, '-o', 'one.mp4', ...fast]);
    await user.run([...submit, '-o', 'two.mp4', ...fast]);
    expect(gateway.created).toHaveLength(2);
  });

  it('refuses an existing output file before anything is paid for', async () => {
    await user.run([...submit, '-o', 'out.mp4', ...fast]);
    const again = await user.run([...submit, '-o', 'out.mp4', ...fast, '--json']);
    expect(again.json).toMatchObject({ exit_code: 10, error: { code: 'output_exists', charged: 'no' } });
    expect(gateway.created).toHaveLength(1);
  });

  it('exits 10 if another file exists at the output path of a resumed, paid job', async () => {
    gateway.script.query.push({ status: 401 });
    const command = [...submit, '-o', 'out.mp4', '--json'];
    expect((await user.run([...command, ...fast])).code).toBe(3);
    writeFileSync(join(user.cwd, 'out.mp4'), 'other');
    const again = await user.run([...command, ...fast]);
    expect(again.json).toMatchObject({ exit_code: 10, error: { code: 'output_exists', charged: 'yes' } });
    expect(again.json.error.message).toContain('exists');
    expect(again.json.error.next).toEqual([
      ...['mgw', 'video', 'c', 'fetch', again.json.job.id],
      ...['-o', join(user.cwd, 'out-2.mp4')],
    ]);
    expect(gateway.created).toHaveLength(1);
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

  it('writes only the video to stdout with -o -', async () => {
    const run = await user.run([...submit, '-o', '-', ...fast]);
    expect(run.code).toBe(0);
    expect(Buffer.from(run.stdout)).toEqual(gateway.served.content);
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

describe('a query that returns no state', () => {
  const missing = { status: 400, body: { code: 'task_not_exist', message: 'task_not_exist' } };

  it.each([
    ['a refused key', { status: 401, body: { error: { message: 'Invalid token' } } }, 3],
    ['an outage', { status: 502 }, 6],
    ['a handle that is not known yet', missing, 6],
  ])('leads to the same outcome in status and in fetch --no-wait: %s', async (_, answer, code) => {
    await user.run(submit);
    gateway.script.query.push(answer, answer);
    expect((await user.run(['video', 'c', 'status', '@last'])).code).toBe(code);
    expect((await user.run(['video', 'c', 'fetch', '@last', '--no-wait'])).code).toBe(code);
  });

  it('does not change the state if the response envelope is empty', async () => {
    await user.run(submit);
    gateway.script.query.push({ body: { code: 'success', data: null } });
    const { code, json } = await user.run(['video', 'c', 'status', '@last', '--json']);
    expect([code, json.job.state]).toEqual([0, 'queued']);
  });

  it('leads to exit 9 for a handle that neither the ledger nor the gateway knows', async () => {
    gateway.script.query.push(missing);
    expect((await user.run(['video', 'c', 'status', 'task_0009'])).code).toBe(9);
  });
});

describe('a job without a handle', () => {
  const asks = [
    ['video', 'c', 'status', '@k'],
    ['video', 'c', 'fetch', '@k', '-o', 'x.mp4'],
    ['jobs', 'wait', '@k'],
  ];

  it('is reported as never sent if no connection was made', async () => {
    const away = { env: { MGW_BASE_URL: 'http://127.0.0.1:9' } };
    expect((await user.run([...submit, '--key', 'k', '--retries', '0'], away)).code).toBe(6);
    for (const ask of asks) {
      const run = await user.run([...ask, '--json'], away);
      expect(run.json, ask.join(' ')).toMatchObject({
        exit_code: 6,
        error: { charged: 'no', retry: 'safe', message: expect.stringContaining('was never sent') as string },
      });
    }
  });

  it('causes the same exit code in each command if the gateway refused the job', async () => {
    gateway.script.submit.push({ status: 401, body: { error: { message: 'Invalid token' } } });
    expect((await user.run([...submit, '--key', 'k'])).code).toBe(3);
    for (const ask of asks) expect((await user.run(ask)).code, ask.join(' ')).toBe(3);
    expect(gateway.seen).toHaveLength(1);
  });
});

describe('a repeated submission', () => {
  it('succeeds without a second POST after a timeout (exit 8)', async () => {
    gateway.polls = 12;
    const command = [...submit, '-o', 'out.mp4'];
    const late = await user.run([...command, '--timeout', '1s', '--poll-interval', '400ms', '--json']);
    expect(late.json).toMatchObject({
      exit_code: 8,
      error: { code: 'pending', charged: 'yes', retry: 'resume' },
    });
    const out = join(user.cwd, 'out.mp4');
    expect(late.json.error.next).toEqual(['mgw', 'video', 'c', 'fetch', late.json.job.id, '-o', out]);
    const again = await user.run([...command, ...fast]);
    expect(again.code, again.stderr).toBe(0);
    expect(gateway.created).toHaveLength(1);
    expect(file('out.mp4')).toEqual(gateway.served.content);
  });

  it('exits 7 without a second POST after a lost response, until the handle is adopted', async () => {
    gateway.script.submit.push(({ response }) => {
      gateway.create();
      response.destroy();
    });
    const lost = await user.run([...submit, '--json']);
    expect(lost.json).toMatchObject({
      exit_code: 7,
      error: { code: 'submit_unknown', charged: 'maybe', retry: 'never' },
    });
    expect((await user.run(submit)).code).toBe(7);
    expect(gateway.submissions).toHaveLength(1);
    const adopted = await user.run(['jobs', 'resolve', lost.json.job.id, '--adopt', 'task_0001']);
    expect(adopted.code, adopted.stderr).toBe(0);
    expect((await user.run(['video', 'c', 'fetch', lost.json.job.id, '-o', 'out.mp4', ...fast])).code).toBe(
      0,
    );
    expect(gateway.submissions).toHaveLength(1);
  });
});

describe('--key', () => {
  it('refuses a different body under the same key, and prints the difference', async () => {
    await user.run([...submit, '--key', 'k']);
    const run = await user.run([
      'video',
      'c',
      'submit',
      '--model',
      'vendor-h3-mini',
      '--prompt',
      'x',
      '--key',
      'k',
      '--json',
    ]);
    expect(run.json).toMatchObject({ exit_code: 2, error: { code: 'conflict' } });
    expect(run.json.error.message).toContain('prompt was "a paper boat", is "x"');
    expect(gateway.created).toHaveLength(1);
  });
});

describe('submit without -o', () => {
  it('exits 5 if its --key belongs to a failed job', async () => {
    gateway.script.query.push({ body: { task_id: 'task_0001', status: 'failed', error: 'no luck' } });
    expect((await user.run([...submit, '--key', 'k', '--wait', ...fast])).code).toBe(5);
    const again = await user.run([...submit, '--key', 'k']);
    expect([again.code, again.stdout]).toEqual([5, '']);
    expect(gateway.created).toHaveLength(1);
  });

  it('exits 130 after Ctrl-C while the response is pending, and resumes the job when repeated', async () => {
    const accepted = new Promise<void>((resolve) => {
      gateway.script.submit.push(({ response }) => {
        running.child.kill('SIGINT');
        running.child.stderr?.once('data', () => {
          response.writeHead(200).end(JSON.stringify({ task_id: gateway.create() }));
          resolve();
        });
      });
    });
    const running = user.start(submit);
    await accepted;
    const run = await running.result;
    expect(run.code, run.stderr).toBe(130);
    expect(run.stderr).toMatch(/Interrupted; job job_\w+ continues at the gateway/);
    const again = await user.run(submit);
    expect([again.code, again.stdout]).toEqual([0, expect.stringMatching(/^job_\w+\n$/)]);
    expect(gateway.created).toHaveLength(1);
  });
});

describe('a submission without configuration', () => {
  it('exits 2 and suggests the two commands that provide a key', async () => {
    const run = await userHere().run(submit);
    expect(run.code).toBe(2);
    expect(run.stderr).toMatch(/mgw auth login.*--sandbox/s);
  });
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

  it('exits 2 and sends nothing if the command is empty', async () => {
    const run = await user.start([...submit, '-o', 'out.mp4', '--on-done', '']).result;
    expect([run.code, run.stderr]).toEqual([
      2,
      expect.stringContaining('--on-done "": must be a command line'),
    ]);
    expect(gateway.submissions).toEqual([]);
  });

  it("runs the command even if the job fails, and does not let a failing command change mgw's exit code", async () => {
    const run = await user.start(['video', 'c', 'fetch', '@nothing', '--on-done', 'cat > done.json; exit 3'])
      .result;
    expect(run.code).toBe(2);
    expect(run.stderr).toContain('mgw: --on-done failed: it exited with 3');
    expect(JSON.parse(file('done.json').toString())).toMatchObject({ ok: false, exit_code: 2 });
  });
});

describe('submit -o FOLDER/', () => {
  it('creates the folder, and names the file after the id of the job', async () => {
    const run = await user.start([...submit, '-o', 'new/clips/', ...fast, '--json']).result;
    expect(run.code, run.stderr).toBe(0);
    const path = join(user.cwd, 'new', 'clips', `${run.json.job?.id ?? ''}.mp4`);
    expect(run.json.files).toMatchObject([{ path }]);
    expect(readFileSync(path)).toEqual(gateway.served.content);
  });

  it('exits 10 and sends nothing if the folder cannot be created', async () => {
    writeFileSync(join(user.cwd, 'taken'), '');
    const run = await user.start([...submit, '-o', 'taken/', ...fast]).result;
    expect(run.code).toBe(10);
    expect(gateway.submissions).toHaveLength(0);
  });
});

it('jobs show accepts several REFs, and continues after a REF that matches no job', async () => {
  const ids = [];
  for (const key of ['one', 'two'])
    ids.push((await user.start([...submit, '--key', key]).result).stdout.trim());
  const shown = await user.start(['jobs', 'show', '@one', '@none', '-', '--json'], { stdin: '@two' }).result;
  expect(shown).toMatchObject({
    code: 11,
    json: { jobs: [{ id: ids[0] }, { ref: '@none' }, { id: ids[1] }] },
  });
  expect(shown.json['jobs']).toMatchObject([
    { history: [{ event: 'prepared' }, {}, {}, {}, {}, {}] },
    {},
    {},
  ]);
  const text = await user.start(['jobs', 'show', '@one', '@two']).result;
  expect(text.stdout).toMatch(new RegExp(`^id +${ids[0]}[^]*\\n\\nid +${ids[1]}`));
});

it('a job refused by a budget leaves no record', async () => {
  expect((await user.start(['config', 'set', 'prices.c.vendor-h3-mini', 'video=2']).result).code).toBe(0);
  expect((await user.start([...submit, '--budget', '1']).result).code).toBe(12);
  const list = async (...args: string[]): Promise<unknown> =>
    (await user.start(['jobs', 'ls', ...args, '--json']).result).json['jobs'];
  expect(await list()).toEqual([]);
  expect(await list('--state', 'prepared')).toEqual([]);
});

it('jobs ls says that no job matches its filters', async () => {
  const list = async (...args: string[]): Promise<string> =>
    (await user.start(['jobs', 'ls', ...args]).result).stderr;
  expect(await list('--all')).toBe("No jobs. To list the sandbox's jobs: mgw --sandbox jobs ls\n");
  expect(await list('--state', 'running', '--limit', '5')).toBe('No job matches.\n');
});

it('jobs ls shows the newest 20 jobs, but -q prints the id of every job', async () => {
  const jobs = 21;
  for (let index = 0; index < jobs; index += 1) await user.run([...submit, '--key', `job-${index}`]);
  const list = async (...args: string[]): Promise<string[]> =>
    (await user.run(['jobs', 'ls', ...args])).stdout.trim().split('\n');
  expect(await list()).toHaveLength(1 + 20);
  expect(await list('-q')).toHaveLength(jobs);
  expect(await list('-q', '--limit', '2')).toHaveLength(2);
});
